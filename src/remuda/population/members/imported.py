"""Members imported from other runs: frozen opponents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from remuda.errors import CheckpointError, RunDirectoryError
from remuda.publish.snapshot import Snapshot
from remuda.system.checkpoint.opening import ANY_SIZE, read_file
from remuda.system.checkpoint.state import pack, unpack, write_whole
from remuda.types import Floats


@dataclass(frozen=True)
class Origin:
    """The origin of an imported member."""

    name: str  # its name in this run, without its version; no policy of this run has it
    version: int  # its published version in the other run
    like: str  # a policy of this run with an equal network; the member may take its seats
    run: str  # the absolute directory of the other run
    policy: str
    learner_step: int
    epsilon: float
    seats: Sequence[int] = ()  # that it may take if a team lists it; empty: those of `like`


@dataclass(frozen=True)
class Imported:
    """An imported member: its origin and its weights."""

    origin: Origin
    weights: Floats  # [P] float32: all parameters and buffers

    @property
    def snapshot(self) -> Snapshot:
        origin = self.origin
        return Snapshot(self.weights, origin.version, origin.learner_step, origin.epsilon)


class ImportedMembers:
    """The file with the imported members of a run, written when the run starts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, members: Sequence[Imported]) -> None:
        if not members:
            return
        state = {
            "members": [asdict(member.origin) for member in members],
            "weights": {str(i): member.weights for i, member in enumerate(members)},
        }
        try:
            write_whole(self.path, pack(state))
        except OSError as error:
            raise RunDirectoryError(f"cannot write {self.path}: {error.strerror}") from None

    def read(self, count: int | None = None) -> tuple[Imported, ...]:
        """Return all members in order; an empty tuple if there is no file."""
        found: tuple[Imported, ...] = ()
        try:
            if self.path.exists():
                state = unpack(read_file(self.path, ANY_SIZE), str(self.path))
                found = tuple(
                    Imported(Origin(**origin), np.asarray(state["weights"][str(i)], np.float32))
                    for i, origin in enumerate(state["members"])
                )
        except OSError as error:
            raise RunDirectoryError(f"cannot read {self.path}: {error.strerror}") from None
        except (CheckpointError, KeyError, TypeError) as error:
            raise RunDirectoryError(f"{self.path} is damaged: {error}") from None
        if count is not None and len(found) != count:
            raise RunDirectoryError(
                f"{self.path} is missing or from another run: it has {len(found)} members from "
                f"other runs, but population.members_from lists {count}"
            )
        return found
