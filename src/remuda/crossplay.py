"""Tournaments: all against all, and what each earns among agents of each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.actor.actor import Actor
from remuda.config import Config, load_config
from remuda.envs.registry import find_game, make_env
from remuda.envs.wrapped import with_scripted
from remuda.errors import ConfigError, UsageError
from remuda.evaluate import evaluate, play_episodes, seated_actor
from remuda.evaluation import Evaluation, Limits, standard_error
from remuda.policies.spec import PolicySpec, first_weights, policy_specs
from remuda.population.roster import Roster
from remuda.publish.snapshot import Snapshot
from remuda.streams import stream, torch_stream
from remuda.types import AgentSpec
from remuda.user_code import naming_user_code

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Player:
    """A trained policy that may play."""

    spec: PolicySpec
    snapshot: Snapshot
    agent: AgentSpec
    """Who it was trained as, or one like it."""


Entrant = Player | str
"""A trained policy, or the name of one that plays without having learned."""


@dataclass(frozen=True)
class Tournament:
    """Returns by who plays against whom."""

    entrants: tuple[str, ...]
    means: Numbers
    """[N, N]: the mean return of one agent of the row's entrant, when all other agents are the
    column's; averaged over the seats, each as often. On the diagonal all agents are of one."""
    errors: Numbers
    """[N, N]: standard errors of these means, over the episodes."""
    episodes: int
    """In each cell and seat."""

    def as_summary(self) -> dict[str, object]:
        """Plain data."""
        return {
            "entrants": list(self.entrants),
            "means": self.means.tolist(),
            "standard_errors": self.errors.tolist(),
            "episodes": self.episodes,
        }


def play_tournament(
    config: Config,
    entrants: Mapping[str, Mapping[str, Snapshot]],
    episodes: int,
    seed: int = 0,
    sampled: bool = False,
) -> Tournament:
    """Let all play against all, themselves included.

    Args:
        config: of the run.
        entrants: by name, each its policies.
        episodes: for each pair and each seat of the first of it.
        seed: of the games; every pair plays others.
        sampled: whether policies explore as at the end of training; else they are greedy.
    """

    def meet(one: str, other: str, number: int) -> Sequence[Numbers]:
        found = _meet(
            config, entrants[one], entrants[other], episodes, seed + number, sampled, Limits()
        )
        assert found is not None, "without limits nothing is cut"
        return found

    return _all_against_all(tuple(entrants), episodes, meet)


@naming_user_code()
def play_across(
    game: str,
    options: Mapping[str, Any],
    entrants: Mapping[str, Entrant],
    episodes: int,
    seed: int = 0,
    sampled: bool = False,
) -> Tournament:
    """Let policies of any runs play against each other, each alone and in all pairs.

    Args:
        game: that all of them can play: they see and do what its agents see and do.
        options: of the game.
        entrants: by name.
        episodes: for each pair and each seat of the first of it.
        seed: of the games; every pair plays others.
        sampled: whether policies explore as at the end of training; else they are greedy.

    Raises:
        UsageError: an entrant cannot play an agent of the game.
        ConfigError: there is no such game, or no such scripted policy.
    """
    env = make_env(game, 1, **options)
    agents = tuple(env.agents)
    env.close()
    for name, entrant in entrants.items():
        for agent in agents:
            check_fits(game, name, entrant, agent)

    def meet(one: str, other: str, number: int) -> Sequence[Numbers]:
        found = []
        for seat, agent in enumerate(agents):
            seated = {each.name: entrants[other] for each in agents}
            seated[agent.name] = entrants[one]
            of_seat = (seed + number) * len(agents) + seat
            played = _play_seated(game, options, seated, episodes, of_seat, sampled)
            found.append(played.returns[:, seat])
        return found

    return _all_against_all(tuple(entrants), episodes, meet)


def _all_against_all(
    names: tuple[str, ...], episodes: int, meet: Callable[[str, str, int], Sequence[Numbers]]
) -> Tournament:
    """The tournament of these.

    Args:
        names: who they are.
        episodes: for each pair and seat.
        meet: the returns of one of the first among those of the second, by seat; given the number
            of the pair too, by which its games differ from those of others.
    """
    count = len(names)
    means, errors = np.zeros((count, count)), np.zeros((count, count))
    for row, one in enumerate(names):
        for column, other in enumerate(names):
            found = meet(one, other, row * count + column)
            means[row, column], errors[row, column] = _mean_and_error(found)
    return Tournament(names, means, errors, episodes)


def _mean_and_error(returns: Sequence[Numbers]) -> tuple[float, float]:
    """The mean over seats that are played equally often, and its standard error.

    What one seat earns more than another is no chance: it does not count as such.
    """
    errors = np.array([standard_error(of_seat) for of_seat in returns])
    mean = float(np.mean([of_seat.mean() for of_seat in returns]))
    return mean, float(np.sqrt((errors**2).sum()) / len(returns))


