"""Q-learners with a state: how they follow sequences, and what they learn from them."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from refusals import refuses
from remuda.config import PolicyConfig, load_config
from remuda.errors import ConfigError
from remuda.policies.actions import DiscreteActions
from remuda.policies.algorithms.transition_algorithm import Part, TransitionSequences
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.system.rng import torch_rng

KINDS = ["dqn", "iqn"]
SEQUENCES, STEPS = 3, 5


def spec_of(kind, **options):
    network = {"hidden": (8,), "recurrent": 6} | options.pop("network", {})
    own = options.pop("own", {})
    tree = {"algorithm": kind, "network": network, "n_frames": 1, "iqn": {"quantiles": 4}} | options
    if own:
        tree[kind] = tree.get(kind, {}) | own
    return PolicySpec(
        "a", PolicyConfig.model_validate(tree), (2,), "float32", DiscreteActions((3,))
    )


def make(kind, policies=1, first=0, **options):
    places = range(first, first + policies)
    algorithm = make_algorithm(
        [spec_of(kind, **options)] * policies, [torch_rng(0, "test", k) for k in places]
    )
    for k in range(policies):
        algorithm.network.initialise(algorithm.online.of(k), torch_rng(0, "weights", first + k))
        algorithm.network.initialise(algorithm.target.of(k), torch_rng(0, "target", first + k))
    return algorithm


def sequences(policies=1, seed=0, burn_in=None):
    g = torch.Generator().manual_seed(seed)
    at = (policies, SEQUENCES, STEPS)
    rows = (policies, SEQUENCES * STEPS)
    valid = torch.ones(at)
    if burn_in is not None:
        valid = (torch.arange(STEPS) >= burn_in[..., None]).float()
    valid = valid.flatten(1)
    return TransitionSequences(
        inputs=torch.randn(policies, SEQUENCES, STEPS + 1, 2, generator=g),
        states=torch.randn(policies, SEQUENCES, 6, generator=g),
        burn_in=burn_in,
        after=(torch.arange(STEPS) + 2).clamp(max=STEPS).expand(at).contiguous(),
        a_tm1=torch.randint(3, rows, generator=g),
        r_t=torch.randn(rows, generator=g),
        discount_t=torch.rand(rows, generator=g),
        allowed_t=torch.ones(0, dtype=torch.bool),
        valid=valid,
        weights=valid * (rows[1] / valid.sum(1, keepdim=True)),
        longest=STEPS + 2,
    )


def row(batch, k):
    """The batch of one policy."""
    found = {}
    for name in batch.__dataclass_fields__:
        value = getattr(batch, name)
        whole = not isinstance(value, torch.Tensor) or not value.numel()
        found[name] = value if whole else value[k : k + 1]
    return TransitionSequences(**found)


@pytest.mark.parametrize("kind", KINDS)
def test_following_a_sequence_is_stepping_through_it(kind):
    algorithm = make(kind, policies=2)
    network, batch = algorithm.network, sequences(2)
    with torch.no_grad():
        weights = network.acting(algorithm.online.parameters, None)
        found = network.values_of(weights, batch.features(network, weights).flatten(1, 2))
        found, state = found.view(2, SEQUENCES, STEPS + 1, 3), batch.states
        for t in range(STEPS + 1):
            values, state = network.step(weights, batch.inputs[:, :, t], state)
            torch.testing.assert_close(values, found[:, :, t])


def test_the_recurrent_layer_of_a_q_network_is_a_gru():
    algorithm = make("dqn", network={"dueling": False})
    of, cell, batch = algorithm.online.of(0), nn.GRUCell(8, 6), sequences()
    cell.weight_ih.data, cell.bias_ih.data = of["gates_in.weight"][0].T, of["gates_in.bias"][0, 0]
    cell.weight_hh.data = of["gates_memory.weight"][0].T
    cell.bias_hh.data = of["gates_memory.bias"][0, 0]
    weights = algorithm.network.acting(algorithm.online.parameters, None)
    with torch.no_grad():
        found, state = algorithm.network.step(weights, batch.inputs[:, :, 0], batch.states)
        x = (batch.inputs[0, :, 0] @ of["hidden0.weight"][0] + of["hidden0.bias"][0]).relu()
        kept = cell(x, batch.states[0])
    torch.testing.assert_close(state[0], kept)
    torch.testing.assert_close(found[0], kept @ of["head.weight"][0] + of["head.bias"][0])


def test_the_target_of_a_step_lies_n_steps_on_as_each_network_remembers_it():
    """By hand: double Q-learning, each network from the same stored state."""
    algorithm, batch = make("dqn", own={"huber": 1e9}), sequences()
    network = algorithm.network

    def values(stack, g):
        weights, state, found = (
            network.acting(stack.parameters, None),
            batch.states[:, g : g + 1],
            [],
        )
        for t in range(STEPS + 1):
            value, state = network.step(weights, batch.inputs[:, g : g + 1, t], state)
            found.append(value[0, 0])
        return found

    losses = []
    with torch.no_grad():
        for g in range(SEQUENCES):
            online, target = values(algorithm.online, g), values(algorithm.target, g)
            for t in range(STEPS):
                i, later = g * STEPS + t, min(t + 2, STEPS)
                best = online[later].argmax()
                aim = batch.r_t[0, i] + batch.discount_t[0, i] * target[later][best]
                losses.append(0.5 * (aim - online[t][batch.a_tm1[0, i]]) ** 2)
    part = Part(0, 1, algorithm.online.rows(0, 1), algorithm.target.rows(0, 1))
    found = algorithm.loss(batch, part)
    torch.testing.assert_close(found.losses[0].detach(), torch.stack(losses))


@pytest.mark.parametrize("kind", KINDS)
def test_steps_that_do_not_count_change_nothing(kind):
    """Whatever stands after the end of a sequence, and what the steps of a burn-in were paid."""
    burn_in = torch.tensor([[2, 0, 1]])
    batch = sequences(burn_in=burn_in)
    valid = batch.valid.clone().view(1, SEQUENCES, STEPS)
    valid[0, 1, 3:] = 0  # the second ends early
    after = batch.after.clone()
    after[0, 1] = after[0, 1].clamp(max=3)
    valid = valid.flatten(1)
    batch = replace(batch, valid=valid, after=after, weights=valid * (valid.numel() / valid.sum()))
    inputs, r_t = batch.inputs.clone(), batch.r_t.clone()
    inputs[0, 1, 4:] = 100.0
    r_t[valid == 0] = 50.0
    one, other = make(kind), make(kind)
    told = one.update(batch)
    others = other.update(replace(batch, inputs=inputs, r_t=r_t))
    for a, b in zip(told[:-1], others[:-1], strict=True):  # no actor
        assert torch.equal(a, b)
    assert torch.equal(one.online.flat, other.online.flat)
    assert told.errors.shape == (1, SEQUENCES)


@pytest.mark.parametrize("kind", KINDS)
def test_no_gradient_flows_back_through_a_burn_in(kind):
    burn_in = torch.tensor([[2, 0, 1]])
    network, algorithm = make(kind).network, make(kind)
    batch = sequences(burn_in=burn_in)
    inputs = batch.inputs.clone().requires_grad_()
    weights = network.plain(algorithm.online.parameters, None)
    features = replace(batch, inputs=inputs).features(network, weights)
    gradient = torch.autograd.grad(features[:, :, -1].sum(), inputs)[0][0].abs().sum(-1)
    for g, steps in enumerate(burn_in[0].tolist()):
        assert (gradient[g, :steps] == 0).all()
        assert (gradient[g, steps:] > 0).all()
    plain = replace(batch, burn_in=None).features(network, weights)
    assert torch.equal(plain, features), "what is remembered is the same"


@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_trains_as_its_policies_would_alone(kind):
    together, batch = make(kind, policies=3), sequences(3, burn_in=torch.ones(3, SEQUENCES))
    before = together.online.flat.detach().clone()
    for _ in range(4):
        told = together.update(batch)
    for k in range(3):
        alone = make(kind, first=k)
        for _ in range(4):
            own = alone.update(row(batch, k))
        torch.testing.assert_close(alone.online.flat[0], together.online.flat[k])
        for one, other in zip(own[:-1], told[:-1], strict=True):
            torch.testing.assert_close(one[0], other[k])
        assert (together.online.flat[k] - before[k]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_algorithm_goes_on_bit_for_bit(kind):
    options = {"network": {"noisy": True}, "own": {"target_every": 3}}
    first = make(kind, **options)
    for i in range(4):
        first.update(sequences(seed=i))
    second = make(kind, **options)
    second.restore(0, copy.deepcopy(first.state(0)))
    for algorithm in (first, second):
        for i in range(4, 8):
            algorithm.update(sequences(seed=i))
    assert torch.equal(first.online.flat, second.online.flat)
    assert torch.equal(first.target.flat, second.target.flat)


def test_the_priority_of_a_sequence_is_mostly_its_greatest_error():
    batch = sequences(burn_in=torch.tensor([[3, 0, 0]]))
    errors = torch.zeros(1, SEQUENCES, STEPS)
    errors[0, 0] = torch.tensor([9.0, 9.0, 9.0, -2.0, 0.0])
    errors[0, 2, 1] = 5.0
    found = batch.priorities(errors.flatten(1))[0].tolist()
    assert found == pytest.approx([0.9 * 2 + 0.1 * 1, 0.0, 0.9 * 5 + 0.1 * 1])


def test_what_is_told_of_values_is_the_mean_over_the_steps_that_count():
    algorithm, batch = make("dqn"), sequences(burn_in=torch.tensor([[4, 4, 0]]))
    with torch.no_grad():
        weights = algorithm.network.acting(algorithm.online.parameters, None)
        features = batch.features_tm1(algorithm.network, weights)
        values = algorithm.network.values_of(weights, features)
        taken = values.gather(-1, batch.a_tm1[..., None])[..., 0]
    expected = float(taken[batch.valid > 0].mean())
    assert algorithm.update(batch).value.item() == pytest.approx(expected, rel=1e-5)


def test_recurrent_ones_have_defaults_of_their_own_and_others_keep_theirs():
    config = spec_of("dqn").config
    assert (config.batch_size, config.experience.segment_length) == (256, 32)
    config = spec_of("dqn", batch_size=64, experience={"segment_length": 16}).config
    assert (config.batch_size, config.experience.segment_length) == (64, 16)
    config = PolicyConfig.model_validate({"algorithm": "dqn"})
    assert (config.batch_size, config.experience.segment_length) == (64, 100)
    assert (
        spec_of("dqn").specification
        != spec_of("dqn", experience={"segment_length": 16}).specification
    )


@pytest.mark.parametrize(
    "options",
    [
        {"experience": {"burn_in": 32}},
        {"experience": {"group": "all"}},
    ],
)
def test_what_cannot_be_is_told(options):
    with refuses(ValueError):
        spec_of("dqn", **options)


@pytest.mark.parametrize("name", ["Soft", "Plain"])
def test_algorithms_of_ones_own_with_heads_or_a_loss_keep_nothing_in_mind(name):
    with refuses(ConfigError):
        spec_of(f"policies.own_algorithms:{name}").network()


def test_algorithms_made_from_iqn_or_dqn_with_the_same_loss_may_be_recurrent():
    assert spec_of("policies.own_algorithms:Finer").network().memory == 6


def test_one_policy_that_is_recurrent_among_others_has_the_defaults_of_such():
    own = {"a": {"network": {"recurrent": 8}}}
    config = load_config({"game": "tag", "policy": {"algorithm": "dqn"}, "policies": own})
    found = config.policy_of("a")
    assert (found.batch_size, found.experience.segment_length) == (256, 32)
    said = {"batch_size": 64, "experience": {"segment_length": 100}}
    config = load_config({"game": "tag", "policy": {"algorithm": "dqn"} | said, "policies": own})
    found = config.policy_of("a")
    assert (found.batch_size, found.experience.segment_length) == (64, 100)
