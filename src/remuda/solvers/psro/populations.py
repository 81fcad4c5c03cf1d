"""The policies of a tree's players so far: payoffs of their line-ups, and best responses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np

from remuda.analysis.trees.exploitability import BestResponse, expected_returns, response_to_weights
from remuda.analysis.trees.trees import OVER, Tree, mixture, uniform
from remuda.errors import ConfigError
from remuda.solvers.psro.meta_strategy import MetaStrategy, Mixtures, ResponseTarget
from remuda.types import Numbers

ALIKE = 1e-9  # allowed difference of returns in different seats, as a share of the largest return


class Populations:
    """The policies of each role.

    In a symmetric game there is one role, whose policies play in all seats. Otherwise each player
    is a role.
    """

    def __init__(
        self, tree: Tree, symmetric: bool = False, first: Sequence[Numbers] | None = None
    ) -> None:
        """Start with a policy [I_p, A] of each role, or none if `first` is empty; None: uniform."""
        if symmetric:
            check_symmetric(tree)
        self.tree, self.symmetric = tree, symmetric
        self._over = np.flatnonzero(tree.players == OVER)
        self._chance = tree.reach(tree.chance)[self._over]
        self.policies: list[list[Numbers]] = [[] for _ in range(self.num_roles)]
        self._reaches: list[list[Numbers]] = [[] for _ in range(tree.num_players)]
        for role, policy in zip(
            range(self.num_roles), uniform(tree) if first is None else first, strict=False
        ):
            self.join(role, [policy] * tree.num_players)
        self.payoffs: Numbers = np.full((tree.num_players, *(0 for _ in self._reaches)), np.nan)

    @property
    def num_roles(self) -> int:
        return 1 if self.symmetric else self.tree.num_players

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of policies of each role."""
        return tuple(len(each) for each in self.policies)

    def sizes_with(self, added: Sequence[tuple[int, object]]) -> tuple[int, ...]:
        """Return the number of policies for each seat once more are added, each with its role."""
        more = [sum(role == own for own, _ in added) for role in range(self.num_roles)]
        sizes = [count + new for count, new in zip(self.counts, more, strict=True)]
        return tuple(sizes * (self.tree.num_players // self.num_roles))

    def add(self, role: int, actions: Sequence[int]) -> None:
        """Add a deterministic policy of a role: an action for each information set [I_p]."""
        self.join(role, [self._policy(role, actions)] * self.tree.num_players)

    def has(self, role: int, actions: Sequence[int]) -> bool:
        policy = self._policy(role, actions)
        return any(np.array_equal(policy, own) for own in self.policies[role])

    def join(self, role: int, by_seat: Sequence[Numbers]) -> None:
        """Add a policy [I_p, A] of a role, as it plays in each seat; other roles' are ignored."""
        tree = self.tree
        self.policies[role].append(by_seat[role])
        for seat in range(tree.num_players) if self.symmetric else (role,):
            chosen = tree.own(seat)[tree.sources]
            likely = np.ones(len(tree.children))
            rows = tree.sets[tree.sources[chosen]] - tree.offsets[seat]
            likely[chosen] = by_seat[seat][rows, tree.actions[chosen]]
            self._reaches[seat].append(tree.reach(likely)[self._over])

    def fill(self) -> None:
        """Work out the payoffs of all new line-ups."""
        before = self.payoffs.shape[1:]
        added = [(0, len(own) - old) for own, old in zip(self._reaches, before, strict=True)]
        self.payoffs = np.pad(self.payoffs, [(0, 0), *added], constant_values=np.nan)
        returns = self.tree.returns[self._over]
        missing: list[list[int]] = np.argwhere(np.isnan(self.payoffs[0])).tolist()
        for cell in missing:
            if self.symmetric and cell != sorted(cell):
                continue  # another order of a line-up that is worked out
            reaches = [own[index] for own, index in zip(self._reaches, cell, strict=True)]
            earned = profile_returns(self._chance, reaches, returns)
            for order in orders_of(cell) if self.symmetric else (range(len(cell)),):
                seats = list(order)
                index: tuple[slice | int, ...] = (slice(None), *(cell[seat] for seat in seats))
                self.payoffs[index] = earned[seats]

    def gains(self, strategy: MetaStrategy) -> tuple[Numbers, list[BestResponse]]:
        """Return the exact gain of each role's best deviations: [R], and these deviations."""
        seats = range(self.tree.num_players)
        values = self._likely(strategy.joint, seats) @ self.tree.returns[self._over]
        gains: Numbers = -values[: self.num_roles]
        responses = [self.respond(target) for target in strategy.deviations]
        for target, response in zip(strategy.deviations, responses, strict=True):
            gains[target.player] += target.weight * response.value
        # A negative gain is a rounding error, because a best response earns at least as much.
        return np.maximum(gains, 0.0), responses

    def respond(self, target: ResponseTarget) -> BestResponse:
        """Return a best response to the policies of the other seats."""
        others = [seat for seat in range(self.tree.num_players) if seat != target.player]
        weights = np.zeros(self.tree.num_nodes)
        weights[self._over] = self._likely(target.others, others)
        return response_to_weights(self.tree, target.player, weights)

    def _likely(self, joint: Numbers, seats: Sequence[int]) -> Numbers:
        """Return how likely chance and some seats reach each terminal node: [T].

        `joint`: the probabilities of the seats' policies, with an axis for each seat.
        """
        reaches = [
            np.stack(self._reaches[seat][:size])
            for seat, size in zip(seats, joint.shape, strict=True)
        ]
        found: Numbers = joint @ reaches[-1]
        for reach in reversed(reaches[:-1]):
            found = np.einsum("...it,it->...t", found, reach)
        return self._chance * found

    def played(self, mixtures: Mixtures) -> tuple[Numbers, ...]:
        """Return each role's mixture as one policy [I_p, A] (Kuhn 1953)."""
        found = []
        for role, shares in enumerate(mixtures):
            kept = np.flatnonzero(shares > 0.0)
            own = [self.policies[role][index] for index in kept.tolist()]
            found.append(mixture(self.tree, role, own, shares[kept]))
        return tuple(found)

    def _policy(self, role: int, actions: Sequence[int]) -> Numbers:
        policy = np.zeros(self.tree.legal_of(role).shape)
        policy[np.arange(len(policy)), np.asarray(actions, np.int64)] = 1.0
        return policy


def profile_returns(chance: Numbers, reaches: Sequence[Numbers], returns: Numbers) -> Numbers:
    """Return expected returns [N] from chance [T], reaches by player [T] and returns [T, N]."""
    likely = chance
    for own in reaches:
        likely = likely * own
    found: Numbers = likely @ returns
    return found


def orders_of(line_up: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the orders of seats that make different line-ups, one for each of these."""
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for order in permutations(range(len(line_up))):
        found.setdefault(tuple(line_up[seat] for seat in order), order)
    return list(found.values())


def check_symmetric(tree: Tree) -> None:
    """Raise a `ConfigError` unless all players may draw from one set of policies."""
    legal = [tree.legal_of(player) for player in range(tree.num_players)]
    for player, own in enumerate(legal):
        if not np.array_equal(own, legal[0]):
            raise ConfigError(
                f"symmetric: players 0 and {player} of {tree.name} have unlike actions, so they "
                "cannot share policies; leave it out"
            )
    # Returns are polynomials of the policies, so those that agree at a random point are equal.
    rng = np.random.default_rng(0)
    drawn = [rng.uniform(size=own.shape) * own for own in legal]
    policies = [each / each.sum(1, keepdims=True) for each in drawn]
    usual = expected_returns(tree, policies)
    for player in range(1, tree.num_players):
        order = list(range(tree.num_players))
        order[0], order[player] = player, 0
        moved = expected_returns(tree, [policies[seat] for seat in order])
        if np.abs(moved - usual[order]).max() > ALIKE * max(np.abs(tree.returns).max(), 1e-300):
            raise ConfigError(
                f"symmetric: in {tree.name} a policy earns something else as player {player} than "
                "as player 0, so one set of policies is not enough; leave it out"
            )
