"""What `remuda analyse` is given: runs, tournaments and files, all of one game."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.files import read_file
from remuda.analysis.meetings import LedgerReader, read_payoffs
from remuda.analysis.payoff import Payoffs
from remuda.checkpoint.opening import read_json
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.registry import make_env
from remuda.errors import RunDirectoryError, UsageError
from remuda.population.ratings import sides_of
from remuda.population.records import PolicyRef
from remuda.population.roster import Roster
from remuda.tournaments.record import DESCRIPTION
from remuda.tournaments.until import missing_matches as missing_in_rounds
from remuda.tournaments.until import sides_between
from remuda.types import AgentSpec
from remuda.ui.found_runs import find_runs

MOST = 64
"""Policies that are looked at unless the user asks for others."""
FILES = (".csv", ".npz")


@dataclass(frozen=True)
class Source:
    """One thing that is analysed.

    Attributes:
        path: as the user named it.
        label: by which it is told from the others.
        place: the directory that its analysis belongs into.
        game: what was played; empty: a file, which does not tell.
        options: of the game.
        ledger: of its matches; None: a file, or a run whose agents have one policy each for good.
        sides: by seat, the number of its team, -1: who sits there meets nobody; empty: all are
            against all.
        rated: as `sides`, for ratings, where who takes a seat for good plays for its team as well.
        run: the run; None: a tournament or a file.
        taken: the agents whose seats are taken for good.
    """

    path: Path
    label: str
    place: Path
    game: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    ledger: Path | None = None
    sides: tuple[int, ...] = ()
    rated: tuple[int, ...] = ()
    run: RunDirectory | None = None
    taken: tuple[str, ...] = ()

    @property
    def has_payoffs(self) -> bool:
        """Whether policies met in matches; else each agent has one policy for good."""
        return self.ledger is not None or self.run is None


@dataclass(frozen=True)
class Choice:
    """What of it is looked at.

    Attributes:
        only: names of the policies; empty: all.
        frozen: whether frozen copies are looked at, too.
        wins: whether wins are counted instead of returns.
        roles: whether seats are told apart; else they are pooled.
    """

    only: tuple[str, ...] = ()
    frozen: bool = False
    wins: bool = False
    roles: bool = False


def open_sources(paths: Sequence[Path]) -> list[Source]:
    """Look into what is to be analysed; directories of runs stand for the runs in them.

    Raises:
        RunDirectoryError: there is no run, or it is damaged, or has no match yet.
        UsageError: they are of different games, or of different kinds.
    """
    found: list[Path] = []
    for path in (Path(path).expanduser() for path in paths):
        inside = [path] if _is_one(path) else find_runs(path) or [path]
        found += [each for each in inside if each not in found]
    labels = _labels(found)
    sources = [_open(path, label) for path, label in zip(found, labels, strict=True)]
    _check_together(sources)
    return sources


def _is_one(path: Path) -> bool:
    """Whether a path is a file, a run or a tournament, rather than a directory of them."""
    return not path.is_dir() or any(
        (path / name).is_file() for name in ("config.yaml", DESCRIPTION)
    )


def _labels(paths: Sequence[Path]) -> list[str]:
    """As much of each path's end as tells it from the others."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]  # without `..`
    for length in range(1, max(map(len, parts), default=1) + 1):
        labels = ["/".join(each[-length:]) for each in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [str(path) for path in paths]


def _open(path: Path, label: str) -> Source:
    if path.suffix in FILES:
        return Source(path, label, path.parent)
    if (path / DESCRIPTION).is_file():
        return _open_tournament(path, label)
    run = RunDirectory.open(path)
    config = run.read_config()
    if not config.population.dealt:
        return Source(path, label, run.path, config.game, config.env.made_with, run=run)
    if not run.ledger.exists():
        raise RunDirectoryError(
            f"{run.path} has no ledger of matches yet: none is over; let the run go on"
        )
    agents = _agents(config.game, config.env.made_with)
    roster = Roster.of(config, agents)
    return Source(
        path,
        label,
        run.path,
        config.game,
        config.env.made_with,
        run.ledger,
        tuple(sides_of(roster.teams, len(agents), roster.taken).tolist()),
        tuple(sides_of(roster.teams, len(agents)).tolist()),
        run,
        tuple(config.seats_taken),
    )


def _open_tournament(path: Path, label: str) -> Source:
    ledger = path / "ledger.bin"
    in_rounds = missing_in_rounds(path)
    missing = missing_matches(ledger) if in_rounds is None else in_rounds
    if missing:
        print(
            f"remuda: {missing:,} matches are missing in {path}, long ones rather than short "
            f"ones; go on with remuda tournament --resume {path}",
            file=sys.stderr,
        )
    try:
        told = read_json(path / DESCRIPTION)
        game, options = str(told.get("game", "")), dict(told.get("options", {}))
        taken = dict(told.get("scripted", {}))
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise RunDirectoryError(f"{path / DESCRIPTION} is damaged: {error}") from None
    sides = sides_between(_agents(game, options), taken).tolist() if game else ()
    return Source(path, label, path, game, options, ledger, tuple(sides), taken=tuple(taken))


def _agents(game: str, options: Mapping[str, Any]) -> tuple[AgentSpec, ...]:
    env = make_env(game, 1, **options)
    env.close()
    return env.agents


def _check_together(sources: Sequence[Source]) -> None:
    """Raise a `UsageError` where sources cannot be put together."""
    first = sources[0]
    for other in sources[1:]:
        if other.game != first.game:
            one, two = (
                f"{each.path} is of {each.game}" if each.game else f"{each.path} tells no game"
                for each in (first, other)
            )
            raise UsageError(f"{one}, and {two}: only runs of one game are analysed together")
        if other.options != first.options:
            names = sorted(
                name
                for name in {*first.options, *other.options}
                if first.options.get(name) != other.options.get(name)
            )
            key = names[0] if names[0].startswith("env.") else f"env.options.{names[0]}"
            raise UsageError(
                f"{first.path} and {other.path} are of {first.game} with other options: "
                f"{key} is {first.options.get(names[0], 'the default')} and "
                f"{other.options.get(names[0], 'the default')}; analyse them apart"
            )
        if other.has_payoffs != first.has_payoffs:
            with_matches, without = (first, other) if first.has_payoffs else (other, first)
            raise UsageError(
                f"{with_matches.path} has matches, and in {without.path} each agent has one policy "
                "for good; analyse them apart"
            )


def payoffs_of(source: Source, choice: Choice) -> Payoffs:
    """The payoffs of a run, a tournament or a file.

    Raises:
        RunDirectoryError: the ledger is damaged.
        UsageError: the file cannot be read, or a policy is not there.
    """
    only = choice.only
    if source.ledger is None:
        if choice.frozen or choice.wins or choice.roles:
            raise UsageError(
                f"--frozen, --wins and --roles are for runs; {source.path} has payoffs"
            )
        payoffs = read_file(source.path)
    else:

        def keep(ref: PolicyRef) -> bool:
            if ref.is_scripted and (source.run is None or ref.policy in source.taken):
                return False  # who takes a seat for good
            return str(ref) in only if only else choice.frozen or not ref.is_frozen

        _check_names(source, only)
        payoffs = read_payoffs(
            source.ledger,
            symmetric=not choice.roles,
            sides=source.sides,
            wins=choice.wins,
            keep=keep,
        )
        if len(payoffs.names) > MOST and not only:
            raise UsageError(
                f"{source.path} has matches of {len(payoffs.names)} policies, and {MOST} are "
                "looked at at once; name some with --only"
            )
    unknown = [name for name in only if name not in payoffs.names]
    if unknown:
        raise UsageError(f"--only: {unknown[0]} played no match in {source.path}")
    if only and len(only) < len(payoffs.names):
        payoffs = payoffs.part([payoffs.names.index(name) for name in only])
    return payoffs


def _check_names(source: Source, only: Sequence[str]) -> None:
    """Raise a `UsageError` where a name is of no policy of a ledger."""
    known = LedgerReader.open(source.ledger).policies if source.ledger is not None else only
    for name in only:
        if name not in known and name.rpartition("@")[0] not in known:
            raise UsageError(
                f"--only: there is no policy {name} in {source.path}; there are {', '.join(known)}"
            )


def missing_matches(ledger: Path) -> int:
    """How many matches of a tournament are not in its ledger although later ones are.

    Those that take long are the last to be written, so means without them are of the short ones.

    Raises:
        RunDirectoryError: it is missing, or damaged.
    """
    found, last = 0, -1
    for matches in LedgerReader.open(ledger).pieces():
        numbers = matches["number"]
        in_order = (numbers[1:] > numbers[:-1]).all()
        found += len(numbers) if in_order else len(np.unique(numbers))
        last = max(last, int(numbers.max()))
    return max(last + 1 - found, 0)
