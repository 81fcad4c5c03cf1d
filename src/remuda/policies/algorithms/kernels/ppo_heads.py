"""Kernels of PPO's loss and its gradients w.r.t. the heads' outputs, called their *errors*.

Rows are processed in blocks with an array for each quantity, so that all loops are vectorised.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from remuda.policies.continuous_actions import HALF_LOG_TWO_PI
from remuda.policies.networks.kernels.activations import STRICT
from remuda.policies.networks.kernels.vector_math import exp, log
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers

BLOCK = 128  # rows that are processed together
FORBIDDEN = np.float32(-1e30)  # replaces masked logits
ZERO, ONE, HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)
PLAIN = np.float32(HALF_LOG_TWO_PI)


class RowsOf(NamedTuple):
    """The rows of a batch that network outputs [G, B, ...] belong to."""

    members: Integers  # [G] indices of policies in the batch
    rows: Integers  # [G, B] indices of each policy's rows
    counts: Integers  # [G] number of valid rows, which come first; the others are padding


class Terms(NamedTuple):
    """The terms of a minibatch's loss, for K policies of a batch and G trained policies."""

    log_prox: Floats  # [K, R]
    weights: Floats  # [K, R]
    advantages: Floats  # [K, R]
    standard: Floats  # [G, 2] result of `standardise`
    values_before: Floats  # [K, R]
    targets: Floats  # [K, R]
    clip: Floats  # [G, 1], like all costs
    value_cost: Floats
    value_clip: Floats
    entropy_cost: Floats
    shares: Array  # [G] weight of a row


@njit(**STRICT)
def gather(rows: Array, index: Integers, mean: Floats, scale: Floats, out: Floats) -> None:
    """Gather a policy's rows as inputs [B, I]: scaled, or normalised and clipped to [-10, 10]."""
    plain, factor = mean.size == 0, scale[0]
    for b in range(index.size):
        row = index[b]
        if plain:
            for j in range(out.shape[1]):
                out[b, j] = np.float32(rows[row, j]) * factor
        else:
            for j in range(out.shape[1]):
                x = (np.float32(rows[row, j]) - mean[j]) * scale[j]
                out[b, j] = min(max(x, np.float32(-10.0)), np.float32(10.0))


@njit(**STRICT)
def softmax(
    logits: Floats, allowed: Floats, pi: Floats, log_pi: Floats, entropy: Floats, count: int
) -> None:
    """Write probabilities and log-probabilities [options, BLOCK], and entropies [BLOCK].

    `allowed` is 1 or 0 for each logit, or empty to allow all. Log-probabilities of masked logits
    are meaningless.
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
            # A network may return minus infinity, and 0 times infinity is NaN.
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
    picked: RowsOf,
    actions: Integers,
    masks: Bools,
    sizes: Integers,
    log_probs: Floats,
    values: Floats,
) -> None:
    """Write, for each policy, the rows' values and their actions' log-probabilities."""
    for k in range(outputs.shape[0]):
        member, rows = picked.members[k], picked.rows[k, : picked.counts[k]]
        own = log_probs[member], values[member]
        evaluate_policy(outputs[k], rows, actions[member], masks[member], sizes, own[0], own[1])


@njit(**STRICT)
def evaluate_policy(
    outputs: Floats,  # [B, num_logits + 1]
    rows: Integers,  # at most B
    actions: Integers,
    masks: Bools,
    sizes: Integers,
    log_probs: Floats,
    values: Floats,
) -> None:
    """Write one policy's values and log-probabilities for these rows."""
    num_logits = outputs.shape[1] - 1
    logits = np.empty((num_logits, BLOCK), np.float32)
    pi, log_pi = np.empty_like(logits), np.empty_like(logits)
    allowed = np.empty((num_logits if masks.shape[1] else 0, BLOCK), np.float32)
    value, entropy = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for first in range(0, rows.size, BLOCK):
        count = min(BLOCK, rows.size - first)
        block = rows[first : first + count]
        load(outputs, first, count, masks, block, logits, allowed, value)
        for i in range(count):
            values[block[i]] = value[i]
            log_probs[block[i]] = ZERO
        start = 0
        for c in range(sizes.size):
            end = start + sizes[c]
            mask = allowed[start:end] if allowed.shape[0] else allowed
            softmax(logits[start:end], mask, pi[start:end], log_pi[start:end], entropy, count)
            for i in range(count):
                log_probs[block[i]] += log_pi[start + actions[block[i], c], i]
            start = end


