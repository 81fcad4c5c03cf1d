"""Returns of AEC environments are those of a plain loop over `agent_iter()` and `last()`."""

import warnings

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from envs.adapters.test_joining import GAMES, Scheduled
from refusals import refuses
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.registry import make_env
from remuda.envs.scripted import masks_of, room_for
from remuda.errors import ContractError

EPISODES = 3


def pick(space, mask, k):
    """The action of an agent's k-th decision: the same in every loop."""
    if isinstance(space, spaces.Discrete):
        allowed = np.flatnonzero(mask) if mask is not None else np.arange(space.n)
        return int(allowed[(7 * k + 3) % len(allowed)])
    return np.full(space.shape, np.sin(k), space.dtype)


def returns_by_last(env, seeds):
    """By episode, each agent's sum of what `last()` returned at its turns."""
    found = []
    for seed in seeds:
        env.reset(seed=seed)
        earned = dict.fromkeys(env.possible_agents, 0.0)
        acts = {name: i + seed for i, name in enumerate(env.possible_agents)}
        for name in env.agent_iter():
            seen, reward, terminated, truncated, info = env.last()
            earned[name] += reward
            if terminated or truncated:
                env.step(None)
                continue
            mask = seen.get("action_mask") if isinstance(seen, dict) else info.get("action_mask")
            acts[name] += 1
            env.step(pick(env.action_space(name), mask, acts[name]))
        found.append(list(earned.values()))
    return found


def returns_here(env, seeds, turns=2000):
    """By episode, each agent's sum of the rewards of its turns."""
    found, seen = [], [room_for(env, agent) for agent in range(env.num_agents)]
    for seed in seeds:
        env.reset(np.array([seed]), np.ones(1, bool))
        earned, acts = np.zeros(env.num_agents), np.arange(env.num_agents) + seed
        for _ in range(turns):
            env.begin_turn()
            for (agent,) in env.turn_groups:
                env.observe(agent, seen[agent])
                masks = masks_of(env, agent) if env.agents[agent].masked else None
                acts[agent] += env.active[0, agent]
                mask = None if masks is None else masks[0]
                action = pick(env.agents[agent].action_space, mask, acts[agent])
                env.act(agent, np.array([action]))
            earned += env.end_turn().rewards[0]
            if not env.active.any():
                break
        else:
            raise AssertionError("the episode does not end")
        found.append(earned.tolist())
    return found


PETTINGZOO = {
    "classic/tictactoe-v3": {},
    "classic/connect_four-v3": {},
    "classic/rps-v2": {"max_cycles": 7},
    "mpe2.simple_spread_v3": {"max_cycles": 6},
    "mpe2.simple_world_comm_v3": {"max_cycles": 6},
    "butterfly/knights_archers_zombies-v11": {"spawn_delay": 1, "max_cycles": 300},
    "butterfly/cooperative_pong-v6": {"max_cycles": 60},
}


