"""Tournament seats: each environment copy plays one match after another.

A copy starts the next match as soon as its previous one has ended. As in training
(`remuda.actor.match_seats`), policies with the same network layout and kind of seat form one stack,
whichever matches they play. No experience is written, and no policy learns. A stream is one agent
in one environment copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from remuda.actor.batch_plan import STEP
from remuda.actor.policy_group import PolicyGroup
from remuda.actor.scripted_seats import ScriptedMember, ScriptedSeats
from remuda.actor.stream_arrays import StreamArrays
from remuda.actor.stream_seats import StreamSeats
from remuda.envs.registry import Game
from remuda.envs.scripted import ScriptedPolicy
from remuda.envs.vector_env import VectorEnv
from remuda.evaluation.tournaments.entrants import Player, is_of_remuda, stand_in
from remuda.evaluation.tournaments.random_numbers import Keys, MatchRandom, MatchSeeds, derive
from remuda.evaluation.tournaments.schedule import Schedule
from remuda.policies.acting import ActingStack
from remuda.policies.compatibility import network_layout
from remuda.policies.spec import kinds_of
from remuda.system.rng import make_rng
from remuda.types import Bools, Floats, Integers, TurnResult

KEPT_PASSES = 64  # cached passes of different shapes; each holds its layers' outputs


class Results(Protocol):
    """A receiver of finished matches."""

    def add(self, numbers: Integers, versions: Integers, returns: Floats, truncated: Bools) -> None:
        """Store matches: numbers [M], versions and returns [M, S], and flags of truncation [M]."""


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
    2. All random draws in a match follow from the seed and the match number, whichever copy
       plays it, except those of user-made scripted policies and games.
    3. After `end_dealing` no match is started, and matches in progress are finished. So the choice
       of matches does not depend on their results.
    """

    def __init__(
        self,
        env: VectorEnv,
        game: Game,
        schedule: Schedule,
        left: Integers,
        results: Results,
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
        self._left, self._next, self._dealing = left, 0, True
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
            [-1 if isinstance(who, str) else who.snapshot.version for who in schedule.players]
        )
        self._deal(np.arange(env.num_envs))
        self._plan()

    @property
    def done(self) -> bool:
        """True if no match is in progress or left."""
        return bool((self.numbers < 0).all())

    def end_dealing(self) -> None:
        """Start no more matches."""
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
            earned: Floats = returns[copies].astype(np.float32)
            versions = self._versions[self.seated[copies]]
            self._results.add(self.numbers[copies], versions, earned, truncated[copies])
            self.closed += len(copies)
        self._deal(copies)

    def begin(self, over: Bools) -> None:
        """Start the dealt matches."""
        self._turns[self._streams(np.flatnonzero(over)).reshape(-1)] = 0
        self._plan()
        self._forget_copies(over)

    def _deal(self, copies: Integers) -> None:
        """Deal the next matches to these copies; copies without a match play, but do not count."""
        count = min(len(copies), len(self._left) - self._next) if self._dealing else 0
        dealt, idle = copies[:count], copies[count:]
        numbers = self._left[self._next : self._next + count]
        self._next += count
        self.numbers[dealt], self.numbers[idle] = numbers, -1
        if count:
            self.seated[dealt] = self._schedule.places_of(numbers)
        self._matches[copies] = derive(self._seed, self.numbers[copies])
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
        for place, name in enumerate(self._schedule.players):
            if not isinstance(name, str):
                continue
            plays: dict[int, tuple[ScriptedPolicy, np.random.Generator]] = {}
            for agent in range(env.num_agents):
                if place not in self._schedule.may_sit(agent):
                    continue
                rng = make_rng(seed, "tournament", "scripted", name, agent, *self._part)
                if is_of_remuda(game, name):
                    own = slice(agent * count, (agent + 1) * count)
                    rng = MatchRandom(self._keys[own], self._turns[own], rng)
                    self._match_randoms[agent].append(rng)
                plays[agent] = game.policy(name), rng
            found.append(ScriptedMember(f"the scripted policy {name}", plays, place))
        return found


def _policy_groups(
    env: VectorEnv,
    schedule: Schedule,
    keys: Keys,
    turns: Integers,
    rest: np.random.Generator,
) -> tuple[list[StreamArrays], list[TournamentGroup]]:
    """Return the kinds of seats, and the trained policies by kind, layout and exploration."""
    kind_of = kinds_of(env.agents)
    kinds: list[StreamArrays] = []
    groups: list[TournamentGroup] = []
    for first in dict.fromkeys(kind_of):
        agents = tuple(agent for agent, kind in enumerate(kind_of) if kind == first)
        found = sorted({place for agent in agents for place in schedule.may_sit(agent)})
        trained = {p: player for p in found if isinstance(player := schedule.players[p], Player)}
        specs = [player.spec for player in trained.values()] or [stand_in(env.agents[first])]
        kind = StreamArrays(env, agents, specs[0].actions, specs[0].masked)
        kinds.append(kind)
        by_layout: dict[tuple[Any, ...], list[int]] = {}
        for place, player in trained.items():
            samples, rate = player.spec.config.entry.samples, player.snapshot.epsilon
            explores = rate > 0.0 if samples else rate
            key = (network_layout(player.spec), repr(player.spec.actions), samples, explores)
            by_layout.setdefault(key, []).append(place)
        streams = np.concatenate(
            [np.arange(agent * env.num_envs, (agent + 1) * env.num_envs) for agent in agents]
        )
        for places in by_layout.values():
            rng = _RandomOfKind(keys, turns, rest, streams)
            groups.append(_group(kind, places, trained, rng, len(schedule.players)))
    return kinds, groups


class _RandomOfKind(MatchRandom):
    """Random draws for the streams of one kind of seat."""

    def __init__(
        self, keys: Keys, turns: Integers, rest: np.random.Generator, streams: Integers
    ) -> None:
        super().__init__(keys, turns, rest)
        self._streams = streams

    def aim(self, rows: Integers) -> None:
        super().aim(self._streams[rows])


def _group(
    kind: StreamArrays,
    places: Sequence[int],
    players: Mapping[int, Player],
    rng: MatchRandom,
    num_places: int,
) -> TournamentGroup:
    """Return one stack of these policies, with their weights."""
    specs = [players[place].spec for place in places]
    width = -(-len(kind.observations_flat) // STEP) * STEP
    none = [None] * len(places)  # noisy layers act with their means
    stack = ActingStack(specs[0].network(), none, width, gathered=True, cached_passes=KEPT_PASSES)
    group = TournamentGroup(kind, specs, places, stack, (), rng, num_places)
    for place in places:
        group.load(place, players[place].snapshot)
    return group
