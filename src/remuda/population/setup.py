"""From the configuration of a population to its parts: policies, seats, teams, a matchmaker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from remuda.config import Config, PopulationConfig
from remuda.errors import ConfigError
from remuda.loading import load
from remuda.population.by_strength import Fitness, Prioritized
from remuda.population.director import Director, Directors, Replacement, Snapshots
from remuda.population.ledger import Ledger
from remuda.population.matchmakers import Fixed, Random, RoundRobin, SelfPlay, Teams
from remuda.population.matchmaking import Matchmaker
from remuda.population.records import Member, PolicyRef, Population
from remuda.population.refusals import check_seating
from remuda.types import AgentSpec

_DIRECTOR = "remuda.population.director"
LONGEST = 64
"""Characters in the name of a policy."""
SPARE = 2
"""Places for frozen copies beyond those that play: one that was dropped may still be in a match."""


def policy_names(config: Config, agents: Sequence[AgentSpec]) -> tuple[str, ...]:
    """The names of the policies that a run trains, those that may be born later too.

    Raises:
        ConfigError: a policy is named twice.
    """
    names = (*first_names(config, agents), *unborn(config))
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"population.policies names {name} twice")
    return names


def unborn(config: Config) -> tuple[str, ...]:
    """The names of the places that are empty at first."""
    return tuple(f"born_{i}" for i in range(config.population.births.places))


def first_names(config: Config, agents: Sequence[AgentSpec]) -> tuple[str, ...]:
    """The names of the policies that a run begins with.

    Raises:
        ConfigError: there are none, or one cannot be a name.
    """
    population = config.population
    asked = population.policies
    if population.teams and asked is None:
        asked = tuple(name for team in population.teams.values() for name in team.policies)
    if asked is None:
        if population.matchmaker == "self_play":
            return ("policy",)
        return tuple(agent.name for agent in agents)
    names = tuple(f"policy_{i}" for i in range(asked)) if isinstance(asked, int) else asked
    if not names:
        raise ConfigError("population.policies is empty; give a number or names")
    for name in names:
        if not _is_name(name):
            shown = name if len(name) <= LONGEST else name[:LONGEST] + "…"
            raise ConfigError(
                f"population.policies: {shown!r} is no name; take 1 to {LONGEST} characters, none "
                "of them / @ . or invisible, and no space or - in front"
            )
    return names


def _is_name(name: str) -> bool:
    """Whether a policy may be called so: its flags, copies and files are named after it."""
    plain = name.isprintable() and name == name.strip() and not name.startswith("-")
    return plain and 0 < len(name) <= LONGEST and not set(name) & set("/@.")


def seats_of(
    config: Config, agents: Sequence[AgentSpec], names: Sequence[str]
) -> dict[str, frozenset[int]]:
    """By policy, the seats that it may take, for those that may not take all.

    Who may take all seats by name is not among them either.

    Raises:
        ConfigError: a name that no policy, agent or team has.
    """
    population, numbers = config.population, {agent.name: i for i, agent in enumerate(agents)}
    found: dict[str, frozenset[int]] = {}

    def allow(name: str, seats: Sequence[str], key: str) -> None:
        if name not in names:
            raise ConfigError(f"{key}: there is no policy {name}; there are {', '.join(names)}")
        for seat in seats:
            if seat not in numbers:
                raise ConfigError(
                    f"{key}: {config.game} has no agent {seat}; it has {', '.join(numbers)}"
                )
        if not seats:
            raise ConfigError(f"{key}: no agent is named")
        found[name] = frozenset(numbers[seat] for seat in seats)

    sides = teams_of(population, agents)
    for team, members in population.teams.items():
        seats = [agents[i].name for i, side in enumerate(sides) if side == team]
        for name in members.policies:
            allow(name, seats, f"population.teams.{team}")
    for name, chosen in population.seats.items():
        allow(name, chosen, f"population.seats.{name}")
    return {name: seats for name, seats in found.items() if len(seats) < len(agents)}


def teams_of(population: PopulationConfig, agents: Sequence[AgentSpec]) -> tuple[str, ...]:
    """By seat, its team; an empty name: it stands for itself.

    Raises:
        ConfigError: an agent in two teams, or in none where there are teams.
    """
    own = tuple(agent.team for agent in agents)
    if not population.teams:
        return own
    if not any(team.agents for team in population.teams.values()):
        for agent, side in zip(agents, own, strict=True):
            if side not in population.teams:
                said = f"the game puts it into {side!r}" if side else "the game has no teams"
                raise ConfigError(
                    f"population.teams has no team for {agent.name}: {said}; name the agents of "
                    "each, as in --population.teams.red.agents [agent_0,agent_1]"
                )
        return own
    sides = {}
    for team, members in population.teams.items():
        for name in members.agents:
            if name in sides:
                raise ConfigError(f"population.teams: {name} is in two teams")
            sides[name] = team
    for agent in agents:
        if agent.name not in sides:
            raise ConfigError(f"population.teams: {agent.name} is in no team")
    return tuple(sides[agent.name] for agent in agents)


def make_matchmaker(
    config: Config, agents: Sequence[AgentSpec], names: Sequence[str]
) -> Matchmaker:
    """Who plays whom.

    Raises:
        ConfigError: there is no such matchmaker, or it cannot be made so.
    """
    population, seats = config.population, len(agents)
    if population.teams and population.matchmaker != "teams":
        raise ConfigError(
            f"population.teams is for the matchmaker teams, and population.matchmaker is "
            f"{population.matchmaker}"
        )
    if population.matchmaker == "teams" and not population.teams:
        raise ConfigError(
            "population.matchmaker teams needs population.teams, as in "
            "--population.teams.red.policies [red_0,red_1] --population.teams.red.agents [agent_0]"
        )
    known: Mapping[str, Callable[[], Matchmaker]] = {
        "fixed": lambda: Fixed([names[seat % len(names)] for seat in range(seats)]),
        "random": lambda: Random(seats),
        "round_robin": lambda: RoundRobin(seats),
        "fitness": lambda: Fitness(seats, population.window),
        "self_play": lambda: SelfPlay(seats, population.newest),
        "prioritized": lambda: Prioritized(seats, population.weighting),
        "teams": lambda: Teams(
            teams_of(population, agents),
            {team: members.policies for team, members in population.teams.items()},
        ),
    }
    share = population.snapshots.share
    if population.matchmaker in known:
        matchmaker = known[population.matchmaker]()
    elif ":" in population.matchmaker:
        matchmaker = _own(population, seats)
    else:
        raise ConfigError(
            f"population.matchmaker {population.matchmaker!r} is none; there are "
            f"{', '.join(known)}, or your own as module:Class"
        )
    matchmaker.name = population.matchmaker
    matchmaker.past_share = matchmaker.past_share if share is None else share
    return matchmaker


def make_director(population: PopulationConfig) -> Director | None:
    """Who exists; None: those who do.

    Raises:
        ConfigError: there is no such director, or it cannot be made so.
    """
    directors: list[Director] = []
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
            raise ConfigError(f"{key} is called with nothing: {error}") from None
        for method in ("step", "state", "restore"):
            if not callable(getattr(director, method, None)):
                raise ConfigError(f"{key} has no method {method}; see Director in {_DIRECTOR}")
        directors.append(director)
    return Directors(directors) if directors else None


def check_population(config: Config, agents: Sequence[AgentSpec], names: Sequence[str]) -> None:
    """Propose a match, as a run would, so that what cannot be is refused before it begins.

    Raises:
        ConfigError: no policy may take a seat, one is dealt a seat that it may not take, or
            whatever else is wrong.
    """
    if config.env.scripted:
        raise ConfigError(
            "env.scripted takes a seat for good, and population deals all seats by match; leave "
            "one of them out"
        )
    if config.population.members_from and config.population.matchmaker in ("fixed", "teams"):
        raise ConfigError(
            f"population.members_from is for matchmakers that deal seats to frozen copies of any "
            f"policy, and {config.population.matchmaker} names who plays; take another "
            "population.matchmaker"
        )
    births = config.population.births
    if births.places and config.population.matchmaker in ("fixed", "teams"):
        raise ConfigError(
            f"population.births.places is {births.places}, and the matchmaker "
            f"{config.population.matchmaker} names who plays; take another matchmaker, or 0"
        )
    if births.every is not None and not births.places:
        raise ConfigError(
            "population.births.every needs population.births.places, at least 1: the weakest "
            "policy retires once the newborn plays elsewhere"
        )
    make_director(config.population)
    allowed = seats_of(config, agents, names)
    free = [name for name in names if name not in allowed]
    if births.every is not None and (
        set(unborn(config)) - set(free) or len(free) < births.places + 2
    ):
        raise ConfigError(
            "population.births.every replaces policies that may take every seat, and needs two of "
            "them and free places; name fewer in population.seats, or let your own "
            "population.director choose"
        )
    _check_dealt(config, agents, names)
    names = [name for name in names if name not in unborn(config)]
    members = [Member(PolicyRef(name), allowed.get(name)) for name in names]
    population = Population(members)
    matchmaker = make_matchmaker(config, agents, names)
    (match,) = matchmaker.propose(population, Ledger(population), 1, np.random.default_rng(0))
    check_seating(population, match.seats, matchmaker.name, [agent.name for agent in agents])


def _check_dealt(config: Config, agents: Sequence[AgentSpec], names: Sequence[str]) -> None:
    """Refuse policies that would learn from nothing, those that may be born later too."""
    allowed = seats_of(config, agents, names)
    population = Population([Member(PolicyRef(name), allowed.get(name)) for name in names])
    matchmaker = make_matchmaker(config, agents, names)
    never = matchmaker.never_dealt(population)
    if not never:
        return
    said = f"the matchmaker {config.population.matchmaker} never deals"
    teams = config.population.teams.values()
    if teams and not any(never[0] in team.policies for team in teams):
        raise ConfigError(
            f"{said} {', '.join(never)}, of no team; add to population.teams.TEAM.policies, or "
            "leave out of population.policies"
        )
    if never[0] in allowed:
        seats = ", ".join(agents[seat].name for seat in sorted(allowed[never[0]]))
        raise ConfigError(
            f"{said} {never[0]}, which population.seats.{never[0]} keeps to {seats} of "
            f"{len(agents)} seats; leave population.seats.{never[0]} out, or take another "
            "population.matchmaker"
        )
    raise ConfigError(
        f"{said} {', '.join(never)}: it seats one policy for each of the {len(agents)} agents; "
        f"take population.policies {len(agents)}, or another population.matchmaker"
    )


def copies_of(population: PopulationConfig) -> int:
    """Places for frozen copies of each policy."""
    return population.snapshots.keep + SPARE if population.snapshots.on else 0


def expected_shares(
    config: Config, agents: Sequence[AgentSpec], names: Sequence[str]
) -> dict[str, float]:
    """By policy, the seats of a match that it is dealt on average while there is no past.

    A policy that may be born later is dealt as those are that may take the same seats. It takes up
    to seconds to find out, and a start asks several times: what was asked last is remembered.
    """
    population = config.population
    matchmaker = type(make_matchmaker(config, agents, names))  # one's own may be loaded anew
    sides = tuple((agent.name, agent.team) for agent in agents)
    key = (matchmaker, repr(population), sides, tuple(names))
    if key not in _SHARES:
        found = _count_shares(config, agents, names)
        _SHARES.clear()
        _SHARES[key] = found
    return dict(_SHARES[key])


_SHARES: dict[tuple[Any, ...], dict[str, float]] = {}
"""The shares that were counted last, by what they depend on."""


def _count_shares(
    config: Config, agents: Sequence[AgentSpec], names: Sequence[str]
) -> dict[str, float]:
    allowed, later = seats_of(config, agents, names), unborn(config)
    first = [name for name in names if name not in later]
    matchmaker = make_matchmaker(config, agents, names)

    def shares_among(these: Sequence[str]) -> dict[str, float]:
        members = [Member(PolicyRef(name), allowed.get(name)) for name in these]
        return matchmaker.expected_shares(Population(members))

    found = shares_among(first)
    for name in later:
        alike = [other for other in first if allowed.get(other) == allowed.get(name)]
        if alike:
            found[name] = sum(found[other] for other in alike) / len(alike)
        else:
            found[name] = shares_among(names)[name]
    return found


def sits_once(config: Config, agents: Sequence[AgentSpec], names: Sequence[str]) -> bool:
    """Whether a policy has one seat of a match at most."""
    first = len(names) - config.population.births.places
    enough = first >= len(agents) and not config.population.seats
    return enough and make_matchmaker(config, agents, names).seats_differ


def _own(population: PopulationConfig, seats: int) -> Matchmaker:
    found = load(population.matchmaker, f"population.matchmaker {population.matchmaker}")
    try:
        matchmaker = found(seats, **population.options)
    except TypeError as error:
        raise ConfigError(
            f"population.matchmaker {population.matchmaker} is called with the number of seats and "
            f"with population.options by name: {error}"
        ) from None
    if not isinstance(matchmaker, Matchmaker):
        raise ConfigError(
            f"population.matchmaker {population.matchmaker} must be a subclass of "
            "remuda.population.matchmaking.Matchmaker"
        )
    return matchmaker
