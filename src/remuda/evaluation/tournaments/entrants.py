"""Entrants and settings of a tournament, which determine all of its matches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from remuda.config import load_config
from remuda.envs.description import EnvSpec
from remuda.envs.registry import RANDOM, Game, find_game
from remuda.errors import ConfigError, UsageError
from remuda.policies.spec import PolicySpec
from remuda.population.run_spec import RunSpec, policy_of
from remuda.publish.snapshot import Snapshot
from remuda.types import AgentSpec


@dataclass(frozen=True)
class Player:
    """A trained policy that may play in a tournament."""

    spec: PolicySpec
    snapshot: Snapshot
    agent: AgentSpec  # the agent as which the policy was trained, or an equivalent agent


Entrant = Player | str  # a trained policy, or the name of a scripted policy


@dataclass(frozen=True)
class Participant:
    """A named entrant with its policies."""

    name: str
    members: tuple[tuple[Entrant, ...], ...]  # by seat: policies that take turns; empty: reserved

    def summary(self) -> list[dict[str, object]]:
        """Return the distinct members as plain data, in order."""
        found = {id(member): member for seat in self.members for member in seat}
        return [_summary(member) for member in found.values()]


@dataclass(frozen=True)
class TournamentSetup:
    """The entrants, game and settings of a tournament."""

    env: EnvSpec
    participants: tuple[Participant, ...]
    seed: int = 0
    sampled: bool = False  # explore with the final exploration rate; otherwise greedy
    check: bool = True  # validate the environment's output
    taken: Mapping[str, str] = field(default_factory=dict)  # by agent, the seat's scripted policy

    @property
    def game(self) -> str:
        return self.env.game

    @property
    def options(self) -> Mapping[str, Any]:
        return self.env.options

    @property
    def taken_seats(self) -> dict[int, str]:
        """The scripted policy of each reserved seat."""
        agents = self.env.names
        for agent in self.taken:
            if agent not in agents:
                raise UsageError(
                    f"scripted: {self.game} has no agent {agent!r}; it has {', '.join(agents)}"
                )
        if agents and len(self.taken) == len(agents):
            raise UsageError(f"scripted: it takes every seat of {self.game}; leave one free")
        return {seat: self.taken[name] for seat, name in enumerate(agents) if name in self.taken}

    def description(self) -> dict[str, Any]:
        """Return plain data."""
        plain: dict[str, Any] = {
            "tournament": 1,
            "game": self.game,
            "options": dict(self.options),
            "agents": list(self.env.names),
            "teams": list(self.env.teams),
            "entrants": [
                {"name": each.name, "members": each.summary()} for each in self.participants
            ],
            "seed": self.seed,
            "sampled": self.sampled,
        }
        if self.taken:
            plain["scripted"] = dict(self.taken)
        return plain

    def digest(self, until: str = "") -> str:
        """Return eight characters that identify the tournament."""
        plain = self.description() | ({"until": until} if until else {})
        text = json.dumps(plain, default=str, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def of_entrants(
    game: str,
    agents: Sequence[AgentSpec],
    entrants: Mapping[str, Entrant],
    taken: Container[str] = (),
) -> tuple[Participant, ...]:
    """Return single policies as entrants for all seats that are not reserved."""
    dealt = [agent for agent in agents if agent.name not in taken]
    for name, entrant in entrants.items():
        for agent in dealt:
            check_fits(game, name, entrant, agent)
    return tuple(
        Participant(name, tuple((each,) if agent in dealt else () for agent in agents))
        for name, each in entrants.items()
    )


def of_snapshots(
    spec: RunSpec, entrants: Mapping[str, Mapping[str, Snapshot]]
) -> tuple[Participant, ...]:
    """Return entrants that each consist of all policies of a run at one time, such as a checkpoint.

    If each agent has its own policy, that policy plays the agent's seat. Policies of a population
    alternate in all seats that they may play. Seats in `env.scripted` have no member.
    """
    config, agents, allowed = spec.config, spec.agents, spec.roster.seats
    specs = {each.name: each for each in spec.policies}
    found = []
    for name, snapshots in entrants.items():
        players: dict[str, Player] = {}
        members: list[tuple[Entrant, ...]] = []
        for seat, agent in enumerate(agents):
            if agent.name in config.env.scripted:
                members.append(())
                continue
            able = [n for n in specs if n in snapshots and seat in allowed.get(n, {seat})]
            if not config.population.dealt and agent.name in able:
                able = [agent.name]
            if not able:
                raise ConfigError(
                    f"{name} has no policy that may play {agent.name}; leave it out (--checkpoints)"
                )
            for each in able:
                if each not in players:
                    players[each] = Player(specs[each], snapshots[each], agent)
            members.append(tuple(players[each] for each in able))
        found.append(Participant(name, tuple(members)))
    return tuple(found)


def check_fits(game: str, name: str, entrant: Entrant, agent: AgentSpec) -> None:
    """Raise a `UsageError` if an entrant's spaces differ from an agent's."""
    if isinstance(entrant, str):
        find_game(game).policy(entrant)
        return
    was = entrant.agent
    for what, trained, wanted in (
        ("observes", was.observation_space, agent.observation_space),
        ("acts in", was.action_space, agent.action_space),
    ):
        if trained != wanted:
            raise UsageError(
                f"{name} cannot play {agent.name} of {game}: it {what} {trained}, and {agent.name} "
                f"{what} {wanted}"
            )
    if was.masked != agent.masked:
        has = "provides" if agent.masked else "lacks"
        raise UsageError(f"{name} cannot play {agent.name} of {game}, which {has} an action mask")


def with_rates(participants: Sequence[Participant], sampled: bool) -> tuple[Participant, ...]:
    """Return the participants with their final exploration rates, or greedy."""
    made: dict[int, Entrant] = {}

    def rated(who: Entrant) -> Entrant:
        if isinstance(who, str):
            return who
        if id(who) not in made:
            rate = who.spec.config.last_epsilon if sampled else 0.0
            made[id(who)] = replace(who, snapshot=replace(who.snapshot, epsilon=rate))
        return made[id(who)]

    return tuple(
        Participant(each.name, tuple(tuple(rated(who) for who in seat) for seat in each.members))
        for each in participants
    )


def stand_in(agent: AgentSpec) -> PolicySpec:
    """Return a policy specification for an agent that no trained policy plays."""
    tree = {"policy": {"algorithm": "ppo", "network": {"hidden": [1]}}}
    return policy_of(load_config(tree), agent)


def is_of_remuda(game: Game, name: str) -> bool:
    """Return whether a scripted policy is built in; only built-in ones draw from `MatchRandom`."""
    return name == RANDOM or (":" not in name and not game.is_own)


def weights_digest(snapshot: Snapshot) -> str:
    """Return sixteen characters that identify weights."""
    return hashlib.blake2b(snapshot.weights.tobytes(), digest_size=8).hexdigest()


def _summary(who: Entrant) -> dict[str, Any]:
    if isinstance(who, str):
        return {"scripted": who}
    return {
        "policy": who.spec.name,
        "algorithm": who.spec.config.algorithm,
        "version": who.snapshot.version,
        "weights": weights_digest(who.snapshot),
    }
