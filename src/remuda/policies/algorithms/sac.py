"""Soft actor-critic (SAC) for K policies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from remuda.config import PolicyConfig
from remuda.config.algorithm_registry import BUILT_IN, Section
from remuda.errors import ContractError
from remuda.policies.actions import Actions, valued
from remuda.policies.algorithms.algorithm import has_flag
from remuda.policies.algorithms.kernels.sac import FusedSAC, move_targets
from remuda.policies.algorithms.transition_algorithm import (
    ActorMetrics,
    Loss,
    Part,
    TransitionAlgorithm,
    Transitions,
    TransitionSequences,
)
from remuda.policies.continuous_actions import ContinuousActions, SquashedActions
from remuda.policies.losses import LEAST_LOG, entropy, log_probabilities
from remuda.policies.networks.encoders import encoder_for
from remuda.policies.networks.network import Network
from remuda.policies.networks.soft_actor_critic import LOG_TEMPERATURE, SoftActorCritic
from remuda.policies.spec import PolicySpec
from remuda.policies.stack import Parameters, whole_rows

DISCRETE_TARGET = 0.5  # default target entropy of discrete actions, as a share of the largest


class SAC(TransitionAlgorithm):
    """Maximum-entropy reinforcement learning with two critics and a learned temperature.

    Continuous actions: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications",
    equations 5 to 9 and 18. Discrete actions: Christodoulou 2019, "Soft Actor-Critic for Discrete
    Action Settings". With `n_steps` above 1 the entropy of the steps in between is not counted.
    """

    masks = True
    samples = True
    kernels: ClassVar[bool] = True  # not inherited by a class that overrides the loss
    section: ClassVar[Section] = "sac"
    unused: ClassVar[Sequence[str]] = BUILT_IN["sac"].unused
    network: SoftActorCritic

    def __init__(
        self,
        configs: Sequence[PolicyConfig],
        network: Network,
        rngs: Sequence[torch.Generator],
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(configs, network, rngs, device)
        at = (len(self.configs), 1)
        self._temperatures = torch.zeros(at, dtype=torch.float32, device=self.device)  # if fixed
        self._targets = torch.zeros(at, dtype=torch.float32, device=self.device)
        for policy, config in enumerate(self.configs):
            self._set(policy, config)

    @classmethod
    def actions_for(cls, actions: Actions, agent: str, algorithm: str) -> Actions:
        if not isinstance(actions, ContinuousActions):
            return valued(actions, agent, algorithm, branches=False)
        if not actions.bounds.is_bounded.all():
            raise ContractError(
                f"{agent} has the action bounds {actions.bounds.low.tolist()} to "
                f"{actions.bounds.high.tolist()}; {algorithm} needs finite bounds: wrap the "
                "environment to set them, or use --policy.algorithm ppo"
            )
        return SquashedActions(actions.bounds.low, actions.bounds.high)

    @classmethod
    def network_for(cls, spec: PolicySpec) -> SoftActorCritic:
        return SoftActorCritic(
            spec.num_inputs,
            spec.actions,
            spec.config.network,
            spec.config.sac.temperature,
            spec.config.sac.learn_temperature,
            encoder_for(spec),
            spec.scale,
        )

    def configure(self, policy: int, config: PolicyConfig) -> None:
        super().configure(policy, config)
        self._set(policy, config)

    def _set(self, policy: int, config: PolicyConfig) -> None:
        self._targets[policy] = self._target_entropy(config)
        self._temperatures[policy] = config.sac.temperature

    def _target_entropy(self, config: PolicyConfig) -> float:
        actions = self.network.actions
        if config.sac.target_entropy is not None:
            return config.sac.target_entropy
        if self.network.is_continuous:
            return -float(actions.size)
        return DISCRETE_TARGET * math.log(actions.num_outputs)

    def loss(self, batch: Transitions, part: Part) -> Loss:
        members = slice(part.first, part.end)
        temperature = self._temperature(part)
        losses = self._continuous if self.network.is_continuous else self._discrete
        q_tm1, target, actor, entropies = losses(batch, part, temperature)
        first, second = (0.5 * (q - target).square() for q in q_tm1)
        critic = first + second
        found = critic + actor
        if self.config.sac.learn_temperature:
            log_temperature = part.online.parameters[LOG_TEMPERATURE].squeeze(-1)  # [G, 1]
            found = found + log_temperature * (entropies - self._target_of(batch, members))
        values = torch.minimum(*(q.detach() for q in q_tm1))
        used = temperature.expand_as(entropies)
        return Loss(found, values, target - values, ActorMetrics(actor, critic, entropies, used))

    def _differentiate(
        self, batch: Transitions | TransitionSequences, part: Part
    ) -> tuple[Tensor, Tensor, Tensor, ActorMetrics | None]:
        """Use kernels if they support the network and the actions."""
        if isinstance(batch, TransitionSequences) or not self.is_fused:
            return super()._differentiate(batch, part)
        members, learns = slice(part.first, part.end), self.config.sac.learn_temperature
        temperatures = self._temperature(part)
        normals = torch.stack(self._normals(batch, part))
        targets = self._targets[members] if learns else None
        return self._fused.step(part.online, part.target, batch, normals, temperatures, targets)

    @property
    def is_fused(self) -> bool:
        implements = has_flag(
            type(self), "kernels", "loss", "_continuous", "_policy", "_sampled", "_target_of"
        )
        return implements and FusedSAC.suits(self.network, self.device)

    @cached_property
    def _fused(self) -> FusedSAC:
        return FusedSAC(self.network)

    def _temperature(self, part: Part) -> Tensor:
        """Return the temperatures [G, 1]."""
        if not self.config.sac.learn_temperature:
            return self._temperatures[part.first : part.end]
        log_temperature = part.online.parameters[LOG_TEMPERATURE]
        return log_temperature.detach().squeeze(-1).exp()

    def _target_of(self, batch: Transitions, members: slice) -> Tensor:
        """Return the target entropies [G, 1]; by default [G, B] if actions are masked."""
        targets = self._targets[members]
        if not batch.allowed_tm1.numel():
            return targets
        allowed = batch.allowed_tm1.sum(-1).clamp(min=1)
        usual = [[config.sac.target_entropy is None] for config in self.configs[members]]
        is_usual = torch.tensor(usual, device=self.device)
        return torch.where(is_usual, DISCRETE_TARGET * allowed.log(), targets)

    def _continuous(
        self, batch: Transitions, part: Part, temperature: Tensor
    ) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
        """Return both critics' values, their target, the policy's loss, and its entropy: [G, B]."""
        network, online = self.network, part.online.parameters
        normals_t, normals_tm1 = self._normals(batch, part)
        with torch.no_grad():
            a_t, log_pi_t = self._sampled(online, batch.s_t, normals_t)
            q_t = torch.minimum(*network.values(part.target.parameters, batch.s_t, a_t))
            target = batch.r_t + batch.discount_t * (q_t - temperature * log_pi_t)
        q_tm1 = network.values(online, batch.s_tm1, batch.a_tm1)
        actions, log_pi = self._sampled(online, batch.s_tm1, normals_tm1)
        frozen = {name: values.detach() for name, values in online.items()}
        q = torch.minimum(*network.values(frozen, batch.s_tm1, actions))
        return q_tm1, target, temperature * log_pi - q, -log_pi.detach()

    def _discrete(
        self, batch: Transitions, part: Part, temperature: Tensor
    ) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
        """Return the same as `_continuous`, with expectations over actions instead of samples."""
        network, online = self.network, part.online.parameters
        with torch.no_grad():
            log_pi_t = self._log_pi(online, batch.s_t, batch.allowed_t)
            q_t = torch.minimum(*network.values(part.target.parameters, batch.s_t, None))
            v_t = (
                log_pi_t.exp() * (q_t - temperature[..., None] * log_pi_t.clamp(min=LEAST_LOG))
            ).sum(-1)
            target = batch.r_t + batch.discount_t * v_t
        both = network.values(online, batch.s_tm1, None)
        q_tm1 = [q.gather(-1, batch.a_tm1.unsqueeze(-1)).squeeze(-1) for q in both]
        log_pi = self._log_pi(online, batch.s_tm1, batch.allowed_tm1)
        q = torch.minimum(*(each.detach() for each in both))
        actor = (log_pi.exp() * (temperature[..., None] * log_pi.clamp(min=LEAST_LOG) - q)).sum(-1)
        return q_tm1, target, actor, entropy(log_pi).detach()

    def _sampled(
        self, parameters: Parameters, inputs: Tensor, normals: Tensor
    ) -> tuple[Tensor, Tensor]:
        actions = self.network.actions
        assert isinstance(actions, SquashedActions)
        return actions.sample(self._policy(parameters, inputs), normals)

    def _log_pi(self, parameters: Parameters, inputs: Tensor, allowed: Tensor) -> Tensor:
        logits = self._policy(parameters, inputs)
        return log_probabilities(logits, allowed if allowed.numel() else None)

    def _policy(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return self.network.outputs(self.network.acting(parameters, None), inputs)

    def _normals(self, batch: Transitions, part: Part) -> tuple[Tensor, Tensor]:
        """Draw two standard normal numbers for each action, each policy from its own generator."""
        shape = (2, *batch.a_tm1.shape[1:])
        drawn = [torch.randn(shape, generator=rng) for rng in self._rngs[part.first : part.end]]
        s_t, s_tm1 = torch.stack(drawn, 1).to(self.device)
        return s_t, s_tm1

    def renew_targets(self, part: Part) -> None:
        shares = [config.sac.tau for config in self.configs[part.first : part.end]]
        target, online = part.target.flat, part.online.flat.detach()
        if self.device.type == "cpu":
            rows = whole_rows(target), whole_rows(online)
            move_targets(*rows, np.array(shares, np.float32), target.shape[1])
            return
        for row, other, share in zip(target, online, shares, strict=True):
            # Equal numbers stay, as in `move_targets`.
            row.copy_(torch.where(other == row, row, row.lerp(other, share)))
