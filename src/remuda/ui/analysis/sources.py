"""The sources of `remuda analyse`: runs, tournaments and files, all of one game."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.payoffs.from_files import read_file
from remuda.analysis.payoffs.from_ledger import LedgerReader, read_payoffs
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.envs.description import EnvSpec
from remuda.errors import RunDirectoryError, UsageError
from remuda.evaluation.tournaments.record import DESCRIPTION
from remuda.evaluation.tournaments.until import missing_matches as missing_in_rounds
from remuda.evaluation.tournaments.until import sides_between
from remuda.population.ledger.ratings import sides_of
from remuda.population.ledger.records import PolicyRef
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.opening import read_json
from remuda.ui.reports.summary import find_runs

MOST = 64  # maximum number of policies unless the user names them
FILES = (".csv", ".npz")
MARKS = ("config.yaml", DESCRIPTION)  # a run, and a tournament, has one of these


@dataclass(frozen=True)
class AnalysisSource:
    """A run, a tournament or a file of payoffs."""

    path: Path
    label: str  # a short name, unique among the sources
    place: Path  # the directory for its analysis
    game: str = ""  # empty: not known, for example for a file
    options: Mapping[str, Any] = field(default_factory=dict)
    ledger: Path | None = None  # None: a file, or a run of independent learners
    sides: tuple[int, ...] = ()
    """Team numbers by seat; -1: a scripted seat, which has no opponents; empty: no teams."""
    rated: tuple[int, ...] = ()  # team numbers by seat for ratings, including scripted seats
    run: RunDirectory | None = None
    taken: tuple[str, ...] = ()  # agents with scripted seats
    payoffs: Payoffs | None = None  # known payoffs, instead of a file

    @property
    def has_payoffs(self) -> bool:
        """True if policies met in matches; False if each agent keeps one policy."""
        return self.ledger is not None or self.run is None


@dataclass(frozen=True)
class Choice:
    """The options of `remuda analyse` that select matches; see `AnalyseOptions`."""

    only: tuple[str, ...] = ()
    frozen: bool = False
    wins: bool = False
    roles: bool = False


def open_sources(paths: Sequence[Path]) -> list[AnalysisSource]:
    """Open sources of one game; a directory of runs counts as the runs in it."""
    found: list[Path] = []
    for path in (Path(path).expanduser() for path in paths):
        is_one = not path.is_dir() or any((path / name).is_file() for name in MARKS)
        inside = [path] if is_one else find_runs(path) or [path]
        found += [each for each in inside if each not in found]
    labels = labels_of(found)
    sources = [_open(path, label) for path, label in zip(found, labels, strict=True)]
    _check_together(sources)
    return sources


def labels_of(paths: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that are distinct."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]  # without `..`
    for length in range(1, max(map(len, parts), default=1) + 1):
        labels = ["/".join(each[-length:]) for each in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [str(path) for path in paths]


def _open(path: Path, label: str) -> AnalysisSource:
    if path.suffix in FILES:
        return AnalysisSource(path, label, path.parent)
    if (path / DESCRIPTION).is_file():
        return _open_tournament(path, label)
    run = RunDirectory.open(path)
    config = run.read_config()
    source = AnalysisSource(path, label, run.path, config.game, config.env.made_with, run=run)
    if not config.population.rated:
        return source
    if not run.ledger.exists():
        raise RunDirectoryError(
            f"{run.path} has no ledger yet: no match has finished; let the run continue"
        )
    sides, rated = sides_of_seats(run)
    taken = tuple(config.seats_taken)
    return replace(source, ledger=run.ledger, sides=sides, rated=rated, taken=taken)


def sides_of_seats(run: RunDirectory) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return team numbers by seat twice: with -1 for scripted seats, and without -1."""
    spec = run.spec()
    rated = sides_of(spec.roster.teams, len(spec.agents))
    return tuple(spec.sides), tuple(rated.tolist())


