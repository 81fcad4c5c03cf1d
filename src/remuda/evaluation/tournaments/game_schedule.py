"""The matches of a tournament of line-ups: any entrants that may play a seat may take it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from remuda.analysis.payoffs.empirical_game import EmpiricalGame, Role, every_profile
from remuda.analysis.payoffs.ledger_seats import SeatGroup, grouped_seats
from remuda.analysis.payoffs.profile_sums import game_of_matches
from remuda.analysis.payoffs.sums import payoffs_of_matches
from remuda.errors import UsageError
from remuda.evaluation.tournaments.entrants import Participant, TournamentSetup, with_rates
from remuda.evaluation.tournaments.focal import FocalSchedule
from remuda.evaluation.tournaments.schedule import Schedule
from remuda.types import Floats, Integers, Numbers

MOST_SEATINGS = 100_000  # seatings of a tournament of line-ups


class GameSchedule(Schedule):
    """The matches of line-ups; seats that the same entrants may play are a role."""

    groups: tuple[SeatGroup, ...]
    roles: tuple[Role, ...]

    def __init__(self, setup: TournamentSetup, participants: Sequence[Participant]) -> None:
        """Prepare the seatings; a tournament of line-ups has no fixed number of episodes."""
        self._agents, self._teams = setup.env.names, setup.env.teams
        super().__init__(participants, len(setup.env.agents), 0, setup.taken_seats)

    def _seatings(self, takers: Mapping[int, int]) -> list[tuple[int, ...]]:
        participants = self._participants
        self._names = tuple(each.name for each in participants)
        able = {
            seat: tuple(n for n, each in enumerate(participants) if each.members[seat])
            for seat in self.dealt
        }
        for seat, entrants in able.items():
            if not entrants:
                raise UsageError(f"line-ups: no entrant may play {self._agents[seat]}; enter one")
        names = {seat: [self._names[n] for n in entrants] for seat, entrants in able.items()}
        self.groups = grouped_seats(names, self._agents, self._teams)
        if not self.groups:
            raise UsageError(
                "line-ups: an entrant may play seats of several roles; enter policies with equal "
                "or entirely different seats"
            )
        self._entrants = [able[group.seats[0]] for group in self.groups]  # by role
        self.roles = tuple(
            Role(group.name, tuple(names[group.seats[0]]), len(group.seats))
            for group in self.groups
        )
        count = math.prod(map(len, able.values()))
        if count > MOST_SEATINGS:
            raise UsageError(
                f"line-ups: there are {count:,} seatings, and at most {MOST_SEATINGS:,} are "
                "allowed; enter fewer policies"
            )
        choices = [able.get(seat, (takers.get(seat, -1),)) for seat in range(self._seats)]
        return list(product(*choices))

    def game(self, numbers: Integers, returns: Floats) -> EmpiricalGame:
        """Return the game that finished matches [M] with returns [M, S] sample."""
        seats = [seat for group in self.groups for seat in group.seats]
        role_of_seat = [role for role, group in enumerate(self.groups) for _ in group.seats]
        places = {entrant: place for own in self._entrants for place, entrant in enumerate(own)}
        to_place = np.array([places[number] for number in range(len(self._names))], np.int64)
        chosen = to_place[self.entrants_of(numbers)[:, seats]]
        return game_of_matches(self.roles, role_of_seat, chosen, returns[:, seats].astype(float))

    def seatings_by_profile(self) -> list[Integers]:
        """Return the numbers of the seatings of each profile, in the order of `every_profile`."""
        rows = {tuple(each.tolist()): row for row, each in enumerate(every_profile(self.roles))}
        order = np.array([entrant for own in self._entrants for entrant in own])
        one_hot = (self.seatings[:, self.dealt, None] == order).sum(1)
        found: list[list[int]] = [[] for _ in rows]
        for number, profile in enumerate(map(tuple, one_hot.tolist())):
            found[rows[profile]].append(number)
        return [np.array(each, np.int64) for each in found]

    def means_and_errors(self, of_seating: Sequence[Numbers]) -> tuple[Numbers, Numbers, Integers]:
        """Return means, standard errors and numbers of matches by meeting; each [N, N]."""
        count = len(self._names)
        sides = np.full(self._seats, -1, np.int64)
        for role, group in enumerate(self.groups):
            # a single role has no teams, so each of its seats is a side
            sides[list(group.seats)] = role if len(self.groups) > 1 else group.seats
        entrants = np.repeat(self.seatings, [len(each) for each in of_seating], 0)
        entrants = np.where(entrants < count, entrants, -1)
        returns = np.concatenate([each.reshape(-1, self._seats) for each in of_seating])
        payoffs = payoffs_of_matches(self._names, entrants, returns, sides)
        return payoffs.matrix, payoffs.errors[0], payoffs.met.astype(np.int64)


def schedule_of(setup: TournamentSetup, episodes: int) -> Schedule:
    """Return the schedule of a tournament: of pairs of entrants, of line-ups, or focal play."""
    participants = with_rates(setup.participants, setup.sampled)
    if setup.focal:
        return FocalSchedule(setup, participants, episodes)
    if setup.line_ups:
        return GameSchedule(setup, participants)
    return Schedule(participants, len(setup.env.agents), episodes, setup.taken_seats)
