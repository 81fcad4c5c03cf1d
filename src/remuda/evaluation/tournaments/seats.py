"""Tournament seats: each environment copy plays one match after another.

As in training (`remuda.actor.match_seats`), policies with the same network layout and kind of seat
form one stack, whichever matches they play. A stream is one agent in one environment copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from remuda.actor.batch_plan import STEP
from remuda.actor.policy_group import PolicyGroup
from remuda.actor.scripted_seats import ScriptedMember, ScriptedSeats
from remuda.actor.stream_arrays import StreamArrays
from remuda.actor.stream_seats import StreamSeats
from remuda.envs.registry import RANDOM, Game
from remuda.envs.scripted import ScriptedPolicy
from remuda.envs.vector_env import VectorEnv
from remuda.evaluation.tournaments.entrants import Player
from remuda.evaluation.tournaments.random_numbers import Keys, MatchRandom, MatchSeeds, derive
from remuda.evaluation.tournaments.record import MatchResults
from remuda.evaluation.tournaments.schedule import Schedule
from remuda.policies.acting import ActingStack
from remuda.policies.action_spaces import actions_of
from remuda.policies.compatibility import network_layout
from remuda.policies.spec import kinds_of
from remuda.system.rng import make_rng
from remuda.types import Bools, Floats, Integers, TurnResult

CACHED_PASSES = 64  # cached passes of different shapes; each holds its layers' outputs


class TournamentGroup(PolicyGroup):
    """Policies with equal exploration, which act in one call and draw from their matches' rngs."""

    rng: MatchRandom

    def choose(self, group: int, rng: np.random.Generator | None) -> None:
        """Run the passes, then choose actions for all streams at once."""
        self.rng.aim(self._plans[group].rows.streams)
        super().choose(group, rng)


class TournamentSeats(StreamSeats):
    """Seats dealt from a list of matches, in order.

    Guarantees:

    1. Every match of the list is started once, and stored when it ends, however long it takes.
    2. All random draws in a match follow from the seed and the match number, or what the schedule
       draws from instead, whichever copy plays it, except those of user-made scripted policies and
       games.
    3. After `end_dealing` no match is started, and matches in progress are finished. So the choice
       of matches does not depend on their results.
    """

    def __init__(
        self,
        env: VectorEnv,
        game: Game,
        schedule: Schedule,
        unfinished: Integers,
        results: MatchResults,
        seed: int,
        part: int = 0,
    ) -> None:
        self._schedule, self._results = schedule, results
        self.groups: Sequence[tuple[int, ...]] = env.turn_groups
        self.numbers: Integers = np.full(env.num_envs, -1, np.int64)
        """[num_envs]: the match that a copy plays; -1: none, and the copy's game does not count."""
        self.seated: Integers = np.zeros((env.num_envs, env.num_agents), np.int64)
        """[num_envs, S]: the index of the policy in each seat."""
        self.closed = 0  # number of finished matches
        self._unfinished, self._next, self._dealing = unfinished, 0, True
        self._seed = int(make_rng(seed, "tournament").integers(2**63))
        keys: Keys = np.zeros(env.num_agents * env.num_envs, np.uint64)
        turns: Integers = np.zeros(len(keys), np.int64)
        self._keys, self._turns = keys, turns
        self._matches: Keys = np.zeros(env.num_envs, np.uint64)
        self._part = (part,) if part else ()
        rest = make_rng(seed, "tournament", "rest", *self._part)
        self.seeds = MatchSeeds(self._matches, rest)  # the source of the episodes' seeds
        self._copies: Integers = np.arange(env.num_envs)
        self._match_randoms: list[list[MatchRandom]] = [[] for _ in env.agents]
        kinds, groups = _policy_groups(env, schedule, keys, turns, rest)
        members = self._scripted_members(env, game, seed)
        scripted = ScriptedSeats(env, members) if members else None
        super().__init__(env, groups, kinds, scripted)
        self._versions: Integers = np.array(
            [
                -1 if isinstance(player, str) else player.snapshot.version
                for player in schedule.players
            ]
        )
        self._deal(np.arange(env.num_envs))
        self._plan()

    @property
    def done(self) -> bool:
        return bool((self.numbers < 0).all())

    def end_dealing(self) -> None:
        self._dealing = False

    def act(self, agent: int) -> None:
        """Apply the actions to the environment; scripted policies draw from their match's rng."""
        for rng in self._match_randoms[agent]:
            rng.aim(self._copies)
        super().act(agent)

    def outcome(self, result: TurnResult) -> None:
        """Count the turn; reset frames and recurrent states of agents whose episode has ended."""
        self._turns += 1
        ended = result.terminated | result.truncated
        if ended.any():
            self._forget(np.ascontiguousarray(ended.T))

    def close(
        self,
        over: Bools,
        returns: np.ndarray,
        truncated: Bools,
        turns: Integers,  # noqa: ARG002
        metrics: Floats,  # noqa: ARG002
    ) -> None:
        """Store the finished matches, and deal the next ones to their copies."""
        copies = np.flatnonzero(over & (self.numbers >= 0))
        if len(copies):
            versions = self._versions[self.seated[copies]]
            finished = returns[copies].astype(np.float32)
            self._results.add(self.numbers[copies], versions, finished, truncated[copies])
            self.closed += len(copies)
        self._deal(copies)

    def begin(self, over: Bools) -> None:
        self._turns[self._streams(np.flatnonzero(over)).reshape(-1)] = 0
        self._plan()
        self._forget_copies(over)

    def _deal(self, copies: Integers) -> None:
        """Deal the next matches to these copies; copies without a match play, but do not count."""
        count = min(len(copies), len(self._unfinished) - self._next) if self._dealing else 0
        dealt, idle = copies[:count], copies[count:]
        numbers = self._unfinished[self._next : self._next + count]
        self._next += count
        self.numbers[dealt], self.numbers[idle] = numbers, -1
        if count:
            self.seated[dealt] = self._schedule.players_of(numbers)
        draws = self._schedule.draws_of(self.numbers[copies])
        self._matches[copies] = derive(self._seed, draws)
        for agent, streams in enumerate(self._streams(copies)):
            self._keys[streams] = derive(self._matches[copies], np.full(len(copies), agent))

    def _plan(self) -> None:
        for group in self.policy_groups:
            group.deal(self.seated, self.groups)
        if self._scripted is not None:
            self._scripted.deal(self.seated)

    def _streams(self, copies: Integers) -> Integers:
        """Return the stream indices of these copies, agent by agent: [S, len(copies)]."""
        agents = np.arange(self.env.num_agents)[:, None]
        streams: Integers = agents * self.env.num_envs + copies
        return streams

    def _scripted_members(self, env: VectorEnv, game: Game, seed: int) -> list[ScriptedMember]:
        found, count = [], env.num_envs
        for index, name in enumerate(self._schedule.players):
            if not isinstance(name, str):
                continue
            plays: dict[int, tuple[ScriptedPolicy, np.random.Generator]] = {}
            for agent in range(env.num_agents):
                if index not in self._schedule.may_sit(agent):
                    continue
                rng = make_rng(seed, "tournament", "scripted", name, agent, *self._part)
                if name == RANDOM or (":" not in name and not game.is_own):  # a built-in one
                    own = slice(agent * count, (agent + 1) * count)
                    rng = MatchRandom(self._keys[own], self._turns[own], rng)
                    self._match_randoms[agent].append(rng)
                plays[agent] = game.policy(name), rng
            found.append(ScriptedMember(f"the scripted policy {name}", plays, index))
        return found


