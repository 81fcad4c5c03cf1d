"""Runs of several libraries, in turns by seed; those that are recorded already are left out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from statistics import mean
from typing import Any

from recording import FIGURES, Results, commit_of_package, error_of

Run = dict[str, Any]
"""What a run has found: `return`, `seconds`, and more."""


def finished(name: str, what: Mapping[str, Any]) -> list[Run]:
    """Return the recorded runs that have these values."""
    for file in (FIGURES / f"{name}.part.json", FIGURES / f"{name}.json"):
        if file.exists():
            runs: list[Run] = json.loads(file.read_text())["runs"]
            return [run for run in runs if what.items() <= run.items()]
    return []


def each_run(
    results: Results,
    options: argparse.Namespace,
    libraries: Mapping[str, Callable[[int], Run]],
    what: Mapping[str, Any],
) -> dict[tuple[str, int], Run]:
    """Train each seed with each library, and return the runs by library and seed.

    With --record a run is written when it is over, and those that are recorded are not repeated.

    Args:
        results: where runs are added.
        options: with `seeds` and `record`.
        libraries: by name, the function that trains a seed.
        what: of a run, such as its steps, without which a recorded one does not count.
    """
    results.parts = finished(results.name, what) if options.record else []
    found = {(run["library"], run["seed"]): run for run in results.parts}
    plan = [(which, seed) for seed in options.seeds for which in libraries]
    for which, seed in plan:
        if (which, seed) in found:
            continue
        run = libraries[which](seed)
        commit = commit_of_package()
        found[which, seed] = {"library": which, "seed": seed, **what, **run, "commit": commit}
        results.parts = list(found.values())
        print(f"{which}, seed {seed}: {run['return']:,.3g}", flush=True)
        left = sum(key not in found for key in plan)
        results.so_far = f"{len(plan) - left} of {len(plan)} runs" if left else ""
        if options.record and left:
            results.write()
    return {key: found[key] for key in plan}


def by_seed(
    results: Results,
    options: argparse.Namespace,
    libraries: Mapping[str, Callable[[int], Run]],
    what: Mapping[str, Any],
) -> dict[str, list[float]]:
    """Train as `each_run` does, and add a row for each library.

    Returns: The returns of each library, by seed.
    """
    found = each_run(results, options, libraries, what)
    for which in libraries:
        runs = [found[which, seed] for seed in options.seeds]
        each = [float(run["return"]) for run in runs]
        results.row(
            {
                "library": which,
                "seeds": len(each),
                **what,
                "return": mean(each),
                "standard error": error_of(each),
                "lowest": min(each),
                "highest": max(each),
                "minutes a seed": mean(float(run["seconds"]) for run in runs) / 60,
            }
        )
    return {
        which: [float(found[which, seed]["return"]) for seed in options.seeds]
        for which in libraries
    }


def compare(results: Results, own: list[float], other: list[float], least: float) -> None:
    """Hold how far our mean is above the peer's, in standard errors of the difference, to a bar."""
    errors = (error_of(own) ** 2 + error_of(other) ** 2) ** 0.5
    if errors:  # not of a single seed
        what = "mean return above the peer's, in standard errors of the difference"
        results.bar(what, (mean(own) - mean(other)) / errors, least=least)
