"""Who waits for whom where slots are empty at first."""

from types import SimpleNamespace

import pytest

from population.birth_worlds import TREE, World
from remuda.config import load_config, overlay
from remuda.config.resume_rules import lasting
from remuda.experience.backpressure import Backpressure
from remuda.experience.ring import UPDATE_TIME
from remuda.population.directors.director import Birth, Retire
from remuda.population.ledger.records import PolicyRef
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.names import COORDINATOR
from remuda.system.checkpoint.store import Manifest
from remuda.system.scoreboard import Learn
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView


class Remembers(PlainView):
    """A view that keeps what is said."""

    def __init__(self):
        super().__init__()
        self.said = []

    def say(self, message):
        self.said.append(message)


WAITS = {
    "ppo": {"schedule": "async"},
    "dqn": {
        "schedule": "async",
        "policy": {
            "algorithm": "dqn",
            "n_frames": 1,
            "batch_size": 16,
            "network": {"hidden": (8,)},
            "experience": {
                "learning_starts": 64,
                "capacity": 100,
                "segment_length": 5,
                "on_full": "wait",
            },
        },
        "policies": {"policy_1": {"discount": 0.5}},
        "actor": {"processes": 1},
    },
}


def check_steps(world):
    """Every step that was written is trained on, waits, is being written, or is counted as lost."""
    for name, experience in world.assembly.experience.items():
        row = world.assembly.scoreboard.learn(name)
        waits = experience.untaken + experience.rings[0].open_steps
        assert row[Learn.TRAINED] + row[Learn.LOST] + waits == experience.written


def fill(world, policy):
    """Play until the actor has to wait for this policy's learner."""
    room = Backpressure(world.assembly.experience[policy], 0)
    for _ in range(10_000):
        if not room.has_room():
            assert not world.actor.has_room()
            return room
        if not world.actor.work():  # it waits for another's
            train_all(world)
    raise AssertionError(f"the actor never waits for {policy}")


def train_all(world):
    for group in world.learners:
        while group.work():
            pass


@pytest.mark.parametrize("algorithm", WAITS)
def test_the_actor_does_not_wait_for_an_empty_slot(algorithm):
    """Its learner took nothing there any more, and what its last matches left was waited for."""
    world = World(**WAITS[algorithm])
    room, slot = fill(world, "policy_2"), 2
    # Its last matches are over, by the turn that filled its ring.
    world.table.occupants.remove(slot)
    train_all(world)
    assert room.has_room()
    assert world.actor.has_room()
    if algorithm == "ppo":
        check_steps(world)
    world.table.admit(slot)  # as if it had never gone
    train_all(world)
    fill(world, "policy_2")  # which is waited for again
    train_all(world)
    assert world.actor.has_room()
    if algorithm == "ppo":
        check_steps(world)


@pytest.mark.process
@pytest.mark.slow_cases(
    "dqn-playing-saved-lockstep",
    "dqn-retired-saved-lockstep",
    "dqn-retired-saved-sequential",
    "ppo-playing-saved-lockstep",
    "ppo-playing-saved-sequential",
    "ppo-retired-saved-lockstep",
    "ppo-retired-saved-sequential",
)
@pytest.mark.parametrize("schedule", ["sequential", "lockstep"])
@pytest.mark.parametrize(
    "saved", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["saved", "unsaved"]
)
@pytest.mark.parametrize("which", ["retired", "playing"])
@pytest.mark.parametrize("algorithm", WAITS)
def test_a_run_that_waits_for_a_learner_is_resumed_in_an_exact_schedule(
    algorithm, which, saved, schedule, tmp_path
):
    """The game had to wait, and no learner looked: "this is a fault", at every attempt.

    A learner was as far behind as it may be. Its policy still plays, or is gone; what it was behind
    with was saved, or not. In exact schedules the actor asks before the learner can say anything.
    """
    config = {
        "checkpoint": {"replay": saved, "evaluate_episodes": 0},
        "actor": {"processes": 1},
        "run": {"directory": tmp_path / "run", "evaluate_episodes": 0},
    }
    tree = overlay(WAITS[algorithm], config)
    world = World(**tree)
    fill(world, "policy_2")
    if which == "retired":
        world.table.occupants.remove(2)
    turns = int(world.assembly.scoreboard.turns())
    run = RunDirectory.create(world.config)
    store, number = run.checkpoints, run.checkpoints.begin()
    for worker in (world.actor, *world.learners):
        for part in worker.parts:
            store.write(number, part, worker.state(part))
    store.write(number, COORDINATOR, world.assembly.state())
    made = lasting(world.config)
    store.commit(Manifest(number, turns, 1.0, exact=False, config=made, files={}))
    run.unlock()
    later = {"schedule": schedule, "run": {"turns": turns + 300}, "checkpoint": {"replay": None}}
    view = Remembers()
    result = train(load_config(overlay(overlay(TREE, tree), later)), view, resume=True)
    assert result.finished
    assert not result.restarts, view.said


def test_an_update_takes_no_longer_for_the_time_its_slot_was_empty(monkeypatch):
    """Actors wait by what updates take: they waited longer for a newborn than for others."""
    seconds = [0.0]
    clock = SimpleNamespace(monotonic=lambda: seconds[0])
    monkeypatch.setattr("remuda.experience.experience.time", clock)
    world = World(**WAITS["dqn"])
    fill(world, "policy_2")
    world.table.occupants.remove(2)
    train_all(world)
    train_all(world)
    seconds[0] += 1.0
    world.table.admit(2)
    train_all(world)
    (ring,) = world.assembly.experience["policy_2"].rings
    assert ring.counters[UPDATE_TIME] < 1000  # microseconds


@pytest.mark.parametrize("algorithm", WAITS)
def test_the_actor_waits_for_a_newborn_in_a_slot_that_was_empty(algorithm):
    world = World(**WAITS[algorithm])
    world.matches(60)
    world.command(Birth("born_0", PolicyRef("policy_0")))
    world.matches(30)
    world.command(Retire(PolicyRef("policy_2")))
    while world.table.occupants.is_there(2):
        world.play(1)
    world.command(Birth("policy_2", PolicyRef("policy_0")))
    updates = world.assembly.scoreboard.learn("policy_2")[Learn.UPDATES]
    world.matches(100)
    assert world.assembly.scoreboard.learn("policy_2")[Learn.UPDATES] > updates
    fill(world, "policy_2")
    train_all(world)
    assert world.actor.has_room()
    if algorithm == "ppo":
        check_steps(world)
