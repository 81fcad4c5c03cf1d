"""Write the records of a population's table into its ledger on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remuda.population.ledger import LedgerFile
from remuda.population.table import Table
from remuda.population.table_parts import RECORDS


class LedgerWriter:
    """Writes results of matches and directors' commands into the ledger of a run.

    Guarantees:

    1. A record has the position in the file that its number says: missing records are replaced by
       records of the kind `LOST`, so that a resumed run goes back to the right one.
    2. Records that came too fast, or could not be written on a full disk, harm neither the run nor
       later records; they are counted and reported.
    """

    def __init__(self, table: Table, path: Path, say: Callable[[str], None]) -> None:
        self._table, self._say = table, say
        self._next = table.word(RECORDS)
        self._file = LedgerFile(path, table.names, table.seats, table.hyperparameters.names)
        self._failed = False
        self.lost = 0  # records that came faster than they were fetched
        self._reported = self._reported_of_others = 0

    def begin(self) -> None:
        """Continue from the table's records, as resumed or at the start."""
        self._file.rewind(self._next)

    def close(self) -> None:
        """Append the remaining records after all processes have ended.

        This includes results that a lead did not take: the ledger has them, a checkpoint does not.
        A resumed run goes back to its checkpoint.
        """
        self._table.followers.hand_over()
        self.write()

    def write(self) -> None:
        begin, others = self._next, self._table.results_lost
        if others >= max(2 * self._reported_of_others, 1):
            self._reported_of_others = others
            self._say(
                f"{others:,} results of the other actors were lost, because actor-0, which counts "
                "and rates all, was away or slower than they are; they are missing in the ledger "
                "of matches, in sums and in ratings. Learners have trained on these matches; fewer "
                "actor.processes help if it is slower"
            )
        records, self._next = self._table.records.since(begin)
        self.lost += self._next - begin - len(records)
        if self.lost >= max(2 * self._reported, 1):  # a few lines in a run, not one in every tick
            self._reported = self.lost
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
                self._say(
                    f"cannot write the ledger of matches: {error.strerror}; the run continues"
                )
