"""The kernels of Q-learning, held to what torch derives of the same loss."""

import numpy as np
import pytest
import torch

from remuda.config import NetworkConfig, PolicyConfig
from remuda.policies.actions import DiscreteActions
from remuda.policies.algorithms.dqn import DQN
from remuda.policies.algorithms.fused_q import FusedQ, differentiate_q
from remuda.policies.algorithms.transition_algorithm import TransitionAlgorithm, Transitions
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.streams import torch_stream

pytestmark = pytest.mark.usefixtures("one_thread")

POLICIES, INPUTS, ACTIONS = 3, 5, 4


def made(hidden=(12, 9), policies=POLICIES, **options):
    own = {"double": True, "huber": 0.4, "target_every": 2} | options.pop("dqn", {})
    network = NetworkConfig(hidden=hidden, **options.pop("network", {}))
    config = PolicyConfig(algorithm="dqn", network=network, n_frames=1, dqn=own, **options)
    spec = PolicySpec("a", config, (INPUTS,), "float32", DiscreteActions((ACTIONS,)))
    streams = [torch_stream(0, "test", k) for k in range(policies)]
    algorithm = make_algorithm([spec] * policies, streams)
    for k in range(policies):
        algorithm.network.initialise(algorithm.online.of(k), torch_stream(0, "weights", k))
        algorithm.network.initialise(algorithm.target.of(k), torch_stream(0, "target", k))
    return algorithm


def drawn(samples=50, masked=False, weighed=False, policies=POLICIES, seed=0):
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


@pytest.mark.parametrize("hidden", [(12,), (12, 9, 70)], ids=str)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("dueling", [False, True], ids=["plain", "dueling"])
@pytest.mark.parametrize("double", [False, True], ids=["single", "double"])
@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("weighed", [False, True], ids=["alike", "weighed"])
def test_gradients_and_what_is_told_are_those_of_torch(
    hidden, activation, dueling, double, masked, weighed
):
    network = {"activation": activation, "dueling": dueling}
    algorithm = made(hidden, dqn={"double": double}, network=network)
    batch = drawn(masked=masked, weighed=weighed)
    part, found = algorithm._part(0, POLICIES), []
    assert algorithm._fused_for(batch, part) is not None
    for way in (TransitionAlgorithm._differentiate, DQN._differentiate):
        algorithm.online.gradients.fill_(7.0)
        told = [x.clone() for x in way(algorithm, batch, part)]
        found.append([algorithm.online.gradients.clone(), *told])
    theirs, ours = found
    assert theirs[0].abs().max() > 1e-3
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)


def test_updates_of_some_of_a_stack_touch_no_others():
    algorithm, alone = made(), made(policies=1)
    before = algorithm.online.flat.detach().clone()
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


def test_a_step_depends_on_its_own_policy_alone_to_the_bit():
    """Whatever is trained beside it, in whatever order, and however many samples came before."""
    together, batch = made(), drawn(samples=33)
    together.update(drawn(samples=64, seed=3))
    before = together.online.flat.detach().clone()
    moments = [together.learned(k) for k in range(POLICIES)]
    together.update(batch)
    for k in range(POLICIES):
        alone = made(policies=1)
        alone.restore_learned(0, moments[k])
        assert torch.equal(alone.online.flat[0], before[k])
        own = Transitions(*(getattr(batch, f)[k : k + 1] for f in batch.__dataclass_fields__))
        alone.update(own)
        assert torch.equal(alone.online.flat[0], together.online.flat[k])


@pytest.mark.parametrize(
    ("options", "suits"),
    [
        ({}, True),
        ({"network": {"noisy": True}}, False),
        ({"network": {"recurrent": 8}}, False),
    ],
    ids=str,
)
def test_other_networks_are_left_to_torch(options, suits):
    algorithm = made(policies=1, **options)
    assert FusedQ.suits(algorithm.network, algorithm.device) == suits
    torch.set_num_threads(2)
    assert not FusedQ.suits(algorithm.network, algorithm.device)


def test_a_loss_of_ones_own_is_not_taken_for_this_one():
    class Mine(DQN):
        def loss(self, batch, part):
            found = super().loss(batch, part)
            return found._replace(losses=2.0 * found.losses)

    algorithm = made()
    algorithm.__class__ = Mine
    assert algorithm._fused_for(drawn(), algorithm._part(0, POLICIES)) is None


def test_rooms_for_batches_of_many_sizes_do_not_grow_without_end(monkeypatch):
    algorithm = made()
    monkeypatch.setattr(DQN, "kept_bytes", 200_000)
    for samples in range(1, 60):
        algorithm.update(drawn(samples=samples))
    assert 1 < len(algorithm._fused) < 59
    assert sum(fused.nbytes for fused in algorithm._fused.values()) <= 200_000


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
    told = algorithm.update(drawn())
    before = told.errors.clone()
    algorithm.update(drawn(seed=1))
    assert torch.equal(told.errors, before)


def test_nothing_is_allowed_where_nothing_is_to_come():
    """Then the first action counts, times a discount of 0."""
    one = np.ones((1, 1), np.float32)
    q = np.float32([[[3.0, 5.0]]])
    by_q, outs, means = np.zeros_like(q), [np.zeros_like(one) for _ in range(3)], np.zeros((2, 1))
    never = np.zeros((1, 1, 2), np.bool_)
    action, plain = np.zeros((1, 1), np.int64), np.zeros((1, 0), np.float32)
    differentiate_q(
        q, q, never, one, 0 * one, q, action, plain, np.float32(9.0), by_q, *outs, means
    )
    assert outs[2][0, 0] == 1.0 - 3.0
    assert by_q.tolist() == [[[2.0, 0.0]]]
