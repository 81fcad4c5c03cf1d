"""Births and retirements while a run goes on, in one process, by the real actor and learners."""

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

from remuda.assembly import Assembly, check_births
from remuda.changes import lasting
from remuda.checkpoint.store import Manifest
from remuda.config import BirthsConfig, load_config, overlay
from remuda.coordinator.checkpointing import COORDINATOR, Checkpointer
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.registry import make_env
from remuda.errors import CheckpointError, ConfigError, RemudaError
from remuda.experience.ring import UPDATE_TIME
from remuda.judge import Judge
from remuda.policies.spec import first_weights, policy_specs
from remuda.population.director import Birth, Freeze, Replacement, Retire
from remuda.population.ledger import BIRTH, RETIRE
from remuda.population.records import Member, PolicyRef, Population
from remuda.population.roster import Roster
from remuda.population.setup import check_population
from remuda.population.table_layout import MATCHES
from remuda.runtime.layout import make_layout
from remuda.saved_weights import load_run
from remuda.scoreboard import Learn
from remuda.streams import torch_stream
from remuda.training import train
from remuda.ui.cli import run as cli
from remuda.ui.live import PlainView
from support import Script, Tape


class Fussy:
    def __init__(self, something):
        pass


TREE = {
    "game": "support:Tape",
    "schedule": "sequential",
    "env": {"num_envs": 8},
    "policy": {
        "algorithm": "ppo",
        "network": {"hidden": (8,)},
        "ppo": {"rollout_length": 16, "minibatches": 1},
        "experience": {"segment_length": 5},
    },
    "policies": {"born_1": {"learning_rate": 0.125}, "policy_1": {"ppo": {"entropy_cost": 0.5}}},
    "population": {
        "matchmaker": "random",
        "policies": 3,
        "births": {"places": 2},
        "snapshots": {"every": 1000, "keep": 2},
        "director": "support:Script",
    },
    "learners": {"processes": 1},
    "run": {"turns": None, "seconds": 3600},
}


class World:
    """A run in one process, that is led by hand."""

    def __init__(self, **tree):
        Script.commands, Script.seen = [], []
        whole = overlay(TREE, tree) | ({"policies": {}} if "game" in tree else {})
        self.config = load_config(whole)
        agents = make_env(self.config.game, 1).agents
        self.specs = policy_specs(self.config, agents)
        layout = make_layout(self.config, len(self.specs))
        self.assembly = Assembly(self.config, self.specs, layout, agents=agents)
        self.actor, *self.learners = (role.build() for role in self.assembly.roles())
        self.table, self.league = self.assembly.table, self.actor.seats.league

    def play(self, turns, learn=True):
        for _ in range(turns):
            self.actor.work()
            for learner in self.learners if learn else []:
                while learner.work():
                    pass

    def matches(self, count, **how):
        """Play until so many more matches are over."""
        wanted = self.table.word(MATCHES) + count
        while self.table.word(MATCHES) < wanted:
            self.play(1, **how)

    def command(self, *commands, **how):
        """Have them carried out."""
        Script.commands = list(commands)
        while Script.commands:
            self.play(1, **how)

    def seated(self):
        """The live policies that were dealt a seat."""
        names, places = self.table.policies, self.league.seated.ravel()
        return {names[place] for place in places if place < len(names)}

    def names(self):
        return {str(m.ref) for m in self.league.population.learning}

    def records(self, kind):
        found = self.table.records.since(0)[0]
        return found[found["kind"] == kind]

    def learner(self, policy):
        for group in self.learners:
            for learner in group.learners:
                if policy in learner.policies:
                    return learner, learner.policies.index(policy)
        raise KeyError(policy)


FIRST = {"policy_0", "policy_1", "policy_2"}


def test_empty_places_play_nothing_and_are_told():
    world = World()
    world.matches(20)
    assert world.names() == FIRST
    assert world.table.occupants.living == ("policy_0", "policy_1", "policy_2")
    assert set(world.assembly.playing()) == FIRST
    assert Script.seen[-1][0] == ("born_0", "born_1")
    assert world.assembly.experience["born_0"].written == 0


