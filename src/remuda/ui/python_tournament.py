"""`remuda.tournament`: what it is told is checked, and a terminal shows how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remuda.config import plain_data
from remuda.config.faults import LONGEST_SHOWN
from remuda.config.sections import fault_of_path
from remuda.crossplay import (
    Entrant,
    Tournament,
    play_setup,
    play_setup_until,
    setup_of_entrants,
)
from remuda.errors import UsageError
from remuda.evaluation import Limits
from remuda.own_code import name_scripted
from remuda.policy_inputs import check_switch
from remuda.tournaments.setup import TournamentSetup
from remuda.tournaments.until import Look
from remuda.trained import Policy


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
    options: Mapping[str, Any] | None,
    entrants: Mapping[str, Entrant],
    seed: int,
    deterministic: bool,
    directory: Path | str | None,
    how_far: HowFar,
    scripted: Mapping[str, str | Callable[..., Any]] | None = None,
) -> Tournament:
    """Play a tournament of single policies.

    Args:
        game: its name.
        options: of the game; None: none.
        entrants: by name.
        seed: of the games.
        deterministic: whether policies are greedy; else they explore as at the end of training.
        directory: where matches are kept as they end, and gone on from; None: nowhere.
        how_far: when it ends.
        scripted: by agent, who takes its seat for good; None: nobody does.

    Raises:
        UsageError: something is of the wrong kind, an option is no plain data, or `how_far` is out
            of bounds; and as `remuda.crossplay.play_across` does.
    """
    how_far.check()
    check_switch(deterministic, "deterministic")
    if not (options is None or isinstance(options, Mapping)):
        raise UsageError(f"options: a mapping by name, or None; this is {options!r}")
    where = _directory(directory)
    try:
        plain: dict[str, Any] = plain_data(dict(options or {}), "options")
    except ValueError as error:
        raise UsageError(str(error)) from None
    taken = None if scripted is None else name_scripted(scripted, "scripted")
    setup = setup_of_entrants(game, plain, entrants, seed, not deterministic, taken)
    limits = Limits(how_far.seconds)
    if not sys.stderr.isatty():
        return _play(setup, where, how_far, limits)

    from remuda.ui.tournament import MatchProgress

    with MatchProgress(setup.game, limits.interrupted) as progress:
        return _play(setup, where, how_far, replace(limits, watch=progress), progress.look)


def _directory(given: Path | str | None) -> Path | None:
    """Where matches are kept.

    Raises:
        UsageError: it is no path.
    """
    if given is None:
        return None
    if not isinstance(given, str | Path):
        raise UsageError(f"directory: a path, or None; this is {given!r}")
    if fault := fault_of_path(str(given)):
        raise UsageError(f"directory is {str(given)[:LONGEST_SHOWN]!r}: {fault}")
    return Path(given).expanduser()


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


def check_together(episodes: int | None, until: str, matches: int | None) -> None:
    """Raise a `UsageError` for ways to say how far it goes that do not belong together."""
    if until and episodes is not None:
        raise UsageError("until says how far it goes, and so does episodes; leave out one of them")
    if not until and matches is not None:
        raise UsageError("matches is for until; without it, episodes says how many there are")


def check_entrants(entrants: object) -> None:
    """Raise a `UsageError` for what are no entrants of a tournament."""
    if isinstance(entrants, str | Policy):
        name = entrants if isinstance(entrants, str) else entrants.name
        raise UsageError(f"entrants: give a list of them, as in [{name!r}]")
    if not isinstance(entrants, Mapping | Sequence):
        raise UsageError(f"entrants: give a list of them; this is {entrants!r}")
    for who in entrants.values() if isinstance(entrants, Mapping) else entrants:
        if not isinstance(who, str | Policy):
            raise UsageError(
                f"entrants: {who!r} is no remuda.Policy, nor the name of one that plays without "
                "having learned, such as 'random'"
            )
    if not entrants:
        raise UsageError("entrants: there are none")


def named_entrants(entrants: Sequence[Policy | str]) -> dict[str, Policy | str]:
    """Named as they are; those of the same name are numbered."""
    named: dict[str, Policy | str] = {}
    for who in entrants:
        name = own = who if isinstance(who, str) else who.name
        number = 1
        while name in named:
            number += 1
            name = f"{own} ({number})"
        named[name] = who
    return named
