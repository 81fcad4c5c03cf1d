"""Tournaments of all against all: returns of each entrant against each other entrant."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import as_json
from remuda.analysis.payoffs.returns import known
from remuda.envs.description import EnvSpec
from remuda.envs.registry import find_game
from remuda.errors import ConfigError
from remuda.evaluation.evaluate import evaluate
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.engine import Played, play
from remuda.evaluation.tournaments.entrants import (
    Entrant,
    TournamentSetup,
    of_entrants,
    of_snapshots,
)
from remuda.evaluation.tournaments.until import MATCHES, Look, play_until
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import Snapshot
from remuda.system.user_errors import naming_user_code
from remuda.types import Integers

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tournament:
    """The returns of each entrant against each other entrant."""

    entrants: tuple[str, ...]
    means: Numbers
    """[N, N]: the mean return of one agent of the row's entrant among agents of the column's, with
    equal weight for all seats. On the diagonal all agents are of the same entrant. NaN: no match.
    """
    errors: Numbers
    """[N, N]: standard errors of these means, over the episodes."""
    episodes: int
    """Requested episodes for each cell and seat."""
    matches: Integers | None = None
    """[N, N]: matches behind each mean, over all seats."""
    directory: Path | None = None
    """The directory of the saved matches; None: they were not saved."""
    cut: str = ""
    """The reason for missing matches, such as `interrupted`; empty: none is missing."""
    until: Look | None = None
    """The last look at the answer; None if the tournament was not played to answer a question."""
    scripted: Mapping[str, str] = field(default_factory=dict)
    """The scripted policy of each reserved seat, by agent."""

    def as_summary(self) -> dict[str, object]:
        """Return JSON values; None replaces NaN."""
        summary: dict[str, object] = {
            "entrants": list(self.entrants),
            "means": as_json(self.means),
            "standard_errors": as_json(self.errors),
            "episodes": self.episodes,
            "cut": self.cut,
        }
        if self.matches is not None:
            summary["matches"] = self.matches.tolist()
        if self.directory is not None:
            summary["directory"] = str(self.directory)
        if self.until is not None:
            summary["until"] = self.until.as_summary()
        if self.scripted:
            summary["scripted"] = dict(self.scripted)
        return summary


def setup_of_snapshots(
    spec: RunSpec,
    entrants: Mapping[str, Mapping[str, Snapshot]],
    seed: int = 0,
    sampled: bool = False,
) -> TournamentSetup:
    """Return a tournament whose entrants are checkpoints of a run, each with all its policies."""
    env = spec.config.env
    participants = of_snapshots(spec, entrants)
    return TournamentSetup(spec.env, participants, seed, sampled, env.check, env.scripted)


@naming_user_code()
def setup_of_entrants(
    game: str,
    options: Mapping[str, Any],
    entrants: Mapping[str, Entrant],
    seed: int = 0,
    sampled: bool = False,
    taken: Mapping[str, str] | None = None,
) -> TournamentSetup:
    """Return a tournament of single policies from any runs, in a game that fits all of them.

    `taken`: by agent, the scripted policy that reserves its seat.
    """
    env, taken = EnvSpec.of(game, options), dict(taken or {})
    setup = TournamentSetup(env, (), seed, sampled, taken=taken)
    _ = setup.taken_seats  # raises an error if they are invalid
    for policy in taken.values():
        find_game(game).policy(policy)
    return replace(setup, participants=of_entrants(game, env.agents, entrants, taken))


@naming_user_code()
def play_setup(
    setup: TournamentSetup,
    episodes: int,
    directory: Path | None = None,
    asked: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    processes: int | None = 1,
) -> Tournament:
    """Play the remaining matches of a tournament; see `tournaments.engine.play`."""
    found = play(setup, episodes, directory, asked, limits, processes=processes)
    return _tournament(setup, found, episodes, directory)


@naming_user_code()
def play_setup_until(
    setup: TournamentSetup,
    until: str,
    directory: Path | None = None,
    asked: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    most: int = MATCHES,
    on_look: Callable[[Look], None] | None = None,
    processes: int | None = 1,
) -> Tournament:
    """Play until a question is answered; see `remuda.evaluation.tournaments.until.play_until`."""
    length = (directory, asked, limits, most, on_look)
    found, look = play_until(setup, until, *length, processes=processes)
    return replace(_tournament(setup, found, 0, directory), until=look)


def _tournament(
    setup: TournamentSetup, found: Played, episodes: int, directory: Path | None
) -> Tournament:
    names = tuple(each.name for each in setup.participants)
    means = (found.means, found.errors, episodes, found.matches)
    return Tournament(names, *means, directory, found.cut, scripted=setup.taken)


def margin(
    spec: RunSpec,
    one: Mapping[str, Snapshot],
    other: Mapping[str, Snapshot],
    episodes: int,
    seed: int,
    limits: Limits,
) -> float:
    """Return the mean return of an agent of `one` among agents of `other`, minus the reverse.

    Each seat is played for `episodes` both ways, greedily unless `run.evaluate_sampled` is set. The
    limits apply to all of these episodes together. NaN: the limits cut play short.
    """
    found, begun, sampled = [], time.monotonic(), spec.config.run.evaluate_sampled
    for way, (row, column) in enumerate(((one, other), (other, one))):
        left = limits.part(way, 2, time.monotonic() - begun)
        returns = _meet(spec, row, column, episodes, 2 * seed + way, sampled, left)
        if returns is None:
            return math.nan
        means = [of_seat.mean() for of_seat in map(known, returns) if len(of_seat)]
        found.append(float(np.mean(means)) if means else math.nan)
    return found[0] - found[1]


def _meet(
    spec: RunSpec,
    one: Mapping[str, Snapshot],
    other: Mapping[str, Snapshot],
    episodes: int,
    seed: int,
    sampled: bool,
    limits: Limits,
) -> list[Numbers] | None:
    """Return, for each seat, the returns [episodes] of an agent of `one` among agents of `other`.

    Reserved seats do not count. None: the limits cut play short.
    """
    config, agents = spec.config, spec.env.names
    names, allowed = spec.roster.policies, spec.roster.seats
    dealt = [seat for seat, agent in enumerate(agents) if agent not in config.seats_taken]

    # Each agent gets the policy with the same name, or else a policy that may play the seat.
    def seats(entrant: Mapping[str, Snapshot]) -> dict[str, str]:
        chosen = {}
        for seat in dealt:
            agent = agents[seat]
            able = [n for n in names if n in entrant and seat in allowed.get(n, {seat})]
            if not able:
                raise ConfigError(f"a checkpoint has no policy that may play {agent}; leave it out")
            chosen[agent] = agent if agent in able else able[seat % len(able)]
        return chosen

    own, others = seats(one), seats(other)
    found, begun = [], time.monotonic()
    played_for = [seat for seat in dealt if agents[seat] not in config.env.scripted]
    for i, seat in enumerate(played_for):
        agent = agents[seat]
        seating = others | {agent: own[agent]}
        seated = {name: other[others[name]] for name in others} | {agent: one[own[agent]]}
        played = evaluate(
            spec,
            seated,
            episodes,
            seed * len(agents) + seat,
            sampled=sampled,
            seating=seating,
            limits=limits.part(i, len(played_for), time.monotonic() - begun),
        )
        if played.cut:
            return None
        found.append(played.filled_returns[:, seat])
    return found
