"""Q-learners whose agents make more choices at once than have a value for each combination."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, MultiBinary, MultiDiscrete
from scipy import stats

import remuda
from remuda.config import PolicyConfig
from remuda.policies.actions import BranchingActions, DiscreteActions, JointActions, valued
from remuda.policies.algorithms.transition_algorithm import Part, Transitions, TransitionSequences
from remuda.policies.losses import huber, quantile_loss
from remuda.policies.selectors import EpsilonGreedy
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.system.rng import torch_rng

SIZES = (10, 11, 12)
FIRSTS = np.array([0, 10, 21])


def choose(sizes, outputs, masks, epsilon):
    """Actions [N, choices]."""
    actions = np.zeros((len(outputs), len(sizes)), np.int64)
    EpsilonGreedy(BranchingActions(sizes)).choose(
        np.asarray(outputs, np.float32),
        masks,
        np.random.default_rng(0),
        np.full(len(outputs), epsilon),
        actions,
        np.zeros(len(outputs), np.float32),
    )
    return actions


@pytest.mark.parametrize("masked", [False, True])
def test_the_best_action_has_the_best_possibility_of_each_choice(masked):
    random = np.random.default_rng(1)
    outputs = random.integers(0, 5, (400, sum(SIZES))).astype(np.float32)  # with equals
    masks = random.random((400, sum(SIZES) if masked else 0)) < 0.2
    found = choose(SIZES, outputs, masks, 0.0)
    values = np.where(masks, outputs, -1.0) if masked else outputs
    expected = np.stack([part.argmax(1) for part in np.split(values, FIRSTS[1:], 1)], 1)
    assert (found == expected).all()
    given = torch.from_numpy(masks) if masked else None
    graph = BranchingActions(SIZES).greedy(torch.from_numpy(outputs), given)
    assert (graph.numpy() == expected).all()


@pytest.mark.parametrize("masked", [False, True])
def test_exploration_draws_every_choice_by_itself_and_uniformly(masked):
    """Seventy choices: more combinations than there are 64-bit integers."""
    count, sizes = 60_000, (2, 3) * 35
    masks = np.ones((count, sum(sizes) if masked else 0), bool)
    if masked:
        masks[:, 3] = False  # the second possibility of the second choice
    outputs = np.tile(np.arange(sum(sizes), dtype=np.float32)[::-1], (count, 1))
    found = choose(sizes, outputs, masks, 0.3)
    explored = found[found.any(1)]
    assert 0.3 * 0.98 < len(explored) / count < 0.3 * 1.02
    for i, size in enumerate(sizes):
        counts = np.bincount(explored[:, i], minlength=size)
        if masked and i == 1:
            assert counts[1] == 0
            counts = counts[[0, 2]]
        assert stats.chisquare(counts).pvalue > 1e-5
    for one, other in ((0, 1), (2, 3), (5, 60), (68, 69)):
        table = np.zeros((sizes[one], sizes[other]))
        np.add.at(table, (explored[:, one], explored[:, other]), 1)
        table = table[:, table.any(0)]
        assert stats.chi2_contingency(table).pvalue > 1e-5


def make(kind, **options):
    tree = {
        "algorithm": kind,
        "n_frames": 1,
        "network": {"hidden": (8,)} | options.pop("network", {}),
        "iqn": {"quantiles": 4},
    }
    actions = valued(DiscreteActions(SIZES), "a", kind, True)
    assert isinstance(actions, BranchingActions)
    spec = PolicySpec("a", PolicyConfig.model_validate(tree | options), (2,), "float32", actions)
    algorithm = make_algorithm([spec] * 2, [torch_rng(0, "test", k) for k in range(2)])
    for k in range(2):
        algorithm.network.initialise(algorithm.online.of(k), torch_rng(0, "weights", k))
        algorithm.network.initialise(algorithm.target.of(k), torch_rng(0, "target", k))
    assert not algorithm.is_fused
    return algorithm


def batch_of(algorithm, samples=15):
    g = torch.Generator().manual_seed(0)
    at = (2, samples)
    allowed = torch.rand((*at, sum(SIZES)), generator=g) < 0.3
    allowed[..., FIRSTS] = True
    common = {
        "a_tm1": torch.stack([torch.randint(n, at, generator=g) for n in SIZES], -1),
        "r_t": torch.randn(at, generator=g),
        "discount_t": torch.rand(at, generator=g),
        "allowed_t": allowed,
    }
    if not algorithm.network.memory:
        seen = {name: torch.randn(*at, 2, generator=g) for name in ("s_tm1", "s_t")}
        return Transitions(**common, **seen)
    shape = (2, 3, samples // 3)
    return TransitionSequences(
        inputs=torch.randn(2, 3, shape[2] + 1, 2, generator=g),
        states=torch.randn(2, 3, algorithm.network.memory, generator=g),
        burn_in=None,
        after=(torch.arange(shape[2]) + 1).expand(shape).contiguous(),
        valid=torch.ones(at),
        weights=torch.ones(at),
        longest=shape[2],
        **common,
    )


def picked(values, choices):
    """By loops: the mean of the values [K, B, ..., A] of choices [K, B, C]."""
    found = torch.zeros(values.shape[:-1])
    for k in range(values.shape[0]):
        for b in range(values.shape[1]):
            columns = [int(choices[k, b, i]) + int(FIRSTS[i]) for i in range(len(SIZES))]
            found[k, b] = torch.stack([values[k, b, ..., c] for c in columns]).mean(0)
    return found


def best_allowed(values, allowed):
    values = values.masked_fill(~allowed, -torch.inf)
    return torch.stack([p.argmax(-1) for p in torch.split(values, SIZES, -1)], -1)


@pytest.mark.parametrize("memory", [0, 6])
@pytest.mark.parametrize("kind", ["dqn", "iqn"])
def test_the_loss_is_that_of_the_mean_of_choices(kind, memory):
    algorithm = make(kind, network={"recurrent": memory} if memory else {})
    network, batch = algorithm.network, batch_of(algorithm)
    part = Part(0, 2, algorithm.online, algorithm.target)
    streams = [torch.Generator() for _ in range(2)]
    for own, copy in zip(algorithm._rngs, streams, strict=True):
        copy.set_state(own.get_state())
    found = algorithm.loss(batch, part)

    def drawn():
        count = algorithm.config.iqn.quantiles
        shape = (3, 5, count) if memory else (15, count)
        return torch.stack([torch.rand(shape, generator=s) for s in streams]).view(2, 15, count)

    online, target = (network.acting(s.parameters, None) for s in (part.online, part.target))
    at_t = [batch.features_t(network, weights) for weights in (online, target)]
    best = best_allowed(network.values_of(online, at_t[0]), batch.allowed_t)
    seen = batch.features_tm1(network, online)
    if kind == "dqn":
        aim = batch.r_t + batch.discount_t * picked(network.values_of(target, at_t[1]), best)
        taken = picked(network.values_of(online, seen), batch.a_tm1)
        expected = huber(aim - taken, algorithm.config.dqn.huber)
    else:
        z_t = network.quantile_values_of(target, at_t[1], drawn())
        aim = batch.r_t[..., None] + batch.discount_t[..., None] * picked(z_t, best)
        quantiles = drawn()
        taken = picked(network.quantile_values_of(online, seen, quantiles), batch.a_tm1)
        expected = quantile_loss(taken, quantiles, aim, algorithm.config.iqn.huber)
    torch.testing.assert_close(found.values, taken)
    torch.testing.assert_close(found.losses, expected)


class Code(gymnasium.Env):
    """Five digits, shown one after the other in one number, are to be said all at once."""

    observation_space = Box(0, 1, (30,), np.float32)
    action_space = MultiDiscrete([6] * 5)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._digits = self.np_random.integers(0, 6, 5)
        return np.eye(6, dtype=np.float32)[self._digits].ravel(), {}

    def step(self, action):
        reward = float((np.asarray(action) == self._digits).mean())
        return np.zeros(30, np.float32), reward, True, False, {}


class Switches(Code):
    """Seventy switches: their combinations are beyond the integers of 64 bits."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = MultiBinary(70)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action):
        return np.ones(1, np.float32), float(np.mean(action)), True, False, {}


