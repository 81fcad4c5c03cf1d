"""Take checkpoints during a run, and find the best one.

The coordinator writes the number of a requested checkpoint into shared memory (`Control.save`).
Each role writes its part between two units of work. The coordinator adds the scoreboard (shared
counters) and the published snapshots, and completes the checkpoint (`system/checkpoint/store.py`).
With `checkpoint.replay`, a learner's part holds the committed steps of its rings. The actor's part
holds the current, uncommitted step of each stream (an agent in an environment copy), because no
other process may read that step. A resumed actor writes these steps back into its ring. A learner's
part is ignored on restore if the population's table has another policy in its place.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from remuda.config import CheckpointConfig
from remuda.publish.snapshot import Snapshot
from remuda.system.checkpoint.names import COORDINATOR
from remuda.system.checkpoint.store import Checkpoints, Manifest
from remuda.types import State

log = logging.getLogger(__name__)

OUT_OF_TIME = (
    ": run.evaluate_seconds have passed; increase it, or reduce checkpoint.evaluate_episodes"
)
"""The end of the message that a checkpoint was not measured completely."""

Measure = Callable[[Mapping[str, Snapshot]], Mapping[str, Any] | None]
"""A function that evaluates snapshots. It returns at least `mean_return`, or None if cut short. If
`constant_sum` is true, mean returns do not rank checkpoints. Yet if `same_returns` is true too, two
different means rank them; means within rounding (relative to `largest_return`) are the same."""
Challenge = Callable[[Mapping[str, Snapshot], int], float]
"""A function that plays snapshots against a checkpoint. It returns the snapshots' mean return minus
the checkpoint's, or NaN if play was cut short."""


class Saver(Protocol):
    """The processes of a run, as the checkpointer needs them."""

    def save(self, number: int) -> set[str]:
        """Let every process write its parts; return the names of the written parts."""

    def settle(self, number: int) -> None:
        """Announce that the checkpoint is complete or abandoned."""


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

    def take(self, runtime: Saver, turns: int, seconds: float) -> int | None:
        """Write a checkpoint now; return its number, or None if none was written.

        Write nothing if no turn was played since the last checkpoint. Reuse the part of a dead or
        late process from an older checkpoint, from which a restarted process continues. If all
        parts must be from the same moment, write no checkpoint instead.
        """
        number = 0
        if turns == self._turns:
            return None
        try:
            number = self._checkpoints.begin()
            written = runtime.save(number)
            missing = [part for part in self._contents.parts if part not in written]
            for part in missing:
                if self._contents.exact or not self._checkpoints.carry_over(number, part):
                    self._give_up(number, f"{part} could not be saved")
                    return None
            self._checkpoints.write(number, COORDINATOR, self._contents.gather())
            self._checkpoints.commit(
                Manifest(
                    number=number,
                    turns=turns,
                    seconds=seconds,
                    exact=self._contents.exact,
                    config=self._contents.config,
                    files={},
                )
            )
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
        kept = self._checkpoints.numbers()
        before = f"checkpoint {kept[-1]} is kept" if kept else "there is none before it"
        self._say(f"no checkpoint was written: {why}; {before}, and the run continues")


@dataclass(frozen=True)
class Outcome:
    """The result of evaluating a checkpoint in another process."""

    found: tuple[dict[str, Any], ...]  # the measurement; empty if it was cut short or failed
    failed: bool  # true if it raised; then no other checkpoint is measured
    words: tuple[str, ...]  # messages for the user


class Elsewhere(Protocol):
    """Another process that measures one checkpoint at a time."""

    def begin(self, number: int, snapshots: Mapping[str, Snapshot]) -> None:
        """Start to measure a checkpoint; the previous measurement has ended."""

    def outcome(self, timeout: float) -> Outcome | None:
        """Return the outcome, waiting at most `timeout` seconds; None if there is none yet."""

    def end(self) -> None:
        """Abandon the current measurement."""


