"""From the table of a population to its ledger on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remuda.population.ledger import LedgerFile
from remuda.population.table import RECORDS, Table


class Scribe:
    """Writes what came of matches, and what directors commanded, into the ledger of a run.

    A full disk costs the ledger what happened meanwhile, and not the run.
    """

    def __init__(self, table: Table, path: Path, say: Callable[[str], None]) -> None:
        """Go on where the table was when the run was resumed, or at its beginning."""
        self._table, self._say = table, say
        self._next = table.word(RECORDS)
        self._file = LedgerFile(path, table.policies, table.seats)
        self._file.rewind(self._next)
        self._failed = False

    def write(self) -> None:
        """Append what is new."""
        records, self._next = self._table.records_since(self._next)
        if not len(records):
            return
        try:
            self._file.append(records)
        except OSError as error:
            if not self._failed:
                self._failed = True
                self._say(f"cannot write the ledger of matches: {error.strerror}; the run goes on")
