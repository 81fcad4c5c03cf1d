"""The roster of a run: its policies, their seats and teams, and slots for later births."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from remuda.config import Config, PopulationConfig
from remuda.errors import ConfigError
from remuda.population.members.imported import Origin
from remuda.types import AgentSpec

LONGEST = 64
# extra slots per policy, since a frozen copy that is dropped may still be in a match
SPARE = 2


@dataclass(frozen=True)
class Roster:
    """The possible participants in the matches of a run."""

    agents: tuple[str, ...]  # the name of each seat's agent
    first: tuple[str, ...] = ()
    unborn: tuple[str, ...] = ()  # policies that may be born later: initially empty slots
    # allowed seats of each policy, scripted policy or `imported` entry that may not take all seats
    seats: Mapping[str, frozenset[int]] = field(default_factory=dict)
    teams: tuple[str, ...] = ()  # each seat's team; a seat without a team is a side
    scripted: tuple[str, ...] = ()  # including members on reserved seats, named after their agents
    taken: tuple[int, ...] = ()  # seats that `env.scripted` reserves, and no matchmaker assigns
    imported: tuple[str, ...] = ()  # entries of `population.members_from` that a team lists

    @staticmethod
    def of(config: Config, agents: Sequence[AgentSpec]) -> Roster:
        """Return the roster of a run; with fixed seats, policies are named after the agents."""
        names = tuple(agent.name for agent in agents)
        if names and set(names) <= set(config.env.scripted):
            raise ConfigError(
                f"env.scripted takes all seats of {config.game} ({', '.join(names)}), so there is "
                f"none for learning policies; leave env.scripted.{names[0]} out, or play with "
                f"`remuda play {config.game}`"
            )
        if config.population.sharing:
            _check_sharing(config, names)
        policies, later = policy_names(config, agents), unborn(config)
        return Roster(
            names,
            policies[: len(policies) - len(later)],
            later,
            _seats(config, agents, policies) if config.population.dealt else {},
            _teams(config, agents),
            tuple(config.scripted_members),
            tuple(i for i, name in enumerate(names) if name in config.seats_taken),
            tuple(filter(config.population.team_of, config.population.members_from)),
        )

    @property
    def policies(self) -> tuple[str, ...]:
        return (*self.first, *self.unborn)

    @property
    def dealt_seats(self) -> list[int]:
        """The seats that the matchmaker assigns: all except reserved seats."""
        return [seat for seat in range(len(self.agents)) if seat not in self.taken]

    @property
    def reserved_members(self) -> list[str]:
        return [self.agents[seat] for seat in self.taken]

    def is_free(self, policy: str) -> bool:
        return len(self.seats_of(policy)) == len(self.dealt_seats)

    def seats_of(self, policy: str) -> list[int]:
        return sorted(self.seats.get(policy, range(len(self.agents))))

    def among(self, policies: Iterable[str]) -> Roster:
        """Return the roster with only these policies, all of them present from the start."""
        return replace(self, first=tuple(policies), unborn=())

    def with_imported(self, origins: Sequence[Origin]) -> Roster:
        """Return the roster with members of other runs, which may take the seats of `like`."""
        own = {o.name: frozenset(o.seats) or self.seats.get(o.like) for o in origins}
        known = {name: seats for name, seats in own.items() if seats}
        return replace(self, seats={**self.seats, **known})

    def fixed_on(self, seat: int) -> list[str]:
        """Return the members that play a seat if no policy that learns may take it."""
        if any(seat in self.seats_of(name) for name in self.policies):
            return []
        return [name for name in (*self.scripted, *self.imported) if seat in self.seats_of(name)]


def seated_policies(
    population: PopulationConfig, policies: Sequence[str], agents: Sequence[str]
) -> list[str]:
    """Return the policy of each of these agents on fixed seats: that of `sharing`, or in turn."""
    if not population.sharing:
        return [policies[seat % len(policies)] for seat in range(len(agents))]
    return [
        next((p for key, p in population.sharing.items() if _matches(agent, key)), agent)
        for agent in agents
    ]


def _matches(agent: str, pattern: str) -> bool:
    return agent == pattern or fnmatchcase(agent, pattern)


def _check_sharing(config: Config, agents: Sequence[str]) -> None:
    """Refuse settings that contradict `population.sharing`, and patterns without agents."""
    population = config.population
    for key, is_set in (
        (f"matchmaker {population.matchmaker}", population.matchmaker != "fixed"),
        ("policies", population.policies is not None),
        ("seats", bool(population.seats)),
        ("teams", bool(population.teams)),
        ("snapshots", population.snapshots.on),
        ("members_from", bool(population.members_from)),
        ("births.slots", population.births.slots > 0),
        ("evolution", population.evolution.on),
        ("director", bool(population.director)),
        ("scripted", bool(population.scripted)),
    ):
        if is_set:
            raise ConfigError(
                f"population.sharing fixes the policy of every seat, so population.{key} cannot "
                "be combined with it; leave one of them out"
            )
    learning = left = [agent for agent in agents if agent not in config.seats_taken]
    for pattern, policy in population.sharing.items():
        check_name(policy, f"population.sharing.{pattern}")
        if not any(_matches(agent, pattern) for agent in left):
            already = any(_matches(agent, pattern) for agent in learning)
            why = "earlier patterns match its agents" if already else "it matches no agent"
            raise ConfigError(
                f"population.sharing.{pattern} has no effect: {why} (the agents that learn are "
                f"{', '.join(learning)}); change it, or leave it out"
            )
        left = [agent for agent in left if not _matches(agent, pattern)]


def policy_names(config: Config, agents: Sequence[AgentSpec]) -> tuple[str, ...]:
    """Return the names of all policies that a run trains, including those born later."""
    names = (*_first_names(config, agents), *unborn(config))
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{_names_key(config)} contains {name} twice")
    return names


def unborn(config: Config) -> tuple[str, ...]:
    """Return the names of the initially empty slots, which do not depend on the environment."""
    return tuple(f"born_{i}" for i in range(config.population.births.slots))


def copies_of(population: PopulationConfig) -> int:
    frozen = population.snapshots.keep + SPARE if population.keeps_copies else 0
    return frozen + population.has_stand_ins  # one more to stand in for a replaced policy


def _first_names(config: Config, agents: Sequence[AgentSpec]) -> tuple[str, ...]:
    population = config.population
    if population.sharing:
        learning = [agent.name for agent in agents if agent.name not in config.seats_taken]
        return tuple(dict.fromkeys(seated_policies(population, (), learning)))
    configured = (
        population.league.policies if population.matchmaker == "league" else population.policies
    )
    if population.teams and configured is None:
        configured = population.learning_in_teams
        _check_names_in_teams(population)
    if configured is None:
        if population.matchmaker in ("self_play", "mixed"):
            return ("policy",)
        return tuple(agent.name for agent in agents if agent.name not in config.seats_taken)
    names = (
        tuple(f"policy_{i}" for i in range(configured))
        if isinstance(configured, int)
        else configured
    )
    if not names:
        raise ConfigError(f"{_names_key(config)} is empty; give a number or names")
    for name in names:
        check_name(name, _names_key(config))
    return names


def _check_names_in_teams(population: PopulationConfig) -> None:
    """Refuse teams without a policy that learns, and names that are of another kind of member."""
    if not population.learning_in_teams and any(t.policies for t in population.teams.values()):
        raise ConfigError(
            "population.teams lists only scripted policies and policies of other runs, so none "
            "learns; add a policy to a team, or let them play in `remuda tournament`"
        )
    for name in population.learning_in_teams:
        if set(name) & set(":/@"):
            raise ConfigError(
                f"population.teams.{population.team_of(name)}.policies: {name} is not the name of "
                "a policy that learns; if it is of another run, list the same text in "
                "population.members_from; if it is code, name it in population.scripted"
            )


def _names_key(config: Config) -> str:
    is_league = config.population.matchmaker == "league"
    return "population.league" if is_league else "population.policies"


def check_name(name: str, key: str) -> None:
    """Refuse names that would break flags, references or file names."""
    plain = name.isprintable() and name == name.strip() and not name.startswith("-")
    if not (plain and 0 < len(name) <= LONGEST and not set(name) & set("/@.")):
        shown = name if len(name) <= LONGEST else name[:LONGEST] + "…"
        raise ConfigError(
            f"{key}: {shown!r} is not a valid name; use 1 to {LONGEST} visible characters "
            "without / @ . and without a space or - at the start"
        )


def _seats(
    config: Config, agents: Sequence[AgentSpec], names: Sequence[str]
) -> dict[str, frozenset[int]]:
    """Return the allowed seats of each learning or scripted policy that may not take all seats."""
    population, numbers = config.population, {agent.name: i for i, agent in enumerate(agents)}
    known = (*names, *population.scripted)
    taken = config.seats_taken
    left = [agent.name for agent in agents if agent.name not in taken]
    found: dict[str, frozenset[int]] = {}

    def allow(name: str, seats: Sequence[str], key: str, imported: Sequence[str] = ()) -> None:
        if name not in known and name not in imported:
            raise ConfigError(f"{key}: there is no policy {name}; there are {', '.join(known)}")
        for seat in seats:
            if seat not in numbers:
                raise ConfigError(
                    f"{key}: {config.game} has no agent {seat}; it has {', '.join(numbers)}"
                )
            if seat in taken:
                raise ConfigError(
                    f"{key}: env.scripted.{seat} reserves the seat of {seat}; list other agents "
                    f"({', '.join(left)}), or leave env.scripted.{seat} out"
                )
        if not seats:
            raise ConfigError(f"{key}: the list of agents is empty")
        found[name] = frozenset(numbers[seat] for seat in seats)

    for name in known if taken else ():
        allow(name, left, "env.scripted")
    found |= {name: frozenset((numbers[name],)) for name in taken if name in numbers}
    if population.matchmaker == "fixed":
        seated = seated_policies(population, names, left)
        for policy in names:
            own = [agent for agent, each in zip(left, seated, strict=True) if each == policy]
            if own:
                allow(policy, own, "population.policies")
    sides = _teams(config, agents)
    own_seats: dict[str, Sequence[str]] = {}  # of each policy of a team
    for team, members in population.teams.items():
        seats = [agents[i].name for i, side in enumerate(sides) if side == team]
        seats = [agent for agent in seats if agent not in taken]
        if not seats and any(side == team for side in sides):
            raise ConfigError(
                f"population.teams.{team}: env.scripted reserves all its seats; leave one to "
                f"its policies, or leave population.teams.{team} out"
            )
        if seats and not members.policies:
            raise ConfigError(f"population.teams.{team} has a seat but no policy")
        for name in members.policies:
            twice = "; give it a second name in population.scripted" * (name in population.scripted)
            if name in own_seats:
                raise ConfigError(f"population.teams: the policy {name} plays for two teams{twice}")
            own_seats[name] = seats
            allow(name, seats, f"population.teams.{team}", population.members_from)
    for name, chosen in population.seats.items():
        allow(name, chosen, f"population.seats.{name}")
        if name in own_seats:
            found[name] &= {numbers[seat] for seat in own_seats[name]}
        if not found[name]:
            raise ConfigError(
                f"population.seats.{name}: the team of {name} has other seats: "
                f"{', '.join(own_seats[name])}"
            )
    return {name: seats for name, seats in found.items() if len(seats) < len(agents)}


def _teams(config: Config, agents: Sequence[AgentSpec]) -> tuple[str, ...]:
    """Return each seat's team; a seat without a team has "". Reserved seats need no team."""
    population, taken = config.population, config.seats_taken
    own = tuple(agent.team for agent in agents)
    if not population.teams:
        return own
    if not any(team.agents for team in population.teams.values()):
        for agent, side in zip(agents, own, strict=True):
            if side not in population.teams and agent.name not in taken:
                fault = f"the game puts it into {side!r}" if side else "the game has no teams"
                raise ConfigError(
                    f"population.teams has no team for {agent.name}: {fault}; list the agents of "
                    "each team, as in --population.teams.red.agents [agent_0,agent_1]"
                )
        return own
    sides = {}
    for team, members in population.teams.items():
        for name in members.agents:
            if name in sides:
                raise ConfigError(f"population.teams: {name} is in two teams")
            sides[name] = team
    for agent in agents:
        if agent.name not in sides and agent.name not in taken:
            raise ConfigError(f"population.teams: {agent.name} is in no team")
    return tuple(sides.get(agent.name, "") for agent in agents)
