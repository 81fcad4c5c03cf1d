"""The command about what a population amounts to: `remuda analyse`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, NonNegativeInt

from remuda.config import Section
from remuda.errors import UsageError
from remuda.ui.arguments import parse_flags, validate

if TYPE_CHECKING:
    from remuda.ui.analysis_sources import Source


class AnalyseOptions(Section):
    """Who is good, what rational players would play, and how sure that is."""

    NEEDED = MappingProxyType(
        {
            "sources": "name what to analyse: a run, a tournament's directory or a .csv (`remuda "
            "runs` lists runs)"
        }
    )

    sources: tuple[Path, ...] = Field(min_length=1)
    """Runs, directories of runs as `--seeds` makes them, or tournaments, all of one
    game; or files of payoffs (.csv, .npz). Several stand side by side: what each says, and what is
    common to them."""
    only: tuple[str, ...] = ()
    """Names of the policies to look at, such as `policy_0` or `policy_0@12`; none: all."""
    frozen: bool = False
    """Look at frozen copies, too; they must have met, as in a tournament of `RUN:all@frozen`."""
    wins: bool = False
    """Count wins, with draws as half of one, instead of returns."""
    roles: bool = False
    """Keep the first and the second seat apart before they are pooled, so that a policy that sat
    more often on the better one has nothing of it; all pairs must have met both ways."""
    samples: int = Field(400, ge=50)
    """Draws of the payoffs, from which intervals are made."""
    seconds: float = Field(10.0, ge=0.0)
    """Seconds of fresh play of each run, kept apart from its training: for how differently its
    policies act and, where each agent has one policy for good, for returns and welfare; 0: none."""
    seed: NonNegativeInt = 0
    """Seed of the draws, and of fresh play."""
    out: Path | None = None
    """The directory for analysis.json and the pictures; none: that of the run or the file, and of
    several `analysis`."""
    format: Literal["table", "json"] = "table"
    """A screen to read, or all of it as JSON."""


def analyse(words: Sequence[str]) -> int:
    """Analyse a population: ranking, equilibrium, cycles and diversity, with how sure each is."""
    options = validate(parse_flags(words, AnalyseOptions, positional="sources"), AnalyseOptions)
    _limit_threads()

    from remuda.ui.analysis_sources import open_sources

    sources = open_sources(options.sources)
    place = options.out or (sources[0].place if len(sources) == 1 else Path("analysis"))
    written = (_analyse_matches if sources[0].has_payoffs else _analyse_societies)(
        options, sources, place
    )
    if options.format == "table":
        print(f"wrote {', '.join(str(path) for path in written)}")
    return 0


def _analyse_matches(
    options: AnalyseOptions, sources: Sequence[Source], place: Path
) -> tuple[Path, ...]:
    """Analyse the payoffs of matches; returns the files written."""
    import numpy as np

    from remuda.ui.analysing import analyse_what_there_is, print_report, write_report
    from remuda.ui.analysis_sources import Choice

    rng = np.random.default_rng(options.seed)
    choice = Choice(options.only, options.frozen, options.wins, options.roles)
    report = analyse_what_there_is(
        sources, choice, rng, options.samples, options.seconds, options.seed
    )
    _show(options, report.as_summary(), lambda: print_report(report))
    return write_report(report, place)


def _analyse_societies(
    options: AnalyseOptions, sources: Sequence[Source], place: Path
) -> tuple[Path, ...]:
    """Analyse runs whose agents each keep one policy; returns the files written."""
    import numpy as np

    from remuda.ui.analysing import write_summary
    from remuda.ui.society_report import print_societies, report_societies

    rng = np.random.default_rng(options.seed)
    _refuse_choice(options, sources[0].path)
    societies = report_societies(sources, rng, options.seconds, options.seed)
    summary = societies.as_summary()
    _show(options, summary, lambda: print_societies(societies))
    return write_summary(summary, place)


def _show(
    options: AnalyseOptions, summary: Mapping[str, Any], print_table: Callable[[], None]
) -> None:
    if options.format == "json":
        print(json.dumps(summary, allow_nan=False))
    else:
        print_table()


def _refuse_choice(options: AnalyseOptions, path: Path) -> None:
    """Raise a `UsageError` for options that are about matches, where there are none."""
    for flag in ("only", "frozen", "wins", "roles"):
        if getattr(options, flag):
            raise UsageError(
                f"--{flag} is about matches, and {path} has none: each of its agents has one "
                "policy for good"
            )


def _limit_threads() -> None:
    """Let linear algebra compute in one thread.

    The matrices are small, and on many cores threads would cost more than they bring, most of all
    beside those of the solver of linear programs. The variable is read when NumPy is loaded, so
    this does nothing in a program that has loaded it.
    """
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
