"""Actions of several parts, by place or by name."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from refusals import refuses
from remuda.envs.adapters.gymnasium import GymnasiumEnv
from remuda.envs.adapters.masks import mask_form, write_mask
from remuda.envs.adapters.spaces import action_converter
from remuda.envs.checks import BadValueError
from remuda.envs.contract import VectorEnvContract
from remuda.errors import ContractError
from remuda.policies.action_spaces import actions_of

CHOICES = spaces.Dict(
    {
        "go": spaces.Discrete(3, start=-1),
        "say": spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(2)]),
        "give": spaces.MultiDiscrete([4, 2]),
    }
)
NUMBERS = spaces.Tuple(
    [spaces.Box(-1, 1, (2,), np.float32), spaces.Dict({"gas": spaces.Box(0, 5, (), np.float64)})]
)


@pytest.mark.parametrize("space", [CHOICES, NUMBERS], ids=["choices", "numbers"])
def test_what_a_policy_does_is_in_the_space(space):
    deeds = action_converter(space)
    deeds.space.seed(3)
    drawn = np.stack([deeds.space.sample() for _ in range(50)])
    unpacked = deeds.unpack(drawn)
    assert len(unpacked) == 50
    assert all(space.contains(action) for action in unpacked)


TENTHS = [
    spaces.Box(-0.1, 0.1, (2,), np.float64),
    spaces.Box(np.array([-0.3, 0.0]), np.array([0.3, np.inf]), dtype=np.float64),
    spaces.Box(-0.1, 0.1, (3,), np.float16),
    spaces.Tuple([spaces.Box(-0.1, 0.1, (2,), np.float64), spaces.Box(0, 0.7, (), np.float64)]),
    spaces.Dict({"a": spaces.Box(-0.1, 0.1, (1,), np.float64), "b": spaces.Box(-1, 1, (1,))}),
]


@pytest.mark.parametrize("space", TENTHS, ids=str)
def test_a_bound_that_float32_lacks_is_kept(space):
    """Red before: 0.1 was 0.10000000149, which lies outside, and of another dtype."""
    deeds = action_converter(space)
    actions = actions_of(deeds.space, "agent_0")
    for end in (-9.0, 9.0, 0.05):
        drawn = np.full((3, actions.size), end, np.float32)
        bounded = actions.within_bounds(drawn)
        assert bounded.dtype == deeds.space.dtype
        if isinstance(space, spaces.Box):  # whoever asks a policy by hand hands on this
            shaped = bounded.reshape(-1, *space.shape).astype(space.dtype)
            assert all(space.contains(action) for action in shaped)
        for action in deeds.unpack(bounded.reshape(3, *deeds.space.shape)):
            assert space.contains(action)


def test_what_lies_within_bounds_stays_as_it_is():
    space = spaces.Box(-1, 1, (4,), np.float32)
    drawn = np.random.default_rng(0).uniform(-1, 1, (50, 4)).astype(np.float32)
    bounded = actions_of(space, "agent_0").within_bounds(drawn)
    unpacked = action_converter(space).unpack(bounded)
    assert (unpacked == drawn).all()
    assert not np.shares_memory(unpacked, bounded)
    ends = actions_of(space, "agent_0").within_bounds(9 * drawn)
    assert np.abs(ends).max() == 1.0


def test_each_part_is_what_was_chosen_for_it():
    deeds = action_converter(CHOICES)
    assert deeds.space == spaces.MultiDiscrete([4, 2, 3, 2, 2, 2])  # a Dict is in order of its keys
    (found,) = deeds.unpack(np.array([[3, 1, 2, 1, 0, 1]]))
    assert found["give"].tolist() == [3, 1]
    assert found["go"] == 1
    assert found["say"][0] == 1
    assert found["say"][1].tolist() == [0, 1]


def test_masks_of_parts_are_in_the_order_of_the_space():
    """Red before: they were in the order in which the game wrote them down."""
    space = spaces.Dict({"move": spaces.Discrete(3), "attack": spaces.Discrete(2)})
    out = np.zeros(5, bool)
    write_mask({"move": [1, 0, 0], "attack": [0, 1]}, out, True, mask_form(space))
    assert out.tolist() == [False, True, True, False, False]
    pair = spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)])
    for mask in (([1, 0, 1], [0, 1]), [[1, 0, 1], [0, 1]]):
        write_mask(mask, out, True, mask_form(pair))
        assert out.tolist() == [True, False, True, False, True]
    for wrong in ({"move": [1, 0, 0]}, [1, 0, 0]):
        with refuses(BadValueError):
            write_mask(wrong, out, True, mask_form(space))
    with refuses(BadValueError):
        write_mask(([1, 0, 1],), out, True, mask_form(pair))


def test_numbers_and_choices_together_are_told():
    space = spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,), np.float32)])
    with refuses(ContractError):
        actions_of(action_converter(space).space, "agent_0")


class Levers(gymnasium.Env):
    """Pays for one combination of parts."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = CHOICES

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.turn += 1
        paid = float(action["go"] == 1) + float(action["say"][1].sum())
        return np.full(1, self.turn / 4, np.float32), paid, False, self.turn == 4, {}


class TestLevers(VectorEnvContract):
    def make(self, num_envs):
        return GymnasiumEnv(Levers, num_envs)


class Masked(Levers):
    """Tells by part what is allowed."""

    def reset(self, *, seed=None, options=None):
        seen, _ = super().reset(seed=seed)
        return seen, self.info()

    def info(self):
        parts = {"say": (np.ones(2), np.ones(4)), "go": np.array([0, 0, 1])}
        return {"action_mask": parts | {"give": (np.ones(4), np.array([1, 0]))}}

    def step(self, action):
        assert action["go"] == 1
        assert action["give"][1] == 0
        *rest, _ = super().step(action)
        return *rest, self.info()


class TestMasked(VectorEnvContract):
    def make(self, num_envs):
        return GymnasiumEnv(Masked, num_envs)
