"""Action probabilities of a run's policies, for use in a game tree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import softmax

from remuda.errors import UsageError
from remuda.types import Array, Bools, Floats, Numbers

if TYPE_CHECKING:
    from remuda.policies.continuous_actions import ActionBounds
    from remuda.policies.spec import PolicySpec


def probabilities(
    spec: PolicySpec, weights: Floats, observations: Array, allowed: Bools
) -> Numbers:
    """Return the probability of each action, or of each combination of choices: [S, prod(sizes)].

    A choice is one dimension of a multi-discrete action; the last choice changes fastest. A
    stochastic policy samples from the softmax of the network's outputs over what is legal. A
    Q-learner takes the legal action with the highest value; ties go to the first.

    - `weights`: [P] parameters of the policy's network.
    - `observations`: [S, *shape] as the environment writes them; [S, n_frames, *shape] for a policy
      with frame stacking, the newest last.
    - `allowed`: [S, sum(sizes)] bool, at least one legal option of each choice in each row.
    """
    from remuda.policies.actions import MOST_COMBINATIONS

    count = math.prod(getattr(spec.actions, "sizes", (1,)))
    if count > MOST_COMBINATIONS:
        raise UsageError(
            f"the policy {spec.name} has {count:,} combinations of choices; their probabilities "
            f"are computed for at most {MOST_COMBINATIONS:,}"
        )
    return _joint(choice_probabilities(spec, weights, observations, allowed))


def choice_probabilities(
    spec: PolicySpec, weights: Floats, observations: Array, allowed: Bools
) -> list[Numbers]:
    """Return the probabilities of the options of each choice, [S, size] each.

    A policy with a value for each combination has a single choice: the combination. The arguments
    are those of `probabilities`.
    """
    from remuda.policies.actions import DiscreteActions, JointActions

    actions, what = spec.actions, f"the policy {spec.name}"
    if (
        not isinstance(actions, DiscreteActions | JointActions)
        or actions.mask_size != allowed.shape[1]
    ):
        raise UsageError(f"{what} has {actions}; the game has actions of {allowed.shape[1:]}")
    outputs, ends = _outputs(spec, weights, observations), np.cumsum(actions.sizes)[:-1]
    if isinstance(actions, JointActions):
        choices = [np.where(_joint(np.split(allowed, ends, 1)), outputs, -np.inf)]
    else:
        choices = np.split(np.where(allowed, outputs, -np.inf), ends, 1)
    if spec.config.entry.samples:
        return [softmax(choice, axis=1) for choice in choices]
    return [np.eye(choice.shape[1])[choice.argmax(1)] for choice in choices]


def _joint(parts: Sequence[Array]) -> Array:
    """Return the products of one entry of each part [S, n], the last changing fastest."""
    joint = parts[0]
    for part in parts[1:]:
        joint = (joint[:, :, None] * part[:, None, :]).reshape(len(joint), -1)
    return joint


class Gaussians(NamedTuple):
    """Normal distributions of normalised actions, before they are clipped or squashed."""

    means: Numbers  # [S, D]
    deviations: Numbers  # [S, D]
    bounds: ActionBounds
    squashed: bool  # whether actions are squashed by tanh; else they are clipped


def gaussians(spec: PolicySpec, weights: Floats, observations: Array) -> Gaussians:
    """Return the normal distributions from which a policy draws continuous actions.

    `weights`: [P] parameters of the policy's network.
    """
    from remuda.policies.continuous_actions import LOG_SCALES, ContinuousActions, SquashedActions

    if not isinstance(spec.actions, ContinuousActions):
        raise UsageError(f"the policy {spec.name} has {spec.actions}, which are not continuous")
    means, logarithms = np.split(_outputs(spec, weights, observations), 2, axis=1)
    squashed = isinstance(spec.actions, SquashedActions)
    if squashed:
        logarithms = logarithms.clip(*LOG_SCALES)
    return Gaussians(means, np.exp(logarithms), spec.actions.bounds, squashed)


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
    with torch.inference_mode():
        stack.flat[0].copy_(torch.from_numpy(np.array(weights, np.float32)))
        inputs = torch.from_numpy(np.asarray(observations, np.float32).reshape(1, count, -1))
        outputs = network.outputs(network.acting(stack.parameters, None), inputs)[0]
        found: Numbers = outputs.double().numpy()
    return found
