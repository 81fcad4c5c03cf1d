"""Work in pieces, so that each tick of the coordinator encodes a bounded amount."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np

from remuda.coordinator.scoreboard_reader import member_record
from remuda.population.members.table import Table
from remuda.runs.metrics import PolicyRecord, Record

VALUES = 2500
"""Values encoded in a tick, which takes a few milliseconds; the last piece may exceed the number.
The values of about 20 policies fit into one tick."""
RECORD = 18  # computing a policy's record takes as long as encoding this number of values
ROWS = 16  # records in a piece
AT_ONCE = 128  # maximum number of texts of frozen copies updated in one poll

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


def encode_record(
    record: Record,
    more: Mapping[str, object],
    frozen: str,
    found: list[str],
    policies: Mapping[str, PolicyRecord] | None = None,
    **of_policies: Mapping[str, object],
) -> Work:
    """Encode a record as a JSON object, with the fields in `more`.

    `frozen`: the encoded frozen copies that `record.members` lacks. `policies`: those to encode;
    None: all. `of_policies`: additional fields of them, by policy.
    """
    named: dict[str, list[str]] = {"policies": [], "members": []}
    own = {name: value for name, value in vars(record).items() if name not in named}
    playing = record.policies if policies is None else policies
    yield from _encode(playing, named["policies"], **of_policies)
    yield from _encode(record.members, named["members"])
    if frozen:
        named["members"].append(frozen)
    nested = ", ".join(f'"{name}": {{{", ".join(texts)}}}' for name, texts in named.items())
    found.append(f"{json.dumps({**own, **more})[:-1]}, {nested}}}")


def _encode(records: Mapping[str, object], texts: list[str], **more: Mapping[str, object]) -> Work:
    """Encode named records as members of a JSON object, without braces."""
    names = iter(records)
    while part := list(islice(names, ROWS)):
        data = {
            name: {**vars(records[name]), **{key: of[name] for key, of in more.items()}}
            for name in part
        }
        texts.append(json.dumps(data)[1:-1])
        yield sum(map(len, data.values()))


class FrozenTexts:
    """The JSON texts of all frozen copies, for the status and the lines of metrics.

    There may be thousands, but few change between two polls. Guarantees:

    1. An unchanged copy costs only a comparison of arrays.
    2. A poll updates at most `AT_ONCE` texts. Members that came or left have priority; the others
       take turns, so that all are updated eventually.
    3. A copy that is being frozen, or half written by a dead actor, is skipped until it is
       complete.
    """

    def __init__(self, table: Table) -> None:
        self._table, self._first = table, len(table.policies)
        self._identity = table.occupants.identity[self._first :].copy()
        self._numbers = table.numbers[self._first :].copy()
        self._has_text = np.zeros(len(self._identity), np.bool_)
        """[copies]: whether a text exists for the frozen copy with this index."""
        self._texts: dict[int, str] = {}
        self._next = 0
        self.complete = False  # true if exactly the copies of the last poll have a text

    def poll(self, max_texts: int = AT_ONCE) -> None:
        table, first = self._table, self._first
        # Copied before the texts' data is read: later changes are found by the next poll.
        identity, numbers = table.occupants.identity[first:].copy(), table.numbers[first:].copy()
        is_present = table.occupants.there[first:]
        is_new = (identity != self._identity).any(1)
        changed = (is_present != self._has_text) | (is_present & is_new)
        counted = np.flatnonzero(is_present & ~changed & (numbers != self._numbers).any(1))
        turn = np.searchsorted(counted, self._next)
        new, counted = np.flatnonzero(changed), np.roll(counted, -turn)
        indices = np.concatenate([new, counted])[:max_texts]
        if len(indices) > len(new):
            self._next = int(indices[-1]) + 1
        self._identity[indices], self._numbers[indices] = identity[indices], numbers[indices]
        self._has_text[indices] = False
        for index in indices.tolist():
            self._texts.pop(index, None)
        for row in table.rows(slots=first + indices):
            text = json.dumps({str(row[0]): vars(member_record(row, table))})
            self._texts[row[3] - first] = text[1:-1]
            self._has_text[row[3] - first] = True
        self.complete = bool((self._has_text == is_present).all()) and len(new) <= max_texts

    def __len__(self) -> int:
        return len(self._texts)

    def text(self) -> str:
        """Return all texts as members of a JSON object, without braces."""
        return ", ".join(self._texts.values())
