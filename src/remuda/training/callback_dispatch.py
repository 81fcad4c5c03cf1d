"""Dispatch of a run's events to callbacks, and handling of their failures."""

from __future__ import annotations

import difflib
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from remuda.assembly.assembly import Assembly
from remuda.config import Config
from remuda.coordinator.callback import ActiveRun, Callback, EpisodeSummary, MetricsRow
from remuda.coordinator.loggers import make_logger
from remuda.coordinator.requests import Requests
from remuda.coordinator.scoreboard_reader import Reading
from remuda.errors import CallbackError, ConfigError, RemudaError, RunDirectoryError, UsageError
from remuda.runs.metrics import Record, row_of
from remuda.runs.result import Result
from remuda.runs.run_directory import RunDirectory, can_continue, how_to_continue
from remuda.system.checkpoint.store import Manifest
from remuda.system.loading import load
from remuda.system.scoreboard import Play, Policy
from remuda.system.user_errors import where_raised

log = logging.getLogger(__name__)

NAMES = tuple(name for name in vars(Callback) if name.startswith("on_"))
FAILURES = (Exception, SystemExit, KeyboardInterrupt)
"""Exceptions of callbacks, all of which end the run cleanly."""


def load_callbacks(config: Config, callbacks: Iterable[object] | None) -> list[object]:
    """Return the configured callbacks, then the passed ones, then the loggers."""
    called = [*(_loaded(name) for name in config.run.callbacks), *_listed(callbacks)]
    for callback in called:
        check_callback(callback)
    return [*called, *(make_logger(name) for name in config.run.loggers)]


class Events:
    """The dispatcher of events to callbacks, which shields the run from their exceptions."""

    def __init__(
        self,
        config: Config,
        callbacks: Sequence[object],
        files: RunDirectory,
        assembly: Assembly,
        say: Callable[[str], None],
        resumed: Manifest | None = None,
    ) -> None:
        self._config, self._callbacks, self._files, self._say = config, callbacks, files, say
        self._failed: list[object] = []  # callbacks that only receive the end
        self._slow: set[tuple[str, str]] = set()
        policies = tuple(spec.name for spec in assembly.specs)
        self._run = ActiveRun(files.path, config, policies)
        if resumed is not None:
            self._run.turns, self._run.seconds = resumed.turns, resumed.seconds
            with suppress(RunDirectoryError):  # metrics that are gone or damaged
                for record in files.read_metrics()[-1:]:
                    self._run.logged = dict(record.logged)
        self.requests = Requests(files.path, self._run, say)
        self._has_ended = False
        self.failure: CallbackError | None = None
        """The failure of an essential callback, which ends the run; None if there is none."""
        self.attach(assembly)

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """Dispatch the start before the `with`, and the end if an exception leaves it."""
        try:
            self._dispatch("on_start")
            self._raise_failure(begun=False)
            yield
        except BaseException:
            self.end(None)
            raise
        self._raise_failure(begun=True)

    def attach(self, assembly: Assembly) -> None:
        """Give callbacks and requests access to the assembly's shared memory."""
        self.requests.attach(assembly.playing)
        self._run.attach(
            assembly.changes, assembly.table, assembly.env_options, assembly.scoreboard.turns
        )
        self._before = assembly.scoreboard.all_acted()

    @property
    def ended(self) -> tuple[str, bool]:
        """The reason to end the run now, if any, and whether the run then counts as finished."""
        if self.failure is not None:
            return str(self.failure), False
        if self._run.stopped:
            return f"stopped by a callback: {self._run.stopped}", True
        return self._run.interrupted, False

    @property
    def wants_checkpoint(self) -> bool:
        """Return whether a checkpoint was requested since the last read."""
        return self._run.take_save_request()

    def poll(self, reading: Reading, seconds: float) -> dict[str, float]:
        """Carry out requests of other programs, and dispatch episodes since the last poll.

        Return the newest values of the metrics that callbacks have logged.
        """
        self._run.turns, self._run.seconds = int(reading.play[Play.TURNS]), seconds
        self.requests.poll()
        if not self._callbacks:
            return self._run.logged
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
            self._dispatch("on_episodes", episodes)
        return self._run.logged

    def saved(self, number: int) -> None:
        self._dispatch("on_checkpoint", number, self._files.checkpoints.directory(number))

    def logged(self, record: Record) -> None:
        if any(hasattr(callback, "on_metrics") for callback in self._callbacks):
            self._dispatch("on_metrics", MetricsRow(row_of(record)))

    def end(self, result: Result | None) -> None:
        """Dispatch the end of the run, once, also to failed callbacks."""
        if self._has_ended:
            return
        self._has_ended, self._failed = True, []
        self._run.close()
        self.requests.close()
        self._dispatch("on_end", result)
        self.requests.end()

    def _dispatch(self, event: str, *details: Any) -> None:
        for callback in self._callbacks:
            method = getattr(callback, event, None)
            if method is None or any(callback is failed for failed in self._failed):
                continue
            begun = time.monotonic()
            try:
                method(self._run, *details)
            except FAILURES as error:
                self._fail(callback, event, error)
            if event not in ("on_start", "on_end"):
                self._watch(_name_of(callback), event, time.monotonic() - begun)

    def _watch(self, name: str, event: str, seconds: float) -> None:
        if seconds < 1.0 or (name, event) in self._slow:
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
        message = f"callback {name} failed: {_described(error)}"
        self._failed.append(callback)
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
        if can_continue(self._files):
            advice = "The run ended cleanly, and nothing is lost" if begun else "Nothing is lost"
            if not self._files.is_finished():
                advice += f"; fix it, and {how_to_continue(self._files)}"
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
    events = [each for each in dir(callback) if each.startswith("on_")]
    for event in events:
        if event not in NAMES:
            near = difflib.get_close_matches(event, NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}"
            raise UsageError(f"callback {name}: {event} is no event; {hint}")
        _check_arguments(name, event, getattr(callback, event))
    if not events:
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
        raise ConfigError(f"run.callbacks: loading {name} failed: {_described(error)}") from error
    if not callable(found):
        return found
    try:
        return found()
    except RemudaError:
        raise
    except FAILURES as error:
        raise ConfigError(
            f"run.callbacks: {name} was called without arguments and failed: {_described(error)}"
        ) from error


def _name_of(callback: object) -> str:
    return type(callback).__qualname__.rpartition("<locals>.")[2]


def _described(error: BaseException) -> str:
    """Describe an exception in one line, with its location in the user's code, if any."""
    of_user = where_raised(error, libraries=False)
    if of_user is not None:
        return of_user
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
