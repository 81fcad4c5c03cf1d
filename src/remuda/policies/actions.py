"""Action types, which turn network outputs into actions and log-probabilities.

Acting uses compiled loops over streams (seats of environment copies), and learning uses torch. Both
use the same distribution.

For algorithms that learn action values, each combination of a MultiDiscrete action's choices has a
value; combinations are numbered so that the last choice varies fastest. If there are more than
`MOST_COMBINATIONS`, each option has a value instead, and an action's value is the mean over its
choices. The ring buffer and the environment always get the separate choices.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from remuda.errors import ContractError
from remuda.policies.losses import LEAST_LOG, entropy, log_probabilities
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers

Rng = np.random.Generator
Rngs = Sequence[Rng] | None  # by policy; None: take the most likely actions
MOST_COMBINATIONS = 1024  # maximum combinations of choices with one network output each


class Actions(ABC):
    """The actions of a policy, and the distributions that they are sampled from."""

    size: int  # how many numbers an action has
    dtype: npt.DTypeLike
    num_logits: int  # outputs of the policy's head
    num_scales: int = 0  # log standard deviations, which do not depend on the observation
    mask_size: int = 0  # entries of an action mask; 0: these actions cannot be masked
    meaning: str  # describes the network's outputs, for exported files

    @property
    def num_outputs(self) -> int:
        return self.num_logits + self.num_scales

    @abstractmethod
    def choose_for_all(
        self,
        outputs: Floats,  # [K, N, num_outputs]
        masks: Bools,  # [K, N, mask_size], or [K, N, 0] to allow all
        rngs: Rngs,
        actions: Array,  # [K, N, size], written
        log_probs: Floats,  # [K, N], written
    ) -> None:
        """Choose actions for K policies of N streams each."""

    @abstractmethod
    def greedy(self, outputs: Tensor, masks: Tensor | None) -> Tensor:
        """Return greedy actions [N, size] within bounds, using only exportable torch operations."""

    def log_probs_and_entropy(
        self, outputs: Tensor, actions: Tensor, masks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies in nats, each [K, B], of outputs [K, B, ...]."""
        raise NotImplementedError(f"{type(self).__name__} has no log-probabilities")

    def divergence(self, outputs: Tensor, others: Tensor, masks: Tensor | None) -> Tensor:
        """Return KL(pi, other) in nats, [K, B], of two distributions [K, B, num_outputs]."""
        raise NotImplementedError(f"{type(self).__name__} has no divergence")

    def within_bounds(self, actions: Array) -> Array:
        """Return the actions [N, size] scaled to the environment's bounds."""
        return actions


class DiscreteActions(Actions):
    """A Discrete action, or a MultiDiscrete action with independently sampled choices."""

    meaning = "logits of all options, choice by choice"

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes, self.size, self.dtype = sizes, len(sizes), np.int64
        self.num_logits = self.mask_size = sum(sizes)
        self._sizes = np.array(sizes, np.int64)
        self._uniforms = np.zeros((0, 0, 0))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sizes})"

    def choose_for_all(
        self, outputs: Floats, masks: Bools, rngs: Rngs, actions: Array, log_probs: Floats
    ) -> None:
        """Sample by inverting the cumulative distribution, or take the most likely action."""
        if self._uniforms.shape != actions.shape:
            self._uniforms = np.zeros(actions.shape)
        for k, rng in enumerate(rngs or ()):
            rng.random(out=self._uniforms[k])
        greedy = rngs is None
        _choose_discrete(outputs, masks, self._uniforms, self._sizes, greedy, actions, log_probs)

    def greedy(self, outputs: Tensor, masks: Tensor | None) -> Tensor:
        """Return the first allowed argmax of each choice; 0 if nothing is allowed."""
        if masks is not None:
            outputs = outputs.masked_fill(~masks, -math.inf)
        parts = torch.split(outputs, list(self.sizes), -1)
        return torch.stack([part.argmax(-1) for part in parts], -1)

    def log_probs_and_entropy(
        self, outputs: Tensor, actions: Tensor, masks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        log_probs = entropies = torch.zeros((), device=outputs.device)
        for i, log_pi in enumerate(self._log_probabilities(outputs, masks)):
            log_probs = log_probs + log_pi.gather(-1, actions[..., i : i + 1]).squeeze(-1)
            entropies = entropies + entropy(log_pi)
        return log_probs, entropies

    def _log_probabilities(self, outputs: Tensor, masks: Tensor | None) -> list[Tensor]:
        sizes = list(self.sizes)
        parts = torch.split(outputs, sizes, -1)
        if masks is None:
            return [log_probabilities(part) for part in parts]
        return list(map(log_probabilities, parts, torch.split(masks, sizes, -1)))

    def divergence(self, outputs: Tensor, others: Tensor, masks: Tensor | None) -> Tensor:
        """Sum over the choices; masked options contribute nothing."""
        total = torch.zeros((), device=outputs.device)
        both = (self._log_probabilities(each, masks) for each in (outputs, others))
        for log_pi, log_other in zip(*both, strict=True):
            difference = log_pi.clamp(min=LEAST_LOG) - log_other.clamp(min=LEAST_LOG)
            total = total + (log_pi.exp() * difference).sum(-1)
        return total


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


def valued(actions: Actions, agent: str, algorithm: str, branches: bool) -> Actions:
    """Return the action type of a value-based algorithm; raise ContractError if unsupported."""
    if not isinstance(actions, DiscreteActions):
        raise ContractError(
            f"{agent} has continuous actions; {algorithm} learns a value for each action and "
            "supports only Discrete and MultiDiscrete: use --policy.algorithm ppo or sac"
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
def _choose_discrete(
    outputs: Floats,
    masks: Bools,
    uniforms: np.ndarray,
    sizes: Integers,
    greedy: bool,
    actions: Integers,
    log_probs: Floats,
) -> None:
    masked = masks.shape[2] > 0
    parts = np.empty(outputs.shape[2], outputs.dtype)  # probabilities, not normalised
    streams = outputs.shape[1]
    for row in range(outputs.shape[0] * streams):
        k, stream = row // streams, row % streams
        output, mask = outputs[k, stream], masks[k, stream]
        log_prob = 0.0
        start = 0
        for i in range(sizes.size):
            end = start + sizes[i]
            best = -1
            for j in range(start, end):
                allowed = not masked or mask[j]
                if allowed and (best < 0 or output[j] > output[best]):
                    best = j
            if best < 0:  # nothing is allowed: the stream does not act and its choice is ignored
                actions[k, stream, i] = 0
                start = end
                continue
            top = output[best]
            total = 0.0
            for j in range(start, end):
                if not masked or mask[j]:
                    parts[j] = math.exp(output[j] - top)
                    total += parts[j]
            chosen = best
            if not greedy:
                remaining = uniforms[k, stream, i] * total
                for j in range(start, end):
                    if not masked or mask[j]:
                        chosen = j
                        remaining -= parts[j]
                        if remaining < 0.0:
                            break
            actions[k, stream, i] = chosen - start
            log_prob += output[chosen] - top - math.log(total)
            start = end
        log_probs[k, stream] = log_prob
