"""Whose code a run holds: the user's own is executed, and any other only if the user allows it.

Code files of a run are signed with a secret key of the user. A file with another signature, or with
none, came from another person or another machine.
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
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from remuda.errors import UsageError
from remuda.system.checkpoint.opening import read_file, read_json

SIGNATURES = "code-signatures.json"  # by the names of a run's files
ALLOW = "REMUDA_TRUST_CODE"  # the environment variable that allows all code
BYTES = 32  # of the key

_allowed: set[tuple[Path, bytes]] = set()  # files with their content


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
    """Let the user decide whether a file's code may be executed; raise a UsageError if not.

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
            raise UsageError(f"{what}; if you trust its author, set {ALLOW}=1")
        print(f"remuda: {what}. Run it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError(f"{path} was not run")
        with suppress(OSError):
            sign({path: data})
    _allowed.add((path.absolute(), data))


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
