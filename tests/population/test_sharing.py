"""`population.sharing` maps agents to policies on fixed seats."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from refusals import refuses
from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.errors import ConfigError
from remuda.population.roster import Roster
from remuda.population.run_spec import RunSpec
from remuda.population.setup import expected_shares, make_matchmaker
from remuda.population.specs import policy_specs
from remuda.types import AgentSpec

AGENTS = tuple(f"agent_{i}" for i in range(4))


def config_of(sharing, game="bucket_brigade", env=None, **population):
    population = {"sharing": sharing, **population}
    return load_config({"game": game, "population": population, "env": env or {}})


def seats_of(config):
    roster = Roster.of(config, make_env(config.game, 1).agents)
    return {name: roster.seats_of(name) for name in roster.policies}


@pytest.mark.parametrize(
    ("sharing", "seats"),
    [
        ({"agent_*": "all"}, {"all": [0, 1, 2, 3]}),
        ({"agent_[02]": "even", "agent_1": "one"}, {"even": [0, 2], "one": [1], "agent_3": [3]}),
        ({"agent_0": "first", "*": "rest"}, {"first": [0], "rest": [1, 2, 3]}),
        ({"agent_0": "agent_1"}, {"agent_1": [0, 1], "agent_2": [2], "agent_3": [3]}),
    ],
)
def test_the_first_match_decides_and_others_keep_their_own_policy(sharing, seats):
    config = config_of(sharing)
    assert seats_of(config) == seats
    roster = Roster.of(config, make_env(config.game, 1).agents)
    shares = expected_shares(config.population, roster)
    assert shares == {name: float(len(own)) for name, own in seats.items()}
    assert make_matchmaker(config.population, roster).num_seats == 4


def test_reserved_seats_are_left_out():
    config = config_of({"agent_*": "all"}, env={"scripted": {"agent_1": "random"}})
    assert seats_of(config) == {"all": [0, 2, 3]}
    spec = RunSpec.of(config)
    assert spec.fixed_policies == dict.fromkeys(("agent_0", "agent_2", "agent_3"), "all")
    assert spec.episode_metrics[-3:] == ("agent_0/return", "agent_2/return", "agent_3/return")


def test_each_agent_has_its_own_policy_without_sharing():
    spec = RunSpec.of(load_config({"game": "bucket_brigade"}))
    assert spec.fixed_policies == dict(zip(AGENTS, AGENTS, strict=True))
    assert spec.reported_agents == []


@pytest.mark.parametrize(
    "other",
    [
        {"matchmaker": "random"},
        {"policies": 2},
        {"seats": {"all": ["agent_0"]}},
        {"teams": {"red": {"policies": ["all"], "agents": AGENTS}}},
        {"snapshots": {"every": 3}},
        {"scripted": {"bot": "random"}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_contradicts_it_is_refused(other):
    with refuses(ConfigError, "population.sharing", next(iter(other))):
        seats_of(config_of({"agent_*": "all"}, **other))


@pytest.mark.parametrize(
    "sharing",
    [{"hunter_*": "all"}, {"*": "all", "agent_0": "one"}, {"*": "a/b"}],
    ids=["no agent", "no agent left", "name"],
)
def test_a_pattern_without_agents_and_a_bad_name_are_refused(sharing):
    with refuses(ConfigError, "population.sharing"):
        seats_of(config_of(sharing))


def test_agents_with_unlike_spaces_cannot_share():
    spaces = Box(0, 1, (2,), np.float32), Box(0, 1, (3,), np.float32)
    agents = [AgentSpec(f"agent_{i}", space, Discrete(2)) for i, space in enumerate(spaces)]
    with refuses(ConfigError, "population.sharing", "agent_0", "agent_1"):
        policy_specs(config_of({"*": "all"}), agents)
