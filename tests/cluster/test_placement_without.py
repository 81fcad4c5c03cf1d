"""Where roles go whose node is gone: to nodes that have what they need."""

from types import SimpleNamespace

from refusals import refuses
from remuda.cluster.migration import needs_of
from remuda.cluster.nodes import Need, NodeInfo, Placement, place, without
from remuda.policies import compatibility


def offer(number, cores, gpus=0, **labels):
    return NodeInfo(number, f"n{number}", "", cores, gpus, labels)


def test_learners_go_where_their_gpu_or_label_is_and_elsewhere_where_none_is():
    placement = Placement((0,), (9, 9, 9))
    offers = [offer(0, 64), offer(1, 1, gpus=2), offer(2, 1, kind="big")]
    needs = [Need("cuda:0"), Need(label="kind=big"), Need()]
    assert without(placement, {9}, offers, needs).learners == (1, 2, 0)
    assert without(placement, {9}, offers[:1], needs).learners == (0, 0, 0)


def test_learners_that_share_experience_live_on_one_node_and_move_together():
    offers = [offer(0, 4), offer(1, 4), offer(2, 4)]
    needs = [Need(), Need(beside=0), Need(), Need(beside=0)]
    placed = place(offers, 1, needs)
    assert len({placed.learners[i] for i in (0, 1, 3)}) == 1
    assert placed.learners[2] != placed.learners[0]
    gone = placed.learners[0]
    after = without(placed, {gone}, [o for o in offers if o.number != gone], needs)
    assert len({after.learners[i] for i in (0, 1, 3)}) == 1
    needs = [Need(), Need(label="kind=big", beside=0)]
    with refuses(LookupError, "experience.group"):
        place([offer(0, 4), offer(1, 1, kind="big")], 1, needs)


def test_who_shares_with_whom_is_found_over_several_steps(monkeypatch):
    monkeypatch.setattr(compatibility, "check_group", lambda *_: None)
    specs = [
        SimpleNamespace(
            name=name,
            config=SimpleNamespace(node="", experience=SimpleNamespace(group=group)),
        )
        for name, group in (("a", "x"), ("b", ""), ("c", "y"), ("d", "y"), ("e", "x"))
    ]
    layout = SimpleNamespace(groups=((0,), (1,), (2,), (3, 4)), devices=("cpu",) * 5)
    assert [need.beside for need in needs_of(layout, specs)] == [None, None, 0, 0]
