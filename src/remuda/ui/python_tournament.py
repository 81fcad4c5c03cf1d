"""`remuda.tournament`: its arguments are checked, and a terminal shows its progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remuda.config import plain_data
from remuda.config.faults import LONGEST_SHOWN
from remuda.config.sections import fault_of_path
from remuda.crossplay import Tournament, play_setup, play_setup_until, setup_of_entrants
from remuda.errors import UsageError
from remuda.evaluation import Limits
from remuda.own_code import name_scripted
from remuda.policy_inputs import check_switch
from remuda.tournaments.entrants import Entrant
from remuda.tournaments.until import MATCHES
from remuda.trained import Policy
from remuda.ui.numbers import distinct


@dataclass(frozen=True)
class Length:
    """The end of a tournament, and the processes that play it; see `remuda.tournament`."""

    episodes: int | None
    until: str
    matches: int | None
    seconds: float | None
    processes: int | None

    def __post_init__(self) -> None:
        if self.until and self.episodes is not None:
            raise UsageError(
                "until says how far it goes, and so does episodes; leave out one of them"
            )
        if not self.until and self.matches is not None:
            raise UsageError("matches is for until; without it, episodes says how many there are")
        if not isinstance(self.until, str):
            raise UsageError(f"until: a text, as in 'the best is 95% sure'; this is {self.until!r}")
        for name in ("matches", "processes"):
            value = getattr(self, name)
            is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if value is not None and not is_count:
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
    length: Length,
    scripted: Mapping[str, str | Callable[..., Any]] | None = None,
) -> Tournament:
    """Play a tournament of single policies; see `remuda.tournament`."""
    check_switch(deterministic, "deterministic")
    if not (options is None or isinstance(options, Mapping)):
        raise UsageError(f"options: a mapping, or None; this is {options!r}")
    place = _directory(directory)
    try:
        plain: dict[str, Any] = plain_data(dict(options or {}), "options")
    except ValueError as error:
        raise UsageError(str(error)) from None
    taken = None if scripted is None else name_scripted(scripted, "scripted")
    setup = setup_of_entrants(game, plain, entrants, seed, not deterministic, taken)

    from remuda.ui.tournament import MatchProgress

    limits = Limits(length.seconds)
    with MatchProgress(setup.game, limits.interrupted) as progress:
        is_shown = sys.stderr.isatty()
        limits = replace(limits, watch=progress) if is_shown else limits
        if not length.until:
            episodes = 100 if length.episodes is None else length.episodes
            return play_setup(setup, episodes, place, None, limits, length.processes)
        return play_setup_until(
            setup,
            length.until,
            place,
            None,
            limits,
            MATCHES if length.matches is None else length.matches,
            progress.look if is_shown else None,
            length.processes,
        )


def _directory(given: Path | str | None) -> Path | None:
    if given is None:
        return None
    if not isinstance(given, str | Path):
        raise UsageError(f"directory: a path, or None; this is {given!r}")
    if fault := fault_of_path(str(given)):
        raise UsageError(f"directory is {str(given)[:LONGEST_SHOWN]!r}: {fault}")
    return Path(given).expanduser()


def named_entrants(entrants: object) -> dict[str, Policy | str]:
    """Return named entrants; if a name occurs twice, the second gets a number."""
    if isinstance(entrants, str | Policy):
        name = entrants if isinstance(entrants, str) else entrants.name
        raise UsageError(f"entrants: give a list of them, as in [{name!r}]")
    if not isinstance(entrants, Mapping | Sequence):
        raise UsageError(f"entrants: give a list of them; this is {entrants!r}")
    listed = list(entrants.values() if isinstance(entrants, Mapping) else entrants)
    for who in listed:
        if not isinstance(who, str | Policy):
            raise UsageError(
                f"entrants: {who!r} is no remuda.Policy, nor the name of a scripted policy, such "
                "as 'random'"
            )
    if not listed:
        raise UsageError("entrants: there are none")
    if isinstance(entrants, Mapping):
        return dict(entrants)
    names = distinct(who if isinstance(who, str) else who.name for who in listed)
    return dict(zip(names, listed, strict=True))
