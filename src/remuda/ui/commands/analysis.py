"""The command `remuda analyse`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeInt

from remuda.errors import UsageError
from remuda.ui.commands.options import PrintOptions

if TYPE_CHECKING:
    from remuda.ui.analysis_sources import AnalysisSource


class AnalyseOptions(PrintOptions):
    """Analyse policies: ranking, equilibrium, cycles and diversity, with confidence intervals."""

    NEEDED = MappingProxyType(
        {
            "sources": "name what to analyse: a run, a tournament's directory or a .csv (`remuda "
            "runs` lists runs)"
        }
    )

    sources: tuple[Path, ...] = Field(min_length=1)
    """Runs, directories of runs as `--seeds` makes them, or tournaments, all of one game; or files
    of payoffs (.csv, .npz). Several are shown side by side, with what they have in common."""
    only: tuple[str, ...] = ()
    """Names of the policies to analyse, such as `policy_0` or `policy_0@12`; none: all."""
    frozen: bool = False
    """Include frozen copies; they must have met, as in a tournament of `RUN:all@frozen`."""
    wins: bool = False
    """Count wins, with draws as half of one, instead of returns."""
    roles: bool = False
    """Average the first and the second seat separately, so that a policy that sat more often on the
    better one gains nothing by it; all pairs must have met both ways."""
    samples: int = Field(400, ge=50)
    """Draws of the payoffs, from which intervals are computed."""
    seconds: float = Field(10.0, ge=0.0)
    """Seconds of fresh play of each run, separate from its training: for the behaviour of its
    policies and, with independent learners, for returns and welfare; 0: none."""
    seed: NonNegativeInt = 0
    """Seed of the draws, and of fresh play."""
    out: Path | None = None
    """The directory for analysis.json and the pictures; none: that of the run or the file, and of
    several `analysis`."""


def analyse(options: AnalyseOptions) -> int:
    """Analyse a population: ranking, equilibrium, cycles and diversity, with intervals."""
    # The matrices are small, so threads cost more than they gain. NumPy reads this when it is
    # imported.
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from remuda.ui.analysis_sources import open_sources

    sources = open_sources(options.sources)
    place = options.out or (sources[0].place if len(sources) == 1 else Path("analysis"))
    run = _analyse_matches if sources[0].has_payoffs else _analyse_societies
    written = run(options, sources, place)
    if options.format == "table":
        print(f"wrote {', '.join(str(path) for path in written)}")
    return 0


def _analyse_matches(
    options: AnalyseOptions, sources: Sequence[AnalysisSource], place: Path
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
    options.show(report.as_summary, lambda: print_report(report))
    return write_report(report, place)


def _analyse_societies(
    options: AnalyseOptions, sources: Sequence[AnalysisSource], place: Path
) -> tuple[Path, ...]:
    """Analyse runs whose agents each keep one policy; returns the files written."""
    import numpy as np

    from remuda.ui.analysing import write_summary
    from remuda.ui.society_report import print_societies, report_societies

    for flag in ("only", "frozen", "wins", "roles"):
        if getattr(options, flag):
            raise UsageError(
                f"--{flag} is about matches, and {sources[0].path} has none: each of its agents "
                "has one policy for the whole run"
            )
    rng = np.random.default_rng(options.seed)
    societies = report_societies(sources, rng, options.seconds, options.seed)
    options.show(societies.as_summary, lambda: print_societies(societies))
    return write_summary(societies.as_summary(), place)