def check_fits(game: str, name: str, entrant: Entrant, agent: AgentSpec) -> None:
    """Raise a `UsageError` where an entrant does not see and do what an agent does."""
    if isinstance(entrant, str):
        find_game(game).policy(entrant)
        return
    was = entrant.agent
    for what, trained, there in (
        ("sees", was.observation_space, agent.observation_space),
        ("does", was.action_space, agent.action_space),
    ):
        if trained != there:
            raise UsageError(
                f"{name} cannot play {agent.name} of {game}: it {what} {trained}, and {agent.name} "
                f"{what} {there}"
            )
    if was.masked != agent.masked:
        has = "tells" if agent.masked else "does not tell"
        raise UsageError(
            f"{name} cannot play {agent.name} of {game}, which {has} which actions are allowed"
        )


def _play_seated(
    game: str,
    options: Mapping[str, Any],
    seated: Mapping[str, Entrant],
    episodes: int,
    seed: int,
    sampled: bool,
) -> Evaluation:
    """Play with these entrants on the seats, by agent."""
    scripted = {agent: who for agent, who in seated.items() if isinstance(who, str)}

    def make_actor(copies: int) -> Actor:
        env = make_env(game, copies, **options)
        env = with_scripted(find_game(game), env, scripted, stream(seed, "evaluation", "scripted"))
        specs, snapshots = [], {}
        stand_ins = _stand_ins(game, env.agents) if scripted else {}
        for agent in env.agents:
            who = seated[agent.name]
            spec, snapshot = (
                stand_ins[agent.name] if isinstance(who, str) else (who.spec, who.snapshot)
            )
            rate = spec.config.last_epsilon if sampled else 0.0
            specs.append(replace(spec, name=agent.name))
            snapshots[agent.name] = replace(snapshot, epsilon=rate)
        return seated_actor(env, tuple(specs), snapshots, seed)

    return play_episodes(make_actor, (), episodes, set(scripted))


def _stand_ins(game: str, agents: Sequence[AgentSpec]) -> dict[str, tuple[PolicySpec, Snapshot]]:
    """By agent, a policy for its seat where a scripted one plays it: it chooses without effect."""
    tree = {"game": game, "policy": {"algorithm": "ppo", "network": {"hidden": [1]}}}
    found = {}
    for spec in policy_specs(load_config(tree), agents):
        weights = first_weights(spec, torch_stream(0, "stand-in", spec.name))
        found[spec.name] = spec, Snapshot(weights, 0, 0, 0.0)
    return found


def margin(
    config: Config,
    one: Mapping[str, Snapshot],
    other: Mapping[str, Snapshot],
    episodes: int,
    seed: int,
    limits: Limits,
) -> float:
    """How much more an agent of `one` earns among those of `other` than one of theirs among its.

    Each seat is played for so many episodes both ways, greedily; not a number if that was cut by
    the limits, which hold for all of it together.
    """
    found, begun = [], time.monotonic()
    for way, (first, second) in enumerate(((one, other), (other, one))):
        left = limits.part(way, 2, time.monotonic() - begun)
        returns = _meet(config, first, second, episodes, 2 * seed + way, False, left)
        if returns is None:
            return math.nan
        found.append(_mean_and_error(returns)[0])
    return found[0] - found[1]


def _meet(
    config: Config,
    one: Mapping[str, Snapshot],
    other: Mapping[str, Snapshot],
    episodes: int,
    seed: int,
    sampled: bool,
    limits: Limits,
) -> list[Numbers] | None:
    """The returns of one agent of the first among agents of the second, by seat, each [episodes].

    None: it was cut by the limits.
    """
    env = make_env(config.game, 1, **config.env.options)
    names = [spec.name for spec in policy_specs(config, env.agents)]
    allowed = Roster.of(config, env.agents).seats
    env.close()
    agents = [agent.name for agent in env.agents]

    # Who of an entrant plays an agent: with a policy each its own, else those that may, in turn.
    def seats(entrant: Mapping[str, Snapshot]) -> dict[str, str]:
        chosen = {}
        for seat, agent in enumerate(agents):
            able = [n for n in names if n in entrant and seat in allowed.get(n, {seat})]
            if not able:
                raise ConfigError(f"a checkpoint has no policy that may play {agent}; leave it out")
            chosen[agent] = agent if agent in able else able[seat % len(able)]
        return chosen

    own, others = seats(one), seats(other)
    found, begun = [], time.monotonic()
    for seat, agent in enumerate(agents):
        seating = others | {agent: own[agent]}
        seated = {name: other[others[name]] for name in agents} | {agent: one[own[agent]]}
        played = evaluate(
            config,
            seated,
            episodes,
            seed * len(agents) + seat,
            sampled=sampled,
            seating=seating,
            limits=limits.part(seat, len(agents), time.monotonic() - begun),
        )
        if played.cut:
            return None
        found.append(played.returns[:, seat])
    return found