def _policy_groups(
    env: VectorEnv, schedule: Schedule, keys: Keys, turns: Integers, rest: np.random.Generator
) -> tuple[list[StreamArrays], list[TournamentGroup]]:
    """Return the kinds of seats, and the trained policies by kind, layout and exploration."""
    kind_of = kinds_of(env.agents)
    kinds: list[StreamArrays] = []
    groups: list[TournamentGroup] = []
    for first in dict.fromkeys(kind_of):
        agents = tuple(agent for agent, kind in enumerate(kind_of) if kind == first)
        found = sorted({index for agent in agents for index in schedule.may_sit(agent)})
        trained = {i: player for i in found if isinstance(player := schedule.players[i], Player)}
        agent_spec = env.agents[first]
        actions = actions_of(agent_spec.action_space, agent_spec.name)
        if trained:
            actions = next(iter(trained.values())).spec.actions
        kind = StreamArrays(env, agents, actions, agent_spec.masked)
        kinds.append(kind)
        by_layout: dict[tuple[Any, ...], list[int]] = {}
        for index, player in trained.items():
            samples, rate = player.spec.config.entry.samples, player.snapshot.epsilon
            explores = rate > 0.0 if samples else rate
            key = (network_layout(player.spec), repr(player.spec.actions), samples, explores)
            by_layout.setdefault(key, []).append(index)
        streams = np.concatenate(
            [np.arange(agent * env.num_envs, (agent + 1) * env.num_envs) for agent in agents]
        )
        width = -(-len(kind.observations_flat) // STEP) * STEP
        for indices in by_layout.values():
            specs = [trained[index].spec for index in indices]
            noise = [None] * len(indices)  # noisy layers act with their means
            network, rng = specs[0].network(), MatchRandom(keys, turns, rest, streams)
            stack = ActingStack(network, noise, width, gathered=True, cached_passes=CACHED_PASSES)
            count = len(schedule.players)
            group = TournamentGroup(kind, specs, indices, stack, (), rng, count)
            for index in indices:
                group.load(index, trained[index].snapshot)
            groups.append(group)
    return kinds, groups
