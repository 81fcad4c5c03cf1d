"""The coordinator, which supervises a run until its end, and reports and saves its progress."""

from __future__ import annotations

import gc
import logging
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from remuda.config import RunConfig
from remuda.coordinator.analysing import PopulationAnalyser
from remuda.coordinator.bounded_work import RECORD, VALUES, FrozenTexts
from remuda.coordinator.checkpointing import BestKeeper, Challenge, Checkpointer
from remuda.coordinator.ledger_writer import LedgerWriter
from remuda.coordinator.metrics_log import MetricsLog
from remuda.coordinator.run_notes import EnvironmentNotes
from remuda.coordinator.scoreboard_reader import Reading, ScoreboardReader
from remuda.coordinator.status import StatusFile
from remuda.errors import RoleDiedError
from remuda.publish.snapshot import Snapshot
from remuda.runs.metrics import Record, View
from remuda.runs.result import Result
from remuda.runs.run_directory import RunDirectory
from remuda.system.processes.child import STOPPING_SIGNALS
from remuda.types import RoleStatus, Runtime

log = logging.getLogger(__name__)

TICK = 0.25  # seconds between two polls of the run
LINES, LONGEST = 10, 5.0
"""A line of metrics is written each time the run is 1 / `LINES` longer, and at least every
`LONGEST` seconds."""
# seconds between metrics lines that list all frozen copies; other lines omit them if there are many
WHOLE = 60.0
SHOWN_TICKS = 16  # number of ticks that the live view averages over
RETRY = 2.0  # maximum seconds until a failed checkpoint is retried
EVALUATION_LIMIT = 2.0  # seconds that a checkpoint's evaluation may continue after the run


class RunEvents(Protocol):
    """The receiver of a run's events, called between ticks; it may end the run.

    Methods must not raise. While a method runs, nothing is logged, saved or restarted.
    """

    @property
    def ended(self) -> tuple[str, bool]:
        """The reason to end the run (empty: continue), and whether the run counts as finished."""

    @property
    def wants_checkpoint(self) -> bool:
        """Return whether a checkpoint is requested now; reading resets the request."""

    def poll(self, reading: Reading, seconds: float) -> dict[str, float]:
        """Receive the counters of this tick, `seconds` of play after the start of the run.

        Return the newest values of the metrics that callbacks have logged.
        """

    def saved(self, number: int) -> None:
        """Receive the number of a written checkpoint."""

    def logged(self, record: Record) -> None:
        """Receive a record that is written to the metrics."""


STOPPING = "stopping: writing a last checkpoint; Ctrl-C again ends the program without it"


