"""SAC: its losses, its squashed actions, and stacks of it."""

import math
from dataclasses import is_dataclass, replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from refusals import refuses
from remuda.config import NetworkConfig, PolicyConfig, load_config
from remuda.errors import ConfigError, ContractError
from remuda.policies.actions import DiscreteActions
from remuda.policies.algorithms.sac import SAC
from remuda.policies.algorithms.transition_algorithm import Part, Transitions
from remuda.policies.continuous_actions import ContinuousActions, SquashedActions
from remuda.policies.networks.soft_actor_critic import CRITICS, LOG_TEMPERATURE
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.system.rng import torch_rng

LOW, HIGH = np.array([0.0, -2.0], np.float32), np.array([1.0, 6.0], np.float32)
CONTINUOUS, DISCRETE = SquashedActions(LOW, HIGH), DiscreteActions((3,))
ACTIONS = pytest.mark.parametrize("actions", [CONTINUOUS, DISCRETE], ids=["continuous", "discrete"])


@pytest.fixture(params=[1, 2], ids=["kernels", "torch"])
def threads(request):
    """With one thread, kernels compute the updates of continuous actions."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


THREADS = pytest.mark.usefixtures("threads")


def make(actions, policies=1, first=0, **sac):
    network = NetworkConfig(hidden=(16, 12), dueling=False)
    config = PolicyConfig(algorithm="sac", network=network, batch_size=32, sac=sac)
    specs = [PolicySpec("a", config, (2,), "float32", actions)] * policies
    algorithm = make_algorithm(specs, [torch_rng(0, "test", first + k) for k in range(policies)])
    for k in range(policies):
        algorithm.network.initialise(algorithm.online.of(k), torch_rng(0, "weights", first + k))
        algorithm.load(k, algorithm.online.flat[k].detach().clone())
    return algorithm


def batch_of(actions, policies=1, size=32, seed=0, allowed=None):
    g = torch.Generator().manual_seed(seed)
    s, s_t = torch.rand(2, policies, size, 2, generator=g)
    a = torch.randint(3, (policies, size), generator=g)
    if isinstance(actions, SquashedActions):
        a = torch.rand(policies, size, 2, generator=g) * 2 - 1
    r, ends = torch.rand(2, policies, size, generator=g)
    masks = {} if allowed is None else {"allowed_tm1": allowed, "allowed_t": allowed}
    return Transitions(s, a, r, 0.9 * (ends > 0.2), s_t, **masks)


def layers_of(algorithm, head, target=False):
    """The weights of the first policy's head, as plain torch would have them."""
    stack = algorithm.target if target else algorithm.online
    named = {name: values[0].detach().clone() for name, values in stack.parameters.items()}
    names = (f"{head}_hidden0", f"{head}_hidden1", head)
    return [(named[f"{n}.weight"].requires_grad_(), named[f"{n}.bias"]) for n in names]


def through(layers, x):
    for weight, bias in layers[:-1]:
        x = torch.relu(x @ weight + bias)
    return x @ layers[-1][0] + layers[-1][1]


def gradients_of(algorithm, head):
    names = (f"{head}_hidden0", f"{head}_hidden1", head)
    return [algorithm.online.gradient_views[f"{n}.weight"][0] for n in names]


