"""Every step that was written is trained on, waits, is being written, or is counted as lost."""

import numpy as np
import pytest

from assembled import assemble
from equivalence.runs import PPO, configure
from remuda.config import load_config, overlay
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.checkpoint.names import COORDINATOR
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.scoreboard import Learn
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView
from support import Tape

FIXED = {
    "env": {"num_envs": 4},
    "actor": {"processes": 1},
    "policy": {"ppo": PPO},
    "checkpoint": {"keep": 10},
}
DEALT = {
    "env": {"options": {"max_turns": 30}},
    "policy": {"ppo": PPO | {"rollout_length": 10, "normalise_rewards": False}},
    "population": {"matchmaker": "round_robin", "policies": 2},
}


def kind(algorithm, seats):
    tree = overlay(FIXED, {"policy": {"algorithm": algorithm}})
    return overlay(tree, DEALT) if seats == "dealt" else tree


def slots_by_policy(actor, names):
    """By policy, the places in its ring that the actor's streams are writing, or will go on in."""
    seats = actor["seats"]
    if "policy_groups" in seats:
        writers = seats["policy_groups"]["0"]["writers"]["0"]  # all policies are alike
        found = {n: writers[str(row)] for row, n in enumerate(names)}
    else:
        found = {n: seats[str(i)]["writer"] for i, n in enumerate(names)}
    return {n: np.concatenate((w["slots"], w["paused"])) for n, w in found.items()}


def check(directory):
    """Look at every step of the newest checkpoint; returns what is counted as lost, by policy."""
    kept = Checkpoints(directory / "checkpoints")
    number = kept.numbers()[-1]
    found = kept.read(number, COORDINATOR)
    written, learned = found["written"], found["scoreboard"]["learn"]
    slots = slots_by_policy(kept.read(number, "actor"), list(written))
    for (name, steps), row in zip(written.items(), learned, strict=True):
        ring = kept.read(number, name)["experience"]["0"]
        words, committed = ring["counters"], ring["committed"]
        entries = min(words["closed"], len(ring["queue"]))
        queue = ring["queue"][:entries]
        closed = queue[ring["sequence"][queue] == ring["queue_sequence"][:entries]]
        being_written = slots[name][slots[name] >= 0]
        orphans = np.setdiff1d(np.flatnonzero(committed), np.concatenate([closed, being_written]))
        assert not len(orphans), f"nobody writes on in {len(orphans)} segments of {name}"
        for slot in np.flatnonzero(committed):
            assert np.isfinite(ring["rewards"][slot, : committed[slot]]).all(), "nobody wrote this"
        if "taken_steps" in words and row[Learn.TRAINED]:
            waits = words["closed_steps"] - words["taken_steps"]
            told = row[Learn.TRAINED] + waits + committed[being_written].sum() + row[Learn.LOST]
            assert steps == told, f"{steps - told} of {steps} steps of {name} are nowhere"
    return learned[:, Learn.LOST]


def go_on(directory, tree, turns, resume=True, **changes):
    tree = overlay(overlay(tree, changes), {"run": {"turns": turns}})
    before = Checkpoints(directory / "checkpoints").numbers()
    result = train(configure(directory, **tree), PlainView(), resume=resume)
    assert Checkpoints(directory / "checkpoints").numbers() != before
    for policy in result.record.policies.values():
        assert policy.nonfinite == 0
        assert policy.updates > 0


WORKERS = {"schedule": "sequential", "env": {"workers": 2}}


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_resume_that_cannot_bring_its_copies_along_loses_no_step(algorithm, tmp_path):
    """Each resume lost all segments that were open, and counted none of them."""
    tree = kind(algorithm, "fixed")
    go_on(tmp_path, tree, 401, resume=False, **WORKERS)
    for turns in (601, 803):
        go_on(tmp_path, tree, turns, **WORKERS)
        assert (check(tmp_path) == 0).all()


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("seats", ["fixed", "dealt"])
@pytest.mark.parametrize("algorithm", ["ppo", "mappo", "iqn", "dqn", "sac"])
def test_whoever_goes_on_where_every_step_is_accounted_for(algorithm, seats, tmp_path):
    tree = kind(algorithm, seats)
    go_on(tmp_path, tree, 411, resume=False, schedule="sequential")
    assert (check(tmp_path) == 0).all()
    go_on(tmp_path, tree, 801, **WORKERS)
    assert (check(tmp_path) == 0).all()
    go_on(tmp_path, tree, 1201, schedule="async")  # its checkpoint holds no experience
    go_on(tmp_path, tree, 1601, schedule="lockstep", env={"workers": 2})
    lost = check(tmp_path)
    go_on(tmp_path, tree, 2001, schedule="lockstep")
    assert (check(tmp_path) == lost).all()
    go_on(tmp_path, tree, 2401, schedule="async", checkpoint={"replay": True})
    go_on(tmp_path, tree, 2801, schedule="sequential")
    lost = check(tmp_path)
    go_on(tmp_path, tree, 3201, schedule="sequential")
    assert (check(tmp_path) == lost).all()


@pytest.mark.slow_cases("ppo")
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_what_a_resume_does_not_bring_along_is_counted_as_lost(algorithm, tmp_path):
    tree = overlay(kind(algorithm, "fixed"), {"schedule": "sequential"})
    go_on(tmp_path, tree, 411, resume=False)
    kept = Checkpoints(tmp_path / "checkpoints")
    before = kept.read(kept.numbers()[-1], COORDINATOR)
    go_on(tmp_path, tree, 1011, checkpoint={"replay": False})
    lost = kept.read(kept.numbers()[-1], COORDINATOR)["scoreboard"]["learn"][:, Learn.LOST]
    if algorithm == "dqn":
        assert (lost == 0).all()  # it draws, and trains on no step "once"
        return
    trained = before["scoreboard"]["learn"][:, Learn.TRAINED]
    assert (lost == np.array(list(before["written"].values())) - trained).all()
    assert (lost > 0).all()


@pytest.mark.parametrize("schedule", ["async", "lockstep"])
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
@pytest.mark.parametrize("dealt", [False, True], ids=["fixed", "dealt"])
def test_what_an_actor_was_writing_when_it_died_can_be_taken(algorithm, schedule, dealt):
    """In exact schedules its successor left it open."""
    policy = {
        "algorithm": algorithm,
        "network": {"hidden": (8,)},
        "ppo": {"rollout_length": 64},
        "experience": {"segment_length": 16, "capacity": 2000},
    }
    tree = {"game": "support:Tape", "schedule": schedule, "policy": policy}
    tree["env"] = {"num_envs": 4, "options": {"lengths": (40, 50)}}
    tree |= {"population": {"matchmaker": "round_robin", "policies": 2}} if dealt else {}
    config = load_config(tree | {"actor": {"processes": 1}})
    specs = policy_specs(config, Tape().agents)
    assembly = assemble(config, specs, make_layout(config, len(specs)), agents=Tape().agents)
    role = assembly.roles()[0]
    actor = role.build()
    for _ in range(21):
        assert actor.work()
    rings = [experience.rings[0] for experience in assembly.experience.values()]
    left = [ring.open_steps for ring in rings]
    assert sum(left) > 0
    before = [assembly.experience[spec.name].untaken for spec in specs]
    successor = role.build()
    assert successor.work()
    assert [assembly.experience[spec.name].untaken for spec in specs] == [
        steps + more for steps, more in zip(before, left, strict=True)
    ]
    assert [ring.open_steps for ring in rings] == [0, 0]
