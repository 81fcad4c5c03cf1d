"""`remuda.analyse`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.payoffs.empirical_game import EmpiricalGame
from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.errors import UsageError
from remuda.evaluation.tournaments.engine import Tournament
from remuda.runs.result import Result
from remuda.ui.analysis.screen import Report, SocietyReport, report_on
from remuda.ui.analysis.sources import AnalysisSource, Choice, open_sources


def analyse(
    source: Any,
    *,
    only: Iterable[str] = (),
    frozen: bool = False,
    wins: bool = False,
    roles: bool = False,
    samples: int = 400,
    seconds: float = 10.0,
    seed: int = 0,
) -> Report | SocietyReport:
    """Analyse policies: ranking, equilibrium, cycles and diversity, with confidence intervals.

    It computes what `remuda analyse` shows, and writes no files. If each agent keeps one policy,
    it plays fresh episodes and analyses returns and welfare.

    Args:
        source: a run (from `train` or `load`, or its directory), a saved tournament or its
            directory, `Payoffs`, an `EmpiricalGame`, or a `.csv` or `.npz` file of payoffs; or a
            list of these, of one game. `Payoffs` and games cannot be in a list.
        only: names of the policies to analyse; empty: all.
        frozen: include frozen copies.
        wins: use win rates, with draws as half a win, instead of returns.
        roles: treat the first and the second seat as different roles.
        samples: number of random draws of the payoffs, at least 50, for the intervals.
        seconds: seconds of fresh episodes for each run; 0: none.
        seed: seed of the draws and of the fresh episodes.

    Returns:
        A report: `print` shows the tables of `remuda analyse`, `as_summary()` returns the content
        of `analysis.json`, and `analyses` has an analysis for each source with matches.

    Raises:
        UsageError: an argument is invalid, a tournament was not saved, sources are of different
            games, or too few matches were played.
        RunDirectoryError: a directory is missing or damaged, or no match has finished.
    """
    if isinstance(only, str):
        raise UsageError(f"analyse: only is a list of policy names; this is {only!r}")
    if not _is_count(samples) or samples < 50:
        raise UsageError(f"analyse: samples is a whole number, 50 or more; this is {samples!r}")
    if not _is_count(seed) or seed < 0:
        raise UsageError(f"analyse: seed is a whole number, 0 or more; this is {seed!r}")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise UsageError(f"analyse: seconds is a number, 0 or more; this is {seconds!r}")
    choice = Choice(tuple(only), frozen, wins, roles)
    return report_on(_sources(source), choice, samples, seconds, seed)


def _sources(source: Any) -> list[AnalysisSource]:
    if isinstance(source, Payoffs):
        source = game_of_meetings(source)
    if isinstance(source, EmpiricalGame):
        return [AnalysisSource(Path("payoffs"), "payoffs", Path(), known_game=source)]
    is_list = isinstance(source, Iterable) and not isinstance(source, str | Path | Mapping)
    paths = [_path_of(each) for each in (source if is_list else [source])]
    if not paths:
        raise UsageError("analyse: name a run, a tournament or payoffs")
    return open_sources(paths)


def _path_of(source: Any) -> Path:
    if isinstance(source, Tournament) and source.directory is None:
        raise UsageError(
            "analyse: the matches of this tournament were not saved; play it with directory=..."
        )
    if isinstance(source, Tournament | Result):
        source = source.directory
    path = getattr(source, "path", source)  # of a run that `remuda.load` opened
    if not isinstance(path, str | Path):
        raise UsageError(
            "analyse: a source is a run, a tournament, their directory, payoffs or a file; this is "
            f"{source!r}"
        )
    return Path(path)


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
