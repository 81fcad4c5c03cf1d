"""Kernels of PPO's gradient for continuous actions from normal distributions.

Like `fused_kernels.py`: rows in blocks, each quantity in its own array.
"""

from __future__ import annotations

import numpy as np

from remuda.kernels import njit
from remuda.policies.actions import HALF_LOG_TWO_PI
from remuda.policies.algorithms.fused_kernels import (
    BLOCK,
    BY_CHANCE,
    LOG_RATIO,
    SLOPE,
    WORKED,
    ZERO,
    look_up,
    look_up_values,
    of_policy,
    of_value,
    tell,
)
from remuda.policies.networks.activations import STRICT
from remuda.policies.networks.vector_math import exp
from remuda.types import Array, Floats, Integers

PLAIN = np.float32(HALF_LOG_TWO_PI)
HALF = np.float32(0.5)


@njit(**STRICT)
def standard_scores(
    outputs: Floats,  # [B, A + 1] means, then the value
    first: int,
    count: int,
    actions: Floats,  # [R, A]
    rows: Integers,
    log_scales: Floats,  # [A]
    z: Floats,  # [A, BLOCK], written
    chance: Floats,  # [BLOCK], written
) -> None:
    """Write standard scores and log-probabilities of actions."""
    size = log_scales.size
    for i in range(count):
        chance[i] = ZERO
        for j in range(size):
            z[j, i] = actions[rows[i], j] - outputs[first + i, j]
    for j in range(size):
        inverse, least = exp(-log_scales[j]), log_scales[j] + PLAIN
        for i in range(count):
            z[j, i] *= inverse
        for i in range(count):
            chance[i] -= HALF * z[j, i] * z[j, i] + least


@njit(**STRICT)
def evaluate_normal(
    outputs: Floats,
    log_scales: Floats,
    members: Integers,
    index: Integers,
    counts: Integers,
    actions: Floats,
    log_probs: Floats,
    values: Floats,
) -> None:
    """Write log-probabilities of the actions and values of the rows of each policy."""
    size = log_scales.shape[1]
    z, chance = np.empty((size, BLOCK), np.float32), np.empty(BLOCK, np.float32)
    for k in range(outputs.shape[0]):
        who = members[k]
        for first in range(0, counts[k], BLOCK):
            count = min(BLOCK, counts[k] - first)
            rows = index[k, first : first + count]
            standard_scores(outputs[k], first, count, actions[who], rows, log_scales[k], z, chance)
            for i in range(count):
                log_probs[who, rows[i]] = chance[i]
                values[who, rows[i]] = outputs[k, first + i, size]


@njit(**STRICT)
def differentiate_normal(
    outputs: Floats,  # [G, B, A + 1] means, then the value
    log_scales: Floats,  # [G, A] log standard deviations
    by_scales: Floats,  # [G, A] their errors, added to
    members: Integers,
    index: Integers,
    counts: Integers,
    actions: Floats,
    log_prox: Floats,
    weights: Floats,
    advantages: Floats,
    standard: Floats,
    values_before: Floats,
    targets: Floats,
    clip: Floats,
    value_cost: Floats,
    value_clip: Floats,
    entropy_cost: Floats,
    shares: Array,
    means: Array,
) -> None:
    """Do as `fused_kernels.differentiate`, for continuous actions."""
    size = log_scales.shape[1]
    z, value = np.empty((size, BLOCK), np.float32), np.empty(BLOCK, np.float32)
    entropies = np.empty((1, BLOCK), np.float32)
    x = np.empty((WORKED, BLOCK), np.float32)
    for k in range(outputs.shape[0]):
        who, part = members[k], np.float32(shares[k])
        outputs[k, counts[k] :] = ZERO
        entropy = ZERO
        for j in range(size):
            entropy += log_scales[k, j] + HALF + PLAIN
            # Of the entropy, which is that of each row.
            by_scales[k, j] -= part * np.float32(counts[k]) * entropy_cost[k, 0]
        for first in range(0, counts[k], BLOCK):
            count = min(BLOCK, counts[k] - first)
            rows = index[k, first : first + count]
            standard_scores(
                outputs[k], first, count, actions[who], rows, log_scales[k], z, x[LOG_RATIO]
            )
            entropies[0] = entropy
            for i in range(count):
                value[i] = outputs[k, first + i, size]
            look_up(x, rows, log_prox[who], weights[who], advantages[who])
            look_up_values(x, rows, values_before[who], targets[who])
            of_policy(x, count, clip[k, 0], standard[k, 0], standard[k, 1])
            of_value(x, value, count, value_clip[k, 0], part * value_cost[k, 0])
            for j in range(size):
                inverse, total = exp(-log_scales[k, j]), ZERO
                for i in range(count):
                    by_chance = part * x[BY_CHANCE, i]
                    total += by_chance * (z[j, i] * z[j, i] - np.float32(1.0))
                    outputs[k, first + i, j] = by_chance * z[j, i] * inverse
                by_scales[k, j] += total
            for i in range(count):
                outputs[k, first + i, size] = x[SLOPE, i]
            tell(
                x,
                entropies,
                count,
                part,
                clip[k, 0],
                value_cost[k, 0],
                entropy_cost[k, 0],
                means[:, k],
            )
