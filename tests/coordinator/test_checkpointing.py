"""Taking checkpoints, and keeping the best: what fails costs itself, and is told."""

import threading

import numpy as np
import pytest

from remuda.config import CheckpointConfig
from remuda.coordinator.best_checkpoint import measurement
from remuda.coordinator.checkpointing import BestKeeper, Checkpointer, Contents
from remuda.evaluation.results import Evaluation
from remuda.system.checkpoint.store import Checkpoints


class Roles:
    """Two parts, of which some may be missing."""

    def __init__(self, store):
        self.store, self.missing, self.value, self.settled = store, set(), 0, []

    def save(self, number):
        parts = {"a", "b"} - self.missing
        for part in parts:
            self.store.write(number, part, {"value": self.value})
        return parts

    def settle(self, number):
        self.settled.append(number)


@pytest.fixture
def store(tmp_path):
    return Checkpoints(tmp_path / "checkpoints")


def make(store, said, exact=False):
    contents = Contents(("a", "b"), lambda: {"turns": 1}, {"seed": 1}, exact)
    return Checkpointer(store, CheckpointConfig(keep=2), contents, said.append), Roles(store)


def test_checkpoints_are_taken_and_the_last_kept(store):
    checkpointer, roles = make(store, said := [])
    assert [checkpointer.take(roles, turns, 1.0) for turns in (10, 20, 30)] == [1, 2, 3]
    assert store.numbers() == [2, 3]
    assert store.manifest(3).turns == 30
    assert set(store.manifest(3).files) == {
        "a.safetensors",
        "b.safetensors",
        "coordinator.safetensors",
    }
    assert checkpointer.take(roles, 30, 2.0) is None  # nothing was played since
    assert said == []
    assert roles.settled == [1, 2, 3]


def test_a_missing_part_is_taken_from_the_checkpoint_before(store):
    checkpointer, roles = make(store, said := [])
    roles.missing = {"a"}
    assert checkpointer.take(roles, 10, 1.0) is None
    assert "a could not be saved; there is none before it, and the run continues" in said[0]
    roles.missing, roles.value = set(), 1
    first = checkpointer.take(roles, 20, 1.0)
    roles.missing, roles.value = {"a"}, 2
    second = checkpointer.take(roles, 30, 1.0)
    assert (store.read(second, "a")["value"], store.read(second, "b")["value"]) == (1, 2)
    assert store.numbers() == [first, second]
    assert len(roles.settled) == 3
    assert not list(store.path.glob(".*"))


def test_where_all_must_be_of_one_moment_a_missing_part_leaves_none(store):
    checkpointer, roles = make(store, said := [], exact=True)
    first = checkpointer.take(roles, 10, 1.0)
    roles.missing = {"b"}
    assert checkpointer.take(roles, 20, 1.0) is None
    assert f"b could not be saved; checkpoint {first} is kept" in said[0]
    assert store.numbers() == [first]


def test_a_full_disk_is_told_and_leaves_the_one_before(store, monkeypatch):
    checkpointer, roles = make(store, said := [])
    first = checkpointer.take(roles, 10, 1.0)

    def full(*_):
        raise OSError(28, "No space left on device")

    for broken in ("write", "commit", "begin"):
        with monkeypatch.context() as patched:
            patched.setattr(store, broken, full)
            assert checkpointer.take(roles, 20, 1.0) is None
        assert "No space left on device; checkpoint 1 is kept" in said[-1]
        store.verify(first)
    assert len(said) == 3
    assert checkpointer.take(roles, 20, 1.0) is not None


def taken(store, turns):
    checkpointer, roles = make(store, [])
    return checkpointer.take(roles, turns, 1.0)


@pytest.mark.parametrize("inline", [True, False])
def test_the_best_is_marked(store, inline):
    earned = iter([5.0, 9.0, 7.0])
    best = BestKeeper(store, lambda *_: {"mean_return": next(earned)}, print, inline)
    numbers = []
    for turns in (10, 20):
        numbers.append(taken(store, turns))
        best.offer(numbers[-1], {})
        best.collect(60.0)
    assert store.best()["checkpoint"] == numbers[1]
    third = taken(store, 30)
    best.offer(third, {})
    best.collect(60.0)
    assert store.best() == {"checkpoint": numbers[1], "mean_return": 9.0}
    assert numbers[1] in store.numbers()


