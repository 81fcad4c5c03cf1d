"""The sources of `remuda analyse`: runs, tournaments and files, all of one game."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from remuda.analysis.payoffs.empirical_game import EmpiricalGame
from remuda.analysis.payoffs.from_files import read_file
from remuda.analysis.payoffs.from_ledger import LISTED, read_game
from remuda.analysis.payoffs.ledger_reader import LedgerReader
from remuda.analysis.payoffs.ledger_seats import LedgerSeats, SeatGroup, grouped_seats, one_role
from remuda.envs.description import EnvSpec
from remuda.errors import RunDirectoryError, UsageError
from remuda.evaluation.tournaments.record import DESCRIPTION
from remuda.evaluation.tournaments.until import missing_matches as missing_in_rounds
from remuda.evaluation.tournaments.until import sides_between
from remuda.population.ledger.records import PolicyRef
from remuda.runs.run_directory import PSRO_RECORD, RunDirectory
from remuda.solvers.psro.iterations import Iteration
from remuda.solvers.psro.record import read as read_lines
from remuda.system.checkpoint.opening import read_json
from remuda.ui.reports.summary import find_runs

FILES = (".csv", ".npz")
MARKS = ("config.yaml", DESCRIPTION, PSRO_RECORD)  # of a run, a tournament and `remuda psro`


@dataclass(frozen=True)
class AnalysisSource:
    """A run, a tournament, a directory of `remuda psro` or a file of payoffs."""

    path: Path
    label: str  # a short name, unique among the sources
    place: Path  # the directory for its analysis
    game: str = ""  # empty: not known, for example for a file
    options: Mapping[str, Any] = field(default_factory=dict)
    ledger: Path | None = None  # None: a file, or a run of independent learners
    seats: LedgerSeats = field(default_factory=LedgerSeats)
    run: RunDirectory | None = None
    taken: tuple[str, ...] = ()  # agents with scripted seats
    known_game: EmpiricalGame | None = None  # a known game, instead of a file

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
    if (path / PSRO_RECORD).is_file():
        return _open_psro(path, label)
    run = RunDirectory.open(path)
    config = run.read_config()
    source = AnalysisSource(path, label, run.path, config.game, config.env.made_with, run=run)
    if not config.population.rated:
        return source
    if not run.ledger.exists():
        raise RunDirectoryError(
            f"{run.path} has no ledger yet: no match has finished; let the run continue"
        )
    return with_matches(source, run)


def with_matches(source: AnalysisSource, run: RunDirectory) -> AnalysisSource:
    """Return the source of a run with its ledger, teams and roles."""
    spec = run.spec()
    taken = tuple(spec.config.seats_taken)
    return replace(source, ledger=run.ledger, taken=taken, seats=LedgerSeats.of(spec))


def _open_psro(path: Path, label: str) -> AnalysisSource:
    """Return the newest payoffs of a double oracle, whose policies are numbered."""
    description, *lines = read_lines(path)
    solved = [line for line in lines if "iteration" in line]
    if not solved:
        raise RunDirectoryError(
            f"{path} has no payoffs yet: continue with `remuda psro --resume {path}`"
        )
    last = Iteration.from_line(solved[-1])
    if not last.is_exact:
        print(
            f"remuda: {path} has means over matches without their errors, so no interval covers "
            "the noise of these matches",
            file=sys.stderr,
        )
    known = description["game"], description["options"]
    return AnalysisSource(path, label, path, *known, known_game=last.game)


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
        teams, line_ups = record.get("teams"), dict(record.get("line_ups", {}))
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise RunDirectoryError(f"{path / DESCRIPTION} is damaged: {error}") from None
    if game and (names is None or teams is None):  # a record that another program wrote
        env = EnvSpec.of(game, options)
        names, teams = env.names, env.teams
    try:
        sides = sides_between(names, teams, taken).tolist() if game else ()
    except (TypeError, ValueError) as error:
        raise RunDirectoryError(f"{path / DESCRIPTION} is damaged: {error}") from None
    seats = [seat for seat, name in enumerate(names or ()) if name not in taken]
    groups = _of_line_ups(names, teams, line_ups) or (one_role(seats, sides) if sides else ())
    of_seats = LedgerSeats(tuple(sides), groups=groups)
    return AnalysisSource(path, label, path, game, options, ledger, of_seats, taken=tuple(taken))


def _of_line_ups(
    names: Sequence[str], teams: Sequence[str], line_ups: Mapping[str, Sequence[str]]
) -> tuple[SeatGroup, ...]:
    """Return the roles of a tournament of line-ups; empty: a single one, or no line-ups."""
    if not line_ups:
        return ()
    able = [frozenset(entrant for entrant, own in line_ups.items() if n in own) for n in names]
    groups = grouped_seats({s: each for s, each in enumerate(able) if each}, names, teams)
    return groups if len(groups) > 1 else ()


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


def game_of(source: AnalysisSource, choice: Choice, most: int | None = None) -> EmpiricalGame:
    """Return the game of a run, a tournament or a file.

    `most`: maximum number of policies, the live ones first; None: more than `LISTED` are refused.
    """
    only = choice.only
    if source.ledger is None:
        if choice.frozen or choice.wins or choice.roles:
            raise UsageError(f"frozen, wins and roles need matches; {source.path} has only payoffs")
        found = read_file(source.path) if source.known_game is None else source.known_game
    else:
        found = _read_ledger(source, source.ledger, choice, most)
    names = {name for role in found.roles for name in role.strategies}
    if source.ledger is not None and len(names) > LISTED and not only:
        raise UsageError(
            f"{source.path} has matches of {len(names)} policies, but at most {LISTED} "
            "can be analysed together; name some of them in `only`"
        )
    unknown = [name for name in only if name not in names]
    if unknown:
        raise UsageError(f"only: {unknown[0]} played no match in {source.path}")
    return found.part(lambda _, name: name in only) if only and len(only) < len(names) else found


def _read_ledger(
    source: AnalysisSource, ledger: Path, choice: Choice, most: int | None
) -> EmpiricalGame:
    only, reader = choice.only, LedgerReader.open(ledger)
    opponents = reader.members_on(source.seats.untrained)  # all that these seats have

    def keep(ref: PolicyRef) -> bool:
        if ref.is_scripted and (source.run is None or ref.policy in source.taken):
            return False  # the policy of a scripted seat
        if only:
            return str(ref) in only
        return choice.frozen or not ref.is_frozen or ref in opponents

    known = reader.policies
    for name in only:
        if name not in known and name.rpartition("@")[0] not in known:
            raise UsageError(
                f"only: there is no policy {name} in {source.path}; there are {', '.join(known)}"
            )
    pooled, wins = not choice.roles, choice.wins
    return read_game(ledger, source.seats, symmetric=pooled, wins=wins, keep=keep, most=most)


def missing_matches(ledger: Path) -> int:
    """Return the number of missing matches before the last recorded match."""
    found, last = 0, -1
    for matches in LedgerReader.open(ledger).pieces():
        numbers = matches["number"]
        in_order = (numbers[1:] > numbers[:-1]).all()
        found += len(numbers) if in_order else len(set(numbers.tolist()))
        last = max(last, int(numbers.max()))
    return max(last + 1 - found, 0)
