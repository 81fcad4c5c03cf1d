"""Several choices at once as one action, for algorithms that learn a value for each action.

Each combination of choices counts as an action. They are numbered as digits are: the last choice
changes fastest. What is written down and given to the game are always the choices themselves.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from remuda.errors import ContractError
from remuda.kernels import njit
from remuda.policies.actions import Actions, DiscreteActions
from remuda.types import Array, Bools, Floats, Integers

MOST_COMBINATIONS = 1024
"""The most actions that choices may be combined to: so many outputs has the network."""


class CombinedActions(Actions):
    """Several choices, each combination of which has an output of the network."""

    meaning = "a number for each combination of choices, of which the last changes fastest"

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes, self.size, self.dtype = sizes, len(sizes), np.int64
        self.num_logits = math.prod(sizes)
        self._alone = DiscreteActions((self.num_logits,))

    def __repr__(self) -> str:
        return f"CombinedActions({self.sizes})"

    @property
    def mask_size(self) -> int:
        """One entry for each possibility of each choice."""
        return sum(self.sizes)

    def choose(
        self,
        outputs: Floats,
        masks: Bools,
        random: np.random.Generator | None,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """Sample a combination, or take the most likely."""
        number: Integers = np.zeros((len(outputs), 1), np.int64)
        allowed = self._allowed(torch.from_numpy(masks)).numpy() if masks.shape[1] else masks
        self._alone.choose(outputs, allowed, random, number, log_probs)
        actions[...] = np.stack(np.unravel_index(number[:, 0], self.sizes), axis=-1)

    def greedy(self, outputs: Tensor, masks: Tensor | None) -> Tensor:
        """The first combination of the greatest value, among those allowed; 0 where none is."""
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
        """Of combinations."""
        number = torch.zeros_like(actions[..., :1])
        for i, size in enumerate(self.sizes):
            number = number * size + actions[..., i : i + 1]
        allowed = None if masks is None else self._allowed(masks)
        return self._alone.log_probs_and_entropy(outputs, number, allowed)

    def divergence(self, outputs: Tensor, others: Tensor, masks: Tensor | None) -> Tensor:
        """Of combinations; what is forbidden counts nothing."""
        allowed = None if masks is None else self._allowed(masks)
        return self._alone.divergence(outputs, others, allowed)

    def _allowed(self, masks: Tensor) -> Tensor:
        """Which combinations are allowed, [..., num_logits], by masks [..., mask_size]."""
        allowed = torch.ones_like(masks[..., :1])
        for part in torch.split(masks, list(self.sizes), -1):
            allowed = (allowed.unsqueeze(-1) & part.unsqueeze(-2)).flatten(-2)
        return allowed


def combined(actions: Actions, agent: str, algorithm: str) -> Actions:
    """The same actions for an algorithm that learns a value for each.

    Raises:
        ContractError: they cannot be counted, or are too many.
    """
    if not isinstance(actions, DiscreteActions):
        raise ContractError(
            f"{agent} acts by numbers from a range; {algorithm} learns a value for each action, "
            "which must be Discrete or MultiDiscrete: use --policy.algorithm ppo"
        )
    if actions.size == 1:
        return actions
    found = CombinedActions(actions.sizes)
    if found.num_logits > MOST_COMBINATIONS:
        raise ContractError(
            f"{agent} makes {actions.size} choices at once, of which there are "
            f"{found.num_logits:,} combinations; {algorithm} learns a value for each, of at most "
            f"{MOST_COMBINATIONS:,}: use --policy.algorithm ppo"
        )
    return found


@njit(cache=True)
def take_best_combined(outputs: Floats, masks: Bools, sizes: Integers, actions: Integers) -> None:
    """The first combination of the greatest value, among those all of whose choices are allowed.

    Args:
        outputs: [N, A] a value for each combination.
        masks: [N, mask_size] the possibilities of each choice after one another, or [N, 0].
        sizes: [size] possibilities of each choice.
        actions: [N, size] to be written; the first of everything where nothing is allowed.
    """
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
def explore_allowed(
    actions: Integers, masks: Bools, sizes: Integers, uniforms: np.ndarray, epsilon: float
) -> None:
    """Replace each action, with probability `epsilon`, by one drawn from those allowed, in place.

    Each combination of allowed choices has the same chance. One uniform number decides all: given
    that it is below epsilon, it is uniform below epsilon.

    Args:
        actions: [N, size].
        masks: [N, mask_size] the possibilities of each choice after one another, or [N, 0].
        sizes: [size] possibilities of each choice.
        uniforms: [N] from 0 to 1.
        epsilon: the exploration rate.
    """
    for n in range(actions.shape[0]):
        if uniforms[n] >= epsilon:
            continue
        total, begin = 1, 0
        for i in range(sizes.size):
            total *= _count(masks, n, begin, sizes[i])
            begin += sizes[i]
        if total == 0:  # the stream does not act, and its choice is not read
            continue
        rest = min(int(uniforms[n] / epsilon * total), total - 1)
        for i in range(sizes.size - 1, -1, -1):
            begin -= sizes[i]
            count = _count(masks, n, begin, sizes[i])
            actions[n, i] = _allowed(masks, n, begin, sizes[i], rest % count)
            rest //= count


@njit(cache=True)
def _count(masks: Bools, n: int, begin: int, size: int) -> int:
    """How many possibilities of a choice are allowed."""
    if masks.shape[1] == 0:
        return size
    count = 0
    for j in range(begin, begin + size):
        count += masks[n, j]
    return count


@njit(cache=True)
def _allowed(masks: Bools, n: int, begin: int, size: int, number: int) -> int:
    """The possibility of a choice that has this number among those allowed."""
    if masks.shape[1] == 0:
        return number
    for j in range(size):
        if masks[n, begin + j]:
            if number == 0:
                return j
            number -= 1
    return 0
