"""The coordinator dies at any line of a checkpoint: each that is listed is whole all the same."""

import pytest

from line_deaths import crash_at_each_line
from remuda.system.checkpoint import store as module
from remuda.system.checkpoint.store import Checkpoints, Manifest


def take(store, value, parts):
    """Take a checkpoint; parts that are not written are an older one's."""
    number = store.begin()
    for part in parts:
        store.write(number, part, {"value": value})
    for part in {"a", "b", "c"} - {*parts}:
        assert store.carry_over(number, part)
    store.commit(Manifest(number, value, 1.0, False, {}, {}))
    store.keep(2)


HISTORY = ("abc", "bc", "c", "ab", "bc")
"""Parts that their owners wrote, by checkpoint."""


@pytest.mark.slow_cases("every")
@pytest.mark.parametrize("step", [3, 1], ids=["third", "every"])
def test_each_that_is_listed_is_whole(step, tmp_path):
    """`step`: which lines."""
    for crash in crash_at_each_line((module,), step):
        store = Checkpoints(tmp_path / str(crash.line))
        for value, parts in enumerate(HISTORY[:-1]):
            take(store, value, parts)
        with crash:
            take(store, len(HISTORY), HISTORY[-1])
        if not crash.reached:
            break
        successor = Checkpoints(store.path)
        numbers = successor.numbers()
        assert len(numbers) >= 2
        for number in numbers:
            successor.verify(number)
        assert {part: successor.newest(part)["value"] for part in "abc"} in (
            {"a": 3, "b": 3, "c": 2},
            {"a": 3, "b": 5, "c": 5},
        )
        take(successor, 9, "c")
        assert len(successor.numbers()) == 2
        for number in successor.numbers():
            successor.verify(number)
        take(successor, 10, "abc")
        take(successor, 11, "abc")
        names = {path.name for path in store.path.iterdir()}
        assert names == {f"{number:06d}" for number in successor.numbers()}