@pytest.mark.parametrize("masked", [False, True])
def test_the_discrete_gradients_are_those_of_the_paper(masked):
    """Christodoulou 2019, equations 3, 10, 11 and 12, written out with plain torch."""
    algorithm = make(DISCRETE, temperature=0.3)
    allowed = torch.ones(1, 32, 3, dtype=torch.bool)
    allowed[0, ::2, 1] = False
    batch = batch_of(DISCRETE, allowed=allowed if masked else None)
    policy, (q1, q2) = layers_of(algorithm, "policy"), [layers_of(algorithm, q) for q in CRITICS]
    targets = [layers_of(algorithm, q, target=True) for q in CRITICS]
    gone = ~allowed[0] if masked else torch.zeros(32, 3, dtype=torch.bool)

    def pi(s):
        return through(policy, s).masked_fill(gone, -1e30).softmax(-1)

    def plogp(p):
        return torch.where(p > 0, p * p.clamp(min=1e-30).log(), 0.0).sum(-1)

    with torch.no_grad():
        p, q = pi(batch.s_t[0]), torch.minimum(*(through(t, batch.s_t[0]) for t in targets))
        target = batch.r_t[0] + batch.discount_t[0] * ((p * q).sum(-1) - 0.3 * plogp(p))
    row = torch.arange(32), batch.a_tm1[0]
    both = [through(q, batch.s_tm1[0]) for q in (q1, q2)]
    critic = sum(0.5 * (q[row] - target).square().mean() for q in both)
    p = pi(batch.s_tm1[0])
    actor = (0.3 * plogp(p) - (p * torch.minimum(*both).detach()).sum(-1)).mean()
    metrics = algorithm.update(batch).actor
    scale = 1.0  # the norm is below the limit
    for head, layers, loss in (("q1", q1, critic), ("q2", q2, critic), ("policy", policy, actor)):
        wanted = torch.autograd.grad(loss, [weight for weight, _ in layers], retain_graph=True)
        for found, each in zip(gradients_of(algorithm, head), wanted, strict=True):
            torch.testing.assert_close(found, scale * each, rtol=1e-4, atol=1e-6)
    entropies = -plogp(p).mean()
    assert [each.item() for each in metrics] == pytest.approx(
        [actor.item(), critic.item(), entropies.item(), 0.3], abs=1e-5
    )
    found = algorithm.online.gradient_views[LOG_TEMPERATURE].item()
    targets = 0.5 * (~gone).sum(-1).log().mean()
    assert found == pytest.approx((entropies - targets).item(), abs=1e-5)


@THREADS
def test_the_continuous_gradients_are_those_of_the_paper():
    """Haarnoja et al. 2018, equations 5 to 9 and 18, with `torch.distributions`."""
    algorithm = make(CONTINUOUS, temperature=0.3)
    batch = batch_of(CONTINUOUS)
    policy, (q1, q2) = layers_of(algorithm, "policy"), [layers_of(algorithm, q) for q in CRITICS]
    targets = [layers_of(algorithm, q, target=True) for q in CRITICS]
    normals = torch.randn(2, 32, 2, generator=torch_rng(0, "test", 0))

    def sampled(s, z):
        mean, log_scale = through(policy, s).chunk(2, -1)
        base = torch.distributions.Normal(mean, log_scale.exp())
        squash = torch.distributions.transforms.TanhTransform(cache_size=1)
        a = squash(mean + log_scale.exp() * z)
        return a, torch.distributions.TransformedDistribution(base, squash).log_prob(a).sum(-1)

    def q_of(layers, s, a):
        return through(layers, torch.cat((a, s), -1))[:, 0]

    with torch.no_grad():
        a, log_pi = sampled(batch.s_t[0], normals[0])
        q = torch.minimum(*(q_of(t, batch.s_t[0], a) for t in targets))
        target = batch.r_t[0] + batch.discount_t[0] * (q - 0.3 * log_pi)
    taken = [q_of(q, batch.s_tm1[0], batch.a_tm1[0]) for q in (q1, q2)]
    critic = sum(0.5 * (q - target).square().mean() for q in taken)
    a, log_pi = sampled(batch.s_tm1[0], normals[1])
    actor = (0.3 * log_pi - torch.minimum(*(q_of(q, batch.s_tm1[0], a) for q in (q1, q2)))).mean()
    metrics = algorithm.update(batch).actor
    for head, layers, loss in (("q1", q1, critic), ("q2", q2, critic), ("policy", policy, actor)):
        wanted = torch.autograd.grad(loss, [weight for weight, _ in layers], retain_graph=True)
        for found, each in zip(gradients_of(algorithm, head), wanted, strict=True):
            torch.testing.assert_close(found, each, rtol=1e-4, atol=1e-6)
    found = algorithm.online.gradient_views[LOG_TEMPERATURE].item()
    assert found == pytest.approx((-log_pi.mean() + 2.0).item(), abs=1e-4)
    assert [each.item() for each in metrics] == pytest.approx(
        [actor.item(), critic.item(), -log_pi.mean().item(), 0.3], abs=1e-4
    )


