"""What environments notice that is no error: told once, and again at the end of a run."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import remuda
from envs.adapters.test_last_rewards import Odd, OnlyAccumulated, Silent
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.gymnasium import GymnasiumEnv
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.recorded import Wrapped
from remuda.envs.scripted import at_random, turns
from remuda.envs.workers.pool import WorkerEnvs
from remuda.system.scoreboard import NOTES, Scoreboard


class Strays(gymnasium.Env):
    """Its second number is `value` in turn `when`."""

    action_space = spaces.Discrete(2)

    def __init__(self, value=2.5, when=3, low=-1.0, high=1.0, dtype="float32"):
        self.value, self.when, self.dtype = value, when, dtype
        self.observation_space = spaces.Box(low, high, (3,), np.dtype(dtype).type)

    def observed(self):
        found = np.zeros(3, self.dtype)
        found[1] = self.value if self.turn == self.when else 0
        return found

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return self.observed(), {}

    def step(self, action):
        self.turn += 1
        return self.observed(), 1.0, self.turn == 5, False, {}


class Two(ParallelEnv):
    metadata = {"name": "two", "render_modes": []}  # noqa: RUF012
    possible_agents, render_mode = ("a", "b"), None

    def observation_space(self, agent):
        return spaces.Dict(x=spaces.Box(0, 1, (2,), np.float32))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observed(self):
        return {name: {"x": np.full(2, -3.0 * (name == "b"), np.float32)} for name in self.agents}

    def reset(self, seed=None, options=None):
        self.agents, self.turn = ["a", "b"], 0
        return self.observed(), {}

    def step(self, actions):
        self.turn += 1
        told = [dict.fromkeys(self.agents, value) for value in (1.0, self.turn == 4, False, {})]
        seen = self.observed()
        self.agents = [] if self.turn == 4 else self.agents
        return seen, *told


def played(env, count=20):
    policies = [at_random] * env.num_agents
    for _ in zip(range(count), turns(env, policies, np.random.default_rng(0)), strict=False):
        pass
    return list(env.notes.values())


def test_an_observation_outside_its_box_is_noted_once():
    """Red before: nothing was said."""
    (note,) = played(GymnasiumEnv(Strays, 3))
    assert note.startswith("agent_0 in copy 0, turn 4 of the episode: its observation holds 2.5")
    assert "number 1 of 3" in note
    assert "-1 to 1" in note
    (note,) = played(ParallelCopies(Two, 2))
    assert note.startswith("b in copy 0")
    assert "-3" in note
    assert "0 to 1" in note


@pytest.mark.parametrize("when", [0, 5])
def test_the_first_and_the_last_of_an_episode_are_looked_at(when):
    env = GymnasiumEnv(lambda: Strays(when=when), 2)
    env.reset(np.zeros(2, np.int64), np.ones(2, bool))
    out = np.zeros((2, 3), np.float32)
    for _ in range(5):
        env.begin_turn()
        env.observe(0, out)
        env.act(0, np.zeros(2, np.int64))
        env.end_turn()
    env.observe(0, out)  # as an actor does where an episode has ended
    assert len(env.notes) == 1


@pytest.mark.parametrize(
    ("options", "noted"),
    [
        ({"value": 1.000001}, False),
        ({"value": -1.01}, True),
        ({"high": np.inf}, False),
        ({"value": 300, "high": 255, "low": 0, "dtype": "int64"}, True),
        ({"value": 255, "high": 255, "low": 0, "dtype": "uint8"}, False),
        ({"value": 9, "high": 8, "low": 0, "dtype": "uint8"}, True),
        ({"value": 1e6, "high": 1e6 - 1, "dtype": "float64"}, False),
    ],
)
def test_bounds_are_those_of_the_space(options, noted):
    assert bool(played(GymnasiumEnv(lambda: Strays(**options), 2))) == noted


def test_nothing_is_noted_unchecked():
    env = GymnasiumEnv(Strays, 2)
    env.check = False
    assert not played(env)


def test_a_game_that_is_wrapped_has_the_notes_of_the_game():
    env = Wrapped(GymnasiumEnv(Strays, 2))
    assert len(played(env)) == 1


@pytest.mark.parametrize(("make", "noted"), [(Odd, 0), (OnlyAccumulated, 1), (Silent, 1)])
def test_rewards_that_last_does_not_tell_are_noted(make, noted):
    notes = played(AECCopies(make, 2))
    assert len(notes) == noted
    assert all("_accumulate_rewards" in note for note in notes)


@pytest.mark.process
@pytest.mark.slow_cases("lockstep")
@pytest.mark.parametrize(
    "how",
    [
        {"schedule": "sequential"},
        {"schedule": "lockstep", "population": {"policies": 2, "matchmaker": "random"}},
        pytest.param(
            {"schedule": "async", "policy": {"algorithm": "dqn", "network": {"hidden": [4]}}},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["sequential", "lockstep", "async"],
)
def test_a_run_tells_notes_once_and_at_its_end(how, tmp_path, capsys):
    directory = tmp_path / "run"
    result = remuda.train(
        Strays,
        **{
            "env": {"num_envs": 2},
            "policy": {"algorithm": "ppo", "network": {"hidden": [4]}},
            "run": {"turns": 200, "evaluate_episodes": 2, "directory": str(directory)},
            **how,
        },
    )
    (note,) = [note for note in result.notes if "its observation holds 2.5" in note]
    assert note in json.loads((directory / "summary.json").read_text())["notes"]
    assert capsys.readouterr().out.count(note[:60]) == 1


@pytest.mark.process
def test_copies_in_workers_have_notes():
    env = WorkerEnvs(f"{__name__}:Strays", 2, 2)
    try:
        (note,) = played(env, 8)
    finally:
        env.close()
    assert "its observation holds 2.5" in note


def test_notes_are_kept_by_key_and_only_a_few():
    board = Scoreboard(("one",), num_actors=2)
    board.note("a", "first", actor=1)
    board.note("a", "again", actor=1)
    board.note("a", "other", actor=0)
    assert board.notes() == {"a": "other"}
    for i in range(2 * NOTES):
        board.note(f"key {i}", "ä" * 2000, actor=1)
    assert len(board.notes()) == NOTES
    assert all(words for words in board.notes().values())
