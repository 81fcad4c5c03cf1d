"""Networks: a stack of K is K networks, and what is folded away changes no value."""

import numpy as np
import pytest
import torch
from torch.nn.functional import linear

from remuda.config import IQNConfig, NetworkConfig, PolicyConfig
from remuda.policies.acting import ActingStack
from remuda.policies.actions import DiscreteActions
from remuda.policies.networks.iqn import IQNetwork
from remuda.policies.networks.kernels.activations import RELU, TANH, activate_in_place
from remuda.policies.networks.q_network import QNetwork
from remuda.policies.spec import PolicySpec
from remuda.policies.stack import ParameterStack, layout_checksum, layout_size

KINDS = [QNetwork, IQNetwork]
NOISY = [False, True]


def make(kind, policies=3, **options):
    own = {"own": IQNConfig(quantiles=5, cosines=7)} if kind is IQNetwork else {}
    network = kind(10, 4, NetworkConfig(hidden=(8, 6), **options), **own)
    stack = ParameterStack(network.shapes, policies, trainable=True)
    for k in range(policies):
        network.initialise(stack.of(k), torch.Generator().manual_seed(k))
    return network, stack


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dueling", [False, True])
def test_slice_k_depends_on_slice_k_alone(kind, dueling):
    network, stack = make(kind, dueling=dueling)
    x = torch.randn(3, 6, 10)
    with torch.no_grad():
        together = network.outputs(network.acting(stack.parameters, None), x)
        for k in range(3):
            alone = network.outputs(network.acting(stack.of(k), None), x[k : k + 1])
            torch.testing.assert_close(together[k : k + 1], alone)
        stack.flat[0] = 99.0
        x[0] = -99.0
        after = network.outputs(network.acting(stack.parameters, None), x)
    torch.testing.assert_close(after[1:], together[1:], rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_stay_in_their_slice(kind):
    network, stack = make(kind)
    values = network.outputs(network.acting(stack.parameters, None), torch.randn(3, 6, 10))
    stack.backward(values[1].sum())
    assert stack.gradients[1].abs().sum() > 0
    assert stack.gradients[[0, 2]].abs().sum() == 0


def test_mlp_is_the_ordinary_network():
    network, stack = make(QNetwork, policies=1, dueling=False)
    p = {name: view[0] for name, view in stack.parameters.items()}
    x = torch.randn(6, 10)
    y = linear(x, p["hidden0.weight"].T, p["hidden0.bias"][0]).relu()
    y = linear(y, p["hidden1.weight"].T, p["hidden1.bias"][0]).relu()
    y = linear(y, p["head.weight"].T, p["head.bias"][0])
    ours = network.outputs(network.plain(stack.parameters, None), x[None])
    torch.testing.assert_close(ours[0], y)


def test_dueling_is_value_plus_advantage_less_its_mean():
    network, stack = make(QNetwork, policies=1)
    weights = network.plain(stack.parameters, None)
    raw, x = stack.parameters, torch.randn(1, 6, 10)
    features = x
    for layer in ("hidden0", "hidden1"):
        features = (features @ raw[f"{layer}.weight"] + raw[f"{layer}.bias"]).relu()
    head = features @ raw["head.weight"] + raw["head.bias"]
    value, advantage = head[..., :1], head[..., 1:]
    expected = value + advantage - advantage.mean(-1, keepdim=True)
    torch.testing.assert_close(network.outputs(weights, x), expected)


def test_iqn_acts_on_the_mean_over_the_midpoints():
    network, stack = make(IQNetwork)
    x = torch.randn(3, 6, 10)
    midpoints = ((torch.arange(5) + 0.5) / 5).expand(3, 6, 5)
    plain = network.plain(stack.parameters, None)
    mean = network.quantile_values_of(plain, network.features(plain, x), midpoints).mean(2)
    torch.testing.assert_close(network.outputs(network.acting(stack.parameters, None), x), mean)


def test_iqn_embedding_is_equation_4():
    network, stack = make(IQNetwork, policies=1)
    weights = network.plain(stack.parameters, None)
    tau = torch.tensor([[[0.3, 0.8]]])
    basis = torch.stack([torch.cos(torch.pi * i * tau[0, 0]) for i in range(7)], -1)
    expected = (basis @ weights["quantile.weight"][0] + weights["quantile.bias"][0]).relu()
    torch.testing.assert_close(network.embed(weights, tau)[0], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_drawn_for_each_pass_and_not_for_the_means(kind):
    network, stack = make(kind, noisy=True)
    x, noise = torch.randn(3, 6, 10), torch.Generator().manual_seed(0)
    with torch.no_grad():
        means = [network.outputs(network.acting(stack.parameters, None), x) for _ in range(2)]
        noisy = [network.outputs(network.acting(stack.parameters, noise), x) for _ in range(2)]
    torch.testing.assert_close(means[0], means[1], rtol=0, atol=0)
    assert not torch.equal(noisy[0], noisy[1])
    assert not torch.equal(noisy[0], means[0])


def test_layouts_are_told_apart():
    small, large = make(QNetwork)[0].shapes, make(QNetwork, dueling=False)[0].shapes
    assert layout_checksum(small) != layout_checksum(large)
    assert layout_size({"a": (2, 3), "b": (4,)}) == 10


def activated(x, kind):
    found = x.clone()
    activate_in_place(found.numpy(), kind)
    return found


def test_tanh_is_that_of_torch():
    x = torch.cat((torch.linspace(-12, 12, 100_001), torch.tensor([0.0, 1e-20, 88.0, -1e30])))
    ours = activated(x, TANH)
    torch.testing.assert_close(ours, x.double().tanh().float(), rtol=5e-7, atol=1e-30)
    assert activated(torch.tensor([float("nan")]), TANH).isnan().all()
    assert activated(torch.tensor([float("nan"), -1.0, 2.0]), RELU).tolist()[1:] == [0.0, 2.0]


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
@pytest.mark.parametrize("streams", [1, 7])
def test_a_plain_pass_equals_the_networks_own(algorithm, activation, streams):
    """For one policy and for several, and again once weights and inputs have changed."""
    config = PolicyConfig(algorithm=algorithm, network={"hidden": (9, 5), "activation": activation})
    network = PolicySpec("a", config, (4,), "float32", DiscreteActions((3,))).network()
    assert network.plain_layers
    acting = ActingStack(network, [None] * 3, streams)
    random = np.random.default_rng(0)
    for _ in range(3):
        for k in range(3):
            acting.load(k, random.normal(size=layout_size(network.shapes)).astype(np.float32))
        acting.inputs[...] = random.normal(size=acting.inputs.shape)
        for first, end in ((0, 3), (1, 2), (1, 3)):
            inputs = torch.from_numpy(acting.inputs[first:end])
            with torch.inference_mode():
                each = [network.acting(acting.parameters_of(k), None) for k in range(first, end)]
                weights = {name: torch.cat([own[name] for own in each]) for name in each[0]}
                expected = network.outputs(weights, inputs).numpy()
            np.testing.assert_allclose(acting.outputs(first, end), expected, rtol=1e-4, atol=1e-5)
