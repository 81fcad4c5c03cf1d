"""A checkpoint as it crosses from one node to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remuda.checkpoint.store import Checkpoints, Manifest


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
        """Put it where a node's roles find it."""
        directory = checkpoints.directory(self.manifest.number)
        directory.mkdir(parents=True, exist_ok=True)
        for name, contents in self.files.items():
            (directory / name).write_bytes(contents)
