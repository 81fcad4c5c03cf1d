"""A tournament: checkpoints of a run against each other, and what each earns against each."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from remuda.config import Config
from remuda.envs.registry import make_env
from remuda.errors import ConfigError
from remuda.evaluate import Limits, evaluate, standard_error
from remuda.policies.spec import policy_specs
from remuda.population.setup import seats_of
from remuda.publish.snapshot import Snapshot

Numbers = npt.NDArray[np.float64]


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
    names = tuple(entrants)
    count = len(names)
    means, errors = np.zeros((count, count)), np.zeros((count, count))
    for row, one in enumerate(names):
        for column, other in enumerate(names):
            returns = _meet(
                config,
                entrants[one],
                entrants[other],
                episodes,
                seed + row * count + column,
                sampled,
                Limits(),
            )
            assert returns is not None, "without limits nothing is cut"
            means[row, column], errors[row, column] = returns.mean(), standard_error(returns)
    return Tournament(names, means, errors, episodes)


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
        found.append(float(returns.mean()))
    return found[0] - found[1]


def _meet(
    config: Config,
    one: Mapping[str, Snapshot],
    other: Mapping[str, Snapshot],
    episodes: int,
    seed: int,
    sampled: bool,
    limits: Limits,
) -> Numbers | None:
    """The returns of one agent of the first among agents of the second, seat by seat: [M].

    None: it was cut by the limits.
    """
    env = make_env(config.game, 1, **config.env.options)
    names = [spec.name for spec in policy_specs(config, env.agents)]
    allowed = seats_of(config, env.agents, names) if config.population.dealt else {}
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
    return np.concatenate(found)
