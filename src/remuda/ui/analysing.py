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
    """Write `analysis.json` and its picture; returns where.

    Raises:
        RunDirectoryError: the disk is full or not writable.
    """
    pictures = [directory / f"payoffs.{kind}" for kind in ("png", "svg")]
    text = json.dumps(found.as_summary(), indent=1, allow_nan=False)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_file(directory / "analysis.json", text.encode())
        draw_payoffs(found, pictures)
    except OSError as error:
        raise RunDirectoryError(
            f"the analysis cannot be written into {directory}: {error.strerror or error}; name "
            "another directory with --out"
        ) from None
    return (directory / "analysis.json", *pictures)


def draw_payoffs(found: Analysis, paths: Sequence[Path]) -> None:
    """Draw the payoffs, ordered by rank, and beside them the ranking and the equilibrium."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    order = np.argsort(found.ranking.ranks, kind="stable")
    names = [found.payoffs.names[place] for place in order]
    count = len(names)
    matrix = found.payoffs.matrix[np.ix_(order, order)]
    errors = found.payoffs.errors[0][np.ix_(order, order)]
    side = float(np.clip(0.42 * count, 3.2, 11.0))
    with mpl.rc_context({"font.size": 9, "svg.fonttype": "none", "axes.spines.top": False}):
        figure = Figure(figsize=(side + 4.6, side + 1.0), layout="constrained")
        grid = figure.subplots(1, 3, width_ratios=[side, 2.0, 1.6], sharey=True)
        heat, scores, mixed = grid
        size = float(np.nanmax(np.abs(matrix))) or 1.0
        image = heat.imshow(matrix, cmap="RdBu", vmin=-size, vmax=size, aspect="auto")
        heat.set_xticks(range(count), names, rotation=90)
        heat.set_yticks(range(count), names)
        heat.set_title("mean payoff of the row against the column")
        if count <= 12:
            for row in range(count):
                for column in range(count):
                    if np.isfinite(matrix[row, column]):
                        dark = abs(matrix[row, column]) > 0.6 * size
                        heat.text(
                            column,
                            row,
                            f"{matrix[row, column]:.2g}\n±{errors[row, column]:.1g}",
                            ha="center",
                            va="center",
                            fontsize=7,
                            color="white" if dark else "black",
                        )
        figure.colorbar(image, ax=heat, shrink=0.7, pad=0.02)
        places = np.arange(count)
        middle = found.ranking.scores[order]
        low, high = found.ranking.score_intervals[:, order]
        spread = np.maximum(np.stack([middle - low, high - middle]), 0.0)
        scores.errorbar(middle, places, xerr=spread, fmt="o", ms=4, color="#30507a", capsize=2)
        scores.axvline(0.0, color="0.8", lw=0.8, zorder=0)
        scores.set_title("mean payoff, 95%")
        if found.equilibrium is not None:
            mass, ends = found.equilibrium.answer.mixtures[0], found.equilibrium.masses[0]
            mixed.barh(places, mass[order], color="#c9803c")
            mixed.hlines(places, ends[1][order], ends[2][order], color="0.3", lw=1)
        mixed.set_title("equilibrium")
        mixed.set_xlim(0.0, 1.0)
        for axes in (scores, mixed):
            axes.spines["right"].set_visible(False)
            axes.tick_params(axis="y", left=False)
        for path in paths:
            figure.savefig(path, dpi=150)