class Signals:
    """A handler of SIGINT, SIGTERM and SIGHUP that only sets a flag for the main loop.

    An ignored SIGHUP, as under `nohup`, stays ignored.
    """

    def __init__(self) -> None:
        self.caught: int | None = None
        self._before: dict[int, Any] = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Handle a signal; a second one ends the process, by the original handler if any."""
        if self.caught is not None:
            before = self._before[number]
            ends = callable(before) and before is not signal.default_int_handler
            signal.signal(number, before if ends else signal.SIG_DFL)
            signal.raise_signal(number)
        self.caught = number

    def stopped(self) -> bool:
        return self.caught is not None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Catch the signals inside the `with`; does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in STOPPING_SIGNALS}
        if before[signal.SIGHUP] is signal.SIG_IGN:
            del before[signal.SIGHUP]
        self._before = {number: signal.signal(number, self) for number in before}
        try:
            yield
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)


ALL_PLAYED, TIME_UP = "all turns were played", "the time was up"


ITS_OWN = 1_000  # maximum number of objects frozen by the interpreter; Python 3.12 freezes 375


@contextmanager
def gc_frozen(collects: bool = True) -> Iterator[None]:
    """Exclude all existing objects from garbage collections inside the `with`.

    A full collection visits 300,000 objects of the libraries and takes a tenth of a second. If
    other code froze objects before, those alone stay excluded, since all frozen objects can only be
    released together. With `collects`, garbage of an earlier run is collected
    first.
    """
    by_others = gc.get_freeze_count() > ITS_OWN
    if collects:
        gc.collect()
    if not by_others:
        gc.freeze()
    try:
        yield
    finally:
        if not by_others:
            gc.unfreeze()


class Coordinator:
    """A run's supervisor: it starts processes, writes metrics and checkpoints, and ends the run."""

    def __init__(
        self,
        runtime: Runtime,
        make_board: Callable[[], ScoreboardReader],
        snapshots: Callable[[], dict[str, Snapshot]],
        run: RunDirectory,
        view: View,
        status: StatusFile,
        checkpointer: Checkpointer,
        best: BestKeeper | None,
        resumed_at: int | None = None,
        ledger_writer: LedgerWriter | None = None,
        frozen: FrozenTexts | None = None,
        events: RunEvents | None = None,
        analyser: PopulationAnalyser | None = None,
    ) -> None:
        self._runtime, self._make_board, self._snapshots = runtime, make_board, snapshots
        self._run, self._view, self._status = run, view, status
        self._checkpointer, self._best = checkpointer, best
        self._ledger_writer, self._frozen, self._events = ledger_writer, frozen, events
        self._analyser = analyser
        self._metrics = MetricsLog(run, view.say, resumed_at)
        self._undone: dict[str, int] = {}
        self._halted: set[str] = set()

    def run(self, config: RunConfig, every: float, signals: Signals) -> Result:
        """Supervise the run until it ends, with a checkpoint every `every` seconds."""
        try:

            def stopped() -> bool:
                for message in self._runtime.news():
                    self._report(message)
                return signals.stopped()

            if self._ledger_writer is not None:
                self._ledger_writer.begin()
            boards: list[ScoreboardReader] = []
            with gc_frozen():
                # Read the scoreboard before play starts, so the first record has every episode.
                self._runtime.start(stopped, lambda: boards.append(self._make_board()))
                board = boards[0] if boards else self._make_board()
                return self._go_on(board, config, every, signals)
        finally:
            if self._analyser is not None:
                self._analyser.close()
            self._runtime.stop()
            if self._ledger_writer is not None:
                self._ledger_writer.close()
            self._metrics.work.finish()
            if self._best is not None:
                self._best.close(EVALUATION_LIMIT)

    def ended_before(self, words: str) -> Result:
        """Return the result of a run with nothing left to do; start and write nothing."""
        board = self._make_board()
        session = board.between(board.start, board.read(), whole=True)
        if self._analyser is not None:
            self._analyser.close()
        self._runtime.stop()
        return Result(self._run.path, words, True, session, None, None, board.earlier, {}, {})

    def compare_last(
        self, measured: Mapping[str, Any], snapshots: Mapping[str, Snapshot], challenge: Challenge
    ) -> bool:
        """Mark the last checkpoint as the best if the final evaluation shows that it is."""
        numbers = self._run.checkpoints.numbers()
        if self._best is None or not numbers:
            return True
        return self._best.compare(numbers[-1], measured, snapshots, challenge)

    def _go_on(
        self, board: ScoreboardReader, config: RunConfig, every: float, signals: Signals
    ) -> Result:
        log.info("training begins")
        logged, whole_due = board.start, board.start.time + WHOLE
        due = board.start.time + every
        recent, encodes = deque([board.start], maxlen=SHOWN_TICKS), False
        notes = EnvironmentNotes(board.scoreboard)
        while True:
            over, died = self._let_work()
            if self._analyser is not None:  # it reads the ledger, which was just written
                self._analyser.poll()
                board.analysis = self._analyser.newest
            board.traffic = self._runtime.traffic()
            now = board.read()
            for message in notes.news():
                self._view.say(message)
            words, finished = self._reason(over, board.seconds(now), config, signals)
            words = str(died) if died else words
            if words and signals.caught is not None and not finished and not died:
                self._view.say(STOPPING)
            if self._events is not None:
                board.logged = self._events.poll(now, board.seconds(now))
            # While encoding is in progress, every second tick does only that: with many policies, a
            # record and encoding together take too long for one tick.
            is_busy = self._metrics.work.busy or self._status.work.busy
            encodes = is_busy and not (encodes or words or now.time >= due)
            if encodes:
                recent.append(now)
                self._work(VALUES)
                continue
            # A tick computes one record: that of the logged interval, if a line is due. While a
            # line is still being encoded, the next interval is extended.
            interval = line_interval(config, board.seconds(now))
            is_due = now.time - logged.time >= interval and not self._metrics.work.busy
            is_logged = is_due or bool(words)
            if is_logged:
                board.mark(now)
            record = board.between(logged if is_logged else recent[0], now, whole=bool(words))
            recent.append(now)
            self._report_bad_numbers(record)
            requested = self._events is not None and self._events.wants_checkpoint
            if now.time >= due or words or requested:
                number = self.checkpoint(record, words)
                if now.time >= due or number is None:
                    due = now.time + (min(RETRY, every) if number is None else every)
            self._view.show(record)
            self._status.note_returns(record)
            if is_logged:
                whole = now.time >= whole_due and self._frozen is not None and self._frozen.complete
                whole_due = now.time + WHOLE if whole else whole_due
                self._view.log(record)
                _log_interval(record)
                self._metrics.begin(record, self._frozen if whole else None)
                logged = now
                if self._events is not None:
                    self._events.logged(record)
            if words:
                result = self._end(board, record, now, words, finished, died)
                return result.with_notes(*notes.notes())
            if self._status.is_due:
                self._status.begin(record, self._runtime.status())
            self._work(VALUES - RECORD * len(record.policies))

    def _let_work(self) -> tuple[bool, RoleDiedError | None]:
        """Let the processes work for a tick; return whether all turns were played and any error."""
        died: RoleDiedError | None = None
        over = False
        try:
            over = self._runtime.run_for(TICK)
        except RoleDiedError as error:
            died = error
        for message in self._runtime.news():
            self._report(message)
        if self._ledger_writer is not None:
            self._ledger_writer.write()
        if self._frozen is not None:
            self._frozen.poll()
        return over, died

    def _end(
        self,
        board: ScoreboardReader,
        record: Record,
        now: Reading,
        words: str,
        finished: bool,
        died: RoleDiedError | None,
    ) -> Result:
        log.info("training ends after %d turns: %s", record.turns, words)
        self._metrics.work.finish()
        if died:
            self._status.note(words)
        self._status.write(record, self._runtime.status(), words)
        if died:
            raise died
        session = board.between(board.start, now, whole=True)
        roles = self._runtime.status()
        restarts = {role.name: role.restarts for role in roles if role.restarts}
        had = {r.name: r.processor for r in roles if r.processor is not None}
        unsaved = tuple(filter(None, (self._checkpointer.failed, self._metrics.failed)))
        restarted = (_restart_words(role, self._run.logs) for role in roles if role.restarts)
        notes = (*restarted, *_undone_words(session))
        end = (self._run.path, words, finished, session, None, None, board.earlier)
        return Result(*end, restarts, had, notes, unsaved)

    def _reason(
        self, over: bool, seconds: float, config: RunConfig, signals: Signals
    ) -> tuple[str, bool]:
        """Return why the run ends now (empty: it continues), and whether it reached its limit."""
        if over:
            return ALL_PLAYED, True
        if signals.caught is not None:
            return f"stopped by {signal.Signals(signals.caught).name}", False
        if self._events is not None and self._events.ended[0]:
            return self._events.ended
        if config.seconds is not None and seconds >= config.seconds:
            return TIME_UP, True
        return "", False

    def _work(self, values: int) -> None:
        """Encode about `values` values, half of them for the status if one is being written."""
        share = values // 2 if self._status.work.busy else values
        self._status.work.go_on(values - self._metrics.work.go_on(share))

    def checkpoint(self, record: Record, words: str) -> int | None:
        number = self._checkpointer.take(self._runtime, record.turns, record.seconds)
        if number is not None:
            log.info("checkpoint %d holds the run after %d turns", number, record.turns)
        if number is not None and self._best is not None and not words:
            snapshots = self._snapshots().items()
            self._best.offer(
                number, {name: replace(s, weights=s.weights.copy()) for name, s in snapshots}
            )
        if number is not None and self._events is not None:
            self._events.saved(number)
        return number

    def _report(self, message: str) -> None:
        self._view.say(message)
        self._status.note(message)

    def _report_bad_numbers(self, record: Record) -> None:
        for name, policy in record.policies.items():
            if policy.nonfinite and name not in self._undone:
                self._undone[name] = policy.nonfinite
                self._report(
                    f"policy {name}: a loss or weight was not finite; the update was undone "
                    f"and not published. The log of its learner is in {self._run.logs}"
                )
            if policy.halted and name not in self._halted:
                self._halted.add(name)
                self._report(
                    f"policy {name} stops learning after {policy.nonfinite} updates that were not "
                    "finite (policy.max_nonfinite in a row); it keeps acting with its last good "
                    "weights. A lower policy.learning_rate or policy.reward_scale may help"
                )


def _log_interval(record: Record) -> None:
    if log.isEnabledFor(logging.DEBUG):
        policies = ", ".join(
            f"{name} version {policy.version} after {policy.updates} updates"
            for name, policy in record.policies.items()
        )
        log.debug("%d turns after %.1f s: %s", record.turns, record.seconds, policies)


def _restart_words(role: RoleStatus, logs: Path) -> str:
    times = "once" if role.restarts == 1 else f"{role.restarts} times"
    return (
        f"{role.name} was restarted {times}, most recently because it {role.problem}. Its log is "
        f"in {logs}"
    )


def _undone_words(record: Record) -> Iterator[str]:
    for name, policy in record.policies.items():
        if policy.nonfinite and not policy.halted:
            undone = "1 update" if policy.nonfinite == 1 else f"{policy.nonfinite} updates"
            yield (
                f"{undone} of {name} had a loss or weight that was not finite, and did not count. "
                "A lower policy.learning_rate or policy.reward_scale may help"
            )


def line_interval(config: RunConfig, seconds: float) -> float:
    """Return the seconds between lines of metrics, `seconds` after the start of the run."""
    if config.log_every == "auto":
        return min(max(seconds / LINES, TICK), LONGEST)
    return config.log_every
