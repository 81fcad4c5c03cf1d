"""Runs that are resumed with other settings: each goes on, or is refused by the setting's name."""

import shutil

import numpy as np
import pytest

from equivalence.runs import PPO, run
from refusals import refuses
from remuda.config import overlay
from remuda.errors import RemudaError
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.scoreboard import Learn

TREE = {
    "env": {"num_envs": 4},
    "learners": {"processes": 1},
    "policy": {"ppo": PPO, "experience": {"on_full": "wait"}},
    "run": {"turns": 400},
}
LATER = {"run": {"turns": 1000}}
LEAGUE = {
    "env": {"options": {"max_turns": 30}},
    "policy": {"ppo": PPO | {"rollout_length": 10, "normalise_rewards": False}},
    "population": {
        "matchmaker": "self_play",
        "policies": 2,
        "snapshots": {"every": 4, "keep": 2},
    },
}


def coordinators(directory):
    """The coordinator's part of the newest checkpoint."""
    kept = Checkpoints(directory / "checkpoints")
    return kept.read(kept.numbers()[-1], "coordinator")


def files(directory):
    """All that a run has written and that a resume which is refused leaves as it is."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "lock" and path.parent.name != "logs"
    }


def went_on(directory, before, turns=1000):
    """It played and learned, nothing it learned was unsound, and it lost no counts."""
    found = coordinators(directory)
    assert found["scoreboard"]["play"][0] >= turns
    learn, earlier = found["scoreboard"]["learn"], before["scoreboard"]["learn"]
    assert (learn[:, Learn.NONFINITE] == 0).all()
    assert (learn[:, Learn.HALTED] == 0).all()
    assert (learn[:, Learn.UPDATES] > earlier[:, Learn.UPDATES]).all()
    assert all(found["written"][name] > count for name, count in before["written"].items())


@pytest.mark.slow_cases(
    "dqn league-saved",
    "dqn-not saved",
    "dqn-saved",
    "ppo league-not saved",
    "ppo league-saved",
    "ppo-not saved",
    "ppo-saved",
)
@pytest.mark.parametrize("saved", [True, False], ids=["saved", "not saved"])
@pytest.mark.parametrize("kind", ["dqn", "ppo", "dqn league", "ppo league"])
def test_an_exact_run_without_its_experience_begins_new_episodes(kind, saved, tmp_path):
    """It went on writing segments whose first steps were not there, and learned from their poison.

    `saved`: the experience is in the checkpoint and the resume does not read it.
    """
    algorithm, _, league = kind.partition(" ")
    tree = overlay(TREE, {"schedule": "sequential", "policy": {"algorithm": algorithm}})
    tree = overlay(tree, LEAGUE) if league else tree
    run(tmp_path / "run", **overlay(tree, {"checkpoint": {"replay": saved}, "run": {"turns": 411}}))
    before = coordinators(tmp_path / "run")
    weights, _ = run(
        tmp_path / "run", resume=True, **overlay(tree, LATER | {"checkpoint": {"replay": False}})
    )
    went_on(tmp_path / "run", before)
    lost = [
        found["scoreboard"]["learn"][:, Learn.LOST]
        for found in (before, coordinators(tmp_path / "run"))
    ]
    if algorithm == "dqn":
        assert (lost[0] == lost[1]).all()  # what ppo loses: test_every_step.py
    assert all(np.isfinite(flat).all() for flat in weights.values())


ASYNC = overlay(
    TREE,
    {
        "schedule": "async",
        "actor": {"processes": 2},
        "policy": {"algorithm": "ppo"},
        "checkpoint": {"replay": True},
    },
)
EXACT = overlay(TREE, {"schedule": "sequential", "policy": {"algorithm": "dqn"}})


@pytest.fixture(scope="session")
def two_actors(tmp_path_factory):
    """A run of two actors whose checkpoint holds its experience."""
    directory = tmp_path_factory.mktemp("two") / "run"
    run(directory, **ASYNC)
    return directory


@pytest.fixture(scope="session")
def one_actor(tmp_path_factory):
    """A run in one process, whose checkpoint holds everything."""
    directory = tmp_path_factory.mktemp("one") / "run"
    run(directory, **EXACT)
    return directory


PLAIN = {"schedule": "sequential", "actor": {"processes": "auto"}}
AFRESH = {"checkpoint": {"replay": False}}
REFUSED = {
    "one actor": {"actor": {"processes": 1}},
    "three actors": {"actor": {"processes": 3}},
    "sequential": PLAIN,
    "lockstep": PLAIN | {"schedule": "lockstep"},
    "copies": {"env": {"num_envs": 6}},
    "n_steps": {"policy": {"algorithm": "dqn", "n_steps": 5}},
    "rollout": {"policy": {"ppo": {"rollout_length": 40}}},
    "segments": {"policy": {"experience": {"segment_length": 10}}},
    "frames": {"policy": {"n_frames": 3}},
    "options": {"env": {"options": {"max_turns": 20}}},
}


@pytest.mark.slow
@pytest.mark.parametrize("change", REFUSED)
def test_what_experience_does_not_fit_is_refused_by_name_and_nothing_is_touched(
    change, two_actors, tmp_path
):
    shutil.copytree(two_actors, tmp_path / "run")
    before = files(tmp_path / "run")
    tree = REFUSED[change]
    with refuses(RemudaError) as caught:
        run(tmp_path / "run", resume=True, **overlay(overlay(ASYNC, tree), LATER))
    assert "\n" not in str(caught.value)
    assert files(tmp_path / "run") == before


ALLOWED = {
    "the same": {},
    "one actor, afresh": {"actor": {"processes": 1}} | AFRESH,
    "three actors, afresh": {"actor": {"processes": 3}} | AFRESH,
    "sequential, afresh": PLAIN | AFRESH,
    "lockstep, afresh": PLAIN | AFRESH | {"schedule": "lockstep"},
    "learner processes": {"learners": {"processes": 2}},
    "workers": {"env": {"workers": 2}},
}


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("change", ALLOWED)
def test_what_experience_fits_goes_on(change, two_actors, tmp_path):
    shutil.copytree(two_actors, tmp_path / "run")
    before = coordinators(tmp_path / "run")
    run(tmp_path / "run", resume=True, **overlay(overlay(ASYNC, ALLOWED[change]), LATER))
    went_on(tmp_path / "run", before)


MORE = {
    "n_steps": {"policy": {"n_steps": 5}},
    "copies": {"env": {"num_envs": 2}},
    "two actors": {"schedule": "async", "actor": {"processes": 2}, "checkpoint": {"replay": True}},
}


@pytest.mark.slow_cases("copies", "n_steps")
@pytest.mark.parametrize("change", MORE)
def test_an_exact_run_refuses_what_does_not_fit_likewise(change, one_actor, tmp_path):
    shutil.copytree(one_actor, tmp_path / "run")
    before = files(tmp_path / "run")
    tree = MORE[change]
    with refuses(RemudaError):
        run(tmp_path / "run", resume=True, **overlay(overlay(EXACT, tree), LATER))
    assert files(tmp_path / "run") == before


@pytest.mark.slow
@pytest.mark.parametrize("actors", [1, 2])
def test_an_exact_run_goes_on_in_async(actors, one_actor, tmp_path):
    shutil.copytree(one_actor, tmp_path / "run")
    before = coordinators(tmp_path / "run")
    tree = {"schedule": "async", "actor": {"processes": actors}}
    tree["checkpoint"] = {"replay": actors == 1}
    run(tmp_path / "run", resume=True, **overlay(overlay(EXACT, tree), LATER))
    went_on(tmp_path / "run", before)
