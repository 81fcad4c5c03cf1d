"""The loss of a minibatch and its gradient by torch, for every network, action and device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from remuda.policies.algorithms.samples import Pick
from remuda.policies.losses import kl_estimate, mean_of, normalised
from remuda.policies.networks.actor_critic import ActorCritic
from remuda.policies.stack import ParameterStack
from remuda.types import Floats


@dataclass(frozen=True)
class Batch:
    """What is trained on, for K policies: [K, R, ...] on the learner's device."""

    observations: Tensor
    actions: Tensor
    masks: Tensor | None
    log_prox: Tensor
    """Log-probabilities of the actions by the policy before the update."""
    weights: Tensor
    """How likely that policy's actions were made by the one that acted: their ratio."""
    advantages: Tensor
    values: Tensor
    """What was thought of the rows before the update."""
    targets: Tensor


class Costs(NamedTuple):
    """Hyperparameters of the loss, each [K, 1]."""

    clip: Floats
    value_cost: Floats
    value_clip: Floats
    """Infinity: none."""
    entropy_cost: Floats
    anchor_cost: Floats


@dataclass(frozen=True)
class Minibatch:
    """What a loss is made of: G policies, B rows of each; all [G, B] where nothing else is said."""

    log_probs: Tensor
    """Of the actions; gradients flow through these, the entropies and the values."""
    entropies: Tensor
    """Of the policies, in nats."""
    values: Tensor
    """What the networks think of the rows."""
    old_log_probs: Tensor
    """The same before the update."""
    old_values: Tensor
    """The same before the update."""
    advantages: Tensor
    targets: Tensor
    """What the values should be."""
    clip: Tensor
    """[G, 1]: `ppo.clip`."""
    value_clip: Tensor
    """[G, 1]: `ppo.value_clip`; infinite: none."""
    settings: Mapping[str, Tensor]
    """By name, [G, 1]: `policy.settings`."""


Losses = Callable[[Minibatch], tuple[Tensor, Tensor]]
"""The loss of the policy and that of the value, of each row."""


class Means(NamedTuple):
    """What a pass tells of its rows, each [G]: means over those that count."""

    loss: Tensor
    """Of all that is minimised."""
    policy_loss: Tensor
    """That of the policy by itself: with PPO the negative clipped objective."""
    value_loss: Tensor
    """That of the values by itself: with PPO half their squared error."""
    entropy: Tensor
    """In nats."""
    kl: Tensor
    """How far the policy has moved since the update began, in nats."""
    clipped: Tensor
    """The share of rows whose probability ratio was clipped."""


class Autograd:
    """Evaluates and differentiates G policies of one layout."""

    rows_at_once = 1024
    """Rows of a policy that are best evaluated together: what stays in the cache."""

    def __init__(
        self,
        network: ActorCritic,
        part: ParameterStack,
        costs: Costs,
        losses: Losses,
        settings: Mapping[str, Tensor] | None = None,
        anchor: ParameterStack | None = None,
        normalises: bool = False,
    ) -> None:
        """Work on some policies.

        Args:
            network: of all of them.
            part: their parameters.
            costs: of each.
            losses: of each row.
            settings: by name, [G, 1]: those of an algorithm of one's own.
            anchor: what they were, where that is to hold them.
            normalises: whether advantages are normalised, by policy and minibatch.
        """
        self._network, self._part, self._anchor = network, part, anchor
        self._losses, self._settings = losses, dict(settings or {})
        self._normalises = normalises
        self._costs = [torch.from_numpy(cost).to(part.flat.device) for cost in costs]

    def evaluate(
        self,
        observations: Tensor,
        actions: Tensor,
        masks: Tensor | None,
        picks: Iterable[Pick],
        log_pi: Tensor,
        values: Tensor,
    ) -> None:
        """Write log-probabilities of the actions and values, each [K, R], for the rows picked."""
        network, parameters = self._network, self._part.parameters
        with torch.no_grad():
            for pick in picks:
                inputs = network.prepare(parameters, pick.of(observations))
                outputs, found = network.policy_and_value(parameters, inputs, pick.memory)
                chances, _ = network.actions.log_probs_and_entropy(
                    outputs, pick.of(actions), None if masks is None else pick.of(masks)
                )
                counts = slice(None) if pick.valid is None else pick.valid.flatten() > 0
                values.view(-1)[pick.flat[counts]] = found.flatten()[counts]
                log_pi.view(-1)[pick.flat[counts]] = chances.flatten()[counts]

    def step(self, batch: Batch, pick: Pick) -> Tensor:
        """Write the loss's gradients; returns what it was made of, [len(Means), G].

        Args:
            batch: the whole rollout.
            pick: the rows of this minibatch, of all policies that this works on.
        """
        network, parameters, valid = self._network, self._part.parameters, pick.valid
        clip, value_cost, value_clip, entropy_cost, anchor_cost = self._costs
        advantages = pick.of(batch.advantages)
        if self._normalises:
            advantages = normalised(advantages, valid)
        seen = pick.of(batch.observations)
        inputs = network.prepare(parameters, seen)
        outputs, values = network.policy_and_value(parameters, inputs, pick.memory)
        masks = None if batch.masks is None else pick.of(batch.masks)
        log_pi, entropies = network.actions.log_probs_and_entropy(
            outputs, pick.of(batch.actions), masks
        )
        log_prox = pick.of(batch.log_prox)
        if valid is not None:
            # Rows that fill up have a ratio of 1: the gradient of an infinite one is no number.
            log_pi = torch.where(valid > 0, log_pi, log_prox)
        surrogates, errors = self._losses(
            Minibatch(
                log_probs=log_pi,
                entropies=entropies.expand_as(values),
                values=values,
                old_log_probs=log_prox,
                old_values=pick.of(batch.values),
                advantages=advantages,
                targets=pick.of(batch.targets),
                clip=clip,
                value_clip=value_clip,
                settings=self._settings,
            )
        )
        entropy = mean_of(entropies.expand_as(values), valid)
        policy_loss = mean_of(pick.of(batch.weights) * surrogates, valid)
        error = mean_of(errors, valid)
        loss = policy_loss + value_cost.squeeze(1) * error - entropy_cost.squeeze(1) * entropy
        if self._anchor is not None:
            with torch.no_grad():
                held = self._anchor.parameters
                others, _ = network.policy_and_value(held, network.prepare(held, seen), None)
            apart = network.actions.divergence(outputs, others, masks)
            loss = loss + anchor_cost.squeeze(1) * mean_of(apart.expand_as(values), valid)
        self._part.backward(loss.sum())
        with torch.no_grad():
            kl = mean_of(kl_estimate(log_pi, log_prox), valid)
            clipped = ((log_pi - log_prox).exp() - 1.0).abs() > clip
            share = mean_of(clipped.float(), valid)
            return torch.stack(Means(loss, policy_loss, error, entropy, kl, share))
