"""Play with saved policies, to evaluate, record or render them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from remuda.actor.actor import Actor
from remuda.actor.fixed_seats import FixedSeats
from remuda.actor.make_seats import make_policy_groups, make_seats
from remuda.actor.match_seats import MatchSeats
from remuda.actor.scripted_seats import (
    ScriptedMember,
    ScriptedSeats,
    dealt_members,
    load_scripted,
    reserved_members,
)
from remuda.config import Config
from remuda.envs.description import EnvSpec
from remuda.envs.recorded import PlayedEpisodes, Recorded
from remuda.envs.registry import GAMES, find_game
from remuda.envs.vector_env import VectorEnv
from remuda.evaluation.results import Evaluation, Limits
from remuda.policies.spec import PolicySpec
from remuda.population.dealing.lead import League
from remuda.population.members.table import Table
from remuda.population.run_spec import RunSpec
from remuda.population.setup import make_matchmaker
from remuda.publish.snapshot import Snapshot
from remuda.runtime.host import threads
from remuda.system.rng import libraries_kept, make_rng, seed_libraries
from remuda.system.scoreboard import Scoreboard
from remuda.system.user_errors import naming_user_code
from remuda.types import Array, Floats

COPIES = 100  # maximum copies that play at once
MAKING = 0.25  # share of the allowed time for making copies


@naming_user_code()
def evaluate(
    spec: RunSpec,
    snapshots: Mapping[str, Snapshot],
    episodes: int,
    seed: int = 0,
    scripted: Mapping[str, str] | None = None,
    sampled: bool | None = None,
    limits: Limits | None = None,
) -> Evaluation:
    """Play `episodes` in all environment copies together, and return the returns of each agent.

    Each copy plays equally many episodes (within one), so short episodes do not count more. The
    matchmaker of a population assigns seats to live policies. If some copy has not finished an
    episode by half of the time limit, play restarts with one copy, which is faster.

    - `scripted`: scripted policies by agent, added to `env.scripted`.
    - `sampled`: explore as at the end of training; False: greedy; None: `run.evaluate_sampled`.
    """
    explores = _explores(spec.config, sampled)

    def make_actor(copies: int) -> Actor:
        return actor_for_play(spec, snapshots, copies, seed, scripted, explores)

    with libraries_kept():
        copies, limits = copies_within(spec, episodes, limits or Limits())
        if limits.seconds == 0.0:  # making one copy took all of it
            nothing = np.zeros((0, len(spec.agents)))
            found = Evaluation(spec.env.names, nothing, asked=episodes, cut=limits.cut(0.0))
        else:
            names = tuple(snapshots)
            found = play_episodes(make_actor, names, episodes, copies, limits)
    return replace(found, sampled=explores)


def _explores(config: Config, sampled: bool | None) -> bool:
    return config.run.evaluate_sampled if sampled is None else sampled


@dataclass(frozen=True)
class RecordedPlay:
    """The record of play (`game`), the number of requested episodes, and why play was cut."""

    game: Recorded
    asked: int
    cut: str = ""

    @property
    def over(self) -> int:
        return sum(self.game.episodes_over)

    @property
    def counted(self) -> int:
        """The number of episodes that `played` returns."""
        return min(self.game.episodes_over) * self.game.num_envs if self.cut else self.over

    def played(self) -> PlayedEpisodes:
        """Return the episodes that count.

        If play was cut, each copy contributes the number of episodes that every copy finished.
        Other finished episodes are mostly short and would bias the means.
        """
        return self.game.played(min(self.game.episodes_over) if self.cut else None)


@naming_user_code()
def play_recorded(
    spec: RunSpec,
    snapshots: Mapping[str, Snapshot],
    episodes: int,
    seed: int = 0,
    *,
    sampled: bool | None = None,
    states: int = 0,
    frames: int = 1,
    seconds: float | None = None,
    scripted: Mapping[str, str] | None = None,
    steps: bool = False,
) -> RecordedPlay:
    """Play episodes as `evaluate` does, and record every turn.

    At least `states` observations of each agent are recorded, each stacked to `frames` frames;
    with `steps`, all steps of the episodes. Play ends after `seconds`, if set.
    """
    explores = _explores(spec.config, sampled)
    recorded: list[Recorded] = []

    def make_actor(copies: int) -> Actor:
        def wrap(env: VectorEnv) -> VectorEnv:
            recorded.append(Recorded(env, -(-episodes // copies), states, frames, steps))
            return recorded[-1]

        actor = actor_for_play(spec, snapshots, copies, seed, scripted, explores, wrap)
        if isinstance(actor.seats, MatchSeats):
            recorded[-1].sitting = actor.seats.sitting
        recorded[-1].start()
        return actor

    with libraries_kept():
        play = partial(play_episodes, make_actor, tuple(snapshots), episodes)
        found = play(*copies_within(spec, episodes, Limits(seconds)))
    return RecordedPlay(recorded[-1], episodes, found.cut)


def copies_within(spec: RunSpec, episodes: int, limits: Limits) -> tuple[int, Limits]:
    """Return how many copies to play at once, and the limits for the rest of the time."""
    return copies_in_time(spec.env, most_copies(spec, episodes), limits)


def most_copies(spec: RunSpec, episodes: int) -> int:
    """Return the maximum number of copies: `env.num_envs`, and more for Remuda's own games.

    Their copies are rows of arrays in one object. A copy of another game may be a simulator.
    """
    return min(COPIES if spec.env.game in GAMES else spec.config.env.num_envs, episodes)


def copies_in_time(env: EnvSpec, copies: int, limits: Limits) -> tuple[int, Limits]:
    """Return as many of `copies` as start in a quarter of the time, and the limits of the rest."""
    if env.game in GAMES or limits.seconds is None or copies == 1:
        return copies, limits
    start, most = time.monotonic(), MAKING * limits.seconds
    fitting = copies
    for _ in range(2):  # the first copy may import the game's library
        before = time.monotonic()
        env.make(1).close()
        now = time.monotonic()
        fitting = min(max(int(most / max(now - before, 1e-9)), 1), copies)
        if fitting == copies or now - start >= most:
            break
    return fitting, limits.part(0, 1, time.monotonic() - start)


def play_episodes(
    make_actor: Callable[[int], Actor],
    policies: Sequence[str],
    episodes: int,
    copies: int,
    limits: Limits,
) -> Evaluation:
    """Play equally many episodes in each copy, and return the returns of each agent.

    `make_actor` makes an actor with a number of copies. Returns of `policies` are also reported.
    """
    begun = time.monotonic()

    def elapsed() -> float:
        return time.monotonic() - begun

    def play(copies: int) -> _Play:
        return _Play(make_actor(copies), episodes)

    cut = ""
    with threads(1):  # as in an actor; more threads would compete on a busy machine
        playing = play(copies)
        try:
            while not playing.done:
                if cut := limits.cut(elapsed()):
                    break
                half_over = limits.seconds is not None and 2.0 * elapsed() >= limits.seconds
                if half_over and not playing.rounds and playing.actor.env.num_envs > 1:
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
    returns: Floats
    metrics: Floats
    history: list[int] | None  # the moves
    policies: Mapping[int, str]  # of a population, by agent


class _Play:
    """Equally many episodes in each copy of an environment."""

    def __init__(self, actor: Actor, episodes: int) -> None:
        copies = actor.env.num_envs
        quota = np.full(copies, episodes // copies)
        quota[: episodes % copies] += 1
        self.actor, self._quota = actor, quota
        self._played: list[list[_Episode]] = [[] for _ in range(copies)]
        self.over = 0  # finished episodes that count
        self._dealt = actor.seats if isinstance(actor.seats, MatchSeats) else None
        actor.on_episode = self._count

    @property
    def done(self) -> bool:
        return all(len(p) >= wanted for p, wanted in zip(self._played, self._quota, strict=True))

    def _count(self, env: int, returns: Floats, episode_metrics: Floats) -> None:
        if len(self._played[env]) >= self._quota[env]:
            return
        policies = {} if self._dealt is None else dict(self._dealt.sitting(env))
        history = self.actor.env.history(env)
        self._played[env].append(_Episode(returns, episode_metrics, history, policies))
        self.over += 1

    @property
    def rounds(self) -> int:
        """The number of episodes that every copy has finished."""
        return min(map(len, self._played))

    def found(self, policies: Sequence[str], rounds: int | None = None) -> Evaluation:
        """Return the results of each copy's first `rounds` episodes; None: of all finished ones."""
        env = self.actor.env
        names = tuple(agent.name for agent in env.agents)
        episodes = [episode for played in self._played for episode in played[:rounds]]
        returns = np.array([episode.returns for episode in episodes], np.float64)
        metrics = np.array([episode.metrics for episode in episodes], np.float64)
        by_policy: dict[str, list[float]] = {}
        for episode in episodes:
            for agent, policy in episode.policies.items():
                if not np.isnan(episode.returns[agent]):
                    by_policy.setdefault(policy, []).append(float(episode.returns[agent]))
        returns = returns.reshape(len(episodes), len(names))
        metrics = metrics.reshape(len(episodes), len(env.episode_metrics))
        return Evaluation(
            names,
            returns,
            {name: metrics[:, i] for i, name in enumerate(env.episode_metrics)},
            {name: np.array(by_policy[name]) for name in policies if name in by_policy},
            histories=tuple(tuple(each.history) for each in episodes if each.history is not None),
        )


