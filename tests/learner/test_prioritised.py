"""A learner of prioritised steps: what they count, and what is learned of them."""

import numpy as np
import pytest
import torch

from assembled import assemble, spec_of
from policies.own_algorithms import Soft
from remuda.assembly.memory_plan import plan
from remuda.config import PolicyConfig, load_config, overlay
from remuda.config.unused_settings import unused_settings
from remuda.experience.priorities import Priorities
from remuda.learner.replay import FIRST_BETA
from remuda.policies.actions import DiscreteActions
from remuda.policies.algorithms.transition_algorithm import Transitions
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.rng import torch_rng
from remuda.system.scoreboard import Learn
from support import Tape

TREE = {
    "game": "support:Tape",
    "schedule": "sequential",
    "policy": {
        "algorithm": "dqn",
        "network": {"hidden": [8]},
        "batch_size": 16,
        "exploration": {"decay_steps": 200},
        "experience": {
            "learning_starts": 32,
            "replay_ratio": 2.0,
            "capacity": 500,
            "segment_length": 10,
            "prioritised": 0.7,
        },
    },
    "learners": {"processes": 1},
    "run": {"turns": 100_000},
}


def make(kind):
    """An algorithm of one policy."""
    tree = {"algorithm": kind, "n_frames": 1, "max_grad_norm": 1e9, "network": {"hidden": (8,)}}
    spec = PolicySpec("a", PolicyConfig.model_validate(tree), (2,), "f4", DiscreteActions((3,)))
    algorithm = make_algorithm([spec], [torch_rng(0, "test")])
    algorithm.network.initialise(algorithm.online.of(0), torch_rng(0, "weights"))
    algorithm.target.flat.copy_(algorithm.online.flat.detach())
    return algorithm


def batch(rows, weights=None):
    g = torch.Generator().manual_seed(0)
    s, other = torch.rand(1, 6, 2, generator=g), torch.rand(1, 6, 2, generator=g)
    a = torch.randint(3, (1, 6), generator=g)
    r, discount = torch.rand(1, 6, generator=g), torch.full((1, 6), 0.5)
    weighed = {} if weights is None else {"weights": torch.tensor([weights])}
    return Transitions(*(x[:, rows] for x in (s, a, r, discount, other)), **weighed)


def test_weights_are_what_samples_count():
    """A sample of weight 0 counts nothing, and one of 1/2 half."""
    gradients = {}
    for name, rows, weights in (
        ("first", [0], None),
        ("second", [1], None),
        ("both", [0, 1], [1.0, 0.5]),
    ):
        algorithm = make("dqn")
        algorithm.update(batch(rows, weights))
        gradients[name] = algorithm.online.gradients.clone()
    expected = (gradients["first"] + 0.5 * gradients["second"]) / 2
    torch.testing.assert_close(gradients["both"], expected)
    assert expected.abs().max() > 1e-3


def test_errors_of_dqn_and_iqn():
    dqn, every = make("dqn"), batch(range(6), [1.0] * 6)
    weights = dqn.network.acting(dqn.online.parameters, None)
    with torch.no_grad():
        q_tm1, q_t = (dqn.network.outputs(weights, s) for s in (every.s_tm1, every.s_t))
    target = every.r_t + 0.5 * q_t.max(-1).values
    expected = target - q_tm1.gather(-1, every.a_tm1.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(dqn.update(every).errors, expected)
    # Of an IQN the mean size over all pairs of quantiles: where its values are 0, of the targets.
    iqn = make("iqn")
    for parameters in (iqn.online, iqn.target):
        with torch.no_grad():
            parameters.flat.zero_()
    torch.testing.assert_close(iqn.update(every).errors, every.r_t.abs())


def test_one_s_own_tells_errors_or_goes_by_its_loss():
    soft = make("policies.own_algorithms:Soft")
    assert isinstance(soft, Soft)
    learned = soft.update(batch(range(6), [1.0] * 6))
    assert learned.errors.mean() == pytest.approx(float(learned.loss))


def build(**tree):
    config = load_config(overlay(TREE, tree))
    specs = policy_specs(config, Tape(num_agents=2).agents)
    assembly = assemble(config, specs, make_layout(config, 2))
    actor, group = (role.build() for role in assembly.roles())
    return assembly, actor, group.learners[0]


def test_what_was_drawn_has_the_priority_of_its_error(monkeypatch):
    assembly, actor, learner = build()
    update, seen, drawn = learner.algorithm.update, [], []

    def watched(batch, first, end):
        learned = update(batch, first, end)
        seen.append((first, batch.weights.clone(), learned.errors.clone()))
        return learned

    learn = Priorities.learn

    def noted(priorities, of, errors):
        learn(priorities, of, errors)
        drawn.append(of.leaves.tolist())

    monkeypatch.setattr(Priorities, "learn", noted)
    learner.algorithm.update = watched
    for _ in range(300):
        actor.work()
        while learner.ready():
            learner.update()
            k, weights, errors = seen[-1]
            assert weights.shape == (1, 16)
            assert weights.max() == 1.0
            known, priorities = {}, learner.replays[k].state(whole=True)["priorities"]
            for leaf, error in zip(drawn[-1], errors[0].tolist(), strict=True):
                known[leaf] = (abs(error) + 1e-6) ** 0.7  # the last of the same step counts
            found = priorities["leaves"].ravel()[list(known)]
            assert found == pytest.approx(np.array(list(known.values())), rel=1e-4)
    assert len(seen) > 40
    assert min(float(weights.min()) for _, weights, _ in seen) < 0.7
    assert assembly.scoreboard.learn("agent_1")[Learn.UPDATES] > 20


def test_weights_make_up_for_all_once_exploration_has_decayed():
    _, actor, learner = build()
    assert learner.beta(0) == FIRST_BETA == 0.4
    betas = []
    for _ in range(260):
        actor.work()
        betas.append(learner.beta(0))
    assert (np.diff(betas) >= 0.0).all()
    assert 0.65 < betas[99] < 0.75
    assert betas[-1] == 1.0


def test_an_update_that_is_undone_tells_nothing_of_its_samples():
    _, actor, learner = build()
    for _ in range(60):
        actor.work()
    assert learner.ready()
    update = learner.algorithm.update

    def broken(batch, first, end):
        learned = update(batch, first, end)
        return learned._replace(loss=learned.loss * torch.nan)

    learner.algorithm.update = broken
    learner.update()
    for replay in learner.replays:
        leaves = replay.state(whole=True)["priorities"]["leaves"]
        assert set(np.unique(leaves)) == {0.0, 1.0}


def test_only_those_that_draw_transitions_have_priorities():
    tree = {"game": "tag", "policy": {"algorithm": "ppo", "experience": {"prioritised": 0.6}}}
    (told,) = unused_settings(load_config(tree))
    assert (
        "policy.experience.prioritised has no effect: it is for iqn, dqn and sac, not ppo" in told
    )


def test_their_memory_is_planned():
    config = load_config(overlay(TREE, {"policy": {"experience": {"capacity": 100_000}}}))
    agents = Tape(num_agents=2).agents
    specs = policy_specs(config, agents)
    items = {
        item.what: item for item in plan(spec_of(config, agents), specs, make_layout(config, 2), 0)
    }
    found = items["the priorities of 2 policies"]
    assert found.settings[0] == "policy.experience.capacity"
    # At least a number for each step, and one for each sum, of 8 bytes.
    assert 2 * 2 * 8 * 100_000 <= found.size <= 12 * 2 * 8 * 100_000
