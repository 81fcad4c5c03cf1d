"""Which of the slow tests come first, where there is not time for all of them."""

import order


def ordered(names, origin):
    return sorted(names, key=lambda name: order.key(name, "slow" in name, origin))


def test_every_slow_test_comes_early_in_the_order_of_some_commit():
    names = [f"{'slow' if i % 2 else 'quick'}-{i}" for i in range(40)]
    firsts = set()
    for commit in range(100):
        found = ordered(names, str(commit))
        assert found[:20] == names[::2]  # all others before them, as they stand
        assert found == ordered(names, str(commit))
        firsts |= set(found[20:24])
    assert firsts == set(names[1::2])


def test_without_a_commit_the_day_draws_it(tmp_path, monkeypatch):
    monkeypatch.delenv("GIT_DIR", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert len(order.origin(tmp_path)) == len("2001-01-01")
