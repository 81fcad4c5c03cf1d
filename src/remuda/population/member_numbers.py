"""The numbers of all members in shared memory, whose ratings move together or not at all."""

from __future__ import annotations

from remuda.memory.atomic import fence_acquire, fence_release, load, store
from remuda.memory.shared import SharedArrays
from remuda.population.records import RATING, Numbers
from remuda.population.table_layout import MOVES
from remuda.types import Integers


class MemberNumbers:
    """Games, ratings and so on of each place; the actor counts in them, other processes copy them.

    What it guarantees:

    1. Readers that copy with `whole` see all ratings as before a move, or all as after it.
    2. If the actor dies in the middle of a move, its successor ends in the same ratings.
    """

    def __init__(self, shared: SharedArrays) -> None:
        """Count in the arrays of `table_fields`."""
        self._shared = shared

    @property
    def all(self) -> Numbers:
        """[places, fields]: of the members."""
        numbers: Numbers = self._shared["numbers"]
        return numbers

    def move_ratings(self, by: float) -> None:
        """Add a number to all ratings; for the actor.

        What they will be is written first, beside them; then `MOVES` becomes odd, they are
        overwritten, and it becomes even. If the actor dies before it is odd, nothing was moved; if
        it dies while it is odd, its successor writes them over once more (`finish_move`). No
        process waits for either.
        """
        moved, moves = self._shared["moved"], self._moves()
        fence_release()  # who still reads `moved` as it was sees first that `MOVES` became even
        moved[...] = self.all[:, RATING] + by
        self._set_moves(moves + 1)  # releases: who sees it odd sees all of `moved`
        fence_release()
        self.finish_move()

    def finish_move(self) -> None:
        """Bring to an end what `move_ratings` began, however far it came."""
        moves = self._moves()
        if moves % 2 == 1:
            self.all[:, RATING] = self._shared["moved"]
            self._set_moves(moves + 1)

    def whole(self, places: Integers | None = None) -> Numbers:
        """A copy of the members' numbers, in which all ratings are moved, or none.

        While they are being moved they are taken from where they stand whole, so that this never
        waits. Of a match that is being counted, some sums may hold their share and others not.
        """
        wanted = slice(None) if places is None else places
        while True:
            moves = self._moves()
            found: Numbers = self.all[wanted].copy()
            if moves % 2 == 1:
                found[:, RATING] = self._shared["moved"][wanted]
            fence_acquire()
            if self._moves() == moves:
                return found

    def _moves(self) -> int:
        return load(self._shared["words"], MOVES)

    def _set_moves(self, value: int) -> None:
        store(self._shared["words"], MOVES, value)
