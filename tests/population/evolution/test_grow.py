"""Networks of other widths and depth that begin with the weights of a trained one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from evolving import alien
from refusals import refuses
from remuda.config import IQNConfig, NetworkConfig, PolicyConfig
from remuda.errors import UsageError
from remuda.policies.actions import DiscreteActions
from remuda.policies.networks.actor_critic import ActorCritic
from remuda.policies.networks.encoders import Convolutions
from remuda.policies.networks.images import Image
from remuda.policies.networks.iqn import IQNetwork
from remuda.policies.networks.network import Heads
from remuda.policies.networks.q_network import QNetwork
from remuda.policies.spec import PolicySpec
from remuda.population.evolution.grow import grow, network_family
from remuda.population.evolution.weights import WeightLayout

INPUTS, ACTIONS = 5, 3
IMAGE = Image(1, 5, 5)


def config(hidden, **options):
    options.setdefault("activation", "relu")
    return NetworkConfig(hidden=hidden, **options)


def ppo(hidden, recurrent=0, **options):
    own = {"recurrent": recurrent, "dueling": False, "shared": True} | options
    found = config(hidden, **own)
    return ActorCritic(INPUTS, DiscreteActions((ACTIONS,)), found, normalised=True)


def with_convolutions(hidden, recurrent=0, channels=(2, 3)):
    layers = tuple((count, 2, 1) for count in channels)
    found = config(hidden, dueling=False, convolutions=layers, recurrent=recurrent)
    encoder = Convolutions(layers, "relu", IMAGE)
    return ActorCritic(25, DiscreteActions((ACTIONS,)), found, encoder=encoder)


KINDS = {
    "ppo": ppo,
    "ppo, two towers": lambda hidden, recurrent=0: ppo(hidden, shared=False),
    "dqn": lambda hidden, recurrent=0: QNetwork(
        INPUTS, ACTIONS, config(hidden, recurrent=recurrent)
    ),
    "dqn, noisy": lambda hidden, recurrent=0: QNetwork(INPUTS, ACTIONS, config(hidden, noisy=True)),
    "iqn": lambda hidden, recurrent=0: IQNetwork(
        INPUTS,
        ACTIONS,
        config(hidden, recurrent=recurrent),
        own=IQNConfig(quantiles=4, cosines=5),
    ),
    "own": lambda hidden, recurrent=0: Heads(INPUTS, {"policy": 3, "q": 3}, config(hidden)),
    "convolutions": lambda hidden, recurrent=0: with_convolutions(hidden),
}
HAS_GATES = ("ppo", "dqn", "iqn")


def trained(network, seed=1):
    """Weights of which none is special, and none so large that sums lose their digits."""
    random = np.random.default_rng(seed)
    weights = random.normal(0.0, 0.5, WeightLayout.of(network).size).astype(np.float32)
    for name, tensor in WeightLayout.of(network).tensors(weights).items():
        if name in network.buffers:
            tensor[...] = np.abs(tensor) + 0.5
    return weights


def computed(network, weights, steps=3):
    """All that a network says of some states, step after step where it remembers."""
    layout = WeightLayout.of(network)
    flat = torch.from_numpy(np.array(weights, np.float32))
    parameters = {n: flat[layout.slices[n]].reshape(1, *s) for n, s in network.shapes.items()}
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, 9, network.num_inputs, generator=generator) for _ in range(steps)]
    found = []
    with torch.no_grad():
        plain = network.acting(parameters, None)
        memory = torch.zeros(1, 9, network.memory)
        for seen in inputs:
            if network.memory:
                outputs, memory = network.step(plain, seen, memory)
                found.append(outputs)
            else:
                found.append(network.outputs(plain, seen))
                if isinstance(network, ActorCritic):
                    prepared = network.prepare(parameters, seen)
                    found += network.policy_and_value(parameters, prepared)
                if isinstance(network, Heads):
                    found.append(network.head("q", parameters, seen))
    return [each.flatten() for each in found]


def grown(parent, child, seed=1):
    return grow(
        trained(parent, seed), WeightLayout.of(parent), alien(child), WeightLayout.of(child)
    )


def assert_same_function(parent, child):
    found = grown(parent, child)
    for mine, theirs in zip(computed(child, found), computed(parent, trained(parent)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


widths = some.integers(1, 7)


@settings(deadline=None, max_examples=25)
@given(
    kind=some.sampled_from(list(KINDS)),
    before=some.lists(widths, min_size=1, max_size=3),
    more=some.lists(some.integers(0, 5), min_size=3, max_size=3),
    recurrent=some.just((0, 0)) | some.tuples(some.integers(1, 4), some.integers(0, 3)),
)
def test_a_wider_network_computes_what_the_narrower_did(kind, before, more, recurrent):
    units, extra = recurrent if kind in HAS_GATES else (0, 0)
    after = tuple(width + extra for width, extra in zip(before, more, strict=False))
    parent = KINDS[kind](tuple(before), units)
    child = KINDS[kind](after, units and units + extra)
    assert_same_function(parent, child)


@settings(deadline=None, max_examples=25)
@given(
    kind=some.sampled_from(list(KINDS)),
    before=some.lists(widths, min_size=1, max_size=2),
    more=some.integers(0, 4),
    layers=some.integers(1, 2),
    recurrent=some.sampled_from([0, 3]),
)
def test_a_deeper_network_computes_what_the_shallower_did(kind, before, more, layers, recurrent):
    units = recurrent if kind in ("ppo", "dqn") else 0
    after = tuple(width + more for width in before)
    after += (max(after),) * layers
    assert_same_function(KINDS[kind](tuple(before), units), KINDS[kind](after, units))


def test_after_tanh_a_wider_network_computes_the_same_and_a_deeper_one_nearly():
    parent = ppo((6, 4), activation="tanh")
    assert_same_function(parent, ppo((9, 7), activation="tanh"))
    child = ppo((6, 4, 4), activation="tanh")
    weights = 0.1 * trained(parent)  # where tanh is nearly the identity
    found = grow(weights, WeightLayout.of(parent), alien(child), WeightLayout.of(child))
    pairs = zip(computed(child, found), computed(parent, weights), strict=True)
    assert all(torch.allclose(mine, theirs, atol=0.05) for mine, theirs in pairs)


def test_convolutions_of_more_channels_compute_the_same():
    parent = with_convolutions((6,), channels=(2, 3))
    assert_same_function(parent, with_convolutions((8,), channels=(4, 5)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_narrower_network_has_the_first_units_and_nothing_else_fresh(kind):
    parent, child = KINDS[kind]((6, 5)), KINDS[kind]((3, 2))
    found = grown(parent, child)
    theirs = WeightLayout.of(parent).tensors(trained(parent))
    for name, tensor in WeightLayout.of(child).tensors(found).items():
        block = tuple(slice(size) for size in tensor.shape)
        np.testing.assert_array_equal(tensor, theirs[name][block])


def test_what_reads_another_layer_than_before_is_drawn_anew():
    for kind, readers in {
        "ppo": ("policy", "value"),
        "ppo, two towers": ("policy", "value"),
        "dqn": ("head",),
        "iqn": ("head",),
        "own": ("policy", "q"),
    }.items():
        parent, child = KINDS[kind]((6, 5, 4)), KINDS[kind]((6, 5))
        found, layout = grown(parent, child), WeightLayout.of(child)
        fresh, theirs = (
            layout.tensors(alien(child)),
            WeightLayout.of(parent).tensors(trained(parent)),
        )
        for name, tensor in layout.tensors(found).items():
            wanted = fresh if name.rpartition(".")[0] in readers else theirs
            np.testing.assert_array_equal(tensor, wanted[name])
    parent, child = ppo((6, 5), recurrent=3), ppo((6,), recurrent=3)
    tensors = WeightLayout.of(child).tensors(grown(parent, child))
    fresh = WeightLayout.of(child).tensors(alien(child))
    np.testing.assert_array_equal(tensors["gates_in.weight"], fresh["gates_in.weight"])
    theirs = WeightLayout.of(parent).tensors(trained(parent))
    np.testing.assert_array_equal(tensors["policy.weight"], theirs["policy.weight"])


def test_new_units_are_heard_after_an_update():
    """Their weights are drawn; the gradient of what others hear of them is not zero."""
    parent, child = KINDS["dqn"]((6, 4)), KINDS["dqn"]((9, 7))
    found, layout = grown(parent, child), WeightLayout.of(child)
    tensors = layout.tensors(found)
    fresh = layout.tensors(alien(child))
    np.testing.assert_array_equal(tensors["hidden0.weight"][:, 6:], fresh["hidden0.weight"][:, 6:])
    assert not tensors["hidden1.weight"][6:, :4].any()
    vector = torch.from_numpy(found).requires_grad_()
    parts = {n: vector[layout.slices[n]].reshape(1, *s) for n, s in child.shapes.items()}
    seen = torch.randn(1, 9, INPUTS, generator=torch.Generator().manual_seed(0))
    (slope,) = torch.autograd.grad(
        child.outputs(child.acting(parts, None), seen).square().sum(), vector
    )
    assert layout.tensors(slope.numpy())["hidden1.weight"][6:, :4].any()


def test_between_equal_networks_all_is_copied():
    network = ppo((6, 4), recurrent=3)
    found = grown(network, network)
    assert found.tobytes() == trained(network).tobytes()


def test_weights_of_another_size_are_refused():
    parent, child = ppo((6, 4)), ppo((7, 4))
    with refuses(UsageError):
        grow(trained(child), WeightLayout.of(parent), alien(child), WeightLayout.of(child))


def family(observation=(4,), actions=3, **tree):
    found = PolicyConfig.model_validate(tree)
    return network_family(
        PolicySpec("p", found, observation, "float32", DiscreteActions((actions,)))
    )


def test_a_family_differs_in_widths_and_numbers_of_layers_alone():
    tree = {"algorithm": "ppo", "network": {"hidden": (8, 8)}}
    own = family(**tree)
    assert own == family(algorithm="ppo", network={"hidden": (4,)})
    assert own == family(algorithm="ppo", network={"hidden": (8, 8)}, learning_rate=0.5)
    recurrent = [family(algorithm="ppo", network={"recurrent": units}) for units in (2, 5)]
    assert recurrent[0] == recurrent[1] != own
    for other in (
        family(algorithm="dqn", network={"hidden": (8, 8)}),
        family(algorithm="ppo", network={"hidden": (8, 8), "activation": "relu"}),
        family(algorithm="ppo", network={"hidden": (8, 8), "shared": True}),
        family(algorithm="ppo", network={"hidden": (8, 8)}, ppo={"normalise_observations": True}),
        family((5,), **tree),
        family(actions=4, **tree),
    ):
        assert own != other
    pictures = [
        family((5, 5, 1), algorithm="ppo", network={"convolutions": ((channels, kernel, 1),)})
        for channels, kernel in ((4, 3), (8, 3), (4, 2))
    ]
    assert pictures[0] == pictures[1] != pictures[2]
