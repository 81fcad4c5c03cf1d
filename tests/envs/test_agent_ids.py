"""`env.agent_id` appends a one-hot number of the agent to each observation."""

import json

import numpy as np
from gymnasium import spaces

from lucky_pair import LuckyPair
from refusals import refuses
from remuda.envs.adapters.env_spaces import EnvSpaces
from remuda.envs.agent_ids import AgentIds
from remuda.envs.contract import check_env
from remuda.envs.critic_inputs import CriticInputs
from remuda.envs.description import EnvSpec
from remuda.envs.games.array_game import TurnArrays
from remuda.envs.observation_parts import IdBox, parts_of
from remuda.envs.observation_rows import ObservationRow, as_made
from remuda.envs.plain_spaces import from_plain, to_plain
from remuda.envs.registry import AGENT_ID, make_env
from remuda.errors import ConfigError
from remuda.types import AgentSpec
from support import observed

PICTURE = spaces.Box(0, 255, (4, 4, 3), np.uint8)


class Watchers(TurnArrays):
    """Agents that observe a picture of their own number, and never act on it."""

    def __init__(self, num_envs=1, num_agents=2):
        names = [f"agent_{i}" for i in range(num_agents)]
        self._make_arrays(num_envs, [AgentSpec(n, PICTURE, spaces.Discrete(2)) for n in names])
        self.turn_groups = (tuple(range(num_agents)),)

    def reset(self, seeds, mask):
        self.active[mask] = True

    def observe(self, agent, out):
        out[...] = 7 + agent

    def act(self, agent, actions):
        pass

    def end_turn(self):
        return self._result


def test_it_keeps_the_contract():
    check_env(lambda copies: AgentIds(LuckyPair(copies)))


def test_the_id_follows_the_observation():
    env = AgentIds(LuckyPair(2))
    env.reset(np.zeros(2, np.int64), np.ones(2, bool))
    for agent, ids in ((0, [1, 0]), (1, [0, 1])):
        own = np.zeros((2, 2), np.float32)
        env.game.observe(agent, own)
        np.testing.assert_array_equal(observed(env, agent), [[*row, *ids] for row in own])
    assert env.agents[0].observation_space == env.agents[1].observation_space


def test_an_image_keeps_its_bytes_and_its_axes():
    env = AgentIds(Watchers(3))
    space = env.agents[1].observation_space
    assert (space.shape, space.dtype) == ((50,), np.uint8)
    assert [(part.name, part.shape, part.is_pixels) for part in parts_of(space)] == [
        ("observation", (4, 4, 3), True),
        ("agent_id", (2,), False),
    ]
    np.testing.assert_array_equal(observed(env, 1), [[8] * 48 + [0, 1]] * 3)


def test_a_policy_takes_the_environments_observation_and_the_id():
    flat = EnvSpaces(AgentIds(LuckyPair()).agents[0])
    assert flat.is_array
    pair = EnvSpaces(AgentIds(Watchers()).agents[1])
    rows, single = pair.flatten((np.full((4, 4, 3), 8, np.uint8), np.array([0, 1], np.uint8)))
    assert single
    np.testing.assert_array_equal(rows, [[8] * 48 + [0, 1]])


def test_a_space_with_an_id_can_be_saved():
    space = AgentIds(Watchers()).agents[0].observation_space
    found = from_plain(json.loads(json.dumps(to_plain(space))))
    assert isinstance(found, IdBox)
    assert found == space
    assert found.own == PICTURE


def test_scripted_policies_get_what_the_environment_made():
    env = CriticInputs(AgentIds(Watchers()), "joint")
    assert isinstance(as_made(env), Watchers)
    assert ObservationRow(env.agents[0].observation_space).as_made == PICTURE


def test_every_copy_of_a_game_has_ids():
    plain, env = make_env("tag", 1), make_env("tag", 2, **{AGENT_ID: True})
    before, after = (each.agents[0].observation_space for each in (plain, env))
    assert after.shape[0] == np.prod(before.shape) + len(env.agents)
    spec = EnvSpec.of("tag", {AGENT_ID: True})
    spec.make(1).close()
    assert EnvSpec.from_plain(spec.to_plain(), "tag", {AGENT_ID: True}).agents == tuple(
        agent.in_arrays for agent in spec.agents
    )


def test_one_agent_needs_no_id():
    with refuses(ConfigError, "env.agent_id"):
        AgentIds(Watchers(1, 1))
