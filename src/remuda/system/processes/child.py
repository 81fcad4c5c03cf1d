"""The start and the end of a child process, forked or spawned."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import logging
import multiprocessing
import os
import pickle
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from multiprocessing import process, spawn
from typing import Any

from remuda.errors import UnguardedScriptError
from remuda.system import output
from remuda.system.memory.lifeline import die_with_parent
from remuda.system.processes.logs import log_to_stderr
from remuda.system.processes.recipe import FAILED, receive, tell

# The coordinator handles these signals and its children ignore them: the terminal sends Ctrl-C, and
# SIGHUP when it closes, to every process at once. They are blocked while a child starts, until it
# ignores them.
STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXCEPTION = 70  # exit code after an exception, which its output shows
REFUSED = 72  # exit code after an error that a restart would repeat: the process is not restarted
UNGUARDED = 71  # exit code of a child whose script would start another run in it


def ignore_held_signals() -> None:
    """Ignore the stopping signals from now on, also those that are blocked."""
    for number in STOPPING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING_SIGNALS)


def main(recipe: int, lifeline: int | None, parent: socket.socket | None = None) -> None:
    """Execute a recipe (see `Recipe`), and end this process."""
    code: object = EXCEPTION
    try:
        if lifeline is not None:
            die_with_parent(lifeline)
        with os.fdopen(recipe, "rb") as file:
            header = pickle.load(file)
            _prepare(header)
            output.never_fail()
            if parent is not None:
                try:
                    receive(parent, header["descriptors"])
                except OSError as error:
                    tell(parent, FAILED, error.errno or 0)
                    os._exit(EXCEPTION)
            process.current_process()._inheriting = True  # type: ignore[attr-defined]
            try:
                preparation = pickle.load(file)
                _name(preparation["name"])
                spawn.prepare(preparation)
                if header["log_level"]:
                    log_to_stderr(header["log_level"])
                target, args = pickle.load(file)
            finally:
                del process.current_process()._inheriting  # type: ignore[attr-defined]
        if "numpy" in sys.modules:  # else all children would draw the same random numbers
            importlib.import_module("remuda.system.rng").scatter_libraries()
        target(*args)
        code = 0
    except SystemExit as ending:
        code = 0 if ending.code is None else ending.code
    except UnguardedScriptError:  # the parent reports it
        code = UNGUARDED
    except BaseException:
        traceback.print_exc()
    finally:
        end(code if isinstance(code, int) else EXCEPTION)


def check_guard() -> None:
    """Raise an UnguardedScriptError in a child that is only importing the user's script."""
    if getattr(process.current_process(), "_inheriting", False):
        raise UnguardedScriptError(script_name())


def script_name() -> str:
    """Return the name of the script that this process runs."""
    path = sys.argv[0] if sys.argv else ""
    return os.path.basename(path) or "the script"


def end(code: int) -> None:
    """Run exit functions, then exit without joining threads or children."""
    with contextlib.suppress(BaseException):
        for left in multiprocessing.active_children():
            left.kill()
    with contextlib.suppress(BaseException):
        logging.shutdown()
        atexit._run_exitfuncs()
    with contextlib.suppress(BaseException):
        output.finish(2.0)  # seconds without progress
    os._exit(code)


def _prepare(header: dict[str, Any]) -> None:
    """Copy the parent's environment, file limit and affinity: the fork server's may differ."""
    if header["log"]:
        log_to(header["log"])
    environment = header["environment"]
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, header["files"])
    if header["affinity"] is not None and header["affinity"] != os.sched_getaffinity(0):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, header["affinity"])
    importlib.invalidate_caches()  # new modules may exist since the server started


def log_to(path: str) -> None:
    """Redirect all output of this process, of native code too, into a file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    own = flags | os.O_NONBLOCK | os.O_NOFOLLOW  # do not wait for a pipe, follow no link
    try:
        descriptor = os.open(path, own, 0o644)
    except OSError:  # a full disk or a removed folder costs only the log
        descriptor = os.open(os.devnull, flags)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _name(name: str) -> None:
    """Set the process name that `top` and `ps -e` show."""
    if sys.platform == "linux":
        pr_set_name = 15
        ctypes.CDLL(None).prctl(pr_set_name, f"rm:{name}".encode()[:15])


def main_of_spawned(recipe: int, lifeline: int | None, own: Sequence[int]) -> None:
    """Execute a recipe in a fresh interpreter; its children do not inherit descriptors `own`."""
    ignore_held_signals()
    for descriptor in own:
        os.set_inheritable(descriptor, False)
    main(recipe, lifeline)
