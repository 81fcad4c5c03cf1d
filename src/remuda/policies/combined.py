"""Several choices at once, for algorithms that learn values of actions.

Each combination of choices counts as an action. They are numbered as digits are: the last choice
changes fastest. Where there are too many combinations, each possibility of each choice has a value,
and an action's value is the mean of its choices' values. What is written down and given to the game
are always the choices themselves.
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
"""The most combinations that have an output of the network each."""


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


class BranchingActions(DiscreteActions):
    """Several choices, each possibility of which has an output of the network.

    The value of an action is the mean of the outputs of its choices, so the best action consists of
    the best possibility of each choice (Tavakoli et al. 2018, "Action branching architectures for
    deep reinforcement learning"; Seyde et al. 2023, "Solving continuous control via Q-learning").
    """

    meaning = "values of all possibilities, choice after choice"

    def __repr__(self) -> str:
        return f"BranchingActions({self.sizes})"


def valued(actions: Actions, agent: str, algorithm: str, branches: bool) -> Actions:
    """Return the same actions for an algorithm that learns their values.

    Args:
        actions: of the agent.
        agent: its name.
        algorithm: its name.
        branches: whether the algorithm can learn a value for each possibility of each choice.

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
    combinations = math.prod(actions.sizes)
    if combinations <= MOST_COMBINATIONS:
        return CombinedActions(actions.sizes)
    if branches:
        return BranchingActions(actions.sizes)
    raise ContractError(
        f"{agent} makes {actions.size} choices at once, of which there are {combinations:,} "
        f"combinations; {algorithm} learns a value for each, of at most {MOST_COMBINATIONS:,}: use "
        "--policy.algorithm dqn, iqn or ppo"
    )


def choices_of(actions: Actions) -> tuple[int, ...]:
    """Return the possibilities of each choice, where each choice is valued by itself."""
    return actions.sizes if isinstance(actions, BranchingActions) else ()


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
def take_best_choices(outputs: Floats, masks: Bools, sizes: Integers, actions: Integers) -> None:
    """The first possibility of the greatest value of each choice, among those allowed.

    Args:
        outputs: [N, sum(sizes)] a value for each possibility.
        masks: [N, sum(sizes)], or [N, 0].
        sizes: [size] possibilities of each choice.
        actions: [N, size] to be written; the first where nothing is allowed.
    """
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
    """Replace each action, with probability `epsilon`, by allowed choices, each drawn by itself.

    As `explore_allowed`, for more combinations than a uniform number can tell apart: given that it
    is below epsilon, its bits seed a generator (SplitMix64) that draws each choice.
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
            if count:  # else the stream does not act, and its choice is not read
                number = min(int(np.float64(bits >> np.uint64(11)) * 2.0**-53 * count), count - 1)
                actions[n, i] = _allowed(masks, n, begin, sizes[i], number)
            begin += sizes[i]


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
