"""The command about what a population amounts to: `remuda analyse`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt

from remuda.config import Section
from remuda.ui.arguments import parse_flags, validate


class AnalyseOptions(Section):
    """Who is good, what rational players would play, and how sure that is."""

    source: Path
    """A run with a ledger of matches, or a file of payoffs (.csv, .npz)."""
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
    seed: NonNegativeInt = 0
    """Seed of the draws."""
    out: Path | None = None
    """The directory for analysis.json and the pictures; none: that of the run or the file."""
    format: Literal["table", "json"] = "table"
    """A screen to read, or all of it as JSON."""


def analyse(words: Sequence[str]) -> int:
    """Analyse a population: ranking, equilibrium, cycles and diversity, with how sure each is."""
    options = validate(parse_flags(words, AnalyseOptions, positional="source"), AnalyseOptions)

    import numpy as np

    from remuda.analysis.overall import analyse as analysis_of
    from remuda.ui.analysing import payoffs_of, print_analysis, write_analysis

    payoffs, place = payoffs_of(
        options.source, options.only, options.frozen, options.wins, options.roles
    )
    found = analysis_of(payoffs, np.random.default_rng(options.seed), options.samples)
    if options.format == "json":
        print(json.dumps(found.as_summary(), allow_nan=False))
    else:
        print_analysis(found)
    written = write_analysis(found, options.out or place)
    if options.format == "table":
        print(f"wrote {', '.join(str(path) for path in written)}")
    return 0