@pytest.mark.slow_cases("butterfly/cooperative_pong-v6", "butterfly/knights_archers_zombies-v11")
@pytest.mark.parametrize("name", PETTINGZOO)
def test_returns_of_pettingzoos_games_are_those_that_last_tells(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they import what is deprecated
        try:
            here, there = (
                make_env(f"pettingzoo:{name}", 1, api="aec", **PETTINGZOO[name]) for _ in range(2)
            )
        except Exception as error:
            pytest.skip(f"{name} is not here: {error}")
        seeds = range(EPISODES)
        found = returns_here(here, seeds)
        expected = returns_by_last(there.copies[0], seeds)
    assert np.any(expected), "nothing was earned, so nothing was compared"
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


class Odd(AECEnv):
    """Two agents in turn; each act gives its agent 1 and the other 10; it ends after 7 acts."""

    metadata = {"name": "odd", "render_modes": []}  # noqa: RUF012
    possible_agents, render_mode = ("a", "b"), None
    first, acts = "a", 7

    def observation_space(self, agent):
        return spaces.Box(-99, 99, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return np.zeros(1, np.float32)

    def reset(self, seed=None, options=None):
        self.agents, self.count = list(self.possible_agents), 0
        self.rewards, self._cumulative_rewards = ({"a": 0.0, "b": 0.0} for _ in range(2))
        self.terminations, self.truncations = ({"a": False, "b": False} for _ in range(2))
        self.infos = {"a": {}, "b": {}}
        self.agent_selection = self.first

    def other(self, name):
        return "b" if name == "a" else "a"

    def step(self, action):
        name = self.agent_selection
        if self.terminations[name] or self.truncations[name]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[name] = 0.0
        self.count += 1
        self.give(name)
        if self.count == self.acts:
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = self.next_of(name)

    def give(self, name):
        self.rewards = {name: 1.0, self.other(name): 10.0}
        self._accumulate_rewards()

    def next_of(self, name):
        return self.other(name)


class OnlyAccumulated(Odd):
    def give(self, name):
        self._cumulative_rewards[name] += 1.0
        self._cumulative_rewards[self.other(name)] += 10.0


class NeverCleared(Odd):
    """`rewards` holds what an agent was given last, for ever; it is accumulated by hand."""

    def reset(self, seed=None, options=None):
        before = getattr(self, "rewards", None)
        super().reset(seed, options)
        self.rewards = before or self.rewards

    def give(self, name):
        if self.count % 3 == 1:
            self.rewards[name] = 5.0
            self._cumulative_rewards[name] += 5.0


class AccumulatesAtTheEnd(Odd):
    """Stale rewards all through later episodes; `last()` is silent until each of them ends."""

    def reset(self, seed=None, options=None):
        before = getattr(self, "rewards", None)
        super().reset(seed, options)
        self.rewards = before or self.rewards

    def give(self, name):
        if self.count == self.acts:
            self.rewards = {"a": 3.0, "b": -3.0}
            self._accumulate_rewards()


class NeverReset(Odd):
    """What an agent was told once is told again, with what is new."""

    def step(self, action):
        before = dict(self._cumulative_rewards)
        super().step(action)
        for name in self.agents:
            self._cumulative_rewards[name] = before[name] + self.rewards[name]


class OwnLast(Odd):
    """Nothing else tells its rewards; those at the end are told to the dead."""

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.owed = {"a": 0.0, "b": 0.0}

    def give(self, name):
        self.owed[name] = 0.0
        for each in self.owed:
            self.owed[each] += 2.0 + self.count

    def last(self):
        name = self.agent_selection
        over = self.terminations[name], self.truncations[name]
        return self.observe(name), self.owed[name], *over, self.infos[name]


class TwiceInARow(Odd):
    def next_of(self, name):
        return "aab"[self.count % 3]


class BegunByTheSecond(Odd):
    first = "b"


class DeadsStepFirst(Odd):
    """`a` dies by an act of `b`, and is paid for it; then `b` plays on alone."""

    def give(self, name):
        self.rewards = dict.fromkeys(self.agents, 3.0)
        if self.count == 4:
            self.terminations["a"] = True
        self._accumulate_rewards()
        self._deads_step_first()

    def next_of(self, name):
        if self.count == 4:
            self._skip_agent_selection = "b"
            return "a"
        return self.other(name) if len(self.agents) == 2 else "b"


class AtOnceOver(Odd):
    """Takes all agents out by itself, and sets no flag."""

    def next_of(self, name):
        if self.count == 5:
            self.terminations = dict.fromkeys(self.agents, False)
            self.agents = []
        return self.other(name)


ODD = (
    Odd,
    OnlyAccumulated,
    NeverCleared,
    AccumulatesAtTheEnd,
    NeverReset,
    OwnLast,
    TwiceInARow,
    BegunByTheSecond,
    DeadsStepFirst,
)


@pytest.mark.parametrize("make", ODD)
def test_returns_are_those_that_last_tells(make):
    found = returns_here(AECCopies(make), range(EPISODES))
    expected = returns_by_last(make(), range(EPISODES))
    assert np.any(expected)
    np.testing.assert_allclose(found, expected)


# Without the one whose second life is over before it acts: that is no episode of it here.
@pytest.mark.parametrize("game", [name for name in GAMES if name != "never selected"])
def test_returns_of_agents_that_die_and_join_are_those_that_last_tells(game):
    """Red before: an agent that came back lost its rewards of the steps until it was selected."""
    found = returns_here(AECCopies(lambda: Scheduled(**GAMES[game])), [0])
    np.testing.assert_allclose(found, returns_by_last(Scheduled(**GAMES[game]), [0]))


class Silent(Odd):
    """Accumulates nothing, so that `last()` returns 0."""

    def give(self, name):
        self.rewards = {name: 1.0, self.other(name): 10.0}


def test_rewards_count_where_last_never_returns_any():
    assert returns_here(AECCopies(Silent), [0, 1]) == [[34.0, 43.0]] * 2


class KeepsTheDead(Odd):
    """`a` dies alone, and stays selected whatever is done."""

    def step(self, action):
        if action is not None:
            super().step(action)
            if self.count == 3:
                self.terminations["a"], self.agent_selection = True, "a"


class DiesForEver(Odd):
    """Each dead step puts another dead agent in the place of the one that left."""

    def step(self, action):
        name = self.agent_selection
        if action is not None:
            super().step(action)
            self.terminations["a"] = self.count == 3
            return
        other = self.other(name)
        self.agents, self.agent_selection = [other], other
        self.terminations, self.truncations = {other: True}, {other: False}


class EndsAsAll(Odd):
    """Ends as RLlib's environments do, by a key that is no agent."""

    def next_of(self, name):
        self.terminations = {"a": False, "b": False, "__all__": self.count >= 4}
        return self.other(name)


class NotInFlags(Odd):
    def step(self, action):
        super().step(action)
        if self.count == 3:
            self.terminations["b"] = True
            del self.truncations["a"]
            self.agent_selection = "a"


@pytest.mark.parametrize(
    "make",
    [
        KeepsTheDead,
        DiesForEver,
        NotInFlags,
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_an_environment_that_would_never_go_on_is_refused(make, check):
    """Red before: an endless loop, or a KeyError."""
    env = AECCopies(make)
    env.check = check
    with refuses(ContractError):
        returns_here(env, [0])


def test_an_episode_without_agents_is_over():
    """Red before: it was stepped on and on."""
    assert returns_here(AECCopies(AtOnceOver), [0])[0] == [23.0, 32.0]


class InArrays(Odd):
    """Its `agents` are an array."""

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.agents = np.array(["a", "b"])


def test_agents_may_be_an_array():
    assert returns_here(AECCopies(InArrays), [0]) == returns_here(AECCopies(Odd), [0])


class EndsAsAllAtOnce(ParallelEnv):
    metadata = {"name": "all", "render_modes": []}  # noqa: RUF012
    possible_agents, render_mode = ("a", "b"), None
    observation_space, action_space = Odd.observation_space, Odd.action_space

    def told(self, value):
        return dict.fromkeys(self.agents, value)

    def reset(self, seed=None, options=None):
        self.agents, self.turn = ["a", "b"], 0
        return self.told(np.zeros(1, np.float32)), self.told({})

    def step(self, actions):
        self.turn += 1
        ends = self.told(False) | {"__all__": self.turn >= 4}
        return self.told(np.zeros(1, np.float32)), self.told(1.0), ends, dict(ends), self.told({})


@pytest.mark.parametrize(
    "env", [AECCopies(EndsAsAll), ParallelCopies(EndsAsAllAtOnce)], ids=["aec", "parallel"]
)
def test_an_end_that_is_told_of_no_agent_is_refused(env):
    """Red before: the episode went on and on."""
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    with refuses(ContractError):
        for _ in range(5):
            env.begin_turn()
            for agent in range(2):
                env.act(agent, np.zeros(1, np.int64))
            env.end_turn()
