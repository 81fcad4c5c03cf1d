"""Work in pieces: what one tick of the coordinator encodes is bounded, however much there is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice

VALUES = 2500
"""So many values are encoded in a tick, and those of a piece at most besides: a few milliseconds.
A run of up to some 20 policies has all of its values in one tick."""
RECORD = 18
"""To work out the record of a policy takes as long as to encode so many values."""
ROWS = 16
"""Records in a piece."""

Work = Iterator[int]
"""Each step does a piece, and tells how many values that were."""


class Pieces:
    """Work that is done in pieces, one after the other, by who calls `go_on`.

    Nothing goes on by itself, and there is no thread: if the process dies, what was not done yet is
    not done. So whatever is to be seen whole or not at all is written by the last piece.
    """

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self._work: Work | None = None

    @property
    def busy(self) -> bool:
        """Whether something is left to do."""
        return self._work is not None

    def begin(self, work: Work) -> None:
        """Do this from now on; what was left of something before is dropped."""
        self._work = work

    def go_on(self, values: int = VALUES) -> int:
        """Do pieces until so many values are encoded, or all is done; returns how many were."""
        done = 0
        while self._work is not None and done < values:
            work, self._work = self._work, None  # a piece that raises is not tried again
            count = next(work, None)
            if count is not None:
                self._work = work
                done += count
        return done

    def finish(self) -> None:
        """Do all that is left."""
        while self.busy:
            self.go_on()


def encode(records: Mapping[str, object], texts: list[str], **more: Mapping[str, object]) -> Work:
    """Encode records by name as what stands between the braces of a JSON object."""
    names = iter(records)
    while part := list(islice(names, ROWS)):
        data = {
            name: {**vars(records[name]), **{key: of[name] for key, of in more.items()}}
            for name in part
        }
        texts.append(json.dumps(data)[1:-1])
        yield sum(map(len, data.values()))


def joined(**objects: list[str]) -> str:
    """The members of a JSON object, each of which is an object in pieces of text."""
    return ", ".join(f'"{name}": {{{", ".join(texts)}}}' for name, texts in objects.items())
