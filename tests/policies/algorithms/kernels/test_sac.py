"""The kernels of SAC, compared with torch's derivatives of the same losses."""

import numpy as np
import pytest
import torch

from remuda.config import NetworkConfig, PolicyConfig
from remuda.policies.algorithms.kernels import sac
from remuda.policies.algorithms.sac import SAC
from remuda.policies.algorithms.transition_algorithm import TransitionAlgorithm, Transitions
from remuda.policies.continuous_actions import SquashedActions
from remuda.policies.networks.soft_actor_critic import LOG_TEMPERATURE
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.system.rng import torch_rng
from trained_policies import part_of

pytestmark = pytest.mark.usefixtures("one_thread")

POLICIES, INPUTS, SIZE = 3, 5, 2


def make(hidden=(12, 9), policies=POLICIES, activation="relu", large=False, **own):
    network = NetworkConfig(hidden=hidden, activation=activation, dueling=False)
    config = PolicyConfig(algorithm="sac", network=network, n_frames=1, sac=own)
    actions = SquashedActions(np.full(SIZE, -1, np.float32), np.full(SIZE, 3, np.float32))
    spec = PolicySpec("a", config, (INPUTS,), "float32", actions)
    streams = [torch_rng(0, "test", k) for k in range(policies)]
    algorithm = make_algorithm([spec] * policies, streams)
    for k in range(policies):
        algorithm.network.initialise(algorithm.online.of(k), torch_rng(0, "weights", k))
        algorithm.network.initialise(algorithm.target.of(k), torch_rng(0, "target", k))
        with torch.no_grad():
            algorithm.online.of(k)[LOG_TEMPERATURE].fill_(-0.5 - k)
            if large:  # some deviations are limited, and tanh is flat
                algorithm.online.of(k)["policy.bias"].copy_(torch.tensor([[30.0, 0.3, 1.9, -20.1]]))
    return algorithm


def draw(samples=205, weighted=False, policies=POLICIES, seed=0):
    g = torch.Generator().manual_seed(seed)
    shape = policies, samples
    return Transitions(
        s_tm1=torch.randn(*shape, INPUTS, generator=g),
        a_tm1=torch.rand(*shape, SIZE, generator=g) * 2 - 1,
        r_t=torch.randn(shape, generator=g),
        discount_t=torch.rand(shape, generator=g),
        s_t=torch.randn(*shape, INPUTS, generator=g),
        **({"weights": torch.rand(shape, generator=g)} if weighted else {}),
    )


def rows_of(batch, k):
    return Transitions(*(getattr(batch, f)[k : k + 1] for f in batch.__dataclass_fields__))


@pytest.mark.parametrize("hidden", [(12,), (12, 9, 70)], ids=str)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("learns", [False, True], ids=["fixed", "learned"])
@pytest.mark.parametrize("large", [False, True], ids=["usual", "large"])
def test_gradients_and_metrics_are_those_of_torch(hidden, activation, weighted, learns, large):
    batch = draw(weighted=weighted)
    found = []
    for method in (TransitionAlgorithm._differentiate, SAC._differentiate):
        algorithm = make(hidden, activation=activation, large=large, learn_temperature=learns)
        assert algorithm.is_fused
        algorithm.online.gradients.fill_(7.0)
        loss, value, errors, actor = method(algorithm, batch, part_of(algorithm, 0, POLICIES))
        found.append([algorithm.online.gradients.clone(), loss, value, errors, *actor])
        found[-1] += [stream.get_state() for stream in algorithm._rngs]
    wanted, ours = found
    assert wanted[0].abs().max() > 1e-3
    for mine, its in zip(ours, wanted, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=2e-5)


def test_equal_critics_share_the_gradient_of_their_minimum():
    found = []
    for method in (TransitionAlgorithm._differentiate, SAC._differentiate):
        algorithm = make()
        views = algorithm.online.parameters
        with torch.no_grad():
            for name in ("q_hidden0", "q_hidden1", "q"):
                for part in ("weight", "bias"):
                    first, second = (f"{name.replace('q', f'q{c}')}.{part}" for c in (1, 2))
                    views[second].copy_(views[first])
        method(algorithm, draw(), part_of(algorithm, 0, POLICIES))
        found.append(algorithm.online.gradients.clone())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_an_update_depends_on_its_own_policy_alone_to_the_bit():
    together, batch = make(), draw(samples=33)
    together.update(draw(samples=64, seed=3))
    states = [together.state(k) for k in range(POLICIES)]
    together.update(batch)
    for k in range(POLICIES):
        alone = make(policies=1)
        alone.restore(0, states[k])
        alone.update(rows_of(batch, k))
        assert torch.equal(alone.online.flat[0], together.online.flat[k])
        assert torch.equal(alone.target.flat[0], together.target.flat[k])


def test_updates_of_part_of_a_stack_change_no_other_policy():
    algorithm = make()
    before, targets = algorithm.online.flat.detach().clone(), algorithm.target.flat.clone()
    algorithm.update(rows_of(draw(), 1), 1, 2)
    assert torch.equal(algorithm.online.flat[[0, 2]], before[[0, 2]])
    assert torch.equal(algorithm.target.flat[[0, 2]], targets[[0, 2]])
    assert not torch.equal(algorithm.online.flat[1], before[1])


@pytest.mark.parametrize("count", [1, 7])
def test_the_size_of_a_chunk_changes_only_last_bits(monkeypatch, count):
    whole, cut, batch = make(), make(), draw(samples=61)
    whole.update(batch)
    monkeypatch.setattr(sac, "CHUNK", count)
    monkeypatch.setattr(sac, "step_sac", sac.step_sac.py_func)
    cut.update(batch)
    torch.testing.assert_close(cut.online.flat, whole.online.flat, rtol=1e-5, atol=1e-6)


def test_a_class_with_its_own_loss_is_not_replaced_by_kernels():
    class Own(SAC):
        def loss(self, batch, part):
            return super().loss(batch, part)

    algorithm = make()
    algorithm.__class__ = Own
    assert not algorithm.is_fused


@pytest.mark.parametrize("critic", ["q1", "q2"])
@pytest.mark.parametrize("is_target", [False, True], ids=["online", "target"])
def test_numbers_that_are_not_finite_reach_the_loss(critic, is_target):
    """Red before: Numba's `min` ignored the second critic's target if it was NaN."""
    algorithm = make(policies=1)
    stack = algorithm.target if is_target else algorithm.online
    with torch.no_grad():
        stack.parameters[f"{critic}.bias"].fill_(float("nan"))
    assert torch.isnan(algorithm.update(draw(policies=1)).loss).all()


def test_a_share_of_one_copies_the_critics():
    algorithm = make(tau=1.0)
    algorithm.update(draw())
    assert torch.equal(algorithm.target.flat, algorithm.online.flat.detach())


def test_own_squashed_actions_are_sampled_by_their_own_class():
    class Own(SquashedActions):
        pass

    algorithm = make()
    algorithm.network.actions.__class__ = Own
    assert not algorithm.is_fused
