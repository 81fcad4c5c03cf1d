"""Compiled loops and products give the same bits wherever their arrays lie in memory."""

import numpy as np
import pytest
from numba import njit

from remuda.policies.acting import ActingStack
from remuda.policies.algorithms.kernels import ppo_heads
from remuda.policies.algorithms.kernels.objective import Means
from remuda.policies.networks.kernels import activations, gemm
from remuda.policies.stack import ParameterStack
from remuda.system.memory.shared import CACHE_LINE

POLICIES, ROWS = 3, 150


def differentiate(rng, sizes):
    """Run the kernel on numbers drawn from `rng`, and return what it wrote."""
    logits = int(sizes.sum())

    def draw(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    def column(value):
        return np.full((POLICIES, 1), value, np.float32)

    rows = POLICIES, ROWS
    actions = np.stack([rng.integers(0, size, rows) for size in sizes], -1)
    outputs = draw(*rows, logits + 1)
    totals = np.zeros((len(Means._fields), POLICIES))
    index = np.tile(np.arange(ROWS), (POLICIES, 1))
    of_batch = ppo_heads.RowsOf(np.arange(POLICIES), index, np.full(POLICIES, ROWS))
    masks = np.zeros((*rows, 0), np.bool_)
    terms = ppo_heads.Terms(
        -np.abs(draw(*rows)),
        np.ones(rows, np.float32),
        draw(*rows),
        np.tile(np.float32([0.1, 0.9]), (POLICIES, 1)),
        draw(*rows),
        draw(*rows),
        column(0.2),
        column(0.5),
        column(np.inf),
        column(0.01),
        np.full(POLICIES, 1 / ROWS),
    )
    ppo_heads.differentiate(outputs, of_batch, actions, masks, sizes, terms, totals)
    return outputs.tobytes() + totals.tobytes()


@pytest.mark.parametrize("sizes", [(3,), (17,), (40,), (5, 2), (6, 6, 6)])
def test_a_loss_does_not_depend_on_where_its_arrays_lie(sizes):
    """Red before: sums were vectorised, or not, by how far apart two arrays happened to lie."""
    place, held, found = np.random.default_rng(0), [], set()
    for _ in range(300):
        held += [np.zeros(int(size), np.uint8) for size in place.integers(1, 600, 40)]
        held = [held[i] for i in place.permutation(len(held))[:200]]
        found.add(differentiate(np.random.default_rng(1), np.array(sizes)))
    assert len(found) == 1


def test_no_loop_whose_sums_may_be_reordered_looks_at_addresses():
    """LLVM guards such a loop by a check named `vector.memcheck`, and has another one behind it."""
    activations.activate_in_place(np.zeros(24, np.float32), 1)
    kernels = {
        kernel
        for module in (ppo_heads, activations, gemm)
        for kernel in vars(module).values()
        if "reassoc" in getattr(kernel, "targetoptions", {}).get("fastmath", ())
    }
    assert kernels
    for kernel in kernels:
        assert kernel.signatures, f"call {kernel} here too"
        options = {name: kernel.targetoptions[name] for name in ("fastmath", "error_model")}
        anew = njit(**options)(kernel.py_func)  # what was loaded from a cache cannot be looked at
        for signature in kernel.signatures:
            anew.compile(signature)
            assert "vector.memcheck" not in anew.inspect_llvm(signature), kernel


def test_every_policy_of_a_stack_begins_on_a_cache_line():
    """Red before: rows were as long as they had to be, so a product differed from row to row."""
    stack = ParameterStack({"weight": (5, 3), "bias": (1, 3)}, 4, trainable=True)
    for flat in (stack.flat, stack.gradients, stack.rows(1, 3).flat):
        assert [row.data_ptr() % CACHE_LINE for row in flat] == [0] * len(flat)
        assert flat.shape[1] == 18
        assert all(row.is_contiguous() for row in flat)


def test_what_policies_act_on_begins_on_a_cache_line():
    class Network:
        num_inputs, memory, shapes, encoder = 7, 5, {"weight": (1, 1)}, None

        def acting(self, parameters, noise):
            return dict(parameters)

    stacks = [ActingStack(Network(), [None] * 2, streams) for streams in range(1, 20)]
    assert [stack.inputs.ctypes.data % CACHE_LINE for stack in stacks] == [0] * 19
