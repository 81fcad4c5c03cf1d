"""Behaviour cloning: weights under which a policy takes the actions of demonstrations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remuda.policies.actions import Actions
from remuda.policies.continuous_actions import (
    HALF_LOG_TWO_PI,
    LOG_SCALES,
    ContinuousActions,
    SquashedActions,
    log_slopes,
)
from remuda.policies.networks.actor_critic import ActorCritic, count_observations
from remuda.policies.networks.network import Network
from remuda.policies.networks.soft_actor_critic import POLICY, SoftActorCritic
from remuda.policies.optimizer import Adam
from remuda.policies.spec import PolicySpec, first_weights
from remuda.policies.stack import ParameterStack
from remuda.system.rng import make_rng, torch_rng
from remuda.types import Array, Bools, Floats, Integers

LEAST_LOG_SCALE = math.log(0.05)
"""Logarithm of the smallest standard deviation of a clone's normalised actions, before any tanh.
Deterministic demonstrations would let it vanish, and the clone could not explore."""
MOST_SQUASHED = 0.999  # the largest squashed action; tanh maps no number to 1


@dataclass(frozen=True)
class Demonstrations:
    """T steps in the arrays of a policy, trajectory after trajectory."""

    observations: Array  # [T, *shape]
    actions: Array  # [T, size]; continuous actions in the environment's bounds
    masks: Bools | None  # [T, mask_size]
    firsts: Integers  # [T] the index of the first step of each step's trajectory


@dataclass(frozen=True)
class CloningSettings:
    """The arguments of `remuda.imitate` that concern the optimisation."""

    epochs: int
    batch_size: int
    learning_rate: float
    seed: int


def clone_behaviour(spec: PolicySpec, steps: Demonstrations, settings: CloningSettings) -> Floats:
    """Return weights [P] that maximise the likelihood of the demonstrations' actions.

    Q-learners maximise the likelihood of a softmax over action values, so that their greedy actions
    are those of the demonstrations; their values do not estimate returns. Value heads and critics
    keep their initial weights. The optimizer is Adam.
    """
    network = spec.network()
    stack = ParameterStack(network.shapes, 1, trainable=True, buffers=network.buffers)
    stack.write(0, first_weights(spec, torch_rng(settings.seed, "weights", spec.name)))
    frames = _frames(steps.firsts, spec.config.n_frames)
    if isinstance(network, ActorCritic) and network.normalised:
        every = np.arange(len(frames))
        observed = _inputs(steps.observations, frames, every)
        if network.critic is not None:  # nothing is known of what only the critic gets
            observed = network.critic.widened(observed)
        count_observations(stack.of(0), observed)
    chosen = torch.from_numpy(_normalised(spec.actions, steps.actions))
    masks = None if steps.masks is None else torch.from_numpy(steps.masks)
    optimizer = Adam(stack.flat, stack.gradients, [settings.learning_rate], [1e-8])
    rng = make_rng(settings.seed, "imitation", spec.name)
    count = len(chosen)
    _limit_scales(network, stack)
    for _ in range(settings.epochs):
        for rows in np.array_split(rng.permutation(count), -(-count // settings.batch_size)):
            inputs = torch.from_numpy(_inputs(steps.observations, frames, rows))
            outputs = network.outputs(network.acting(stack.parameters, None), inputs[None])
            allowed = None if masks is None else masks[None, rows]
            loss = -log_likelihoods(spec.actions, outputs, chosen[None, rows], allowed).mean()
            _differentiate(loss, stack)
            optimizer.step()
            _limit_scales(network, stack)
    return stack.read(0)


def log_likelihoods(
    actions: Actions, outputs: Tensor, chosen: Tensor, masks: Tensor | None
) -> Tensor:
    """Return the log-likelihoods [K, B], in nats, of actions [K, B, size] for outputs [K, B, O].

    Continuous actions are normalised. The density of squashed actions is that after tanh.
    """
    if not isinstance(actions, SquashedActions):
        return actions.log_probs_and_entropy(outputs, chosen, masks)[0]
    before = chosen.clamp(-MOST_SQUASHED, MOST_SQUASHED).atanh()
    means, log_scales = outputs.chunk(2, -1)
    log_scales = log_scales.clamp(*LOG_SCALES)
    z = (before - means) * (-log_scales).exp()
    normal = -0.5 * z.square() - log_scales - HALF_LOG_TWO_PI
    return (normal - log_slopes(before)).sum(-1)


def _differentiate(loss: Tensor, stack: ParameterStack) -> None:
    """Write the gradients of the parameters that the loss depends on; the others stay 0."""
    learned = {k: each for k, each in stack.parameters.items() if k not in stack.buffers}
    gradients = torch.autograd.grad(loss, tuple(learned.values()), allow_unused=True)
    for name, gradient in zip(learned, gradients, strict=True):
        if gradient is not None:
            stack.gradient_views[name].copy_(gradient)


def _limit_scales(network: Network, stack: ParameterStack) -> None:
    """Make standard deviations independent of observations, and at least the smallest one.

    SAC's may depend on observations. There is no such limit for every observation, so a clone's do
    not; training makes them depend on observations again.
    """
    with torch.no_grad():
        if isinstance(network, ActorCritic) and network.actions.num_scales:
            stack.parameters["log_scale"].clamp_(min=LEAST_LOG_SCALE)
        elif isinstance(network, SoftActorCritic) and network.is_continuous:
            size = network.actions.size
            stack.parameters[f"{POLICY}.weight"][..., size:] = 0.0
            stack.parameters[f"{POLICY}.bias"][..., size:].clamp_(min=LEAST_LOG_SCALE)


def _normalised(actions: Actions, chosen: Array) -> Array:
    if isinstance(actions, ContinuousActions):
        return actions.bounds.normalise(chosen)
    return chosen.astype(np.int64)


def _frames(firsts: Integers, n_frames: int) -> Integers:
    """Return the steps of each stacked observation, [T, n_frames]; -1 before the trajectory."""
    steps = np.arange(len(firsts))[:, None] - np.arange(n_frames)[::-1]
    return np.where(steps >= firsts[:, None], steps, -1)


def _inputs(observations: Array, frames: Integers, rows: Integers) -> Floats:
    """Return the stacked observations of some steps: [B, n_frames * size]."""
    found = observations[frames[rows]].astype(np.float32)
    found[frames[rows] < 0] = 0.0
    inputs: Floats = found.reshape(len(rows), -1)
    return inputs
