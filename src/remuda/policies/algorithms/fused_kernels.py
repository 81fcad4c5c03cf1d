"""Kernels of PPO's gradient: from the heads' outputs to their errors, for discrete actions.

Rows are processed in blocks, each quantity in its own array, so that all loops run over rows and
are vectorised. `fused.py` uses them.
"""

from __future__ import annotations

import math

import numpy as np

from remuda.kernels import njit
from remuda.policies.networks.activations import STRICT
from remuda.policies.networks.vector_math import exp, log
from remuda.types import Array, Bools, Floats, Integers

BLOCK = 128  # rows that are processed together
FORBIDDEN = np.float32(-1e30)  # replaces masked logits
ZERO, ONE, HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)


@njit(**STRICT)
def gather(rows: Array, index: Integers, mean: Floats, scale: Floats, out: Floats) -> None:
    """Gather rows as inputs: scaled, or normalised and clipped at 10."""
    size = out.shape[2]
    for k in range(index.shape[0]):
        plain, factor = mean.shape[1] == 0, scale[k, 0]
        for b in range(index.shape[1]):
            row = index[k, b]
            if plain:
                for j in range(size):
                    out[k, b, j] = np.float32(rows[k, row, j]) * factor
            else:
                for j in range(size):
                    x = (np.float32(rows[k, row, j]) - mean[k, j]) * scale[k, j]
                    out[k, b, j] = min(max(x, np.float32(-10.0)), np.float32(10.0))


