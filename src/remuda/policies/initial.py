"""What policies begin with instead of random weights: taken from other runs, kept by their own.

    initial/sources.json            where each policy's weights were taken from, to read
    initial/POLICY.safetensors      the weights, and with `init_optimizer` Adam's moments

The files are written once, when a run begins. So it can be resumed, its crashed roles restarted and
policies born in it, whatever becomes of the run that the weights are from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remuda.checkpoint.fitting import fitting
from remuda.checkpoint.names import file_name
from remuda.checkpoint.opening import ANY_SIZE, read_file
from remuda.checkpoint.plain import read_checked
from remuda.checkpoint.state import pack, unpack, write_whole
from remuda.errors import CheckpointError, RunDirectoryError
from remuda.types import Floats, State


@dataclass(frozen=True)
class Source:
    """Where weights are from."""

    run: str
    """The run's directory, absolute."""
    policy: str
    """As that run calls it; of a frozen copy `policy@version`."""
    version: int
    """How often it had been published."""
    learner_step: int
    """Updates behind it."""
    checkpoint: int | None
    """The checkpoint that they were read from; None: the weights at the end of the run, or live."""
    live: bool = False
    """Whether the run went on, and played with them when it was asked."""


@dataclass(frozen=True)
class Beginning:
    """What one policy begins with."""

    source: Source
    weights: Floats
    """[P] float32: all parameters and buffers."""
    optimizer: State | None = None
    """What `Adam.state` returned: moments [P], and steps taken. None: it begins anew."""


class InitialWeights:
    """The beginnings of a run's policies on disk; plain data, and crosses to children."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, beginnings: Mapping[str, Beginning]) -> None:
        """Keep these, by policy.

        Raises:
            RunDirectoryError: the disk is full or not writable.
        """
        if not beginnings:
            return
        try:
            self.path.mkdir(exist_ok=True)
            for policy, found in beginnings.items():
                state = {"weights": found.weights, "optimizer": found.optimizer}
                write_whole(self._file(policy), pack(state))
            told = {policy: asdict(found.source) for policy, found in beginnings.items()}
            write_whole(self.path / "sources.json", json.dumps(told, indent=1).encode())
        except OSError as error:
            raise RunDirectoryError(f"cannot write {self.path}: {error.strerror}") from None

    def files(self) -> dict[str, bytes]:
        """All files by name, for another machine."""
        if not self.path.exists():
            return {}
        return {path.name: read_file(path, ANY_SIZE) for path in sorted(self.path.iterdir())}

    def sources(self) -> dict[str, dict[str, Any]]:
        """By policy, where its first weights were taken from; of the others they are random.

        Raises:
            RunDirectoryError: the file is damaged.
        """
        path = self.path / "sources.json"
        if not path.exists():
            return {}
        return read_checked(path, _checked, "no policy took its first weights from another run")

    def weights(self, policy: str, size: int) -> Floats | None:
        """The first weights of a policy, [size] float32; None: they are random.

        Raises:
            RunDirectoryError: the file is damaged.
        """
        state = self._read(policy)
        if state is None:
            return None
        try:
            return fitting(state, "weights", np.empty(size, np.float32))
        except CheckpointError as error:
            raise self._damaged(policy, error) from None

    def optimizer(self, policy: str) -> State | None:
        """What its optimizer begins with, for `Adam.restore`; None: nothing.

        Raises:
            RunDirectoryError: the file is damaged.
        """
        state = self._read(policy)
        return None if state is None else state["optimizer"]

    def _read(self, policy: str) -> State | None:
        path = self._file(policy)
        try:
            data = read_file(path, ANY_SIZE)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunDirectoryError(f"cannot read {path}: {error.strerror}") from None
        try:
            return unpack(data, str(path))
        except CheckpointError as error:
            raise self._damaged(policy, error) from None

    def _file(self, policy: str) -> Path:
        return self.path / f"{file_name(policy)}.safetensors"

    def _damaged(self, policy: str, error: CheckpointError) -> RunDirectoryError:
        return RunDirectoryError(
            f"{self._file(policy)} is damaged: {error}; it holds what {policy} begins with "
            "(init_from): begin a new run, or copy it back from where you keep another"
        )


def _checked(data: object) -> dict[str, dict[str, Any]]:
    from remuda.checkpoint.plain import checked_all

    return checked_all(data, {"run": str, "policy": str, "version": int, "learner_step": int})
