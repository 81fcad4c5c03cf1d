"""What a newborn is taught of its parents in a run, and how far it is from that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from remuda.evolution.distil import Loss, divergence_of, squared_error
from remuda.evolution.layout import Layout, Outputs, outputs_of
from remuda.policies.networks.actor_critic import ActorCritic
from remuda.policies.networks.network import Network
from remuda.policies.spec import PolicySpec
from remuda.policies.stack import layout_size
from remuda.policies.value_units import real_values
from remuda.population.lessons import Lesson, LessonLayout
from remuda.types import Floats


def taught_outputs(network: Network) -> Outputs:
    """What a child is taught: what actions are chosen by, and of an actor-critic the value last."""
    if not isinstance(network, ActorCritic):
        return outputs_of(network)
    layout = Layout.of(network)

    def outputs(weights: Tensor, states: Tensor) -> Tensor:
        parameters = {
            name: weights[layout.slices[name]].reshape(1, *shape)
            for name, shape in network.shapes.items()
        }
        inputs = network.prepare(parameters, states.float().flatten(1)[None])
        chosen, values = network.policy_and_value(parameters, inputs)
        if network.value_units:  # each of those who teach and learn has its own
            values = real_values(parameters, values)
        return torch.cat((chosen[0], values[0, :, None]), -1)

    return outputs


def taught_loss(spec: PolicySpec, lessons: Sequence[Lesson]) -> Loss:
    """How far a child is from a parent.

    Distributions by their divergence in nats, values of actions by their squared error; and of an
    actor-critic besides the squared error of its values, in variances of those that are taught.
    """
    if not spec.config.entry.samples:
        return squared_error
    divergence = divergence_of(spec.actions)
    if not isinstance(spec.network(), ActorCritic):
        return divergence
    values = np.concatenate([lesson.targets[:, -1] for lesson in lessons])
    variance = float(values.var())
    scale = 1.0 / (variance + 1e-6) if variance else 1.0  # of a parent that learned nothing yet

    def loss(child: Tensor, parent: Tensor) -> Tensor:
        error = (child[:, -1] - parent[:, -1]).square() * scale
        return divergence(child[:, :-1], parent[:, :-1]) + 0.5 * error

    return loss


def lesson_layout(spec: PolicySpec, states: int) -> LessonLayout:
    """The size of lessons for a policy, of at most so many states of each parent."""
    network = spec.network()
    with torch.no_grad():
        nothing = torch.zeros(layout_size(network.shapes))
        outputs = taught_outputs(network)(nothing, torch.zeros(1, spec.num_inputs))
    return LessonLayout(states, spec.num_inputs, outputs.shape[-1])


def lesson_of(spec: PolicySpec, weights: Floats, states: Floats) -> Lesson:
    """What a policy does in these states [N, num_inputs], with these weights of its network."""
    with torch.no_grad():
        found = taught_outputs(spec.network())(torch.from_numpy(weights), torch.from_numpy(states))
    return Lesson(states, found.numpy())
