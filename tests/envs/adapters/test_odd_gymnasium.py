"""Gymnasium environments that are unusual, and right: each trains, and earns what it pays."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import remuda
from refusals import refuses
from remuda.envs.adapters.gymnasium import has_agents
from remuda.envs.registry import make_env
from remuda.errors import ContractError

BOX = spaces.Box(0, 1, (1,), np.float32)


class Five(gymnasium.Env):
    """Pays 1 a step, five times."""

    observation_space, action_space = BOX, spaces.Discrete(2)

    def observed(self):
        return np.zeros(1, np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return self.observed(), {}

    def reward(self, action):
        return 1.0

    def step(self, action):
        self.turn += 1
        return self.observed(), self.reward(action), self.turn == 5, False, {}


def trained(make, tmp_path, algorithm="dqn", **env):
    return remuda.train(
        make,
        env={"num_envs": 2, **env},
        policy={"algorithm": algorithm, "n_frames": 2, "network": {"hidden": [4]}},
        schedule="sequential",
        run={"turns": 60, "directory": str(tmp_path / "run"), "evaluate_episodes": 2},
    )


class OfDtype(Five):
    def __init__(self, dtype):
        self.dtype = np.dtype(dtype)
        self.observation_space = spaces.Box(0, 1, (2, 3), self.dtype)

    def observed(self):
        return np.ones((2, 3), self.dtype)


@pytest.mark.slow_cases(
    ">f4-iqn",
    ">f8-iqn",
    ">f8-ppo",
    ">i4-iqn",
    ">i4-ppo",
    ">u2-iqn",
    ">u2-ppo",
    "float16-iqn",
    "float16-ppo",
    "longdouble-iqn",
    "longdouble-ppo",
)
@pytest.mark.parametrize("algorithm", ["ppo", "iqn"])
@pytest.mark.parametrize("dtype", ["float16", ">f4", ">f8", ">i4", ">u2", "longdouble"])
def test_observations_of_every_dtype_train(dtype, algorithm, tmp_path):
    """Red before: float16 and big-endian numbers could not be compiled."""
    result = trained(OfDtype, tmp_path, algorithm, options={"dtype": dtype})
    assert result.evaluation.mean(0) == 5


@pytest.mark.parametrize("dtype", ["float16", ">f4", ">f8"])
def test_actions_are_of_the_dtype_of_their_space(dtype):
    class Acts(Five):
        action_space = spaces.Box(-1, 1, (2,), np.dtype(dtype))

        def reward(self, action):
            assert action.dtype.newbyteorder("=") == np.dtype(dtype).newbyteorder("=")
            assert self.action_space.contains(action)
            return 1.0

    env = make_env_of(Acts)
    assert env.agents[0].action_space.dtype == (np.float64 if dtype == ">f8" else np.float32)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    env.begin_turn()
    env.act(0, np.array([[0.25, -1.0]], env.agents[0].action_space.dtype))
    assert env.end_turn().rewards[0, 0] == 1


def make_env_of(make):
    from remuda.envs.adapters.user_envs import make_copies

    return make_copies(make, 1, {}, make.__name__)


class Blind(Five):
    observation_space = spaces.Box(0, 1, (0,), np.float32)

    def observed(self):
        return np.zeros(0, np.float32)


@pytest.mark.slow_cases("iqn", "ppo")
@pytest.mark.parametrize("algorithm", ["ppo", "mappo", "dqn", "iqn", "sac"])
def test_an_agent_that_observes_nothing_trains(algorithm, tmp_path):
    """Red before: networks without an input cannot be made."""
    assert trained(Blind, tmp_path, algorithm).evaluation.mean(0) == 5


class Lenient(spaces.MultiDiscrete):
    """Takes a number for an array of one, as the missions of multigrid."""

    def contains(self, x):
        return int(np.ravel(x)[0]) in (0, 1)


class Even(spaces.Discrete):
    """Takes even numbers alone."""

    def contains(self, x):
        return super().contains(x) and x % 2 == 0


class Partly(Five):
    def __init__(self, space="lenient", value=1):
        own = Lenient([2]) if space == "lenient" else Even(10)
        self.observation_space, self.value = spaces.Dict(own=own, x=BOX), value

    def observed(self):
        return {"own": np.array(self.value), "x": np.zeros(1, np.float32)}


def test_a_space_with_a_contains_of_its_own_decides(tmp_path):
    """Red before: its parent's bounds and shapes did."""
    assert trained(Partly, tmp_path).evaluation.mean(0) == 5
    make_env_of(lambda: Partly("even", 4)).reset(np.zeros(1, np.int64), np.ones(1, bool))
    with refuses(ContractError):
        make_env_of(lambda: Partly("even", 3)).reset(np.zeros(1, np.int64), np.ones(1, bool))


