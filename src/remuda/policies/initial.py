"""Initial weights taken from other runs, stored with this run.

    initial/sources.json            the source of each policy's weights
    initial/POLICY.safetensors      the weights, and with `init_optimizer` Adam's moments

The files are written when a run starts, so that it no longer needs the other runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remuda.errors import CheckpointError, RunDirectoryError
from remuda.system.checkpoint.fitting import fitting
from remuda.system.checkpoint.names import file_name
from remuda.system.checkpoint.opening import ANY_SIZE, checked_all, read_checked, read_file
from remuda.system.checkpoint.state import pack, unpack, write_whole
from remuda.types import Floats, State


@dataclass(frozen=True)
class WeightSource:
    """The source of a policy's initial weights."""

    run: str  # absolute directory of the source run
    policy: str  # name in the source run; `policy@version` for a frozen copy
    version: int  # published version
    learner_step: int  # number of updates
    checkpoint: int | None  # the source checkpoint; None: the source run's final or live weights
    live: bool = False  # whether the source run was still training


@dataclass(frozen=True)
class InitialState:
    """The initial weights of a policy."""

    source: WeightSource
    weights: Floats  # [P] float32, all parameters and buffers
    # result of `Adam.state`: moments [P] and step count; None: start from zero
    optimizer: State | None = None


class InitialWeights:
    """The initial weights of a run's policies on disk; picklable."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, beginnings: Mapping[str, InitialState]) -> None:
        """Write initial states, by policy; raise RunDirectoryError if they cannot be written."""
        if not beginnings:
            return
        try:
            self.path.mkdir(exist_ok=True)
            for policy, found in beginnings.items():
                state = {"weights": found.weights, "optimizer": found.optimizer}
                write_whole(self._file(policy), pack(state))
            sources = {policy: asdict(found.source) for policy, found in beginnings.items()}
            write_whole(self.path / "sources.json", json.dumps(sources, indent=1).encode())
        except OSError as error:
            raise RunDirectoryError(f"cannot write {self.path}: {error.strerror}") from None

    def files(self) -> dict[str, bytes]:
        if not self.path.exists():
            return {}
        return {path.name: read_file(path, ANY_SIZE) for path in sorted(self.path.iterdir())}

    def sources(self) -> dict[str, dict[str, Any]]:
        path = self.path / "sources.json"
        if not path.exists():
            return {}
        wanted = {"run": str, "policy": str, "version": int, "learner_step": int}
        return read_checked(
            path,
            lambda data: checked_all(data, wanted),
            "no policy took its initial weights from another run",
        )

    def weights(self, policy: str, size: int) -> Floats | None:
        """Return weights [size] from another run, or None; raise RunDirectoryError if damaged."""
        state = self._read(policy)
        if state is None:
            return None
        try:
            return fitting(state, "weights", np.empty(size, np.float32))
        except CheckpointError as error:
            raise self._damaged(policy, error) from None

    def optimizer(self, policy: str) -> State | None:
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
            f"{self._file(policy)} is damaged: {error}; it holds the initial weights of {policy} "
            "(init_from): start a new run, or restore the file from a copy"
        )
