"""The checkpoints of a run on disk: written completely or not at all, and verified before use.

    checkpoints/000007/manifest.json         description of the checkpoint, checksums of its files
    checkpoints/000007/agent_0.safetensors   a part: the state that one worker saved
    checkpoints/best.json                    the checkpoint with the best evaluation
    checkpoints/.000008.partial/             a checkpoint that is being written
    checkpoints/parts-000003/                parts of a removed checkpoint that others reuse

Each part's owner writes it into the partial directory. The coordinator then writes the manifest and
renames the directory. If it dies first, the partial directory remains; no process reads it, and the
next checkpoint removes it. Only the coordinator starts, commits and removes checkpoints.

If the owner of a part is dead or late, the manifest refers to the part of an older checkpoint, with
its original checksum. Nothing is copied or hashed again, so a part that is damaged on disk is
detected as damaged in every checkpoint that uses it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import math
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from remuda.errors import CheckpointError
from remuda.system.checkpoint.fitting import refusing
from remuda.system.checkpoint.opening import (
    ANY_SIZE,
    NUMBER,
    checked,
    kinds_of,
    open_stream,
    read_file,
    read_json,
)
from remuda.system.checkpoint.state import pieces, unpack, write_whole
from remuda.types import State

# Version of the file format; a program reads only its own. Raise it whenever a part of a checkpoint
# changes its content.
FORMAT = 4
MANIFEST = "manifest.json"
BEST = "best.json"
PART = re.compile(r"[^/.\0][^/\0]*\.safetensors")  # the name of a part's file


@dataclass(frozen=True)
class Manifest:
    """The description of a checkpoint."""

    number: int
    turns: int  # turns played, over all copies
    seconds: float  # seconds played
    exact: bool  # all parts are from one moment, so a resumed run equals an uninterrupted run
    config: Mapping[str, Any]  # the settings that a resumed run must keep
    files: Mapping[str, str]  # the SHA-256 checksum of each file
    # the older checkpoint that holds a file, if not this one
    earlier: Mapping[str, int] = field(default_factory=dict)
    format: int = FORMAT

    def pack(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()


class OtherFormatError(CheckpointError):
    """An intact checkpoint of another format version."""


class Checkpoints:
    """The checkpoints in one directory; picklable, so children receive it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begun = 0
        # by file name, parts reused in the next checkpoint: number of their checkpoint, checksum
        self._carried: dict[str, tuple[int, str]] = {}

    def numbers(self) -> list[int]:
        """Return the complete checkpoints, oldest first."""
        try:
            names = [entry.name for entry in self.path.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def partial(self, number: int) -> Path:
        """Return the directory where checkpoint `number` is being written."""
        return self.path / f".{number:06d}.partial"

    def begin(self) -> int:
        """Start the next checkpoint, and return its number."""
        self.path.mkdir(parents=True, exist_ok=True)
        for leftover in self.path.glob(".*.partial"):
            shutil.rmtree(leftover, ignore_errors=True)
        noted = self._noted_best()
        if noted is not None and noted["checkpoint"] not in self.numbers():
            (self.path / BEST).unlink()  # that checkpoint was set aside; its number may be reused
        number = max(self._begun, *self.numbers(), *self._kept_apart(), 0) + 1
        self._begun, self._carried = number, {}
        self.partial(number).mkdir()
        return number

    def write(self, number: int, part: str, state: Mapping[str, Any]) -> None:
        """Write one part of checkpoint `number`, as its owner."""
        write_whole(self.partial(number) / _file(part), pieces(state))

    def carry_over(self, number: int, part: str) -> bool:
        """Reuse the part of a dead owner from an older checkpoint; False if none is intact."""
        name = _file(part)
        if (self.partial(number) / name).exists():
            return True  # a late owner has written it in the meantime
        for earlier in reversed(self.numbers()):
            try:
                manifest = self.manifest(earlier)
                if name not in manifest.files:
                    return False
                self._verify(manifest, name)
            except CheckpointError:
                continue
            held_by = manifest.earlier.get(name, earlier)
            self._carried[name] = held_by, manifest.files[name]
            return True
        return False

    def commit(self, manifest: Manifest) -> None:
        """Complete checkpoint `manifest.number` with the parts that are written or carried over."""
        # Owners of parts do not know this name. So a late owner that was considered dead cannot
        # replace a part whose checksum is being computed.
        closed = self.path / f".{manifest.number:06d}.closed.partial"
        self.partial(manifest.number).rename(closed)
        checksums = {path.name: _checksum(path) for path in sorted(closed.glob("*.safetensors"))}
        carried = {name: each for name, each in self._carried.items() if name not in checksums}
        manifest = replace(
            manifest,
            files=checksums | {name: checksum for name, (_, checksum) in carried.items()},
            earlier={name: held_by for name, (held_by, _) in carried.items()},
        )
        write_whole(closed / MANIFEST, manifest.pack())
        for leftover in closed.glob(".*"):  # a late owner's temporary files
            leftover.unlink(missing_ok=True)
        _sync_directory(closed)
        closed.rename(self.directory(manifest.number))
        _sync_directory(self.path)

    def abandon(self, number: int) -> None:
        """Give up a checkpoint that is being written; older checkpoints are unchanged."""
        for leftover in self.path.glob(f".{number:06d}.*partial"):
            shutil.rmtree(leftover, ignore_errors=True)

    def manifest(self, number: int) -> Manifest:
        """Read the manifest of a checkpoint."""
        path = self.directory(number) / MANIFEST
        try:
            data = checked(read_json(path), {"format": int})
            found = data["format"]
            if found != FORMAT:
                advice = "a newer version wrote it: install that version"
                if found < FORMAT:
                    advice = (
                        "an older version wrote it, and its training cannot be resumed. Its "
                        "policies can be played, and a new run can start with only their weights: "
                        f"--policy.init_from {shlex.quote(str(self.path.parent))}"
                    )
                raise OtherFormatError(
                    f"{path} is of format {found}, and this version of Remuda reads format "
                    f"{FORMAT}; {advice}"
                )
            checked(data, kinds_of(Manifest))
            checked(data["files"], dict.fromkeys(data["files"], str))
            for name in data["files"]:
                if not PART.fullmatch(name):
                    raise ValueError(f"{name!r} is not the name of a part")
            checked(data["earlier"], dict.fromkeys(data["earlier"], int))
            return Manifest(**data)
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, TypeError) as error:  # TypeError: an unknown field
            raise CheckpointError(f"{path} is damaged: {error}") from None

    def read(self, number: int, part: str) -> State:
        """Read a part of a checkpoint, and verify its checksum."""
        manifest = self.manifest(number)
        path = self.file(manifest, _file(part))
        try:
            data = read_file(path, ANY_SIZE)
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != manifest.files.get(path.name):
            raise CheckpointError(f"{path} is damaged: its checksum differs from the manifest's")
        return unpack(data, str(path))

    def file(self, manifest: Manifest, name: str) -> Path:
        """Return the path of a checkpoint's file, perhaps in an older checkpoint's directory."""
        if name not in manifest.earlier:
            return self.directory(manifest.number) / name
        number = manifest.earlier[name]
        apart = self._apart(number) / name
        return apart if apart.exists() else self.directory(number) / name

    def advice(self, number: int) -> str:
        """Advise on a checkpoint whose files are intact but cannot be used."""
        earlier = [each for each in self.numbers() if each < number]
        if earlier:
            return (
                f"to resume from checkpoint {earlier[-1]} instead, move "
                f"{self.directory(number)} elsewhere"
            )
        return (
            "there is no earlier checkpoint; a new run can start with its weights: "
            f"--policy.init_from {shlex.quote(str(self.path.parent))}"
        )

    def restoring(self, part: str) -> AbstractContextManager[None]:
        """Raise errors as `CheckpointError` while a part of the newest checkpoint is restored."""
        number = max(self.numbers(), default=0)
        return refusing(str(self.directory(number) / _file(part)), self.advice(number))

    def newest(self, part: str) -> State | None:
        """Read a part of the newest intact checkpoint; None if that checkpoint lacks the part."""
        while True:
            numbers = self.numbers()
            for number in reversed(numbers):
                try:
                    if _file(part) not in self.manifest(number).files:
                        return None
                    return self.read(number, part)
                except CheckpointError:
                    continue
            if numbers == self.numbers():  # else checkpoints were replaced during the search
                return None

    def verify(self, number: int) -> Manifest:
        """Return the manifest of a checkpoint after verifying all its files."""
        manifest = self.manifest(number)
        for name in manifest.files:
            self._verify(manifest, name)
        return manifest

    def _verify(self, manifest: Manifest, name: str) -> None:
        """Raise CheckpointError for a file of a checkpoint that is missing or damaged."""
        path = self.file(manifest, name)
        try:
            whole = _checksum(path) == manifest.files[name]
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
        if not whole:
            raise CheckpointError(f"{path} is damaged: its checksum differs from the manifest's")

    def newest_whole(
        self, say: Callable[[str], None], accept: Callable[[Manifest], None] = lambda _: None
    ) -> Manifest | None:
        """Find the newest intact checkpoint, if any, and set newer damaged ones aside."""
        damaged: list[tuple[int, CheckpointError]] = []
        for number in reversed(self.numbers()):
            try:
                manifest = self.verify(number)
            except OtherFormatError:
                raise
            except CheckpointError as error:
                damaged.append((number, error))
                continue
            accept(manifest)
            for newer, why in damaged:
                aside = self._set_aside(newer)
                say(f"{why}; set aside as {aside.name}, falling back to the previous checkpoint")
            return manifest
        return None

    def keep(self, count: int) -> None:
        """Remove all checkpoints but the newest `count`, the best, and older parts they reuse.

        The directory of a removed checkpoint is renamed first, so a listed checkpoint is never
        missing a part. The next call removes anything that a crash left behind.
        """
        best = self.best()
        numbers = self.numbers()
        kept = {*numbers[-count:]} | ({best["checkpoint"]} if best is not None else set())
        named: dict[int, set[str]] = {}
        for number in kept:
            try:
                for name, held_by in self.manifest(number).earlier.items():
                    named.setdefault(held_by, set()).add(name)
            except CheckpointError as error:
                if _may_be_readable_later(error):
                    return  # which older parts it reuses is unknown
                continue  # without its manifest neither it nor the parts it reused can be read
        for number in numbers:
            if number not in kept:
                with contextlib.suppress(OSError):  # unused `parts-*` are removed below
                    self.directory(number).rename(self._apart(number))
        for number in self._kept_apart():
            apart = self._apart(number)
            if number not in named:
                shutil.rmtree(apart, ignore_errors=True)
                continue
            for path in apart.iterdir():
                if path.name not in named[number]:
                    with contextlib.suppress(OSError):
                        path.unlink()

    def _apart(self, number: int) -> Path:
        return self.path / f"parts-{number:06d}"

    def _kept_apart(self) -> list[int]:
        """Return the removed checkpoints whose parts still exist."""
        numbers = (path.name.removeprefix("parts-") for path in self.path.glob("parts-*"))
        return [int(number) for number in numbers if number.isdecimal()]

    def best(self) -> dict[str, Any] | None:
        """Return the number and mean return of the best checkpoint; None if it is unknown."""
        best = self._noted_best()
        return best if best is not None and best["checkpoint"] in self.numbers() else None

    def _noted_best(self) -> dict[str, Any] | None:
        """Return the recorded best, even if that checkpoint no longer exists."""
        try:
            data = read_json(self.path / BEST)
            best = checked(data, {"checkpoint": int, "mean_return": NUMBER})
        except (OSError, ValueError):
            return None
        return best if math.isfinite(best["mean_return"]) else None

    def mark_best(self, metadata: Mapping[str, Any]) -> None:
        """Record the best checkpoint: `checkpoint`, `mean_return`, and details for readers."""
        write_whole(self.path / BEST, json.dumps(metadata, indent=1).encode())

    def directory(self, number: int) -> Path:
        return self.path / f"{number:06d}"

    def _set_aside(self, number: int) -> Path:
        base = f"damaged-{number:06d}"
        names = itertools.chain([base], (f"{base}-{count}" for count in itertools.count(2)))
        aside = next(path for name in names if not (path := self.path / name).exists())
        self.directory(number).rename(aside)
        return aside


def differences(
    saved: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = ""
) -> Iterable[str]:
    """Describe differences of two configurations: `policy.n_steps was 3 and is 5`."""
    for key in {**saved, **wanted}:
        a, b = saved.get(key), wanted.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differences(a, b, f"{prefix}{key}.")
        elif a != b:
            yield f"{prefix}{key} was {a} and is {b}"


def _may_be_readable_later(error: CheckpointError) -> bool:
    """Return whether a manifest could not be read for a reason outside the file."""
    cause = error.__cause__
    final = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.EFBIG)
    return isinstance(cause, OSError) and cause.errno not in final


def _file(part: str) -> str:
    return f"{part}.safetensors"


def _checksum(path: Path) -> str:
    with open_stream(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
