"""The numbers of all members in shared memory, whose ratings move together or not at all."""

from __future__ import annotations

from remuda.memory.atomic import fence_acquire, fence_release, load, store
from remuda.memory.shared import SharedArrays
from remuda.population.records import RATING, Numbers
from remuda.population.table_layout import MOVES
from remuda.types import Integers


class MemberNumbers:
    """Games, ratings and so on by place; the actor updates them, other processes copy them.

    Guarantees:

    1. Readers that copy with `whole` see all ratings before a move, or all after it.
    2. If the actor dies during a move, its successor completes it with the same ratings.
    """

    def __init__(self, shared: SharedArrays) -> None:
        """Count in the arrays of `table_fields`."""
        self._shared = shared

    @property
    def all(self) -> Numbers:
        """[places, fields] of the members."""
        return self._shared["numbers"]

    def move_ratings(self, by: float) -> None:
        """Add a number to all ratings; for the actor.

        The new ratings are first written beside the old ones. Then `MOVES` becomes odd, they are
        overwritten, and it becomes even. If the actor dies before it is odd, nothing was moved;
        while it is odd, the successor writes them again (`finish_move`). No process waits.
        """
        moved, moves = self._shared["moved"], self._moves()
        fence_release()  # readers of the old `moved` first see that `MOVES` became even
        moved[...] = self.all[:, RATING] + by
        self._set_moves(moves + 1)  # releases: readers that see it odd see all of `moved`
        fence_release()
        self.finish_move()

    def finish_move(self) -> None:
        """Complete what `move_ratings` began."""
        moves = self._moves()
        if moves % 2 == 1:
            self.all[:, RATING] = self._shared["moved"]
            self._set_moves(moves + 1)

    def whole(self, places: Integers | None = None) -> Numbers:
        """Return a copy of the members' numbers, with all ratings moved or none.

        During a move ratings are read from the complete copy, so this never waits. Sums of a match
        that is being counted may be partial.
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
