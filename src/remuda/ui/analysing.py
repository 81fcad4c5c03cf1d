"""What `remuda analyse` shows: one screen, a file and pictures."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.analysis.files import read_file
from remuda.analysis.meetings import LedgerReader, read_payoffs
from remuda.analysis.overall import Analysis
from remuda.analysis.payoff import KNOWN, Payoffs
from remuda.coordinator.run_directory import RunDirectory, write_file
from remuda.envs.registry import make_env
from remuda.errors import RunDirectoryError, UsageError
from remuda.population.ratings import sides_of
from remuda.population.records import PolicyRef
from remuda.population.roster import Roster
from remuda.tournaments.record import DESCRIPTION
from remuda.tournaments.until import missing_matches as missing_in_rounds

MOST = 64
"""Policies that are looked at unless the user asks for others."""
SHOWN = 20
"""Lines of the table on the screen."""


def payoffs_of(
    source: Path, only: Sequence[str], frozen: bool, wins: bool, roles: bool
) -> tuple[Payoffs, Path]:
    """The payoffs of a run, a ledger of matches or a file, and where its analysis belongs.

    Args:
        source: a run directory, a ledger, or a file of payoffs.
        only: names of the policies to look at; empty: all.
        frozen: whether frozen copies are looked at, too.
        wins: whether wins are counted instead of returns.
        roles: whether seats are told apart; else they are pooled.

    Raises:
        RunDirectoryError: the run has no ledger, or it is damaged.
        UsageError: the file cannot be read, or a policy is not there.
    """
    if source.suffix in (".csv", ".npz"):
        if frozen or wins or roles:
            raise UsageError(f"--frozen, --wins and --roles are for runs; {source} has payoffs")
        payoffs, place = read_file(source), source.parent
    else:
        ledger, place, sides = _ledger_of(source)

        def keep(ref: PolicyRef) -> bool:
            return str(ref) in only if only else frozen or not ref.is_frozen

        payoffs = read_payoffs(ledger, symmetric=not roles, sides=sides, wins=wins, keep=keep)
        if len(payoffs.names) > MOST and not only:
            raise UsageError(
                f"{source} has matches of {len(payoffs.names)} policies, and {MOST} are looked at "
                "at once; name some with --only"
            )
    unknown = [name for name in only if name not in payoffs.names]
    if unknown:
        raise UsageError(f"--only: {unknown[0]} played no match in {source}")
    if only and len(only) < len(payoffs.names):
        payoffs = payoffs.part([payoffs.names.index(name) for name in only])
    return payoffs, place


def _ledger_of(source: Path) -> tuple[Path, Path, Sequence[int]]:
    """The ledger of a run or of a tournament, the directory that it is in, and sides by seat."""
    if (source / DESCRIPTION).is_file():
        ledger = source / "ledger.bin"
        in_rounds = missing_in_rounds(source)
        missing = missing_matches(ledger) if in_rounds is None else in_rounds
        if missing:
            print(
                f"remuda: {missing:,} matches are missing in {source}, long ones rather than short "
                f"ones; go on with remuda tournament --resume {source}",
                file=sys.stderr,
            )
        return ledger, source, ()
    run = RunDirectory.open(source)
    if not run.ledger.exists():
        raise RunDirectoryError(
            f"{run.path} has no ledger of matches: only a run with population.matchmaker has one, "
            "once a match is over"
        )
    config = run.read_config()
    env = make_env(config.game, 1, **config.env.options)
    env.close()
    teams = Roster.of(config, env.agents).teams
    return run.ledger, run.path, sides_of(teams, len(env.agents)).tolist()


def missing_matches(ledger: Path) -> int:
    """How many matches of a tournament are not in its ledger although later ones are.

    Those that take long are the last to be written, so means without them are of the short ones.

    Raises:
        RunDirectoryError: it is missing, or damaged.
    """
    found, last = 0, -1
    for matches in LedgerReader.open(ledger).pieces():
        found += len(np.unique(matches["number"]))
        last = max(last, int(matches["number"].max()))
    return max(last + 1 - found, 0)


def print_analysis(found: Analysis, console: Console | None = None) -> None:
    """One screen: the ranking with its intervals, the mixture, and a sentence for each part."""
    console = console or Console()
    ranking, mixture = found.ranking, None
    if found.equilibrium is not None:
        mixture = found.equilibrium.answer.mixtures[0]
    table = Table(title=f"{len(ranking.names)} policies, {_matches(found.payoffs):,} matches")
    for column in ("rank", "policy", "payoff", "95%", "rank, 95%", "first", "equilibrium"):
        justify: Literal["left", "right"] = "left" if column == "policy" else "right"
        table.add_column(column, justify=justify, no_wrap=True)
    order = np.argsort(ranking.ranks, kind="stable")
    for place in order[:SHOWN]:
        low, high = ranking.score_intervals[:, place]
        first, last = ranking.intervals[:, place]
        table.add_row(
            str(ranking.ranks[place]),
            Text(ranking.names[place]),
            f"{ranking.scores[place]:.3g}",
            f"{low:.2g} to {high:.2g}",
            str(first) if first == last else f"{first} to {last}",
            f"{ranking.first[place]:.0%}",
            "" if mixture is None or mixture[place] < 1e-6 else f"{mixture[place]:.1%}",
        )
    console.print(table)
    if len(order) > SHOWN:
        console.print(f"and {len(order) - SHOWN} more, in analysis.json")
    for part, words in found.in_words().items():
        console.print(Text.assemble((f"{part}: ", "bold"), words))


def _matches(payoffs: Payoffs) -> int:
    upper = np.triu(payoffs.counts)
    return int(upper[upper < KNOWN].sum())


def write_analysis(found: Analysis, directory: Path) -> tuple[Path, ...]:
    """Write `analysis.json`, its pictures and a page of them; returns where.

    Raises:
        RunDirectoryError: the disk is full or not writable.
    """
    from remuda.ui.pictures.page import draw_into  # it takes long to load

    text = json.dumps(found.as_summary(), indent=1, allow_nan=False)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_file(directory / "analysis.json", text.encode())
        page = draw_into(directory, found)
    except OSError as error:
        raise RunDirectoryError(
            f"the analysis cannot be written into {directory}: {error.strerror or error}; name "
            "another directory with --out"
        ) from None
    return directory / "analysis.json", page
