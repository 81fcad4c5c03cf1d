"""What an agent learns from: its own rewards, or a mixture with what its team is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from remuda.live_hyperparameters import LiveHyperparameters
from remuda.types import Bools, Floats, Integers


class SharedRewards:
    """Rewards as the policies on the seats of an actor learn from them.

    With a share of 1 a policy learns from the mean of what the members of its team are given; with
    0 from its own alone; in between, from a mixture (Peysakhovich and Lerer 2018, "Prosocial
    learning agents solve generalized stag hunts better than selfish ones"). In a game without teams
    all agents are one. Returns that are counted, rated and judged are of each one's own rewards.

    The share of a seat stays as it is from the beginning of an episode to its end, so that what was
    shared out within a turn can be taken from what the whole turn brought.
    """

    def __init__(self, num_envs: int, sides: Integers) -> None:
        """Begin with shares of 0.

        Args:
            num_envs: copies of the game.
            sides: [num_agents] by agent, the number of its team.
        """
        self.shares: Floats = np.zeros((num_envs, len(sides)), np.float32)
        """[num_envs, num_agents]: of the team's mean in what the policy on this seat is given."""
        self._any = False
        # [num_agents, num_agents]: of what each is given (row), its part of a team's mean (column).
        together = (sides[:, None] == sides[None, :]).astype(np.float32)
        self._means: Floats = together / together.sum(0)

    @property
    def on(self) -> bool:
        """Whether any policy shares now."""
        return self._any

    def begin(self, over: Bools, shares: Floats) -> None:
        """Use other shares in the copies whose episodes begin anew.

        Args:
            over: [num_envs] which copies.
            shares: [num_envs, num_agents], or [1, num_agents]: the same in all copies.
        """
        self.shares[over] = np.broadcast_to(shares, self.shares.shape)[over]
        self._any = bool(self.shares.any())

    def restore(self, shares: Floats) -> None:
        """Go on with the shares [num_envs, num_agents] of episodes that were being played."""
        self.shares[...] = shares
        self._any = bool(self.shares.any())

    def mixed(self, rewards: Floats) -> Floats:
        """What the policies are given, of what the agents are given: [num_envs, num_agents]."""
        if not self._any:
            return rewards
        found: Floats = rewards + self.shares * (rewards @ self._means - rewards)
        return found

    def mixed_of(self, agent: int, rewards: Floats) -> Floats:
        """The same of one agent: [num_envs]."""
        own = rewards[:, agent]
        if not self._any:
            return own
        found: Floats = own + self.shares[:, agent] * (rewards @ self._means[:, agent] - own)
        return found


class SharesForGood:
    """How much the policies share that have their seats for good, as it is set by now."""

    def __init__(
        self,
        policies: Sequence[str],
        configured: Mapping[str, float],
        changes: LiveHyperparameters | None = None,
    ) -> None:
        """Begin as configured.

        Args:
            policies: by agent, its policy.
            configured: by policy, its share.
            changes: while the run goes on; None: there are none.
        """
        self._policies, self._changes, self._revision = tuple(policies), changes, -1
        self._shares = dict(configured)

    def now(self) -> Floats:
        """By agent: [1, num_agents]."""
        changed = self._changes.read(self._revision) if self._changes is not None else None
        if changed is not None:
            self._revision = changed[0]
            for policy, values in changed[1].items():
                self._shares[policy] = values.get("share_rewards", self._shares[policy])
        return np.array([[self._shares.get(policy, 0.0) for policy in self._policies]], np.float32)
