"""Greedy play of trained policies: to measure them, and to make a picture of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from remuda.actor.actor import Actor
from remuda.actor.fixed import FixedSeats
from remuda.actor.match_seats import MatchSeats
from remuda.actor.seating import make_policy_groups, make_seats
from remuda.checkpoint.names import file_name
from remuda.checkpoint.state import fitting
from remuda.config import Config
from remuda.coordinator.checkpointing import COORDINATOR
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.registry import find_game, make_env
from remuda.envs.vector_env import VectorEnv
from remuda.envs.wrapped import with_scripted
from remuda.errors import CheckpointError, RunDirectoryError
from remuda.policies.spec import PolicySpec, policy_specs
from remuda.population.league import League
from remuda.population.setup import make_matchmaker, policy_names, seats_of, unborn
from remuda.population.table import NOBODY, POLICY, Table
from remuda.publish.snapshot import Snapshot
from remuda.runtime.host import threads
from remuda.scoreboard import Scoreboard
from remuda.streams import stream
from remuda.types import Array, Floats
from remuda.user_code import naming_user_code

COPIES = 100
"""The most copies of the game that are evaluated at once."""


@dataclass(frozen=True)
class Evaluation:
    """Returns of greedy play."""

    agents: tuple[str, ...]
    returns: npt.NDArray[np.float64]
    """[episodes, num_agents]: the undiscounted return of each agent in each episode."""
    facts: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """By name, what the game told of each episode: [episodes]."""
    policies: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """By policy, what it earned on each seat that it had, where seats are dealt: [seats]."""
    asked: int = 0
    """Episodes that were to be played."""
    cut: str = ""
    """Why there are fewer: `the time was up` or `interrupted`; empty: there are not."""

    @property
    def constant_sum(self) -> bool:
        """Whether all agents together earned the same in every episode."""
        if not len(self.returns) or self.returns.shape[1] < 2:
            return False
        return bool(self.returns.sum(1).std() <= 1e-5 * self.largest_return)

    @property
    def same_returns(self) -> bool:
        """Whether every episode brought the same: a constant sum may then be a shared success."""
        return bool(self.returns.std(0).max() <= 1e-3 * self.largest_return)

    @property
    def largest_return(self) -> float:
        """The largest return of an agent in an episode, whatever its sign."""
        return float(np.abs(self.returns).max())

    def mean(self, agent: int) -> float:
        """Mean over the episodes of one agent's return."""
        return float(self.returns[:, agent].mean())

    def standard_error(self, agent: int) -> float:
        """Standard error of that mean; not a number for a single episode."""
        return standard_error(self.returns[:, agent])

    def as_summary(self) -> dict[str, object]:
        """Plain data for the run's summary."""
        return {
            "episodes": len(self.returns),
            "asked": self.asked,
            "cut": self.cut,
            "agents": {
                name: {"mean": self.mean(i), "standard_error": self.standard_error(i)}
                for i, name in enumerate(self.agents)
            },
            "facts": {
                name: {"mean": float(told.mean()), "standard_error": standard_error(told)}
                for name, told in self.facts.items()
            },
            "policies": {
                name: {"mean": float(earned.mean()), "standard_error": standard_error(earned)}
                for name, earned in self.policies.items()
            },
        }


def standard_error(values: npt.NDArray[np.float64]) -> float:
    """Standard error of the mean of [N] values; not a number for a single one."""
    if len(values) < 2:
        return float("nan")
    return float(values.std(ddof=1) / np.sqrt(len(values)))