def _open_tournament(path: Path, label: str) -> AnalysisSource:
    ledger = path / "ledger.bin"
    in_rounds = missing_in_rounds(path)
    missing = missing_matches(ledger) if in_rounds is None else in_rounds
    if missing:
        print(
            f"remuda: {missing:,} matches are missing in {path}, mostly long ones; "
            f"continue with remuda tournament --resume {path}",
            file=sys.stderr,
        )
    try:
        record = read_json(path / DESCRIPTION)
        game, options = str(record.get("game", "")), dict(record.get("options", {}))
        taken, names = dict(record.get("scripted", {})), record.get("agents")
        teams = record.get("teams")
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise RunDirectoryError(f"{path / DESCRIPTION} is damaged: {error}") from None
    if game and (names is None or teams is None):  # a record that another program wrote
        env = EnvSpec.of(game, options)
        names, teams = env.names, env.teams
    try:
        sides = sides_between(names, teams, taken).tolist() if game else ()
    except (TypeError, ValueError) as error:
        raise RunDirectoryError(f"{path / DESCRIPTION} is damaged: {error}") from None
    return AnalysisSource(
        path, label, path, game, options, ledger, tuple(sides), taken=tuple(taken)
    )


def _check_together(sources: Sequence[AnalysisSource]) -> None:
    first = sources[0]
    for other in sources[1:]:
        if other.game != first.game:
            left, right = (
                f"{each.path} is of {each.game}" if each.game else f"{each.path} has no game"
                for each in (first, other)
            )
            raise UsageError(f"{left}, and {right}: only runs of one game can be analysed together")
        if other.options != first.options:
            names = sorted(
                name
                for name in {*first.options, *other.options}
                if first.options.get(name) != other.options.get(name)
            )
            key = names[0] if names[0].startswith("env.") else f"env.options.{names[0]}"
            raise UsageError(
                f"{first.path} and {other.path} are of {first.game} with different options: "
                f"{key} is {first.options.get(names[0], 'the default')} and "
                f"{other.options.get(names[0], 'the default')}; analyse them separately"
            )
        if other.has_payoffs != first.has_payoffs:
            with_matches, without = (first, other) if first.has_payoffs else (other, first)
            raise UsageError(
                f"{with_matches.path} has matches, but in {without.path} each agent has one policy "
                "for the whole run; analyse them separately"
            )


def payoffs_of(source: AnalysisSource, choice: Choice) -> Payoffs:
    """Return the payoffs of a run, a tournament or a file."""
    only = choice.only
    if source.ledger is None:
        if choice.frozen or choice.wins or choice.roles:
            raise UsageError(f"frozen, wins and roles need matches; {source.path} has only payoffs")
        payoffs = source.payoffs if source.payoffs is not None else read_file(source.path)
    else:

        def keep(ref: PolicyRef) -> bool:
            if ref.is_scripted and (source.run is None or ref.policy in source.taken):
                return False  # the policy of a scripted seat
            return str(ref) in only if only else choice.frozen or not ref.is_frozen

        known = LedgerReader.open(source.ledger).policies
        for name in only:
            if name not in known and name.rpartition("@")[0] not in known:
                raise UsageError(
                    f"only: there is no policy {name} in {source.path}; there are "
                    f"{', '.join(known)}"
                )
        sides, is_symmetric = source.sides, not choice.roles
        payoffs = read_payoffs(
            source.ledger, symmetric=is_symmetric, sides=sides, wins=choice.wins, keep=keep
        )
        if len(payoffs.names) > MOST and not only:
            raise UsageError(
                f"{source.path} has matches of {len(payoffs.names)} policies, but at most {MOST} "
                "can be analysed together; name some of them in `only`"
            )
    unknown = [name for name in only if name not in payoffs.names]
    if unknown:
        raise UsageError(f"only: {unknown[0]} played no match in {source.path}")
    if only and len(only) < len(payoffs.names):
        payoffs = payoffs.part([payoffs.names.index(name) for name in only])
    return payoffs


def missing_matches(ledger: Path) -> int:
    """Return the number of missing matches before the last recorded match."""
    found, last = 0, -1
    for matches in LedgerReader.open(ledger).pieces():
        numbers = matches["number"]
        in_order = (numbers[1:] > numbers[:-1]).all()
        found += len(numbers) if in_order else len(np.unique(numbers))
        last = max(last, int(numbers.max()))
    return max(last + 1 - found, 0)
