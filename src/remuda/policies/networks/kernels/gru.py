"""A gated recurrent layer for K policies: sequences forward and backward, single-threaded.

Sequences run in groups whose intermediate results fit in the cache. A row's result does not depend
on other rows. Names follow Cho et al. 2014 and torch.nn.GRU: reset r, update z, candidate n, and
h' = n + z * (h - n).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from remuda.policies.networks.encoder import unroll
from remuda.policies.networks.kernels.activations import FAST, STRICT, TANH, activate_in_place
from remuda.policies.networks.kernels.flat_layers import linear_at
from remuda.policies.networks.kernels.gemm import gemm, suits
from remuda.policies.networks.kernels.perceptron import gradients_of
from remuda.policies.networks.kernels.vector_math import exp
from remuda.system.kernels import njit
from remuda.types import Floats, Integers

CACHE = 1 << 17  # numbers that a group of sequences may keep: half a megabyte
NEVER = -1  # no burn-in


def run_gru(
    gates: Tensor, weight: Tensor, bias: Tensor, state: Tensor, burn_in: Tensor | None = None
) -> Tensor:
    """Return the states [K, G * T, U] after each of T steps of G sequences.

    Args:
        gates: [K, G * T, 3 * U] the input's part of the gates r, z and n; sequence by sequence.
        weight: [K, U, 3 * U] of the state's part.
        bias: [K, 1, 3 * U] of the state's part.
        state: [K, G, U] before the first step.
        burn_in: [K, G] before this step no gradient flows back through the state.
    """
    inputs = gates, weight, bias, state
    if not suits(*inputs) or not _fit(*inputs):  # torch reports wrong shapes
        return _by_torch(burn_in, *inputs)
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        found: Tensor = _Gru.apply(burn_in, *inputs)  # type: ignore[no-untyped-call]
        return found
    return _forward(*inputs)


def _fit(gates: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> bool:
    policies, sequences, units = state.shape
    return (
        len(gates) == policies
        and gates.shape[1] % sequences == 0
        and gates.shape[2] == 3 * units
        and weight.shape == (policies, units, 3 * units)
        and bias.shape == (policies, 1, 3 * units)
    )


def _by_torch(
    burn_in: Tensor | None, gates: Tensor, weight: Tensor, bias: Tensor, state: Tensor
) -> Tensor:
    def step(now: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        reset, update, new = now.chunk(3, -1)
        own_reset, own_update, own_new = torch.baddbmm(bias, before, weight).chunk(3, -1)
        update = (update + own_update).sigmoid()
        new = (new + (reset + own_reset).sigmoid() * own_new).tanh()
        after = new + update * (before - new)
        return after, after

    return unroll(step, gates, state, burn_in)


def _forward(gates: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> Tensor:
    states = gates.new_empty(*gates.shape[:2], state.shape[2])
    run_forward(states.numpy(), *_arrays(gates, weight, bias, state))
    return states


def _arrays(*tensors: Tensor) -> list[Floats]:
    return [x.detach().contiguous().numpy() for x in tensors]


class _Gru(torch.autograd.Function):
    """`run_gru`, differentiable."""

    @staticmethod
    def forward(ctx: Any, burn_in: Tensor | None, *inputs: Tensor) -> Tensor:
        states = _forward(*inputs)
        ctx.save_for_backward(*inputs, states)
        ctx.burn_in = burn_in
        return states

    @staticmethod
    def backward(ctx: Any, *by_outputs: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, states = ctx.saved_tensors
        if torch.is_grad_enabled():  # this gradient will be differentiated again
            # Without these views, earlier steps would count twice.
            own = [x.view_as(x) for x in inputs]
            out = _by_torch(ctx.burn_in, *own)
            return None, *gradients_of(out, own, ctx.needs_input_grad[1:], by_outputs[0])
        found = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs]
        groups, until = inputs[3].shape[:2], np.full((1, 1), NEVER)
        if ctx.burn_in is not None:
            until = ctx.burn_in.numpy()
        until = np.ascontiguousarray(np.broadcast_to(until, groups), np.int64)
        read = _arrays(*inputs, states, by_outputs[0])
        run_backward(until, *read, *[x.numpy() for x in found])
        return None, *found


@njit(**FAST)
def sigmoid_in_place(x: Floats) -> None:
    """Apply 1 / (1 + exp(-x)), to within a few units in the last place."""
    one = np.float32(1.0)
    for i in range(x.size):
        x[i] = one / (one + exp(-x[i]))


@njit(**STRICT)
def group_of(length: int, units: int) -> int:
    """Return how many sequences run together."""
    return max(4, CACHE // (10 * length * units))


@njit(**STRICT)
def evaluate(  # of one step of some sequences
    gates: Floats,  # [G, T, 3U]
    t: int,
    before: Floats,  # [G, U] states
    own: Floats,  # [G, 3U] the states' part of the gates
    both: Floats,  # [G, 2U] written: r and z
    new: Floats,  # [G, U] written: n
) -> None:
    """Write the gates of a step."""
    units = before.shape[1]
    for g in range(len(before)):
        for j in range(2 * units):
            both[g, j] = gates[g, t, j] + own[g, j]
    sigmoid_in_place(both.reshape(-1))
    for g in range(len(before)):
        for j in range(units):
            new[g, j] = gates[g, t, 2 * units + j] + both[g, j] * own[g, 2 * units + j]
    activate_in_place(new.reshape(-1), TANH)


@njit(**STRICT)
def run_forward(states: Floats, gates: Floats, weight: Floats, bias: Floats, state: Floats) -> None:
    """Write `states`; shapes as in `run_gru`."""
    policies, sequences, units = state.shape
    length = states.shape[1] // sequences
    most = min(group_of(length, units), sequences)
    own_, both_ = np.empty((most, 3 * units), np.float32), np.empty((most, 2 * units), np.float32)
    new_, now_ = np.empty((most, units), np.float32), np.empty((most, units), np.float32)
    for k in range(policies):
        at, begin = weight[k].ctypes.data, bias[k].ctypes.data
        inputs = gates[k].reshape(sequences, length, 3 * units)
        out = states[k].reshape(sequences, length, units)
        for first in range(0, sequences, most):
            end = min(first + most, sequences)
            count = end - first
            own, both, new, now = own_[:count], both_[:count], new_[:count], now_[:count]
            now[:] = state[k, first:end]
            for t in range(length):
                linear_at(now, at, begin, own)
                evaluate(inputs[first:end], t, now, own, both, new)
                for g in range(count):
                    for j in range(units):
                        h = new[g, j] + both[g, units + j] * (now[g, j] - new[g, j])
                        now[g, j] = h
                        out[first + g, t, j] = h


@njit(**STRICT)
def run_backward(
    burn_in: Integers,  # [K, G]; `NEVER`: none
    gates: Floats,
    weight: Floats,
    bias: Floats,
    state: Floats,
    states: Floats,
    errors: Floats,  # [K, G * T, U]
    by_gates: Floats,
    by_weight: Floats,
    by_bias: Floats,
    by_state: Floats,
) -> None:
    """Write the gradients with respect to the arguments of `run_forward`."""
    policies, sequences, units = state.shape
    length = states.shape[1] // sequences
    most = min(group_of(length, units), sequences)
    own_ = np.empty((most, 3 * units), np.float32)
    both_ = np.empty((most, 2 * units), np.float32)
    new_, back_ = np.empty((most, units), np.float32), np.empty((most, units), np.float32)
    # of all steps of a group, for the gradient of the weight
    before_ = np.empty((length, most, units), np.float32)
    by_own_ = np.empty((length, most, 3 * units), np.float32)
    transposed = np.empty((3 * units, units), np.float32)
    for k in range(policies):
        at, begin = weight[k].ctypes.data, bias[k].ctypes.data
        for i in range(units):
            for j in range(3 * units):
                transposed[j, i] = weight[k, i, j]
        inputs = gates[k].reshape(sequences, length, 3 * units)
        by_inputs = by_gates[k].reshape(sequences, length, 3 * units)
        found = states[k].reshape(sequences, length, units)
        wrong = errors[k].reshape(sequences, length, units)
        by_bias[k] = 0.0
        for first in range(0, sequences, most):
            end = min(first + most, sequences)
            count = end - first
            own, both, new, back = own_[:count], both_[:count], new_[:count], back_[:count]
            before_all = before_.reshape(-1)[: length * count * units]
            before = before_all.reshape(length, count, units)
            by_own = by_own_.reshape(-1)[: length * count * 3 * units]
            by_own = by_own.reshape(length, count, 3 * units)
            back[:] = 0.0
            for t in range(length - 1, -1, -1):
                now = before[t]
                for g in range(count):
                    for j in range(units):
                        now[g, j] = found[first + g, t - 1, j] if t else state[k, first + g, j]
                linear_at(now, at, begin, own)
                evaluate(inputs[first:end], t, now, own, both, new)
                differentiate(
                    now, own, both, new, wrong[first:end], t, back, by_inputs[first:end], by_own[t]
                )
                add_back(by_own[t], transposed, back)
                for g in range(count):
                    if burn_in[k, first + g] == t:
                        back[g] = 0.0
            by_state[k, first:end] = back
            add_gradients(
                before.reshape(-1, units), by_own.reshape(-1, 3 * units), by_weight[k], first == 0
            )
            for i in range(len(by_own)):
                for g in range(count):
                    for j in range(3 * units):
                        by_bias[k, 0, j] += by_own[i, g, j]


@njit(**STRICT)
def differentiate(  # of one step of some sequences; see `evaluate`
    before: Floats,
    own: Floats,
    both: Floats,
    new: Floats,
    errors: Floats,  # [G, T, U]
    t: int,
    back: Floats,  # [G, U] errors of the step's state from later steps; of `before` afterwards
    by_gates: Floats,  # [G, T, 3U] written
    by_own: Floats,  # [G, 3U] written
) -> None:
    """Backpropagate a step, without what goes through `own` to the state before."""
    one, units = np.float32(1.0), before.shape[1]
    for g in range(len(before)):
        for j in range(units):
            error = errors[g, t, j] + back[g, j]
            r, z, n = both[g, j], both[g, units + j], new[g, j]
            by_new = error * (one - z) * (one - n * n)
            by_update = error * (before[g, j] - n) * z * (one - z)
            by_reset = by_new * own[g, 2 * units + j] * r * (one - r)
            by_own[g, j] = by_reset
            by_own[g, units + j] = by_update
            by_own[g, 2 * units + j] = by_new * r
            by_gates[g, t, j] = by_reset
            by_gates[g, t, units + j] = by_update
            by_gates[g, t, 2 * units + j] = by_new
            back[g, j] = error * z


@njit(**STRICT)
def add_back(by_own: Floats, transposed: Floats, back: Floats) -> None:
    """Add by_own [G, 3U] @ transposed [3U, U] to `back`."""
    units, at = back.shape[1], back.ctypes.data
    gemm(
        1,
        len(back),
        units,
        3 * units,
        by_own.ctypes.data,
        0,
        3 * units,
        1,
        transposed.ctypes.data,
        0,
        units,
        at,
        0,
        units,
        at,
        0,
        units,
    )


@njit(**STRICT)
def add_gradients(x: Floats, errors: Floats, out: Floats, fresh: bool) -> None:
    """Add x [B, U].T @ errors [B, 3U] to `out`, or write it if `fresh`."""
    units, at = x.shape[1], out.ctypes.data
    columns = errors.shape[1]
    gemm(
        1,
        units,
        columns,
        len(x),
        x.ctypes.data,
        0,
        1,
        units,
        errors.ctypes.data,
        0,
        columns,
        0 if fresh else at,
        0,
        columns,
        at,
        0,
        columns,
    )
