"""Batches of nested spaces, part by part."""

import numpy as np
import pytest
from gymnasium import spaces

from refusals import refuses
from remuda.envs.batches import from_parts, map_parts, named_parts, unflatten
from remuda.errors import UsageError

BITS, MANY = spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3], start=[1, 0])
SPACE = spaces.Dict(
    camera=spaces.Box(0, 255, (2, 2), np.uint8),
    inside=spaces.Tuple(
        [
            spaces.Discrete(3, start=-1),
            spaces.Dict(
                bits=spaces.MultiBinary(2), many=spaces.MultiDiscrete([2, 3], start=[1, 0])
            ),
        ]
    ),
)


def batch():
    samples = [SPACE.sample() for _ in range(4)]
    rows = np.stack([spaces.flatten(SPACE, sample) for sample in samples])
    return samples, unflatten(SPACE, rows.astype(np.float32))


def test_unflattened_rows_are_the_values_that_were_flattened():
    samples, found = batch()
    for i, sample in enumerate(samples):
        one = map_parts(lambda array, i=i: array[i], found)
        assert SPACE.contains(one)
        for name, part in named_parts(SPACE, one).items():
            assert np.array_equal(part, named_parts(SPACE, sample)[name])


def test_parts_have_their_keys_as_names():
    _, found = batch()
    parts = named_parts(SPACE, found)
    assert list(parts) == ["camera", "inside.0", "inside.1.bits", "inside.1.many"]
    again = named_parts(SPACE, from_parts(SPACE, parts))
    assert all(again[name] is parts[name] for name in parts)
    with pytest.raises(KeyError):
        from_parts(SPACE, {"camera": parts["camera"]})


def test_values_that_are_no_arrays_are_refused():
    with refuses(UsageError, "Text"):
        unflatten(spaces.Text(5), np.zeros((1, 5)))
