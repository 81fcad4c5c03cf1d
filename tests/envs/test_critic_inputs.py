"""Inputs of centralised critics are stored behind each agent's own observation."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Sequence
from pettingzoo import ParallelEnv

from lucky_pair import LuckyPair
from refusals import refuses
from remuda.envs.adapters.user_envs import make_copies
from remuda.envs.contract import check_env
from remuda.envs.critic_inputs import CriticInputs, team_of
from remuda.envs.games.array_game import TurnArrays
from remuda.envs.observation_rows import as_made
from remuda.envs.recorded import Wrapped
from remuda.envs.registry import make_env
from remuda.errors import ContractError
from remuda.types import AgentSpec
from support import observed


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


def begin(env):
    env.reset(np.zeros(env.num_envs, np.int64), np.ones(env.num_envs, bool))
    env.begin_turn()


def turn(env):
    for agent in range(env.num_agents):
        observed(env, agent)
        env.act(agent, np.zeros(env.num_envs, np.int64))
    return env.end_turn()


@pytest.mark.parametrize(
    ("game", "kind"),
    [("treasure_hunt", "joint"), ("tag", "joint"), ("pettingzoo:mpe2.simple_spread_v3", "state")],
)
def test_it_keeps_the_contract(game, kind):
    check_env(lambda copies: CriticInputs(make_env(game, copies), kind))


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


@pytest.mark.parametrize("cut", [False, True])
def test_a_copy_s_rows_do_not_depend_on_where_other_copies_end(cut):
    """With several groups, an agent that ended elsewhere is observed in all copies."""

    def rows(copies):
        env = CriticInputs(Countdown(copies, groups=((0,), (1, 2)), cut=cut), "joint")
        begin(env)
        env.game._turn[1:] = 1  # the other copies are one turn ahead
        found = []
        for _ in range(2):
            for agent in range(3):
                found.append(observed(env, agent)[0])
                env.act(agent, np.zeros(copies, np.int64))
            result = env.end_turn()
            for agent in np.flatnonzero((result.terminated | result.truncated).any(0)):
                observed(env, agent)
            env.begin_turn()
        return np.concatenate(found)

    np.testing.assert_array_equal(rows(1), rows(2))


def test_agents_without_a_state_have_none_in_their_rows():
    class One(LuckyPair):
        def __init__(self, num_envs=1):
            super().__init__(num_envs, has_state=True)
            self.agents = (self.agents[0], replace(self.agents[1], state_space=None))

        def observe_state(self, agent, out):
            assert agent == 0
            super().observe_state(agent, out)

    env = CriticInputs(One(2), "state")
    begin(env)
    assert [observed(env, agent).shape[1] for agent in (0, 1)] == [5, 2]


def test_flags_as_observations_become_bytes():
    class Flags(Countdown):
        def __init__(self, num_envs=1):
            super().__init__(num_envs)
            space = Box(0, 1, (2,), np.bool_)
            self.agents = tuple(replace(each, observation_space=space) for each in self.agents)

        def observe(self, agent, out):
            out[...] = agent > 0

    env = CriticInputs(Flags(1), "joint")
    begin(env)
    np.testing.assert_array_equal(observed(env, 0)[0], [0, 0, 1, 1, 1, 1, 1, 1])


class Stated(ParallelEnv):
    """One agent for two turns, with a state as given."""

    def __init__(self, value=None, space=None):
        self.metadata, self.possible_agents = {"name": "stated"}, ["a"]
        self.value = value
        self.state_space = space or Box(-1.0, 1.0, (3,), np.float32)

    def observation_space(self, agent):
        return Box(-1.0, 1.0, (1,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.turn = ["a"], 0
        return {"a": np.zeros(1, np.float32)}, {"a": {}}

    def step(self, actions):
        self.turn += 1
        over = self.turn == 2
        self.agents = [] if over else ["a"]
        no = {"a": False}
        return {"a": np.zeros(1, np.float32)}, {"a": 0.0}, {"a": over}, no, {"a": {}}

    def state(self):
        if self.value is NotImplemented:
            raise NotImplementedError
        return self.value


@pytest.mark.parametrize(
    "value",
    [None, "text", np.zeros(4, np.float32), np.full(3, np.nan, np.float32), np.full(3, 1e300)],
    ids=["none", "text", "shape", "nan", "huge"],
)
def test_a_state_that_is_not_in_its_space_is_refused(value):
    env = CriticInputs(make_copies(Stated, 1, {"value": value}, "stated"), "state")
    begin(env)
    with refuses(ContractError, "state"):
        observed(env, 0)


def test_an_environment_that_implements_no_state_has_none():
    env = make_copies(Stated, 1, {"value": NotImplemented}, "stated")
    assert env.agents[0].state_space is None


def test_a_state_of_parts_is_flattened():
    space = Dict({"x": Box(-1.0, 1.0, (2,), np.float32), "y": Discrete(3)})
    value = {"x": np.array([0.5, 1.0], np.float32), "y": 1}
    env = make_copies(Stated, 1, {"value": value, "space": space}, "stated")
    env = CriticInputs(env, "state")
    begin(env)
    np.testing.assert_array_equal(observed(env, 0)[0], [0, 0.5, 1, 0, 1, 0])


def test_scripted_policies_see_their_own_spaces_in_any_process():
    wide = CriticInputs(LuckyPair(2), "joint")

    class Elsewhere(Wrapped):
        """Worker processes have such agents, and no `CriticInputs` here."""

    plain = as_made(Elsewhere(wide))
    assert [agent.observation_space.shape for agent in plain.agents] == [(2,), (2,)]
    begin(plain)
    out = np.zeros((2, 2), np.float32)
    plain.observe(1, out)
    np.testing.assert_array_equal(out, observed(wide, 1)[:, :2])


def test_agents_with_equal_spaces_have_joint_observations_of_one_form():
    """Else agents that share a policy would have critics with different inputs."""
    sizes = (2, 3, 2, 3, 4)
    agents = [
        AgentSpec(f"agent_{i}", Box(-1.0, 1.0, (size,), np.float32), Discrete(2))
        for i, size in enumerate(sizes)
    ]
    forms = [[sizes[other] for other in team_of(agents, agent)] for agent in range(5)]
    assert forms[0] == forms[2] == [2, 3, 3, 4]
    assert forms[1] == forms[3] == [3, 2, 2, 4]
    assert team_of(agents, 2) == [0, 3, 1, 4]


class Leaving(Stated):
    """Agent b ends a turn before agent a; a state needs living agents."""

    def __init__(self):
        super().__init__()
        self.possible_agents = ["a", "b"]

    def reset(self, seed=None, options=None):
        self.agents, self.turn = ["a", "b"], 0
        return dict.fromkeys(self.agents, np.zeros(1, np.float32)), {"a": {}, "b": {}}

    def step(self, actions):
        self.turn += 1
        playing, ended = self.agents, {"b": True, "a": self.turn == 2}
        self.agents = [name for name in playing if not ended[name]]
        seen = dict.fromkeys(playing, np.zeros(1, np.float32))
        zeros, no = dict.fromkeys(playing, 0.0), dict.fromkeys(playing, False)
        return seen, zeros, {name: ended[name] for name in playing}, no, {n: {} for n in playing}

    def state(self):
        return np.concatenate([np.full(3, 1.0, np.float32) for _ in self.agents])[:3]


def test_a_game_that_is_over_is_not_asked_for_its_state():
    env = CriticInputs(make_copies(Leaving, 1, {}, "leaving"), "state")
    begin(env)
    for _ in range(2):
        turn(env)
        assert observed(env, 0).shape == (1, 4)
        env.begin_turn()


def test_a_state_without_a_size_is_none():
    space = Sequence(Discrete(2))
    env = make_copies(Stated, 1, {"value": (), "space": space}, "stated")
    assert env.agents[0].state_space is None


def test_a_mistake_in_a_state_does_not_hide_it():
    class Mistaken(Stated):
        def state(self):
            return self.missing

    assert make_copies(Mistaken, 1, {}, "mistaken").agents[0].state_space is not None