class PromisesPictures(Five):
    """Lists rgb_array, and takes no render_mode."""

    metadata: ClassVar = {"render_modes": ["human", "rgb_array"]}


class NeedsADisplay(PromisesPictures):
    def __init__(self, render_mode=None):
        if render_mode is not None:
            raise RuntimeError("no display")


class ListsNoModes(Five):
    metadata: ClassVar = {"render_modes": None}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode


for kind in (PromisesPictures, NeedsADisplay, ListsNoModes):
    gymnasium.register(f"Odd{kind.__name__}-v0", kind)


@pytest.mark.slow_cases("ListsNoModes", "NeedsADisplay")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", [PromisesPictures, NeedsADisplay, ListsNoModes])
def test_an_environment_that_cannot_draw_trains(kind, tmp_path):
    """Red before: it was refused for the render_mode that nobody asked for."""
    assert trained(kind, tmp_path).evaluation.mean(0) == 5
    env = make_env(f"gymnasium:Odd{kind.__name__}-v0", 2)
    env.reset(np.zeros(2, np.int64), np.ones(2, bool))
    env.close()


class Pair(Five):
    """Two agents, by tuples; nothing but the rewards says so."""

    observation_space = spaces.Tuple((BOX, BOX))
    action_space = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))

    def observed(self):
        return np.zeros(1, np.float32), np.zeros(1, np.float32)

    def reward(self, action):
        return 1.0, 2.0


class OneOfTwoParts(Pair):
    """One agent that sees and does two things at once."""

    def reward(self, action):
        return 1.0


class PaysLater(Pair):
    """Pays a number in its first step."""

    def reward(self, action):
        return 1.0 if self.turn == 1 else (1.0, 2.0)


gymnasium.register("OddPair-v0", Pair)


def test_tuples_that_are_paid_by_part_are_of_agents(tmp_path):
    """Red before: refused, without a word about n_agents."""
    result = trained(Pair, tmp_path, "ppo")
    assert [result.evaluation.mean(agent) for agent in range(2)] == [5, 10]
    assert [spec.name for spec in make_env("gymnasium:OddPair-v0", 1).agents] == [
        "agent_0",
        "agent_1",
    ]
    assert not has_agents(Pair())  # nothing but a step tells


def test_one_agent_may_see_and_do_tuples(tmp_path):
    result = trained(OneOfTwoParts, tmp_path, "ppo")
    assert result.evaluation.returns.shape[1:] == (1,)
    assert result.evaluation.mean(0) == 5


def test_what_to_do_is_told_where_the_first_step_did_not():
    env = make_env_of(PaysLater)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    env.act(0, np.zeros((1, 2), np.int64))
    with refuses(ContractError):
        env.act(0, np.zeros((1, 2), np.int64))


class Tensors(Five):
    """Answers with tensors that require a gradient."""

    def observed(self):
        return torch.zeros(1, requires_grad=True)

    def reward(self, action):
        return torch.ones((), requires_grad=True)


class Arrays(Five):
    def step(self, action):
        seen, reward, terminated, truncated, _ = super().step(action)
        return seen, np.array([reward]), np.array([terminated]), np.array([truncated]), None


class OtherOrder(Five):
    """Its observation has its keys in another order, and one key more."""

    observation_space = spaces.Dict(x=BOX, y=BOX)

    def observed(self):
        return {"z": np.ones(9), "y": np.ones(1, np.float32), "x": np.zeros(1, np.float32)}


@pytest.mark.parametrize(
    ("make", "seen"), [(Tensors, [0]), (Arrays, [0]), (OtherOrder, [0, 1])], ids=str
)
def test_answers_of_odd_kinds_are_what_they_say(make, seen):
    env = make_env_of(make)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    earned, out = 0.0, np.zeros((1, len(seen)), np.float32)
    for turn in range(5):
        env.begin_turn()
        env.observe(0, out)
        env.act(0, np.zeros(1, np.int64))
        result = env.end_turn()
        earned += float(result.rewards[0, 0])
        assert result.terminated[0, 0] == (turn == 4)
    assert (earned, out[0].tolist()) == (5.0, seen)
