"""What came of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from remuda.config import Config
from remuda.coordinator.metrics import Record
from remuda.evaluation import WAYS, Evaluation, way_of
from remuda.version import __version__

PLAYED = (
    "schedule",
    "seconds",
    "earlier",
    "turns",
    "agent_steps",
    "agent_steps_per_second",
    "waits",
    "population",
    "restarts",
    "processors",
    "layout",
    "halted",
)
"""Of a summary, what is of the playing and training itself."""

BEFORE = "; the returns are those that were measured before"


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    directory: Path
    ended: str
    """How it ended, in words."""
    finished: bool
    """Whether it reached the end that it was given; if not, it can be resumed."""
    record: Record
    """This session of the run as one interval."""
    evaluation: Evaluation | None
    signal: int | None
    """The signal that stopped it, if one did."""
    earlier: float
    """Seconds of play in the sessions before this one."""
    restarts: Mapping[str, int]
    """How often each role was restarted, those that were."""
    processors: Mapping[str, float]
    """Processors that each role had on average, where that is known."""
    notes: tuple[str, ...] = ()
    """What failed after training, why a resumed run is not exact, and what to change: spaces that
    policies cannot use well, episodes so short that experience stays mostly empty, and what the
    environment noted."""
    unsaved: tuple[str, ...] = ()
    """What else could not be written, and why: the last checkpoint, on a full disk."""
    before: Mapping[str, object] = field(default_factory=dict)
    """The run's summary so far, where nothing was left to do."""

    @property
    def halted(self) -> tuple[str, ...]:
        """The policies that stopped learning: too many of their updates were not finite."""
        return tuple(name for name, policy in self.record.policies.items() if policy.halted)

    def with_notes(self, notes: Iterable[str]) -> Result:
        """The same, with those of these notes that it lacks."""
        return replace(self, notes=tuple(dict.fromkeys((*self.notes, *notes))))

    def with_note(self, note: str) -> Result:
        """The same, with one more of its `notes`."""
        return replace(self, notes=(*self.notes, note))


def is_told(result: Result, evaluation: Evaluation) -> bool:
    """Whether this is told, and not what an earlier session measured with more episodes.

    What was played otherwise before, greedily or not, is not what was asked for now.
    """
    played, before = len(evaluation.returns), result.before.get("evaluation")
    is_alike = isinstance(before, dict) and way_of(before) == evaluation.way
    return played > 0 and (not evaluation.cut or not is_alike or played >= _episodes_before(result))


def played_words(config: Config) -> str:
    """What measures the policies of a run, in words."""
    return f"{WAYS[config.run.evaluate_sampled]} play"


def cut_words(config: Config, result: Result, evaluation: Evaluation, interrupted: bool) -> str:
    """That the play that measures was cut short, and what the returns are of that are told."""
    why = "was interrupted" if interrupted else "ran out of run.evaluate_seconds"
    played, asked = len(evaluation.returns), evaluation.asked
    told = "; the returns are of those" if played else ""
    if _episodes_before(result) and not is_told(result, evaluation):
        told = _before_words(config, result)
    return f"{played_words(config)} {why} after {played:,} of {asked:,} episodes{told}"


def failed_words(config: Config, result: Result, error: str) -> str:
    """That the play that measures failed, and what the returns are of that are told."""
    return f"{played_words(config)} failed: {error}{_before_words(config, result)}"


def _before_words(config: Config, result: Result) -> str:
    """That what an earlier session measured stands, and how; empty: it measured nothing."""
    before = result.before.get("evaluation")
    if not isinstance(before, dict) or not _episodes_before(result):
        return ""
    way = way_of(before)
    return BEFORE + (f", {way}" if way != WAYS[config.run.evaluate_sampled] else "")


def summarise(config: Config, result: Result, layout: str) -> dict[str, object]:
    """What came of a run, as plain data.

    Where nothing was left to do, what was played stays as it was told, and what was measured until
    it is measured anew.
    """
    record, evaluation = result.record, result.evaluation
    summary: dict[str, object] = {
        "game": config.game,
        "schedule": config.schedule,
        "seed": config.seed,
        "ended": result.ended,
        "finished": result.finished,
        "seconds": record.seconds,
        "earlier": result.earlier,
        "turns": record.turns,
        "agent_steps": record.agent_steps,
        "agent_steps_per_second": record.agent_steps_per_second,
        "waits": record.waits,
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
    if _episodes_before(result) and (evaluation is None or not is_told(result, evaluation)):
        stays = (*PLAYED, "evaluation")
        noted = [*_listed(before["notes"]), *result.notes]  # what was noted of it holds, too
        summary["notes"] = list(dict.fromkeys(noted))
    return summary | {name: before[name] for name in stays if name in before}


def _episodes_before(result: Result) -> int:
    """That an earlier session measured."""
    evaluation = result.before.get("evaluation")
    return int(evaluation["episodes"]) if isinstance(evaluation, dict) else 0


def _listed(notes: object) -> list[object]:
    return notes if isinstance(notes, list) else []
