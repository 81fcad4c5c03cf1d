"""Layouts: where a policy's tensors lie, and what its vector of weights computes."""

import numpy as np
import pytest
import torch

from evolving import actor_critic, drawn, outputs_of, values
from refusals import refuses
from remuda.config import IQNConfig, NetworkConfig
from remuda.errors import UsageError
from remuda.policies.networks.actor_critic import COUNT, MEAN, VARIANCE
from remuda.policies.networks.iqn import IQNetwork
from remuda.policies.stack import ParameterStack
from remuda.population.evolution.weights import WeightLayout

NETWORKS = {
    "ppo": actor_critic(),
    "ppo, normalised": actor_critic(normalised=True),
    "ppo, two towers": actor_critic(shared=False),
    "ppo, recurrent": actor_critic(recurrent=4),
    "dqn, dueling": values(),
    "dqn, noisy": values(noisy=True),
    "dqn, recurrent": values(recurrent=4),
    "iqn": IQNetwork(5, 3, NetworkConfig(hidden=(8, 6)), own=IQNConfig(quantiles=4, cosines=5)),
}
every_network = pytest.mark.parametrize("network", NETWORKS.values(), ids=list(NETWORKS))


@every_network
def test_a_vector_has_the_tensors_where_a_stack_has_them(network):
    stack, layout = ParameterStack(network.shapes, 1), WeightLayout.of(network)
    network.initialise(stack.parameters, torch.Generator().manual_seed(0))
    found = layout.tensors(stack.flat[0].numpy())
    assert layout.size == stack.flat.shape[1]
    assert list(found) == list(stack.parameters)
    for name, tensor in stack.parameters.items():
        np.testing.assert_array_equal(found[name], tensor[0].numpy())


@every_network
def test_outputs_are_those_that_the_policy_acts_by(network):
    stack = ParameterStack(network.shapes, 1)
    network.initialise(stack.parameters, torch.Generator().manual_seed(0))
    states = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    vector = stack.flat[0].clone()
    with torch.no_grad():
        found = outputs_of(network)(vector, states)
        plain = network.acting(stack.parameters, None)
        if network.memory:
            wanted, _ = network.step(plain, states[None], torch.zeros(1, 7, network.memory))
        else:
            wanted = network.outputs(plain, states[None])
    torch.testing.assert_close(found, wanted[0])


@every_network
def test_gradients_flow_to_what_outputs_depend_on(network):
    vector = torch.from_numpy(drawn(network)).requires_grad_()
    outputs = outputs_of(network)(vector, torch.ones(3, 5))
    (slopes,) = torch.autograd.grad(outputs.square().sum(), vector)
    found = WeightLayout.of(network).tensors(slopes.numpy())
    assert found[f"{network.layers[0]}.weight"].any()
    assert not any(found[name].any() for name in found if name.startswith("value"))


def test_buffers_are_not_learned_and_belong_to_the_first_layer():
    layout = WeightLayout.of(NETWORKS["ppo, normalised"])
    learned = layout.tensors(layout.learned)
    for name in (MEAN, VARIANCE, COUNT):
        assert not learned[name].any()
    assert learned["hidden0.weight"].all()
    assert layout.learned.sum() == layout.size - 11
    assert layout.layers["hidden0"] == ("hidden0.weight", "hidden0.bias", MEAN, VARIANCE, COUNT)
    assert list(layout.layers) == ["hidden0", "hidden1", "policy", "value"]


def test_buffers_of_a_layer_stay_with_it():
    layout = WeightLayout(
        {"a.weight": (2, 2), "a.running_mean": (1, 2), "b.weight": (2, 1), "scale": (1, 1)},
        frozenset({"a.running_mean"}),
    )
    assert layout.layers == {
        "a": ("a.weight", "a.running_mean"),
        "b": ("b.weight",),
        "scale": ("scale",),
    }


def test_a_layout_of_buffers_alone_has_nothing_to_learn():
    layout = WeightLayout({"a.mean": (1, 2)}, frozenset({"a.mean"}))
    assert layout.layers == {"a": ("a.mean",)}
    assert not layout.learned.any()


def test_weights_of_another_size_are_refused():
    layout = WeightLayout.of(NETWORKS["ppo"])
    with refuses(UsageError):
        layout.checked(np.zeros(4), "those of a")
    kept = np.zeros(layout.size, np.float32)
    assert layout.checked(kept) is not kept
