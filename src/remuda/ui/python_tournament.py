"""`remuda.tournament`: what it is told is checked, and a terminal shows how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remuda.config import plain_data
from remuda.crossplay import (
    Entrant,
    Tournament,
    play_setup,
    play_setup_until,
    setup_of_entrants,
)
from remuda.errors import UsageError
from remuda.evaluation import Limits
from remuda.tournaments.setup import TournamentSetup
from remuda.tournaments.until import Look


@dataclass(frozen=True)
class HowFar:
    """When a tournament ends, and how many processes play it; see `remuda.tournament`."""

    episodes: int
    until: str
    matches: int
    seconds: float | None
    processes: int | None

    def check(self) -> None:
        """Raise a `UsageError` for what is out of bounds; `episodes` was checked."""
        if not isinstance(self.until, str):
            raise UsageError(f"until: a text, as in 'the best is 95% sure'; this is {self.until!r}")
        for name, value in (("matches", self.matches), ("processes", self.processes)):
            if name == "processes" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"{name}: a whole number, one at least; this is {value!r}")
        seconds = self.seconds
        if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
            raise UsageError(f"seconds: a number above 0, or None; this is {seconds!r}")


def play_in_python(
    game: str,
    options: Mapping[str, Any],
    entrants: Mapping[str, Entrant],
    seed: int,
    sampled: bool,
    directory: Path | None,
    how_far: HowFar,
) -> Tournament:
    """Play a tournament of single policies.

    Args:
        game: its name.
        options: of the game.
        entrants: by name.
        seed: of the games.
        sampled: whether policies explore as at the end of training; else they are greedy.
        directory: where matches are kept as they end, and gone on from; None: nowhere.
        how_far: when it ends.

    Raises:
        UsageError: an option is no plain data, or `how_far` is out of bounds; and as
            `remuda.crossplay.play_across` does.
    """
    how_far.check()
    try:
        plain: dict[str, Any] = plain_data(dict(options), "options")
    except ValueError as error:
        raise UsageError(str(error)) from None
    setup = setup_of_entrants(game, plain, entrants, seed, sampled)
    limits = Limits(how_far.seconds)
    if not sys.stderr.isatty():
        return _play(setup, directory, how_far, limits)

    from remuda.ui.tournament import MatchProgress

    with MatchProgress(setup.game, limits.interrupted) as progress:
        return _play(setup, directory, how_far, replace(limits, watch=progress), progress.look)


def _play(
    setup: TournamentSetup,
    directory: Path | None,
    how_far: HowFar,
    limits: Limits,
    told: Callable[[Look], None] | None = None,
) -> Tournament:
    if not how_far.until:
        return play_setup(setup, how_far.episodes, directory, None, limits, how_far.processes)
    return play_setup_until(
        setup,
        how_far.until,
        directory,
        None,
        limits,
        how_far.matches,
        told,
        how_far.processes,
    )
