"""Dispatch of a run's events to callbacks, and handling of their failures."""

from __future__ import annotations

import difflib
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from remuda.assembly.assembly import Assembly
from remuda.config import Config
from remuda.coordinator.callback import ActiveRun, Callback, EpisodeSummary
from remuda.coordinator.loggers import make_logger
from remuda.coordinator.requests import Requests
from remuda.coordinator.scoreboard_reader import Reading
from remuda.errors import CallbackError, ConfigError, RemudaError, UsageError
from remuda.runs.metrics import Record, row_of
from remuda.runs.result import Result
from remuda.runs.run_directory import RunDirectory, can_continue, way_on
from remuda.system.checkpoint.store import Manifest
from remuda.system.loading import load
from remuda.system.scoreboard import Play, Policy, Row
from remuda.system.user_errors import where_raised

log = logging.getLogger(__name__)

NAMES = tuple(name for name in vars(Callback) if name.startswith("on_"))
SLOW = 1.0  # a callback that takes this many seconds is reported once
FAILURES = (Exception, SystemExit, KeyboardInterrupt)
"""Exceptions of callbacks, all of which end the run cleanly."""


class Events:
    """The dispatcher of events to callbacks, which shields the run from their exceptions."""

    def __init__(
        self, config: Config, callbacks: Iterable[object] | None, say: Callable[[str], None]
    ) -> None:
        """Load the configured callbacks and loggers; configured callbacks are called first."""
        self._config, self._say = config, say
        passed = _listed(callbacks)
        named = [_loaded(name) for name in config.run.callbacks]
        made = [make_logger(name) for name in config.run.loggers]
        for callback in (*named, *passed):
            check_callback(callback)
        self._callbacks: list[object] = [*named, *passed, *made]
        self._left: list[object] = []  # failed callbacks, which only receive the end
        self._slow: set[tuple[str, str]] = set()
        self._before: Row | None = None
        self._run: ActiveRun | None = None
        self._files: RunDirectory | None = None
        self._ended_told = False
        self._requests: Requests | None = None
        self.failure: CallbackError | None = None
        """The failure of an essential callback, which ends the run; None if there is none."""

    @contextmanager
    def lasting(
        self, files: RunDirectory, assembly: Assembly, resumed: Manifest | None = None
    ) -> Iterator[None]:
        """Dispatch the start before the `with`, and the end if an exception leaves it."""
        self._files = files
        policies = tuple(spec.name for spec in assembly.specs)
        self._run = ActiveRun(files.path, self._config, policies)
        if resumed is not None:
            self._run.turns, self._run.seconds = resumed.turns, resumed.seconds
        self._requests = Requests(files.path, self._run, self._say)
        self.attach(assembly)
        try:
            self._tell("on_start")
            self._raise_failure(begun=False)
            yield
        except BaseException:
            self.end(None)
            raise
        self._raise_failure(begun=True)

    def attach(self, assembly: Assembly) -> None:
        """Give callbacks and requests access to the assembly's shared memory."""
        if self._requests is not None:
            self._requests.attach(assembly.playing)
        if self._run is not None:
            self._run.attach(assembly.changes, assembly.table)
            self._before = assembly.scoreboard.all_acted()

    @property
    def ended(self) -> tuple[str, bool]:
        """The reason to end the run now, if any, and whether the run then counts as finished."""
        if self.failure is not None:
            return str(self.failure), False
        if self._run is not None and self._run.stopped:
            return f"stopped by a callback: {self._run.stopped}", True
        if self._run is not None and self._run.interrupted:
            return self._run.interrupted, False
        return "", False

    @property
    def wants_checkpoint(self) -> bool:
        """Return whether a checkpoint was requested since the last read."""
        return self._run is not None and self._run.take_wish()

    def look(self, reading: Reading, seconds: float) -> None:
        """Carry out requests of other programs, and dispatch episodes since the last poll."""
        if self._requests is not None:
            self._requests.look()
        if not self._callbacks or self._run is None or self._before is None:
            return
        self._run.turns, self._run.seconds = int(reading.play[Play.TURNS]), seconds
        change, self._before = reading.policy - self._before, reading.policy
        episodes = {
            name: EpisodeSummary(int(count), float(total / count))
            for name, count, total in zip(
                self._run.policies,
                change[:, Policy.EPISODES].tolist(),
                change[:, Policy.RETURN_SUM].tolist(),
                strict=True,
            )
            if count > 0
        }
        if episodes:
            self._tell("on_episodes", episodes)

    def saved(self, number: int) -> None:
        """Dispatch a checkpoint."""
        if self._files is not None:
            self._tell("on_checkpoint", number, self._files.checkpoints.directory(number))

    def logged(self, record: Record) -> None:
        """Dispatch a line of the metrics."""
        if any(hasattr(callback, "on_metrics") for callback in self._callbacks):
            self._tell("on_metrics", row_of(record))

    def take_no_more_requests(self) -> None:
        """Refuse further requests: the run has trained to its end."""
        if self._requests is not None:
            self._requests.close()

    def end(self, result: Result | None) -> None:
        """Dispatch the end of the run, once, also to failed callbacks."""
        if self._ended_told or self._run is None:
            return
        self._ended_told, self._left = True, []
        self._run.close()
        self.take_no_more_requests()
        self._tell("on_end", result)
        if self._requests is not None:
            self._requests.end()

    def _tell(self, event: str, *details: Any) -> None:
        for callback in self._callbacks:
            method = getattr(callback, event, None)
            if method is None or any(callback is left for left in self._left):
                continue
            begun = time.monotonic()
            try:
                method(self._run, *details)
            except FAILURES as error:
                self._fail(callback, event, error)
            if event not in ("on_start", "on_end"):
                self._watch(_name_of(callback), event, time.monotonic() - begun)

    def _watch(self, name: str, event: str, seconds: float) -> None:
        if seconds < SLOW or (name, event) in self._slow:
            return
        self._slow.add((name, event))
        stopped = "logged, saved or restarted"
        if self._config.schedule == "sequential":
            stopped = "logged, saved, restarted or played"
        self._say(
            f"callback {name}.{event} took {seconds:.1f} s, in which nothing could be {stopped}"
        )

    def _fail(self, callback: object, event: str, error: BaseException) -> None:
        name = f"{_name_of(callback)}.{event}"
        log.error("callback %s failed", name, exc_info=error)
        message = f"callback {name} failed: {_in_words(error)}"
        self._left.append(callback)
        essential = getattr(callback, "essential", True) or event == "on_start"
        if essential and self.failure is None:
            self.failure = CallbackError(message)
            self.failure.__cause__ = error
            return
        continues = not essential and event != "on_end"
        self._say(f"{message}; the run continues without it" if continues else message)

    def _raise_failure(self, begun: bool) -> None:
        if self.failure is None:
            return
        assert self._files is not None
        if can_continue(self._files):
            advice = "The run ended cleanly, and nothing is lost" if begun else "Nothing is lost"
            if not self._files.is_finished():
                advice += f"; fix it, and {way_on(self._files)}"
            self.failure.args = (f"{self.failure}. {advice}",)
        raise self.failure


