"""What is observed is in its space, before it becomes numbers in a row."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from faulty_games import Alone, AtOnce, actor_of, play
from refusals import refuses
from remuda.config import load_config
from remuda.envs.adapters.gymnasium import GymnasiumEnv
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.adapters.spaces import observation_converter
from remuda.envs.checks import BadValueError
from remuda.envs.plain_spaces import from_plain, to_plain
from remuda.errors import ContractError
from remuda.policies.compatibility import stream_shape
from remuda.population.specs import policy_specs
from remuda.types import AgentSpec

PARTS = spaces.Dict({"at": spaces.Box(-9, 9, (2,)), "to": spaces.Box(-9, 9, (3,))})
PAIR = spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])
EITHER = spaces.OneOf([spaces.Discrete(3), spaces.Box(0, 1, (2,))])


def part(dtype, shape=(1,)):
    """A dictionary with a part of that dtype, and another of floats."""
    low, high = (0, 1) if dtype in (bool, np.float32) else (0, 255)
    return spaces.Dict({"hp": spaces.Box(low, high, shape, dtype), "x": spaces.Box(-1, 1, (1,))})


def with_hp(value):
    return {"hp": value, "x": np.zeros(1, np.float32)}


def write(space, seen, check=True):
    sight = observation_converter(space)
    out = np.zeros(sight.space.shape, sight.space.dtype)
    sight.write(seen, out, check)
    return out.tolist()


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (spaces.Discrete(4, start=1), 0),
        (spaces.Discrete(4), -1),
        (spaces.MultiDiscrete([3, 3]), [3, 0]),
        (spaces.MultiDiscrete([3, 3]), [-1, 0]),
        (spaces.MultiDiscrete([3, 3], start=[1, 1]), [0, 2]),
        (spaces.MultiDiscrete([3, 3]), [1]),
        (spaces.MultiBinary(3), [0, 2, 1]),
        (spaces.MultiBinary(3), [0, 1]),
        (spaces.MultiBinary(40), np.full(40, 2)),
        (PARTS, {"at": np.zeros(3), "to": np.zeros(2)}),
        (PARTS, {"at": np.zeros(2)}),
        (PARTS, None),
        (PAIR, (3, [0, 1])),
        (PAIR, (0, [0, 5])),
        (PAIR, (0,)),
        (spaces.Dict({"deep": PAIR}), {"deep": (0, [3, 0])}),
    ],
)
def test_what_is_not_in_its_space_is_told(space, seen):
    """Red before: most of these became other states, with no word."""
    with refuses(BadValueError):
        write(space, seen)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.uint8, np.array([-1])),
        (np.uint8, np.array([300])),
        (np.uint8, [300]),
        (np.uint8, [10**30]),
        (np.uint8, np.array([0.9])),
        (np.uint8, np.array([np.nan])),
        (np.int64, np.array([np.nan])),
        (bool, np.array([0.3])),
        (np.float32, ["3"]),
        (np.float32, [None]),
        (np.float32, [[1], [2, 3]]),
    ],
)
def test_a_part_that_its_dtype_would_change_is_told(dtype, value):
    """Red before: -1 became 255, 300 became 44, NaN became 0 or a large negative number."""
    with refuses(BadValueError):
        write(part(dtype), with_hp(value))


@pytest.mark.parametrize("value", ["3", None, [1.0]])
def test_a_part_without_a_dimension_is_a_number(value):
    """Red before: "3" was 3, and None was NaN."""
    with refuses(BadValueError):
        write(part(np.float32, ()), with_hp(value))


@pytest.mark.parametrize(
    ("dtype", "value", "number"),
    [
        (np.uint8, [7], 7),
        (np.uint8, np.array([7.0]), 7),
        (np.uint8, np.array([True]), 1),
        (np.int64, np.array([7], np.uint8), 7),
        (bool, [1], 1),
        (np.float32, np.array([0.5]), 0.5),
        (np.float32, [1], 1),
    ],
)
def test_a_part_that_its_dtype_holds_is_written(dtype, value, number):
    assert write(part(dtype), with_hp(value)) == [number, 0]


@pytest.mark.parametrize("count", [2, 40])
def test_half_a_bit_is_none(count):
    """Red before: it was written as 0."""
    with refuses(BadValueError):
        write(spaces.MultiBinary(count), np.full(count, 0.5))
    assert write(spaces.MultiBinary(count), np.ones(count)) == [1] * count


@pytest.mark.parametrize(
    "value",
    [
        (1, -1),
        (0, -1),
        (-1, np.zeros(2)),
        (2, 0),
        (0,),
        None,
    ],
)
def test_what_is_in_neither_of_two_spaces_is_told(value):
    """Red before: each of them became another state."""
    with refuses(BadValueError):
        write(EITHER, value)
    assert write(EITHER, (0, 2)) == [0, 0, 0, 1]
    assert write(EITHER, (1, np.array([0.5, 1]))) == [1, 0.5, 1, 0.5]


@pytest.mark.parametrize(
    ("space", "seen", "flat"),
    [
        (spaces.Discrete(3, start=1), np.int64(3), [0, 0, 1]),
        (spaces.Discrete(2), True, [0, 1]),
        (spaces.Discrete(2), np.array(1), [0, 1]),
        (spaces.MultiDiscrete([2, 2]), [1, 0], [0, 1, 1, 0]),
        (spaces.MultiDiscrete([2, 2], start=[5, 1]), np.array([5, 2]), [1, 0, 0, 1]),
        (spaces.MultiBinary((2, 1)), np.array([[1], [0]], np.int8), [1, 0]),
        (spaces.MultiBinary(40), np.ones(40, np.int8), [1] * 40),
        (PARTS, {"at": [1, 2], "to": np.arange(3), "more": 7}, [1, 2, 0, 1, 2]),
        (PAIR, (2, [0, 1]), [0, 0, 1, 0, 1]),
        (PAIR, [2, (0, 1)], [0, 0, 1, 0, 1]),
    ],
)
def test_what_is_in_its_space_is_written(space, seen, flat):
    assert write(space, seen) == flat
    assert write(space, seen, check=False) == flat


PICTURE = spaces.Box(0, 255, (4, 4, 3), np.uint8)
BYTES = {
    "a picture": spaces.Dict(camera=PICTURE),
    "a picture and choices": spaces.Dict(
        camera=PICTURE,
        inside=spaces.Tuple([spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 3])]),
    ),
    "bits": spaces.Tuple([spaces.MultiBinary(3), spaces.Box(0, 1, (2,), np.bool_)]),
}
FLOATS = {
    "a float": spaces.Dict(camera=PICTURE, speed=spaces.Box(-1, 1, (1,), np.float32)),
    "a larger integer": spaces.Dict(camera=PICTURE, count=spaces.Box(0, 300, (1,), np.int16)),
    "text": spaces.Dict(camera=PICTURE, text=spaces.Text(4)),
}


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("check", [True, False])
def test_parts_that_are_all_bytes_stay_bytes(kind, check):
    space = BYTES[kind]
    converter = observation_converter(space)
    assert converter.space.dtype == np.uint8
    flat = spaces.flatten_space(space)
    assert (converter.space.low == flat.low).all()
    assert (converter.space.high == flat.high).all()
    space.seed(0)
    for _ in range(9):
        seen = space.sample()
        assert write(space, seen, check) == spaces.flatten(space, seen).tolist()
    agent = AgentSpec("a", converter.space, spaces.Discrete(2))
    (spec,) = policy_specs(load_config({}), [agent])
    assert stream_shape(spec).dtype == np.uint8  # of the ring
    assert from_plain(to_plain(converter.space)) == converter.space


@pytest.mark.parametrize("kind", FLOATS)
def test_one_part_of_larger_numbers_makes_floats_of_all(kind):
    assert observation_converter(FLOATS[kind]).space.dtype == np.float32


@pytest.mark.parametrize("value", [-1, 256, 0.5])
def test_a_number_that_is_no_byte_is_refused(value):
    seen = {"camera": np.full((4, 4, 3), value)}
    with refuses(BadValueError):
        write(BYTES["a picture"], seen)


def test_a_state_beyond_its_space_ends_the_actor():
    class Beyond(Alone):
        observation_space = spaces.Discrete(9)

        def reset(self, **options):
            super().reset(**options)
            return 0, {}

        def step(self, action):
            _, *rest = super().step(action)
            return -1 if self.turn == 3 else self.turn, *rest

    with refuses(ContractError):
        play(actor_of(GymnasiumEnv(lambda: Beyond("nothing"))))
    play(actor_of(GymnasiumEnv(lambda: Beyond("nothing")), check=False))


class Gauge(gymnasium.Env):
    """Sees one number, without a dimension."""

    observation_space, action_space = spaces.Box(0, 1, (), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return np.float32(0), {}

    def step(self, action):
        self.turn += 1
        return np.float32(self.turn / 5), 1.0, self.turn == 5, False, {}


class Gauges(AtOnce):
    def observation_space(self, agent):
        return Gauge.observation_space

    def reset(self, seed=None, options=None):
        seen, infos = super().reset()
        return dict.fromkeys(seen, np.float32(0)), infos

    def step(self, actions):
        seen, *rest = super().step(actions)
        return dict.fromkeys(seen, np.float32(0.5)), *rest


@pytest.mark.parametrize("check", [True, False])
def test_a_number_without_a_dimension_is_observed(check):
    """Red before: it was a TypeError."""
    play(actor_of(GymnasiumEnv(Gauge, 2), check=check))
    env = GymnasiumEnv(Gauge, 2)
    env.reset(np.zeros(2, np.int64), np.ones(2, bool))
    env.begin_turn()
    env.act(0, np.zeros(2, np.int64))
    seen = np.zeros(2, np.float32)
    env.observe(0, seen)
    assert seen.tolist() == pytest.approx([0.2, 0.2])
    play(actor_of(ParallelCopies(lambda: Gauges("nothing"), 2), check=check))
