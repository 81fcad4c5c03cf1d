"""Learners of stacks, fed by a game whose episodes are of any length: nothing is out of place."""

from dataclasses import replace

import numpy as np
import pytest

from assembled import assemble
from remuda.config import load_config
from remuda.experience.ring import TAKEN_STEPS
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.scoreboard import Learn
from support import Tape


class Uneven(Tape):
    """Every agent is out at a time of its own, by chance; a copy is over when all are."""

    def __init__(self, num_envs=1, num_agents=3, mean=6.0):
        super().__init__(num_envs, num_agents)
        self._random, self._mean = np.random.default_rng(0), mean

    def end_turn(self):
        result = super().end_turn()
        out = self.active & (self._random.random(self.active.shape) < 1.0 / self._mean)
        terminated, _ = self._ends
        terminated[:] |= out
        self.active[...] &= ~out
        return result


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["on_policy", "off_policy", "hybrid"])
@pytest.mark.parametrize("recurrent", [0, 4])
def test_episodes_of_any_length_are_trained_on(mode, recurrent):
    """Short ones fill the places of a ring, so that rollouts are taken early as well."""
    config = load_config(
        {
            "game": "learner.test_any_rollout:Uneven",
            "schedule": "async",
            "env": {"num_envs": 4, "options": {"mean": 3.0}},
            "policy": {
                "algorithm": "ppo",
                "learning_mode": mode,
                "network": {"hidden": (8,), "recurrent": recurrent},
                "ppo": {"rollout_length": 24, "minibatches": 3, "epochs": 2},
                "experience": {"segment_length": 12, "capacity": 300},
            },
            "learners": {"processes": 1},
            "run": {"turns": None, "seconds": 3600},
        }
    )
    agents = Uneven().agents
    specs = policy_specs(config, agents)
    assembly = assemble(config, specs, make_layout(config, len(specs)), agents=agents)
    actor, learner = assembly.roles()
    actor = actor.build()
    group = replace(learner, patience=0.0).build()  # no actor plays meanwhile
    assert len(group.learners) == 1
    rows = [assembly.scoreboard.learn(spec.name) for spec in specs]
    while min(row[Learn.UPDATES] for row in rows) < 12:
        worked = actor.work()
        while group.work():
            worked = True
        assert worked, "neither the actor nor the learner could go on"
    for k, row in enumerate(rows):
        assert row[Learn.NONFINITE] == 0
        assert row[Learn.POLICY_LOSS_SUM] != 0.0
        assert row[Learn.VALUE_LOSS_SUM] > 0.0
        if mode == "on_policy":  # two epochs, each over all that was taken
            assert row[Learn.SAMPLES] == 2 * row[Learn.TRAINED]
            (ring,) = assembly.experience[specs[k].name].rings
            assert row[Learn.TRAINED] + row[Learn.LOST] == ring.counters[TAKEN_STEPS]
