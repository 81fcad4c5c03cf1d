"""What came out on two devices, compared."""

from dataclasses import asdict, is_dataclass

import numpy as np
import torch

from devices.gpus import ROUNDING

FEW = {
    *("empty", "zeros", "ones", "rand", "randn", "randn_like", "uniform_", "random_", "randint"),
    *("stack", "cat", "lift_fresh", "sign", "sqrt", "abs", "mul", "_local_scalar_dense", "normal_"),
    *("clone", "scalar_tensor", "fill_", "zero_", "item", "full", "empty_like", "_unsafe_view"),
}
"""What may be done on the processor while a network is on a GPU: to draw, and to bring together."""

PASSES = {
    *("mm", "bmm", "addmm", "baddbmm", "convolution", "tanh", "tanh_", "relu", "relu_", "sigmoid"),
    *("native_layer_norm", "add", "add_", "log_softmax", "softmax", "cos", "mean"),
}
"""What networks are passed by. To make them and to draw their weights takes other operations."""


def told(learned):
    """What an update tells, as numbers."""
    found = asdict(learned) if is_dataclass(learned) else learned._asdict()
    return {name: np.asarray(_fetched(value), np.float64) for name, value in found.items()}


def assert_alike(found, expected, rounding=ROUNDING):
    """All numbers in these trees are equal but for rounding, and all else is equal."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert [*found] == [*expected]
        for name, value in expected.items():
            assert_alike(found[name], value, rounding)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other, rounding)
    elif isinstance(expected, np.ndarray | float):
        np.testing.assert_allclose(found, expected, rounding, rounding)
    else:
        assert found == expected


def _fetched(value):
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else value
