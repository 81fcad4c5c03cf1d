"""A checkpoint as it crosses from one node to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remuda.checkpoint.state import write_whole
from remuda.checkpoint.store import Checkpoints, Manifest
from remuda.errors import CheckpointError

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Saved:
    """A checkpoint as it crosses: its manifest, and its files by name."""

    manifest: Manifest
    files: Mapping[str, bytes]

    @classmethod
    def read(cls, checkpoints: Checkpoints, number: int) -> Saved:
        """A whole checkpoint of the run."""
        directory = checkpoints.directory(number)
        files = {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
        return cls(checkpoints.manifest(number), files)

    def write(self, checkpoints: Checkpoints) -> None:
        """Put it where a node's roles find it, unless all of it is there.

        A node that has no part in some of it has a checkpoint of this number with its own parts
        alone, which its roles may be reading: so the manifest is written last, and each file whole.
        """
        number = self.manifest.number
        directory = checkpoints.directory(number)
        try:
            if self.manifest.files.keys() <= checkpoints.manifest(number).files.keys():
                return
        except CheckpointError:
            directory.mkdir(parents=True, exist_ok=True)
        for name in sorted(self.files, key=MANIFEST.__eq__):
            write_whole(directory / name, self.files[name])
