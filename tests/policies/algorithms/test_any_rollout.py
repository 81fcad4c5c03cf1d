"""Rollouts of any shape are trained on, whatever the one before them left behind."""

import numpy as np
import pytest

from policies.made_rollouts import LENGTH, fill, make_stack, room_for, some_lengths


@pytest.mark.slow_cases("0-continuous", "0-trunk")
@pytest.mark.parametrize("kind", ["trunk", "masks", "continuous", "recurrent", "convolution"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_a_smaller_rollout_after_a_larger_one(kind, seed):
    """Row after row of a rollout that is used again; what is beyond is poison."""
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 6))
    algorithm = make_stack(kind, range(count), ppo={"epochs": 1, "minibatches": 3})
    room = room_for(algorithm, LENGTH * 40)
    for _ in range(6):
        members = np.flatnonzero(random.random(count) < 0.8).tolist() or [0]
        for k in members:
            segments = int(random.integers(1, 41 if random.random() < 0.5 else 4))
            fill(room, k, some_lengths(segments, random), algorithm, random)
        learned = algorithm.update(room, members)
        assert np.isfinite(learned.loss).all()
        assert all(algorithm.is_finite(k) for k in members)