class BestKeeper:
    """The search for the best checkpoint by evaluation: during the run, or pausing it (`inline`).

    The best checkpoint has the highest mean return over all agents. In constant-sum environments
    that mean is always the same. In them a checkpoint becomes the best by beating the best so far:
    when the two play each other, its mean return must be higher.
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
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._elsewhere, self._is_away = elsewhere, False
        self._checkpoints, self._measure, self._say = checkpoints, measure, say
        self._inline, self._challenge = inline, challenge
        self._cancelled = cancelled or threading.Event()
        self._interrupted = interrupted
        self._thread: threading.Thread | None = None
        self._done: list[dict[str, Any]] = []
        self._failed = self._reported = False

    def offer(self, number: int, snapshots: Mapping[str, Snapshot]) -> None:
        """Measure a checkpoint, unless another is being measured."""
        self.collect()
        if self._thread is not None or self._is_away or self._failed:
            return
        if self._inline:
            self._play(number, snapshots)
            self.collect()
            return
        if self._elsewhere is not None:
            self._elsewhere.begin(number, snapshots)
            self._is_away = True
            return
        self._thread = threading.Thread(
            target=self._play, args=(number, snapshots), name="evaluation", daemon=True
        )
        self._thread.start()

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
        found = self._compare(number, measured, snapshots, challenge or self._challenge)
        if _was_cut(found):
            return False
        self._keep(found)
        return True

    def collect(self, timeout: float = 0.0) -> None:
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return
            self._thread = None
        outcome = self._elsewhere.outcome(timeout) if self._elsewhere and self._is_away else None
        if outcome is not None:
            self._take(outcome)
        while self._done:
            self._keep(self._done.pop())

    def close(self, timeout: float) -> None:
        """Wait `timeout` seconds for the current measurement, then abandon it."""
        self.collect(timeout)
        self._cancelled.set()
        if self._elsewhere is not None:
            self._elsewhere.end()
            self._is_away = False
        self.collect(timeout)

    def measured(self, number: int, snapshots: Mapping[str, Snapshot]) -> tuple[bool, Any]:
        """Return whether measuring failed, and the result; called in the measuring process."""
        self._play(number, snapshots)
        return self._failed, tuple(self._done)

    def _take(self, outcome: Outcome) -> None:
        self._is_away = False
        self._failed = outcome.failed
        self._done += outcome.found
        for words in outcome.words:
            if outcome.failed or not self._reported:
                self._say(words)
            self._reported = True

    def _keep(self, found: Mapping[str, Any]) -> None:
        """Mark a checkpoint as the best, if it is better and still exists."""
        is_kept = found["checkpoint"] in self._checkpoints.numbers()
        if is_kept and _is_better(found, self._checkpoints.best()):
            try:
                self._checkpoints.mark_best(found)
            except OSError as error:
                self._say(f"cannot record the best checkpoint: {error.strerror}")

    def _play(self, number: int, snapshots: Mapping[str, Snapshot]) -> None:
        try:
            measured = self._measure(snapshots)
            if measured is None:
                self._report_once(f"checkpoint {number} was not evaluated completely")
                return
            if measured["mean_return"] is None:
                self._report_once(
                    f"checkpoint {number} was not measured: no learning agent took part in any "
                    "episode; increase checkpoint.evaluate_episodes",
                    "",
                )
                return
            found = self._compare(number, measured, snapshots, self._challenge)
            if not _was_cut(found):
                self._done.append(found)
            else:
                self._report_once(
                    f"checkpoint {number} was not compared with the best so far, checkpoint "
                    f"{found['rival']}"
                )
        except Exception as error:  # a failed measurement must not end the run
            log.exception("the evaluation of checkpoint %d failed", number)
            self._failed = True
            self._say(f"the evaluation failed, so no more checkpoints are evaluated: {error}")

    def _report_once(self, what: str, why: str = OUT_OF_TIME) -> None:
        """Report once that a measurement failed, unless it was cancelled."""
        if not (self._cancelled.is_set() or self._interrupted() or self._reported):
            self._reported = True
            self._say(what + why)

    def _compare(
        self,
        number: int,
        measured: Mapping[str, Any],
        snapshots: Mapping[str, Snapshot],
        challenge: Challenge | None,
    ) -> dict[str, Any]:
        """Return the measurement, with the margin over the best so far if means cannot decide."""
        found = {"checkpoint": number, **measured}
        best = self._checkpoints.best()
        if challenge is not None and best is not None and _tells_nothing(found, best):
            rival = int(best["checkpoint"])
            found |= {"rival": rival, "margin": challenge(snapshots, rival)}
        return found


def _was_cut(found: Mapping[str, Any]) -> bool:
    return math.isnan(found.get("margin", 0.0))


def _are_alike(found: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
    """Return whether both were measured by greedy play, or both by sampled play."""
    return bool(found.get("sampled")) == bool(best.get("sampled"))


def _tells_nothing(found: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
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
