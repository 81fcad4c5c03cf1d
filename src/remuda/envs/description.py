"""The description of an environment: what a run needs to know about it without making it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from gymnasium import Space

from remuda.envs.observation_parts import parts_of
from remuda.envs.plain_spaces import NotPlainError, from_plain, ordinary, to_plain
from remuda.envs.recorded import Wrapped
from remuda.envs.registry import CHANGED, make_env
from remuda.envs.vector_env import VectorEnv, option_names
from remuda.errors import ContractError, RunDirectoryError
from remuda.types import AgentSpec


@dataclass(frozen=True)
class EnvSpec:
    """A game with its options, and what its environments declare."""

    game: str
    options: Mapping[str, Any]
    agents: tuple[AgentSpec, ...]
    turn_groups: tuple[tuple[int, ...], ...]
    episode_metrics: tuple[str, ...] = ()
    has_histories: bool = False  # whether `VectorEnv.history` returns moves
    in_force: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """All of the game's options with their values; empty in a description read from a file."""
    changeable_options: tuple[str, ...] = ()  # names of the options that a run may change

    def __getstate__(self) -> dict[str, Any]:
        """Keep only Gymnasium's own spaces: another process may lack the user's classes."""
        agents = (
            replace(
                agent.in_arrays,
                observation_space=ordinary(agent.observation_space),
                action_space=ordinary(agent.action_space),
                state_space=agent.state_space and ordinary(agent.state_space),
            )
            for agent in self.agents
        )
        return {**vars(self), "agents": tuple(agents)}

    @staticmethod
    def of(game: str, options: Mapping[str, Any]) -> EnvSpec:
        """Make one environment copy, and describe it."""
        directory = os.getcwd()
        try:
            with closing(make_env(game, 1, **options)) as env:
                return EnvSpec.of_env(game, options, env)
        finally:
            os.chdir(directory)  # the environment may have changed it

    @staticmethod
    def of_env(game: str, options: Mapping[str, Any], env: VectorEnv) -> EnvSpec:
        """Describe an environment that exists."""
        return EnvSpec(
            game,
            options,
            tuple(env.agents),
            tuple(tuple(map(int, group)) for group in env.turn_groups),
            tuple(env.episode_metrics),
            env.history() is not None,
            env.options(),
            declared_options(env),
        )

    @property
    def changed(self) -> Mapping[str, Any]:
        """The options that a run has changed, with their values."""
        changed: Mapping[str, Any] = self.options.get(CHANGED, {})
        return changed

    def with_changed(self, changed: Mapping[str, Any]) -> EnvSpec:
        """Return the same game, whose environments start with these changed options."""
        if changed == self.changed:
            return self
        options = unchanged(self.options)
        return replace(self, options=options | {CHANGED: dict(changed)} if changed else options)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(agent.name for agent in self.agents)

    @property
    def teams(self) -> tuple[str, ...]:
        """The team of each agent; an empty name is a team of one."""
        return tuple(agent.team for agent in self.agents)

    def make(self, copies: int, check: bool = True) -> VectorEnv:
        """Make environment copies; raise RunDirectoryError if they declare something else.

        `check`: validate what the environment returns.
        """
        env = make_env(self.game, copies, **self.options)
        env.check = check
        changed = self.difference(env)
        if changed:
            env.close()
            raise RunDirectoryError(
                f"{self.game} has changed since its description was saved: {changed}; undo the "
                "change, or start a new run"
            )
        return env

    def difference(self, env: VectorEnv | EnvSpec) -> str:
        """Return the first difference to an environment that matters to policies; empty: none.

        Bounds of observations may differ.
        """
        old_names, new_names = self.names, tuple(agent.name for agent in env.agents)
        if old_names != new_names:
            return f"its agents were {', '.join(old_names)}, and are {', '.join(new_names)}"
        for before, after in zip(self.agents, env.agents, strict=True):
            old, new = before.observation_space, after.observation_space
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                return f"{after.name} observed {old}, and observes {new}"
            if parts_of(old) != parts_of(new):
                shown = [
                    ", ".join(f"{part.name or 'array'} {part.shape}" for part in parts_of(space))
                    for space in (old, new)
                ]
                return f"{after.name} observed {shown[0]}, and observes {shown[1]}"
            if ordinary(before.action_space) != ordinary(after.action_space):
                return (
                    f"{after.name} had actions {before.action_space}, and has {after.action_space}"
                )
            if getattr(before.state_space, "shape", None) != getattr(
                after.state_space, "shape", None
            ):
                return (
                    f"{after.name} had the state {before.state_space}, and has {after.state_space}"
                )
            if before.masked != after.masked:
                return f"{after.name} {'lacks' if before.masked else 'has'} an action mask now"
            if before.team != after.team:
                return f"{after.name} was in team {before.team!r}, and is in team {after.team!r}"
        return ""

    def to_plain(self) -> dict[str, Any] | None:
        """Return plain data for JSON; None if a space's class is not Gymnasium's own."""
        table: dict[str, int] = {}  # equal spaces are saved once

        def number(space: Space[Any] | None) -> int | None:
            if space is None:
                return None
            return table.setdefault(json.dumps(to_plain(space)), len(table))

        try:
            agents = [
                {
                    "name": agent.name,
                    "team": agent.team,
                    "masked": bool(agent.masked),
                    "layout": agent.layout,
                    "spaces": [number(getattr(agent, name)) for name in SPACES],
                }
                for agent in self.agents
            ]
        except (NotPlainError, TypeError):  # TypeError: a bound that JSON does not have
            return None
        return {
            "of": digest(self.game, self.options),
            "agents": agents,
            "spaces": [json.loads(text) for text in table],
            "turn_groups": [list(group) for group in self.turn_groups],
            "episode_metrics": list(self.episode_metrics),
            "has_histories": self.has_histories,
            "changeable_options": list(self.changeable_options),
        }

    @staticmethod
    def from_plain(plain: Any, game: str, options: Mapping[str, Any]) -> EnvSpec | None:
        """Return what `to_plain` described; None if its game or options were different.

        Raise ValueError if the data is damaged.
        """
        try:
            if plain["of"] != digest(game, options):
                return None
            spaces = [from_plain(each) for each in plain["spaces"]]
            agents = tuple(_agent(each, spaces) for each in plain["agents"])
            groups = tuple(tuple(map(int, group)) for group in plain["turn_groups"])
            if not agents:
                raise ValueError("it has no agents")
            if sorted(agent for group in groups for agent in group) != list(range(len(agents))):
                raise ValueError("its turn groups do not contain each agent once")
            return EnvSpec(
                game,
                options,
                agents,
                groups,
                tuple(map(str, plain["episode_metrics"])),
                bool(plain["has_histories"]),
                changeable_options=tuple(map(str, plain.get("changeable_options", ()))),
            )
        except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
            raise ValueError(f"it is incomplete: {error!r}") from None