@naming_user_code()
def evaluate(
    config: Config,
    snapshots: Mapping[str, Snapshot],
    episodes: int,
    seed: int = 0,
    scripted: Mapping[str, str] | None = None,
    sampled: bool = False,
    seating: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> Evaluation:
    """Play `episodes` episodes, every policy greedy, and return what each agent earned.

    Each copy of the game plays the same number of episodes, so that short ones do not count more.
    The seats of a population are dealt by its matchmaker, to live policies. Where no episode is
    over when half of the time is up, a single copy goes on, which plays faster.

    Args:
        config: of the run.
        snapshots: the policies, by name.
        episodes: how many, over all copies.
        seed: of the games.
        scripted: by agent, who plays in its place without having learned, besides those of the run.
        sampled: whether policies explore as they do at the end of training, instead.
        seating: by agent, the policy whose network plays it for good; `snapshots` are then those of
            the agents.
        limits: how long it may take, who may interrupt it, and who watches; None: nothing of these.

    Raises:
        ConfigError: there is no such agent, or no such scripted policy.
    """

    def make_actor(copies: int) -> Actor:
        return _make_actor(config, snapshots, copies, seed, scripted, sampled, seating)

    silent = {*config.env.scripted, *(scripted or {})}
    return play_episodes(make_actor, tuple(snapshots), episodes, silent, limits)


def play_episodes(
    make_actor: Callable[[int], Actor],
    policies: Sequence[str],
    episodes: int,
    silent: Collection[str] = (),
    limits: Limits | None = None,
) -> Evaluation:
    """Play episodes, as many in each copy as in any other, and return what each agent earned.

    Args:
        make_actor: given a number of copies, who plays them; its seats have their policies.
        policies: by whose names is told what they earned, where seats are dealt.
        episodes: how many, over all copies.
        silent: agents whose policies do not play.
        limits: as of `evaluate`.
    """
    limits = limits or Limits()
    begun = time.monotonic()

    def gone() -> float:
        return time.monotonic() - begun

    def play(copies: int) -> _Play:
        return _Play(make_actor(copies), episodes, set(silent))

    cut = ""
    with threads(1):  # as actors play; more of them fight where the machine has other things to do
        playing = play(min(COPIES, episodes))
        try:
            while not playing.done:
                if limits.reached(gone()):
                    cut = "interrupted" if limits.interrupted() else "the time was up"
                    break
                half_gone = limits.seconds is not None and 2.0 * gone() >= limits.seconds
                if half_gone and not playing.told and playing.actor.env.num_envs > 1:
                    playing.actor.finish()
                    playing = play(1)
                playing.actor.turn()
                limits.watch(len(playing.told), episodes)
        finally:
            playing.actor.finish()
    return replace(playing.found(policies), asked=episodes, cut=cut)


def _nobody() -> bool:
    return False


def _unwatched(done: int, wanted: int) -> None:  # noqa: ARG001
    return None


@dataclass(frozen=True)
class Limits:
    """How far greedy play goes, and who sees it."""

    seconds: float | None = None
    """After which it ends, between two turns; 0: before the first; None: as long as it takes."""
    interrupted: Callable[[], bool] = _nobody
    """Whether it is to end now; asked between two turns."""
    watch: Callable[[int, int], None] = _unwatched
    """Called after each turn with the episodes that are over, and those that are wanted."""

    def reached(self, gone: float) -> bool:
        """Whether it is to end now that so many seconds are gone."""
        return self.interrupted() or (self.seconds is not None and gone >= self.seconds)

    def part(self, index: int, count: int, gone: float = 0.0) -> Limits:
        """Of one of `count` equal parts, played one after another, with so many seconds gone."""

        def watch(done: int, wanted: int) -> None:
            self.watch(index * wanted + done, count * wanted)

        left = None if self.seconds is None else max(self.seconds - gone, 0.0)
        return replace(self, seconds=left, watch=watch)


class _Play:
    """Episodes of greedy play, as many of each copy as of any other."""

    def __init__(self, actor: Actor, episodes: int, silent: set[str]) -> None:
        copies = actor.env.num_envs
        quota = np.full(copies, episodes // copies)
        quota[: episodes % copies] += 1
        self.actor, self._quota, self._silent = actor, quota, silent
        self._played: list[list[Floats]] = [[] for _ in range(copies)]
        self.told: list[Floats] = []
        """The game's facts of each episode that counts."""
        self._earned: dict[str, list[float]] = {}
        self._dealt = actor.seats if isinstance(actor.seats, MatchSeats) else None
        actor.on_episode = self._count

    @property
    def done(self) -> bool:
        """Whether every copy has played its episodes."""
        return all(len(p) >= wanted for p, wanted in zip(self._played, self._quota, strict=True))

    def _count(self, env: int, returns: Floats, facts: Floats) -> None:
        if len(self._played[env]) >= self._quota[env]:
            return
        self._played[env].append(returns)
        self.told.append(facts)
        if self._dealt is None:
            return
        for i, policy in enumerate(self._dealt.sitting(env)):
            if self.actor.env.agents[i].name not in self._silent:
                self._earned.setdefault(policy, []).append(float(returns[i]))

    def found(self, policies: Sequence[str]) -> Evaluation:
        """What was earned so far."""
        env = self.actor.env
        names = tuple(agent.name for agent in env.agents)
        told = np.array(self.told, np.float64).reshape(len(self.told), len(env.facts))
        returns = np.array([r for done in self._played for r in done], np.float64)
        return Evaluation(
            names,
            returns.reshape(len(self.told), len(names)),
            dict(zip(env.facts, told.T, strict=True)),
            {name: np.array(self._earned[name]) for name in policies if name in self._earned},
        )


def record(
    config: Config,
    snapshots: Mapping[str, Snapshot],
    *,
    turns: int = 100,
    seed: int = 0,
    seconds: float | None = None,
) -> list[Array]:
    """Pictures of one copy over so many turns of greedy play, each [height, width, 3] uint8.

    After so many seconds there are no more of them.
    """
    begun = time.monotonic()
    with threads(1):
        actor = _make_actor(config, snapshots, 1, seed)
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


def load_run(
    run: RunDirectory, checkpoint: int | str = "final"
) -> tuple[Config, dict[str, Snapshot]]:
    """The configuration of a run, and its policies as they were saved.

    Args:
        run: the run.
        checkpoint: `final`: the weights at the end of the run, or those of its newest checkpoint
            where it has not ended; `best`: those that did best in evaluation, or the newest where
            none was evaluated; or a number.

    Raises:
        RunDirectoryError: weights are missing, damaged, or of another network.
        CheckpointError: the checkpoint is missing or damaged.
    """
    config = run.read_config()
    env = make_env(config.game, 1, **config.env.options)
    specs = policy_specs(config, env.agents)
    env.close()
    number = find_checkpoint(run, config, specs, checkpoint)
    if number is not None:
        return config, published(run, config, specs, number)
    snapshots = {}
    for spec in _ended_with(run, config, specs):
        tensors, facts = run.load_weights(spec.name)
        snapshots[spec.name] = Snapshot(
            weights=_flatten(spec, tensors, run),
            version=_count(facts, "version"),
            learner_step=_count(facts, "learner_step"),
            epsilon=0.0,
        )
    return config, snapshots


def _ended_with(
    run: RunDirectory, config: Config, specs: tuple[PolicySpec, ...]
) -> tuple[PolicySpec, ...]:
    """Those whose weights are to be there once the run has ended.

    Of a population, those that the run saved together: this does not depend on any checkpoint.
    """
    if not config.population.dealt:
        return specs
    saved = run.saved_policies([spec.name for spec in specs])
    if not saved:
        return tuple(spec for spec in specs if spec.name not in unborn(config))
    return tuple(spec for spec in specs if spec.name in saved)


def find_checkpoint(
    run: RunDirectory, config: Config, specs: tuple[PolicySpec, ...], checkpoint: int | str
) -> int | None:
    """The number of the checkpoint that is meant; None: the weights at the end of the run."""
    numbers = run.checkpoints.numbers()
    if checkpoint == "final":
        ended = all(run.has_weights(spec.name) for spec in _ended_with(run, config, specs))
        return None if ended or not numbers else numbers[-1]
    if checkpoint == "best":
        best = run.checkpoints.best()
        if best is None and not numbers:
            raise CheckpointError(f"{run.path} has no best checkpoint: it has none at all")
        return numbers[-1] if best is None else int(best["checkpoint"])
    if checkpoint not in numbers:
        there = ", ".join(str(number) for number in numbers) or "none"
        raise CheckpointError(f"{run.path} has no checkpoint {checkpoint}; it has {there}")
    return int(checkpoint)


def published(
    run: RunDirectory, config: Config, specs: tuple[PolicySpec, ...], number: int
) -> dict[str, Snapshot]:
    """What was published when a checkpoint was taken, of the policies that lived then.

    Of a population, those whose places were not empty, and who had not retired: for an empty place
    too there are weights, which no learner trained.
    """
    found = run.checkpoints.read(number, COORDINATOR)
    saved, population = found["published"], found["population"]
    snapshots = {}
    for place, spec in enumerate(specs):
        if spec.name not in saved:
            continue
        if config.population.dealt and (
            population["identity"][place, POLICY] == NOBODY or population["leaving"][place]
        ):
            continue
        size = sum(int(np.prod(shape)) for shape in spec.network().shapes.values())
        like: Floats = np.zeros(size, np.float32)
        state = saved[spec.name]
        weights = fitting(state, "weights", like)
        snapshots[spec.name] = Snapshot(weights, state["version"], state["learner_step"], 0.0)
    return snapshots


def _count(facts: Mapping[str, str], name: str) -> int:
    """A count among the facts that are saved with weights; 0: there is none, or it is damaged."""
    found = facts.get(name, "")
    return int(found) if found.isdecimal() else 0


def _flatten(spec: PolicySpec, tensors: Mapping[str, Floats], run: RunDirectory) -> Floats:
    shapes = spec.network().shapes
    for name, shape in shapes.items():
        found = tensors[name].shape if name in tensors else "nothing"
        if found != shape:
            raise RunDirectoryError(
                f"{run.weights / file_name(spec.name)}.safetensors does not fit the run's "
                f"configuration: {name} should be {shape} and is {found}"
            )
    flat: Floats = np.concatenate([tensors[name].ravel() for name in shapes]).astype(np.float32)
    return flat


def _make_actor(
    config: Config,
    snapshots: Mapping[str, Snapshot],
    copies: int,
    seed: int,
    scripted: Mapping[str, str] | None = None,
    sampled: bool = False,
    seating: Mapping[str, str] | None = None,
) -> Actor:
    env = make_env(config.game, copies, **config.env.options)
    env.check = config.env.check
    specs = policy_specs(config, env.agents)
    random = stream(seed, "evaluation", "scripted")
    env = with_scripted(
        find_game(config.game), env, {**config.env.scripted, **(scripted or {})}, random
    )
    if seating is None:  # of a population, those whose places were not empty
        specs = tuple(spec for spec in specs if spec.name in snapshots)
    else:
        of = {spec.name: spec for spec in specs}
        specs = tuple(replace(of[seating[agent.name]], name=agent.name) for agent in env.agents)
    ready = {
        spec.name: replace(
            snapshots[spec.name], epsilon=spec.config.last_epsilon if sampled else 0.0
        )
        for spec in specs
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
    seats = FixedSeats(
        env, make_seats(env, specs, scoreboard, seed=seed, purpose="evaluation", noisy=False)
    )
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
    everybody = policy_names(config, env.agents)
    table = Table(dict.fromkeys(names, 0), len(env.agents), 0)
    league = League(
        table,
        make_matchmaker(config, env.agents, names),
        None,
        stream(seed, "evaluation", "matches"),
        env.num_envs,
        seats_of(config, env.agents, everybody),
        agents=[agent.name for agent in env.agents],
    )
    policy_groups = make_policy_groups(
        env, specs, league, {}, seed=seed, purpose="evaluation", noisy=False
    )
    return MatchSeats(env, policy_groups, league, scoreboard.policies_of())
