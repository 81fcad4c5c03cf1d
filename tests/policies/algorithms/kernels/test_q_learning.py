"""The kernels of Q-learning, held to what torch derives of the same loss."""

import numpy as np
import pytest
import torch

from remuda.config import NetworkConfig, PolicyConfig
from remuda.policies.acting import ActingStack
from remuda.policies.actions import DiscreteActions
from remuda.policies.algorithms.dqn import DQN
from remuda.policies.algorithms.iqn import IQN
from remuda.policies.algorithms.kernels import dqn, iqn
from remuda.policies.algorithms.kernels.dqn import arrays_of, differentiate_q
from remuda.policies.algorithms.transition_algorithm import TransitionAlgorithm, Transitions
from remuda.policies.networks.kernels.compiled_pass import CompiledPass
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.system.rng import torch_rng
from trained_policies import part_of

pytestmark = pytest.mark.usefixtures("one_thread")

POLICIES, INPUTS, ACTIONS = 3, 5, 4


KINDS = {"dqn": DQN, "iqn": IQN}


def made(hidden=(12, 9), policies=POLICIES, kind="dqn", **options):
    own = {"double": True, "huber": 0.4, "target_every": 2} | options.pop("own", {})
    if kind == "iqn":
        own |= {"quantiles": 5, "cosines": 7}
    network = NetworkConfig(hidden=hidden, **options.pop("network", {}))
    config = PolicyConfig(algorithm=kind, network=network, n_frames=1, **{kind: own}, **options)
    spec = PolicySpec("a", config, (INPUTS,), "float32", DiscreteActions((ACTIONS,)))
    streams = [torch_rng(0, "test", k) for k in range(policies)]
    algorithm = make_algorithm([spec] * policies, streams)
    for k in range(policies):
        algorithm.network.initialise(algorithm.online.of(k), torch_rng(0, "weights", k))
        algorithm.network.initialise(algorithm.target.of(k), torch_rng(0, "target", k))
    return algorithm


def drawn(samples=205, masked=False, weighed=False, policies=POLICIES, seed=0):
    g = torch.Generator().manual_seed(seed)
    shape = policies, samples
    batch = {
        "s_tm1": torch.randn(*shape, INPUTS, generator=g),
        "a_tm1": torch.randint(ACTIONS, shape, generator=g),
        "r_t": torch.randn(shape, generator=g),
        "discount_t": torch.rand(shape, generator=g),
        "s_t": torch.randn(*shape, INPUTS, generator=g),
    }
    if masked:
        batch["allowed_t"] = torch.rand(*shape, ACTIONS, generator=g) < 0.5
        batch["allowed_t"][..., 2] = True
    if weighed:
        batch["weights"] = torch.rand(shape, generator=g)
    return Transitions(**batch)


