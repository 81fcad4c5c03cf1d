"""The end of a run: its weights and results are saved, and its policies are evaluated."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from remuda.assembly.assembly import Assembly
from remuda.config import Config
from remuda.coordinator.best_checkpoint import CheckpointPlay, compare_last
from remuda.coordinator.coordinator import Coordinator, Signals
from remuda.coordinator.guarded_view import GuardedView
from remuda.envs.closing import faults
from remuda.envs.live_options import SIZE
from remuda.errors import CheckpointError, RunDirectoryError
from remuda.evaluation.evaluate import evaluate
from remuda.evaluation.results import Limits
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import Snapshot
from remuda.runs.result import Result, cut_words, failed_words, is_reported, played_words, summarise
from remuda.runs.run_directory import RunDirectory, how_to_continue
from remuda.runs.saved_weights import save_weights
from remuda.system.user_errors import where_raised
from remuda.training.callback_dispatch import Events

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FinishHooks:
    """Functions that are called while a run ends."""

    progress: Callable[[str, int, int], None] = lambda what, done, wanted: None  # noqa: ARG005
    """Called with the evaluation's name and its numbers of finished and wanted episodes."""
    trained: Callable[[Path, int], None] = lambda directory, turns: None  # noqa: ARG005
    """Called once, after weights and first results are saved, with the number of turns played."""
    results: Callable[[Result], None] = lambda result: None  # noqa: ARG005
    """Called once, after the results are saved; the steps that follow may take long or fail."""


@dataclass(frozen=True)
class Finish:
    """The steps after training.

    If a file cannot be written, for example on a full disk, everything else is still done. An error
    at the very end lists the missing files.
    """

    config: Config
    view: GuardedView
    assembly: Assembly
    run: RunDirectory
    hooks: FinishHooks
    events: Events
    signals: Signals
    unsaved: list[str] = field(default_factory=list)  # why weights or results could not be saved

    def hold_room(self) -> None:
        """Reserve disk space for the final weights and the results."""
        snapshots = self.assembly.snapshots()
        metadata = 8_192 + SIZE + sum(len(name) + 1 for name in snapshots)  # a header and the names
        self.run.reserve.hold(sum(s.weights.nbytes + metadata for s in snapshots.values()))

    def save_weights(self) -> None:
        """Save the weights of every policy that still plays, and the trace of the processes."""
        self.run.reserve.release()
        playing = self.assembly.playing()
        specs = [spec for spec in self.assembly.specs if spec.name in playing]
        options = self.assembly.spec_in_force.env.changed
        self._try(lambda: save_weights(self.run, specs, playing, options))
        self.assembly.write_trace(self.view)

    def finish(
        self, coordinator: Coordinator, result: Result, snapshots: Mapping[str, Snapshot]
    ) -> Result:
        """Evaluate the policies, save the results, compare the last checkpoint with the best."""
        config, run, hooks, signals = self.config, self.run, self.hooks, self.signals
        self.events.requests.close()
        limits, begun = Limits(config.run.evaluate_seconds, signals.stopped), time.monotonic()
        spec = self.assembly.spec_in_force
        result = self._save_results(result)  # first, since later steps may fail
        hooks.trained(run.path, result.record.turns)
        if config.run.evaluate_episodes and not (signals.stopped() or self.events.failure):
            limits = replace(limits, watch=partial(hooks.progress, played_words(config)))
            result = _measure(spec, result, snapshots, limits)
            result = self._save_results(result)
        result = replace(result, signal=signals.caught)
        hooks.results(result)
        if result.evaluation is not None:
            limits = limits.part(0, 1, time.monotonic() - begun)
            watch = partial(hooks.progress, "matches against the best checkpoint")
            play = CheckpointPlay(spec, run, replace(limits, watch=watch))
            result = compare_last(spec, result, coordinator, play, snapshots)
            result = self._save_results(result)
        result = replace(result, signal=signals.caught)
        self.events.end(result)
        if self.unsaved:
            raise RunDirectoryError(missing_words(self.run, [*self.unsaved, *result.unsaved]))
        return result

    def _save_results(self, result: Result) -> Result:
        layout, noted = self.assembly.describe(), result.with_notes(*faults())
        self._try(lambda: self.run.save_summary(summarise(self.config, noted, layout)))
        return noted

    def _try(self, save: Callable[[], None]) -> None:
        try:
            save()
        except RunDirectoryError as error:
            log.error("%s", error)
            if str(error) not in self.unsaved:
                self.unsaved.append(str(error))


def missing_words(run: RunDirectory, unsaved: Sequence[str]) -> str:
    """Describe which files could not be saved, which checkpoint exists, and what to do."""
    newest = "There is no checkpoint"
    for number in run.checkpoints.numbers():
        with suppress(CheckpointError):
            turns = run.checkpoints.manifest(number).turns
            newest = f"Checkpoint {number} holds the run after {turns:,} turns"
    return f"{'; '.join(unsaved)}. {newest}. Free some space; {how_to_continue(run)}"


def _measure(
    spec: RunSpec, result: Result, snapshots: Mapping[str, Snapshot], limits: Limits
) -> Result:
    """Return the result with an evaluation, or with a note if it failed."""
    config = spec.config
    log.info("%s of %d episodes begins", played_words(config), config.run.evaluate_episodes)
    try:
        evaluation = evaluate(
            spec, snapshots, config.run.evaluate_episodes, config.seed, limits=limits
        )
    except Exception as error:  # raised by the user's environment; the run is already saved
        log.exception("%s failed", played_words(config))
        message = where_raised(error) or f"{type(error).__name__}: {error}"
        return result.with_notes(failed_words(config, result, message))
    log.info("%s ends after %d episodes", played_words(config), len(evaluation.returns))
    if evaluation.cut:
        result = result.with_notes(cut_words(config, result, evaluation, limits.interrupted()))
    return replace(result, evaluation=evaluation if is_reported(result, evaluation) else None)