@THREADS
@ACTIONS
def test_a_stack_trains_as_its_policies_would_alone(actions):
    together = make(actions, policies=3)
    for seed in range(4):
        together.update(batch_of(actions, 3, seed=seed))
    for k in range(3):
        alone = make(actions, first=k)
        for seed in range(4):
            batch = batch_of(actions, 3, seed=seed)
            parts = (getattr(batch, name)[k : k + 1] for name in ("s_tm1", "a_tm1", "r_t"))
            alone.update(Transitions(*parts, batch.discount_t[k : k + 1], batch.s_t[k : k + 1]))
        torch.testing.assert_close(together.online.flat[k], alone.online.flat[0])
        torch.testing.assert_close(together.target.flat[k], alone.target.flat[0])


@THREADS
@ACTIONS
def test_it_goes_on_where_it_was(actions):
    first, second = make(actions, policies=2), make(actions, policies=2, first=5)
    for seed in range(3):
        first.update(batch_of(actions, 2, seed=seed))
    for k in range(2):
        second.restore(k, first.state(k))
    for algorithm in (first, second):
        algorithm.update(batch_of(actions, 2, seed=9))
    assert torch.equal(first.online.flat, second.online.flat)
    assert torch.equal(first.target.flat, second.target.flat)


@THREADS
def test_target_critics_move_by_tau():
    algorithm = make(CONTINUOUS, tau=0.25)
    before = algorithm.target.flat.clone()
    algorithm.update(batch_of(CONTINUOUS))
    wanted = before + 0.25 * (algorithm.online.flat.detach() - before)
    torch.testing.assert_close(algorithm.target.flat, wanted)


@THREADS
def test_a_fixed_temperature_stays():
    algorithm = make(CONTINUOUS, learn_temperature=False, temperature=0.2)
    for seed in range(3):
        algorithm.update(batch_of(CONTINUOUS, seed=seed))
    found = algorithm.online.parameters[LOG_TEMPERATURE].item()
    assert found == pytest.approx(math.log(0.2))


def test_log_probabilities_of_squashed_actions_integrate_to_one():
    """By the trapezoid rule over actions in (-1, 1), for means and scales near and far from 0."""
    actions = SquashedActions(LOW[:1], HIGH[:1])
    for mean, log_scale in ((0.0, 0.0), (1.5, -1.0), (-0.3, 0.7)):
        before = torch.linspace(-12, 12, 200_001)[None, :, None].double()
        outputs = torch.tensor([mean, log_scale]).double().expand(1, before.shape[1], 2)
        normals = (before - mean) / math.exp(log_scale)
        points, logs = actions.sample(outputs, normals)
        assert torch.trapezoid(logs[0].exp(), points[0, :, 0]) == pytest.approx(1.0, abs=1e-3)


