"""A checkpoint as it crosses from one node to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from remuda.checkpoint.opening import ANY_SIZE, read_file
from remuda.checkpoint.state import write_whole
from remuda.checkpoint.store import MANIFEST, Checkpoints, Manifest
from remuda.errors import CheckpointError


@dataclass(frozen=True)
class Saved:
    """A checkpoint as it crosses: its manifest, and the files that it names."""

    manifest: Manifest
    files: Mapping[str, bytes]

    @classmethod
    def read(cls, checkpoints: Checkpoints, number: int) -> Saved:
        """Read a whole checkpoint of the run."""
        manifest = checkpoints.manifest(number)
        files = {
            name: read_file(checkpoints.file(manifest, name), ANY_SIZE) for name in manifest.files
        }
        return cls(replace(manifest, earlier={}), files)

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
        for name, data in sorted(self.files.items()):
            write_whole(directory / name, data)
        write_whole(directory / MANIFEST, self.manifest.pack())