@njit(**STRICT)
def standardise(advantages: Floats, picked: RowsOf, out: Floats) -> None:
    """Write mean and inverse deviation (0 if all are equal) of each policy's advantages."""
    for k in range(picked.rows.shape[0]):
        own, rows, count = advantages[picked.members[k]], picked.rows[k], picked.counts[k]
        mean, square = 0.0, 0.0
        for b in range(count):
            mean += own[rows[b]]
        mean /= count
        for b in range(count):
            square += (own[rows[b]] - mean) ** 2
        deviation = math.sqrt(square / count)
        out[k, 0] = mean
        out[k, 1] = 1.0 / deviation if deviation > 1e-8 else 0.0


# rows of the work array [WORKED, BLOCK]: quantities computed for each row of the minibatch
LOG_RATIO, RATIO, LEAST, BY_CHANCE, LOSS, SLOPE = range(6)
# quantities copied for each row of the minibatch
LOG_PROX, WEIGHT, ADVANTAGE, VALUE, TARGET = range(6, 11)
WORKED = 11


@njit(**STRICT)
def differentiate(
    outputs: Floats,  # [G, B, num_logits + 1] logits, then the value
    picked: RowsOf,  # errors of padding rows are 0
    actions: Integers,
    masks: Bools,
    sizes: Integers,
    terms: Terms,
    means: Array,  # [len(Means), G], added to
) -> None:
    """Compute the loss from the heads' outputs and overwrite the outputs with their errors."""
    for k in range(outputs.shape[0]):
        member, rows = picked.members[k], picked.rows[k, : picked.counts[k]]
        outputs[k, rows.size :] = ZERO
        own = actions[member], masks[member], means[:, k]
        differentiate_policy(outputs[k], rows, own[0], own[1], sizes, terms, k, member, own[2])


@njit(**STRICT)
def differentiate_policy(
    outputs: Floats,  # [B, num_logits + 1]
    rows: Integers,  # at most B
    actions: Integers,
    masks: Bools,
    sizes: Integers,
    terms: Terms,
    k: int,  # index of the policy in `terms`
    member: int,  # index of the policy in the batch
    means: Array,  # [len(Means)], added to
) -> None:
    """Compute the loss of one policy's rows, and overwrite the outputs with their errors."""
    num_logits = outputs.shape[1] - 1
    logits = np.empty((num_logits, BLOCK), np.float32)
    pi, log_pi = np.empty_like(logits), np.empty_like(logits)
    allowed = np.empty((num_logits if masks.shape[1] else 0, BLOCK), np.float32)
    entropies = np.empty((sizes.size, BLOCK), np.float32)
    x, value = np.empty((WORKED, BLOCK), np.float32), np.empty(BLOCK, np.float32)
    part, cost = np.float32(terms.shares[k]), terms.entropy_cost[k, 0]
    for first in range(0, rows.size, BLOCK):
        count = min(BLOCK, rows.size - first)
        block = rows[first : first + count]
        load(outputs, first, count, masks, block, logits, allowed, value)
        x[LOG_RATIO] = ZERO
        start = 0
        for c in range(sizes.size):
            end = start + sizes[c]
            mask = allowed[start:end] if allowed.shape[0] else allowed
            own = pi[start:end], log_pi[start:end], entropies[c]
            softmax(logits[start:end], mask, own[0], own[1], own[2], count)
            for i in range(count):
                x[LOG_RATIO, i] += log_pi[start + actions[block[i], c], i]
            start = end
        of_block(x, block, value, terms, k, member)
        start = 0
        for c in range(sizes.size):
            end = start + sizes[c]
            by_logits(pi[start:end], log_pi[start:end], entropies[c], x, count, part, cost)
            start = end
        # `pi` now holds the errors of the logits.
        store(outputs, first, block, pi, actions, sizes, x, part)
        add_metrics(x, entropies, count, terms, k, means)


