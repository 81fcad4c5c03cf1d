"""Action probabilities of a run's policies, for use in a game tree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import softmax

from remuda.errors import UsageError
from remuda.types import Array, Bools, Floats, Numbers

if TYPE_CHECKING:
    from remuda.policies.spec import PolicySpec


def probabilities(
    spec: PolicySpec, weights: Floats, observations: Array, allowed: Bools
) -> Numbers:
    """Return the probability of each action: [S, A].

    For a stochastic policy, they are the softmax of the network's outputs over the legal actions. A
    Q-learner chooses the legal action with the highest value; ties go to the first.

    - `weights`: [P] parameters of the policy's network.
    - `observations`: [S, *shape] as the environment writes them; [S, n_frames, *shape] for a policy
      with frame stacking, the newest last.
    - `allowed`: [S, A] bool, at least one legal action in each row.
    """
    import torch

    from remuda.policies.actions import DiscreteActions

    what = f"the policy {spec.name}"
    if not isinstance(spec.actions, DiscreteActions) or spec.actions.sizes != allowed.shape[1:]:
        raise UsageError(f"{what} has {spec.actions}; the game has actions of {allowed.shape[1:]}")
    if len(allowed) != len(observations):
        raise UsageError(f"{what}: {len(allowed)} masks for {len(observations)} observations")
    outputs = _outputs(spec, weights, observations)
    masked = torch.from_numpy(outputs).masked_fill(~torch.from_numpy(allowed), -torch.inf)
    if spec.config.entry.samples:
        sampled: Numbers = masked.softmax(1).numpy()
        return sampled
    best = masked.argmax(1).numpy()
    taken = np.zeros(allowed.shape)
    taken[np.arange(len(allowed)), best] = 1.0
    return taken


def joint_probabilities(
    spec: PolicySpec, weights: Floats, observations: Array, allowed: Bools
) -> Numbers:
    """Return the probability of each combination of choices: [S, prod(sizes)].

    A choice is one dimension of a multi-discrete action. The last choice changes fastest. With a
    single choice, the result is that of `probabilities`.

    `weights`: [P] parameters of the policy's network.
    """
    from remuda.policies.actions import DiscreteActions
    from remuda.policies.joint_actions import MOST_COMBINATIONS, JointActions

    actions = spec.actions
    if not isinstance(actions, DiscreteActions | JointActions) or len(actions.sizes) == 1:
        return probabilities(spec, weights, observations, allowed)
    count = math.prod(actions.sizes)
    if count > MOST_COMBINATIONS:
        raise UsageError(
            f"the policy {spec.name} has {count:,} combinations of choices; policies are "
            f"compared over at most {MOST_COMBINATIONS:,}"
        )
    ends = np.cumsum(actions.sizes)[:-1]
    outputs = _outputs(spec, weights, observations)
    if isinstance(actions, JointActions):
        values = np.where(_joint(np.split(allowed, ends, 1)), outputs, -np.inf)
        if spec.config.entry.samples:
            sampled: Numbers = softmax(values, axis=1)
            return sampled
        taken = np.zeros((len(outputs), count))
        taken[np.arange(len(outputs)), values.argmax(1)] = 1.0
        return taken
    masked = np.where(allowed, outputs, -np.inf)
    return _joint([softmax(choice, axis=1) for choice in np.split(masked, ends, 1)])


def _joint(parts: Sequence[Array]) -> Array:
    """Return the products of one entry of each part [S, n], the last changing fastest."""
    joint = parts[0]
    for part in parts[1:]:
        joint = (joint[:, :, None] * part[:, None, :]).reshape(len(joint), -1)
    return joint


def gaussians(spec: PolicySpec, weights: Floats, observations: Array) -> tuple[Numbers, Numbers]:
    """Return the normal distributions from which a policy draws continuous actions.

    `weights`: [P] parameters of the policy's network.

    Returns: Means and standard deviations, each [S, D], before actions are clipped or squashed.
    """
    from remuda.policies.actions import ContinuousActions

    if not isinstance(spec.actions, ContinuousActions):
        raise UsageError(f"the policy {spec.name} has {spec.actions}, which are not continuous")
    means, logarithms = np.split(_outputs(spec, weights, observations), 2, axis=1)
    return means, np.exp(logarithms)


def _outputs(spec: PolicySpec, weights: Floats, observations: Array) -> Numbers:
    """Return the network's outputs for observations: [S, O]."""
    import torch

    from remuda.policies.stack import ParameterStack

    what, count, frames = f"the policy {spec.name}", len(observations), spec.config.n_frames
    if spec.memory:
        raise UsageError(
            f"{what} depends on earlier observations (its network is recurrent); exact "
            "probabilities are only known for policies that depend on the newest observation"
        )
    wanted = spec.observation if frames == 1 else (frames, *spec.observation)
    if frames > 1 and observations.shape[1:] == spec.observation:
        raise UsageError(
            f"{what} depends on earlier observations ({frames} are stacked), which are not "
            "known here"
        )
    if observations.shape[1:] != wanted:
        raise UsageError(
            f"{what} has observations of shape {wanted}; these are {observations.shape[1:]}"
        )
    network = spec.network()
    stack = ParameterStack(network.shapes, 1)
    if weights.shape != tuple(stack.flat[0].shape):
        raise UsageError(
            f"{what} has a network of {stack.flat.shape[1]} weights; these are {weights.shape}"
        )
    with torch.inference_mode():
        stack.flat[0].copy_(torch.from_numpy(np.array(weights, np.float32)))
        inputs = torch.from_numpy(np.asarray(observations, np.float32).reshape(1, count, -1))
        outputs = network.outputs(network.acting(stack.parameters, None), inputs)[0]
        found: Numbers = outputs.double().numpy()
    return found
