"""Requests to a live run: stop, save, change settings, or show weights.

A request is a file in the run's directory `requests/`. The client renames the file once it is
complete. The coordinator executes requests between two polls, removes them, and writes each answer
to a file next to the request. If a client dies, its request is executed, and its answer is removed
later. A file of weights, if requested, is written before the answer. When training ends, the
coordinator writes a file `closed`: clients read existing answers and stop waiting. A client looks
for `closed` before it looks for its answer, so it misses no answer. At the end the coordinator
removes the directory, unless an answer in it has not been read yet.

If the coordinator is killed, the client sees that no process holds the run, or that another
directory replaced the directory of the request. A resumed run removes old requests. On a full disk
requests fail, but the run continues. Every user who may write into the run's directory may send
requests.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from remuda.coordinator.callback import ActiveRun
from remuda.errors import RemudaError, UsageError
from remuda.publish.snapshot import Snapshot
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.opening import open_stream, read_json
from remuda.system.checkpoint.state import write_whole

log = logging.getLogger(__name__)

FOLDER = "requests"
PATIENCE = 30.0
"""Seconds to wait for an answer: a coordinator polls every quarter of a second, but may be writing
a large checkpoint."""
OFTEN = 0.5  # seconds after which a client checks whether the run is still live
LARGEST = 1 << 16
LIVE = "live"  # `RUN:policy@live`: the weights that a live run plays with now, saved or not
ANSWER, WEIGHTS = ".answer", ".weights"  # file name suffixes of a run's answers
CLOSED = "closed"
WIRE = np.dtype("<f4")
Playing = Callable[[str], Mapping[str, Snapshot]]
"""A function that returns the newest weights of a policy; empty if the policy does not play."""


class Requests:
    """The requests to one run, executed in the coordinator's process."""

    def __init__(self, directory: Path, run: ActiveRun, say: Callable[[str], None]) -> None:
        """Remove the requests of an earlier session."""
        self._folder, self._run, self._say = directory / FOLDER, run, say
        self._playing: Playing | None = None
        self._is_closed = False
        self._remove()
        # If the directory cannot be removed, old requests must still have no effect.
        for path in (*self._folder.glob("*.request"), self._folder / CLOSED):
            _unlink(path)

    def attach(self, playing: Playing) -> None:
        """Answer requests for weights from now on."""
        self._playing = playing

    def poll(self) -> None:
        if self._is_closed:
            return
        try:
            if self._folder.is_symlink():  # it leads out of the run's directory
                return
            self._folder.mkdir(exist_ok=True)
            paths = sorted(self._folder.iterdir())
            requests = [path for path in paths if path.suffix == ".request"]
            answers = [path for path in paths if path.suffix in (WEIGHTS, ANSWER)]
            for path in answers if requests else ():
                with contextlib.suppress(OSError):  # its client may just have removed it
                    if time.time() - path.lstat().st_mtime > 2.0 * PATIENCE:
                        _unlink(path)
        except OSError:  # there can be no requests
            return
        for path in requests:
            self._answer(path)

    def close(self) -> None:
        """Stop executing requests; existing answers can still be read."""
        self._playing, self._is_closed = None, True
        if self._folder.is_symlink() or not self._folder.exists():
            return
        try:
            (self._folder / CLOSED).touch()
        except OSError:  # a full disk; without the directory no client waits
            self._remove()

    def end(self) -> None:
        """Remove the directory, unless a client has not read its answer yet."""
        self.close()
        with contextlib.suppress(OSError):
            if not any(path.suffix in (ANSWER, WEIGHTS) for path in self._folder.iterdir()):
                self._remove()

    def _remove(self) -> None:
        """Remove the directory atomically, and then its contents."""
        aside = self._folder.with_name(f".{FOLDER}")
        with contextlib.suppress(OSError):
            shutil.rmtree(aside, ignore_errors=True)  # left by a coordinator that was killed
            if self._folder.is_symlink():
                self._folder.unlink()
            else:
                self._folder.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)

    def _answer(self, path: Path) -> None:
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(path.unlink)  # even if it cannot be read
                data = stack.enter_context(open_stream(path)).read(LARGEST + 1)
        except OSError:
            return
        try:
            found = {"done": self._carry_out(_read(data), path)}
        except RemudaError as error:
            found = {"error": str(error)}
        except Exception as error:  # no request may end the run
            log.exception("a request failed")
            found = {"error": f"{type(error).__name__}: {error}"}
        # A full disk costs the answer, not the run.
        with contextlib.suppress(OSError):
            write_whole(
                path.with_suffix(ANSWER), json.dumps(found, default=str).encode(), sync=False
            )

    def _carry_out(self, request: Mapping[str, Any], path: Path) -> Any:
        action = request.get("do")
        if action == "stop":
            self._run.interrupt("stopped by request")
            return "the run will write a last checkpoint and stop"
        if action == "checkpoint":
            self._run.save()
            return "a checkpoint will be written"
        if action == "list":
            return {name: self._run.hyperparameters(name) for name in self._run.policies}
        if action == "set":
            values, policy = request.get("values"), request.get("policy")
            if not isinstance(values, dict) or not isinstance(policy, str | None):
                raise UsageError("`values` must be named numbers, and `policy` a name or null")
            if not values:
                raise UsageError(
                    "`values` is empty, so that nothing would change: give named numbers, as in "
                    '{"learning_rate": 1e-4}; `list` shows the names'
                )
            self._run.set_hyperparameters(values, policy)
            found = ", ".join(f"{name} {value:g}" for name, value in values.items())
            self._say(f"by request: {policy or 'all policies'} train with {found} from now on")
            return f"{policy or 'all policies'}: {found}"
        if action == "list_options":
            return self._run.changeable_env_options()
        if action == "set_option":
            return self._set_option(request)
        if action == "weights":
            return self._show_weights(request.get("policy"), path)
        raise UsageError(
            f"`do` is {action!r}; allowed are stop, checkpoint, list, set, list_options, "
            "set_option and weights"
        )

    def _set_option(self, request: Mapping[str, Any]) -> str:
        name, value, turn = (request.get(key) for key in ("name", "value", "from_turn"))
        self._run.set_env_option(str(name), value, turn)
        since = "now" if turn is None or turn <= self._run.turns else f"turn {turn:,}"
        self._say(f"by request: the environment option {name} is {value!r} from {since} on")
        return f"{name}: {value!r}"

    def _show_weights(self, policy: Any, path: Path) -> dict[str, Any]:
        """Write a policy's current weights next to a request; return their version."""
        snapshot = None
        if self._playing is not None and isinstance(policy, str) and policy:
            snapshot = self._playing(policy).get(policy)
        if snapshot is None:
            raise UsageError(f"no policy {policy!r} plays in this run now")
        try:
            data = np.ascontiguousarray(snapshot.weights, WIRE).tobytes()
            write_whole(path.with_suffix(WEIGHTS), data, sync=False)
        except OSError as error:
            raise UsageError(f"the weights cannot be written: {error.strerror}") from None
        version = {"version": snapshot.version, "learner_step": snapshot.learner_step}
        return version | {"env_options": self._run.env_options()}