@njit(**STRICT)
def softmax(
    logits: Floats, allowed: Floats, pi: Floats, log_pi: Floats, entropy: Floats, count: int
) -> None:
    """Write probabilities and log-probabilities [choices, BLOCK], and entropies [BLOCK].

    `count` rows are used. `allowed` is 1 or 0 for each logit, or empty to allow all. Masked logits
    get probability 0, and their log-probabilities are meaningless.
    """
    choices = logits.shape[0]
    top, total = np.empty(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
    for i in range(count):
        top[i] = logits[0, i]
        entropy[i] = ZERO
    for j in range(1, choices):
        for i in range(count):
            top[i] = logits[j, i] if logits[j, i] > top[i] else top[i]
    for j in range(choices):
        for i in range(count):
            below = logits[j, i] - top[i]
            # A network may say minus infinity; 0 times that would be no number.
            log_pi[j, i] = FORBIDDEN if below < FORBIDDEN else below
            pi[j, i] = exp(log_pi[j, i])
        if allowed.shape[0]:
            for i in range(count):
                pi[j, i] *= allowed[j, i]
        for i in range(count):
            total[i] += pi[j, i]
    for i in range(count):
        top[i] = log(total[i])
        total[i] = ONE / total[i]
    for j in range(choices):
        for i in range(count):
            pi[j, i] *= total[i]
            log_pi[j, i] -= top[i]
            entropy[i] -= pi[j, i] * log_pi[j, i]


@njit(**STRICT)
def load(
    outputs: Floats,
    first: int,
    count: int,
    masks: Bools,
    rows: Integers,
    logits: Floats,
    allowed: Floats,
    values: Floats,
) -> None:
    """Copy `count` rows of outputs [B, L + 1] to arrays [L, BLOCK] and [BLOCK]."""
    num_logits = outputs.shape[1] - 1
    for i in range(count):
        for j in range(num_logits):
            logits[j, i] = outputs[first + i, j]
        values[i] = outputs[first + i, num_logits]
    if masks.shape[1]:
        for i in range(count):
            for j in range(num_logits):
                allowed[j, i] = ONE if masks[rows[i], j] else ZERO
                if not masks[rows[i], j]:
                    logits[j, i] = FORBIDDEN


@njit(**STRICT)
def evaluate(
    outputs: Floats,
    members: Integers,
    index: Integers,
    counts: Integers,
    actions: Integers,
    masks: Bools,
    sizes: Integers,
    log_probs: Floats,
    values: Floats,
) -> None:
    """Write log-probabilities of the actions and values of the rows of each policy."""
    num_logits = outputs.shape[2] - 1
    logits = np.empty((num_logits, BLOCK), np.float32)
    pi, log_pi = np.empty_like(logits), np.empty_like(logits)
    allowed = np.empty((num_logits if masks.shape[2] else 0, BLOCK), np.float32)
    value, entropy = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for k in range(outputs.shape[0]):
        who = members[k]
        for first in range(0, counts[k], BLOCK):
            count = min(BLOCK, counts[k] - first)
            rows = index[k, first : first + count]
            load(outputs[k], first, count, masks[who], rows, logits, allowed, value)
            for i in range(count):
                values[who, rows[i]] = value[i]
                log_probs[who, rows[i]] = ZERO
            start = 0
            for c in range(sizes.size):
                end = start + sizes[c]
                some = allowed[start:end] if allowed.shape[0] else allowed
                softmax(logits[start:end], some, pi[start:end], log_pi[start:end], entropy, count)
                for i in range(count):
                    log_probs[who, rows[i]] += log_pi[start + actions[who, rows[i], c], i]
                start = end


@njit(**STRICT)
def standardise(
    advantages: Floats, members: Integers, index: Integers, counts: Integers, out: Floats
) -> None:
    """Write mean and inverse deviation (0 if there is none) of each policy's advantages."""
    for k in range(index.shape[0]):
        own, count = advantages[members[k]], counts[k]
        mean, square = 0.0, 0.0
        for b in range(count):
            mean += own[index[k, b]]
        mean /= count
        for b in range(count):
            square += (own[index[k, b]] - mean) ** 2
        deviation = math.sqrt(square / count)
        out[k, 0] = mean
        out[k, 1] = 1.0 / deviation if deviation > 1e-8 else 0.0


# rows of the work array: computed per row of the minibatch
LOG_RATIO, RATIO, LEAST, BY_CHANCE, LOSS, SLOPE = range(6)
# rows of the work array: looked up per row of the minibatch
LOG_PROX, WEIGHT, ADVANTAGE, VALUE, TARGET = range(6, 11)
WORKED = 11


@njit(**STRICT)
def differentiate(
    outputs: Floats,  # [G, B, num_logits + 1] logits, then the value
    members: Integers,  # [G] policies of the batch
    index: Integers,  # [G, B] rows of the batch
    counts: Integers,  # [G] rows that count; errors of others are 0
    actions: Integers,
    masks: Bools,
    sizes: Integers,
    log_prox: Floats,
    weights: Floats,
    advantages: Floats,
    standard: Floats,  # [G, 2] result of `standardise`
    values_before: Floats,
    targets: Floats,
    clip: Floats,
    value_cost: Floats,
    value_clip: Floats,
    entropy_cost: Floats,
    shares: Array,  # [G] weight of a row
    means: Array,  # [len(Means), G], added to
) -> None:
    """Compute the loss from the heads' outputs and overwrite these by their errors."""
    num_logits = outputs.shape[2] - 1
    logits = np.empty((num_logits, BLOCK), np.float32)
    pi, log_pi = np.empty_like(logits), np.empty_like(logits)
    allowed = np.empty((num_logits if masks.shape[2] else 0, BLOCK), np.float32)
    entropies = np.empty((sizes.size, BLOCK), np.float32)
    x, value = np.empty((WORKED, BLOCK), np.float32), np.empty(BLOCK, np.float32)
    for k in range(outputs.shape[0]):
        who, part = members[k], np.float32(shares[k])
        outputs[k, counts[k] :] = ZERO
        for first in range(0, counts[k], BLOCK):
            count = min(BLOCK, counts[k] - first)
            rows = index[k, first : first + count]
            load(outputs[k], first, count, masks[who], rows, logits, allowed, value)
            x[LOG_RATIO] = ZERO
            start = 0
            for c in range(sizes.size):
                end = start + sizes[c]
                some = allowed[start:end] if allowed.shape[0] else allowed
                softmax(
                    logits[start:end], some, pi[start:end], log_pi[start:end], entropies[c], count
                )
                for i in range(count):
                    x[LOG_RATIO, i] += log_pi[start + actions[who, rows[i], c], i]
                start = end
            look_up(x, rows, log_prox[who], weights[who], advantages[who])
            look_up_values(x, rows, values_before[who], targets[who])
            of_policy(x, count, clip[k, 0], standard[k, 0], standard[k, 1])
            of_value(x, value, count, value_clip[k, 0], part * value_cost[k, 0])
            start = 0
            for c in range(sizes.size):
                end = start + sizes[c]
                by_logits(
                    pi[start:end],
                    log_pi[start:end],
                    entropies[c],
                    x,
                    count,
                    part,
                    entropy_cost[k, 0],
                )
                start = end
            # `pi` now holds the errors of the logits.
            store(outputs[k], first, rows, pi, actions[who], sizes, x, part)
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


@njit(**STRICT)
def look_up(
    x: Floats, rows: Integers, log_prox: Floats, weights: Floats, advantages: Floats
) -> None:
    """Look up log-probabilities, weights and advantages of rows."""
    for i in range(rows.size):
        x[LOG_PROX, i] = log_prox[rows[i]]
        x[WEIGHT, i] = weights[rows[i]]
        x[ADVANTAGE, i] = advantages[rows[i]]


@njit(**STRICT)
def look_up_values(x: Floats, rows: Integers, values_before: Floats, targets: Floats) -> None:
    """Look up values and targets of rows."""
    for i in range(rows.size):
        x[VALUE, i] = values_before[rows[i]]
        x[TARGET, i] = targets[rows[i]]


@njit(**STRICT)
def store(
    outputs: Floats,
    first: int,
    rows: Integers,
    errors: Floats,
    actions: Integers,
    sizes: Integers,
    x: Floats,
    part: np.float32,
) -> None:
    """Write errors of logits [L, BLOCK] and of the value to outputs [B, L + 1]."""
    num_logits = outputs.shape[1] - 1
    for i in range(rows.size):
        for j in range(num_logits):
            outputs[first + i, j] = errors[j, i]
        start = 0
        for c in range(sizes.size):
            outputs[first + i, start + actions[rows[i], c]] += part * x[BY_CHANCE, i]
            start += sizes[c]
        outputs[first + i, num_logits] = x[SLOPE, i]


@njit(**STRICT)
def of_policy(
    x: Floats, count: int, bound: np.float32, mean: np.float32, factor: np.float32
) -> None:
    """Compute the clipped objective of each row, and its gradient by the log-probability."""
    for i in range(count):
        log_ratio = x[LOG_RATIO, i] - x[LOG_PROX, i]
        x[LOG_RATIO, i] = log_ratio
        x[RATIO, i] = exp(log_ratio)
    for i in range(count):
        ratio, advantage = x[RATIO, i], (x[ADVANTAGE, i] - mean) * factor
        bounded = ONE - bound if ratio < ONE - bound else ratio
        bounded = ONE + bound if bounded > ONE + bound else bounded
        gain, other = ratio * advantage, bounded * advantage
        least = other if other < gain else gain
        x[LEAST, i] = x[WEIGHT, i] * least
        # NaN is not greater, and stays NaN.
        x[BY_CHANCE, i] = ZERO if gain > least else -x[WEIGHT, i] * gain


@njit(**STRICT)
def of_value(x: Floats, values: Floats, count: int, limit: np.float32, cost: np.float32) -> None:
    """Compute the clipped value loss of each row, and its gradient times its cost."""
    for i in range(count):
        error, moved = values[i] - x[TARGET, i], values[i] - x[VALUE, i]
        near = -limit if moved < -limit else moved
        near = limit if near > limit else near
        held = x[VALUE, i] + near - x[TARGET, i]
        further = abs(held) > abs(error)
        x[LOSS, i] = HALF * held * held if further else HALF * error * error
        x[SLOPE, i] = ZERO if further and abs(moved) > limit else cost * error


@njit(**STRICT)
def by_logits(
    pi: Floats,
    log_pi: Floats,
    entropy: Floats,
    x: Floats,
    count: int,
    part: np.float32,
    entropy_cost: np.float32,
) -> None:
    """Turn probabilities into errors of the logits, except for the taken action's part."""
    for j in range(pi.shape[0]):
        for i in range(count):
            spread = entropy_cost * (log_pi[j, i] + entropy[i])
            pi[j, i] = part * pi[j, i] * (spread - x[BY_CHANCE, i])


@njit(**STRICT)
def tell(
    x: Floats,
    entropies: Floats,
    count: int,
    part: np.float32,
    bound: np.float32,
    value_cost: np.float32,
    entropy_cost: np.float32,
    means: Array,
) -> None:
    """Add the metrics of a block, `Means`."""
    for c in range(1, entropies.shape[0]):
        for i in range(count):
            entropies[0, i] += entropies[c, i]
    for i in range(count):
        gained, loss, entropy = x[LEAST, i], x[LOSS, i], entropies[0, i]
        moved = x[RATIO, i] - ONE
        means[0] += part * (value_cost * loss - gained - entropy_cost * entropy)
        means[1] -= part * gained
        means[2] += part * loss
        means[3] += part * entropy
        means[4] += part * (moved - x[LOG_RATIO, i])
        means[5] += part if abs(moved) > bound else ZERO
