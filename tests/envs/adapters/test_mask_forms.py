"""Masks in every form that libraries hand them over in, and what is promised of them."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from refusals import refuses
from remuda.envs.adapters.gymnasium import GymnasiumEnv
from remuda.envs.adapters.masks import mask_form, write_mask
from remuda.envs.checks import UntakeableError
from remuda.errors import ContractError

PAIR = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])
NAMES = spaces.Dict({"attack": spaces.Discrete(2), "move": spaces.Discrete(3)})
TWO = spaces.MultiDiscrete([2, 3])
GRID = spaces.MultiDiscrete([[2, 3], [1, 2]])
BITS = spaces.MultiBinary(3)
SEES = spaces.Box(0, 1, (1,), np.float32)
FLAT = np.array([1, 0, 1, 1, 0], np.int8)
A, B = FLAT[:2], FLAT[2:]


def flat(mask, space, count, check=True):
    out = np.zeros(count, bool)
    write_mask(mask, out, check, None if space is None else mask_form(space))
    return out.astype(int).tolist()


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("mask", "space", "expected"),
    [
        (FLAT, PAIR, [1, 0, 1, 1, 0]),
        (FLAT.tolist(), PAIR, [1, 0, 1, 1, 0]),
        ((A, B), PAIR, [1, 0, 1, 1, 0]),
        ((None, B), PAIR, [1, 1, 1, 1, 0]),
        ((A, None), PAIR, [1, 0, 1, 1, 1]),
        ((None, None), PAIR, [1] * 5),
        (FLAT, NAMES, [1, 0, 1, 1, 0]),
        ({"move": B, "attack": A}, NAMES, [1, 0, 1, 1, 0]),
        ({"move": B, "attack": None}, NAMES, [1, 1, 1, 1, 0]),
        (FLAT, TWO, [1, 0, 1, 1, 0]),
        ((A, B), TWO, [1, 0, 1, 1, 0]),
        ([A.tolist(), B.tolist()], TWO, [1, 0, 1, 1, 0]),
        ((None, B), TWO, [1, 1, 1, 1, 0]),
        (((A, B), (np.ones(1), A)), GRID, [1, 0, 1, 1, 0, 1, 1, 0]),
        (np.array([[1, 0], [0, 1]]), spaces.MultiDiscrete([2, 2]), [1, 0, 0, 1]),
        (np.array([[1, 0], [0, 1]], object), spaces.MultiDiscrete([2, 2]), [1, 0, 0, 1]),
        ([[1, 0], np.array([0, 1], object)], spaces.MultiDiscrete([2, 2]), [1, 0, 0, 1]),
        ((1, 0), spaces.Discrete(2), [1, 0]),
        (np.array([[1, 0]]), spaces.Discrete(2), [1, 0]),
        (np.array([1, 1, 0, 1, 1, 0]), BITS, [1, 1, 0, 1, 1, 0]),
        (np.array([[1, 1], [0, 1], [1, 0]]), BITS, [1, 1, 0, 1, 1, 0]),
        ((None, ((1, 1), None, (0, 1))), spaces.Tuple([TWO, BITS]), [1] * 9 + [0, 1]),
        (([1, 0], {"a": (A, None), "b": None}), None, [1, 0, 1, 0, 1, 1, 1, 1, 1]),
    ],
    ids=str,
)
def test_a_mask_of_every_form_is_written(mask, space, expected, check):
    """Red before: flat masks of parts, names for choices, None and 2 were refused."""
    if space is None:
        deep = spaces.Dict({"a": PAIR, "b": spaces.Discrete(2)})
        space = spaces.Tuple([spaces.Discrete(2), deep])
    assert flat(mask, space, len(expected), check) == expected


class Tensor:
    """One of another library."""

    def __init__(self, array):
        self.array, self.shape, self.ndim = array, array.shape, array.ndim

    def __array__(self, dtype=None, copy=None):
        return self.array

    def __repr__(self):
        return f"Tensor({self.array.tolist()})"  # a test's name is the same in all processes

    def __len__(self):
        return len(self.array)

    def __iter__(self):
        return map(Tensor, self.array)


SAME, EITHER = spaces.MultiDiscrete([3, 3]), spaces.Tuple([spaces.Discrete(3)] * 2)
SIX = np.array([[1, 0, 1], [0, 1, 1]], np.int8)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("mask", "space"),
    [
        (SIX.reshape(1, 6), SAME),
        (SIX.reshape(6, 1), SAME),
        (SIX, SAME),
        (Tensor(SIX), SAME),
        (Tensor(SIX), EITHER),
        (tuple(Tensor(row) for row in SIX), SAME),
        (SIX.reshape(2, 1, 3), spaces.MultiDiscrete([[3], [3]])),
    ],
    ids=str,
)
def test_a_row_and_a_mask_of_each_choice_are_in_the_order_of_the_space(mask, space, check):
    assert flat(mask, space, 6, check) == SIX.ravel().tolist()


@pytest.mark.parametrize(
    ("mask", "space", "count"),
    [
        (FLAT[:4], PAIR, 5),
        ((A,), PAIR, 5),
        ((B, A), PAIR, 5),
        ({"move": B}, NAMES, 5),
        ({"move": A, "attack": B}, NAMES, 5),
        ((B, A), TWO, 5),
        ({"x": A, "y": B}, TWO, 5),
        ({"left": 1, "right": 0}, spaces.Discrete(2), 2),
        ({0: A}, TWO, 5),
        ((A, B, A), TWO, 5),
        ([[1, 0], [[1], [0, 1]]], spaces.MultiDiscrete([2, 2]), 4),
        (np.ones(4), BITS, 6),
        (np.array([0, 1, 2]), BITS, 6),
        ("abc", spaces.Discrete(3), 3),
        (True, spaces.Discrete(3), 3),
        ([1, 0], None, 3),
    ],
    ids=str,
)
def test_a_mask_of_no_form_is_refused_checked_or_not(mask, space, count):
    """Red before: ragged ones were a ValueError, and parts of wrong lengths were shifted."""
    for check in (True, False):
        with refuses(UntakeableError):
            flat(mask, space, count, check)


class Choosing(gymnasium.Env):
    """Sees its mask among other parts."""

    def __init__(self, does, masked_in, mask, name="obs"):
        self.action_space, self.mask, self.name = does, mask, name
        self.observation_space = spaces.Dict({name: SEES, "action_mask": masked_in})

    def see(self):
        return {self.name: np.zeros(1, np.float32), "action_mask": self.mask}

    def reset(self, *, seed=None, options=None):
        return self.see(), {}

    def step(self, action):
        return self.see(), 0.0, False, False, {}


BIT, PLAIN = spaces.Discrete(2), spaces.MultiBinary
APART = spaces.Dict({"x": PLAIN(2), "y": PLAIN(3)})


@pytest.mark.parametrize(
    ("does", "masked_in", "mask", "expected"),
    [
        (PAIR, PLAIN(5), FLAT, [1, 0, 1, 1, 0]),
        (PAIR, spaces.Tuple([PLAIN(2), PLAIN(3)]), (A, B), [1, 0, 1, 1, 0]),
        (NAMES, PLAIN(5), FLAT, [1, 0, 1, 1, 0]),
        (BIT, spaces.Tuple([BIT, BIT]), (1, 0), [1, 0]),
        (BITS, PLAIN(6), np.array([1, 0, 0, 1, 1, 1]), [1, 0, 0, 1, 1, 1]),
        (
            PLAIN((2, 1)),
            spaces.Box(0, 1, (2, 2), np.int8),
            np.array([[1, 0], [1, 1]]),
            [1, 0, 1, 1],
        ),
    ],
    ids=str,
)
def test_a_mask_in_a_dictionary_is_no_part_of_what_is_observed(does, masked_in, mask, expected):
    """Red before: it was refused when it was made, or at its first value."""
    env = GymnasiumEnv(lambda: Choosing(does, masked_in, mask))
    assert env.agents[0].observation_space == SEES
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    out = np.zeros((1, len(expected)), bool)
    env.mask(0, out)
    assert out[0].astype(int).tolist() == expected


@pytest.mark.parametrize(
    ("does", "masked_in"),
    [
        (TWO, PLAIN(4)),
        (TWO, APART),
        (
            NAMES,
            spaces.Dict({"attack": PLAIN(2), "go": PLAIN(3)}),
        ),
        (spaces.Discrete(3), spaces.Text(3)),
        (BITS, PLAIN(3)),
    ],
    ids=str,
)
def test_what_can_be_no_mask_is_refused_when_it_is_made(does, masked_in):
    with refuses(ContractError):
        GymnasiumEnv(lambda: Choosing(does, masked_in, None))


def test_a_space_that_holds_no_one_is_no_reason_to_refuse_the_customary_form():
    """Red before: with a mask in a Box of 0 to 0 it was refused when it was made."""
    nothing = spaces.Box(0, 0, (3,), np.int8)
    env = GymnasiumEnv(lambda: Choosing(spaces.Discrete(3), nothing, FLAT[:3], "observation"))
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))


def test_numbers_are_told_nothing_by_a_mask():
    env = GymnasiumEnv(lambda: Choosing(spaces.Box(-1, 1, (2,)), PLAIN(2), np.ones(2)))
    assert env.agents[0].observation_space.shape == (3,)


@pytest.mark.parametrize(
    ("mask", "space"),
    [
        # A row for off and one for on; a column for each choice.
        ([[1, 0, 1, 0], [1, 1, 1, 1]], spaces.MultiBinary(4)),
        ([[1, 0], [1, 1], [0, 1]], spaces.MultiDiscrete([3, 3])),
        ([[[1, 0], [1, 1], [0, 1]]], spaces.MultiDiscrete([3, 3])),
    ],
    ids=["bits", "choices", "choices behind a one"],
)
def test_a_mask_laid_out_the_other_way_is_refused(mask, space):
    """Red before: its numbers were taken in their order, which mixes the choices."""
    mask = np.array(mask, np.int8)
    for each in (mask, mask.tolist()):
        with refuses(UntakeableError):
            flat(each, space, mask.size)
    right = mask.reshape(mask.shape[-2:]).T.copy()
    assert flat(right, space, mask.size) == right.ravel().tolist()


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.MultiDiscrete(np.full((2, 2), 4)), (2, 2, 4)),
        (spaces.MultiDiscrete(np.full((2, 3), 6)), (2, 3, 6)),
        (spaces.MultiDiscrete([5]), (5, 1)),
        (spaces.MultiDiscrete(np.full((2, 3), 2)), (2, 6)),
        (spaces.MultiDiscrete([[2, 3, 4], [2, 3, 4]]), (2, 9)),
        (spaces.MultiBinary(4), (4, 2)),
        (spaces.MultiBinary((2, 3)), (2, 3, 2)),
    ],
    ids=str,
)
def test_a_mask_with_each_choice_in_its_place_is_read_in_its_order(space, shape):
    """Red before: refused, as if it had a column for each choice, or of one axis too many."""
    mask = np.random.default_rng(0).integers(0, 2, shape).astype(np.int8)
    expected = mask.ravel().tolist()
    assert flat(mask, space, mask.size) == expected
    assert flat(mask.tolist(), space, mask.size) == expected


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.MultiDiscrete(np.full((2, 2), 4)), (4, 4)),
        (spaces.MultiDiscrete([3] * 4), (2, 2, 3)),
        (spaces.MultiDiscrete([4, 2] * 3), (3, 6)),
        (spaces.MultiDiscrete(np.full((2, 2), 4)), (4, 2, 2)),
        (spaces.MultiDiscrete(np.full((2, 2), 3)), (2, 3, 2)),
        (spaces.MultiDiscrete([3] * 4), (3, 2, 2)),
        (spaces.MultiDiscrete([[2, 2, 2], [3, 3, 3]]), (5, 3)),
        (spaces.MultiDiscrete([[2, 2], [3, 3]]), (2, 5)),
        (spaces.MultiDiscrete([[2, 2], [1, 1]]), (3, 2)),
        (spaces.MultiDiscrete([2, 3, 2, 3]), (2, 5)),
        (spaces.MultiDiscrete([2, 3, 2, 3]), (5, 2)),
        (spaces.MultiDiscrete(np.full((2, 2), 3)), (6, 2)),
        (spaces.MultiDiscrete(np.full((2, 3), 3)), (3, 2, 3)),
        (spaces.MultiDiscrete(np.full((2, 3), 3)), (3, 6)),
        (spaces.MultiDiscrete(np.full((2, 2, 2), 4)), (4, 2, 2, 2)),
        (spaces.MultiDiscrete([2] * 4), (2, 4)),
    ],
    ids=str,
)
def test_a_mask_in_other_rows_than_those_of_the_choices_is_refused(space, shape):
    """Red before, in many of these forms: read in their order, which mixes the choices."""
    mask = np.ones(shape, np.int8)
    for each in (mask, mask.tolist(), list(mask)):
        with refuses(UntakeableError):
            flat(each, space, mask.size)
