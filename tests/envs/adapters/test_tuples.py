"""Gymnasium environments that several agents share."""

import sys
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from faulty_games import actor_of, play
from refusals import refuses
from remuda.envs.adapters.gymnasium import copies_of, has_agents, make_lbf, make_rware
from remuda.envs.contract import VectorEnvContract
from remuda.envs.registry import find_game, make_env
from remuda.errors import ConfigError, ContractError


class Meeting(gymnasium.Env):
    """Two agents on a line meet or not; the first sees one number more."""

    metadata: ClassVar = {"render_modes": []}

    def __init__(self, reward="each", broken=""):
        self.observation_space = spaces.Tuple(
            [spaces.Box(-9, 9, (2,), np.float32), spaces.Box(-9, 9, (1,), np.float32)]
        )
        self.action_space = spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)])
        self.reward, self.broken, self.n_agents = reward, broken, 2

    def seen(self):
        return (
            np.array([self.at[0], self.turn], np.float32),
            np.array([self.at[1]], np.float32),
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn, self.at = 0, self.np_random.integers(-3, 4, 2).tolist()
        return self.seen(), {}

    def step(self, actions):
        self.turn += 1
        self.at[0] += int(actions[0]) - 1
        self.at[1] += int(actions[1])
        met = self.at[0] == self.at[1]
        rewards = [float(met), 2.0 * met] if self.reward == "each" else float(met)
        if self.broken == "rewards":
            rewards = [1.0]
        return self.seen(), rewards, met, self.turn >= 6 and not met, {}


class TestMeeting(VectorEnvContract):
    def make(self, num_envs):
        return copies_of(Meeting, num_envs)


def test_agents_are_given_what_is_theirs():
    env = make_env("envs.adapters.test_tuples:Meeting", 2)
    assert [spec.observation_space.shape for spec in env.agents] == [(2,), (1,)]
    assert [int(spec.action_space.n) for spec in env.agents] == [3, 2]
    env.reset(np.array([3, 4]), np.ones(2, bool))
    inner = [copy.env for copy in env.copies]
    for world in inner:
        world.at = [0, 0]
    env.begin_turn()
    env.act(0, np.array([2, 1]))
    env.act(1, np.array([1, 1]))
    result = env.end_turn()
    assert result.rewards.tolist() == [[1.0, 2.0], [0.0, 0.0]]
    assert result.terminated.tolist() == [[True, True], [False, False]]
    assert not env.active[0].any()


def test_a_team_may_be_given_one_number():
    env = copies_of(lambda: Meeting("team"), 1)
    env.reset(np.array([3]), np.ones(1, bool))
    env.copies[0].env.at = [0, 0]
    env.begin_turn()
    env.act(0, np.array([2]))
    env.act(1, np.array([1]))
    assert env.end_turn().rewards.tolist() == [[1.0, 1.0]]


def test_a_tuple_of_another_length_is_told():
    env = copies_of(lambda: Meeting(broken="rewards"), 1)
    env.reset(np.array([3]), np.ones(1, bool))
    env.begin_turn()
    env.act(0, np.array([2]))
    env.act(1, np.array([1]))
    with refuses(ContractError):
        env.end_turn()


class Ends(Meeting):
    """Ends, and pays, as it is told to, in its third turn."""

    def __init__(self, ends, reward=1.0):
        super().__init__()
        self.ends, self.paid = ends, reward

    def step(self, actions):
        seen, *_, info = super().step(actions)
        return seen, self.paid, self.ends if self.turn == 3 else False, False, info


@pytest.mark.parametrize(
    "ends",
    [
        None,
        [0.0, np.nan],
        [np.nan, 1.0],
        ["no", "no"],
        7,
    ],
)
def test_an_end_that_is_neither_true_nor_false_is_told(ends):
    """Red before: it was taken by Python's truth."""
    with refuses(ContractError):
        play(actor_of(copies_of(lambda: Ends(ends), 1)))


@pytest.mark.parametrize("ends", [True, np.True_, [1.0, 1.0], np.array([1, 1]), np.array(True)])
def test_ends_of_every_form(ends):
    env = copies_of(lambda: Ends(ends, np.array(2.0)), 1)
    env.reset(np.array([3]), np.ones(1, bool))
    for turn in range(3):
        env.begin_turn()
        env.act(0, np.array([2]))
        env.act(1, np.array([1]))
        result = env.end_turn()
        assert result.rewards.tolist() == [[2.0, 2.0]]  # an array without a dimension is of all
        assert result.terminated.all() == (turn == 2)


def test_an_environment_of_one_agent_is_none():
    assert not has_agents(gymnasium.make("CartPole-v1"))
    assert not has_agents(gymnasium.make("Blackjack-v1"))
    alone = Meeting()
    del alone.n_agents
    assert not has_agents(alone)


def test_an_episode_is_over_when_each_agent_s_is_one_way_or_the_other():
    class Apart(Meeting):
        def step(self, actions):
            *rest, _, _, info = super().step(actions)
            return *rest, [True, False], [False, True], info

    env = copies_of(Apart, 1)
    env.reset(np.array([3]), np.ones(1, bool))
    env.begin_turn()
    env.act(0, np.array([2]))
    env.act(1, np.array([1]))
    result = env.end_turn()
    assert result.terminated.tolist() == [[True, False]]
    assert result.truncated.tolist() == [[False, True]]
    assert not env.active.any()


def test_foraging_repeats_itself_by_its_seed():
    """Red before: new places were those where nobody stood in the episode before."""
    pytest.importorskip("lbforaging")
    fresh, used = (make_lbf("Foraging-5x5-2p-1f-v3", 1) for _ in range(2))
    seen = [np.zeros((1, 9), np.float32) for _ in range(2)]
    for seed in range(60):
        used.reset(np.array([1000 + seed]), np.ones(1, bool))
        for env, out in zip((fresh, used), seen, strict=True):
            if env is fresh:
                env = make_lbf("Foraging-5x5-2p-1f-v3", 1)
            env.reset(np.array([seed]), np.ones(1, bool))
            env.observe(0, out)
        assert (seen[0] == seen[1]).all()


class TestForaging(VectorEnvContract):
    def make(self, num_envs):
        pytest.importorskip("lbforaging")
        return make_lbf("Foraging-8x8-2p-2f-coop-v3", num_envs)


class TestWarehouse(VectorEnvContract):
    def make(self, num_envs):
        pytest.importorskip("rware")
        return make_rware("tiny-2ag", num_envs, max_steps=20)


def test_foraging_and_warehouse_are_found_by_name():
    pytest.importorskip("lbforaging")
    pytest.importorskip("rware")
    env = make_env("lbf:Foraging-8x8-2p-2f-coop-v3", 2)
    assert (env.num_agents, env.agents[0].observation_space.shape) == (2, (12,))
    env = make_env("rware:rware-tiny-4ag-v2", 1)
    assert (env.num_agents, env.agents[0].observation_space.shape) == (4, (71,))
    assert make_env("gymnasium:rware:rware-tiny-4ag-v2", 1).num_agents == 4
    with refuses(ConfigError):
        make_env("lbf:Foraging-2x2-v3", 1)
    with refuses(ConfigError):
        make_env("rware:tiny-2ag", 1, size=3)


@pytest.mark.parametrize(("library", "package"), [("lbf", "lbforaging"), ("rware", "rware")])
def test_a_missing_package_is_told(library, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with refuses(ConfigError):
        find_game(f"{library}:any").make(1)