def declared_options(env: VectorEnv) -> tuple[str, ...]:
    """Return the options that an environment lets a run change."""
    while isinstance(env, Wrapped):
        env = env.game
    declared = option_names(env.changeable_options, type(env).__name__)
    if declared and type(env).set_option is VectorEnv.set_option:
        raise ContractError(
            f"{type(env).__name__} declares changeable_options, but has no method "
            "set_option(name, value)"
        )
    return declared


def _agent(plain: Mapping[str, Any], spaces: Sequence[Space[Any]]) -> AgentSpec:
    numbers = zip(SPACES, plain["spaces"], strict=True)
    own: dict[str, Any] = {name: None if i is None else spaces[i] for name, i in numbers}
    texts: dict[str, Any] = {name: str(plain[name]) for name in ("name", "team", "layout")}
    return AgentSpec(**texts, **own, masked=bool(plain["masked"]))


SPACES = (
    *("observation_space", "action_space", "env_observation_space", "env_action_space"),
    "state_space",
)


def digest(game: str, options: Mapping[str, Any]) -> str:
    """Return a text that identifies a game with its options, without those that a run changed."""
    text = json.dumps([game, unchanged(options)], default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def unchanged(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a game's options without those that a run changed."""
    return {name: value for name, value in options.items() if name != CHANGED}
