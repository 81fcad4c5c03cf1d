"""Focal play: what policies earn among others, by the number of seats that they take.

The mean return of a focal seat is the per-capita focal return of Leibo et al. 2021, "Scalable
Evaluation of Multi-Agent Reinforcement Learning with Melting Pot". Over all numbers of seats it is
a Schelling diagram (Schelling 1973, "Hockey Helmets, Concealed Weapons, and Daylight Saving").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from remuda.analysis.payoffs.returns import mean_of, standard_error
from remuda.errors import UsageError
from remuda.evaluation.tournaments.entrants import Participant, TournamentSetup
from remuda.evaluation.tournaments.schedule import Schedule
from remuda.population.matchmaking.seating import draw_different
from remuda.system.rng import make_rng
from remuda.system.short_table import ShortTable, Summarised, short
from remuda.types import Bools, Floats, Integers, Numbers

MOST_PLACEMENTS = 500  # of the focal seats, for each number of them; more are drawn at random
FOCAL, BACKGROUND = range(2)  # the participants' numbers


class FocalSchedule(Schedule):
    """Matches in which the first participant takes some seats, and the second all others."""

    counts_of: Integers
    """[I] the number of focal seats in each seating."""

    def __init__(
        self, setup: TournamentSetup, participants: Sequence[Participant], episodes: int
    ) -> None:
        self._setup = setup
        super().__init__(participants, len(setup.env.agents), episodes, setup.taken_seats)
        self.counts_of = (self.seatings == FOCAL).sum(1)

    def _seatings(self, takers: Mapping[int, int]) -> list[tuple[int, ...]]:
        found: list[frozenset[int]] = []
        able = [{seat for seat in self.dealt if each.members[seat]} for each in self._participants]
        for count in self._setup.focal:
            if count > len(self.dealt):
                raise UsageError(
                    f"focal: {count} seats, and {self._setup.game} has {len(self.dealt)} that "
                    f"policies play; name 0 to {len(self.dealt)}"
                )
            rng = make_rng(self._setup.seed, "focal seats", count)
            own = placements(count, able[0], able[1], rng)
            if not own:
                names = " and ".join(each.name for each in self._participants)
                raise UsageError(
                    f"focal: in no placement of {count} focal seats may {names} play all seats"
                )
            found += own
        return [
            tuple(
                takers.get(seat, FOCAL if seat in focal else BACKGROUND)
                for seat in range(self._seats)
            )
            for focal in found
        ]

    def _prepare_turns(self) -> None:
        """Do nothing: `players_of` draws."""

    @property
    def num_matches(self) -> int:
        return self.episodes * len(self._setup.focal)

    def players_of(self, numbers: Integers) -> Integers:
        """Draw the policy of each seat in the matches, of those that may sit there: [M, S].

        No policy sits twice in a match if enough of them may take its side's seats.
        """
        entrants = self.entrants_of(numbers)
        players: Integers = self._members[entrants, np.arange(self._seats), 0]
        for row, number in enumerate(numbers.tolist()):
            rng = make_rng(self._setup.seed, "focal players", number)
            for side in (FOCAL, BACKGROUND):
                seats = np.flatnonzero(entrants[row] == side)
                able = [own[own >= 0].tolist() for own in self._members[side, seats]]
                if able:
                    players[row, seats] = draw_different(able, rng)
        return players

    def matches_of(self, count: int, episodes: int) -> Integers:
        """Return the numbers of `episodes` matches with `count` focal seats, spread evenly."""
        seatings = np.flatnonzero(self.counts_of == count)
        rounds, places = np.divmod(np.arange(episodes), len(seatings))
        found: Integers = rounds * len(self.seatings) + seatings[places]
        return found


def placements(
    count: int, focal: Set[int], background: Set[int], rng: np.random.Generator
) -> list[frozenset[int]]:
    """Return the sets of `count` seats that focal policies may take, in random order.

    They are all, or `MOST_PLACEMENTS` if there are more. `focal`, `background`: the seats that each
    side may take.
    """
    sure, free = focal - background, sorted(focal & background)
    left = count - len(sure)
    if not 0 <= left <= len(free):
        return []
    if math.comb(len(free), left) <= MOST_PLACEMENTS:
        ordered = [frozenset((*sure, *seats)) for seats in combinations(free, left)]
        return [ordered[i] for i in rng.permutation(len(ordered)).tolist()]
    drawn: dict[frozenset[int], None] = {}
    while len(drawn) < MOST_PLACEMENTS:
        seats = rng.choice(free, left, replace=False)
        drawn[frozenset((*sure, *map(int, seats)))] = None
    return list(drawn)


@dataclass(frozen=True)
class FocalReturns:
    """Mean returns of a seat with one number of focal seats; NaN: of no seat, or unknown."""

    focal_seats: int
    focal: float
    focal_error: float
    background: float
    background_error: float
    all_seats: float
    episodes: int


@dataclass(frozen=True, repr=False)
class FocalEvaluation(Summarised):
    """Per-capita returns of focal policies and of their background."""

    game: str
    focal: str  # who takes the focal seats
    background: str
    seats: int  # that policies play
    returns: tuple[FocalReturns, ...]  # by number of focal seats
    asked: int = 0  # episodes requested for each
    cut: str = ""  # reason for missing episodes; empty: none is missing
    scripted: Mapping[str, str] = field(default_factory=dict)  # by agent, what reserves its seat
    notes: tuple[str, ...] = ()  # how the background's game differs from the one played

    def short_table(self) -> ShortTable:
        """Return the mean returns by number of focal seats."""
        rows = [
            (
                f"{each.focal_seats} of {self.seats}",
                *(short(value) for value in (each.focal, each.focal_error)),
                *(short(value) for value in (each.background, each.background_error)),
                short(each.all_seats),
                f"{each.episodes:,}",
            )
            for each in self.returns
        ]
        cut = f"; {self.cut}" if self.cut else ""
        title = f"{self.focal} among {self.background}: mean return of a seat{cut}"
        head = ("focal seats", "focal", "error", "background", "error", "all seats", "episodes")
        return ShortTable(title, head, rows, self.notes)

    def as_summary(self) -> dict[str, object]:
        """Return plain data; unknown numbers are None."""
        names = ("focal", "focal_error", "background", "background_error", "all_seats")
        return {
            "game": self.game,
            "focal": self.focal,
            "background": self.background,
            "seats": self.seats,
            "asked": self.asked,
            "cut": self.cut,
            "scripted": dict(self.scripted),
            "notes": list(self.notes),
            "returns": [
                {"focal_seats": each.focal_seats, "episodes": each.episodes}
                | {
                    name: value if math.isfinite(value := getattr(each, name)) else None
                    for name in names
                }
                for each in self.returns
            ],
        }


def returns_with(
    schedule: FocalSchedule, count: int, numbers: Integers, returns: Floats
) -> FocalReturns:
    """Return the means over finished matches; seats that took no part (NaN) do not count."""
    seatings = schedule.entrants_of(numbers)
    with_count = schedule.counts_of[numbers % len(schedule.seatings)] == count
    seated, earned = seatings[with_count], returns[with_count].astype(np.float64)

    def by_match(mask: Bools) -> Numbers:
        present = mask & ~np.isnan(earned)
        total = np.where(present, earned, 0.0).sum(1)
        with np.errstate(invalid="ignore"):
            found: Numbers = total / np.where(present.any(1), present.sum(1), np.nan)
        return found

    focal, background = by_match(seated == FOCAL), by_match(seated == BACKGROUND)
    return FocalReturns(
        count,
        mean_of(focal),
        standard_error(focal),
        mean_of(background),
        standard_error(background),
        mean_of(by_match(seated <= BACKGROUND)),
        len(earned),
    )
