"""Algorithms: they learn, only `online` gets gradients, and they go on where they were."""

import copy

import pytest
import torch

from remuda.config import NetworkConfig, PolicyConfig
from remuda.policies.actions import DiscreteActions
from remuda.policies.algorithms.transition_algorithm import Transitions
from remuda.policies.optimizer import Adam
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.system.rng import torch_rng

KINDS = ["dqn", "iqn"]


def make(kind, policies=1, first=0, **options):
    """A stack of policies, each with the random numbers of its number, from `first` on."""
    network = NetworkConfig(hidden=(32, 32), noisy=options.pop("noisy", False))
    own = {"target_every": options.pop("target_every", 200)} | (
        {"quantiles": 8} if kind == "iqn" else {}
    )
    config = PolicyConfig(algorithm=kind, network=network, n_frames=1, **{kind: own}, **options)
    specs = [PolicySpec("a", config, (2,), "float32", DiscreteActions((3,)))] * policies
    algorithm = make_algorithm(specs, [torch_rng(0, "test", first + k) for k in range(policies)])
    for k in range(policies):
        algorithm.network.initialise(algorithm.online.of(k), torch_rng(0, "weights", first + k))
    algorithm.target.flat.copy_(algorithm.online.flat.detach())
    return algorithm


def transitions(policies=1, batch=16, seed=0, discount=0.0):
    g = torch.Generator().manual_seed(seed)
    s = torch.rand(policies, batch, 2, generator=g)
    a = torch.randint(3, (policies, batch), generator=g)
    reward = s[..., 0] * (a == 1) - s[..., 1] * (a == 2)
    return Transitions(s, a, reward, torch.full_like(reward, discount), s.clone())


@pytest.mark.slow_cases("iqn-True")
@pytest.mark.parametrize(
    ("kind", "noisy"),
    [
        ("dqn", False),
        ("iqn", True),
        pytest.param("dqn", True, marks=pytest.mark.slow),
        pytest.param("iqn", False, marks=pytest.mark.slow),
    ],
)
def test_it_learns_the_value_of_actions(kind, noisy):
    algorithm = make(kind, learning_rate=3e-3, noisy=noisy)
    for i in range(600):
        algorithm.update(transitions(seed=i, batch=64))
    state = torch.tensor([[[0.9, 0.2], [0.1, 0.9]]])
    with torch.no_grad():
        weights = algorithm.network.acting(algorithm.online.parameters, None)
        values = algorithm.network.outputs(weights, state)[0]
    expected = torch.tensor([[0.0, 0.9, -0.2], [0.0, 0.1, -0.9]])
    assert (values - expected).abs().max() < 0.15


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_online_network_moves_until_the_target_is_renewed(kind):
    algorithm = make(kind, target_every=3)
    first = algorithm.target.flat.clone()
    for _ in range(2):
        algorithm.update(transitions(discount=0.9))
    assert torch.equal(algorithm.target.flat, first)
    assert not algorithm.target.flat.requires_grad
    algorithm.update(transitions(discount=0.9))
    assert torch.equal(algorithm.target.flat, algorithm.online.flat)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_trains_as_its_policies_would_alone(kind):
    together = make(kind, policies=3)
    for _ in range(5):
        together.update(transitions(policies=3))
    for k in range(3):
        alone = make(kind, first=k)
        batch = transitions(policies=3)
        own = Transitions(*(getattr(batch, f)[k : k + 1] for f in batch.__dataclass_fields__))
        for _ in range(5):
            alone.update(own)
        torch.testing.assert_close(alone.online.flat[0], together.online.flat[k])


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_algorithm_goes_on_bit_for_bit(kind):
    first = make(kind, noisy=True, target_every=3)
    for i in range(4):
        first.update(transitions(seed=i, discount=0.9))
    saved = copy.deepcopy(first.state(0))
    for i in range(4, 9):
        first.update(transitions(seed=i, discount=0.9))
    second = make(kind, noisy=True, target_every=3)
    second.restore(0, saved)
    for i in range(4, 9):
        second.update(transitions(seed=i, discount=0.9))
    assert torch.equal(first.online.flat, second.online.flat)
    assert torch.equal(first.target.flat, second.target.flat)


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_update_tells_is_of_each_policy_by_itself(kind):
    together, batch = make(kind, policies=3), transitions(policies=3, discount=0.9)
    batch.r_t[2] *= 100.0
    learned = together.update(batch)
    for k in range(3):
        alone = make(kind, first=k)
        own = Transitions(*(getattr(batch, f)[k : k + 1] for f in batch.__dataclass_fields__))
        for one, other in zip(learned[:-1], alone.update(own)[:-1], strict=True):
            torch.testing.assert_close(one[k : k + 1], other)
    for told in learned[:-1]:  # no actor
        assert len({str(one) for one in told.tolist()}) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_value_and_the_gradient_that_it_tells_are_those_before_the_update(kind):
    algorithm, batch = make(kind, max_grad_norm=1e-3), transitions(discount=0.9)
    head = algorithm.online.of(0)  # whatever is seen, an action is worth as much at any quantile
    head["head.weight"][:] = 0.0
    head["head.bias"][:] = torch.arange(4.0)
    seen = algorithm.network.acting(algorithm.online.parameters, None)
    with torch.no_grad():
        values = algorithm.network.outputs(seen, batch.s_tm1)
    taken = values.gather(-1, batch.a_tm1[..., None])
    algorithm.optimizer.learning_rates[0] = 0.0
    first, second = algorithm.update(batch), algorithm.update(batch)
    assert first.value.item() == pytest.approx(float(taken.mean()), rel=1e-5)
    assert first.value.item() == second.value.item() != 0.0
    assert first.gradient_norm.item() > 0.01  # before it was cut
    assert algorithm.online.gradients.norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_gradients_are_clipped_for_each_policy():
    algorithm = make("dqn", policies=2, max_grad_norm=1e-3)
    batch = transitions(policies=2)
    batch.r_t[0] *= 1e4
    algorithm.update(batch)
    norms = algorithm.online.gradients.norm(dim=1)
    assert (norms <= 1.001e-3).all()
    assert norms[1] > 0


def test_adam_is_that_of_torch_bit_for_bit():
    flat = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    theirs = [torch.nn.Parameter(row.clone()) for row in flat]
    optimizer = torch.optim.Adam(theirs, lr=1e-2, eps=1e-5, fused=True)
    gradients = torch.zeros_like(flat)
    ours = Adam(flat, gradients, [1e-2] * 3, [1e-5] * 3)
    for step in range(20):
        gradients.copy_(torch.randn(3, 50, generator=torch.Generator().manual_seed(step)))
        for row, gradient in zip(theirs, gradients, strict=True):
            row.grad = gradient.clone()
        ours.step()
        optimizer.step()
    assert torch.equal(flat, torch.stack([row.detach() for row in theirs]))