@njit(**STRICT)
def of_block(x: Floats, rows: Integers, values: Floats, terms: Terms, k: int, member: int) -> None:
    """Compute the losses of a block of rows of policy `k`, whose index in the batch is `member`."""
    look_up(terms.log_prox[member], rows, x[LOG_PROX])
    look_up(terms.weights[member], rows, x[WEIGHT])
    look_up(terms.advantages[member], rows, x[ADVANTAGE])
    look_up(terms.values_before[member], rows, x[VALUE])
    look_up(terms.targets[member], rows, x[TARGET])
    of_policy(x, rows.size, terms.clip[k, 0], terms.standard[k, 0], terms.standard[k, 1])
    part = np.float32(terms.shares[k])
    of_value(x, values, rows.size, terms.value_clip[k, 0], part * terms.value_cost[k, 0])


@njit(**STRICT)
def look_up(numbers: Floats, rows: Integers, out: Floats) -> None:
    """Gather the numbers of these rows."""
    for i in range(rows.size):
        out[i] = numbers[rows[i]]


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
    """Compute each row's clipped objective, and its gradient w.r.t. the log-probability."""
    for i in range(count):
        log_ratio = x[LOG_RATIO, i] - x[LOG_PROX, i]
        x[LOG_RATIO, i] = log_ratio
        x[RATIO, i] = exp(log_ratio)
    for i in range(count):
        ratio, advantage = x[RATIO, i], (x[ADVANTAGE, i] - mean) * factor
        bounded = ONE - bound if ratio < ONE - bound else ratio
        bounded = ONE + bound if bounded > ONE + bound else bounded
        gain, bounded_gain = ratio * advantage, bounded * advantage
        least = bounded_gain if bounded_gain < gain else gain
        x[LEAST, i] = x[WEIGHT, i] * least
        # The comparison is false for NaN, so that NaN stays.
        x[BY_CHANCE, i] = ZERO if gain > least else -x[WEIGHT, i] * gain


@njit(**STRICT)
def of_value(x: Floats, values: Floats, count: int, limit: np.float32, cost: np.float32) -> None:
    """Compute each row's clipped value loss, and its gradient times the cost."""
    for i in range(count):
        error, moved = values[i] - x[TARGET, i], values[i] - x[VALUE, i]
        bounded = -limit if moved < -limit else moved
        bounded = limit if bounded > limit else bounded
        clipped = x[VALUE, i] + bounded - x[TARGET, i]
        is_larger = abs(clipped) > abs(error)
        x[LOSS, i] = HALF * clipped * clipped if is_larger else HALF * error * error
        x[SLOPE, i] = ZERO if is_larger and abs(moved) > limit else cost * error


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
    """Convert probabilities to errors of the logits, except the term of the taken action."""
    for j in range(pi.shape[0]):
        for i in range(count):
            spread = entropy_cost * (log_pi[j, i] + entropy[i])
            pi[j, i] = part * pi[j, i] * (spread - x[BY_CHANCE, i])


