"""What an agent learns from: its own rewards, or a mixture with what its team is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from remuda.kernels import njit
from remuda.live_hyperparameters import LiveHyperparameters
from remuda.types import Bools, Floats, Integers


class SharedRewards:
    """Rewards as the policies on the seats of an actor learn from them.

    With a share of 1 a policy learns from the mean of what the members of its team are given, who
    are given nothing while they are not there; with 0 from its own alone; in between, from a
    mixture (Peysakhovich and Lerer 2018, "Prosocial learning agents solve generalized stag hunts
    better than selfish ones"). In a game without teams all agents are one. Returns that are
    counted, rated and judged are of each one's own rewards.

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
        self._members = [_columns(np.flatnonzero(sides == side)) for side in np.unique(sides)]
        """By team, its agents."""
        self._sides = sides

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
        self._any = bool(_take(shares, over, self.shares))

    def restore(self, shares: Floats) -> None:
        """Go on with the shares [num_envs, num_agents] of episodes that were being played."""
        self.shares[...] = shares
        self._any = bool(self.shares.any())

    def mixed(self, rewards: Floats) -> Floats:
        """What the policies are given, of what the agents are given: [num_envs, num_agents]."""
        if not self._any:
            return rewards
        means = np.stack([self._mean(side, rewards) for side in range(len(self._members))], 1)
        return _mixture(rewards, self.shares, means[:, self._sides])

    def mixed_of(self, agent: int, rewards: Floats) -> Floats:
        """The same of one agent: [num_envs]."""
        own = rewards[:, agent]
        if not self._any:
            return own
        mean = self._mean(int(self._sides[agent]), rewards)
        return _mixture(own, self.shares[:, agent], mean)

    def _mean(self, side: int, rewards: Floats) -> Floats:
        """What the members of a team are given on average: [num_envs]."""
        found: Floats = rewards[:, self._members[side]].mean(1)
        return found


@njit(cache=True)
def _take(shares: Floats, over: Bools, into: Floats) -> bool:
    """See `SharedRewards.begin`; whether any of what there is now is not 0."""
    found = False
    for env in range(into.shape[0]):
        row = env if shares.shape[0] > 1 else 0
        for agent in range(into.shape[1]):
            if over[env]:
                into[env, agent] = shares[row, agent]
            found |= into[env, agent] != 0.0
    return found


def _columns(agents: Integers) -> Integers | slice:
    """Agents in ascending order as an index that copies nothing, if they are neighbours."""
    first, last = int(agents[0]), int(agents[-1])
    return slice(first, last + 1) if last - first + 1 == len(agents) else agents


def _mixture(own: Floats, shares: Floats, means: Floats) -> Floats:
    """Of what each is given, and its team on average.

    Without a share it is its own, also where what the team is given is not finite.
    """
    with np.errstate(invalid="ignore"):
        found: Floats = np.where(shares == 0.0, own, own + shares * (means - own))
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
