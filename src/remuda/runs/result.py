"""The result of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any

from remuda.config import Config
from remuda.evaluation.results import WAYS, Evaluation, way_of
from remuda.runs.metrics import Record
from remuda.system.checkpoint.opening import NUMBER, Kinds, checked, checked_all
from remuda.system.short_table import ShortTable, Summarised
from remuda.system.version import __version__

COUNTED = ("turns", "agent_steps", "agent_steps_per_second", "waits")
PLAYED = (
    *("schedule", "seconds", "earlier", *COUNTED, "population", "restarts", "processors"),
    *("layout", "halted"),
)
"""Keys of a summary that describe playing and training."""


@dataclass(frozen=True, repr=False)
class Result(Summarised):
    """The result of a run."""

    directory: Path
    ended: str
    """How the run ended."""
    finished: bool
    """True if the run reached its end; otherwise it can be resumed."""
    record: Record
    """The record of this whole session, from start or resume to end."""
    evaluation: Evaluation | None
    signal: int | None
    """The signal that stopped the run, if any."""
    earlier: float
    """Seconds of play in earlier sessions."""
    restarts: Mapping[str, int]
    """Restarts of each role that was restarted."""
    processors: Mapping[str, float]
    """Mean number of CPU cores that each role used, if known."""
    notes: tuple[str, ...] = ()
    """Restarts, undone updates, failures after training, why a resumed run is not exact, and
    advice: settings without effect, policies without an update, spaces that policies cannot use
    well, episodes that are too short for the experience or never end, and notes of the environment.
    """
    unsaved: tuple[str, ...] = ()
    """Why other files, such as the last checkpoint, could not be written (disk full)."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """The earlier summary of a complete run that was resumed; otherwise empty."""

    @property
    def halted(self) -> tuple[str, ...]:
        """The policies that stopped learning: too many of their updates were not finite."""
        return tuple(name for name, policy in self.record.policies.items() if policy.halted)

    def short_table(self) -> ShortTable:
        """Return how the run ended, and the final evaluation."""
        turns, seconds = f"{self.record.turns:,} turns", f"{self.record.seconds:,.0f} seconds"
        title = f"Result of {self.directory}: {self.ended}, after {turns} in {seconds}"
        resumable = () if self.finished else ("not finished: it can be resumed",)
        notes = (*resumable, *self.notes, *self.unsaved)
        if self.evaluation is None:
            return ShortTable(title, (), (), notes)
        found = self.evaluation.short_table()
        return replace(found, title=f"{title}\n{found.title}", notes=notes)

    def with_notes(self, *notes: str) -> Result:
        return replace(self, notes=tuple(dict.fromkeys((*self.notes, *notes))))


def is_reported(result: Result, evaluation: Evaluation) -> bool:
    """Return whether to report this evaluation instead of an earlier one of the same kind."""
    played, before = len(evaluation.returns), result.before.get("evaluation")
    is_alike = before is not None and way_of(before) == evaluation.way
    return played > 0 and (not evaluation.cut or not is_alike or played >= _episodes_before(result))


def played_words(config: Config) -> str:
    return f"{WAYS[config.run.evaluate_sampled]} play"


def cut_words(config: Config, result: Result, evaluation: Evaluation, interrupted: bool) -> str:
    why = "was interrupted" if interrupted else "ran out of run.evaluate_seconds"
    played, wanted = len(evaluation.returns), evaluation.asked
    words = "; the returns are of these episodes" if played else ""
    if _episodes_before(result) and not is_reported(result, evaluation):
        words = _before_words(config, result)
    return f"{played_words(config)} {why} after {played:,} of {wanted:,} episodes{words}"


def failed_words(config: Config, result: Result, error: str) -> str:
    return f"{played_words(config)} failed: {error}{_before_words(config, result)}"


def _before_words(config: Config, result: Result) -> str:
    """Say that the earlier evaluation, if any, is reported, and its kind if that is different."""
    if not _episodes_before(result):
        return ""
    way = way_of(result.before["evaluation"])
    kind = f", {way}" if way != WAYS[config.run.evaluate_sampled] else ""
    return f"; the returns are those of the earlier evaluation{kind}"


def summarise(config: Config, result: Result, layout: str) -> dict[str, object]:
    """Return the result as plain data; a complete run that was resumed keeps earlier results."""
    record, evaluation = result.record, result.evaluation
    summary: dict[str, object] = {
        "game": config.game,
        "schedule": config.schedule,
        "seed": config.seed,
        "ended": result.ended,
        "finished": result.finished,
        "seconds": record.seconds,
        "earlier": result.earlier,
        **{name: getattr(record, name) for name in COUNTED},
        "population": dict(record.population),
        "restarts": dict(result.restarts),
        "processors": dict(result.processors),
        "layout": layout,
        "version": __version__,
        "evaluation": evaluation.as_summary() if evaluation else None,
        "halted": list(result.halted),
        "notes": list(result.notes),
    }
    before = result.before
    stays: tuple[str, ...] = PLAYED
    if _episodes_before(result) and (evaluation is None or not is_reported(result, evaluation)):
        stays = (*PLAYED, "evaluation")
        notes = (*before["notes"], *result.notes)  # the earlier notes still apply
        summary["notes"] = list(dict.fromkeys(notes))
    return summary | {name: before[name] for name in stays if name in before}


def _episodes_before(result: Result) -> int:
    return int((result.before.get("evaluation") or {}).get("episodes", 0))


SUMMARY: Kinds = {
    **dict.fromkeys(("game", "schedule", "ended", "layout", "version"), str),
    **dict.fromkeys(("seed", "turns", "agent_steps", "waits"), int),
    **dict.fromkeys(("seconds", "agent_steps_per_second", "earlier"), NUMBER),
    **dict.fromkeys(("restarts", "processors"), dict),
    **dict.fromkeys(("halted", "notes"), list),
    "evaluation": (dict, NoneType),
}
MEASURED = ("mean", "standard_error")
"""Keys of a measured value; both may be None, for example if a return was not finite."""


def checked_summary(data: object) -> dict[str, Any]:
    """Return the content of `summary.json`; raise a ValueError if it is damaged."""
    summary = checked(data, SUMMARY)
    for name in ("restarts", "processors"):
        checked(summary[name], dict.fromkeys(summary[name], NUMBER))
    evaluation = summary["evaluation"]
    if evaluation is not None:
        checked(evaluation, {"episodes": int, "agents": dict})
        for name in ("agents", "episode_metrics", "policies"):
            if name in evaluation:
                checked_all(evaluation[name], dict.fromkeys(MEASURED, (*NUMBER, NoneType)))
    return summary