def _read(data: bytes) -> Mapping[str, Any]:
    if len(data) > LARGEST:
        raise UsageError(f"a request has {LARGEST:,} bytes at most, and this one has more")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("a request must be a JSON object")
    return found


def ask(directory: Path, request: Mapping[str, Any], seconds: float = PATIENCE) -> Any:
    """Send a request to a live run, and return its answer.

    `request` has the key `do`: `stop`, `checkpoint`, `list` (hyperparameters that can be set),
    `set` with `values` and a `policy` (null for all), `list_options` (environment options that can
    be set), or `set_option` with the `name` and `value` of one and, optionally, `from_turn`. The
    answer is a message, for `list` the values by policy, or for `list_options` a value for each
    name. Raise a `UsageError` if the request is impossible, cannot be written, or is not answered
    in time.
    """
    return _send(directory, _new_name(), request, seconds)


def ask_weights(
    directory: Path, policy: str, size: int, seconds: float = PATIENCE
) -> tuple[Snapshot, dict[str, Any]]:
    """Return the weights that a policy of a live run plays with now, and its changed options.

    `size` is the expected number of weights. Raise a `UsageError` if the policy does not play, has
    another number of weights, or there is no answer.
    """
    name = _new_name()
    path = directory / FOLDER / f"{name}{WEIGHTS}"
    try:
        found = _send(directory, name, {"do": "weights", "policy": policy}, seconds)
        with open_stream(path) as file:
            data = file.read(size * WIRE.itemsize + 1)
        version, learner_step = int(found["version"]), int(found["learner_step"])
        options = dict(found["env_options"])
    except (OSError, TypeError, KeyError, ValueError) as error:
        raise UsageError(f"{directory} did not show weights of {policy}: {error}") from None
    finally:
        _unlink(path)
    if len(data) != size * WIRE.itemsize:
        raise UsageError(f"the weights of {policy} in {directory} do not fit its network")
    weights = np.frombuffer(data, WIRE).astype(np.float32)
    return Snapshot(weights, version, learner_step, 0.0), options


def _new_name() -> str:
    return f"{time.time_ns():020d}-{secrets.token_hex(4)}"


def _send(directory: Path, name: str, request: Mapping[str, Any], seconds: float) -> Any:
    folder = directory / FOLDER
    request_file, part = folder / f"{name}.request", folder / f"{name}.part"
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link; requests are written into the run's directory")
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            part.write_bytes(json.dumps(dict(request)).encode())
            part.rename(request_file)
            return _wait_for(directory, folder / f"{name}{ANSWER}", descriptor, seconds)
        finally:
            _unlink(request_file)
            os.close(descriptor)
    except FileNotFoundError:
        raise _over(directory) from None
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error.strerror}") from None


def _wait_for(directory: Path, answer: Path, descriptor: int, seconds: float) -> Any:
    """Wait for an answer while the run is live; `descriptor`: of the requests' directory."""
    run, closed = RunDirectory(directory), answer.with_name(CLOSED)
    until, checked = time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < until:
        # Checked before the answer is read, so that an answer written before the end is returned.
        over = closed.exists() or not _is_at(descriptor, answer.parent)
        if time.monotonic() - checked > OFTEN:
            over, checked = over or not run.is_running(), time.monotonic()
        with contextlib.suppress(OSError):
            found = read_json(answer)
            answer.unlink(missing_ok=True)
            if "error" in found:
                raise UsageError(str(found["error"]))
            return found["done"]
        if over:
            raise _over(directory)
        time.sleep(0.05)
    raise UsageError(f"{directory} did not answer in {seconds:.0f} s; see `remuda status`")


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _over(directory: Path) -> UsageError:
    return UsageError(
        f"{directory} takes no requests: it has not started to play yet, has trained to its end, "
        "was stopped, or has restarted; if it is live, try again"
    )
