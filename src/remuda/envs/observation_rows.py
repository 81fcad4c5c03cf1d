"""The rows in which actors read observations, and the environment's own observations in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.agent_ids import AgentIds
from remuda.envs.critic_inputs import CriticBox, CriticInputs
from remuda.envs.observation_parts import IdBox, packing_of, parts_of, size_of
from remuda.envs.recorded import Wrapped
from remuda.envs.vector_env import VectorEnv
from remuda.system.memory.packing import Packing
from remuda.types import Array


class PackedBox(spaces.Box):
    """A `Box` of bytes: the packed rows of another `Box`."""

    def __init__(self, rows: spaces.Box, packing: Packing) -> None:
        super().__init__(0, 255, (packing.size,), np.uint8)
        self.rows, self.packing = rows, packing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedBox) and other.rows == self.rows

    __hash__ = None  # type: ignore[assignment]


class PackedRows(Wrapped):
    """An environment whose rows of images and other numbers are packed; see `packing_of`."""

    def __init__(self, game: VectorEnv) -> None:
        super().__init__(game)
        agents, self._packings = [], []
        self._rows: list[Array] = []  # unpacked; empty for agents whose rows are not packed
        for agent in game.agents:
            space: Any = agent.observation_space
            own = space.own if isinstance(space, CriticBox) else space
            parts = parts_of(own)
            packing = packing_of(parts, own.dtype, parts_of(space)[len(parts) :])
            self._packings.append(packing)
            copies = 0 if packing is None else game.num_envs
            self._rows.append(np.zeros((copies, *space.shape), space.dtype))
            packed = space if packing is None else PackedBox(space, packing)
            agents.append(replace(agent, observation_space=packed))
        self.agents = tuple(agents)

    def observe(self, agent: int, out: Array) -> None:
        packing, rows = self._packings[agent], self._rows[agent]
        if packing is None:
            self.game.observe(agent, out)
        else:
            self.game.observe(agent, rows)
            packing.pack(rows, out)


class ObservationRow:
    """The layout of a row that an actor reads for an agent."""

    def __init__(self, space: spaces.Box) -> None:
        self.space = space
        self.packing = space.packing if isinstance(space, PackedBox) else None
        rows = space.rows if isinstance(space, PackedBox) else space
        own = rows.own if isinstance(rows, CriticBox) else rows
        self.own_size = size_of(own)
        """How many numbers the agent's own observation has; they come first."""
        self.as_made = own.own if isinstance(own, IdBox) else own
        """The space of the environment's observations, which come first in the agent's own."""

    def numbers(self, rows: Array, count: int) -> Array:
        """Return the first `count` numbers of rows [B, ...]: [B, count]."""
        flat = rows.reshape(len(rows), -1)
        found: Array = (flat if self.packing is None else self.packing.unpack(flat))[:, :count]
        return found

    def observations(self, rows: Array) -> Array:
        """Return the environment's own observations in rows [B, ...]: [B, *as_made.shape]."""
        found: Array = self.numbers(rows, size_of(self.as_made))
        return found.reshape(len(rows), *self.as_made.shape)


def as_made(env: VectorEnv) -> VectorEnv:
    """Return the environment with its own observations, without what wrappers added."""
    while isinstance(env, PackedRows | CriticInputs | AgentIds):
        env = env.game
    rows = [ObservationRow(agent.observation_space) for agent in env.agents]  # type: ignore[arg-type]
    return OwnObservations(env, rows) if any(r.as_made is not r.space for r in rows) else env


class OwnObservations(Wrapped):
    """An environment in other processes, without what was added to its observations there."""

    def __init__(self, game: VectorEnv, rows: list[ObservationRow]) -> None:
        super().__init__(game)
        self._rows = rows
        self._room: list[Array] = [
            np.zeros((game.num_envs, *row.space.shape), row.space.dtype) for row in rows
        ]
        self.agents = tuple(
            replace(spec, observation_space=row.as_made)
            for spec, row in zip(game.agents, rows, strict=True)
        )

    def observe(self, agent: int, out: Array) -> None:
        room = self._room[agent]
        self.game.observe(agent, room)
        out[...] = self._rows[agent].observations(room)
