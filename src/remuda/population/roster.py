"""The roster: which policies there are, which seats each may take, which teams and empty places.

It is worked out once from the configuration and the agents of the game; all else reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from remuda.config import Config, PopulationConfig
from remuda.errors import ConfigError
from remuda.population.imported import Origin
from remuda.types import AgentSpec

LONGEST = 64
"""Characters in the name of a policy."""
SPARE = 2
"""Places for frozen copies beyond those that play: one that was dropped may still be in a match."""


@dataclass(frozen=True)
class Roster:
    """Who may take part in the matches of a run."""

    agents: tuple[str, ...]
    """By seat, the name of its agent."""
    first: tuple[str, ...] = ()
    """The policies that the run begins with."""
    unborn: tuple[str, ...] = ()
    """Those that may be born later: the places that are empty at first."""
    seats: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By policy, the seats that it may take, for those that may not take all."""
    teams: tuple[str, ...] = ()
    """By seat, its team; an empty name, or none at all: it stands for itself."""

    @staticmethod
    def of(config: Config, agents: Sequence[AgentSpec]) -> Roster:
        """Resolve it.

        Where seats are not dealt, there is a policy for each agent, of its name.

        Raises:
            ConfigError: a policy is named twice, or one, an agent or a team is named that there is
                not; or an agent is in two teams, or in none where there are teams.
        """
        policies, later = policy_names(config, agents), unborn(config)
        return Roster(
            tuple(agent.name for agent in agents),
            policies[: len(policies) - len(later)],
            later,
            _seats(config, agents, policies) if config.population.dealt else {},
            _teams(config.population, agents),
        )

    @property
    def policies(self) -> tuple[str, ...]:
        """All that the run trains, those that may be born later too."""
        return (*self.first, *self.unborn)

    def seats_of(self, policy: str) -> list[int]:
        """The seats that a policy may take, in order."""
        return sorted(self.seats.get(policy, range(len(self.agents))))

    def among(self, policies: Iterable[str]) -> Roster:
        """The same seats for these policies alone, all of them there from the beginning."""
        return replace(self, first=tuple(policies), unborn=())

    def with_imported(self, origins: Sequence[Origin]) -> Roster:
        """With members of other runs, which may take the seats of the policy that each is like."""
        alike = {o.name: self.seats[o.like] for o in origins if o.like in self.seats}
        return replace(self, seats={**self.seats, **alike})


def policy_names(config: Config, agents: Sequence[AgentSpec]) -> tuple[str, ...]:
    """The names of the policies that a run trains, those that may be born later too.

    Raises:
        ConfigError: there are none, one cannot be a name, or one is named twice.
    """
    names = (*_first_names(config, agents), *unborn(config))
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"population.policies names {name} twice")
    return names


def unborn(config: Config) -> tuple[str, ...]:
    """The names of the places that are empty at first; they do not depend on the game."""
    return tuple(f"born_{i}" for i in range(config.population.births.places))


def copies_of(population: PopulationConfig) -> int:
    """Places for frozen copies of each policy."""
    frozen = population.snapshots.keep + SPARE if population.snapshots.on else 0
    return frozen + population.evolution.on  # one that stands in while another is born


def _first_names(config: Config, agents: Sequence[AgentSpec]) -> tuple[str, ...]:
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


def _seats(
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

    if population.matchmaker == "fixed":
        for policy in names:
            own = [agent.name for i, agent in enumerate(agents) if names[i % len(names)] == policy]
            if own:
                allow(policy, own, "population.policies")
    sides = _teams(population, agents)
    for team, members in population.teams.items():
        seats = [agents[i].name for i, side in enumerate(sides) if side == team]
        for name in members.policies:
            allow(name, seats, f"population.teams.{team}")
    for name, chosen in population.seats.items():
        allow(name, chosen, f"population.seats.{name}")
    return {name: seats for name, seats in found.items() if len(seats) < len(agents)}


def _teams(population: PopulationConfig, agents: Sequence[AgentSpec]) -> tuple[str, ...]:
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
