"""Results in the ledger of a run, read as it grows; those of current weights replace older ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from remuda.analysis.payoffs.counted_returns import sharing
from remuda.analysis.payoffs.empirical_game import EmpiricalGame, Role
from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.ledger_reader import KEY, PIECE, LedgerReader, keys_of, places_of
from remuda.analysis.payoffs.ledger_seats import LedgerSeats
from remuda.analysis.payoffs.payoffs import from_sums
from remuda.analysis.payoffs.profile_sums import ProfileSums, TooLargeError
from remuda.analysis.payoffs.sums import ROWS, add_up
from remuda.errors import RunDirectoryError
from remuda.population.ledger.ledger import BIRTH, MATCH
from remuda.system.checkpoint.opening import open_stream
from remuda.types import Array, Integers, Numbers

Member = tuple[int, int]  # a policy's index in the ledger, and its version; -1: live

RECENT = 1000
"""If one of two members learns, older meetings are scaled down to this number, so that results of
current weights replace those of old weights. The same holds for the matches of a line-up."""
LARGEST = 2_000_000  # the largest size of a game (`ProfileSums`); more need seconds to solve


class RecentPayoffs:
    """The sums of results between the analysed members; each record of the ledger is read once.

    1. Between two frozen members, all meetings read since both were selected count.
    2. If one of two members learns, all meetings of the newest `read` count, and all older ones
       together count as at most `RECENT` meetings.
    3. A new policy starts from zero: results of the previous policy with its name are cleared.
    4. A ledger that became shorter, or was replaced, is read from its start. So is a ledger of
       which records could not be added up.
    """

    def __init__(
        self, path: Path, seats: LedgerSeats, members: Sequence[Sequence[Member]] = ()
    ) -> None:
        """`members`: of each of `seats.groups`; matches with others are in no game."""
        self._path, self._seats = path, seats
        self._sides = np.asarray(seats.opponents, np.int64)
        self._line_ups = RecentLineUps(seats, members) if members else None
        self._keys: Integers = np.zeros(0, np.int64)
        self._sums: Numbers = np.zeros((ROWS, 0, 0))
        self._read = 0

    def look_at(self, members: Integers) -> None:
        """Select the members: keep known sums, and start new sums at 0."""
        keys = members[:, 0] * KEY + members[:, 1] + 1
        sums = np.zeros((ROWS, len(keys), len(keys)))
        _, now, before = np.intersect1d(keys, self._keys, return_indices=True)
        sums[:, now[:, None], now] = self._sums[:, before[:, None], before]
        self._keys, self._sums = keys, sums

    def read(self) -> None:
        try:
            ledger = LedgerReader.open(self._path)
        except RunDirectoryError:
            return
        if ledger.end < self._read:
            self._clear()
        if self._line_ups is not None:
            self._line_ups.scale_down()
        begin = self._read or ledger.begin
        with open_stream(self._path) as file:
            file.seek(begin)
            remaining = (ledger.end - begin) // ledger.kind.itemsize
            while remaining > 0:
                records = np.fromfile(file, ledger.kind, min(remaining, PIECE))
                if not len(records):
                    break
                remaining -= len(records)
                try:
                    self._add(records, ledger.policies)
                except BaseException:  # some may have been added, and must not count twice
                    self._clear()
                    raise
                self._read = begin = begin + len(records) * ledger.kind.itemsize

    def _clear(self) -> None:
        """Forget all results, so that the ledger is read from its start."""
        self._read, self._sums = 0, np.zeros_like(self._sums)
        if self._line_ups is not None:
            self._line_ups.clear()

    def game(self) -> EmpiricalGame:
        """Return the game of the members, named by key.

        If members outside the roles were selected, it is that of two seats.
        """
        payoffs = from_sums([str(key) for key in self._keys], self._sums, True)
        if self._line_ups is None or not self._line_ups.names.issuperset(payoffs.names):
            return game_of_meetings(payoffs)
        game = self._line_ups.game()
        if game is None:
            return game_of_meetings(payoffs, self._line_ups.roles)
        return replace(game, meetings=payoffs)

    def _add(self, records: Array, policies: Sequence[str]) -> None:
        """Add up records in order; a new policy clears the results of the policy it replaces."""
        births = np.flatnonzero(records["kind"] == BIRTH)
        for part in np.split(records, births):
            if len(part) and part["kind"][0] == BIRTH:
                key = int(part["policy"][0, 0]) * KEY
                self._sums[:, self._keys == key] = 0.0
                self._sums[:, :, self._keys == key] = 0.0
                if self._line_ups is not None:
                    self._line_ups.forget(key)
            self._add_matches(part[part["kind"] == MATCH], policies)

    def _add_matches(self, matches: Array, policies: Sequence[str]) -> None:
        matches = matches[~np.isinf(matches["returns"]).any(1)]  # NaN: the seat took no part
        if not len(matches) or not len(self._keys):
            return
        keys = keys_of(matches)
        indices = places_of(keys, self._keys)
        live = self._keys % KEY == 0
        changing = live[:, None] | live
        with np.errstate(divide="ignore"):
            scale = np.where(changing, np.minimum(RECENT / self._sums[7], 1.0), 1.0)
        self._sums *= scale
        self._sums[6] *= scale  # sums of squared weights are scaled twice
        returns = matches["returns"].astype(np.float64)
        returns = sharing(policies, self._seats.rated, self._seats.shares)(returns, matches)
        add_up(indices, returns, self._sides, True, False, self._sums)
        if self._line_ups is not None:
            self._line_ups.add(keys, returns)


class RecentLineUps:
    """The sums of results by line-up; once there are too many line-ups, there is no game."""

    def __init__(self, seats: LedgerSeats, members: Sequence[Sequence[Member]]) -> None:
        self._groups = seats.groups
        self._keys = [
            np.array([policy * KEY + version + 1 for policy, version in own], np.int64)
            for own in members
        ]
        self.roles = tuple(
            Role(group.name, tuple(map(str, keys.tolist())), len(group.seats))
            for group, keys in zip(seats.groups, self._keys, strict=True)
        )
        self.names = {name for role in self.roles for name in role.strategies}
        self._seats = [seat for group in seats.groups for seat in group.seats]
        self._role_of_seat = [
            number for number, group in enumerate(seats.groups) for _ in group.seats
        ]
        self.clear()

    def clear(self) -> None:
        self._sums: ProfileSums | None = ProfileSums(self.roles, self._role_of_seat, LARGEST)

    def scale_down(self) -> None:
        """Let older matches of each line-up count as at most `RECENT`."""
        if self._sums is not None:
            self._sums.scale_down(RECENT)

    def forget(self, key: int) -> None:
        """Forget the matches of a member."""
        for role, keys in enumerate(self._keys):
            for place in np.flatnonzero(keys == key).tolist():
                if self._sums is not None:
                    self._sums.forget(role, place)

    def add(self, keys: Integers, returns: Numbers) -> None:
        """Add matches: keys and returns [M, all seats]."""
        if self._sums is None:
            return
        seats = zip(self._seats, self._role_of_seat, strict=True)
        chosen = np.stack([places_of(keys[:, seat], self._keys[r]) for seat, r in seats], 1)
        try:
            self._sums.add(chosen, returns[:, self._seats])
        except TooLargeError:
            self._sums = None

    def game(self) -> EmpiricalGame | None:
        return None if self._sums is None else self._sums.game()