def test_a_copy_is_born_with_its_parents_weights_and_hyperparameters():
    world = World()
    world.matches(200)
    parent = PolicyRef("policy_1")
    live = world.actor.seats.look("policy_1")
    weights, version = live.weights.copy(), live.version
    world.command(Birth("born_0", parent, {"learning_rate": 0.25}), Freeze("policy_1"), learn=False)
    world.matches(10, learn=False)
    assert "born_0" not in world.names() | world.seated()  # its learner has not begun
    assert world.table.births.is_expected(3)
    assert np.array_equal(world.table.births.newborn_weights("born_0"), weights)
    learner, k = world.learner("born_0")
    before = learner._algorithm.updates[k]
    world.learners[0].work()
    assert np.array_equal(learner._algorithm.weights(k), weights)
    assert learner._algorithm.updates[k] == before
    assert learner._trainers[k].config.learning_rate == 0.25
    assert learner._trainers[k].config.ppo.entropy_cost == 0.5  # its parent's
    assert learner._algorithm._costs.entropy_cost[k] == 0.5
    world.matches(30)
    newborn = world.league.population[PolicyRef("born_0")]
    assert newborn.parent == PolicyRef("policy_1", version)
    assert newborn.hyperparameters["learning_rate"] == 0.25
    assert newborn.hyperparameters["ppo.entropy_cost"] == 0.5
    assert "born_0" in world.seated()
    (record,) = world.records(BIRTH)
    assert world.table.policies[record["policy"][0]] == "born_0"
    assert (record["oldest"][0], record["newest"][0]) == (1, version)
    world.matches(400)
    row = world.assembly.scoreboard.learn("born_0")
    assert row[Learn.UPDATES] > 5
    assert newborn.games > 50
    # Of a frozen copy too, whatever its policy has become.
    copy = next(m for m in world.league.population.members if not m.learns)
    world.command(Birth("born_1", copy.ref))
    assert np.array_equal(
        world.table.births.newborn_weights("born_1"), world.table.snapshot(copy.place).weights
    )


def test_settings_of_an_own_algorithm_are_born_with():
    own = "policies.own_algorithms:Vanilla"
    world = World(policy={"algorithm": own, "settings": {"push": 0.5}})
    world.command(Birth("born_0", PolicyRef("policy_0"), {"settings.push": 2.0}))
    world.matches(20)
    (newborn,) = (m for m in world.league.population.learning if m.ref.policy == "born_0")
    assert newborn.hyperparameters["settings.push"] == 2.0
    for policy, push in (("born_0", 2.0), ("policy_0", 0.5)):
        learner, k = world.learner(policy)
        assert float(learner._algorithm.settings_of("push", [k])) == push
    with pytest.raises(RemudaError, match=r"born_1 with settings.pull; there are .*settings.push"):
        world.command(Birth("born_1", None, {"settings.pull": 2.0}))


def test_a_policy_is_born_from_its_specification():
    world = World()
    world.matches(50)
    world.command(Birth("born_1"), learn=False)
    spec = next(spec for spec in world.specs if spec.name == "born_1")
    drawn = first_weights(spec, torch_stream(world.config.seed, "weights", "born_1", 1))
    assert np.array_equal(world.table.births.newborn_weights("born_1"), drawn)
    world.matches(60)
    newborn = world.league.population[PolicyRef("born_1")]
    assert newborn.parent is None
    assert newborn.hyperparameters["learning_rate"] == 0.125
    assert newborn.born > 0


def test_who_retires_plays_no_more_and_makes_room_for_another():
    world = World()
    world.matches(300)
    experience = world.assembly.experience["policy_2"]
    world.command(Birth("born_0", PolicyRef("policy_0")))
    world.matches(30)
    world.command(Retire(PolicyRef("policy_2")))
    assert "policy_2" not in world.names()
    world.matches(30)
    assert "policy_2" not in world.seated()
    assert world.table.occupants.living == ("policy_0", "policy_1", "born_0")
    assert "policy_2" in Script.seen[-1][0]
    assert {world.table.policies[p] for p in world.records(RETIRE)["policy"][:, 0]} == {"policy_2"}
    written = experience.written
    world.matches(100)
    assert experience.written == written
    # Another in its place: nothing of the one before is left.
    learner, k = world.learner("policy_2")
    world.command(Birth("policy_2"), learn=False)
    assert experience.written == experience.overwritten == experience.lost
    assert (experience.rings[0].shared["committed"] == 0).all()
    steps = float(learner._algorithm.optimizer._steps[k])
    assert steps > 0
    world.learners[0].work()
    assert learner._algorithm.optimizer._steps[k] == 0
    trained = world.assembly.scoreboard.learn("policy_2")[Learn.TRAINED]
    assert not learner._rollouts[k].ready()
    world.matches(300)
    newborn = world.league.population[PolicyRef("policy_2")]
    assert newborn.parent is None
    assert newborn.games < 300
    row = world.assembly.scoreboard.learn("policy_2")
    assert row[Learn.TRAINED] > trained
    assert row[Learn.LOST] == written - trained  # what the one before left
    assert row[Learn.TRAINED] - trained <= experience.written - written


