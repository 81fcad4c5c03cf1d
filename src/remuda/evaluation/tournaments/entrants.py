"""Entrants and settings of a tournament, which determine all of its matches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from remuda.envs.description import EnvSpec
from remuda.envs.registry import find_game
from remuda.errors import ConfigError, UsageError
from remuda.policies.spec import PolicySpec
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import Snapshot
from remuda.system.user_errors import naming_user_code
from remuda.types import AgentSpec


@dataclass(frozen=True)
class Player:
    """A trained policy that may play in a tournament."""

    spec: PolicySpec
    snapshot: Snapshot
    agent: AgentSpec  # the agent as which the policy was trained, or an equivalent agent
    num_envs: int = 0  # environment copies of the policy's run; 0: unknown


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
    line_ups: bool = False  # play line-ups of any entrants, instead of pairs
    focal: tuple[int, ...] = ()
    """Numbers of seats that the first of two participants takes; empty: play pairs or line-ups."""

    @property
    def game(self) -> str:
        return self.env.game

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
        plain: dict[str, Any] = {
            "tournament": 1,
            "game": self.game,
            "options": dict(self.env.options),
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
        if self.line_ups:
            plain["line_ups"] = {
                each.name: [
                    agent
                    for agent, members in zip(self.env.names, each.members, strict=True)
                    if members
                ]
                for each in self.participants
            }
        return plain

    def digest(self, until: str = "") -> str:
        """Return eight characters that identify the tournament."""
        plain = self.description() | ({"until": until} if until else {})
        text = json.dumps(plain, default=str, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


@naming_user_code()
def setup_of_entrants(
    game: str,
    options: Mapping[str, Any],
    entrants: Mapping[str, Entrant],
    seed: int = 0,
    sampled: bool = False,
    taken: Mapping[str, str] | None = None,
    line_ups: Mapping[str, Collection[str]] | None = None,
) -> TournamentSetup:
    """Return a tournament of single policies from any runs, in a game that fits all of them.

    `line_ups`: play line-ups, in which each entrant may take the seats of these agents; an entrant
    that is not named may take all seats. None: play pairs, on all seats.
    """
    env, taken = EnvSpec.of(game, options), dict(taken or {})
    setup = TournamentSetup(env, (), seed, sampled, taken=taken, line_ups=line_ups is not None)
    _ = setup.taken_seats  # raises an error if they are invalid
    for policy in taken.values():
        find_game(game).policy(policy)
    free = [agent for agent in env.agents if agent.name not in taken]
    participants = []
    for name, entrant in entrants.items():
        able = set((line_ups or {}).get(name) or env.names)
        own = [agent for agent in free if agent.name in able]
        for agent in own:
            check_fits(game, name, entrant, agent)
        members = tuple((entrant,) if agent in own else () for agent in env.agents)
        participants.append(Participant(name, members))
    return replace(setup, participants=tuple(participants))


def setup_of_snapshots(
    spec: RunSpec,
    entrants: Mapping[str, Mapping[str, Snapshot]],
    seed: int = 0,
    sampled: bool = False,
) -> TournamentSetup:
    """Return a tournament whose entrants are checkpoints of a run, each with all its policies.

    If each agent has its own policy, that policy plays the agent's seat. Policies of a population
    alternate in all seats that they may play. Members that do not learn play the seats that no
    policy that learns may take. Seats in `env.scripted` have no member.
    """
    config, agents, allowed = spec.config, spec.agents, spec.roster.seats
    specs = {each.name: each for each in spec.policies}
    participants = []
    for name, snapshots in entrants.items():
        players: dict[str, Player] = {}
        members: list[tuple[Entrant, ...]] = []
        for seat, agent in enumerate(agents):
            if agent.name in config.env.scripted:
                members.append(())
                continue
            if fixed := spec.roster.fixed_on(seat):
                members.append(tuple(_fixed_entrants(spec, fixed, agent)))
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
                    player = Player(specs[each], snapshots[each], agent, config.env.num_envs)
                    players[each] = player
            members.append(tuple(players[each] for each in able))
        participants.append(Participant(name, tuple(members)))
    env = config.env
    return TournamentSetup(spec.env, tuple(participants), seed, sampled, env.check, env.scripted)


def _fixed_entrants(spec: RunSpec, names: Sequence[str], agent: AgentSpec) -> Iterator[Entrant]:
    """Yield the scripted and the imported policies of these names, which play an agent."""
    scripted = spec.config.population.scripted
    yield from (scripted[name] for name in names if name in scripted)
    specs = {each.name: each for each in spec.policies}
    for each in spec.fixed_members(names):
        num_envs = spec.config.env.num_envs
        yield Player(specs[each.origin.like], each.snapshot, agent, num_envs)


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
    rated = rater(lambda player: player.spec.config.last_epsilon if sampled else 0.0)
    return tuple(
        Participant(each.name, tuple(tuple(map(rated, seat)) for seat in each.members))
        for each in participants
    )


def rater(rate_of: Callable[[Player], float]) -> Callable[[Entrant], Entrant]:
    """Return a function that sets exploration rates; a policy in several seats stays one object."""
    by_id: dict[int, Entrant] = {}

    def rated(entrant: Entrant) -> Entrant:
        if isinstance(entrant, str):
            return entrant
        return by_id.setdefault(id(entrant), with_epsilon(entrant, rate_of(entrant)))

    return rated


def with_epsilon(player: Player, epsilon: float) -> Player:
    """Return a player with another exploration rate."""
    return replace(player, snapshot=replace(player.snapshot, epsilon=epsilon))


def weights_digest(snapshot: Snapshot) -> str:
    """Return sixteen characters that identify weights."""
    return hashlib.blake2b(snapshot.weights.tobytes(), digest_size=8).hexdigest()


def _summary(entrant: Entrant) -> dict[str, Any]:
    if isinstance(entrant, str):
        return {"scripted": entrant}
    return {
        "policy": entrant.spec.name,
        "algorithm": entrant.spec.config.algorithm,
        "version": entrant.snapshot.version,
        "weights": weights_digest(entrant.snapshot),
    }
