"""A game small enough to be checked by hand, used where the rules of a game do not matter."""

import time
from dataclasses import fields
from typing import ClassVar

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from remuda.envs.scripted import turns
from remuda.envs.vector_env import VectorEnv
from remuda.experience.experience import Experience
from remuda.experience.replay import Batch
from remuda.policies.compatibility import stream_shape
from remuda.types import AgentSpec, TurnResult


class Tape(VectorEnv):
    """Each agent sees [copy, agent, episode, turn, acts taken this turn] and is given its action.

    Copy `e` ends after `lengths[e % len(lengths)]` turns, by termination in even episodes of the
    copy and by truncation in odd ones, so every way to end occurs.
    """

    def __init__(self, num_envs=1, num_agents=2, lengths=(3, 5), together=False):
        self.num_envs = num_envs
        space = Box(-1000, 1000, (5,), np.float32)
        self.agents = tuple(AgentSpec(f"agent_{i}", space, Discrete(4)) for i in range(num_agents))
        everyone = tuple(range(num_agents))
        self.turn_groups = (everyone,) if together else tuple((i,) for i in everyone)
        self._lengths = np.array([lengths[e % len(lengths)] for e in range(num_envs)])
        self._turn = np.zeros(num_envs, np.int64)
        self._episode = np.full(num_envs, -1, np.int64)
        self.acts = 0
        shape = (num_envs, num_agents)
        self._rewards = np.zeros(shape, np.float32)
        self._ends = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        self.active = np.zeros(shape, np.bool_)

    def state(self):
        names = ("_turn", "_episode", "active")
        return {name: getattr(self, name).copy() for name in names}

    def restore(self, state):
        for name, value in state.items():
            getattr(self, name)[...] = value

    def reset(self, seeds, mask):
        self.active[mask] = True
        self._turn[mask] = 0
        self._episode[mask] += 1

    def begin_turn(self):
        self.acts = 0
        self._rewards[:] = 0

    def observe(self, agent, out):
        out[:, 0] = np.arange(self.num_envs)
        out[:, 1] = agent
        out[:, 2] = self._episode
        out[:, 3] = self._turn
        out[:, 4] = self.acts

    def act(self, agent, actions):
        self.acts += 1
        self._rewards[:, agent] += actions

    def end_turn(self):
        self._turn += 1
        self.acts = 0
        over = self._turn >= self._lengths
        terminated, truncated = self._ends
        terminated[:] = (over & (self._episode % 2 == 0))[:, None]
        truncated[:] = (over & (self._episode % 2 == 1))[:, None]
        self.active[...] = ~(terminated | truncated)
        return TurnResult(self._rewards, terminated, truncated)


class Recall(VectorEnv):
    """One agent sees a cue in the first of four turns and must do it in the last."""

    turn_groups = ((0,),)

    def __init__(self, num_envs=1, picture=False):
        self.num_envs, self._picture = num_envs, picture
        shape = (6, 6, 3) if picture else (3,)
        kind = np.uint8 if picture else np.float32
        space = Box(0, 255 if picture else 1, shape, kind)
        self.agents = (AgentSpec("agent_0", space, Discrete(2)),)
        self._turn = np.zeros(num_envs, np.int64)
        self._cue = np.zeros(num_envs, np.int64)
        self._reward = np.zeros((num_envs, 1), np.float32)
        self.active = np.zeros((num_envs, 1), np.bool_)

    def reset(self, seeds, mask):
        self.active[mask] = True
        self._turn[mask] = 0
        self._cue[mask] = seeds[mask] % 2

    def begin_turn(self):
        self._reward[:] = 0

    def observe(self, agent, out):
        out[:] = 0
        if self._picture:  # the cue is where a bright spot lies, in every turn
            at = np.arange(self.num_envs)
            out[at, self._turn, 1 + 3 * self._cue, :] = 255
        else:
            first = self._turn == 0
            out[first, self._cue[first]] = 1
            out[:, 2] = self._turn == 3

    def act(self, agent, actions):
        last = self._turn == 3
        self._reward[last, 0] = (actions == self._cue)[last]

    def end_turn(self):
        self._turn += 1
        over = (self._turn == 4)[:, None]
        self.active[...] = ~over
        return TurnResult(self._reward, over, np.zeros_like(over))


def sample(replay, size):
    """A batch of one policy, without the axis of policies."""
    out = Batch.empty(replay.experience, 1, size)
    replay.sample(out, 0, size)
    return Batch(*(getattr(out, field.name)[0] for field in fields(Batch)))


class OneCopy(Tape):
    """A game that several copies of cannot be had."""

    def __init__(self, num_envs=1):
        if num_envs > 1:
            raise ValueError("only one copy at a time")
        super().__init__(num_envs)


class BreaksInTurnThree(Tape):
    """A game with a fault."""

    def end_turn(self):
        if self._turn[0] == 2:
            raise ZeroDivisionError("the third turn")
        return super().end_turn()


class BreaksBesideASlowOne(Tape):
    """The first copy's turn three breaks at once; in the other processes it takes very long."""

    def end_turn(self):
        if self._turn[0] == 2 and self.first_copy:
            time.sleep(600.0)
        if self._turn[0] == 2:
            raise ZeroDivisionError("the third turn")
        return super().end_turn()


class Script:
    """A director that commands what it is told to, once."""

    commands: ClassVar[list] = []
    seen: ClassVar[list] = []

    def step(self, population, ledger, versions):
        Script.seen.append((population.empty, set(population.learning)))
        commands, Script.commands = Script.commands, []
        return commands

    def state(self):
        return {}

    def restore(self, state):
        pass


def drawn(*shape, seed=0):
    """Standard normal numbers, as a tensor of 32-bit floats."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


def files_of(directory):
    """The ledger of a run, and the weights of all its policies."""
    import remuda

    run = remuda.load(directory)
    weights = {name: run[name].weights() for name in run}
    return (directory / "ledger.bin").read_bytes(), weights


def assert_equal(one, other):
    """Two of `files_of` are the same to the last bit."""
    assert one[0] == other[0]
    for name, weights in one[1].items():
        for key, values in weights.items():
            assert (other[1][name][key] == values).all()


def play_episodes(env, policies, episodes, seed=0):
    """Return each agent's returns by scripted policies: [episodes * num_envs, num_agents].

    They are those of the first episodes of each copy, without those that were over when they began.
    NaN: the agent took no part.
    """
    returns = np.zeros((env.num_envs, env.num_agents))
    took_part = np.zeros(returns.shape, np.bool_)
    found = [[] for _ in range(env.num_envs)]
    for result, over, acted in turns(env, policies, np.random.default_rng(seed)):
        returns += result.rewards
        took_part |= acted
        for copy in np.flatnonzero(over & took_part.any(1)):
            found[copy].append(np.where(took_part[copy], returns[copy], np.nan))
        returns[over], took_part[over] = 0.0, False
        if all(len(played) >= episodes for played in found):
            break
    return np.array([one for played in found for one in played[:episodes]])


def make_experience(spec, num_streams, learner, actors, arena=None):
    """The experience of a policy that plays so many streams at once, by actor."""
    config = spec.config
    rollout = config.rollout_length * sum(num_streams)
    return Experience(
        stream_shape(spec),
        config.stored,
        num_streams,
        learner,
        actors,
        rollout,
        keeps=config.replays > 0,
        arena=arena,
    )


def observed(env, agent):
    """What an agent observes in every copy: [num_envs, *shape]."""
    space = env.agents[agent].observation_space
    out = np.full((env.num_envs, *space.shape), 99, space.dtype)
    env.observe(agent, out)
    return out