def record(
    spec: RunSpec,
    snapshots: Mapping[str, Snapshot],
    *,
    turns: int = 100,
    seed: int = 0,
    seconds: float | None = None,
    sampled: bool | None = None,
) -> list[Array]:
    """Return at most `turns` rendered frames of one episode, each [height, width, 3] uint8."""
    begun = time.monotonic()
    with threads(1), libraries_kept():
        actor = actor_for_play(spec, snapshots, 1, seed, sampled=_explores(spec.config, sampled))
        frames = [actor.env.render().copy()]
        episodes: list[Floats] = []
        actor.on_episode = lambda _, returns, episode_metrics: episodes.append(returns)  # noqa: ARG005
        while len(frames) < turns and not episodes:
            if seconds is not None and time.monotonic() - begun > seconds:
                break
            actor.turn()
            frames.append(actor.env.render().copy())
        actor.finish()
    return frames


def actor_for_play(
    spec: RunSpec,
    snapshots: Mapping[str, Snapshot],
    copies: int,
    seed: int,
    scripted: Mapping[str, str] | None = None,
    sampled: bool = False,
    wrap: Callable[[VectorEnv], VectorEnv] = lambda env: env,
) -> Actor:
    """Return the actor with which `evaluate` plays; `wrap` may wrap its environment."""
    config = spec.config
    seed_libraries(seed, "evaluation")
    env = spec.env.make(copies, config.env.check)
    members = reserved_members(
        find_game(config.game),
        env,
        {**config.env.scripted, **(scripted or {})},
        make_rng(seed, "evaluation", "scripted"),
    )
    made = env
    env = wrap(env)

    def scripted_seats(more: Sequence[ScriptedMember] = ()) -> ScriptedSeats | None:
        return ScriptedSeats(made, [*members, *more]) if members or more else None

    # In a population, the policies whose slots are not empty.
    specs = tuple(each for each in spec.policies if each.name in snapshots)
    ready = {
        each.name: replace(
            snapshots[each.name], epsilon=each.config.last_epsilon if sampled else 0.0
        )
        for each in specs
    }
    if not config.population.dealt:
        return seated_actor(env, specs, ready, seed, config.env.check, scripted_seats())
    scoreboard = Scoreboard(tuple(each.name for each in specs))
    seats = _dealt(spec, env, specs, scoreboard, seed, scripted_seats)
    seats.take(ready)
    random = make_rng(seed, "evaluation", "env")
    return Actor(env, seats, scoreboard.play(), random, check=config.env.check)


