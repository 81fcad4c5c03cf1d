"""Make matchmakers and directors from the configuration and the roster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.random import Generator

from remuda.config import Config, PopulationConfig
from remuda.envs.registry import RANDOM, find_game
from remuda.errors import ConfigError
from remuda.population.directors.director import (
    Director,
    Directors,
    OwnDirector,
    Replacement,
    Snapshots,
)
from remuda.population.directors.exploiter_league import (
    LeagueDirector,
    Verification,
    league_matchmaker,
)
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import SCRIPTED, Member, PolicyRef, Population
from remuda.population.matchmaking.by_strength import Prioritized, SimilarRatings
from remuda.population.matchmaking.by_turn import Fixed, Random, RoundRobin, SelfPlay
from remuda.population.matchmaking.matchmaker import ForLearner, Matchmaker
from remuda.population.matchmaking.mixed import Mixed, check_shares
from remuda.population.matchmaking.reserved_seats import ReservedSeats
from remuda.population.matchmaking.seating import check_seating
from remuda.population.roster import Roster, check_name, seated_policies
from remuda.system.loading import load


def make_matchmaker(population: PopulationConfig, roster: Roster) -> Matchmaker:
    dealer = _dealer(population, roster)
    return ReservedSeats(dealer, roster.agents, roster.taken) if roster.taken else dealer


def _dealer(population: PopulationConfig, roster: Roster) -> Matchmaker:
    seats, names = len(roster.dealt_seats), roster.policies
    agents = [roster.agents[seat] for seat in roster.dealt_seats]
    if population.teams and population.matchmaker not in ("teams", "mixed"):
        raise ConfigError(
            f"population.teams is for the matchmakers teams and mixed, but population.matchmaker "
            f"is {population.matchmaker}"
        )
    if population.matchmaker == "teams" and not population.teams:
        raise ConfigError(
            "population.matchmaker teams needs population.teams, as in "
            "--population.teams.red.policies [red_0,red_1] --population.teams.red.agents [agent_0]"
        )
    known: Mapping[str, Callable[[], Matchmaker]] = {
        "fixed": lambda: Fixed(seated_policies(population, names, agents)),
        "random": lambda: Random(seats),
        "round_robin": lambda: RoundRobin(seats),
        "fitness": lambda: SimilarRatings(seats, population.window),
        "self_play": lambda: SelfPlay(seats, population.newest),
        "prioritized": lambda: Prioritized(seats, population.weighting),
        "teams": lambda: Random(seats),  # policies may only take the seats of their team
        "mixed": lambda: _mixed(population, roster),
        "league": lambda: league_matchmaker(seats, population.league),
    }
    share = population.snapshots.share
    if population.matchmaker in known:
        matchmaker = known[population.matchmaker]()
    elif ":" in population.matchmaker:
        matchmaker = _own(population, seats)
    else:
        raise ConfigError(
            f"population.matchmaker {population.matchmaker!r} does not exist; there are "
            f"{', '.join(known)}, or your own as module:Class"
        )
    if seats < 2 and population.matchmaker in ("mixed", "league"):
        raise ConfigError(
            f"population.matchmaker {population.matchmaker} chooses opponents, but the game has "
            f"one agent{' that is dealt a policy' if roster.taken else ''}; leave it out"
        )
    matchmaker.name = population.matchmaker
    matchmaker.past_share = matchmaker.past_share if share is None else share
    return matchmaker


def _mixed(population: PopulationConfig, roster: Roster) -> Mixed:
    seats, share = len(roster.dealt_seats), population.snapshots.share
    self_play = SelfPlay(seats, population.newest)
    prioritized, uniform = Prioritized(seats, population.weighting), Prioritized(seats, "uniform")
    if share is not None:
        self_play.past_share = prioritized.past_share = uniform.past_share = share
    parts: dict[str, ForLearner] = {
        "self_play": self_play,
        "prioritized": prioritized,
        "random": uniform,
        "verification": Verification(seats, self_play),
    }
    own = population.policy_shares
    for policy in own:
        check_shares(own[policy], f"population.policy_shares.{policy}", parts)
    if population.shares or set(roster.policies) - set(own):
        check_shares(population.shares, "population.shares", parts)
    return Mixed(seats, parts, population.shares, own, population.has_frozen)


def make_director(
    population: PopulationConfig, more: Sequence[Director] = (), rng: Generator | None = None
) -> Director | None:
    """Make the director of a run; None if no members are added or removed during the run."""
    directors: list[Director] = []
    if population.matchmaker == "league":
        rng = np.random.default_rng(0) if rng is None else rng
        directors.append(LeagueDirector(population.league, population.snapshots, rng))
    if population.snapshots.on:
        directors.append(Snapshots(population.snapshots))
    if population.births.every is not None:
        directors.append(Replacement(population.births))
    if population.director:
        key = f"population.director {population.director}"
        found = load(population.director, key)
        try:
            director = found()
        except TypeError as error:
            raise ConfigError(f"{key} is called without arguments: {error}") from None
        for method in ("step", "state", "restore"):
            if not callable(getattr(director, method, None)):
                raise ConfigError(f"{key} has no method {method}; see remuda.population.Director")
        directors.append(OwnDirector(population.director, director, population.snapshots))
    directors += more
    return Directors(directors) if directors else None


def check_population(config: Config, roster: Roster) -> None:
    """Refuse an impossible population before a run starts; this proposes a trial match."""
    population, births = config.population, config.population.births
    if population.matchmaker in ("fixed", "teams"):
        for key in ("scripted", "members_from", "births.slots"):
            may_be_listed = population.matchmaker == "teams" and key != "births.slots"
            if attrgetter(key)(population) and not may_be_listed:
                raise ConfigError(
                    f"population.{key} is for matchmakers that deal seats to any policy, but "
                    f"{population.matchmaker} deals only to certain policies; use another "
                    f"population.matchmaker, such as random, or leave population.{key} out"
                )
    _check_scripted(config, roster)
    if births.every is not None and not births.slots:
        raise ConfigError(
            "population.births.every needs population.births.slots, at least 1: the weakest "
            "policy retires once the newborn plays in another slot"
        )
    if population.matchmaker == "league":
        _check_league(population)
    for name in population.policy_shares:
        if name not in roster.policies:
            raise ConfigError(
                f"population.policy_shares.{name}: there is no policy {name}; there are "
                f"{', '.join(roster.policies)}"
            )
    director = make_director(population)
    if director is not None:
        director.state()  # refuses a state that no checkpoint can contain
    free = [name for name in roster.policies if roster.is_free(name)]
    if births.every is not None and (
        set(roster.unborn) - set(free) or len(free) < births.slots + 2
    ):
        raise ConfigError(
            "population.births.every replaces policies that may take every seat, and needs two "
            "such policies and unrestricted slots; restrict fewer policies in population.seats, or "
            "use your own population.director"
        )
    _check_dealt(config, roster)
    members = _population(roster, roster.first)
    matchmaker = make_matchmaker(population, roster.among(roster.first))
    (match,) = matchmaker.propose(members, Ledger(members), 1, np.random.default_rng(0))
    check_seating(members, match.seats, matchmaker.name, roster.agents)
    if population.matchmaker == "round_robin" and population.seats:
        several = matchmaker.propose(members, Ledger(members), 20, np.random.default_rng(0))
        if all(len(set(each.seats)) < len(each.seats) for each in several):
            raise ConfigError(
                "the matchmaker round_robin finds no combination of different policies that may "
                "take the seats together; let population.seats allow more of them"
            )


def _check_scripted(config: Config, roster: Roster) -> None:
    """Refuse scripted policies that cannot be members of the population, or would never play."""
    population = config.population
    for agent in roster.reserved_members:
        for key, names in (("policies", roster.policies), ("scripted", population.scripted)):
            if agent in names:
                raise ConfigError(
                    f"env.scripted.{agent} reserves the seat of {agent} for a member with the name "
                    f"{agent}, but another member has this name; change it in population."
                    f"{'sharing' if population.sharing else key}"
                )
    if not population.scripted:
        return
    for name in population.scripted:
        check_name(name, "population.scripted")
        if name in roster.policies:
            raise ConfigError(
                f"population.scripted.{name}: a learning policy has the name {name}; give the "
                f"scripted policy another name, as in --population.scripted.{name[:32]}_bot "
                f"{population.scripted[name]}"
            )
    if len(roster.dealt_seats) == 1:
        raise ConfigError(
            f"population.scripted: {config.game} has one seat that is dealt, which a policy that "
            "learns takes in every match; leave population.scripted out"
        )
    learning = {seat for name in roster.policies for seat in roster.seats_of(name)}
    for seat in roster.dealt_seats:
        if seat not in learning and not population.teams:
            agent = roster.agents[seat]
            raise ConfigError(
                f"population.seats leaves {agent} only to scripted policies; use "
                f"--env.scripted.{agent} if a scripted policy should play {agent} in every match, "
                f"or add {agent} to population.seats of a learning policy"
            )
    share = population.snapshots.share
    unseated = [name for name in population.scripted if learning.issuperset(roster.seats_of(name))]
    if share == 0.0 and unseated and ":" not in population.matchmaker:
        raise ConfigError(
            f"population.snapshots.share is 0, and scripted policies such as {unseated[0]} take "
            "seats in that share; make it more than 0, or leave population.scripted out"
        )
    if population.matchmaker == "self_play" and share is None and population.newest == 1.0:
        raise ConfigError(
            f"population.newest is 1, so self_play deals no seat to "
            f"{', '.join(population.scripted)}; make it less, or leave population.scripted out"
        )


def _check_league(population: PopulationConfig) -> None:
    for key, is_set, instead in (
        ("policies", population.policies is not None, "main and the numbers of exploiters"),
        ("births.slots", population.births.slots > 0, "reset: policies restart in their slots"),
        ("births.every", population.births.every is not None, "reset"),
        ("evolution.every", population.evolution.on, "reset"),
        ("snapshots.every", population.snapshots.every is not None, "after and timeout"),
        ("snapshots.win_rate", population.snapshots.win_rate is not None, "win_rate"),
    ):
        if is_set:
            raise ConfigError(
                f"population.{key} is not for a league; leave it out, and see population.league: "
                f"{instead}"
            )


def _population(roster: Roster, policies: Sequence[str]) -> Population:
    refs = [PolicyRef(name) for name in policies]
    refs += [PolicyRef(name, SCRIPTED) for name in roster.scripted]
    refs += [PolicyRef(name, 0) for name in roster.imported]
    return Population([Member(ref, roster.seats.get(ref.policy)) for ref in refs])


def _check_dealt(config: Config, roster: Roster) -> None:
    """Refuse policies that the matchmaker would never deal."""
    population, seats, policies = config.population, len(roster.dealt_seats), roster.policies
    start = f"the matchmaker {population.matchmaker} never deals"
    if population.teams and population.matchmaker in ("teams", "mixed"):
        for key, names in (
            ("policies", policies if population.matchmaker == "teams" else ()),
            ("scripted", population.scripted),
            ("members_from", population.members_from),
        ):
            unlisted = [name for name in names if not population.team_of(name)]
            if unlisted:
                raise ConfigError(
                    f"population.{key}: no team lists {', '.join(unlisted)}; add them to "
                    f"population.teams.TEAM.policies, or leave them out of population.{key}"
                )
        _check_slots_in_teams(roster)
        game = find_game(config.game)
        for name in population.learning_in_teams if population.policies is None else ():
            if name in (RANDOM, *game.scripted):
                raise ConfigError(
                    f"population.teams.{population.team_of(name)}.policies: {name} is a scripted "
                    f"policy of {config.game}; name a member, as in --population.scripted."
                    f"{name}_bot {name}, and list {name}_bot; or list another name to learn"
                )
    if population.matchmaker == "self_play" and not population.teams:
        for name in policies:
            if not roster.is_free(name):
                own = ", ".join(roster.agents[seat] for seat in roster.seats_of(name))
                raise ConfigError(
                    f"{start} {name}, which population.seats.{name} restricts to {own} of {seats} "
                    f"seats; leave population.seats.{name} out, or use another "
                    "population.matchmaker"
                )
    if population.matchmaker == "fixed" and len(policies) > seats:
        raise ConfigError(
            f"{start} {', '.join(policies[seats:])}: it seats one policy for each of the {seats} "
            f"agents; set population.policies {seats}, or another population.matchmaker"
        )


def _check_slots_in_teams(roster: Roster) -> None:
    """Refuse slots in which a newborn might take the seats of a team that does not learn."""
    learning = {seat for name in roster.first for seat in roster.seats_of(name)}
    fixed = [seat for seat in roster.dealt_seats if seat not in learning]
    for name in roster.unborn:
        if set(roster.seats_of(name)) & set(fixed):
            raise ConfigError(
                f"population.births.slots: {name} might take the seat of "
                f"{roster.agents[fixed[0]]}, whose team lists no policy that learns; restrict it, "
                f"as in --population.seats.{name} "
                f"[{','.join(roster.agents[seat] for seat in sorted(learning))}], or leave "
                "population.births.slots out"
            )


def expected_shares(population: PopulationConfig, roster: Roster) -> dict[str, float]:
    """Return each policy's mean number of seats per match while there are no frozen copies.

    A policy born later gets the mean of the policies with the same allowed seats. The last result
    is cached: computing it takes up to seconds, and the start of a run needs it several times.
    """
    matchmaker = type(_dealer(population, roster))  # changes if a custom class is reloaded
    seats = (roster.agents, roster.teams, roster.taken)
    key = (matchmaker, repr(population), *seats, roster.policies)
    if key not in _SHARES:
        found = _count_shares(population, roster)
        _SHARES.clear()
        _SHARES[key] = found
    return dict(_SHARES[key])


_SHARES: dict[tuple[Any, ...], dict[str, float]] = {}


def _count_shares(population: PopulationConfig, roster: Roster) -> dict[str, float]:
    seats, matchmaker = roster.seats, make_matchmaker(population, roster)
    found = matchmaker.expected_shares(_population(roster, roster.first))
    for name in roster.unborn:
        alike = [other for other in roster.first if seats.get(other) == seats.get(name)]
        if alike:
            found[name] = sum(found[other] for other in alike) / len(alike)
        else:
            together = matchmaker.expected_shares(_population(roster, roster.policies))
            found[name] = together[name]
    return found


def sits_once(population: PopulationConfig, roster: Roster) -> bool:
    """Return whether no policy has more than one seat in a match."""
    restricted = population.seats or population.teams
    enough = len(roster.first) >= len(roster.dealt_seats) and not restricted
    return enough and _dealer(population, roster).seats_differ


def _own(population: PopulationConfig, seats: int) -> Matchmaker:
    found = load(population.matchmaker, f"population.matchmaker {population.matchmaker}")
    try:
        matchmaker = found(seats, **population.options)
    except TypeError as error:
        raise ConfigError(
            f"population.matchmaker {population.matchmaker} is called with the number of seats and "
            f"with population.options as keywords: {error}"
        ) from None
    if not isinstance(matchmaker, Matchmaker):
        raise ConfigError(
            f"population.matchmaker {population.matchmaker} must be a subclass of "
            "remuda.population.Matchmaker"
        )
    if not hasattr(matchmaker, "proposed"):
        raise ConfigError(
            f"population.matchmaker {population.matchmaker}: its __init__ does not call "
            "super().__init__ with the number of seats"
        )
    return matchmaker
