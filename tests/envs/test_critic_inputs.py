"""Inputs of centralised critics are stored behind each agent's own observation."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from lucky_pair import LuckyPair
from refusals import refuses
from remuda.envs.contract import check_env
from remuda.envs.critic_inputs import CriticInputs, as_made
from remuda.envs.games.array_game import TurnArrays
from remuda.envs.registry import make_env
from remuda.errors import ContractError
from remuda.types import AgentSpec


class Countdown(TurnArrays):
    """Three agents that observe their number and the turn; agent i acts for i + 1 turns."""

    def __init__(self, num_envs=1, teams=("", "", ""), groups=((0, 1, 2),), cut=False):
        space = Box(-np.inf, np.inf, (2,), np.float32)
        self._make_arrays(
            num_envs,
            [AgentSpec(f"agent_{i}", space, Discrete(2), team=teams[i]) for i in range(3)],
        )
        self.turn_groups, self._cut = groups, cut
        self._turn = np.zeros(num_envs, np.int64)

    def reset(self, seeds, mask):
        self._turn[mask] = 0
        self.active[mask] = True

    def observe(self, agent, out):
        out[:, 0], out[:, 1] = agent + 1, self._turn + 1

    def act(self, agent, actions):
        pass

    def end_turn(self):
        self._turn += self.active.any(1)
        for agent in range(3):
            over = self.active[:, agent] & (self._turn > agent)
            kind = self._truncated if self._cut else self._terminated
            kind[over, agent] = True
            self.active[over, agent] = False
        return self._result


def observed(env, agent):
    space = env.agents[agent].observation_space
    out = np.full((env.num_envs, *space.shape), 99, space.dtype)
    env.observe(agent, out)
    return out


def begin(env):
    env.reset(np.zeros(env.num_envs, np.int64), np.ones(env.num_envs, bool))
    env.begin_turn()


def turn(env):
    for agent in range(env.num_agents):
        observed(env, agent)
        env.act(agent, np.zeros(env.num_envs, np.int64))
    return env.end_turn()


@pytest.mark.parametrize("kind", ["joint", "state"])
def test_it_keeps_the_contract(kind):
    check_env(lambda copies: CriticInputs(LuckyPair(copies, has_state=True), kind))


def test_a_joint_observation_has_the_others_in_order_and_whether_they_are_active():
    env = CriticInputs(Countdown(2), "joint")
    begin(env)
    np.testing.assert_array_equal(observed(env, 1)[0], [2, 1, 3, 1, 1, 1, 1, 1])
    turn(env)  # agent_0 is dead now
    env.begin_turn()
    np.testing.assert_array_equal(observed(env, 1)[0], [2, 2, 3, 2, 1, 0, 0, 0])
    np.testing.assert_array_equal(observed(env, 2)[1], [3, 2, 0, 0, 0, 2, 2, 1])


def test_a_joint_observation_is_that_of_the_team():
    env = CriticInputs(Countdown(1, teams=("red", "blue", "red")), "joint")
    begin(env)
    np.testing.assert_array_equal(observed(env, 0)[0], [1, 1, 3, 1, 1])
    np.testing.assert_array_equal(observed(env, 1)[0], [2, 1])


def test_an_agent_that_observes_later_is_seen_as_it_was():
    env = CriticInputs(Countdown(1, groups=((0,), (1, 2))), "joint")
    begin(env)
    np.testing.assert_array_equal(observed(env, 0)[0], [1, 1, 0, 0, 0, 0, 0, 0])
    turn(env)
    env.begin_turn()
    np.testing.assert_array_equal(observed(env, 1)[0], [2, 2, 3, 2, 1, 1, 1, 1])


@pytest.mark.parametrize("cut", [False, True])
def test_agents_count_as_active_at_the_end_of_a_truncated_episode(cut):
    env = CriticInputs(Countdown(1, cut=cut), "joint")
    begin(env)
    turn(env)
    flag = observed(env, 1)[0, -1]
    assert flag == cut


def test_a_state_follows_the_observation():
    env = CriticInputs(LuckyPair(3, has_state=True), "state")
    begin(env)
    rows = [observed(env, agent) for agent in (0, 1)]
    np.testing.assert_array_equal(rows[0][:, 2:], rows[1][:, 2:])
    np.testing.assert_array_equal(rows[0][:, 2], rows[0][:, 0])
    np.testing.assert_array_equal(rows[1][:, 3], rows[1][:, 0])


def test_integers_stay_integers():
    class Pixels(Countdown):
        def __init__(self, num_envs=1):
            super().__init__(num_envs)
            space = Box(0, 255, (1, 2), np.uint8)
            self.agents = tuple(replace(each, observation_space=space) for each in self.agents)

        def observe(self, agent, out):
            out[...] = agent + 1

    env = CriticInputs(Pixels(2), "joint")
    begin(env)
    assert observed(env, 0).dtype == np.uint8
    np.testing.assert_array_equal(observed(env, 0)[0], [1, 1, 2, 2, 1, 3, 3, 1])


def test_a_state_that_is_not_finite_is_refused():
    class Broken(LuckyPair):
        def observe_state(self, agent, out):
            out[...] = 0
            out[1, 2] = np.nan

    env = CriticInputs(Broken(2, has_state=True), "state")
    begin(env)
    with refuses(ContractError):
        observed(env, 0)


def test_pettingzoo_s_state_is_read_once_a_turn():
    pytest.importorskip("mpe2")
    env = make_env("pettingzoo:mpe2.simple_spread_v3", 2)
    begin(env)
    state = env.agents[0].state_space
    rows = np.zeros((2, *state.shape), state.dtype)
    env.observe_state(0, rows)
    for row, copy in zip(rows, env.copies, strict=True):
        np.testing.assert_array_equal(row, copy.state())


def test_scripted_policies_get_the_environment_itself():
    game = LuckyPair(1)
    assert as_made(CriticInputs(game, "joint")) is game
    assert as_made(game) is game
