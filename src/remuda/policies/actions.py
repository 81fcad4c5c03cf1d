"""Kinds of actions: how a network's outputs become a choice, and how likely that choice was.

Acting goes through compiled loops over streams (`choose`); learning through torch, for K policies
at once (`log_probs_and_entropy`). Both mean the same distribution.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from remuda.errors import ContractError
from remuda.kernels import njit
from remuda.policies.action_bounds import ActionBounds
from remuda.policies.losses import LEAST_LOG, entropy, log_probabilities
from remuda.types import Array, Bools, Floats, Integers

if TYPE_CHECKING:
    from gymnasium import Space

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Actions(ABC):
    """What a policy can do, and the distributions it chooses from."""

    size: int
    """Numbers in one action."""
    dtype: npt.DTypeLike
    num_logits: int
    """Outputs of the policy's head."""
    num_scales: int = 0
    """Further parameters that do not depend on what is seen."""
    meaning: str
    """What a network's outputs are, in words."""

    @property
    def num_outputs(self) -> int:
        """Numbers that describe one distribution."""
        return self.num_logits + self.num_scales

    @property
    @abstractmethod
    def mask_size(self) -> int:
        """Entries of a mask of allowed actions; 0: there can be none."""

    @abstractmethod
    def choose(
        self,
        outputs: Floats,
        masks: Bools,
        random: np.random.Generator | None,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """Choose an action for each stream.

        Args:
            outputs: [N, num_outputs] what the network made of each.
            masks: [N, mask_size] what each may do, or [N, 0]: anything.
            random: the policy's stream; None: choose the most likely.
            actions: [N, size] to be written.
            log_probs: [N] to be written: how likely that was.
        """

    def choose_for_all(
        self,
        outputs: Floats,
        masks: Bools,
        randoms: Sequence[np.random.Generator] | None,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """Choose for K policies of N streams each, as `choose` does for one after another.

        Args:
            outputs: [K, N, num_outputs].
            masks: [K, N, mask_size], or [K, N, 0].
            randoms: by policy; None: choose the most likely.
            actions: [K, N, size], to be written.
            log_probs: [K, N], to be written.
        """
        for k in range(len(outputs)):
            random = None if randoms is None else randoms[k]
            self.choose(outputs[k], masks[k], random, actions[k], log_probs[k])

    @abstractmethod
    def greedy(self, outputs: Tensor, masks: Tensor | None) -> Tensor:
        """Choose what `choose` does without random numbers, within bounds, in torch: [N, size].

        It is for graphs that leave this program, so it is made of operations of torch alone.

        Args:
            outputs: [N, num_outputs].
            masks: [N, mask_size] bool, or None: anything.
        """

    @abstractmethod
    def log_probs_and_entropy(
        self, outputs: Tensor, actions: Tensor, masks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies in nats, each [K, B].

        Args:
            outputs: [K, B, num_outputs].
            actions: [K, B, size].
            masks: [K, B, mask_size] bool, or None.
        """

    def divergence(self, outputs: Tensor, others: Tensor, masks: Tensor | None) -> Tensor:
        """KL(pi, other) in nats, [K, B], of the distributions that two outputs describe.

        Args:
            outputs: [K, B, num_outputs] of pi.
            others: likewise, of the other.
            masks: [K, B, mask_size] bool, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} has no divergence")

    def within_bounds(self, actions: Array) -> Array:
        """The actions [N, size] as the environment may take them."""
        return actions


class DiscreteActions(Actions):
    """One or several choices among numbered possibilities, each independent given what is seen."""

    meaning = "logits of all possibilities, choice after choice"

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes, self.size, self.dtype = sizes, len(sizes), np.int64
        self.num_logits = sum(sizes)
        self._sizes = np.array(sizes, np.int64)
        self._uniforms = np.zeros((0, 0, 0))

    def __repr__(self) -> str:
        return f"DiscreteActions({self.sizes})"

    @property
    def mask_size(self) -> int:
        """One entry for each possibility."""
        return self.num_logits

    def choose(
        self,
        outputs: Floats,
        masks: Bools,
        random: np.random.Generator | None,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """Sample by the inverse of the cumulative distribution, or take the most likely."""
        randoms = None if random is None else (random,)
        self.choose_for_all(outputs[None], masks[None], randoms, actions[None], log_probs[None])

    def choose_for_all(
        self,
        outputs: Floats,
        masks: Bools,
        randoms: Sequence[np.random.Generator] | None,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """In one call, with numbers from the stream of each."""
        if self._uniforms.shape != actions.shape:
            self._uniforms = np.zeros(actions.shape)
        for k, random in enumerate(randoms or ()):
            random.random(out=self._uniforms[k])
        greedy = randoms is None
        _choose_discrete(outputs, masks, self._uniforms, self._sizes, greedy, actions, log_probs)

    def greedy(self, outputs: Tensor, masks: Tensor | None) -> Tensor:
        """The first of the greatest of each choice, among those allowed; 0 where none is."""
        if masks is not None:
            outputs = outputs.masked_fill(~masks, -math.inf)
        parts = torch.split(outputs, list(self.sizes), -1)
        return torch.stack([part.argmax(-1) for part in parts], -1)

    def log_probs_and_entropy(
        self, outputs: Tensor, actions: Tensor, masks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Sums over the choices."""
        log_probs = entropies = torch.zeros((), device=outputs.device)
        start = 0
        for i, size in enumerate(self.sizes):
            part = slice(start, start + size)
            mask = None if masks is None else masks[..., part]
            log_pi = log_probabilities(outputs[..., part], mask)
            log_probs = log_probs + log_pi.gather(-1, actions[..., i : i + 1]).squeeze(-1)
            entropies = entropies + entropy(log_pi)
            start += size
        return log_probs, entropies

    def divergence(self, outputs: Tensor, others: Tensor, masks: Tensor | None) -> Tensor:
        """Summed over the choices; what is forbidden counts nothing."""
        total = torch.zeros((), device=outputs.device)
        start = 0
        for size in self.sizes:
            part = slice(start, start + size)
            mask = None if masks is None else masks[..., part]
            log_pi = log_probabilities(outputs[..., part], mask)
            log_other = log_probabilities(others[..., part], mask)
            apart = log_pi.clamp(min=LEAST_LOG) - log_other.clamp(min=LEAST_LOG)
            total = total + (log_pi.exp() * apart).sum(-1)
            start += size
        return total


class ContinuousActions(Actions):
    """Numbers from independent normal distributions; their scales do not depend on what is seen.

    Actions are normalised: between finite bounds, [-1, 1] is the whole range (`ActionBounds`). The
    ring holds what was drawn; the environment gets it scaled to its bounds, and clipped there.
    """

    meaning = "means, then logarithms of standard deviations"

    def __init__(self, low: Array, high: Array) -> None:
        self.bounds = ActionBounds(low, high)
        self.size = self.num_logits = self.num_scales = low.size
        self.dtype = np.float32

    def __repr__(self) -> str:
        low, high = self.bounds.low, self.bounds.high
        return f"ContinuousActions({low.tolist()}, {high.tolist()}, {low.dtype})"

    @property
    def unbounded(self) -> int:
        """How many numbers lack a finite bound on one side or on both."""
        return int(np.count_nonzero(~self.bounds.is_bounded))

    @property
    def mask_size(self) -> int:
        """No action is ever forbidden."""
        return 0

    def choose(
        self,
        outputs: Floats,
        masks: Bools,
        random: np.random.Generator | None,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """Draw, or take the means."""
        randoms = None if random is None else (random,)
        self.choose_for_all(outputs[None], masks[None], randoms, actions[None], log_probs[None])

    def choose_for_all(
        self,
        outputs: Floats,
        masks: Bools,  # noqa: ARG002
        randoms: Sequence[np.random.Generator] | None,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """In one call, with numbers from the stream of each."""
        normals = np.zeros(actions.shape)
        for k, random in enumerate(randoms or ()):
            random.standard_normal(out=normals[k])
        _choose_continuous(outputs, normals, actions, log_probs)

    def greedy(self, outputs: Tensor, masks: Tensor | None) -> Tensor:  # noqa: ARG002
        """The means, scaled to the bounds of the space."""
        return self.bounds.scale_tensor(outputs[..., : self.size])

    def log_probs_and_entropy(
        self,
        outputs: Tensor,
        actions: Tensor,
        masks: Tensor | None,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        """Sums over the numbers of an action."""
        means, log_scales = outputs.chunk(2, -1)
        z = (actions - means) * (-log_scales).exp()
        log_probs = (-0.5 * z.square() - log_scales - HALF_LOG_TWO_PI).sum(-1)
        return log_probs, (log_scales + 0.5 + HALF_LOG_TWO_PI).sum(-1)

    def divergence(self, outputs: Tensor, others: Tensor, masks: Tensor | None) -> Tensor:  # noqa: ARG002
        """Of normal distributions, summed over the numbers."""
        means, log_scales = outputs.chunk(2, -1)
        other_means, other_scales = others.chunk(2, -1)
        ratio = (2.0 * (log_scales - other_scales)).exp()
        apart = (means - other_means).square() * (-2.0 * other_scales).exp()
        return (other_scales - log_scales + 0.5 * (ratio + apart - 1.0)).sum(-1)

    def within_bounds(self, actions: Array) -> Array:
        """Scaled to the bounds of the space."""
        return self.bounds.scale(actions)


def actions_of(space: Space[object], agent: str) -> Actions:
    """The kind of actions that a space asks for.

    Raises:
        ContractError: no algorithm here can act in it.
    """
    from gymnasium.spaces import Box, Discrete, MultiDiscrete

    if isinstance(space, Discrete) and space.start == 0:
        return DiscreteActions((int(space.n),))
    if isinstance(space, MultiDiscrete) and not np.any(space.start):
        return DiscreteActions(tuple(int(n) for n in space.nvec.ravel()))
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
        return ContinuousActions(space.low, space.high)
    raise ContractError(
        f"{agent} acts in {space}; policies act in Discrete and MultiDiscrete from 0, in Box of "
        "floats, and through adapters in a Tuple or Dict that is all choices or all floats"
    )


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
    for k in range(outputs.shape[0]):
        _choose_of_policy(
            outputs[k], masks[k], uniforms[k], sizes, greedy, actions[k], log_probs[k]
        )


@njit(cache=True)
def _choose_of_policy(
    outputs: Floats,
    masks: Bools,
    uniforms: np.ndarray,
    sizes: Integers,
    greedy: bool,
    actions: Integers,
    log_probs: Floats,
) -> None:
    masked = masks.shape[1] > 0
    parts = np.empty_like(outputs[:1])[0]  # each action's part of the whole
    for stream in range(outputs.shape[0]):
        output, mask = outputs[stream], masks[stream]
        chance = 0.0
        start = 0
        for i in range(sizes.size):
            end = start + sizes[i]
            best = -1
            for j in range(start, end):
                allowed = not masked or mask[j]
                if allowed and (best < 0 or output[j] > output[best]):
                    best = j
            if best < 0:  # nothing is allowed: the stream does not act, and its choice is not read
                actions[stream, i] = 0
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
                left = uniforms[stream, i] * total
                for j in range(start, end):
                    if not masked or mask[j]:
                        chosen = j
                        left -= parts[j]
                        if left < 0.0:
                            break
            actions[stream, i] = chosen - start
            chance += output[chosen] - top - math.log(total)
            start = end
        log_probs[stream] = chance


@njit(cache=True)
def _choose_continuous(
    outputs: Floats, normals: np.ndarray, actions: Floats, log_probs: Floats
) -> None:
    size = actions.shape[2]
    for k in range(outputs.shape[0]):
        for stream in range(outputs.shape[1]):
            chance = 0.0
            for i in range(size):
                log_scale = outputs[k, stream, size + i]
                z = normals[k, stream, i]
                actions[k, stream, i] = outputs[k, stream, i] + math.exp(log_scale) * z
                chance += -0.5 * z * z - log_scale - HALF_LOG_TWO_PI
            log_probs[k, stream] = chance
