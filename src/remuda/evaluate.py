"""Play of trained policies: to measure them, and to make a picture of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from remuda.actor.actor import Actor
from remuda.actor.fixed import FixedSeats
from remuda.actor.match_seats import MatchSeats
from remuda.actor.seating import make_policy_groups, make_seats
from remuda.config import Config
from remuda.envs.recorded import PlayedEpisodes, Recorded
from remuda.envs.registry import GAMES, find_game, make_env
from remuda.envs.vector_env import VectorEnv
from remuda.envs.wrapped import with_scripted
from remuda.evaluation import Evaluation, Limits
from remuda.policies.spec import PolicySpec, policy_specs
from remuda.population.league import League
from remuda.population.roster import Roster
from remuda.population.setup import make_matchmaker
from remuda.population.table import Table
from remuda.publish.snapshot import Snapshot
from remuda.runtime.host import threads
from remuda.scoreboard import Scoreboard
from remuda.streams import libraries_kept, seed_libraries, stream
from remuda.tournaments.entrants import stand_in
from remuda.types import Array, Floats
from remuda.user_code import naming_user_code

COPIES = 100
"""The most copies of the game that are evaluated at once."""
MAKING = 0.25
"""Of the time that play may take, the share in which copies may be made."""


@naming_user_code()
def evaluate(
    config: Config,
    snapshots: Mapping[str, Snapshot],
    episodes: int,
    seed: int = 0,
    scripted: Mapping[str, str] | None = None,
    sampled: bool | None = None,
    seating: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> Evaluation:
    """Play `episodes` episodes, and return what each agent earned.

    Each copy of the game plays the same number of episodes, so that short ones do not count more.
    Of games that are not Remuda's own there are no more copies than `env.num_envs`.
    The seats of a population are dealt by its matchmaker, to live policies. Where no episode is
    over when half of the time is up, a single copy goes on, which plays faster.

    Args:
        config: of the run.
        snapshots: the policies, by name.
        episodes: how many, over all copies.
        seed: of the games.
        scripted: by agent, who plays in its place without having learned, besides those of the run.
        sampled: whether policies explore as they do at the end of training, or are greedy; None: as
            `run.evaluate_sampled` says.
        seating: by agent, the policy whose network plays it for good; `snapshots` are then those of
            the agents.
        limits: how long it may take, who may interrupt it, and who watches; None: nothing of these.

    Raises:
        ConfigError: there is no such agent, or no such scripted policy.
    """
    explores = _explores(config, sampled)

    def make_actor(copies: int) -> Actor:
        return actor_for_play(config, snapshots, copies, seed, scripted, explores, seating)

    silent = {*config.env.scripted, *(scripted or {})}
    with libraries_kept():
        play = partial(play_episodes, make_actor, tuple(snapshots), episodes, silent)
        played = play(*_copies_within(config, episodes, limits or Limits()))
    return replace(played, sampled=explores)


def _explores(config: Config, sampled: bool | None) -> bool:
    """Whether policies explore: as was asked for, or as the run itself measures them."""
    return config.run.evaluate_sampled if sampled is None else sampled


@dataclass(frozen=True)
class RecordedPlay:
    """What was recorded of play, and whether it came to its end.

    Attributes:
        game: with what was recorded; it is closed.
        asked: episodes that were to be played.
        cut: why fewer were, as of `Evaluation`; empty: all were.
    """

    game: Recorded
    asked: int
    cut: str = ""

    @property
    def over(self) -> int:
        """Episodes that were over."""
        return sum(self.game.episodes_over)

    @property
    def counted(self) -> int:
        """Episodes of `played`."""
        return min(self.game.episodes_over) * self.game.num_envs if self.cut else self.over

    def played(self) -> PlayedEpisodes:
        """The episodes that count: of play that was cut, the first ones of each copy of the game.

        Of each as many as every copy finished: what else is over by then are short ones, and means
        with them would be of these rather than of all.
        """
        return self.game.played(min(self.game.episodes_over) if self.cut else None)


@naming_user_code()
def play_recorded(
    config: Config,
    snapshots: Mapping[str, Snapshot],
    episodes: int,
    seed: int = 0,
    *,
    sampled: bool | None = None,
    states: int = 0,
    frames: int = 1,
    seconds: float | None = None,
) -> RecordedPlay:
    """Play episodes as `evaluate` does, and keep what happened in them turn by turn.

    Args:
        config: of the run.
        snapshots: the policies, by name.
        episodes: how many, over all copies.
        seed: of the games.
        sampled: as of `evaluate`.
        states: so many observations of each agent are kept.
        frames: each with those before it, so many together.
        seconds: after which play ends; None: as long as it takes.

    Returns:
        What was recorded, and whether the time was up before all of it was played.
    """
    explores = _explores(config, sampled)
    recorded: list[Recorded] = []

    def make_actor(copies: int) -> Actor:
        def wrap(env: VectorEnv) -> VectorEnv:
            recorded.append(Recorded(env, -(-episodes // copies), states, frames))
            return recorded[-1]

        actor = actor_for_play(config, snapshots, copies, seed, sampled=explores, wrap=wrap)
        recorded[-1].start()
        return actor

    silent = config.env.scripted
    with libraries_kept():
        play = partial(play_episodes, make_actor, tuple(snapshots), episodes, silent)
        found = play(*_copies_within(config, episodes, Limits(seconds)))
    return RecordedPlay(recorded[-1], episodes, found.cut)


def _copies_within(config: Config, episodes: int, limits: Limits) -> tuple[int, Limits]:
    """How many copies are played at once, and the limits of what is left then.

    Of Remuda's own games as many as are quick; of others no more than the run itself plays, and as
    many as are made in a quarter of the time: each may be a simulator that is slow to begin.
    """
    if config.game in GAMES:
        return min(COPIES, episodes), limits
    most, begun = min(COPIES, episodes, config.env.num_envs), time.monotonic()
    if limits.seconds is None or most == 1:
        return most, limits
    for _ in range(2):  # the first one may import its library
        start = time.monotonic()
        make_env(config.game, 1, **config.env.made_with).close()
        each = time.monotonic() - start
        if each * most <= MAKING * limits.seconds:
            break
    else:
        most = max(1, int(MAKING * limits.seconds / each))
    return most, limits.part(0, 1, time.monotonic() - begun)


def play_episodes(
    make_actor: Callable[[int], Actor],
    policies: Sequence[str],
    episodes: int,
    silent: Collection[str],
    copies: int,
    limits: Limits,
) -> Evaluation:
    """Play episodes, as many in each copy as in any other, and return what each agent earned.

    Args:
        make_actor: given a number of copies, who plays them; its seats have their policies.
        policies: by whose names is told what they earned, where seats are dealt.
        episodes: how many, over all copies.
        silent: agents whose policies do not play.
        copies: in which they are played.
        limits: as of `evaluate`.
    """
    begun = time.monotonic()

    def gone() -> float:
        return time.monotonic() - begun

    def play(copies: int) -> _Play:
        return _Play(make_actor(copies), episodes, set(silent))

    cut = ""
    with threads(1):  # as actors play; more of them fight where the machine has other things to do
        playing = play(copies)
        try:
            while not playing.done:
                if limits.reached(gone()):
                    cut = "interrupted" if limits.interrupted() else "the time was up"
                    break
                half_gone = limits.seconds is not None and 2.0 * gone() >= limits.seconds
                if half_gone and not playing.rounds and playing.actor.env.num_envs > 1:
                    playing.actor.finish()
                    playing = play(1)
                playing.actor.turn()
                limits.watch(playing.over, episodes)
        finally:
            playing.actor.finish()
    found = playing.found(policies, playing.rounds if cut else None)
    return replace(found, asked=episodes, cut=cut)


@dataclass(frozen=True)
class _Episode:
    """What came of an episode: its agents' returns, the game's metrics, and all moves."""

    returns: Floats
    metrics: Floats
    history: list[int] | None
    earned: tuple[tuple[str, float], ...]
    """The policy and the return of each agent that took part, where seats are dealt."""


class _Play:
    """Episodes of play that measures, as many of each copy as of any other."""

    def __init__(self, actor: Actor, episodes: int, silent: set[str]) -> None:
        copies = actor.env.num_envs
        quota = np.full(copies, episodes // copies)
        quota[: episodes % copies] += 1
        self.actor, self._quota, self._silent = actor, quota, silent
        self._played: list[list[_Episode]] = [[] for _ in range(copies)]
        self.over = 0
        """Episodes that count."""
        self._dealt = actor.seats if isinstance(actor.seats, MatchSeats) else None
        actor.on_episode = self._count

    @property
    def done(self) -> bool:
        """Whether every copy has played its episodes."""
        return all(len(p) >= wanted for p, wanted in zip(self._played, self._quota, strict=True))

    def _count(self, env: int, returns: Floats, facts: Floats) -> None:
        if len(self._played[env]) >= self._quota[env]:
            return
        earned = []
        if self._dealt is not None:
            for i, policy in enumerate(self._dealt.sitting(env)):
                plays = self.actor.env.agents[i].name not in self._silent
                if plays and not np.isnan(returns[i]):
                    earned.append((policy, float(returns[i])))
        history = self.actor.env.history(env)
        self._played[env].append(_Episode(returns, facts, history, tuple(earned)))
        self.over += 1

    @property
    def rounds(self) -> int:
        """Episodes that every copy has finished."""
        return min(map(len, self._played))

    def found(self, policies: Sequence[str], rounds: int | None = None) -> Evaluation:
        """What was earned so far.

        Args:
            policies: whose returns are told by name, where seats are dealt.
            rounds: the first episodes of each copy that count; None: all. Of play that was cut, the
                episodes that are over are short ones more often than others, so only those count of
                which each copy has as many.
        """
        env = self.actor.env
        names = tuple(agent.name for agent in env.agents)
        episodes = [episode for played in self._played for episode in played[:rounds]]
        returns = np.array([episode.returns for episode in episodes], np.float64)
        metrics = np.array([episode.metrics for episode in episodes], np.float64)
        earned: dict[str, list[float]] = {}
        for policy, value in (pair for episode in episodes for pair in episode.earned):
            earned.setdefault(policy, []).append(value)
        count = len(episodes)
        return Evaluation(
            names,
            returns.reshape(count, len(names)),
            dict(zip(env.facts, metrics.reshape(count, len(env.facts)).T, strict=True)),
            {name: np.array(earned[name]) for name in policies if name in earned},
            histories=tuple(tuple(each.history) for each in episodes if each.history is not None),
        )


def record(
    config: Config,
    snapshots: Mapping[str, Snapshot],
    *,
    turns: int = 100,
    seed: int = 0,
    seconds: float | None = None,
    sampled: bool | None = None,
) -> list[Array]:
    """Pictures of one copy over so many turns of play, each [height, width, 3] uint8.

    After so many seconds there are no more of them. `sampled` is as of `evaluate`.
    """
    begun = time.monotonic()
    with threads(1), libraries_kept():
        actor = actor_for_play(config, snapshots, 1, seed, sampled=_explores(config, sampled))
        frames = [actor.env.render().copy()]
        episodes: list[Floats] = []
        actor.on_episode = lambda _, returns, facts: episodes.append(returns)  # noqa: ARG005
        while len(frames) < turns and not episodes:
            if seconds is not None and time.monotonic() - begun > seconds:
                break
            actor.turn()
            frames.append(actor.env.render().copy())
        actor.finish()
    return frames


def actor_for_play(
    config: Config,
    snapshots: Mapping[str, Snapshot],
    copies: int,
    seed: int,
    scripted: Mapping[str, str] | None = None,
    sampled: bool = False,
    seating: Mapping[str, str] | None = None,
    wrap: Callable[[VectorEnv], VectorEnv] = lambda env: env,
) -> Actor:
    """The actor by which `evaluate` plays; see there.

    Args:
        config: of the run.
        snapshots: the policies, by name.
        copies: of the game.
        seed: of the games.
        scripted: by agent, who plays in its place without having learned, besides those of the run.
        sampled: whether policies explore as they do at the end of training.
        seating: by agent, the policy whose network plays it for good; none for those whose seats
            `env.scripted` takes from a population.
        wrap: makes of the copies of the game, with its scripted policies, what is played.
    """
    seed_libraries(seed, "evaluation")
    env = make_env(config.game, copies, **config.env.made_with)
    env.check = config.env.check
    specs = policy_specs(config, env.agents)
    random = stream(seed, "evaluation", "scripted")
    env = with_scripted(
        find_game(config.game), env, {**config.env.scripted, **(scripted or {})}, random
    )
    env = wrap(env)
    if seating is None:  # of a population, those whose places were not empty
        specs = tuple(spec for spec in specs if spec.name in snapshots)
    else:
        of = {spec.name: spec for spec in specs}
        specs = tuple(
            replace(of[seating[agent.name]], name=agent.name)
            if agent.name in seating
            else stand_in(agent)
            for agent in env.agents
        )
    ready = {
        spec.name: replace(
            snapshots[spec.name], epsilon=spec.config.last_epsilon if sampled else 0.0
        )
        for spec in specs
        if spec.name in snapshots
    }
    scoreboard = Scoreboard(tuple(spec.name for spec in specs))
    if not config.population.dealt or seating is not None:
        return seated_actor(env, specs, ready, seed, config.env.check)
    seats = _dealt(config, env, specs, scoreboard, seed)
    seats.take(ready)
    random = stream(seed, "evaluation", "env")
    return Actor(env, seats, scoreboard.play(), random, check=config.env.check)


def seated_actor(
    env: VectorEnv,
    specs: tuple[PolicySpec, ...],
    snapshots: Mapping[str, Snapshot],
    seed: int,
    check: bool = True,
) -> Actor:
    """An actor with a policy on each seat, noisy layers on their means, for play without learning.

    Args:
        env: the copies that it plays.
        specs: the policies, in the order of the agents.
        snapshots: what they play with, by their names, at the rates that these tell.
        seed: of the game and of exploration.
        check: whether what the game hands over is checked.
    """
    scoreboard = Scoreboard(tuple(spec.name for spec in specs))
    own = make_seats(env, specs, scoreboard, seed=seed, purpose="evaluation", noisy=False)
    seats = FixedSeats(env, own)
    seats.take(snapshots)
    random = stream(seed, "evaluation", "env")
    return Actor(env, seats, scoreboard.play(), random, check=check)


def _dealt(
    config: Config,
    env: VectorEnv,
    specs: tuple[PolicySpec, ...],
    scoreboard: Scoreboard,
    seed: int,
) -> MatchSeats:
    """Seats that are dealt to live policies as in training, in a table of their own."""
    names = [spec.name for spec in specs]
    roster = Roster.of(config, env.agents).among(names)
    taken = tuple(config.seats_taken)  # who sits there is a member, so that seats are complete
    table = Table(dict.fromkeys(names, 0), len(env.agents), 0, scripted=taken)
    league = League(
        table,
        make_matchmaker(config.population, roster),
        None,
        stream(seed, "evaluation", "matches"),
        env.num_envs,
        replace(roster, teams=()),  # each seat is rated by itself
    )
    policy_groups = make_policy_groups(
        env, specs, league, {}, seed=seed, purpose="evaluation", noisy=False
    )
    return MatchSeats(env, policy_groups, league, scoreboard.policies_of())