def _listed(callbacks: object) -> tuple[object, ...]:
    if callbacks is None:
        return ()
    if not isinstance(callbacks, Iterable):
        name = callbacks.__name__ if isinstance(callbacks, type) else _name_of(callbacks)
        raise UsageError(f"callbacks is {name}; give a list of them, as in callbacks=[{name}()]")
    return tuple(callbacks)


def check_callback(callback: object) -> None:
    """Check that an object is a callback with known events and suitable arguments."""
    if isinstance(callback, type):
        raise UsageError(
            f"callbacks: {callback.__name__} is a class; give an object, as in "
            f"{callback.__name__}()"
        )
    name = _name_of(callback)
    found = [each for each in dir(callback) if each.startswith("on_")]
    for each in found:
        if each not in NAMES:
            near = difflib.get_close_matches(each, NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}"
            raise UsageError(f"callback {name}: {each} is no event; {hint}")
        _check_arguments(name, each, getattr(callback, each))
    if not found:
        raise UsageError(
            f"callback {name} has no method that is an event; there are {', '.join(NAMES)} "
            "(see remuda.Callback)"
        )


def _check_arguments(name: str, event: str, method: Any) -> None:
    wanted = list(inspect.signature(getattr(Callback, event)).parameters)[1:]
    try:
        inspect.signature(method).bind(*wanted)
    except TypeError as error:
        raise UsageError(
            f"callback {name}: {event} is called with ({', '.join(wanted)}): {error}"
        ) from None
    except ValueError:  # it has no signature to check
        return


def _loaded(name: str) -> object:
    try:
        found: object = load(name, "run.callbacks")
    except ConfigError:
        raise
    except FAILURES as error:
        raise ConfigError(f"run.callbacks: loading {name} failed: {_in_words(error)}") from error
    if not callable(found):
        return found
    try:
        return found()
    except RemudaError:
        raise
    except FAILURES as error:
        raise ConfigError(
            f"run.callbacks: {name} was called without arguments and failed: {_in_words(error)}"
        ) from error


def _name_of(callback: object) -> str:
    return type(callback).__qualname__.rpartition("<locals>.")[2]


def _in_words(error: BaseException) -> str:
    """Describe an exception in one line, with its location in the user's code, if any."""
    of_user = where_raised(error, libraries=False)
    if of_user is not None:
        return of_user
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