def test_acting_draws_from_the_distribution_that_is_learned():
    outputs = np.array([[[0.4, -0.2, -0.5, 0.1]] * 20_000], np.float32)
    actions, logs = np.zeros((1, 20_000, 2), np.float32), np.zeros((1, 20_000), np.float32)
    none = np.zeros((1, 20_000, 0), np.bool_)
    CONTINUOUS.choose_for_all(outputs, none, [np.random.default_rng(0)], actions, logs)
    g = torch.Generator().manual_seed(0)
    points, wanted = CONTINUOUS.sample(
        torch.from_numpy(outputs), torch.randn(1, 20_000, 2, generator=g)
    )
    assert np.abs(actions).max() < 1.0
    assert actions.mean(1) == pytest.approx(points.mean(1).numpy(), abs=0.02)
    assert logs.mean() == pytest.approx(wanted.mean().item(), abs=0.03)
    CONTINUOUS.choose_for_all(outputs[:, :1], none[:, :1], None, actions[:, :1], logs[:, :1])
    assert actions[0, 0] == pytest.approx(np.tanh([0.4, -0.2]))
    greedy = CONTINUOUS.greedy(torch.from_numpy(outputs[0, :1]), None).numpy()
    assert greedy == pytest.approx(CONTINUOUS.within_bounds(actions[0, :1]))
    assert Box(LOW, HIGH).contains(greedy[0])


def test_actions_without_bounds_are_refused():
    bounds = np.array([-np.inf, 0.0], np.float32), np.array([1.0, 1.0], np.float32)
    with refuses(ContractError, "agent_0", "ppo"):
        SAC.actions_for(ContinuousActions(*bounds), "agent_0", "sac")


def test_the_default_target_of_masked_actions_can_be_reached():
    """Red before: half of the entropy of all actions was above that of the few allowed ones."""
    algorithm = make(DISCRETE)
    allowed = torch.zeros(1, 32, 3, dtype=torch.bool)
    allowed[..., 0] = True
    allowed[0, ::2, 1] = True
    algorithm.update(batch_of(DISCRETE, allowed=allowed))
    before = algorithm.online.parameters[LOG_TEMPERATURE].item()
    for seed in range(20):
        algorithm.update(batch_of(DISCRETE, seed=seed, allowed=allowed))
    assert algorithm.online.parameters[LOG_TEMPERATURE].item() < before < 0.0


def test_a_fixed_temperature_is_the_one_of_the_settings_whatever_the_weights_hold():
    algorithm, other = (make(DISCRETE, learn_temperature=False, temperature=0.2) for _ in range(2))
    algorithm.online.parameters[LOG_TEMPERATURE].data.fill_(3.0)
    for each in (algorithm, other):
        each.update(batch_of(DISCRETE))
    for found, wanted in zip(
        gradients_of(algorithm, "policy"), gradients_of(other, "policy"), strict=True
    ):
        assert torch.equal(found, wanted)


@THREADS
def test_infinite_buffers_stay_in_the_target():
    algorithm = make(CONTINUOUS)
    algorithm.online.flat.data[0, -1] = algorithm.target.flat[0, -1] = -math.inf
    algorithm.renew_targets(Part(0, 1, algorithm.online.rows(0, 1), algorithm.target.rows(0, 1)))
    assert algorithm.target.flat[0, -1] == -math.inf


@pytest.mark.parametrize(
    ("key", "value"), [("temperature", math.inf), ("target_entropy", math.nan), ("tau", 0.0)]
)
def test_numbers_that_nothing_can_be_learned_with_are_refused(key, value):
    with refuses(ConfigError, f"sac.{key}"):
        load_config({"policy": {"algorithm": "sac", "sac": {key: value}}})


@THREADS
@ACTIONS
def test_weights_of_prioritised_replay_do_not_change_temperature_and_entropy(actions):
    batch = batch_of(actions)
    plain = make(actions, temperature=0.3).update(batch).actor
    weighted = (
        make(actions, temperature=0.3)
        .update(
            replace(batch, weights=torch.full((1, 32), 0.5))
            if is_dataclass(batch)
            else batch._replace(weights=torch.full((1, 32), 0.5))
        )
        .actor
    )
    assert weighted.temperature.item() == pytest.approx(0.3)
    assert weighted.entropy.item() == pytest.approx(plain.entropy.item())
    assert weighted.value_loss.item() == pytest.approx(plain.value_loss.item() / 2)
