"""The rules of games small enough to traverse completely, and their trees as arrays.

The rules of an extensive-form game (Kuhn 1953; Osborne and Rubinstein 1994, chapter 11) are a
`TreeGame`, traversed once by `tree_walk.flatten`. All computations then run over arrays.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from remuda.analysis.trees import tree_kernels as kernels
from remuda.errors import UsageError
from remuda.types import Bools, Integers, Numbers

Policies = Sequence[Numbers]  # by player, probabilities [I_p, A] by information set and action

CHANCE, OVER = -1, -2  # in place of a player's number: a chance move; the end of the game
SLACK = 1e-6  # allowed error of a policy's sum of probabilities

State = TypeVar("State")


class TreeGame(Protocol[State]):
    """The rules of a game for players 0 to R - 1 who act one after another.

    Simultaneous moves become moves that the other players cannot observe. States are immutable:
    `child` returns a new one. Methods are deterministic.
    """

    @property
    def name(self) -> str:
        """The game's name, used in messages."""

    @property
    def num_players(self) -> int:
        """The number of players, R."""

    @property
    def num_actions(self) -> int:
        """A: actions of players are numbered 0 to A - 1 in all information sets."""

    @property
    def merges(self) -> bool:
        """True if equal states are one node, whatever their history.

        In that case states must be hashable, and the game must have perfect information.
        """

    def root(self) -> State:
        """Return the state at the start."""

    def player(self, state: State) -> int:
        """Return the player to act, CHANCE or OVER."""

    def actions(self, state: State) -> Sequence[int]:
        """Return the player's legal actions, at least one."""

    def outcomes(self, state: State) -> Sequence[tuple[int, float]]:
        """Return the outcomes of chance, as integers of your choice, with their probabilities."""

    def child(self, state: State, action: int) -> State:
        """Return the state after an action, or after an outcome of chance."""

    def information(self, state: State) -> Hashable:
        """Return the acting player's information, equal for states that it cannot distinguish."""

    def returns(self, state: State) -> Sequence[float]:
        """Return each player's total return at the end: R numbers."""


@dataclass(frozen=True)
class InformationSet:
    """The states that a player cannot distinguish."""

    player: int
    key: Hashable  # the `TreeGame.information` of its states
    actions: tuple[int, ...]  # the legal actions in each state
    state: object = field(repr=False, compare=False)  # one of the states


