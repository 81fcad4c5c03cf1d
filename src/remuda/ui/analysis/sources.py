"""The sources of `remuda analyse`: runs, tournaments and files, all of one game."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.payoffs.empirical_game import EmpiricalGame, Role
from remuda.analysis.payoffs.from_files import read_file
from remuda.analysis.payoffs.from_ledger import (
    Adjust,
    LedgerReader,
    read_payoffs,
    sharing,
)
from remuda.analysis.payoffs.game_from_file import read_matches
from remuda.analysis.payoffs.game_from_ledger import SeatGroup, grouped_seats, read_game, won
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.analysis.payoffs.profile_sums import TooLargeError
from remuda.analysis.payoffs.run_seats import RunSeats, group_numbers, one_role
from remuda.analysis.payoffs.team_mates import with_team_mates
from remuda.analysis.population_report import Analysis, analyse
from remuda.analysis.roles_report import RolesAnalysis, analyse_roles
from remuda.envs.description import EnvSpec
from remuda.errors import RunDirectoryError, UsageError
from remuda.evaluation.tournaments.record import DESCRIPTION
from remuda.evaluation.tournaments.until import missing_matches as missing_in_rounds
from remuda.evaluation.tournaments.until import sides_between
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
    rated: tuple[int, ...] = ()  # team numbers by seat, including scripted seats
    run: RunDirectory | None = None
    taken: tuple[str, ...] = ()  # agents with scripted seats
    payoffs: Payoffs | None = None  # known payoffs, instead of a file
    groups: tuple[SeatGroup, ...] = ()
    """Seats by role: several roles have different policies, and a single role has three
    interchangeable seats or more. Empty: a game of two interchangeable seats or teams."""
    untrained: tuple[int, ...] = ()  # seats that no policy that learns may take
    shares: Mapping[str, float] = field(default_factory=dict)
    """The weight of the team's mean in a policy's returns; empty: each seat's own return counts."""

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
    return with_matches(source, run)


def with_matches(source: AnalysisSource, run: RunDirectory) -> AnalysisSource:
    """Return the source of a run with its ledger, teams and roles."""
    spec = run.spec()
    taken, seats = tuple(spec.config.seats_taken), RunSeats.of(spec)
    return replace(source, ledger=run.ledger, taken=taken, **vars(seats))


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
    return AnalysisSource(
        path,
        label,
        path,
        game,
        options,
        ledger,
        tuple(sides),
        taken=tuple(taken),
        groups=_of_line_ups(names, teams, line_ups) or (one_role(seats, sides) if sides else ()),
    )


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


@dataclass(frozen=True)
class Population:
    """The payoffs of policies, and the game of their seats."""

    payoffs: Payoffs  # by meeting
    roles: tuple[Role, ...] = ()  # with different policies; empty: all play the same seats
    game: EmpiricalGame | None = None  # None: two interchangeable seats, or too many line-ups
    is_too_large: bool = False  # True: too many line-ups of three interchangeable seats or more

    def part(self, only: Sequence[str]) -> Population:
        """Return the population of these policies."""
        payoffs, game = self.payoffs, self.game
        game = None if game is None else game.part(lambda _, name: name in only)
        return Population(
            payoffs.part([payoffs.names.index(name) for name in only]),
            () if game is None or not self.roles else game.roles,
            game,
            self.is_too_large,
        )

    def analyse(self, rng: np.random.Generator, samples: int) -> Analysis | RolesAnalysis:
        """Analyse the policies: those of each role, or all of them together."""
        if self.roles:
            return analyse_roles(self.payoffs, self.roles, self.game, rng, samples)
        return analyse(self.payoffs, rng, samples, self.game, self.is_too_large)


