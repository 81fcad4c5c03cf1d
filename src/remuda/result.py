"""What came of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from remuda.config import Config
from remuda.coordinator.metrics import Record
from remuda.evaluation import Evaluation
from remuda.version import __version__

PLAYED = (
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
    """What went wrong after training, and cost no more than itself."""
    before: Mapping[str, object] = field(default_factory=dict)
    """The run's summary so far, where nothing was left to do."""

    @property
    def halted(self) -> tuple[str, ...]:
        """The policies that stopped learning: too many of their updates were not finite."""
        return tuple(name for name, policy in self.record.policies.items() if policy.halted)

    def with_note(self, note: str) -> Result:
        """The same, with one more of its `notes`."""
        return replace(self, notes=(*self.notes, note))


def summarise(config: Config, result: Result, layout: str) -> dict[str, object]:
    """What came of a run, as plain data.

    Where nothing was left to do, what was played stays as it was told, and greedy play until it is
    measured anew.
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
    stays = (*PLAYED, "evaluation") if evaluation is None else PLAYED
    return summary | {name: result.before[name] for name in stays if name in result.before}