def test_a_measurement_that_takes_long_is_waited_for_by_nobody(store):
    gate, calls = threading.Event(), []

    def slow(snapshots, _):
        calls.append(snapshots)
        assert gate.wait(60)
        return {"mean_return": 1.0}

    best = BestKeeper(store, slow, print, inline=False)
    number = taken(store, 10)
    best.offer(number, {})
    best.offer(number, {})  # passed over
    best.collect()
    assert store.best() is None
    gate.set()
    best.collect(60.0)
    assert store.best()["checkpoint"] == number
    assert len(calls) == 1


def test_a_measurement_that_fails_is_told_once(store):
    def fail(*_):
        raise ValueError("the game broke")

    best = BestKeeper(store, fail, (said := []).append, inline=True)
    number = taken(store, 10)
    best.offer(number, {})
    best.offer(number, {})
    assert len(said) == 1
    assert "so no more checkpoints are evaluated: the game broke" in said[0]
    assert store.best() is None


def test_where_one_wins_what_others_lose_the_best_is_who_beats_the_best(store):
    """Every mean is 0; the skill of a checkpoint is the value of its only weight."""
    skills = {}

    def challenge(snapshots, rival):
        return snapshots["a"] - skills[rival]

    measure = lambda *_: {"mean_return": 0.0, "constant_sum": True}  # noqa: E731
    best = BestKeeper(store, measure, print, True, challenge)
    found = []
    for turns, skill in enumerate([1.0, 5.0, 3.0, 4.0], 1):
        number = taken(store, turns)
        skills[number] = skill
        best.offer(number, {"a": skill})
        found.append(skills[store.best()["checkpoint"]])
    assert found == [1.0, 5.0, 5.0, 5.0]
    assert store.best()["margin"] == 4.0


def test_what_is_measured_too_long_after_the_run_is_given_up(store):
    cancelled = threading.Event()

    def slow(*_):
        assert cancelled.wait(60)

    best = BestKeeper(store, slow, print, False, cancelled=cancelled)
    number = taken(store, 10)
    best.offer(number, {})
    best.close(0.01)
    best.collect(60.0)
    assert store.best() is None
    best.compare(number, {"mean_return": 3.0}, {})
    assert store.best()["checkpoint"] == number


@pytest.mark.parametrize(
    ("returns", "found"),
    [
        ([[1.0, -1.0]], [1.0, 5.0, 5.0, 5.0]),  # a mean of 0 for all: who beats the best
        ([[1.0, -1.0], [-1.0, 1.0]], [1.0, 5.0, 5.0, 5.0]),
    ],
)
def test_without_chance_too_the_best_is_who_beats_the_best(store, returns, found):
    assert found_best(store, lambda _: np.array(returns * 4)) == found


def test_where_all_win_together_without_chance_means_decide(store):
    assert found_best(store, lambda skill: np.full((4, 2), skill)) == [1.0, 5.0, 5.0, 5.0]
    assert "margin" not in store.best()


@pytest.mark.parametrize("size", [1.0, -3333.0])
def test_means_that_differ_by_rounding_decide_nothing(store, size):
    """Three agents share out 0, in float32: the means are -2.5e-9 and 2.5e-9 times the size."""

    def returns(skill):
        shares = np.array([[0.1, 0.2, -0.3]] * 4, np.float32) * np.float32(size)
        return (shares if skill == 5.0 else -shares).astype(np.float64)

    assert returns(5.0).mean() != 0.0, "nothing is rounded"
    assert found_best(store, returns) == [1.0, 5.0, 5.0, 5.0]


def found_best(store, returns):
    """The skills of the best after each checkpoint, whose greedy play earned `returns(skill)`."""
    skills = {}

    def measure(snapshots, _):
        found = returns(snapshots["a"])
        return measurement(Evaluation(("a", "b", "c")[: found.shape[1]], found))

    best = BestKeeper(
        store,
        measure,
        print,
        True,
        lambda snapshots, rival, _=None: snapshots["a"] - skills[rival],
    )
    found = []
    for turns, skill in enumerate([1.0, 5.0, 3.0, 4.0], 1):
        number = taken(store, turns)
        skills[number] = skill
        best.offer(number, {"a": skill})
        found.append(skills[store.best()["checkpoint"]])
    return found


def test_a_measurement_that_ran_out_of_time_is_told_once(store):
    """No best checkpoint was kept, and nobody was told why."""
    best = BestKeeper(store, lambda *_: None, (said := []).append, inline=True)
    number = taken(store, 10)
    best.offer(number, {})
    best.offer(number, {})
    assert said == [
        f"checkpoint {number} was not evaluated completely: run.evaluate_seconds have "
        "passed; increase it, or reduce checkpoint.evaluate_episodes"
    ]
    assert store.best() is None
