"""The commands about several runs: `remuda runs`, `remuda compare`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from remuda.config import Section
from remuda.ui.arguments import parse_flags, validate

SEEDS = "seeds.json"
"""In a directory of runs that differ by their seed: which there are to be, and how configured."""


class RunsOptions(Section):
    """The runs in a directory: game, when, how they ended, what they earned."""

    directory: Path = Path("runs")
    """Where they are; directories in it are looked into, too."""
    format: Literal["table", "json"] = "table"
    """A table to read, or a list as JSON; `--json` is short for the latter."""


class CompareOptions(Section):
    """Runs side by side; those that differ by nothing but their seed are one group."""

    runs: tuple[Path, ...] = Field(min_length=1)
    """The run directories, or directories of runs, as `remuda train --seeds` makes them."""
    out: Path = Path("comparison")
    """The directory that the page and its picture are written into."""
    format: Literal["table", "json"] = "table"
    """A table to read, or all of it as JSON; `--json` is short for the latter."""


def runs(words: Sequence[str]) -> int:
    """List the runs in a directory: game, when, how they ended, the best return."""
    options = validate(parse_flags(words, RunsOptions, positional="directory"), RunsOptions)

    from remuda.ui.found_runs import list_runs, print_runs

    found = list_runs(options.directory)
    if options.format == "json":
        print(json.dumps([run.as_summary() for run in found]))
    else:
        print_runs(options.directory, found)
    return 0


def compare(words: Sequence[str]) -> int:
    """Compare runs: a table with mean and standard error over seeds, and learning curves."""
    options = validate(parse_flags(words, CompareOptions, positional="runs"), CompareOptions)

    from remuda.ui.comparison import compare as comparison_of
    from remuda.ui.comparison import print_comparison

    found = comparison_of(options.runs)
    page = found.report(options.out)
    if options.format == "json":
        print(json.dumps(found.as_summary()))
    else:
        print_comparison(found)
        print(f"wrote {page}")
    return 0
