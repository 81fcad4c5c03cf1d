"""Double DQN for K policies, and the base class of value-based algorithms."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from remuda.policies.algorithms.kernels.dqn import FusedQ, StepMetrics
from remuda.policies.algorithms.transition_algorithm import (
    Loss,
    Part,
    TransitionAlgorithm,
    Transitions,
    TransitionSequences,
)
from remuda.policies.joint_actions import choices_of
from remuda.policies.losses import among_allowed, q_learning_loss
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.encoders import encoder_for
from remuda.policies.networks.q_network import MLP, QNetwork
from remuda.policies.stack import ParameterStack

if TYPE_CHECKING:
    from remuda.policies.spec import PolicySpec


# methods that the kernels implement, too; a subclass that overrides one uses no kernels
IN_KERNELS = ("loss", "_acting", "_at_tm1", "_at_t", "_draw_quantiles", "_taken")


class DQN(TransitionAlgorithm):
    """Q-learning (Mnih et al. 2015); with `double`, separate networks select and evaluate actions.

    A recurrent network learns from whole segments, starting at the actor's stored state, as in R2D2
    (Kapturowski et al. 2019). Targets are n steps later in the segment. Values are not rescaled.
    """

    masks, recurrent, branching = True, True, True
    network: QNetwork

    @classmethod
    def network_for(cls, spec: PolicySpec) -> QNetwork:
        return MLP(
            spec.num_inputs,
            spec.actions.num_outputs,
            spec.config.network,
            encoder_for(spec),
            spec.scale,
            choices_of(spec.actions),
        )

    def loss(self, batch: Transitions | TransitionSequences, part: Part) -> Loss:
        network = self.network
        with torch.no_grad():
            q_t = network.values_of(*self._at_t(batch, self._acting(part, part.target)))
            select = q_t
            if self.config.q_learning.double:
                select = network.values_of(*self._at_t(batch, self._acting(part, part.online)))
            best = network.best_of(among_allowed(select, batch.allowed_t))
            target = batch.r_t + batch.discount_t * network.taken(q_t, best)
        q_tm1 = network.values_of(*self._at_tm1(batch, self._acting(part, part.online)))
        taken = network.taken(q_tm1, batch.a_tm1)
        errors = target - taken.detach() if batch.weights.numel() else None
        return Loss(q_learning_loss(taken, target, self.config.q_learning.huber), taken, errors)

    def _differentiate(
        self, batch: Transitions | TransitionSequences, part: Part
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Use kernels if they support network and loss."""
        if isinstance(batch, TransitionSequences) or not self.is_fused:
            return super()._differentiate(batch, part)
        metrics = self._fused_step(batch, part)
        return (
            metrics.loss,
            metrics.value,
            metrics.errors if batch.weights.numel() else metrics.losses,
        )

    @property
    def is_fused(self) -> bool:
        return self._is_as_in(DQN) and FusedQ.suits(self.network, self.device)

    def _is_as_in(self, known: type[DQN]) -> bool:
        names = (n for n in IN_KERNELS if hasattr(known, n))
        return all(getattr(type(self), n) is getattr(known, n) for n in names)

    def _fused_step(self, batch: Transitions, part: Part) -> StepMetrics:
        return self._fused_q.step(part.online, part.target, batch)

    @cached_property
    def _fused_q(self) -> FusedQ:
        return FusedQ(self.network, self.config.q_learning)

    def _acting(self, part: Part, stack: ParameterStack) -> Weights:
        return self.network.acting(stack.parameters, self._noise(part))

    def _at_tm1(
        self, batch: Transitions | TransitionSequences, weights: Weights
    ) -> tuple[Weights, Tensor]:
        """Return the weights and the features [G, B, F] of every s_tm1."""
        if isinstance(batch, TransitionSequences):
            return weights, batch.at_tm1(batch.features(self.network, weights))
        return weights, self.network.features(weights, batch.s_tm1)

    def _at_t(
        self, batch: Transitions | TransitionSequences, weights: Weights
    ) -> tuple[Weights, Tensor]:
        """Return the weights and the features [G, B, F] of every s_t."""
        if isinstance(batch, TransitionSequences):
            return weights, batch.at_t(batch.features(self.network, weights))
        return weights, self.network.features(weights, batch.s_t)
