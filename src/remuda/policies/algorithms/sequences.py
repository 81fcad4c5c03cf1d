"""What Q-learners with a state learn from: sequences of steps, each with its state before them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.q_network import QNetwork

GREATEST = 0.9
"""The share of its greatest error in the priority of a sequence; the rest is that of the mean
(Kapturowski et al. 2019, section 2.3)."""


@dataclass(frozen=True)
class TransitionSequences:
    """G sequences of T steps for each of K policies, on the learner's device.

    What a step is told of has a row for each, as in `Transitions`: B = G * T, the sequences one
    after another. Rows beyond the end of a sequence, and those of its burn-in, are not `valid`.
    """

    inputs: Tensor
    """[K, G, T + 1, num_inputs]: what was seen, and after the last step."""
    states: Tensor
    """[K, G, memory]: before the first."""
    burn_in: Tensor | None
    """[K, G]: steps that only bring the state up to date; None: none of them do."""
    after: Tensor
    """[K, G, T]: which of the inputs is s_t."""
    a_tm1: Tensor
    """[K, B] int64, or [K, B, C]: as in `Transitions`."""
    r_t: Tensor
    """[K, B], already scaled."""
    discount_t: Tensor
    """[K, B]."""
    allowed_t: Tensor
    """[K, B, A] bool: which actions s_t allows; of size 0: any."""
    valid: Tensor
    """[K, B]: 1 where a step is learned from, else 0."""
    weights: Tensor
    """[K, B]: what each counts: 0 where it is not valid, and 1 on average."""
    longest: int
    """Steps of the longest sequence that could be; T is that of the longest in this batch."""

    def features(self, network: QNetwork, weights: Weights) -> Tensor:
        """What a network makes of all inputs, one after another: [K, G, T + 1, F]."""
        found = network.features_along(
            weights, self.inputs.flatten(1, 2), self.states, self.burn_in
        )
        return found.view(*self.inputs.shape[:3], -1)

    def at_tm1(self, features: Tensor) -> Tensor:
        """Of features [K, G, T + 1, F] those of each s_tm1: [K, B, F]."""
        return features[:, :, :-1].flatten(1, 2)

    def at_t(self, features: Tensor) -> Tensor:
        """Of features [K, G, T + 1, F] those of each s_t: [K, B, F]."""
        index = self.after.unsqueeze(-1).expand(*self.after.shape, features.shape[-1])
        return features.gather(2, index).flatten(1, 2)

    def priorities(self, errors: Tensor) -> Tensor:
        """How far off whole sequences were, [K, G], by the errors [K, B] of their steps."""
        valid = self.valid.view(self.after.shape)
        sizes = errors.abs().view(self.after.shape) * valid
        mean = sizes.sum(-1) / valid.sum(-1).clamp(min=1.0)
        return GREATEST * sizes.amax(-1) + (1.0 - GREATEST) * mean