def test_a_policy_without_which_there_is_no_match_does_not_retire():
    world = World()
    world.matches(20)
    world.command(Retire(PolicyRef("policy_2")), Retire(PolicyRef("policy_1")))
    assert world.names() == {"policy_0", "policy_1"}
    world.matches(20)
    assert len(world.records(RETIRE)) == 1


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            Birth("policy_0"),
            "birth of policy_0, which is no empty place; there are: born_0, born_1",
        ),
        (Birth("unknown"), "which is no empty place"),
        (Birth("born_0", PolicyRef("policy_0", 77)), "from policy_0@77, which is not in the popul"),
        (Birth("born_0", None, {"hidden": 3.0}), "with hidden; there are learning_rate, discount"),
    ],
)
def test_what_cannot_be_born_is_told(command, said):
    world = World()
    with pytest.raises(RemudaError, match=said):
        world.command(command)


FREE = "population.births.every replaces policies that may take every seat"


@pytest.mark.parametrize(
    ("population", "said"),
    [
        ({"matchmaker": "fixed"}, "the matchmaker fixed names who plays"),
        ({"births": {"places": 0, "every": 5}}, "population.births.every needs"),
        (
            {"director": "population.test_births:Missing"},
            "population.director population.test_births",
        ),
        (
            {"births": {"every": 5}, "seats": {"policy_0": ["agent_0"], "policy_1": ["agent_1"]}},
            FREE,
        ),
        ({"births": {"every": 5}, "seats": {"born_1": ["agent_0"]}}, FREE),
        ({"director": "nothing"}, "name yours as module:Class"),
        ({"director": "population.test_births:Fussy"}, "is called with nothing"),
        ({"director": "builtins:object"}, "has no method step"),
        ({"policies": ("born_0", "b")}, "population.policies names born_0 twice"),
    ],
)
def test_faults_of_the_configuration_are_told(population, said):
    config = load_config(overlay(TREE, {"population": population}) | {"policies": {}})
    agents = Tape().agents
    with pytest.raises(ConfigError, match=said):
        check_population(config, Roster.of(config, agents))


def test_q_learners_are_born_too():
    policy = {
        "algorithm": "dqn",
        "n_frames": 1,
        "batch_size": 16,
        "network": {"hidden": (8,)},
        "experience": {"learning_starts": 64, "capacity": 500, "segment_length": 5},
        "exploration": {"start": 1.0, "end": 0.1, "decay_steps": 200},
    }
    tree = {"policy": policy, "policies": {"policy_1": {"discount": 0.5}}}
    tree["policies"]["policy_1"]["ppo"] = {}
    world = World(**tree)
    world.matches(200)
    world.command(Birth("born_0"))
    learner, k = world.learner("born_0")
    assert learner.epsilon(k) == 1.0
    world.matches(100)
    world.command(Retire(PolicyRef("born_0")))
    world.matches(20)
    assert learner.epsilon(k) < 1.0
    updates = learner._algorithm.updates[k]
    learner._trainers[k].row[Learn.SAMPLES] = 0.0  # the one before was owed all of its training
    world.command(Birth("born_0", PolicyRef("policy_1")))
    world.play(1)
    assert learner.epsilon(k) > 0.9  # it explores anew
    lost = learner._replays[k].experience.lost
    assert lost > 0
    assert learner.state("born_0")["begun"] == lost
    paid = learner._trainers[k].row[Learn.SAMPLES]
    assert paid >= lost * learner._trainers[k].config.experience.replay_ratio
    assert learner._replays[k].discount == 0.5
    assert learner.steps_needed(k) >= learner._replays[k].experience.lost + 64
    world.matches(150)
    assert learner._algorithm.updates[k] > updates


