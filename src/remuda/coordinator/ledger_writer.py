"""From the table of a population to its ledger on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remuda.population.ledger import LedgerFile
from remuda.population.table import Table
from remuda.population.table_layout import RECORDS


class LedgerWriter:
    """Writes what came of matches, and what directors commanded, into the ledger of a run.

    What it guarantees:

    1. A record has the place in the file that its number says: where records are missing, others
       of the kind `LOST` stand for them, so that a resumed run goes back to the right one.
    2. Records that came too fast to be fetched, or could not be written since the disk was full,
       cost neither the run nor the records after them; they are counted, and the user is told.
    """

    def __init__(self, table: Table, path: Path, say: Callable[[str], None]) -> None:
        """Write nothing yet."""
        self._table, self._say = table, say
        self._next = table.word(RECORDS)
        self._file = LedgerFile(path, table.names, table.seats, table.hyperparameters.names)
        self._failed = False
        self.lost = 0
        """Records that came faster than they were fetched."""
        self._told = self._told_of_others = 0

    def begin(self) -> None:
        """Go on where the table was when the run was resumed, or at its beginning."""
        self._file.rewind(self._next)

    def close(self) -> None:
        """Append what is left once all roles have ended, whatever they were doing.

        Also results that a lead did not come to take: the ledger has all, though a checkpoint does
        not. A resumed run goes back to what its checkpoint has.
        """
        self._table.followers.hand_over()
        self.write()

    def write(self) -> None:
        """Append what is new."""
        begin, others = self._next, self._table.results_lost
        if others >= max(2 * self._told_of_others, 1):
            self._told_of_others = others
            self._say(
                f"{others:,} results of the other actors were lost, because actor-0, which counts "
                "and rates all, was away or slower than they are; they are missing in the ledger "
                "of matches, in sums and in ratings. What was learned from these matches was not "
                "lost; fewer actor.processes help where it is slower"
            )
        records, self._next = self._table.records.since(begin)
        self.lost += self._next - begin - len(records)
        if self.lost >= max(2 * self._told, 1):  # a few lines in a run, not one in every tick
            self._told = self.lost
            self._say(
                f"{self.lost:,} results came faster than they could be written down and are "
                "missing in the ledger of matches; sums and ratings have them all"
            )
        if not len(records):
            return
        try:
            self._file.append(records, self._next - len(records))
        except OSError as error:
            if not self._failed:
                self._failed = True
                self._say(f"cannot write the ledger of matches: {error.strerror}; the run goes on")
