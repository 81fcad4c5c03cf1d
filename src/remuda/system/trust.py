"""Whose code a run holds: the user's own is executed, and any other only if the user allows it.

Code files of a run are signed with a secret key of the user. A file with another signature, or with
none, came from another person or another machine. The names of classes and functions in its
configuration are signed too: with `subprocess:run` as its game, a run could call any program. The
user's own modules need no signature, except those in the directory of the run.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from remuda.errors import ForeignCodeError
from remuda.system.checkpoint.opening import read_file, read_json
from remuda.system.user_errors import is_installed

SIGNATURES = "code-signatures.json"  # by the names of a run's files
ALLOW = "REMUDA_TRUST_CODE"  # the environment variable that allows all code
BYTES = 32  # of the key

Source = tuple[Path, bytes]  # a file and the content to be signed


class Foreign(NamedTuple):
    """The names in configurations that this user did not sign, and the directories of these."""

    names: dict[str, Source]
    runs: dict[str, Source]


_allowed: set[Source] = set()
_foreign = Foreign({}, {})
_own_names: set[str] = set()  # in configurations that the user signed


def sign(files: Mapping[Path, bytes]) -> None:
    """Sign the content of files; without a key, as with a read-only home, do nothing."""
    from remuda.system.checkpoint.state import write_whole

    key = _key()
    for path, data in files.items():
        if key is not None:
            signed = _signatures(path.parent) | {path.name: _signature(key, path, data)}
            write_whole(path.parent / SIGNATURES, json.dumps(signed, indent=1).encode())


def is_own(path: Path, data: bytes) -> bool:
    """Return whether this user signed a file with this content, or allowed it."""
    key, found = _key(), _signatures(path.parent).get(path.name)
    if (path.absolute(), data) in _allowed:
        return True
    return (
        key is not None
        and isinstance(found, str)
        and hmac.compare_digest(_signature(key, path, data), found)
    )


def allow(path: Path, data: bytes, does: str = "opening it runs its code") -> None:
    """Let the user decide whether a file's code may be executed; raise an error if not.

    `data`: the content that was read. An answer is kept: this content is signed.
    """
    if (path.absolute(), data) in _allowed:
        return
    whose = "was not saved by you on this machine"
    if _key() is None:
        whose = f"may not be yours (your signing key cannot be kept in {_state()})"
    what = f"{path} {whose}, and {does}"
    if os.environ.get(ALLOW, "").lower() not in ("1", "true", "yes"):
        is_main = threading.current_thread() is threading.main_thread()
        if not (is_main and sys.stdin.isatty() and sys.stderr.isatty()):
            raise ForeignCodeError(f"{what}; if you trust its author, set {ALLOW}=1")
        print(f"remuda: {what}. Run it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise ForeignCodeError(f"{path} was not run")
        with suppress(OSError):
            sign({path: data})
    _allowed.add((path.absolute(), data))


def as_bytes(names: Collection[str]) -> bytes:
    """Return the names in a configuration as the bytes to be signed."""
    return "\n".join(sorted(names)).encode()


def note_names(config: Path, names: Collection[str], called: Collection[str]) -> None:
    """Note the names in the configuration of a run, and which of them may be `called`."""
    source = config.absolute(), as_bytes(names)
    if is_own(*source):
        _own_names.update(called)
        for name in called:
            _foreign.names.pop(name, None)
        return
    _foreign.runs[os.path.realpath(config.parent)] = source
    _foreign.names.update(dict.fromkeys(set(called) - _own_names, source))


def foreign() -> Foreign:
    """Return what other processes must know to ask as this one does."""
    return Foreign(dict(_foreign.names), dict(_foreign.runs))


def add_foreign(found: Foreign) -> None:
    """Add what another process knows."""
    _foreign.names.update(found.names)
    _foreign.runs.update(found.runs)


def check_call(name: str, thing: object = None) -> None:
    """Ask before `thing`, a foreign run's `module:Name`, is called, unless it is the user's own."""
    if name not in _foreign.names:
        return
    homes = [name.partition(":")[0]]
    if thing is not None:  # a module's attribute may come from another module
        while hasattr(thing, "func"):
            thing = thing.func
        homes.append(str(getattr(thing, "__module__", None) or "builtins"))
    if any(map(_is_installed_module, homes)):
        allow(*_foreign.names[name], f"opening it calls {name}")
        del _foreign.names[name]


def check_import(module: str) -> None:
    """Ask before a module in the directory of a foreign run is imported."""
    top = module.partition(".")[0]
    if top in sys.modules:
        return
    for place in map(os.path.realpath, _places(top) if _foreign.runs else ()):
        for run, source in list(_foreign.runs.items()):
            if f"{place}/".startswith(f"{run}/"):
                allow(*source, f"opening it imports {module} from {run}")
                del _foreign.runs[run]


def _is_installed_module(module: str) -> bool:
    top = module.partition(".")[0]
    if top in ("remuda", *sys.stdlib_module_names):
        return top != "__main__"
    return any(map(is_installed, _places(top)))


def _places(top: str) -> list[str]:
    """Return the files and folders of a top-level module."""
    with suppress(ImportError, ValueError, AttributeError):
        spec = find_spec(top)
        if spec is not None:
            file = [spec.origin] if spec.has_location and spec.origin else []
            return [*file, *(spec.submodule_search_locations or ())]
    return []


def _signature(key: bytes, path: Path, data: bytes) -> str:
    return hmac.new(key, path.name.encode() + b"\0" + data, hashlib.sha256).hexdigest()


def _signatures(folder: Path) -> dict[str, object]:
    with suppress(OSError, ValueError):
        found = read_json(folder / SIGNATURES, 1 << 20)
        if isinstance(found, dict):
            return found
    return {}


def _state() -> Path:
    """Return the directory of the key."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = Path(os.path.expanduser("~/.local/state"))
    return state / "remuda"


def _key() -> bytes | None:
    """Return the user's key, which is made at the first use; None if it can be neither."""
    path = _state() / "code-key"
    if not path.is_absolute():  # the user has no home
        return None
    with suppress(OSError):
        with suppress(FileNotFoundError):
            key = read_file(path)
            if len(key) == BYTES:
                return key
            path.unlink()  # damaged
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent) as file:  # only the user reads it
            file.write(secrets.token_bytes(BYTES))
            file.flush()
            os.fsync(file.fileno())
            with suppress(FileExistsError):  # another process was first
                os.link(file.name, path)
        return read_file(path)
    return None