FIXED = drawn()
"""A batch of 32 bits."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hidden", [(12,), (12, 9, 70)], ids=str)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("dueling", [False, True], ids=["plain", "dueling"])
@pytest.mark.parametrize("double", [False, True], ids=["single", "double"])
@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("weighed", [False, True], ids=["alike", "weighed"])
def test_gradients_and_what_is_told_are_those_of_torch(
    kind, hidden, activation, dueling, double, masked, weighed
):
    network = {"activation": activation, "dueling": dueling}
    batch = drawn(masked=masked, weighed=weighed)
    found = []
    for way in (TransitionAlgorithm._differentiate, KINDS[kind]._differentiate):
        algorithm = made(hidden, kind=kind, own={"double": double}, network=network)
        assert algorithm.is_fused
        algorithm.online.gradients.fill_(7.0)
        part = part_of(algorithm, 0, POLICIES)
        metrics = [x.clone() for x in way(algorithm, batch, part)[:3]]
        found.append([algorithm.online.gradients.clone(), *metrics])
        found[-1] += [stream.get_state() for stream in algorithm._rngs]
    theirs, ours = found
    assert theirs[0].abs().max() > 1e-3
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_updates_of_some_of_a_stack_touch_no_others(kind):
    algorithm, alone = made(kind=kind), made(policies=1, kind=kind)
    before = algorithm.online.flat.detach().clone()
    alone._rngs[0].set_state(algorithm._rngs[1].get_state())
    batch = drawn()
    own = Transitions(*(getattr(batch, f)[1:2] for f in batch.__dataclass_fields__))
    algorithm.update(own, 1, 2)
    assert torch.equal(algorithm.online.flat[[0, 2]], before[[0, 2]])
    alone.load(0, before[1].clone())
    with torch.no_grad():
        alone.target.flat[0].copy_(algorithm.target.flat[1])
    alone.update(own, 0, 1)
    assert torch.equal(alone.online.flat[0], algorithm.online.flat[1])
    assert not torch.equal(before[1], algorithm.online.flat[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_depends_on_its_own_policy_alone_to_the_bit(kind):
    """Whatever is trained beside it, in whatever order, and however many samples came before."""
    together, batch = made(kind=kind), drawn(samples=33)
    together.update(drawn(samples=64, seed=3))
    before = together.online.flat.detach().clone()
    moments = [together.state(k) for k in range(POLICIES)]
    together.update(batch)
    for k in range(POLICIES):
        alone = made(policies=1, kind=kind)
        alone.restore(0, moments[k])
        assert torch.equal(alone.online.flat[0], before[k])
        own = Transitions(*(getattr(batch, f)[k : k + 1] for f in batch.__dataclass_fields__))
        alone.update(own)
        assert torch.equal(alone.online.flat[0], together.online.flat[k])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 7])
def test_a_chunk_of_samples_ends_anywhere_to_the_bit(monkeypatch, kind, count):
    whole, cut, batch = made(kind=kind), made(kind=kind), drawn(samples=61)
    whole.update(batch)
    steps = {"dqn": (dqn, "step_q"), "iqn": (iqn, "step_iqn")}
    module, name = steps[kind]
    if kind == "dqn":
        monkeypatch.setattr(module, "CHUNK", count)
        monkeypatch.setattr(module, name, getattr(module, name).py_func)
    else:
        cut._fused.samples = count
    cut.update(batch)
    assert torch.equal(cut.online.flat, whole.online.flat)


def test_cosines_are_those_of_equation_4():
    quantiles = np.float32([0.0, 1e-4, 0.25, 0.5, 0.9, 1.0])
    found = np.zeros((6, 64), np.float32)
    iqn.write_cosines(quantiles, found)
    metrics = np.cos(np.pi * np.arange(64) * quantiles.astype(np.float64)[:, None])
    np.testing.assert_allclose(found, metrics, atol=2e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "suits"),
    [
        ({}, True),
        ({"network": {"noisy": True}}, False),
        ({"network": {"recurrent": 8}}, False),
    ],
    ids=str,
)
def test_other_networks_are_left_to_torch(kind, options, suits):
    algorithm = made(policies=1, kind=kind, **options)
    assert algorithm.is_fused == suits
    torch.set_num_threads(2)
    assert not algorithm.is_fused


@pytest.mark.parametrize(
    ("kind", "method"), [("dqn", "loss"), ("iqn", "loss"), ("iqn", "_draw_quantiles")]
)
def test_a_loss_of_ones_own_is_not_taken_for_this_one(kind, method):
    base = KINDS[kind]
    mine = type("Mine", (base,), {method: lambda *_: None})
    algorithm = made(kind=kind)
    algorithm.__class__ = mine
    assert not algorithm.is_fused


def test_what_is_no_number_is_seen_in_the_loss_and_goes_with_the_update():
    algorithm, batch = made(), drawn()
    batch.r_t[1, 3] = torch.nan
    learned = algorithm.learned(1)
    loss = algorithm.update(batch).loss
    assert torch.isfinite(loss).tolist() == [True, False, True]
    algorithm.restore_learned(1, learned)
    assert torch.isfinite(algorithm.update(drawn(seed=1)).loss).all()
    assert all(algorithm.is_finite(k) for k in range(POLICIES))


def test_a_value_that_is_no_number_is_taken_as_torch_takes_it():
    """Red before: it was passed over where it was not the first."""
    algorithm, batch = made(), drawn()
    with torch.no_grad():
        algorithm.target.parameters["head.bias"][1, 0, 2] = torch.nan
    algorithm.config.dqn.__dict__["double"] = False
    loss = algorithm.update(batch).loss
    assert torch.isfinite(loss).tolist() == [True, False, True]


def test_what_an_update_told_stays_as_it_was():
    algorithm = made()
    metrics = algorithm.update(drawn())
    before = metrics.errors.clone()
    algorithm.update(drawn(seed=1))
    assert torch.equal(metrics.errors, before)


def test_nothing_is_allowed_where_nothing_is_to_come():
    """Then the first action counts, times a discount of 0."""
    batch = drawn(samples=1, policies=1)
    batch.discount_t[:], batch.r_t[:], batch.a_tm1[:] = 0.0, 1.0, 0
    never = np.zeros((1, 1, 2), np.bool_)
    arrays = arrays_of(batch)._replace(allowed_t=never)
    q = np.float32([[3.0, 5.0]])
    by_q, metrics, means = np.zeros_like(q), np.zeros((3, 1, 1), np.float32), np.zeros((2, 1))
    differentiate_q(0, 0, q, q, q, arrays, np.float32(9.0), by_q, metrics, means)
    assert metrics[2, 0, 0] == 1.0 - 3.0
    assert by_q.tolist() == [[2.0, 0.0]]


@pytest.mark.parametrize("kind", KINDS)
def test_what_torch_takes_by_default_changes_nothing(kind):
    """Red before: with 64 bits, kernels read and wrote halves of numbers."""
    found = []
    for default in (torch.float32, torch.float64):
        torch.set_default_dtype(default)
        try:
            algorithm = made(kind=kind)
            batch = FIXED
            algorithm.update(batch)
            stack = ActingStack(algorithm.network, [None] * POLICIES, 6)
            for k in range(POLICIES):
                stack.load(k, algorithm.weights(k))
            stack.inputs[...] = 0.5
            found.append((algorithm.online.flat.detach(), stack.outputs(0, POLICIES).copy()))
        finally:
            torch.set_default_dtype(torch.float32)
    assert torch.equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hidden", [(12,), (12, 9, 70)], ids=str)
@pytest.mark.parametrize("counts", [(4, 4, 4), (0, 30, 1)], ids=str)
def test_compiled_passes_say_what_torch_says(kind, hidden, counts):
    """To the bit the same whether streams are gathered or not."""
    algorithm = made(hidden, kind=kind)
    begins = np.concatenate(([0], np.cumsum(counts)))
    gathered = ActingStack(algorithm.network, [None] * POLICIES, begins[-1], gathered=True)
    most = max(counts)
    stack = ActingStack(algorithm.network, [None] * POLICIES, most)
    streams = np.random.default_rng(0).permutation(begins[-1])
    seen = np.random.default_rng(1).standard_normal((begins[-1], INPUTS), np.float32)
    for k in range(POLICIES):
        for each in (gathered, stack):
            each.load(k, algorithm.weights(k))
        stack.inputs[k, : counts[k]] = seen[streams[begins[k] : begins[k + 1]]]
    said, metrics = stack.outputs(0, POLICIES), gathered.gathered_pass(seen, begins, streams)
    assert isinstance(stack.parts[0, POLICIES], CompiledPass)
    with torch.inference_mode():
        weights = algorithm.network.acting(algorithm.online.parameters, None)
        wanted = algorithm.network.outputs(weights, torch.from_numpy(stack.inputs)).numpy()
    np.testing.assert_allclose(said, wanted, 1e-4, 1e-5)
    for k in range(POLICIES):
        assert np.array_equal(metrics[begins[k] : begins[k + 1]], said[k, : counts[k]])
