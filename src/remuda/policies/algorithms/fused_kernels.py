"""The kernels of PPO's fused gradient: what lies between the last hidden layer and its gradient.

`fused.py` says how they work together.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from remuda.policies.networks.activations import FAST, RELU, STRICT
from remuda.types import Array, Bools, Floats, Integers


@njit(**STRICT)
def gather(rows: Array, index: Integers, mean: Floats, scale: Floats, out: Floats) -> None:
    """Rows as inputs: scaled, or normalised within 10."""
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
def derive(errors: Floats, hidden: Floats, kind: int) -> None:
    """Errors by activations become errors by pre-activations, in place."""
    if kind == RELU:
        for i in range(errors.size):
            errors[i] = errors[i] if hidden[i] > 0.0 else np.float32(0.0)
    else:
        for i in range(errors.size):
            errors[i] *= np.float32(1.0) - hidden[i] * hidden[i]


@njit(**FAST)
def product(features: Floats, k: int, b: int, weight: Floats, o: int) -> np.float32:
    """The scalar product of a row and the weights of one output."""
    total = np.float32(0.0)
    for h in range(features.shape[2]):
        total += features[k, b, h] * weight[k, o, h]
    return total


@njit(**STRICT)
def output(features: Floats, k: int, b: int, weight: Floats, bias: Floats, out: Floats) -> None:
    """One row through a head."""
    for o in range(out.size):
        out[o] = product(features, k, b, weight, o) + bias[k, 0, o]


@njit(**STRICT)
def softmax(
    logits: Floats,
    start: int,
    end: int,
    masks: Bools,
    k: int,
    row: int,
    pi: Floats,
    log_pi: Floats,
) -> np.float32:
    """Probabilities and their logarithms; what is forbidden has probability 0. The entropy."""
    masked = masks.shape[2] > 0
    top = np.float32(-np.inf)
    for j in range(start, end):
        if (not masked or masks[k, row, j]) and logits[j] > top:
            top = logits[j]
    total = np.float32(0.0)
    for j in range(start, end):
        if not masked or masks[k, row, j]:
            pi[j] = math.exp(logits[j] - top)
            total += pi[j]
    share, least = np.float32(1.0) / total, top + np.float32(math.log(total))
    entropy = np.float32(0.0)
    for j in range(start, end):
        if not masked or masks[k, row, j]:
            pi[j] *= share
            log_pi[j] = logits[j] - least
            entropy -= pi[j] * log_pi[j]
        else:
            pi[j] = 0.0
            log_pi[j] = -np.inf
    return entropy


@njit(**STRICT)
def evaluate(
    policy_features: Floats,
    value_features: Floats,
    policy_weight: Floats,
    policy_bias: Floats,
    value_weight: Floats,
    value_bias: Floats,
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
    num_logits = policy_weight.shape[1]
    logits = np.empty(num_logits, np.float32)
    pi = np.empty(num_logits, np.float32)
    log_pi = np.empty(num_logits, np.float32)
    value = np.empty(1, np.float32)
    for k in range(policy_features.shape[0]):
        who = members[k]
        for b in range(counts[k]):
            row = index[k, b]
            output(policy_features, k, b, policy_weight, policy_bias, logits)
            output(value_features, k, b, value_weight, value_bias, value)
            values[who, row] = value[0]
            start, chance = 0, np.float32(0.0)
            for c in range(sizes.size):
                end = start + sizes[c]
                softmax(logits, start, end, masks, who, row, pi, log_pi)
                chance += log_pi[start + actions[who, row, c]]
                start = end
            log_probs[who, row] = chance


@njit(**STRICT)
def add_products(features: Floats, by_outputs: Floats, products: Floats) -> None:
    """Add up outer products: errors of outputs [K, B, O], features [K, B, H], to [K, O, H]."""
    for k in range(features.shape[0]):
        for b in range(features.shape[1]):
            for o in range(by_outputs.shape[2]):
                error = by_outputs[k, b, o]
                for h in range(features.shape[2]):
                    products[k, o, h] += error * features[k, b, h]


@njit(**STRICT)
def standardise(
    advantages: Floats, members: Integers, index: Integers, counts: Integers, out: Floats
) -> None:
    """What to take from the advantages of each policy, and then multiply them by: out [G, 2].

    So they have mean 0 and standard deviation 1 over the rows that count; where there is no
    deviation to divide by they become 0.
    """
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


@njit(**STRICT)
def differentiate(
    policy_features: Floats,
    value_features: Floats,
    policy_weight: Floats,
    policy_bias: Floats,
    value_weight: Floats,
    value_bias: Floats,
    members: Integers,
    index: Integers,
    counts: Integers,
    actions: Integers,
    masks: Bools,
    sizes: Integers,
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
    by_outputs: Floats,
    means: Array,
) -> None:
    """From the last hidden layers to the loss, and back to the outputs of the heads.

    `members` and `index` say which row of actions, masks, log_prox, weights, advantages, values and
    targets each is; of each policy the first `counts` count, each by its share. `standard` [G, 2]:
    what is taken from its advantages, and what they are multiplied by. `by_outputs`
    [G, B, num_logits + 1] is written: the errors of the logits, then of the value; 0 where a row
    does not count. `means` are added to: see `Means`.
    """
    num_logits = policy_weight.shape[1]
    logits = np.empty(num_logits, np.float32)
    pi = np.empty(num_logits, np.float32)
    log_pi = np.empty(num_logits, np.float32)
    value = np.empty(1, np.float32)
    entropies = np.empty(sizes.size, np.float32)
    one, zero = np.float32(1.0), np.float32(0.0)
    for k in range(policy_features.shape[0]):
        bound, limit, who, part = clip[k, 0], value_clip[k, 0], members[k], np.float32(shares[k])
        # A view of all rows of a policy pays: to look up two numbers for each row is slower.
        own_actions, own_log_prox, own_weights = actions[who], log_prox[who], weights[who]
        own_values, own_targets, own_advantages = values_before[who], targets[who], advantages[who]
        mean, factor = standard[k, 0], standard[k, 1]
        for b in range(counts[k], by_outputs.shape[1]):
            for j in range(num_logits + 1):
                by_outputs[k, b, j] = zero
        for b in range(counts[k]):
            row = index[k, b]
            output(policy_features, k, b, policy_weight, policy_bias, logits)
            output(value_features, k, b, value_weight, value_bias, value)
            start, chance, entropy = 0, zero, zero
            for c in range(sizes.size):
                end = start + sizes[c]
                entropies[c] = softmax(logits, start, end, masks, who, row, pi, log_pi)
                chance += log_pi[start + own_actions[row, c]]
                entropy += entropies[c]
                start = end
            log_ratio = chance - own_log_prox[row]
            ratio = np.float32(math.exp(log_ratio))
            bounded = min(max(ratio, one - bound), one + bound)
            advantage = (own_advantages[row] - mean) * factor
            gain = ratio * advantage
            least = min(gain, bounded * advantage)
            by_chance = -own_weights[row] * gain if gain <= least else zero
            start = 0
            for c in range(sizes.size):
                end = start + sizes[c]
                for j in range(start, end):
                    slope = -by_chance * pi[j]
                    if pi[j] > zero:
                        slope += entropy_cost[k, 0] * pi[j] * (log_pi[j] + entropies[c])
                    by_outputs[k, b, j] = part * slope
                by_outputs[k, b, start + own_actions[row, c]] += part * by_chance
                start = end
            error = value[0] - own_targets[row]
            moved = value[0] - own_values[row]
            held = own_values[row] + min(max(moved, -limit), limit) - own_targets[row]
            loss = np.float32(0.5) * error * error
            slope = part * value_cost[k, 0] * error
            if abs(held) > abs(error):
                loss = np.float32(0.5) * held * held
                slope = zero if abs(moved) > limit else slope
            by_outputs[k, b, num_logits] = slope
            gained = own_weights[row] * least
            means[0, k] += part * (value_cost[k, 0] * loss - gained - entropy_cost[k, 0] * entropy)
            means[1, k] -= part * gained
            means[2, k] += part * loss
            means[3, k] += part * entropy
            means[4, k] += part * (ratio - one - log_ratio)
            means[5, k] += part if abs(ratio - one) > bound else zero
