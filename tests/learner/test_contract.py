"""What every algorithm holds to, in a game that tells what is allowed.

An algorithm is in the suite by its line in `ALGORITHMS`, where a word may follow its name.
"""

import numpy as np
import pytest

from assembled import assemble
from equivalence.runs import assert_same, outcome, run
from remuda.config import load_config, overlay
from remuda.envs.registry import make_env
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

TRANSITIONS = {
    "batch_size": 16,
    "dqn": {"target_every": 20},
    "exploration": {"decay_steps": 2000},
    "experience": {"learning_starts": 64, "capacity": 4000, "replay_ratio": 2.0},
}
RECURRENT = {"network": {"recurrent": 8}, "experience": {"burn_in": 1}}
ALGORITHMS = {
    "dqn": TRANSITIONS,
    "iqn": overlay(TRANSITIONS, {"iqn": {"quantiles": 4, "cosines": 8, "target_every": 20}}),
    "ppo": {"ppo": {"rollout_length": 16}},
    "dqn, recurrent": overlay(TRANSITIONS, RECURRENT),
    "iqn, recurrent": overlay(
        TRANSITIONS,
        overlay(RECURRENT, {"iqn": {"quantiles": 4, "cosines": 8, "target_every": 20}}),
    ),
    "ppo, recurrent": {"ppo": {"rollout_length": 16}, "network": {"recurrent": 8}},
}
"""By name, the settings by which each learns quickly."""
EVERY = pytest.mark.parametrize("algorithm", ALGORITHMS)


def settings(algorithm, **tree):
    policy = {
        "algorithm": algorithm.partition(",")[0],
        "n_frames": 1,
        "reward_scale": 1.0,
        "discount": 0.95,
        "learning_rate": 3e-3,
        "network": {"hidden": [16]},
        "experience": {"segment_length": 4},
        "publish": {"every": 1},
    }
    base = {
        "env": {"num_envs": 4},
        "policy": overlay(policy, ALGORITHMS[algorithm]),
        "run": {"turns": 100_000},
        "learners": {"processes": 1},
    }
    return overlay(base, tree)


DOORS = {"game": "masked_games:Doors", "env": {"options": {"choices": [2, 3], "num_agents": 3}}}


@pytest.mark.slow
@EVERY
def test_it_learns_to_walk_through_a_corridor(algorithm, tmp_path):
    """At best 1 at the end of four steps that cost 0.1 each; at random, below 0."""
    tree = {
        "game": "masked_games:Corridor",
        "schedule": "sequential",
        "run": {"turns": 6000, "directory": tmp_path / "run", "evaluate_episodes": 20},
        "checkpoint": {"every": 3600, "evaluate_episodes": 0},
    }
    result = train(load_config(settings(algorithm, **tree)), PlainView())
    assert result.evaluation.mean(0) == pytest.approx(0.6)


def weights(tree, turns=150):
    """How large the stacks are, and the weights of all policies after so many turns."""
    config = load_config(tree)
    env = make_env(config.game, 1, **config.env.options)
    specs = policy_specs(config, env.agents)
    assembly = assemble(config, specs, make_layout(config, len(specs)), agents=env.agents)
    actor, group = (role.build() for role in assembly.roles())
    for _ in range(turns):
        actor.work()
        while group.work():
            pass
    group.finish()
    stacks = [len(learner.policies) for learner in group.learners]
    return stacks, {name: snapshot.weights for name, snapshot in assembly.snapshots().items()}


@pytest.mark.slow_cases("dqn", "dqn, recurrent", "iqn", "iqn, recurrent", "ppo, recurrent")
@EVERY
def test_stacks_equal_singles_and_nothing_forbidden_is_done(algorithm):
    """A forbidden action would raise in the game. What differs is the order of sums alone."""
    tree = settings(algorithm, **DOORS, schedule="async")
    stacks, together = weights(tree)
    priorities = {f"agent_{k}": {"priority": 1.0 + k} for k in range(3)}
    singles, alone = weights(overlay(tree, {"policies": priorities}))
    assert (stacks, singles) == ([3], [1, 1, 1])
    _, first = weights(tree, 0)
    for name, flat in together.items():
        assert np.abs(flat - first[name]).max() > 0.01, "it learned nothing"
        np.testing.assert_allclose(flat, alone[name], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@EVERY
def test_it_goes_on_bit_for_bit_where_it_was_saved(algorithm, tmp_path):
    tree = overlay(settings(algorithm, **DOORS), {"schedule": "sequential"})
    tree["run"] = {"turns": 600}
    whole = run(tmp_path / "whole", **tree)
    run(tmp_path / "parts", **overlay(tree, {"run": {"turns": 274}}))  # in mid-episode
    run(tmp_path / "parts", resume=True, **tree)
    assert_same(whole, outcome(tmp_path / "parts"), updates=5)