def population_of(source: AnalysisSource, choice: Choice, most: int | None = None) -> Population:
    """Return the population of a run, a tournament or a file.

    `most`: maximum number of policies, the live ones first; None: more than `MOST` are refused.
    """
    only = choice.only
    if source.ledger is None:
        if choice.frozen or choice.wins or choice.roles:
            raise UsageError(f"frozen, wins and roles need matches; {source.path} has only payoffs")
        found = _read_file(source)
        names = found.payoffs.names
    else:
        found = _read_ledger(source, source.ledger, choice, most)
        names = found.payoffs.names
        if len(names) > MOST and not only:
            raise UsageError(
                f"{source.path} has matches of {len(names)} policies, but at most {MOST} "
                "can be analysed together; name some of them in `only`"
            )
    unknown = [name for name in only if name not in names]
    if unknown:
        raise UsageError(f"only: {unknown[0]} played no match in {source.path}")
    if only and len(only) < len(names):
        found = found.part(only)
    return found


def _read_file(source: AnalysisSource) -> Population:
    if source.payoffs is not None:
        return Population(source.payoffs)
    matches = read_matches(source.path)
    if matches is None:
        return Population(read_file(source.path))
    game = matches.game
    several = len(game.roles) > 1
    is_game = several or game.roles[0].seats > 2
    return Population(matches.payoffs, game.roles if several else (), game if is_game else None)


def _read_ledger(
    source: AnalysisSource, ledger: Path, choice: Choice, most: int | None
) -> Population:
    only, reader = choice.only, LedgerReader.open(ledger)
    opponents = reader.members_on(source.untrained)  # all that these seats have

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
    if len(source.groups) > 1:
        return _read_roles(source, ledger, choice, keep, most)
    shared = _shared(source, ledger)
    payoffs = read_payoffs(
        ledger,
        symmetric=not choice.roles,
        sides=source.sides,
        wins=choice.wins,
        keep=keep,
        most=most,
        adjust=shared,
    )
    if not source.groups or len(payoffs.names) > MOST:
        return Population(payoffs)

    def listed(ref: PolicyRef) -> bool:
        return str(ref) in payoffs.names

    adjust = _wins(shared, source.sides) if choice.wins else shared
    try:
        game = read_game(ledger, source.groups, keep=listed, adjust=adjust)
    except TooLargeError:
        return Population(payoffs, is_too_large=True)
    return Population(payoffs, game=game)


def _read_roles(
    source: AnalysisSource,
    ledger: Path,
    choice: Choice,
    keep: Callable[[PolicyRef], bool],
    most: int | None,
) -> Population:
    """Read the policies of several roles."""
    shared, numbers = _shared(source, ledger), group_numbers(source.groups, source.sides)
    adjust, sides = shared, numbers
    if choice.wins:
        # if there are opposing teams, a seat of the same team is no opponent, whatever its role
        teams = set(source.sides) - {-1}
        is_of_teams = 1 < len(teams) < sum(side >= 0 for side in source.sides)
        sides = source.sides if is_of_teams else numbers
        adjust = _wins(shared, sides)
    common: dict[str, Any] = {"wins": choice.wins, "keep": keep, "most": most}
    payoffs = read_payoffs(ledger, sides=sides, adjust=shared, **common)
    payoffs = with_team_mates(payoffs, ledger, source.sides, adjust)
    if len(payoffs.names) > MOST:
        return Population(payoffs)

    def listed(ref: PolicyRef) -> bool:
        return str(ref) in payoffs.names

    try:
        game = read_game(ledger, source.groups, keep=listed, adjust=adjust)
    except TooLargeError as error:
        return Population(payoffs, error.roles)
    return Population(payoffs, game.roles, game)


def _shared(source: AnalysisSource, ledger: Path) -> Adjust:
    """Return what maps returns to those that the policies on the seats learn from."""
    return sharing(LedgerReader.open(ledger).policies, source.rated, source.shares)


def _wins(adjust: Adjust, sides: Sequence[int]) -> Adjust:
    """Return what maps returns to shares of wins, after `adjust`."""
    return lambda returns, matches: won(adjust(returns, matches), sides)


def missing_matches(ledger: Path) -> int:
    """Return the number of missing matches before the last recorded match."""
    found, last = 0, -1
    for matches in LedgerReader.open(ledger).pieces():
        numbers = matches["number"]
        in_order = (numbers[1:] > numbers[:-1]).all()
        found += len(numbers) if in_order else len(np.unique(numbers))
        last = max(last, int(numbers.max()))
    return max(last + 1 - found, 0)