POLICY = {
    "network": {"hidden": [64]},
    "learning_rate": 3e-3,
    "batch_size": 64,
    "n_frames": 1,
    "n_steps": 1,
    "experience": {"learning_starts": 200, "segment_length": 1, "replay_ratio": 2.0},
    "exploration": {"start": 1.0, "end": 0.05, "decay_steps": 10_000},
}


@pytest.mark.slow
@pytest.mark.parametrize("game", [Code, Switches])
@pytest.mark.parametrize("algorithm", ["dqn", "iqn"])
def test_a_game_of_many_choices_is_learned_saved_and_played(algorithm, game, tmp_path):
    """Random play earns 1/6 and 1/2; all combinations are 7,776 and 2 ** 70."""
    result = remuda.train(
        game,
        env={"num_envs": 8},
        policy=POLICY | {"algorithm": algorithm, "iqn": {"quantiles": 8}},
        schedule="sequential",
        run={"turns": 20_000, "directory": tmp_path / "run", "evaluate_episodes": 50},
    )
    assert result.evaluation.returns.mean() > 0.9
    policy = remuda.load(tmp_path / "run")["agent_0"]
    env = game()
    seen, _ = env.reset(seed=3)
    total = 0.0
    for _ in range(50):
        action = policy.act(seen)
        assert env.action_space.contains(action)
        total += env.step(action)[1]
        seen, _ = env.reset()
    assert total / 50 > 0.9


def test_few_combinations_keep_a_value_each():
    few, many = (valued(DiscreteActions(s), "a", "dqn", True) for s in ((32, 32), (32, 33)))
    assert isinstance(few, JointActions)
    assert (few.num_outputs, many.num_outputs) == (1024, 65)
