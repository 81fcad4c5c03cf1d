"""A mixture of matchmakers, each with a share of a policy's matches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import accumulate

from numpy.random import Generator

from remuda.errors import ConfigError
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import Member, Population
from remuda.population.matchmaking.matchmaker import ForLearner, Matchmaker
from remuda.population.matchmaking.seating import Seating


class Mixed(Matchmaker):
    """A mixture of matchmakers: for each match a learner takes its turn, and a matchmaker is drawn.

    Guarantees:

    1. Learners (live policies) take turns, and each takes its allowed seats in turn. If favoured
       learners have a share of all matches, they take turns in that share, and the others in the
       rest. While one of these groups has no members, all learners take turns in all matches.
    2. In a learner's matches, each matchmaker is drawn with the probability of its share.
    3. A matchmaker without a share for a learner makes none of its matches.
    4. With `own_matches`, only the learner of a match learns from it.
    """

    exchangeable = True

    def __init__(
        self,
        num_seats: int,
        parts: Mapping[str, ForLearner],
        shares: Mapping[str, float],
        own_shares: Mapping[str, Mapping[str, float]] | None = None,
        keeps_copies: bool = False,
        own_matches: bool = False,
        favoured: Collection[str] = (),
        favoured_share: float | None = None,
    ) -> None:
        super().__init__(num_seats)
        self._favoured, self._favoured_share = frozenset(favoured), favoured_share
        self._own_matches, self._learner = own_matches, ""
        self.parts, self._keeps_copies = dict(parts), keeps_copies
        self._names = list(self.parts)
        own = own_shares or {}
        self._own = {policy: self._cumulative(each) for policy, each in own.items()}
        self._common = self._cumulative(shares)

    def _cumulative(self, shares: Mapping[str, float]) -> tuple[float, ...]:
        return tuple(accumulate(shares.get(name, 0.0) for name in self._names))

    def seat(self, population: Population, ledger: Ledger, rng: Generator) -> Seating:
        learning = population.learning
        if not learning:
            raise ConfigError("no policy in the population learns, so there is no match to deal")
        learners, number = self._whose_turn(learning)
        turn, seat = divmod(number, self.num_seats)
        learner = learners[turn % len(learners)]
        if learner.seats is not None:
            own = sorted(learner.seats)
            seat = own[(turn // len(learners) * self.num_seats + seat) % len(own)]
        sums = self._sums_of(learner)
        drawn = bisect_right(sums, rng.random() * sums[-1])
        part = self.parts[self._names[min(drawn, len(sums) - 1)]]
        self._learner = learner.ref.policy
        return part.seat_for(learner, seat, population, ledger, rng)

    def _whose_turn(self, learning: Sequence[Member]) -> tuple[Sequence[Member], int]:
        """Return the learners whose turn this match is, and the match's number among theirs."""
        share, number = self._favoured_share, self.proposed
        if share is None:
            return learning, number
        favoured = [m for m in learning if m.ref.policy in self._favoured]
        others = [m for m in learning if m.ref.policy not in self._favoured]
        if not (favoured and others):
            return learning, number
        before = int(number * share)
        if int((number + 1) * share) > before:
            return favoured, before
        return others, number - before

    def learning_seats(self, seats: Seating) -> frozenset[int] | None:
        if not self._own_matches:
            return None
        return frozenset(
            seat
            for seat, ref in enumerate(seats)
            if ref.policy == self._learner and not ref.is_frozen
        )

    def _sums_of(self, learner: Member) -> tuple[float, ...]:
        return self._own.get(learner.ref.policy, self._common)

    def dealt_like(self, member: Member) -> Hashable:
        favoured = self._favoured_share is not None and member.ref.policy in self._favoured
        return member.seats, self._sums_of(member), favoured

    def expected_shares(self, population: Population) -> dict[str, float]:
        """Return the shares of seats, assuming one copy of each policy if copies are kept."""
        if self._keeps_copies:
            learning = population.learning
            population = Population([Member(m.ref, m.seats) for m in population.members])
            for member in learning:
                population.freeze(member.ref.policy, 0)
        return super().expected_shares(population)


def check_shares(
    shares: Mapping[str, float], key: str, known: Mapping[str, ForLearner]
) -> Mapping[str, float]:
    """Check the shares of matchmakers, and return them."""
    for name in shares:
        if name not in known:
            raise ConfigError(
                f"{key}.{name}: {name!r} cannot be mixed; there are {', '.join(known)}"
            )
    total = sum(shares.values())
    if not shares:
        raise ConfigError(
            f"{key} is empty; set each matchmaker's share of the matches, as in "
            f"--{key}.self_play 0.5 --{key}.prioritized 0.5"
        )
    if abs(total - 1.0) > 1e-6:
        terms = " + ".join(f"{name} {share:g}" for name, share in shares.items())
        raise ConfigError(f"{key}: {terms} is {total:g}; they must add up to 1")
    return shares
