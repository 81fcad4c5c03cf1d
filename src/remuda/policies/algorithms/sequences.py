"""Sequences of steps with initial states, for recurrent Q-learning."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.q_network import QNetwork

# weight of the greatest error in a sequence's priority, against the mean (Kapturowski et al. 2019,
# section 2.3)
GREATEST = 0.9


@dataclass(frozen=True)
class TransitionSequences:
    """G sequences of T steps for each of K policies, on the learner's device.

    Data of steps are as in `Transitions`: B = G * T rows, the sequences one after another. Rows
    beyond the end of a sequence, and those of its burn-in, are not `valid`.
    """

    inputs: Tensor  # [K, G, T + 1, num_inputs] observations, with the final one
    states: Tensor  # [K, G, memory] state before the first step
    burn_in: Tensor | None  # [K, G] steps that only bring the state up to date; None: none
    after: Tensor  # [K, G, T] input index of s_t
    a_tm1: Tensor  # [K, B] int64, or [K, B, C], as in `Transitions`
    r_t: Tensor  # [K, B] scaled
    discount_t: Tensor  # [K, B]
    allowed_t: Tensor  # [K, B, A] bool, actions that s_t allows; size 0: any
    valid: Tensor  # [K, B] 1 where a step is learned from, else 0
    weights: Tensor  # [K, B] 0 where not valid, and 1 on average
    longest: int  # steps of the longest possible sequence; T is the longest in this batch

    def features(self, network: QNetwork, weights: Weights) -> Tensor:
        """Return a network's features of all inputs: [K, G, T + 1, F]."""
        found = network.unroll_features(
            weights, self.inputs.flatten(1, 2), self.states, self.burn_in
        )
        return found.view(*self.inputs.shape[:3], -1)

    def at_tm1(self, features: Tensor) -> Tensor:
        """Select features [K, G, T + 1, F] of each s_tm1: [K, B, F]."""
        return features[:, :, :-1].flatten(1, 2)

    def at_t(self, features: Tensor) -> Tensor:
        """Select features [K, G, T + 1, F] of each s_t: [K, B, F]."""
        index = self.after.unsqueeze(-1).expand(*self.after.shape, features.shape[-1])
        return features.gather(2, index).flatten(1, 2)

    def priorities(self, errors: Tensor) -> Tensor:
        """Return the priorities of sequences, [K, G], from the errors [K, B] of their steps."""
        valid = self.valid.view(self.after.shape)
        sizes = errors.abs().view(self.after.shape) * valid
        mean = sizes.sum(-1) / valid.sum(-1).clamp(min=1.0)
        return GREATEST * sizes.amax(-1) + (1.0 - GREATEST) * mean
