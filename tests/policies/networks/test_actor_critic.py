"""Actor-critic networks against torch's own layers; stacks share nothing."""

import numpy as np
import pytest
import torch
from torch import nn

from refusals import refuses
from remuda.config import NetworkConfig
from remuda.errors import ContractError
from remuda.policies.acting import ActingStack
from remuda.policies.actions import DiscreteActions
from remuda.policies.continuous_actions import ContinuousActions
from remuda.policies.networks.actor_critic import MEAN, VARIANCE, ActorCritic
from remuda.policies.networks.encoders import Convolutions
from remuda.policies.networks.images import Image
from remuda.policies.stack import ParameterStack
from remuda.system.rng import torch_rng

POLICIES = 3


def make(num_inputs=5, actions=None, normalised=False, image=None, scale=1.0, **config):
    usual = {"hidden": (8, 6), "activation": "tanh", "shared": True, "dueling": False}
    config = NetworkConfig(**usual | config)
    actions = actions or DiscreteActions((4,))
    encoder = None
    if config.convolutions:
        encoder = Convolutions(config.convolutions, config.activation, image)
    network = ActorCritic(num_inputs, actions, config, normalised, encoder, scale)
    stack = ParameterStack(network.shapes, POLICIES, buffers=network.buffers)
    for k in range(POLICIES):
        network.initialise(stack.of(k), torch_rng(0, "weights", k))
    return network, stack


def linear(stack, k, name):
    of = stack.of(k)
    layer = nn.Linear(*of[f"{name}.weight"].shape[1:])
    layer.weight.data, layer.bias.data = of[f"{name}.weight"][0].T, of[f"{name}.bias"][0, 0]
    return layer


@pytest.mark.parametrize("shared", [True, False])
def test_it_is_what_torch_computes_layer_by_layer(shared):
    network, stack = make(shared=shared)
    x = torch.randn(POLICIES, 7, 5)
    logits, values = network.policy_and_value(stack.parameters, x)
    acting = network.outputs(network.acting(stack.parameters, None), x)
    towers = ("hidden", "hidden") if shared else ("policy_hidden", "value_hidden")
    for k in range(POLICIES):
        features = []
        for tower in towers:
            hidden = linear(stack, k, f"{tower}0")(x[k]).tanh()
            features.append(linear(stack, k, f"{tower}1")(hidden).tanh())
        torch.testing.assert_close(logits[k], linear(stack, k, "policy")(features[0]))
        torch.testing.assert_close(values[k], linear(stack, k, "value")(features[1]).squeeze(-1))
    torch.testing.assert_close(acting, logits)


@pytest.mark.parametrize("last", [True, False])
def test_convolutions_are_those_of_torch_for_each_policy(last):
    image = Image(channels=2, height=6, width=5, channels_last=last, frames=2)
    layers = ((4, 3, 1), (3, 2, 2))
    network, stack = make(2 * 60, image=image, convolutions=layers, scale=0.5, hidden=(8,))
    seen = torch.randint(0, 9, (POLICIES, 7, 2, 2, 6, 5)).float()  # frames, channels, height, width
    written = seen.movedim(3, -1) if last else seen
    x = network.prepare(stack.parameters, written.flatten(2))
    logits, _ = network.policy_and_value(stack.parameters, x)
    for k in range(POLICIES):
        of = stack.of(k)
        y = seen[k].flatten(1, 2) * 0.5
        for i, (_, _, stride) in enumerate(layers):
            weight, bias = of[f"hidden_conv{i}.weight"][0], of[f"hidden_conv{i}.bias"][0, 0]
            y = nn.functional.conv2d(y, weight, bias, stride=stride).tanh()
        hidden = linear(stack, k, "hidden0")(y.flatten(1)).tanh()
        torch.testing.assert_close(logits[k], linear(stack, k, "policy")(hidden))


def test_convolutions_that_do_not_fit_are_refused():
    with refuses(ContractError):
        make(10, image=Image(1, 2, 5), convolutions=((4, 3, 1),))


def test_the_recurrent_layer_is_a_gru_whether_it_steps_or_follows_a_sequence():
    network, stack = make(recurrent=6)
    x = torch.randn(POLICIES, 2 * 4, 5)  # two sequences of four
    memory = torch.randn(POLICIES, 2, 6)
    logits, values = network.policy_and_value(stack.parameters, x, memory)
    weights = network.acting(stack.parameters, None)
    stepped = memory
    for t in range(4):
        outputs, stepped = network.step(weights, x.view(POLICIES, 2, 4, 5)[:, :, t], stepped)
        torch.testing.assert_close(outputs, logits.view(POLICIES, 2, 4, 4)[:, :, t])
    for k in range(POLICIES):
        of, cell = stack.of(k), nn.GRUCell(6, 6)
        cell.weight_ih.data, cell.bias_ih.data = (
            of["gates_in.weight"][0].T,
            of["gates_in.bias"][0, 0],
        )
        cell.weight_hh.data = of["gates_memory.weight"][0].T
        cell.bias_hh.data = of["gates_memory.bias"][0, 0]
        kept = memory[k]
        for t in range(4):
            hidden = linear(stack, k, "hidden0")(x[k].view(2, 4, 5)[:, t]).tanh()
            kept = cell(linear(stack, k, "hidden1")(hidden).tanh(), kept)
            value = linear(stack, k, "value")(kept).squeeze(-1)
            torch.testing.assert_close(values[k].view(2, 4)[:, t], value)


def test_normalised_inputs_have_the_buffers_taken_out_and_a_limit():
    network, stack = make(normalised=True)
    with torch.no_grad():
        stack.parameters[MEAN].fill_(2.0)
        stack.parameters[VARIANCE].fill_(4.0)
    seen = torch.tensor([[[2.0, 4.0, 0.0, 100.0, -100.0]]]).expand(POLICIES, 1, 5)
    prepared = network.prepare(stack.parameters, seen)
    assert prepared[0, 0].tolist() == pytest.approx([0.0, 1.0, -1.0, 10.0, -10.0])
    acting = network.outputs(network.acting(stack.parameters, None), seen)
    learning, _ = network.policy_and_value(stack.parameters, prepared)
    torch.testing.assert_close(acting, learning)


def test_scales_of_continuous_actions_are_learned_and_do_not_depend_on_what_is_seen():
    low = np.full(2, -1, np.float32)
    network, stack = make(actions=ContinuousActions(low, -low))
    with torch.no_grad():
        stack.parameters["log_scale"].fill_(0.25)
    outputs, _ = network.policy_and_value(stack.parameters, torch.randn(POLICIES, 4, 5))
    assert outputs.shape == (POLICIES, 4, 4)
    assert (outputs[..., 2:] == 0.25).all()


def test_an_acting_stack_remembers_each_stream_and_saves_it():
    network, stack = make(recurrent=6)
    acting = ActingStack(network, [None] * POLICIES, num_streams=2)
    for k in range(POLICIES):
        acting.load(k, stack.flat[k].numpy())
    acting.inputs[...] = np.random.default_rng(0).normal(size=acting.inputs.shape)
    first = acting.outputs(0, POLICIES).copy()
    saved = [acting.state(k) for k in range(POLICIES)]
    assert (acting.previous_states == 0).all()
    second = acting.outputs(0, POLICIES).copy()
    assert not np.allclose(first, second)
    for k in range(POLICIES):
        acting.restore(k, saved[k])
    assert np.array_equal(acting.outputs(0, POLICIES), second)
    acting.recurrent_states[1] = 0.0
    again = acting.outputs(1, 2)
    np.testing.assert_allclose(again[0], first[1], rtol=1e-5)
