"""`RunSpec`: a run's configuration and environment, and everything derived from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from remuda.config import Config
from remuda.envs.description import EnvSpec
from remuda.policies.spec import PolicySpec
from remuda.population.ledger.ratings import sides_of
from remuda.population.members.imported import Imported, ImportedMembers
from remuda.population.roster import Roster, seated_policies
from remuda.population.specs import policy_specs, spec_of_seat
from remuda.types import AgentSpec


@dataclass(frozen=True)
class RunSpec:
    """A run's configuration and the description of its environment.

    `remuda.train` makes a `RunSpec`, and the run directory saves it (config.yaml and
    environment.json), so that a run can be opened without its game.
    """

    config: Config
    env: EnvSpec
    imported_file: Path | None = field(default=None, compare=False)
    """The file with the members of other runs; None: the run has no directory yet."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the cached properties."""
        return {"config": self.config, "env": self.env, "imported_file": self.imported_file}

    @staticmethod
    def of(config: Config) -> RunSpec:
        """Return the run of a configuration; makes an environment to describe it."""
        return RunSpec(config, EnvSpec.of(config.game, config.env.made_with))

    def with_config(self, changes: Mapping[str, Any] | Config) -> RunSpec:
        """Return the same run with another configuration of the same environment."""
        if isinstance(changes, Config):
            return replace(self, config=changes)
        return replace(self, config=self.config.model_copy(update=dict(changes)))

    def with_options(self, changed: Mapping[str, Any]) -> RunSpec:
        """Return the same run, whose environments start with these changed options."""
        env = self.env.with_changed(changed)
        return self if env is self.env else replace(self, env=env)

    @property
    def agents(self) -> tuple[AgentSpec, ...]:
        return self.env.agents

    @cached_property
    def roster(self) -> Roster:
        """The policies, their seats and their teams."""
        return Roster.of(self.config, self.env.agents)

    @cached_property
    def policies(self) -> tuple[PolicySpec, ...]:
        """The specifications of all policies; imports the user's algorithms and networks."""
        return policy_specs(self.config, self.env.agents)

    @cached_property
    def imported(self) -> tuple[Imported, ...]:
        """The members of other runs, with their weights."""
        return () if self.imported_file is None else ImportedMembers(self.imported_file).read()

    def fixed_members(self, texts: Collection[str]) -> list[Imported]:
        """Return the members of some entries of `population.members_from`."""
        entries = self.config.population.members_from
        if not set(texts).intersection(entries):
            return []
        return [own for text, own in zip(entries, self.imported, strict=True) if text in texts]

    @property
    def sides(self) -> list[int]:
        """The team number of each seat; -1 for seats reserved for scripted policies."""
        found = self.roster
        sides: list[int] = sides_of(found.teams, len(self.agents), found.taken).tolist()
        return sides

    @property
    def reported_agents(self) -> list[int]:
        """The agents whose returns are episode metrics, because policies are shared."""
        if not self.config.population.sharing:
            return []
        return [
            seat
            for seat in self.roster.dealt_seats
            if return_of(self.agents[seat].name) not in self.env.episode_metrics
        ]

    @property
    def episode_metrics(self) -> tuple[str, ...]:
        """The environment's episode metrics, then the returns of `reported_agents`."""
        returns = (return_of(self.agents[seat].name) for seat in self.reported_agents)
        return (*self.env.episode_metrics, *returns)

    @property
    def fixed_policies(self) -> dict[str, str]:
        """The policy of each agent that learns, on fixed seats with or without sharing."""
        names = [self.agents[seat].name for seat in self.roster.dealt_seats]
        return dict(zip(names, seated_policies(self.config.population, names, names), strict=True))

    def agent_of(self, policy: str) -> AgentSpec:
        """Return the agent with the policy's name, or else the agent of its first seat."""
        for agent in self.env.agents:
            if agent.name == policy:
                return agent
        return self.env.agents[self.roster.seats_of(policy)[0]]


def return_of(agent: str) -> str:
    """Return the name of the episode metric that is an agent's return."""
    return f"{agent}/return"


def policy_of(config: Config, agents: Sequence[AgentSpec], seat: int) -> PolicySpec:
    """Return the specification of a policy that plays only this seat."""
    return spec_of_seat(config, agents[seat].name, agents, seat)
