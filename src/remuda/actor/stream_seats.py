"""What all seats have in common whose policies change from match to match.

A *stream* is one agent of one copy, numbered agent by agent: what it sees and does stands in row
`agent * num_envs + copy` of every array.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from remuda.actor.policy_group import Kind, PolicyGroup
from remuda.envs.checks import TurnChecks
from remuda.envs.vector_env import VectorEnv
from remuda.types import Bools


class StreamSeats:
    """Seats whose streams are observed by kind of seat, and gathered by policy to choose."""

    checks: TurnChecks | None = None

    def __init__(
        self, env: VectorEnv, policy_groups: Sequence[PolicyGroup], kinds: Iterable[Kind]
    ) -> None:
        """Take the seats.

        Args:
            env: the copies of the game.
            policy_groups: all policies that may sit there.
            kinds: of seats; every agent is of one of them.
        """
        self._env, self.policy_groups = env, policy_groups
        self._kinds = tuple(kinds)
        self._kind_of = {agent: kind for kind in self._kinds for agent in kind.agents}
        self._masked = [spec.masked for spec in env.agents]
        self.acted: Bools = np.zeros((env.num_envs, env.num_agents), np.bool_)

    def observe(self, agent: int) -> None:
        """See what there is to see, and what may be done."""
        kind = self._kind_of[agent]
        local, part = kind.agents.index(agent), kind.streams_of(agent)
        self._env.observe(agent, kind.observations[local])
        acts = kind.acted[local]
        acts[...] = self._env.active[:, agent]
        self.acted[:, agent] = acts
        for policy_group in self.policy_groups:
            if policy_group.kind is kind:
                strange = policy_group.frames[local].push(kind.observations_flat[part], acts)
                if self.checks is not None:
                    self.checks.observed(agent, kind.observations[local], strange)
        if self._masked[agent]:
            self._env.mask(agent, kind.masks[part])
            if self.checks is not None:
                self.checks.masked(agent, kind.masks[part], acts)

    def choose(self, group: int, random: np.random.Generator | None = None) -> None:
        """Forward passes, and a choice for every stream."""
        for policy_group in self.policy_groups:
            policy_group.choose(group, random)

    def settled(self) -> bool:
        """Nothing of other actors comes here."""
        return True

    def _forget(self, agent: int, copies: Bools) -> None:
        """Forget what the policies of an agent have in mind in these copies."""
        for policy_group in self.policy_groups:
            if policy_group.kind is self._kind_of[agent]:
                policy_group.forget(agent, copies)
