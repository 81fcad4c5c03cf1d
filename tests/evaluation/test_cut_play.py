"""Play that is cut by its time limit: its means are not those of the episodes that were short."""

import itertools

import numpy as np
import pytest

from assembled import spec_of
from remuda.config import load_config
from remuda.evaluation.evaluate import actor_for_play, play_episodes
from remuda.evaluation.results import Limits
from remuda.policies.spec import first_weights
from remuda.population.specs import policy_specs
from remuda.publish.snapshot import Snapshot
from remuda.system.rng import torch_rng
from support import Tape


class ShortOnesReturnNothing(Tape):
    """Each copy plays an episode of 40 turns, which returns 40, and one of a turn, which returns 0.

    And so on; half of the copies begin with a short one.
    """

    def act(self, agent, actions):
        self.acts += 1
        self._rewards[:, agent] += self._lengths > 1

    def reset(self, seeds, mask):
        super().reset(seeds, mask)
        is_long = (self._episode + np.arange(self.num_envs)) % 2 == 1
        self._lengths = np.where(is_long, 40, 1)


@pytest.mark.parametrize("population", [{}, {"matchmaker": "random", "policies": 3}])
def test_of_play_that_is_cut_as_many_episodes_of_each_copy_count(population):
    """Red before: all counted that were over, and most of them were short."""
    tree = {"game": "evaluation.test_cut_play:ShortOnesReturnNothing", "population": population}
    config = load_config(
        tree
        | {"env": {"num_envs": 100}, "policy": {"algorithm": "dqn", "network": {"hidden": (4,)}}}
    )
    specs = policy_specs(config, Tape().agents)
    weights = {
        spec.name: Snapshot(first_weights(spec, torch_rng(0, spec.name)), 1, 0, 0.0)
        for spec in specs
    }
    turns = itertools.count()
    limits = Limits(interrupted=lambda: next(turns) >= 50)
    found = play_episodes(
        lambda copies: actor_for_play(spec_of(config), weights, copies, 0),
        tuple(weights),
        400,
        copies=100,
        limits=limits,
    )
    assert found.cut
    assert found.returns.shape == (200, 2)
    assert (found.returns.mean(0) == 20.0).all()
    assert sum(map(len, found.policies.values())) == (400 if population else 0)


def test_play_that_is_cut_before_each_copy_has_finished_an_episode_measures_nothing():
    config = load_config(
        {
            "game": "evaluation.test_cut_play:ShortOnesReturnNothing",
            "env": {"num_envs": 50},
            "policy": {"algorithm": "dqn", "network": {"hidden": (4,)}},
        }
    )
    specs = policy_specs(config, Tape().agents)
    weights = {
        spec.name: Snapshot(first_weights(spec, torch_rng(0, spec.name)), 1, 0, 0.0)
        for spec in specs
    }
    turns = itertools.count()
    found = play_episodes(
        lambda copies: actor_for_play(spec_of(config), weights, copies, 0),
        tuple(weights),
        50,
        copies=50,
        limits=Limits(interrupted=lambda: next(turns) >= 10),
    )
    assert found.cut
    assert found.returns.shape == (0, 2)
