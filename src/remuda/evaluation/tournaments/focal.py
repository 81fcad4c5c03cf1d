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

from remuda.analysis.payoffs.returns import known, mean_of, standard_error
from remuda.errors import UsageError
from remuda.evaluation.tournaments.entrants import Participant, TournamentSetup
from remuda.evaluation.tournaments.schedule import Schedule
from remuda.population.matchmaking.seating import draw_different
from remuda.system.loading import without_digest
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
    """Mean returns of a seat with one number of focal seats (`over_placements`).

    NaN: there is no such seat, or the value is unknown.
    """

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

    @property
    def reserved(self) -> str:
        """The agents of reserved seats, in words: `agent_1, which always plays random`."""
        agents: dict[str, list[str]] = {}
        for agent, policy in self.scripted.items():
            agents.setdefault(shown_policy(policy), []).append(agent)
        words = []
        for policy, own in agents.items():
            more = f" and {len(own) - 3} more" if len(own) > 3 else ""
            plays = "always plays" if len(own) == 1 else "always play"
            words.append(f"{', '.join(own[:3])}{more}, which {plays} {policy}")
        return "; ".join(words)

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
        left_out = (f"the means leave out {self.reserved}",) if self.scripted else ()
        return ShortTable(title, head, rows, (*left_out, *self.notes))

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


def shown_policy(policy: str) -> str:
    """Return the name of a scripted policy for tables and pictures, without its module."""
    name = without_digest(policy)
    return name.partition(":")[2] or name


def over_placements(values: Numbers, placed: Integers, count: int) -> tuple[float, float]:
    """Return the mean over matches with equal weight for all placements, and its standard error.

    values: [M]; NaN does not count. placed: [M] the placement in each match. count: number of
    placements, H. With the mean m_h and the variance v_h of the n_h values with placement h (a
    stratified sample: Cochran 1977, "Sampling Techniques", chapter 5):

        mean = sum_h m_h / H        error^2 = sum_h (v_h / n_h) / H^2

    If a placement has one value, the error is that of the plain mean over matches; if one was not
    played, the mean is the plain one, too. If the placements were drawn at random
    (`MOST_PLACEMENTS`) and all played, the error is that of a mean of the H values m_h.
    """
    if len(np.unique(placed)) < count:
        return mean_of(values), standard_error(values)
    each = [own for place in np.unique(placed) if len(own := known(values[placed == place]))]
    means = np.array([own.mean() for own in each])
    if count >= MOST_PLACEMENTS:
        return mean_of(means), standard_error(means)
    if not each or min(map(len, each)) < 2:
        return mean_of(means), standard_error(values)
    return mean_of(means), float(np.linalg.norm(list(map(standard_error, each))) / len(each))


def returns_with(
    schedule: FocalSchedule, count: int, numbers: Integers, returns: Floats
) -> FocalReturns:
    """Return the means over finished matches; seats that took no part (NaN) do not count."""
    has_count, seatings = schedule.counts_of == count, numbers % len(schedule.seatings)
    played = has_count[seatings]
    placed, earned = seatings[played], returns[played].astype(np.float64)
    seated = schedule.seatings[placed]

    def mean_and_error(mask: Bools) -> tuple[float, float]:
        present = mask & ~np.isnan(earned)
        total = np.where(present, earned, 0.0).sum(1)
        with np.errstate(invalid="ignore"):
            by_match: Numbers = total / np.where(present.any(1), present.sum(1), np.nan)
        return over_placements(by_match, placed, int(has_count.sum()))

    return FocalReturns(
        count,
        *mean_and_error(seated == FOCAL),
        *mean_and_error(seated == BACKGROUND),
        mean_and_error(seated <= BACKGROUND)[0],
        len(earned),
    )
