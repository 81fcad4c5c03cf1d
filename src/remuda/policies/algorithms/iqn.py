"""Implicit quantile networks (Dabney et al. 2018) with double Q-learning, for K policies."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from remuda.config.algorithm_registry import Section
from remuda.policies.actions import choices_of
from remuda.policies.algorithms.dqn import DQN
from remuda.policies.algorithms.kernels.iqn import FusedIQN
from remuda.policies.algorithms.transition_algorithm import (
    Loss,
    Part,
    Transitions,
    TransitionSequences,
)
from remuda.policies.losses import among_allowed, quantile_loss
from remuda.policies.networks import iqn
from remuda.policies.networks.encoders import encoder_for
from remuda.policies.spec import PolicySpec


class IQN(DQN):
    """Q-learning of the quantiles of the return; the policy acts on their mean."""

    section: ClassVar[Section] = "iqn"
    recurrent, branching, kernels = True, True, FusedIQN
    network: iqn.IQNetwork

    @classmethod
    def network_for(cls, spec: PolicySpec) -> iqn.IQNetwork:
        return iqn.IQNetwork(
            spec.num_inputs,
            spec.actions.num_outputs,
            spec.config.network,
            encoder_for(spec),
            spec.scale,
            spec.config.iqn,
            choices_of(spec.actions),
        )

    def loss(self, batch: Transitions | TransitionSequences, part: Part) -> Loss:
        """Return each sample's loss [G, B], and its action's values by quantile."""
        network = self.network
        with torch.no_grad():
            chooser = part.online if self.config.iqn.double else part.target
            select = self._values_t(batch, part, chooser)
            best = network.best_of(among_allowed(select, batch.allowed_t))
            weights = network.plain(part.target.parameters, self._noise(part))
            features = batch.features_t(network, weights)
            quantiles = self._draw_quantiles(batch, part)
            z_t = network.quantile_values_of(weights, features, quantiles)
            targets = batch.r_t.unsqueeze(-1)
            targets = targets + batch.discount_t.unsqueeze(-1) * network.taken(z_t, best)
        quantiles = self._draw_quantiles(batch, part)
        weights = network.plain(part.online.parameters, self._noise(part))
        features = batch.features_tm1(network, weights)
        z_tm1 = network.quantile_values_of(weights, features, quantiles)
        taken = network.taken(z_tm1, batch.a_tm1)
        losses = quantile_loss(taken, quantiles, targets, self.config.iqn.huber)
        if not batch.weights.numel():
            return Loss(losses, taken)
        # The mean absolute error over all pairs of quantiles.
        errors = (targets.unsqueeze(-2) - taken.detach().unsqueeze(-1)).abs().mean((-2, -1))
        return Loss(losses, taken, errors)

    def _fused_step(self, batch: Transitions, part: Part) -> tuple[Tensor, Tensor, Tensor]:
        """Take a step by kernels, with quantiles drawn in the same order as in `loss`."""
        shape = 2, batch.a_tm1.shape[1], self.config.iqn.quantiles
        quantiles = torch.empty(part.end - part.first, *shape, dtype=torch.float32)
        for values, rng in zip(quantiles, self._rngs[part.first : part.end], strict=True):
            torch.rand(shape, generator=rng, out=values)
        return self._fused.step(part.online, part.target, batch, quantiles.numpy())

    def _draw_quantiles(self, batch: Transitions | TransitionSequences, part: Part) -> Tensor:
        """Draw quantiles [G, B, N], for each policy from its own generator.

        Each sequence draws for the longest possible length, so that a policy's quantiles do not
        depend on its neighbours.
        """
        count = self.config.iqn.quantiles
        shape: tuple[int, ...] = (batch.a_tm1.shape[1], count)
        if isinstance(batch, TransitionSequences):
            shape = (batch.after.shape[1], batch.longest, count)
        drawn = torch.stack(
            [
                torch.rand(shape, generator=rng, dtype=torch.float32)
                for rng in self._rngs[part.first : part.end]
            ]
        )
        if isinstance(batch, TransitionSequences):
            drawn = drawn[:, :, : batch.after.shape[2]].flatten(1, 2)
        return drawn.to(self.device)