@dataclass(frozen=True, eq=False)
class Tree:
    """A game of N nodes, E edges and R players, traversed once by `tree_walk.flatten`.

    1. Node 0 is the start, and parents come before their children.
    2. Information sets are numbered consecutively, those of player 0 first: I in total.
    3. The game has perfect recall: a player's information set determines its earlier information
       and actions. With merged states this holds for the unmerged tree.
    """

    name: str
    num_players: int
    num_actions: int
    players: Integers = field(repr=False)  # [N] the player to act, CHANCE or OVER
    sets: Integers = field(repr=False)  # [N] the information set; -1 if no player acts
    first: Integers = field(repr=False)  # [N + 1] the first edge of each node, then E
    children: Integers = field(repr=False)  # [E] the node that each edge leads to
    actions: Integers = field(repr=False)  # [E] the action of each edge
    chance: Numbers = field(repr=False)  # [E] the probability of a chance edge; 1 elsewhere
    returns: Numbers = field(repr=False)  # [N, R] at terminal nodes; 0 elsewhere
    information_sets: tuple[tuple[InformationSet, ...], ...] = field(repr=False)  # by player
    merged: bool = False  # whether several histories may lead to one node

    @property
    def num_nodes(self) -> int:
        """The number of nodes, N."""
        return len(self.players)

    @cached_property
    def offsets(self) -> Integers:
        """[R + 1]: the number of each player's first information set, then I."""
        return np.cumsum([0, *map(len, self.information_sets)], dtype=np.int64)

    @cached_property
    def legal(self) -> Bools:
        """[I, A]: True for legal actions."""
        found = np.zeros((int(self.offsets[-1]), self.num_actions), np.bool_)
        found[self.sets[self.sources][self.by_players], self.actions[self.by_players]] = True
        return found

    @cached_property
    def sources(self) -> Integers:
        """[E]: the node that each edge leaves."""
        return np.repeat(np.arange(self.num_nodes), np.diff(self.first))

    @cached_property
    def by_players(self) -> Bools:
        """[E]: True if a player chooses the edge, False if chance does."""
        return self.players[self.sources] >= 0

    @cached_property
    def members(self) -> Integers:
        """[I]: one node of each information set."""
        known, places = np.unique(self.sets, return_index=True)
        return places[known >= 0].astype(np.int64)

    @cached_property
    def is_perfect_information(self) -> bool:
        """True if each information set is a single node."""
        return int((self.sets >= 0).sum()) == int(self.offsets[-1])

    @cached_property
    def is_zero_sum(self) -> bool:
        """True if the players' returns add up to 0 at every terminal node."""
        scale = float(np.abs(self.returns).max())
        return bool((np.abs(self.returns.sum(1)) <= 1e-9 * max(scale, 1.0)).all())

    def legal_of(self, player: int) -> Bools:
        """Return [I_p, A]: True for one player's legal actions."""
        return self.legal[self.offsets[player] : self.offsets[player + 1]]

    def own(self, player: int) -> Bools:
        """Return [N]: True at nodes where one player acts."""
        found: Bools = self.players == player
        return found

    def sequences(self, player: int) -> Integers:
        """Return [N]: a player's last action before each node, set * A + action; -1: none yet."""
        return kernels.own_sequences(
            self.first, self.children, self.actions, self.sets, self.own(player), self.num_actions
        )

    def check_player(self, player: int) -> None:
        """Raise a `UsageError` unless the player exists."""
        if not 0 <= player < self.num_players:
            raise UsageError(
                f"{self.name}: there are players 0 to {self.num_players - 1}, and no {player}"
            )

    def check_policy(self, player: int, policy: Numbers) -> Numbers:
        """Check a policy of one player, and return it as float64 [I_p, A]."""
        found = np.asarray(policy, np.float64)
        legal = self.legal_of(player)
        what = f"{self.name}: the policy of player {player}"
        if found.shape != legal.shape:
            raise UsageError(
                f"{what} is {found.shape}; it must be {legal.shape}, information sets by actions"
            )
        if not np.isfinite(found).all() or (found < 0.0).any():
            raise UsageError(f"{what} contains numbers that are not probabilities")
        for wrong, why in (
            ((found > SLACK) & ~legal, "chooses an illegal action"),
            (
                np.abs(found.sum(1) - 1.0)[:, None] > SLACK,
                "has probabilities that do not add up to 1",
            ),
        ):
            if wrong.any():
                known = self.information_sets[player][int(wrong.any(1).argmax())]
                raise UsageError(f"{what} {why} in the information set {known.key!r}")
        return found

    def edge_probabilities(self, policies: Policies, free: int | None = None) -> Numbers:
        """Return [E]: the probability of each edge; 1 for edges of the player `free`."""
        if len(policies) != self.num_players:
            raise UsageError(
                f"{self.name} has {self.num_players} players, but there are policies for "
                f"{len(policies)}"
            )
        all_policies = np.ones(self.legal.shape)
        for player, policy in enumerate(policies):
            if player != free:
                part = slice(self.offsets[player], self.offsets[player + 1])
                all_policies[part] = self.check_policy(player, policy)
        found, chosen = self.chance.copy(), self.by_players
        found[chosen] = all_policies[self.sets[self.sources[chosen]], self.actions[chosen]]
        return found

    def reach(self, probabilities: Numbers) -> Numbers:
        """Return [N]: the probability of reaching each node, from edge probabilities [E]."""
        return kernels.reach(self.first, self.children, probabilities)


def uniform(tree: Tree) -> tuple[Numbers, ...]:
    """Return the uniform policy of each player."""
    legal = [tree.legal_of(player) for player in range(tree.num_players)]
    return tuple(each / each.sum(1, keepdims=True) for each in legal)


def mixture(
    tree: Tree, player: int, policies: Sequence[Numbers], weights: npt.ArrayLike | None = None
) -> Numbers:
    """Return the policy [I_p, A] equivalent to drawing one of `policies` for a whole game.

    In each information set, a policy is weighted by its probability of reaching it (Kuhn 1953: with
    perfect recall, mixed and behavioural strategies are equivalent). Unreached sets get uniform
    probabilities.

    `policies`: each [I_p, A]; `weights`: by policy, unnormalised; None: equal.
    """
    tree.check_player(player)
    if tree.merged:
        raise UsageError(
            f"{tree.name}: equal states are one node here, but a policy drawn for a whole "
            "game may act differently after different histories; no policy over these nodes "
            "is equivalent"
        )
    shares = np.ones(len(policies)) if weights is None else np.asarray(weights, np.float64)
    if not len(policies) or shares.shape != (len(policies),) or not shares.sum() > 0.0:
        raise UsageError(
            f"{tree.name}: {len(policies)} policies are drawn with weights {weights!r}"
        )
    if (shares < 0.0).any():
        raise UsageError(f"{tree.name}: a weight is negative: {weights!r}")
    part = slice(tree.offsets[player], tree.offsets[player + 1])
    own, members = tree.own(player)[tree.sources], tree.members[part]
    total, likely = np.zeros(tree.legal_of(player).shape), np.ones(len(tree.children))
    for share, policy in zip(shares, policies, strict=True):
        checked = tree.check_policy(player, policy)
        rows = tree.sets[tree.sources[own]] - tree.offsets[player]
        likely[own] = checked[rows, tree.actions[own]]
        # No node has two parents, so reach is the product of the player's own probabilities.
        reached = kernels.reach(tree.first, tree.children, likely)[members]
        total += share * reached[:, None] * checked
    sums = total.sum(1, keepdims=True)
    played = np.divide(total, sums, out=np.zeros_like(total), where=sums > 0.0)
    return np.where(sums > 0.0, played, uniform(tree)[player])
