"""Reward sharing in teams (prosocial learning)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from remuda.actor.stream_arrays import columns_of
from remuda.config.hyperparameters import LiveHyperparameters
from remuda.system.kernels import njit
from remuda.types import Bools, Floats, Integers


class SharedRewards:
    """Rewards that policies learn from: mixtures of an agent's own and its team's mean.

    With a share of 1 a policy learns from the mean reward of its team, in which absent members
    count as 0. With a share of 0 it learns only from its own reward, and in between from a mixture
    (Peysakhovich and Lerer 2018, "Prosocial learning agents solve generalized stag hunts better
    than selfish ones"). Without teams all agents are one team. A seat's share is fixed
    during an episode, so that the shared rewards of a part of a turn can be subtracted from the
    shared rewards of the whole turn.
    """

    def __init__(self, num_envs: int, sides: Integers) -> None:
        """Start with shares of 0; `sides` [num_agents] is the number of each agent's team."""
        # [num_envs, num_agents] weight of the team's mean in the reward
        self.shares: Floats = np.zeros((num_envs, len(sides)), np.float32)
        self._any = False
        # by team, its agents
        self._members = [
            columns_of(tuple(np.flatnonzero(sides == side).tolist())) for side in np.unique(sides)
        ]
        self._sides = sides

    def begin(self, over: Bools, shares: Floats) -> None:
        """Set new shares [num_envs or 1, num_agents] in the copies that `over` [num_envs] marks."""
        self._any = bool(_take(shares, over, self.shares))

    def restore(self, shares: Floats) -> None:
        """Restore the shares [num_envs, num_agents] of current episodes."""
        self.shares[...] = shares
        self._any = bool(self.shares.any())

    def mixed(self, rewards: Floats) -> Floats:
        """Mix rewards [num_envs, num_agents]."""
        if not self._any:
            return rewards
        means = np.stack([self._mean(side, rewards) for side in range(len(self._members))], 1)
        return _mixture(rewards, self.shares, means[:, self._sides])

    def mixed_of(self, agent: int, rewards: Floats) -> Floats:
        """Return one agent's mixed rewards: [num_envs]."""
        own = rewards[:, agent]
        if not self._any:
            return own
        mean = self._mean(int(self._sides[agent]), rewards)
        return _mixture(own, self.shares[:, agent], mean)

    def _mean(self, side: int, rewards: Floats) -> Floats:
        found: Floats = rewards[:, self._members[side]].mean(1)
        return found


@njit(cache=True)
def _take(shares: Floats, over: Bools, into: Floats) -> bool:
    """Write shares; return whether any is not 0."""
    found = False
    for env in range(into.shape[0]):
        row = env if shares.shape[0] > 1 else 0
        for agent in range(into.shape[1]):
            if over[env]:
                into[env, agent] = shares[row, agent]
            found |= into[env, agent] != 0.0
    return found


def _mixture(own: Floats, shares: Floats, means: Floats) -> Floats:
    """Mix own rewards and team means; with a share of 0 even an infinite mean has no effect."""
    with np.errstate(invalid="ignore"):
        found: Floats = np.where(shares == 0.0, own, own + shares * (means - own))
    return found


class FixedShares:
    """The current reward shares of policies with fixed seats."""

    def __init__(
        self,
        policies: Sequence[str],
        configured: Mapping[str, float],
        changes: LiveHyperparameters | None = None,
    ) -> None:
        self._policies, self._changes, self._revision = tuple(policies), changes, -1
        self._shares = dict(configured)

    def now(self) -> Floats:
        """Return each agent's share: [1, num_agents]."""
        changed = self._changes.read(self._revision) if self._changes is not None else None
        if changed is not None:
            self._revision = changed[0]
            for policy, values in changed[1].items():
                self._shares[policy] = values.get("share_rewards", self._shares[policy])
        return np.array([[self._shares.get(policy, 0.0) for policy in self._policies]], np.float32)