@njit(**STRICT)
def add_metrics(
    x: Floats, entropies: Floats, count: int, terms: Terms, k: int, means: Array
) -> None:
    """Add the metrics (`Means`) of a block of policy `k`."""
    part, bound = np.float32(terms.shares[k]), terms.clip[k, 0]
    value_cost, entropy_cost = terms.value_cost[k, 0], terms.entropy_cost[k, 0]
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
    """Write z-scores and log-probabilities of actions."""
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
    picked: RowsOf,
    actions: Floats,
    log_probs: Floats,
    values: Floats,
) -> None:
    """Do the same as `evaluate`, for continuous actions."""
    for k in range(outputs.shape[0]):
        member, rows = picked.members[k], picked.rows[k, : picked.counts[k]]
        own = log_probs[member], values[member]
        evaluate_policy_normal(outputs[k], log_scales[k], rows, actions[member], own[0], own[1])


@njit(**STRICT)
def evaluate_policy_normal(
    outputs: Floats,
    log_scales: Floats,  # [A]
    rows: Integers,
    actions: Floats,
    log_probs: Floats,
    values: Floats,
) -> None:
    """Do the same as `evaluate_policy`, for continuous actions."""
    size = log_scales.size
    z, chance = np.empty((size, BLOCK), np.float32), np.empty(BLOCK, np.float32)
    for first in range(0, rows.size, BLOCK):
        count = min(BLOCK, rows.size - first)
        block = rows[first : first + count]
        standard_scores(outputs, first, count, actions, block, log_scales, z, chance)
        for i in range(count):
            log_probs[block[i]] = chance[i]
            values[block[i]] = outputs[first + i, size]


@njit(**STRICT)
def differentiate_normal(
    outputs: Floats,  # [G, B, A + 1] means, then the value
    log_scales: Floats,  # [G, A] log standard deviations
    by_scales: Floats,  # [G, A] gradients of `log_scales`, added to
    picked: RowsOf,
    actions: Floats,
    terms: Terms,
    means: Array,
) -> None:
    """Do the same as `differentiate`, for continuous actions."""
    for k in range(outputs.shape[0]):
        member, rows = picked.members[k], picked.rows[k, : picked.counts[k]]
        outputs[k, rows.size :] = ZERO
        scales, own = (log_scales[k], by_scales[k]), (actions[member], means[:, k])
        differentiate_policy_normal(
            outputs[k], scales[0], scales[1], rows, own[0], terms, k, member, own[1]
        )


@njit(**STRICT)
def differentiate_policy_normal(
    outputs: Floats,
    log_scales: Floats,  # [A]
    by_scales: Floats,  # [A], added to
    rows: Integers,
    actions: Floats,
    terms: Terms,
    k: int,
    member: int,
    means: Array,
) -> None:
    """Do the same as `differentiate_policy`, for continuous actions."""
    size = log_scales.size
    z, value = np.empty((size, BLOCK), np.float32), np.empty(BLOCK, np.float32)
    entropies = np.empty((1, BLOCK), np.float32)
    x = np.empty((WORKED, BLOCK), np.float32)
    part, entropy = np.float32(terms.shares[k]), ZERO
    for j in range(size):
        entropy += log_scales[j] + HALF + PLAIN
        # The gradient of the entropy is the same for all rows.
        by_scales[j] -= part * np.float32(rows.size) * terms.entropy_cost[k, 0]
    for first in range(0, rows.size, BLOCK):
        count = min(BLOCK, rows.size - first)
        block, log_ratios = rows[first : first + count], x[LOG_RATIO]
        standard_scores(outputs, first, count, actions, block, log_scales, z, log_ratios)
        entropies[0] = entropy
        for i in range(count):
            value[i] = outputs[first + i, size]
        of_block(x, block, value, terms, k, member)
        for j in range(size):
            inverse, total = exp(-log_scales[j]), ZERO
            for i in range(count):
                by_chance = part * x[BY_CHANCE, i]
                total += by_chance * (z[j, i] * z[j, i] - np.float32(1.0))
                outputs[first + i, j] = by_chance * z[j, i] * inverse
            by_scales[j] += total
        for i in range(count):
            outputs[first + i, size] = x[SLOPE, i]
        add_metrics(x, entropies, count, terms, k, means)
