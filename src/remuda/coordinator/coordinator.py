"""The coordinator: lets a run go on until its end, and tells and keeps what happens in it."""

from __future__ import annotations

import logging
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from remuda.config import RunConfig
from remuda.coordinator.board import Board
from remuda.coordinator.metrics import Record, View, scalars
from remuda.coordinator.run_directory import RunDirectory

log = logging.getLogger(__name__)

TICK = 0.25
"""Seconds between two looks at the run."""
SHOWN_TICKS = 16
"""The live view shows what happened in so many ticks."""


class Runtime(Protocol):
    """Where the roles live, as the coordinator sees it."""

    def start(self, stopped: Callable[[], bool]) -> None:
        """Bring every role up, or return early when `stopped()`."""

    def run_for(self, seconds: float) -> bool:
        """Let the roles work for about so long; True when everything is played."""

    def stop(self) -> None:
        """Let every role finish, and make sure that all are gone."""


class Signals:
    """SIGINT and SIGTERM only set a flag here; the main loop does the work."""

    def __init__(self) -> None:
        self.caught: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """The handler: a second signal ends the process at once."""
        if self.caught is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.caught = number

    def stopped(self) -> bool:
        """Whether a signal came."""
        return self.caught is not None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Catch the signals inside the `with`."""
        before = {n: signal.signal(n, self) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Coordinator:
    """Runs a run: starts its runtime, writes its metrics, shows it, and stops it in time."""

    def __init__(
        self, runtime: Runtime, make_board: Callable[[], Board], run: RunDirectory, view: View
    ) -> None:
        self._runtime, self._make_board, self._run, self._view = runtime, make_board, run, view
        self._writing = True

    def run(self, config: RunConfig, signals: Signals) -> tuple[str, Record]:
        """Go on until an end is reached; returns how the run ended, and the whole of it.

        Raises:
            RoleDiedError: a role died. Everything is stopped before it is raised.
        """
        from torch.utils.tensorboard import SummaryWriter

        tensorboard = SummaryWriter(str(self._run.tensorboard))
        try:
            self._runtime.start(signals.stopped)
            board = self._make_board()
            logged = board.start
            recent = deque([board.start], maxlen=SHOWN_TICKS)
            ended = ""
            while not ended:
                over = self._runtime.run_for(TICK)
                now = board.read()
                ended = _reason(over, now.time - board.start.time, config, signals)
                self._view.show(board.between(recent[0], now))
                recent.append(now)
                if now.time - logged.time >= config.log_every or ended:
                    self._log(board.between(logged, now), tensorboard)
                    logged = now
            return ended, board.between(board.start, now)
        finally:
            self._runtime.stop()
            tensorboard.close()

    def _log(self, record: Record, tensorboard: Any) -> None:
        self._view.log(record)
        try:
            with self._run.metrics.open("a") as file:
                file.write(record.to_json() + "\n")
            for name, value in scalars(record):
                tensorboard.add_scalar(name, value, record.turns)
            tensorboard.flush()
        except OSError as error:
            if self._writing:  # say it once; training is worth more than its log
                self._view.say(
                    f"cannot write metrics into {self._run.path}: {error.strerror}; "
                    "training goes on without them"
                )
                log.warning("cannot write metrics: %s", error)
            self._writing = False


def _reason(over: bool, seconds: float, config: RunConfig, signals: Signals) -> str:
    if signals.caught is not None:
        return f"stopped by {signal.Signals(signals.caught).name}"
    if over:
        return "all turns were played"
    if config.seconds is not None and seconds >= config.seconds:
        return "the time was up"
    return ""
