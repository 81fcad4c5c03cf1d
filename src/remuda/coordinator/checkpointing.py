"""Take checkpoints during a run, and find the best one.

The coordinator writes the number of a requested checkpoint into shared memory (`Control.save`).
Each role writes its part between two units of work. The coordinator adds the scoreboard (shared
counters) and the published snapshots, and completes the checkpoint (`system/checkpoint/store.py`).
With `checkpoint.replay`, a learner's part holds the committed steps of its rings. The actor's part
holds the current, uncommitted step of each stream (an agent in an environment copy), because no
other process may read that step. A resumed actor writes these steps back into its ring. A learner's
part is ignored on restore if the population's table has another policy in its slot.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from remuda.config import CheckpointConfig
from remuda.publish.snapshot import Snapshot
from remuda.system.checkpoint.names import COORDINATOR
from remuda.system.checkpoint.store import Checkpoints, Manifest
from remuda.types import Runtime, State

log = logging.getLogger(__name__)

OUT_OF_TIME = (
    ": run.evaluate_seconds have passed; increase it, or reduce checkpoint.evaluate_episodes"
)
"""The end of the message that a checkpoint was not measured completely."""
TO_CLOSE = 1.0  # seconds for a measurement to end when it is abandoned

Measure = Callable[[Mapping[str, Snapshot], int], Mapping[str, Any] | None]
"""A function that evaluates the snapshots of a checkpoint, with its number. It returns at least
`mean_return`, or None if cut short. If `constant_sum` is true, mean returns do not rank
checkpoints. Yet if `same_returns` is true too, two different means rank them; means within rounding
(relative to `largest_return`) are the same."""
Challenge = Callable[[Mapping[str, Snapshot], int], float]
"""A function that plays snapshots against a checkpoint. It returns the snapshots' mean return minus
the checkpoint's, or NaN if play was cut short."""


@dataclass(frozen=True)
class Contents:
    """The contents of the checkpoints of a run."""

    parts: tuple[str, ...]  # the parts of all processes
    gather: Callable[[], State]  # returns the coordinator's own part
    config: Mapping[str, Any]  # the configuration that a resumed run must match
    exact: bool  # true if all parts must be from the same moment


