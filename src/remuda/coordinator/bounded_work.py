"""Work in pieces, so that each tick of the coordinator encodes a bounded amount."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice

VALUES = 2500
"""Values encoded in a tick, which takes a few milliseconds; the last piece may exceed the number.
The values of about 20 policies fit into one tick."""
RECORD = 18  # computing a policy's record takes as long as encoding this number of values
ROWS = 16  # records in a piece

Work = Iterator[int]  # each step does a piece and yields its number of values


class Pieces:
    """Work that is done in pieces, by calls of `go_on`.

    There is no thread, so if the process dies, the remaining pieces are lost. Data that must become
    visible at once is therefore written by the last piece.
    """

    def __init__(self) -> None:
        self._work: Work | None = None

    @property
    def busy(self) -> bool:
        return self._work is not None

    def begin(self, work: Work) -> None:
        """Start new work, dropping the rest of the previous work."""
        self._work = work

    def go_on(self, values: int = VALUES) -> int:
        """Do pieces until `values` values are encoded, or all; return the number encoded."""
        done = 0
        while self._work is not None and done < values:
            work, self._work = self._work, None  # a piece that raises is not repeated
            count = next(work, None)
            if count is not None:
                self._work = work
                done += count
        return done

    def finish(self) -> None:
        while self.busy:
            self.go_on()


def encode(records: Mapping[str, object], texts: list[str], **more: Mapping[str, object]) -> Work:
    """Encode named records as members of a JSON object, without braces."""
    names = iter(records)
    while part := list(islice(names, ROWS)):
        data = {
            name: {**vars(records[name]), **{key: of[name] for key, of in more.items()}}
            for name in part
        }
        texts.append(json.dumps(data)[1:-1])
        yield sum(map(len, data.values()))


def joined(**objects: list[str]) -> str:
    """Join texts into members of a JSON object, without braces."""
    return ", ".join(f'"{name}": {{{", ".join(texts)}}}' for name, texts in objects.items())
