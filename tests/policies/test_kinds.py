"""Which agents the same policies may sit at."""

from dataclasses import replace

import numpy as np
from gymnasium.spaces import Box, Discrete

from refusals import refuses
from remuda.config import load_config
from remuda.errors import ConfigError
from remuda.policies.spec import kinds_of
from remuda.population.specs import policy_specs
from support import Tape

SMALL, LARGE = (Box(0.0, 1.0, (size,), np.float32) for size in (3, 4))


def agents_of(*kinds):
    """Agents that see so much, may do so many things, and perhaps not always."""
    return [
        replace(agent, observation_space=sees, action_space=Discrete(choices), masked=masked)
        for agent, (sees, choices, masked) in zip(Tape(1, len(kinds)).agents, kinds, strict=True)
    ]


UNLIKE = agents_of(
    (SMALL, 2, False),
    (LARGE, 2, False),
    (SMALL, 2, False),
    (SMALL, 3, False),
    (SMALL, 2, True),
    (LARGE, 2, False),
)


def test_agents_are_of_one_kind_that_see_and_do_the_same():
    assert kinds_of(UNLIKE) == [0, 1, 0, 3, 4, 1]
    assert kinds_of([]) == []


def test_a_policy_may_take_seats_of_one_kind_only():
    def specs(**seats):
        population = {"matchmaker": "random", "policies": 3, "seats": seats}
        config = load_config({"game": "support:Tape", "population": population})
        return policy_specs(config, UNLIKE[:3])

    names = [agent.name for agent in UNLIKE[:3]]
    found = specs(policy_0=names[::2], policy_1=[names[1]], policy_2=names[::2])
    assert [spec.observation for spec in found] == [(3,), (4,), (3,)]
    with refuses(ConfigError):
        specs(policy_0=names[::2], policy_1=names[:2], policy_2=names[::2])