class Checkpointer:
    """The writer of checkpoints; the run continues if a checkpoint cannot be written."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        config: CheckpointConfig,
        contents: Contents,
        say: Callable[[str], None],
        turns: int = 0,
    ) -> None:
        self._checkpoints, self._config = checkpoints, config
        self._contents, self._say = contents, say
        self._turns = turns  # turns played at the last checkpoint
        self.failed = ""  # the disk error that prevented the newest checkpoint; empty if none did

    def take(self, runtime: Runtime, turns: int, seconds: float) -> int | None:
        """Write a checkpoint now; return its number, or None if none was written.

        Write nothing if no turn was played since the last checkpoint. Reuse the part of a dead or
        late process from an older checkpoint, from which a restarted process continues. If all
        parts must be from the same moment, write no checkpoint instead.
        """
        number, contents = 0, self._contents
        if turns == self._turns:
            return None
        try:
            number = self._checkpoints.begin()
            written = runtime.save(number)
            for part in contents.parts:
                if part in written:
                    continue
                if contents.exact or not self._checkpoints.carry_over(number, part):
                    self._give_up(number, f"{part} could not be saved")
                    return None
            self._checkpoints.write(number, COORDINATOR, contents.gather())
            manifest = Manifest(number, turns, seconds, contents.exact, contents.config, files={})
            self._checkpoints.commit(manifest)
            self._turns, self.failed = turns, ""
            self._checkpoints.keep(self._config.keep)
        except OSError as error:
            self._give_up(number, error.strerror or str(error))
            self.failed = f"no last checkpoint was written: {error.strerror or error}"
            return None
        finally:
            if number:
                runtime.settle(number)
        return number

    def _give_up(self, number: int, why: str) -> None:
        if number:
            self._checkpoints.abandon(number)
        numbers = self._checkpoints.numbers()
        before = f"checkpoint {numbers[-1]} is kept" if numbers else "there is none before it"
        self._say(f"no checkpoint was written: {why}; {before}, and the run continues")


@dataclass(frozen=True)
class Outcome:
    """The result of evaluating a checkpoint."""

    found: Mapping[str, Any] | None = None  # the measurement; None if it was cut short or failed
    message: str = ""
    failed: bool = False  # true if it raised; then no other checkpoint is measured


def measure_checkpoint(
    checkpoints: Checkpoints,
    measure: Measure,
    challenge: Challenge | None,
    number: int,
    snapshots: Mapping[str, Snapshot],
) -> Outcome:
    """Measure a checkpoint, and compare it with the best so far if means cannot decide."""
    try:
        measured = measure(snapshots, number)
        if measured is None:
            message = f"checkpoint {number} was not evaluated completely{OUT_OF_TIME}"
            return Outcome(message=message)
        if measured["mean_return"] is None:
            return Outcome(
                message=f"checkpoint {number} was not measured: no learning agent took part in any "
                "episode; increase checkpoint.evaluate_episodes"
            )
        found = _with_margin(checkpoints, number, measured, snapshots, challenge)
        if _was_cut(found):
            return Outcome(
                message=f"checkpoint {number} was not compared with the best so far, checkpoint "
                f"{found['rival']}{OUT_OF_TIME}"
            )
        return Outcome(found)
    except Exception as error:  # a failed measurement must not end the run
        log.exception("the evaluation of checkpoint %d failed", number)
        message = f"the evaluation failed, so no more checkpoints are evaluated: {error}"
        return Outcome(message=message, failed=True)


def _with_margin(
    checkpoints: Checkpoints,
    number: int,
    measured: Mapping[str, Any],
    snapshots: Mapping[str, Snapshot],
    challenge: Challenge | None,
) -> dict[str, Any]:
    """Return the measurement, with the margin over the best so far if means cannot decide."""
    found = {"checkpoint": number, **measured}
    best = checkpoints.best()
    if challenge is not None and best is not None and _is_undecided(found, best):
        rival = int(best["checkpoint"])
        found |= {"rival": rival, "margin": challenge(snapshots, rival)}
    return found


class Measuring(Protocol):
    """Evaluation of checkpoints during a run, one at a time, in a thread or a process."""

    def begin(self, number: int, snapshots: Mapping[str, Snapshot]) -> None:
        """Start an evaluation without waiting for it."""

    def outcome(self, timeout: float) -> Outcome | None:
        """Return the outcome, waiting at most `timeout` seconds; None if there is none yet."""

    def end(self) -> None:
        """Abandon the current evaluation."""


class MeasuringThread:
    """Evaluation of checkpoints in a thread."""

    def __init__(self, measure: Callable[[int, Mapping[str, Snapshot]], Outcome]) -> None:
        self._measure = measure
        self._thread: threading.Thread | None = None
        self._outcomes: list[Outcome] = []

    def begin(self, number: int, snapshots: Mapping[str, Snapshot]) -> None:
        self._outcomes = outcomes = list[Outcome]()
        self._thread = threading.Thread(
            target=lambda: outcomes.append(self._measure(number, snapshots)),
            name="evaluation",
            daemon=True,
        )
        self._thread.start()

    def outcome(self, timeout: float) -> Outcome | None:
        """Return the outcome, waiting at most `timeout` seconds; None if there is none yet."""
        if self._thread is not None:
            self._thread.join(timeout)
            if not self._thread.is_alive() and not self._outcomes:  # user code called `sys.exit`
                return Outcome(message="a checkpoint was not measured: the evaluation exited")
        return self._outcomes[0] if self._outcomes else None

    def end(self) -> None:
        """Abandon the current measurement, which has `TO_CLOSE` seconds to end."""
        self.outcome(TO_CLOSE)


class BestKeeper:
    """The search for the best checkpoint by evaluation: during the run, or pausing it (`inline`).

    The best checkpoint has the highest mean return over all agents. In constant-sum environments
    that mean is always the same. In them a checkpoint becomes the best by beating the best so far:
    when the two play each other, its mean return must be higher. A checkpoint with other
    environment options than the best so far replaces it, because their returns do not compare.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        measure: Measure,
        say: Callable[[str], None],
        inline: bool,
        challenge: Challenge | None = None,
        cancelled: threading.Event | None = None,
        interrupted: Callable[[], bool] = lambda: False,
        elsewhere: Measuring | None = None,
    ) -> None:
        self._checkpoints, self._say, self._challenge = checkpoints, say, challenge
        self._measure = partial(measure_checkpoint, checkpoints, measure, challenge)
        self._cancelled, self._interrupted = cancelled or threading.Event(), interrupted
        self._elsewhere = None if inline else elsewhere or MeasuringThread(self._measure)
        self._is_measuring = self._failed = self._reported = False

    def offer(self, number: int, snapshots: Mapping[str, Snapshot]) -> None:
        """Measure a checkpoint, unless another is being measured."""
        self.collect()
        if self._is_measuring or self._failed:
            return
        if self._elsewhere is None:
            self._take(self._measure(number, snapshots))
        else:
            self._elsewhere.begin(number, snapshots)
            self._is_measuring = True

    def compare(
        self,
        number: int,
        measured: Mapping[str, Any],
        snapshots: Mapping[str, Snapshot],
        challenge: Challenge | None = None,
    ) -> bool:
        """Compare a checkpoint that was evaluated after the run; False if play was cut short."""
        if measured["mean_return"] is None:
            return True
        by = challenge or self._challenge
        found = _with_margin(self._checkpoints, number, measured, snapshots, by)
        if _was_cut(found):
            return False
        self._keep(found)
        return True

    def collect(self, timeout: float = 0.0) -> None:
        if self._elsewhere is not None and self._is_measuring:
            outcome = self._elsewhere.outcome(timeout)
            if outcome is not None:
                self._take(outcome)

    def close(self, timeout: float) -> None:
        """Wait `timeout` seconds for the current measurement, then abandon it."""
        self.collect(timeout)
        self._cancelled.set()
        if self._elsewhere is not None:
            self._elsewhere.end()
        self.collect()
        self._is_measuring = False

    def _take(self, outcome: Outcome) -> None:
        """Keep a measurement; report once that one was cut short, unless it was cancelled."""
        self._is_measuring, self._failed = False, outcome.failed
        if outcome.found is not None:
            number, mean = outcome.found["checkpoint"], outcome.found["mean_return"]
            log.info("evaluation of checkpoint %d: mean return %g", number, mean)
            self._keep(outcome.found)
        is_silent = self._cancelled.is_set() or self._interrupted() or self._reported
        if outcome.failed or (outcome.message and not is_silent):
            self._reported = True
            self._say(outcome.message)

    def _keep(self, found: Mapping[str, Any]) -> None:
        """Mark a checkpoint as the best, if it is better and still exists."""
        exists = found["checkpoint"] in self._checkpoints.numbers()
        if exists and _is_better(found, self._checkpoints.best()):
            try:
                self._checkpoints.mark_best(found)
            except OSError as error:
                self._say(f"cannot record the best checkpoint: {error.strerror}")


def _was_cut(found: Mapping[str, Any]) -> bool:
    return math.isnan(found.get("margin", 0.0))


def _are_alike(found: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
    """Return whether both were measured with the same environment options, both greedy or not."""
    if (found.get("env_options") or {}) != (best.get("env_options") or {}):
        return False
    return bool(found.get("sampled")) == bool(best.get("sampled"))


def _is_undecided(found: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
    """Return whether means cannot decide, so that the two must play each other."""
    if not (found.get("constant_sum") and _are_alike(found, best)):
        return False
    mean, before = found["mean_return"], best["mean_return"]
    # Returns are float32, so the rounding error depends on their size, also for a mean of 0.
    size = max(each.get("largest_return", abs(each["mean_return"])) for each in (found, best))
    return not found.get("same_returns") or abs(mean - before) <= 1e-5 * size


def _is_better(found: Mapping[str, Any], best: Mapping[str, Any] | None) -> bool:
    if best is None or not _are_alike(found, best):
        return True
    if "margin" in found:
        return bool(found["rival"] == best["checkpoint"] and found["margin"] > 0.0)
    return bool(found["mean_return"] >= best["mean_return"])
