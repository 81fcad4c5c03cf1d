"""Scores of compared runs, as a table and in the formats of rliable and marl-eval.

A *method* is a group's label, or its settings without the game, its options and the run's length;
a *task* is the game with its options. Runs of one method and task differ only by their seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.analysis.frame import Frame
from remuda.errors import UsageError
from remuda.ui.reports.group_names import labelled_names
from remuda.ui.reports.run_groups import RunGroup, settings_of
from remuda.ui.reports.summary import MEAN, RunSummary, returns

Numbers = npt.NDArray[np.float64]
LENGTH = ("run.turns", "run.seconds")
COLUMNS = ("run", "game", "group", "seed", "policy", "kind", "step", "return")


def score_table(groups: Sequence[RunGroup]) -> Frame:
    """Return the scores of all runs and policies; see `Comparison.scores`."""
    rows = [row for group in groups for run in group.runs for row in _rows(group, run)]
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    table = {name: np.array(values) for name, values in zip(COLUMNS, columns, strict=True)}
    return Frame(table, len(rows), "scores")


def _rows(group: RunGroup, run: RunSummary) -> Iterator[tuple[Any, ...]]:
    head = (str(run.files.path), group.game, group.name, int(run.ending["seed"]))
    for policy in run.policies:
        for turns, value, _ in returns(run.records, policy.name):
            yield (*head, policy.name, "training", turns, float(value))
        if policy.evaluated_return is not None:
            yield (*head, policy.name, run.way, int(run.ending["turns"]), policy.evaluated_return)


class Cells:
    """The runs of a comparison by method and task."""

    def __init__(self, groups: Sequence[RunGroup]) -> None:
        settings = [settings_of(group.runs[0]) for group in groups]
        tasks = [{k: v for k, v in each.items() if _is_of_task(k)} for each in settings]
        methods = [
            {k: v for k, v in each.items() if not _is_of_task(k) and k not in LENGTH}
            for each in settings
        ]
        self.runs: dict[tuple[str, str], list[RunSummary]] = {}
        """The runs of each (method, task), sorted by seed."""
        self.games: dict[str, str] = {}
        """The game of each task."""
        labels = [group.label for group in groups]
        names = zip(groups, _names(methods, labels), _names(tasks), strict=True)
        for group, method, task in names:
            self.games[task] = group.game
            self.runs.setdefault((method, task), []).extend(group.runs)
        for runs in self.runs.values():
            runs.sort(key=lambda run: run.ending["seed"])

    def check_seeds(self, function: str) -> None:
        """Raise a `UsageError` if two runs of a method and task have the same seed."""
        for (method, task), runs in self.runs.items():
            for one, other in itertools.pairwise(runs):
                seed = one.ending["seed"]
                if seed == other.ending["seed"]:
                    raise UsageError(
                        f"{function}: two runs of {method} in {task} have the seed {seed}, "
                        f"{one.files.path} and {other.files.path}; pass only one of them to "
                        "remuda.compare"
                    )

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(method for method, _ in self.runs))

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.games)


def _is_of_task(key: str) -> bool:
    return key == "game" or key.startswith("env.options.")


def _names(settings: Sequence[Mapping[str, Any]], labels: Sequence[str] = ()) -> list[str]:
    """Return a name for each mapping; equal mappings of one label get equal names."""
    names = labelled_names(labels or [""] * len(settings), settings)
    return [
        name or str(each.get("policy.algorithm", "remuda"))
        for name, each in zip(names, settings, strict=True)
    ]


def rliable_scores(cells: Cells, policy: str) -> dict[str, Numbers]:
    """Return final scores by method, [runs, tasks]; see `Comparison.to_rliable`."""
    cells.check_seeds("to_rliable")
    found = {}
    for method in cells.methods:
        columns = []
        for task in cells.tasks:
            runs = cells.runs.get((method, task), [])
            if not runs:
                raise UsageError(
                    f"to_rliable: there is no run of {method} in {task}; every method needs runs "
                    "of every task, so compare only those that have them"
                )
            columns.append([_final(run, policy, "to_rliable") for run in runs])
        counts = dict(zip(cells.tasks, map(len, columns), strict=True))
        if len(set(counts.values())) > 1:
            words = ", ".join(f"{count} in {task}" for task, count in counts.items())
            raise UsageError(
                f"to_rliable: {method} has different numbers of runs ({words}); it needs as many "
                "in every task"
            )
        found[method] = np.array(columns, np.float64).T
    return found


def marl_eval_data(cells: Cells, policy: str, points: int) -> dict[str, Any]:
    """Return nested dictionaries by environment and task; see `Comparison.to_marl_eval`."""
    if isinstance(points, bool) or not isinstance(points, int) or points < 1:
        raise UsageError(f"to_marl_eval: points is a whole number, 1 or more; this is {points!r}")
    cells.check_seeds("to_marl_eval")
    found: dict[str, Any] = {}
    for task, game in cells.games.items():
        library, _, _ = game.rpartition(":")
        by_method = {m: cells.runs[m, task] for m in cells.methods if (m, task) in cells.runs}
        curves = {
            run.files.path: _curve(run, policy) for runs in by_method.values() for run in runs
        }
        end = min(float(turns[-1]) for turns, _ in curves.values())
        steps = np.linspace(end / points, end, points)
        found.setdefault(library or "remuda", {})[task.removeprefix(f"{library}:")] = {
            method: {
                f"seed_{run.ending['seed']}": _steps(steps, *curves[run.files.path])
                | {"absolute_metrics": {"return": [_final(run, policy, "to_marl_eval")]}}
                for run in runs
            }
            for method, runs in by_method.items()
        }
    return found


def _steps(steps: Numbers, turns: Numbers, values: Numbers) -> dict[str, Any]:
    """Return marl-eval's entries of a curve, interpolated at `steps`."""
    at_steps = np.interp(steps, turns, values).tolist()
    return {
        f"step_{i}": {"step_count": round(step), "return": [value]}
        for i, (step, value) in enumerate(zip(steps.tolist(), at_steps, strict=True))
    }


def _curve(run: RunSummary, policy: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the turns and training returns of a run, each [N]."""
    from remuda.ui.plots.charts import mean_returns  # matplotlib is slow to import

    found = mean_returns(run.records) if policy == MEAN else returns(run.records, policy)
    points = np.array([(turns, value) for turns, value, _ in found], np.float64).reshape(-1, 2)
    if not len(points):
        raise UsageError(
            f"to_marl_eval: {run.files.path} has no return of {policy} in training: no episode "
            "ended, or there is no such policy"
        )
    return points[:, 0], points[:, 1]


def _final(run: RunSummary, policy: str, function: str) -> float:
    """Return the mean return in the final evaluation."""
    named = run.named(policy)
    known = [each.evaluated_return for each in named if each.evaluated_return is not None]
    if run.way != run.way_configured:  # another kind of score than those of other runs
        known = []
    if not known:
        why = "has no final evaluation" if named else f"has no policy {policy!r}"
        raise UsageError(
            f"{function}: {run.files.path} {why}; leave it out"
            + (", or evaluate with run.evaluate_episodes" if named else "")
        )
    return float(np.mean(known))