def test_a_checkpoint_of_another_policy_in_its_place_is_left_aside():
    world = World()
    world.matches(200)
    group = world.learners[0]
    before = group.state("policy_2")
    world.command(Birth("born_0", PolicyRef("policy_0")))
    world.matches(30)
    world.command(Retire(PolicyRef("policy_2")))
    world.matches(30)
    world.command(Birth("policy_2", PolicyRef("policy_1")))
    world.matches(60)
    learner, k = world.learner("policy_2")
    weights = learner._algorithm.weights(k).copy()
    group.restore("policy_2", before)
    assert np.array_equal(learner._algorithm.weights(k), weights)
    group.restore("policy_1", group.state("policy_1"))  # its own is taken
    # Nor does its experience come back, where it was saved before and the table after.
    saved = world.table.state()["orders"][2, 0]
    assert before["generation"] != saved == group.state("policy_2")["generation"]


def test_no_policy_waits_for_an_empty_place():
    """A stack trains as soon as those who are there have their rollouts, all together."""
    world = World()
    learner, _ = world.learner("policy_0")
    assert "born_0" in learner.policies  # one stack
    there = [r for n, r in zip(learner.policies, learner._rollouts, strict=True) if n in FIRST]
    while not all(rollouts.ready() for rollouts in there):
        assert not learner.ready()
        world.play(1, learn=False)
    assert not any(rollouts.experience.is_urgent for rollouts in there)
    assert learner.ready()
    assert learner.all_ready()
    world.learners[0].work()
    updates = [world.assembly.scoreboard.learn(name)[Learn.UPDATES] for name in sorted(FIRST)]
    assert updates == [1, 1, 1]


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
    counters = world.assembly.experience[policy].counters
    (room,) = [r for r in world.actor._rooms._rooms if np.shares_memory(r._counters, counters)]
    for _ in range(10_000):
        if not room.has_room():
            return room
        if not world.actor.work():  # it waits for another's
            train_all(world)
    raise AssertionError(f"the actor never waits for {policy}")


def train_all(world):
    for group in world.learners:
        while group.work():
            pass


@pytest.mark.parametrize("algorithm", WAITS)
def test_the_actor_does_not_wait_for_an_empty_place(algorithm):
    """Its learner took nothing there any more, and what its last matches left was waited for."""
    world = World(**WAITS[algorithm])
    room, place = fill(world, "policy_2"), 2
    # Its last matches are over, by the turn that filled its ring.
    world.table.occupants.remove(place)
    train_all(world)
    assert room.has_room()
    if algorithm == "ppo":
        check_steps(world)
    world.table.admit(place)  # as if it had never gone
    train_all(world)
    fill(world, "policy_2")  # which is waited for again
    train_all(world)
    assert room.has_room()
    if algorithm == "ppo":
        check_steps(world)


