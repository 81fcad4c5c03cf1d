"""Greedy play of trained policies: to measure them, and to make a picture of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from remuda.actor.actor import Actor
from remuda.actor.dealt import DealtSeats
from remuda.actor.fixed import FixedSeats
from remuda.actor.role import make_casts, make_seats
from remuda.actor.seats import Seats
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
from remuda.scoreboard import Scoreboard
from remuda.streams import stream
from remuda.types import Array, Floats

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


def evaluate(
    config: Config,
    snapshots: Mapping[str, Snapshot],
    episodes: int,
    seed: int = 0,
    scripted: Mapping[str, str] | None = None,
    sampled: bool = False,
    seating: Mapping[str, str] | None = None,
) -> Evaluation:
    """Play `episodes` episodes, every policy greedy, and return what each agent earned.

    Each copy of the game plays the same number of episodes, so that short ones do not count more.
    The seats of a population are dealt by its matchmaker, to live policies.

    Args:
        config: of the run.
        snapshots: the policies, by name.
        episodes: how many, over all copies.
        seed: of the games.
        scripted: by agent, who plays in its place without having learned, besides those of the run.
        sampled: whether policies explore as they do at the end of training, instead.
        seating: by agent, the policy whose network plays it for good; `snapshots` are then those of
            the agents.

    Raises:
        ConfigError: there is no such agent, or no such scripted policy.
    """
    copies = min(COPIES, episodes)
    quota = np.full(copies, episodes // copies)
    quota[: episodes % copies] += 1
    played: list[list[Floats]] = [[] for _ in range(copies)]
    told: list[Floats] = []
    actor = _make_actor(config, snapshots, copies, seed, scripted, sampled, seating)
    silent = {*config.env.scripted, *(scripted or {})}
    earned: dict[str, list[float]] = {}
    dealt = actor.seats if isinstance(actor.seats, DealtSeats) else None

    def on_episode(env: int, returns: Floats, facts: Floats) -> None:
        if len(played[env]) < quota[env]:
            played[env].append(returns)
            told.append(facts)
            if dealt is not None:
                for i, policy in enumerate(dealt.sitting(env)):
                    if actor.env.agents[i].name not in silent:
                        earned.setdefault(policy, []).append(float(returns[i]))

    actor.on_episode = on_episode
    while any(len(done) < wanted for done, wanted in zip(played, quota, strict=True)):
        actor.turn()
    names = tuple(agent.name for agent in actor.env.agents)
    actor.finish()
    facts = dict(zip(actor.env.facts, np.array(told, np.float64).T, strict=True))
    returns = np.array([r for done in played for r in done], np.float64)
    policies = {name: np.array(earned[name]) for name in snapshots if name in earned}
    return Evaluation(names, returns, facts, policies)


def record(
    config: Config,
    snapshots: Mapping[str, Snapshot],
    *,
    turns: int = 100,
    seed: int = 0,
) -> list[Array]:
    """Pictures of one copy over so many turns of greedy play, each [height, width, 3] uint8."""
    actor = _make_actor(config, snapshots, 1, seed)
    frames = [actor.env.render().copy()]
    episodes: list[Floats] = []
    actor.on_episode = lambda _, returns, facts: episodes.append(returns)  # noqa: ARG005
    while len(frames) < turns and not episodes:
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
            where it has not ended; `best`: those that did best in evaluation; or a number.

    Raises:
        RunDirectoryError: weights are missing, damaged, or of another network.
        CheckpointError: the checkpoint is missing or damaged.
    """
    config = run.read_config()
    env = make_env(config.game, 1, **config.env.options)
    specs = policy_specs(config, env.agents)
    env.close()
    specs = _living(run, config, specs, checkpoint)
    number = _find(run, specs, checkpoint)
    if number is not None:
        return config, _published(run, specs, number)
    snapshots = {}
    for spec in specs:
        tensors, facts = run.load_weights(spec.name)
        snapshots[spec.name] = Snapshot(
            weights=_flatten(spec, tensors, run),
            version=int(facts.get("version", 0)),
            learner_step=int(facts.get("learner_step", 0)),
            epsilon=0.0,
        )
    return config, snapshots


def _living(
    run: RunDirectory, config: Config, specs: tuple[PolicySpec, ...], checkpoint: int | str
) -> tuple[PolicySpec, ...]:
    """Those whose places in the population were not empty."""
    if not config.population.dealt:
        return specs
    number = _find(run, (), checkpoint)
    numbers = run.checkpoints.numbers()
    if number is None and not numbers:
        return tuple(spec for spec in specs if spec.name not in unborn(config))
    found = run.checkpoints.read(numbers[-1] if number is None else number, COORDINATOR)
    identity = found["population"]["identity"]
    return tuple(s for i, s in enumerate(specs) if identity[i, POLICY] != NOBODY)


def _find(run: RunDirectory, specs: tuple[PolicySpec, ...], checkpoint: int | str) -> int | None:
    """The number of the checkpoint that is meant; None: the weights at the end of the run."""
    numbers = run.checkpoints.numbers()
    if checkpoint == "final":
        ended = all(run.has_weights(spec.name) for spec in specs)
        return None if ended or not numbers else numbers[-1]
    if checkpoint == "best":
        best = run.checkpoints.best()
        if best is None:
            raise CheckpointError(f"{run.path} has no best checkpoint: none was evaluated yet")
        return int(best["checkpoint"])
    if checkpoint not in numbers:
        there = ", ".join(str(number) for number in numbers) or "none"
        raise CheckpointError(f"{run.path} has no checkpoint {checkpoint}; it has {there}")
    return int(checkpoint)


def _published(
    run: RunDirectory, specs: tuple[PolicySpec, ...], number: int
) -> dict[str, Snapshot]:
    """What was published when a checkpoint was taken."""
    saved = run.checkpoints.read(number, COORDINATOR)["published"]
    snapshots = {}
    for spec in specs:
        size = sum(int(np.prod(shape)) for shape in spec.network().shapes.values())
        like: Floats = np.zeros(size, np.float32)
        state = saved[spec.name]
        weights = fitting(state, "weights", like)
        snapshots[spec.name] = Snapshot(weights, state["version"], state["learner_step"], 0.0)
    return snapshots


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
            snapshots[spec.name], epsilon=spec.config.exploration.end if sampled else 0.0
        )
        for spec in specs
    }
    scoreboard = Scoreboard(tuple(spec.name for spec in specs))
    seats: Seats
    if config.population.dealt and seating is None:
        seats = _dealt(config, env, specs, scoreboard, seed)
    else:
        fixed = make_seats(env, specs, scoreboard, seed=seed, purpose="evaluation", noisy=False)
        seats = FixedSeats(env, fixed)
    seats.take(ready)
    return Actor(env, seats, scoreboard.play(), stream(seed, "evaluation", "env"))


def _dealt(
    config: Config,
    env: VectorEnv,
    specs: tuple[PolicySpec, ...],
    scoreboard: Scoreboard,
    seed: int,
) -> DealtSeats:
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
    )
    casts = make_casts(env, specs, league, {}, seed=seed, purpose="evaluation", noisy=False)
    return DealtSeats(env, casts, league, scoreboard.policies_of())
