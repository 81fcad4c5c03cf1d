"""Matchmaking in a league of main agents and exploiters (Vinyals et al. 2019).

"Grandmaster level in StarCraft II using multi-agent reinforcement learning", Methods and the
pseudocode of its supplement (`multiagent.py`). The rules for two players apply here to each of the
other seats.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from remuda.config import LeagueConfig
from remuda.errors import ConfigError
from remuda.population.by_strength import Prioritized, even, hard
from remuda.population.ledger import Ledger
from remuda.population.matchmaking import ForLearner
from remuda.population.mixed import Mixed, check_shares
from remuda.population.records import Member, Numbers, Population
from remuda.population.seating import Seating
from remuda.types import Array, Bools

MAIN_WINS = 0.3
"""A main agent plays a current main agent if it wins more than this, else one of its copies."""
EXPLOITER_WINS = 0.2  # the same for a main exploiter (the paper's text; its pseudocode has 0.1)
EXPLOITED = 0.3
"""A main agent is exploited if it wins less than this against a copy of an exploiter."""
FORGOT = 0.7
"""A main agent has forgotten a copy of a main agent if it wins less than this against it."""


def league_matchmaker(num_seats: int, config: LeagueConfig) -> Mixed:
    """Return the matchmaker of a league.

    A main agent has its shares of self-play, of all frozen copies by (1 - x)^2, and of
    verification; a main exploiter plays against main agents; a league exploiter against all frozen
    copies by min(0.5, 1 - x). While there are no copies, live policies take their seats.
    """
    roles = config.roles
    _check_roles(config)
    mains = roles["main"]
    self_play = AgainstMains(num_seats, mains, MAIN_WINS)
    all_copies = Prioritized(num_seats, "hard")
    all_capped = Prioritized(num_seats, "capped")
    all_copies.past_share = all_capped.past_share = 1.0
    parts: dict[str, ForLearner] = {
        "self_play": self_play,
        "prioritized": all_copies,
        "verification": Verification(num_seats, self_play, mains, roles["main_exploiter"]),
        "main_agents": AgainstMains(num_seats, mains, EXPLOITER_WINS),
        "league": all_capped,
    }
    of_main = {
        "self_play": config.self_play,
        "prioritized": config.prioritized,
        "verification": config.verification,
    }
    check_shares(of_main, "population.league", parts)
    of_role = {
        "main": of_main,
        "main_exploiter": {"main_agents": 1.0},
        "league_exploiter": {"league": 1.0},
    }
    own = {policy: of_role[role] for role, names in roles.items() for policy in names}
    return Mixed(
        num_seats,
        parts,
        of_main,
        own,
        keeps_copies=True,
        own_matches=config.learn_from == "own",
        favoured=mains,
        favoured_share=config.main_share,
    )


def _check_roles(config: LeagueConfig) -> None:
    names = config.policies
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"population.league names {name} twice")
    if not config.roles["main"]:
        raise ConfigError("population.league.main is empty; give a number or names")
    if len(names) < 2:
        raise ConfigError(
            f"population.league has one policy, {names[0]}; give it exploiters, as in "
            "--population.league.main_exploiters 1, or take population.matchmaker self_play"
        )
    share = config.main_share
    if share is not None and not 0.0 < share < 1.0:
        raise ConfigError(
            f"population.league.main_share is {share:g}, which leaves nothing to "
            f"{'exploiters' if share else 'main agents'}; give a number between 0 and 1"
        )
    if share is not None and len(names) == len(config.roles["main"]):
        raise ConfigError(
            "population.league.main_share is for leagues with exploiters, and all of this one are "
            "main agents; leave it out, or give it exploiters"
        )


class AgainstMains:
    """Opponents are current main agents, or their copies while they are too strong.

    Each other seat goes to a main agent, all equally likely, including the learner itself if it is
    one. If the learner wins too little against it, the seat goes to one of its frozen copies
    instead, with probability in proportion to x (1 - x), where x is the learner's win rate against
    the copy: a curriculum.
    """

    def __init__(self, num_seats: int, mains: Collection[str], wins: float) -> None:
        """Play against these main agents; against their live weights above this win rate."""
        self.num_seats, self._mains, self._wins = num_seats, frozenset(mains), wins

    def seat_for(
        self,
        learner: Member,
        place: int,
        population: Population,
        ledger: Ledger,
        rng: np.random.Generator,
    ) -> Seating:
        """Seat this learner on this seat, and main agents on the others."""

        def opponent(seat: int) -> Member:
            mains = mains_for(population, self._mains, seat)
            if not mains:
                return draw(population.for_seat(seat), rng)
            main = draw(mains, rng)
            if main is learner or win_rates(ledger, learner, [main])[0] > self._wins:
                return main
            past = [m for m in population.past_of(main.ref.policy) if m.may_sit(seat)]
            if not past:
                return main
            return past[draw_row(even(1.0 - win_rates(ledger, learner, past)), rng)]

        return tuple(
            (learner if seat == place else opponent(seat)).ref for seat in range(self.num_seats)
        )


class Verification:
    """Opponents are frozen copies that the learner has started to lose to, by (1 - x)^2.

    First those of exploiters, if it wins less than `EXPLOITED` against one of them. Then those of a
    main agent, all equally likely, if it wins less than `FORGOT` against one of them; the newest
    are left out as long as each is harder to beat than the one before. If there is nothing to
    verify, `otherwise` deals the match.
    """

    def __init__(
        self,
        num_seats: int,
        otherwise: ForLearner,
        mains: Collection[str] | None = None,
        exploiters: Collection[str] | None = None,
    ) -> None:
        """Verify against copies of these policies."""
        self.num_seats, self._otherwise = num_seats, otherwise
        self._mains = None if mains is None else frozenset(mains)
        self._exploiters = None if exploiters is None else frozenset(exploiters)

    def seat_for(
        self,
        learner: Member,
        place: int,
        population: Population,
        ledger: Ledger,
        rng: np.random.Generator,
    ) -> Seating:
        """Seat this learner on this seat, and copies to verify on the others."""
        copies = self._of_exploiters(learner, population)
        if copies:
            rates = win_rates(ledger, learner, copies)
            if rates.min() < EXPLOITED:
                weights = hard(1.0 - rates)
                return fill(learner, place, self.num_seats, copies, weights, population, rng)
        main = learner
        if self._mains is not None:
            mains = tuple(m for m in population.learning if m.ref.policy in self._mains)
            main = draw(mains, rng) if mains else learner
        past = population.past_of(main.ref.policy)
        rates = win_rates(ledger, learner, past)
        kept = without_monotonic_suffix(rates)
        if kept and rates[:kept].min() < FORGOT:
            weights = hard(1.0 - rates[:kept])
            return fill(learner, place, self.num_seats, past[:kept], weights, population, rng)
        return self._otherwise.seat_for(learner, place, population, ledger, rng)

    def _of_exploiters(self, learner: Member, population: Population) -> tuple[Member, ...]:
        exploiters, own = self._exploiters, learner.ref.policy
        if exploiters is None:
            return population.view(
                ("copies of others", own),
                lambda: tuple(m for m in population.frozen if m.ref.policy != own),
            )
        return population.view(
            ("copies of", exploiters),
            lambda: tuple(m for m in population.frozen if m.ref.policy in exploiters),
        )


def without_monotonic_suffix(rates: Numbers) -> int:
    """Return how many of the oldest copies remain without those each harder than the last.

    Newer copies that are harder to beat are not forgetting (`remove_monotonic_suffix` of the
    pseudocode).
    """
    easier = np.flatnonzero(rates[:-1] < rates[1:])
    return int(easier[-1]) + 2 if len(easier) else 0


def fill(
    learner: Member,
    place: int,
    num_seats: int,
    opponents: Sequence[Member],
    weights: Array,
    population: Population,
    rng: np.random.Generator,
) -> Seating:
    """Seat the learner, and on each other seat one of these opponents, drawn by weight.

    None sits twice while others may take the seat. A seat that none of them may take goes to any
    member that may.
    """
    left: Bools = np.ones(len(opponents), np.bool_)
    seats = []
    for seat in range(num_seats):
        if seat == place:
            seats.append(learner.ref)
            continue
        able = np.array([member.may_sit(seat) for member in opponents], np.bool_)
        able = able & left if (able & left).any() else able
        if not able.any():
            seats.append(draw(population.for_seat(seat), rng).ref)
            continue
        rows = np.flatnonzero(able)
        row = int(rows[draw_row(weights[rows], rng)])
        left[row] = False
        seats.append(opponents[row].ref)
    return tuple(seats)


def draw(members: Sequence[Member], rng: np.random.Generator) -> Member:
    """Draw one of these uniformly."""
    return members[int(rng.random() * len(members))]


def draw_row(weights: Array, rng: np.random.Generator) -> int:
    """Draw an index by weight; uniformly if all weights are 0."""
    sums = weights.cumsum()
    if sums[-1] <= 0.0:
        return int(rng.random() * len(weights))
    drawn = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    return min(drawn, len(weights) - 1)


def mains_for(population: Population, mains: frozenset[str], seat: int) -> tuple[Member, ...]:
    """Return the live main agents that may take a seat."""
    return population.view(
        ("mains", mains, population.kind_of_seat(seat)),
        lambda: tuple(m for m in population.live_for_seat(seat) if m.ref.policy in mains),
    )


def win_rates(ledger: Ledger, learner: Member, others: Sequence[Member]) -> Numbers:
    """Return a learner's win rates against others: [len(others)], 0.5 if unknown."""
    return ledger.win_rates_at(learner.place, np.array([m.place for m in others], np.int64))
