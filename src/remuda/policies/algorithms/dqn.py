"""Double DQN for K policies, and what all learners of action values have in common with it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from remuda.policies.algorithms.fused_q import FusedQ, Settings, Told
from remuda.policies.algorithms.sequences import TransitionSequences
from remuda.policies.algorithms.transition_algorithm import (
    Loss,
    Part,
    TransitionAlgorithm,
    Transitions,
)
from remuda.policies.combined import choices_of
from remuda.policies.losses import among_allowed, q_learning_loss
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.encoders import encoder_for
from remuda.policies.networks.q_network import MLP, QNetwork
from remuda.policies.stack import ParameterStack

if TYPE_CHECKING:
    from remuda.policies.spec import PolicySpec


IN_KERNELS = ("loss", "_acting", "_at_tm1", "_at_t", "_draw_quantiles", "_taken")
"""Methods that kernels stand in for: not those of a class with others."""


class DQN(TransitionAlgorithm):
    """Learns the values of actions (Mnih et al. 2015), chosen and valued by two networks.

    With a recurrent network it learns from whole segments, as R2D2 (Kapturowski et al. 2019): each
    network follows a segment from the state that the actor had stored with it, without the steps
    of its burn-in, and targets lie n steps on in the same segment. Rewards are not rescaled.
    """

    masks, recurrent, branching = True, True, True
    network: QNetwork

    @classmethod
    def network_for(cls, spec: PolicySpec) -> QNetwork:
        """A network with a value for each action."""
        return MLP(
            spec.num_inputs,
            spec.actions.num_outputs,
            spec.config.network,
            encoder_for(spec),
            spec.scale,
            choices_of(spec.actions),
        )

    def loss(self, batch: Transitions | TransitionSequences, part: Part) -> Loss:
        """The loss of every sample, its action's value, and the error where it is asked for."""
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
        """By kernels where they suit network and loss."""
        if isinstance(batch, TransitionSequences) or not self.is_fused:
            return super()._differentiate(batch, part)
        told = self._fused_step(batch, part)
        return told.loss, told.value, told.errors if batch.weights.numel() else told.losses

    @property
    def is_fused(self) -> bool:
        """Whether kernels work out its steps on single transitions."""
        return self._is_as_in(DQN) and FusedQ.suits(self.network, self.device)

    def _is_as_in(self, known: type[DQN]) -> bool:
        """Whether all that kernels stand in for is as in the class that they were written for."""
        names = (n for n in IN_KERNELS if hasattr(known, n))
        return all(getattr(type(self), n) is getattr(known, n) for n in names)

    def _fused_step(self, batch: Transitions, part: Part) -> Told:
        """The step of a batch by kernels."""
        return self._fused_q.step(part.online, part.target, batch)

    @cached_property
    def _fused_q(self) -> FusedQ:
        own = self.config.q_learning
        return FusedQ(self.network, Settings(own.double, own.huber))

    def _acting(self, part: Part, stack: ParameterStack) -> Weights:
        return self.network.acting(stack.parameters, self._noise(part))

    def _at_tm1(
        self, batch: Transitions | TransitionSequences, weights: Weights
    ) -> tuple[Weights, Tensor]:
        """The weights, and the features of every s_tm1 by them: [G, B, F]."""
        if isinstance(batch, TransitionSequences):
            return weights, batch.at_tm1(batch.features(self.network, weights))
        return weights, self.network.features(weights, batch.s_tm1)

    def _at_t(
        self, batch: Transitions | TransitionSequences, weights: Weights
    ) -> tuple[Weights, Tensor]:
        """The weights, and the features of every s_t by them: [G, B, F]."""
        if isinstance(batch, TransitionSequences):
            return weights, batch.at_t(batch.features(self.network, weights))
        return weights, self.network.features(weights, batch.s_t)