@pytest.mark.parametrize("schedule", ["sequential", "lockstep"])
@pytest.mark.parametrize(
    "saved", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["saved", "unsaved"]
)
@pytest.mark.parametrize("place", ["retired", "playing"])
@pytest.mark.parametrize("algorithm", WAITS)
def test_a_run_that_waits_for_a_learner_is_resumed_in_an_exact_schedule(
    algorithm, place, saved, schedule, tmp_path
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
    if place == "retired":
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


def test_an_update_takes_no_longer_for_the_time_its_place_was_empty(monkeypatch):
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
def test_the_actor_waits_for_a_newborn_in_a_place_that_was_empty(algorithm):
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
    room = fill(world, "policy_2")
    train_all(world)
    assert room.has_room()
    if algorithm == "ppo":
        check_steps(world)


def test_policies_may_retire_where_none_can_be_born(tmp_path):
    config = load_config(
        overlay(
            TREE,
            {
                "population": {"births": {"places": 0}, "snapshots": {"every": None}},
                "run": {"turns": 400, "evaluate_episodes": 4, "directory": tmp_path / "run"},
                "checkpoint": {"evaluate_episodes": 2},
            },
        )
        | {"policies": {}}
    )
    Script.commands = [Retire(PolicyRef("policy_1"))]
    result = train(config, PlainView())
    assert set(result.evaluation.policies) == {"policy_0", "policy_2"}
    assert set(load_run(RunDirectory.open(tmp_path / "run"))[1]) == {"policy_0", "policy_2"}


def test_of_a_run_that_ends_while_a_policy_leaves_the_final_weights_are_loaded(
    tmp_path, monkeypatch
):
    """One that has retired and plays its last match has no weights of the end."""
    tables, make, take = [], Assembly.__init__, Checkpointer.take

    def made(self, *words, **options):
        make(self, *words, **options)
        tables.append(self.table)

    def taken(self, *words):
        tables[-1].occupants.leave(0)
        return take(self, *words)

    monkeypatch.setattr(Assembly, "__init__", made)
    monkeypatch.setattr(Checkpointer, "take", taken)
    tree = {
        "run": {"turns": 100, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        "checkpoint": {"evaluate_episodes": 0},
    }
    Script.commands = []
    train(load_config(overlay(TREE, tree)), PlainView())
    run = RunDirectory.open(tmp_path / "run")
    for name in ("policy_1", "policy_2"):  # other weights than those of the checkpoint
        tensors, told = run.load_weights(name)
        run.save_weights(name, {key: np.full_like(t, 0.5) for key, t in tensors.items()}, told)
    found = load_run(run)[1]
    assert set(found) == {"policy_1", "policy_2"}
    assert all((snapshot.weights == 0.5).all() for snapshot in found.values())


def take_checkpoint(run, world):
    """The coordinator's part of one is all that judging reads; returns the number."""
    number = run.checkpoints.begin()
    run.checkpoints.write(number, COORDINATOR, world.assembly.state())
    turns = world.table.word(MATCHES)
    run.checkpoints.commit(Manifest(number, turns, 1.0, exact=True, config={}, files={}))
    return number


def test_the_best_so_far_plays_with_the_policies_that_it_had(tmp_path, monkeypatch):
    """It played with those of today's names: so did `born_0`, before a learner had trained it."""
    world, run = World(), RunDirectory(tmp_path / "run")
    lived = {}
    for command in (None, Birth("born_0", PolicyRef("policy_0")), Retire(PolicyRef("policy_1"))):
        if command is not None:
            world.command(command)
        world.matches(20)
        lived[take_checkpoint(run, world)] = world.names()
    assert lived == {1: FIRST, 2: {*FIRST, "born_0"}, 3: {*FIRST, "born_0"} - {"policy_1"}}
    found = []
    monkeypatch.setattr(
        "remuda.judge.margin", lambda _, one, other, *__: found.append(set(other)) or 0.0
    )
    judge = Judge(world.config, world.specs, run)
    for today in lived.values():
        for number in lived:
            judge.challenge(dict.fromkeys(today), number)
    assert found == 3 * list(lived.values())


@pytest.mark.parametrize("harm", ["is damaged", "is of format 0"])
def test_final_weights_need_no_checkpoint(harm, tmp_path):
    """Who lived at the end was read from the newest checkpoint, and so was its damage."""
    tree = {
        "run": {"turns": 600, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        "checkpoint": {"evaluate_episodes": 0},
    }
    Script.commands = [Birth("born_0", PolicyRef("policy_0")), Retire(PolicyRef("policy_1"))]
    train(load_config(overlay(TREE, tree)), PlainView())
    run = RunDirectory.open(tmp_path / "run")
    before = load_run(run)[1]
    path = run.checkpoints.path / f"{run.checkpoints.numbers()[-1]:06d}" / "manifest.json"
    path.write_text("" if harm == "is damaged" else json.dumps({"format": 0}))
    found = load_run(run)[1]
    assert set(found) == set(before) == {"policy_0", "policy_2", "born_0"}
    assert all(np.array_equal(found[name].weights, before[name].weights) for name in found)
    # A file of a policy that retired before, which was not removed, is older and says nothing.
    stale = run.weights / "policy_1.safetensors"
    tensors, facts = run.load_weights("policy_0")
    run.save_weights("policy_1", tensors, facts | {"policies": "policy_0\npolicy_1\npolicy_2"})
    os.utime(stale, (0, 0))
    assert set(load_run(run)[1]) == set(before)
    run.keep_weights(before)
    assert not stale.exists()
    assert all(run.has_weights(name) for name in before)
    (run.weights / "born_0.safetensors").unlink()  # the end was cut while weights were saved
    with pytest.raises(CheckpointError, match=harm):
        load_run(run)


def test_a_tournament_of_a_run_with_births(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree = {
        "run": {"turns": 600, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        "checkpoint": {"evaluate_episodes": 0},
    }
    Script.commands = [Birth("born_0", PolicyRef("policy_0")), Retire(PolicyRef("policy_1"))]
    train(load_config(overlay(TREE, tree)), PlainView())
    assert cli(["tournament", str(tmp_path / "run"), "--episodes", "4"]) == 0


def test_policies_that_cannot_be_copies_of_each_other_are_refused():
    tree = {"population": {"births": {"every": 10}}, "policies": {"policy_1": {"n_frames": 2}}}
    config = load_config(overlay(TREE, tree))
    with pytest.raises(ConfigError, match="policy_0 and policy_1 have other networks"):
        check_births(config, policy_specs(config, Tape().agents))


def judged(*ratings, empty=("born_0",), games=10):
    """A population of these ratings."""
    population = Population([Member(PolicyRef(f"p{i}")) for i in range(len(ratings))])
    for member, rating in zip(population.members, ratings, strict=True):
        member.rate(rating, 1.0)
        member.numbers[0] = games
    population.empty = empty
    return population


def test_the_best_has_a_child_and_the_weakest_makes_room_once_it_plays():
    director = Replacement(BirthsConfig(places=1, every=100, games=10))
    population = judged(20.0, 30.0, 25.0)
    population.matches = 99
    assert director.step(population, None, {}) == []
    population.matches = 100
    assert director.step(population, None, {}) == [Birth("born_0", PolicyRef("p1"))]
    population.matches, population.empty, population.expected = 300, (), ("born_0",)
    assert director.step(population, None, {}) == []  # the child does not play yet
    population.empty, population.expected = ("born_0",), ()
    successor = Replacement(BirthsConfig(places=1, every=100, games=10))
    successor.restore(director.state())
    # An actor that died before it ordered the child leaves its place empty.
    forgetful = Replacement(BirthsConfig(places=1, every=100, games=10))
    forgetful.restore(director.state())
    assert forgetful.step(population, None, {}) == []
    population.matches = 400
    assert forgetful.step(population, None, {}) == [Birth("born_0", PolicyRef("p1"))]
    population.empty = ()
    population.add(Member(PolicyRef("born_0")))
    assert successor.step(population, None, {}) == [Retire(PolicyRef("p0"))]


def test_only_who_may_take_every_seat_is_replaced():
    director = Replacement(BirthsConfig(places=1, every=100, games=10))
    population = judged(20.0, 30.0, 25.0, 28.0)
    for name, seat in (("p0", 0), ("p1", 1)):
        population[PolicyRef(name)].seats = frozenset({seat})
    population.matches = 100
    assert director.step(population, None, {}) == [Birth("born_0", PolicyRef("p3"))]
    population.add(Member(PolicyRef("born_0")))
    population.empty = ()
    assert director.step(population, None, {}) == [Retire(PolicyRef("p2"))]


def test_no_policy_is_replaced_before_it_has_played_nor_among_equals():
    director = Replacement(BirthsConfig(places=1, every=100, games=11))
    population = judged(20.0, 30.0)
    population.matches = 100
    assert director.step(population, None, {}) == []
    director = Replacement(BirthsConfig(places=1, every=100, games=10))
    population = judged(25.0, 25.0)
    population.matches = 100
    assert director.step(population, None, {}) == []


def test_where_every_place_is_taken_the_weakest_makes_room_first():
    director = Replacement(BirthsConfig(places=1, every=100, games=10))
    population = judged(20.0, 30.0, 25.0, empty=())
    population.matches = 100
    assert director.step(population, None, {}) == [Retire(PolicyRef("p0"))]
    # It plays its match to the end before its place is empty; no other goes meanwhile.
    population.retire(PolicyRef("p0"))
    for matches in (101, 200, 300):
        population.matches, population.leaving = matches, ("p0",)
        assert director.step(population, None, {}) == []
    population.empty, population.leaving, population.matches = ("p0",), (), 400
    assert director.step(population, None, {}) == [Birth("p0", PolicyRef("p1"))]
