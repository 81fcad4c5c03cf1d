"""Double DQN for K policies, and the base class of value-based algorithms."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from remuda.policies.actions import choices_of
from remuda.policies.algorithms.algorithm import has_flag
from remuda.policies.algorithms.kernels.dqn import FusedQ
from remuda.policies.algorithms.transition_algorithm import (
    ActorMetrics,
    Loss,
    Part,
    TransitionAlgorithm,
    Transitions,
    TransitionSequences,
)
from remuda.policies.losses import among_allowed, q_learning_loss
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.encoders import encoder_for
from remuda.policies.networks.q_network import QNetwork
from remuda.policies.spec import PolicySpec
from remuda.policies.stack import ParameterStack


class DQN(TransitionAlgorithm):
    """Q-learning (Mnih et al. 2015); with `double`, separate networks select and evaluate actions.

    A recurrent network learns from whole segments, starting at the actor's stored state, as in R2D2
    (Kapturowski et al. 2019). Targets are n steps later in the segment. Values are not rescaled.
    """

    masks, recurrent, branching = True, True, True
    kernels: ClassVar[type[FusedQ]] = FusedQ  # not inherited by a class that overrides the loss
    network: QNetwork

    @classmethod
    def network_for(cls, spec: PolicySpec) -> QNetwork:
        return QNetwork(
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
            q_t = self._values_t(batch, part, part.target)
            select = q_t
            if self.config.q_learning.double:
                select = self._values_t(batch, part, part.online)
            best = network.best_of(among_allowed(select, batch.allowed_t))
            target = batch.r_t + batch.discount_t * network.taken(q_t, best)
        weights = self._acting(part, part.online)
        q_tm1 = network.values_of(weights, batch.features_tm1(network, weights))
        taken = network.taken(q_tm1, batch.a_tm1)
        errors = target - taken.detach() if batch.weights.numel() else None
        return Loss(q_learning_loss(taken, target, self.config.q_learning.huber), taken, errors)

    def _differentiate(
        self, batch: Transitions | TransitionSequences, part: Part
    ) -> tuple[Tensor, Tensor, Tensor, ActorMetrics | None]:
        """Use kernels if they support network and loss."""
        if isinstance(batch, TransitionSequences) or not self.is_fused:
            return super()._differentiate(batch, part)
        return *self._fused_step(batch, part), None

    @property
    def is_fused(self) -> bool:
        implements = has_flag(type(self), "kernels", "loss", "_acting", "_draw_quantiles")
        return implements and self.kernels.suits(self.network, self.device)

    def _fused_step(self, batch: Transitions, part: Part) -> tuple[Tensor, Tensor, Tensor]:
        return self._fused.step(part.online, part.target, batch)

    @cached_property
    def _fused(self) -> FusedQ:
        return self.kernels(self.network, self.config.q_learning)

    def _acting(self, part: Part, stack: ParameterStack) -> Weights:
        return self.network.acting(stack.parameters, self._noise(part))

    def _values_t(
        self, batch: Transitions | TransitionSequences, part: Part, stack: ParameterStack
    ) -> Tensor:
        """Return the action values [G, B, A] of every s_t, by the networks of `stack`."""
        weights = self._acting(part, stack)
        return self.network.values_of(weights, batch.features_t(self.network, weights))
