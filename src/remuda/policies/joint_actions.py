"""MultiDiscrete actions for algorithms that learn action values.

An action consists of several choices, each among some options. Each combination of choices has a
value; combinations are numbered so that the last choice varies fastest. If there are more than
`MOST_COMBINATIONS`, each option has a value instead, and an action's value is the mean over its
choices. The ring buffer and the environment always get the separate choices.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from remuda.errors import ContractError
from remuda.policies.actions import Actions, DiscreteActions, Rngs
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers

MOST_COMBINATIONS = 1024  # maximum combinations with one network output each


class JointActions(Actions):
    """Several choices, with a network output for each combination."""

    meaning = "one number for each combination of choices; the last choice varies fastest"

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes, self.size, self.dtype = sizes, len(sizes), np.int64
        self.num_logits, self.mask_size = math.prod(sizes), sum(sizes)
        self._alone = DiscreteActions((self.num_logits,))

    def __repr__(self) -> str:
        return f"JointActions({self.sizes})"

    def choose_for_all(
        self, outputs: Floats, masks: Bools, rngs: Rngs, actions: Array, log_probs: Floats
    ) -> None:
        numbers: Integers = np.zeros((*outputs.shape[:2], 1), np.int64)
        allowed = self._allowed(torch.from_numpy(masks)).numpy() if masks.shape[2] else masks
        self._alone.choose_for_all(outputs, allowed, rngs, numbers, log_probs)
        actions[...] = np.stack(np.unravel_index(numbers[..., 0], self.sizes), axis=-1)

    def greedy(self, outputs: Tensor, masks: Tensor | None) -> Tensor:
        """Return the first allowed combination with the largest value; 0 if none is allowed."""
        if masks is not None:
            outputs = outputs.masked_fill(~self._allowed(masks), -math.inf)
        rest, digits = outputs.argmax(-1), []
        for size in reversed(self.sizes):
            digits.append(rest % size)
            rest = rest // size
        return torch.stack(digits[::-1], -1)

    def log_probs_and_entropy(
        self, outputs: Tensor, actions: Tensor, masks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        number = torch.zeros_like(actions[..., :1])
        for i, size in enumerate(self.sizes):
            number = number * size + actions[..., i : i + 1]
        allowed = None if masks is None else self._allowed(masks)
        return self._alone.log_probs_and_entropy(outputs, number, allowed)

    def divergence(self, outputs: Tensor, others: Tensor, masks: Tensor | None) -> Tensor:
        allowed = None if masks is None else self._allowed(masks)
        return self._alone.divergence(outputs, others, allowed)

    def _allowed(self, masks: Tensor) -> Tensor:
        """Return which combinations are allowed, [..., num_logits], from masks [..., mask_size]."""
        allowed = torch.ones_like(masks[..., :1])
        for part in torch.split(masks, list(self.sizes), -1):
            allowed = (allowed.unsqueeze(-1) & part.unsqueeze(-2)).flatten(-2)
        return allowed


class BranchingActions(DiscreteActions):
    """Several choices, with a network output for each option of each choice.

    An action's value is the mean of its choices' outputs (Tavakoli et al. 2018, "Action branching
    architectures"; Seyde et al. 2023, "Solving continuous control via Q-learning").
    """

    meaning = "values of all options, choice by choice"

    def __repr__(self) -> str:
        return f"BranchingActions({self.sizes})"


def valued(actions: Actions, agent: str, algorithm: str, branches: bool) -> Actions:
    """Return the action type of a value-based algorithm; raise ContractError if unsupported."""
    if not isinstance(actions, DiscreteActions):
        raise ContractError(
            f"{agent} has continuous actions; {algorithm} learns a value for each action and "
            "supports only Discrete and MultiDiscrete: use --policy.algorithm ppo"
        )
    if actions.size == 1:
        return actions
    combinations = math.prod(actions.sizes)
    if combinations <= MOST_COMBINATIONS:
        return JointActions(actions.sizes)
    if branches:
        return BranchingActions(actions.sizes)
    raise ContractError(
        f"{agent} makes {actions.size} choices at once, with {combinations:,} combinations; "
        f"{algorithm} learns a value for each and supports at most {MOST_COMBINATIONS:,}: use "
        "--policy.algorithm dqn, iqn or ppo"
    )


def choices_of(actions: Actions) -> tuple[int, ...]:
    """Return the sizes of the choices of branching actions; empty for other actions."""
    return actions.sizes if isinstance(actions, BranchingActions) else ()


@njit(cache=True)
def take_best_joint(outputs: Floats, masks: Bools, sizes: Integers, actions: Integers) -> None:
    """Write the first allowed combination with the largest value; zeros if none is allowed."""
    masked = masks.shape[1] > 0
    for n in range(outputs.shape[0]):
        best = -1
        for j in range(outputs.shape[1]):
            if best >= 0 and not outputs[n, j] > outputs[n, best]:
                continue
            allowed = True
            if masked:
                rest, end = j, masks.shape[1]
                for i in range(sizes.size - 1, -1, -1):
                    end -= sizes[i]
                    allowed &= masks[n, end + rest % sizes[i]]
                    rest //= sizes[i]
            if allowed:
                best = j
        rest = max(best, 0)
        for i in range(sizes.size - 1, -1, -1):
            actions[n, i] = rest % sizes[i]
            rest //= sizes[i]


@njit(cache=True)
def take_best_choices(outputs: Floats, masks: Bools, sizes: Integers, actions: Integers) -> None:
    """Write each choice's first allowed option with the largest value; 0 if none is allowed."""
    masked = masks.shape[1] > 0
    for n in range(outputs.shape[0]):
        begin = 0
        for i in range(sizes.size):
            best = -1
            for j in range(begin, begin + sizes[i]):
                if masked and not masks[n, j]:
                    continue
                if best < 0 or outputs[n, j] > outputs[n, best]:
                    best = j
            actions[n, i] = max(best - begin, 0)
            begin += sizes[i]


@njit(cache=True)
def explore_choices(
    actions: Integers, masks: Bools, sizes: Integers, uniforms: np.ndarray, epsilon: float
) -> None:
    """Replace each action, with probability `epsilon`, by allowed choices drawn independently.

    One uniform number cannot distinguish all combinations, so its bits seed a generator
    (SplitMix64) that draws each choice.
    """
    for n in range(actions.shape[0]):
        if uniforms[n] >= epsilon:
            continue
        state = np.uint64(uniforms[n] / epsilon * 2.0**53)
        begin = 0
        for i in range(sizes.size):
            count = _count(masks, n, begin, sizes[i])
            state += np.uint64(0x9E3779B97F4A7C15)
            bits = state
            bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            bits ^= bits >> np.uint64(31)
            if count:  # else the stream does not act and its choice is ignored
                number = min(int(np.float64(bits >> np.uint64(11)) * 2.0**-53 * count), count - 1)
                actions[n, i] = _allowed(masks, n, begin, sizes[i], number)
            begin += sizes[i]


@njit(cache=True)
def explore_allowed(
    actions: Integers, masks: Bools, sizes: Integers, uniforms: np.ndarray, epsilon: float
) -> None:
    """Replace each action [N, size], with probability `epsilon`, by a random allowed action.

    A uniform number below epsilon is uniform on [0, epsilon), so it also selects the new action.
    """
    for n in range(actions.shape[0]):
        if uniforms[n] >= epsilon:
            continue
        total, begin = 1, 0
        for i in range(sizes.size):
            total *= _count(masks, n, begin, sizes[i])
            begin += sizes[i]
        if total == 0:  # the stream does not act and its choice is ignored
            continue
        rest = min(int(uniforms[n] / epsilon * total), total - 1)
        for i in range(sizes.size - 1, -1, -1):
            begin -= sizes[i]
            count = _count(masks, n, begin, sizes[i])
            actions[n, i] = _allowed(masks, n, begin, sizes[i], rest % count)
            rest //= count


@njit(cache=True)
def _count(masks: Bools, n: int, begin: int, size: int) -> int:
    if masks.shape[1] == 0:
        return size
    count = 0
    for j in range(begin, begin + size):
        count += masks[n, j]
    return count


@njit(cache=True)
def _allowed(masks: Bools, n: int, begin: int, size: int, number: int) -> int:
    """Return the option with index `number` among the allowed options."""
    if masks.shape[1] == 0:
        return number
    for j in range(size):
        if masks[n, begin + j]:
            if number == 0:
                return j
            number -= 1
    return 0
