"""Continuous actions: policies choose in [-1, 1], environments get numbers within their bounds."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from remuda.policies.action_spaces import actions_of

INF = np.inf


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("low", "high", "chosen", "expected"),
    [
        (-1, 1, [-2, -1, 0.25, 1, 2], [-1, -1, 0.25, 1, 1]),
        (0, 1, [-1, -0.5, 0, 1, 9], [0, 0.25, 0.5, 1, 1]),
        (100, 200, [-1, -0.5, 0, 1, -7], [100, 125, 150, 200, 100]),
        (-1000, 1000, [-1, -0.5, 0, 1], [-1000, -500, 0, 1000]),
        (3, 3, [-1, 0, 1], [3, 3, 3]),
        (-INF, INF, [-7, 0, 7], [-7, 0, 7]),
        (100, INF, [-2, -1, 0, 9], [100, 100, 101, 110]),
        (-INF, 100, [2, 1, 0, -9], [100, 100, 99, 90]),
    ],
)
def test_normalised_actions_are_scaled_to_the_bounds(dtype, low, high, chosen, expected):
    actions = actions_of(Box(low, high, (1,), dtype), "a")
    drawn = np.array(chosen, np.float32)[:, None]
    scaled = actions.within_bounds(drawn)
    assert scaled.dtype == dtype
    np.testing.assert_array_equal(scaled[:, 0], np.array(expected, dtype))
    outputs = torch.from_numpy(np.concatenate([drawn, drawn], 1))
    np.testing.assert_array_equal(actions.greedy(outputs, None).numpy(), scaled)


def test_dimensions_have_bounds_of_their_own():
    space = Box(
        np.array([[0, -INF], [5, -INF]], np.float32), np.array([[10, INF], [INF, 2]], np.float32)
    )
    scaled = actions_of(space, "a").within_bounds(np.array([[1, 30, -1, -1]], np.float32))
    np.testing.assert_array_equal(scaled, [[10, 30, 5, 0]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scaled_actions_are_always_in_the_space(dtype):
    low, high = np.array([0.1, -0.3, 1e3]), np.array([0.7, 0.1, 1e3 + 1])
    space = Box(low.astype(dtype), high.astype(dtype), dtype=dtype)
    drawn = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    for row in actions_of(space, "a").within_bounds(drawn):
        assert space.contains(row)


def test_the_largest_floats_are_no_bounds():
    most = np.finfo(np.float32).max
    actions = actions_of(Box(-most, most, (1,), np.float32), "a")
    assert actions.within_bounds(np.array([[0.5]], np.float32)) == 0.5
    assert actions.unbounded == 1
