"""Evaluation of checkpoints, to find the best of a run."""

from __future__ import annotations

import logging
import math
import select
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any

from remuda.coordinator.checkpointing import TO_CLOSE, BestKeeper, Outcome, measure_checkpoint
from remuda.coordinator.coordinator import Coordinator
from remuda.envs.registry import GAMES
from remuda.errors import CheckpointError
from remuda.evaluation.evaluate import evaluate
from remuda.evaluation.results import Evaluation, Limits
from remuda.evaluation.tournaments.engine import margin
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import Snapshot
from remuda.runs.result import Result
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import published, spec_at
from remuda.system.processes import client as forkserver
from remuda.system.processes.child import ignore_held_signals
from remuda.system.processes.process import Process
from remuda.system.user_errors import where_raised

log = logging.getLogger(__name__)

SLACK = 30.0  # additional seconds for the measuring process to start and to finish a turn


def measurement(
    evaluation: Evaluation,
    scripted: Collection[str] = (),
    env_options: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the values by which checkpoints are compared; `env_options` are those in force."""
    agents = evaluation.agents
    means = [
        evaluation.mean(i)
        for i, agent in enumerate(agents)
        if agent not in scripted and evaluation.episodes(i)
    ]
    return {
        "mean_return": sum(means) / len(means) if means else None,
        "constant_sum": evaluation.constant_sum,
        "same_returns": evaluation.same_returns,
        "largest_return": evaluation.largest_return,
        **({"env_options": dict(env_options)} if env_options else {}),
        **evaluation.as_summary(),
    }


class CheckpointPlay:
    """Evaluation of checkpoints, within limits."""

    def __init__(
        self,
        spec: RunSpec,
        run: RunDirectory,
        limits: Limits | None = None,
    ) -> None:
        config = spec.config
        if config.schedule == "sequential":  # the run's environment copies may be in this process
            spec = spec.with_config({"env": config.env.model_copy(update={"num_envs": 1})})
        self._spec, self._run = spec, run
        self.limits = limits or Limits(config.run.evaluate_seconds)

    def measure(self, snapshots: Mapping[str, Snapshot], number: int) -> dict[str, Any] | None:
        """Return the results of a checkpoint's snapshots; None if play was cut short.

        Short episodes end first, so partial results would favour some checkpoints.
        """
        try:
            spec = spec_at(self._run, self._spec, number)
        except CheckpointError:  # newer checkpoints have replaced it meanwhile
            return None
        config = spec.config
        episodes = config.checkpoint.evaluate_episodes
        evaluation = evaluate(spec, snapshots, episodes, config.seed, limits=self.limits)
        if evaluation.cut:
            return None
        return measurement(evaluation, config.env.scripted, spec.env.changed)

    def challenge(self, snapshots: Mapping[str, Snapshot], number: int) -> float:
        """Return the mean return of snapshots minus that of their rival; NaN: cut short."""
        if self.limits.cut(0.0):
            return math.nan
        spec = spec_at(self._run, self._spec, number)
        config = spec.config
        rival = published(self._run, spec, number)
        episodes = config.checkpoint.evaluate_episodes
        return margin(spec, snapshots, rival, episodes, config.seed, self.limits)


class MeasuringProcess:
    """Evaluation of checkpoints during a run, each one in the main thread of a new process.

    Environments may need signals or an event loop, which other threads lack. A process that dies or
    hangs loses the measurement of one checkpoint. No process outlives the coordinator.
    """

    def __init__(self, spec: RunSpec, run: RunDirectory) -> None:
        self._spec, self._run = spec, run
        self._log = run.logs / "evaluation.log"
        self._number = 0
        self._process: Process | None = None
        self._answers: Connection | None = None
        self._refused = ""
        self._limit = math.inf

    def begin(self, number: int, snapshots: Mapping[str, Snapshot]) -> None:
        """Start a process without waiting for it."""
        self._number, self._refused = number, ""
        # `seconds` for the evaluation, and as much again for play against the best checkpoint
        seconds = self._spec.config.run.evaluate_seconds
        self._limit = math.inf if seconds is None else time.monotonic() + 2.0 * seconds + SLACK
        local, remote = Pipe(duplex=False)
        args = (remote, self._spec, self._run.path, number, dict(snapshots))
        try:
            self._process = forkserver.start(
                _measure_elsewhere, args, name="evaluation", log=str(self._log)
            )
        except OSError as error:
            self._refused = error.strerror or str(error)
            local.close()
        else:
            self._answers = local
        finally:
            remote.close()

    def outcome(self, timeout: float) -> Outcome | None:
        """Return the outcome, waiting at most `timeout` seconds; None if there is none yet."""
        try:
            if self._answers is None:
                raise EOFError
            if self._answers.poll(timeout):
                found: Outcome = self._answers.recv()
            elif time.monotonic() < self._limit:
                return None
            else:
                found = self._unmeasured("a call of the environment does not return")
        except (EOFError, OSError):
            found = self._unmeasured(
                self._refused or f"the measuring process ended; its log is {self._log}"
            )
        self._end(0.0)
        return found

    def _unmeasured(self, why: str) -> Outcome:
        return Outcome(message=f"checkpoint {self._number} was not measured: {why}")

    def end(self) -> None:
        """Stop the current measurement, which has `TO_CLOSE` seconds to close its environment."""
        self._end(TO_CLOSE)

    def _end(self, patience: float) -> None:
        """End the process, if any, with SIGKILL if needed; the fork server reaps it."""
        if self._answers is not None:
            self._answers.close()
            self._answers = None
        if self._process is not None:
            self._process.join(patience)
            self._process.kill()
            self._process.close()
            self._process = None


def _measure_elsewhere(
    answers: Connection,
    spec: RunSpec,
    path: Path,
    number: int,
    snapshots: Mapping[str, Snapshot],
) -> None:
    ignore_held_signals()
    run = RunDirectory.open(path)

    def given_up() -> bool:
        """Return whether the other end of the pipe is closed."""
        pipe = select.poll()
        pipe.register(answers, 0)
        return bool(pipe.poll(0))

    play = CheckpointPlay(spec, run, Limits(spec.config.run.evaluate_seconds, given_up))
    outcome = measure_checkpoint(run.checkpoints, play.measure, play.challenge, number, snapshots)
    with suppress(OSError):
        answers.send(outcome)


def best_keeper(
    spec: RunSpec,
    run: RunDirectory,
    say: Callable[[str], None],
    stopped: Callable[[], bool],
) -> BestKeeper | None:
    """Make the keeper of a run's best checkpoint; None if checkpoints are not evaluated."""
    config = spec.config
    if not config.checkpoint.evaluate_episodes:
        return None
    inline, cancelled = config.schedule == "sequential", threading.Event()

    # A measurement in parallel to the run may continue briefly after a signal, until the keeper
    # sets `cancelled`. Inline, the signal itself must end the measurement.
    def interrupted() -> bool:
        return cancelled.is_set() or (inline and stopped())

    play = CheckpointPlay(spec, run, Limits(config.run.evaluate_seconds, interrupted))
    return BestKeeper(
        run.checkpoints,
        play.measure,
        say,
        inline=inline,
        challenge=play.challenge,
        cancelled=cancelled,
        interrupted=interrupted,
        elsewhere=None if config.game in GAMES else MeasuringProcess(spec, run),
    )


def compare_last(
    spec: RunSpec,
    result: Result,
    coordinator: Coordinator,
    play: CheckpointPlay,
    snapshots: Mapping[str, Snapshot],
) -> Result:
    """Compare the last checkpoint with the best; add a note to the result if that failed."""
    config, evaluation = spec.config, result.evaluation
    enough = min(config.checkpoint.evaluate_episodes, config.run.evaluate_episodes)
    if evaluation is None or evaluation.cut or len(evaluation.returns) < enough:
        return result  # if play was cut short, mostly short episodes have finished
    try:
        if coordinator.compare_last(
            measurement(evaluation, config.env.scripted, spec.env.changed),
            snapshots,
            play.challenge,
        ):
            return result
        why = (
            "the comparison was interrupted"
            if play.limits.interrupted()
            else "run.evaluate_seconds have passed"
        )
    except Exception as error:  # the user's environment may raise anything
        log.exception("play against the best checkpoint so far failed")
        why = where_raised(error) or f"{type(error).__name__}: {error}"
    return result.with_notes(f"the last checkpoint was not compared with the best so far: {why}")
