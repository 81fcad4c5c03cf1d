"""Write the records of a population's table into its ledger on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remuda.population.ledger.ledger import LedgerFile
from remuda.population.members.table import Table
from remuda.population.members.table_parts import RECORDS


class LedgerWriter:
    """The writer of match results and directors' commands into the ledger of a run.

    Guarantees:

    1. A record's position in the file is its number. Missing records are replaced by records of
       kind `LOST`, so that a resumed run goes back to the right record.
    2. If records come too fast to be written, or the disk is full, the loss is reported. It affects
       neither the run nor later records.
    """

    def __init__(self, table: Table, path: Path, say: Callable[[str], None]) -> None:
        self._table, self._say = table, say
        self._next = table.word(RECORDS)
        self._file = LedgerFile(path, table.names, table.seats, table.hyperparameters.names)
        self._failed = False
        self.lost = 0  # records overwritten before they were read
        self._reported = self._reported_of_others = 0

    def begin(self) -> None:
        """Cut the file to the table's number of records, for a new or a resumed run."""
        self._file.rewind(self._next)

    def close(self) -> None:
        """Append the remaining records after all processes have ended.

        These include results that the lead (actor-0) has not processed. No checkpoint includes
        such results, so a resumed run discards them.
        """
        self._table.followers.hand_over()
        self.write()

    def write(self) -> None:
        begin, others = self._next, self._table.results_lost
        if others >= max(2 * self._reported_of_others, 1):
            self._reported_of_others = others
            self._say(
                f"{others:,} results of the other actors were lost, because actor-0, which counts "
                "and rates all results, was down or too slow. They are missing in the ledger of "
                "matches, in sums and in ratings, but learners have trained on these matches. If "
                "actor-0 is too slow, reduce actor.processes"
            )
        records, self._next = self._table.records.since(begin)
        self.lost += self._next - begin - len(records)
        if self.lost >= max(2 * self._reported, 1):  # doubling, so that a run has few messages
            self._reported = self.lost
            self._say(
                f"{self.lost:,} results came faster than they could be written and are missing "
                "in the ledger of matches; sums and ratings include them"
            )
        if not len(records):
            return
        try:
            self._file.append(records, self._next - len(records))
        except OSError as error:
            message = f"cannot write the ledger of matches: {error.strerror}; the run continues"
            if not self._failed:
                self._say(message)
            self._failed = True