def seated_actor(
    env: VectorEnv,
    specs: tuple[PolicySpec, ...],
    snapshots: Mapping[str, Snapshot],
    seed: int,
    check: bool = True,
    scripted: ScriptedSeats | None = None,
) -> Actor:
    """Return an actor with a policy for each agent, in order; noisy layers act on their means."""
    scoreboard = Scoreboard(tuple(spec.name for spec in specs))
    own = make_seats(env, specs, scoreboard, seed=seed, purpose="evaluation", noisy=False)
    seats = FixedSeats(env, own, scripted=scripted)
    seats.take(snapshots)
    random = make_rng(seed, "evaluation", "env")
    return Actor(env, seats, scoreboard.play(), random, check=check)


def _dealt(
    spec: RunSpec,
    env: VectorEnv,
    specs: tuple[PolicySpec, ...],
    scoreboard: Scoreboard,
    seed: int,
    scripted_seats: Callable[[Sequence[ScriptedMember]], ScriptedSeats | None],
) -> MatchSeats:
    """Return seats assigned to live policies as in training, with a separate table of members.

    Scripted policies and policies of other runs play only seats that no policy that learns may
    take.
    """
    names, config = [each.name for each in specs], spec.config
    population = config.population
    fixed = {name for seat in spec.roster.dealt_seats for name in spec.roster.fixed_on(seat)}
    scripted = {name: own for name, own in population.scripted.items() if name in fixed}
    imported = spec.fixed_members(fixed)
    table = Table(
        dict.fromkeys(names, 0),
        len(env.agents),
        0,
        imported=imported,
        # scripted policies of reserved seats are members too
        scripted=(*scripted, *config.seats_taken),
    )
    roster = spec.roster.among(names).with_imported([each.origin for each in imported])
    league = League(
        table,
        make_matchmaker(population, roster),
        None,
        make_rng(seed, "evaluation", "matches"),
        env.num_envs,
        replace(roster, teams=()),  # each seat is rated by itself
    )
    policy_groups = make_policy_groups(
        env, specs, league, {}, seed=seed, purpose="evaluation", noisy=False
    )
    loaded, purpose = load_scripted(find_game(config.game), scripted), ("evaluation", "scripted")
    dealt = dealt_members(loaded, table.slots, env.num_agents, seed, purpose)
    rows = scoreboard.policies_of()
    return MatchSeats(env, policy_groups, league, rows, scripted=scripted_seats(dealt))
