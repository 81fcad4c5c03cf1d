"""Policies of a tree's players: arrays [I_p, A] of probabilities, by information set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from remuda.analysis import tree_kernels as kernels
from remuda.analysis.trees import InformationSet, Tree
from remuda.errors import UsageError

Numbers = npt.NDArray[np.float64]
Play = Callable[[InformationSet], Mapping[int, float] | Sequence[float] | Numbers]
"""A decision in an information set: probabilities by action, or an array [A] of them."""


def uniform(tree: Tree) -> tuple[Numbers, ...]:
    """Return the uniform policy of each player."""
    legal = [tree.legal_of(player) for player in range(tree.num_players)]
    return tuple(one / one.sum(1, keepdims=True) for one in legal)


def from_callable(tree: Tree, *plays: Play) -> tuple[Numbers, ...]:
    """Return policies from a function that is called once for each information set.

    An OpenSpiel policy works on a tree of one of its games: `lambda known:
    policy.action_probabilities(known.state, known.player)`.
    """
    if len(plays) not in (1, tree.num_players):
        raise UsageError(
            f"{tree.name} has {tree.num_players} players; give one function for all of them, or "
            f"one for each, and not {len(plays)}"
        )
    chosen = plays * tree.num_players if len(plays) == 1 else plays
    found = []
    for player, play in enumerate(chosen):
        policy = np.zeros(tree.legal_of(player).shape)
        for number, known in enumerate(tree.information_sets[player]):
            _write(tree, known, play(known), policy[number])
        found.append(tree.check_policy(player, policy))
    return tuple(found)


def mixture(
    tree: Tree, player: int, policies: Sequence[Numbers], weights: npt.ArrayLike | None = None
) -> Numbers:
    """Return the policy [I_p, A] equivalent to drawing one from a list for a whole game.

    Each counts in an information set by its probability of reaching it (Kuhn 1953: with perfect
    recall, mixed and behavioural strategies are equivalent). Unreached sets get uniform
    probabilities.

    `policies`: each [I_p, A]; `weights`: by policy, up to a factor; None: equal.
    """
    tree.check_player(player)
    if tree.merged:
        raise UsageError(
            f"{tree.name}: equal states are one node here, in which one drawn for a whole game may "
            "do this or that by how it got there; no policy over these nodes plays like that"
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
        # No node has two parents, so its reach is the product of the player's own probabilities.
        reached = kernels.reach(tree.first, tree.children, likely)[members]
        total += share * reached[:, None] * checked
    sums = total.sum(1, keepdims=True)
    played = np.divide(total, sums, out=np.zeros_like(total), where=sums > 0.0)
    found: Numbers = np.where(sums > 0.0, played, uniform(tree)[player])
    return found


def _write(
    tree: Tree,
    known: InformationSet,
    said: Mapping[int, float] | Sequence[float] | Numbers,
    policy: Numbers,
) -> None:
    """Write a function's result into a row [A] of a policy."""
    if isinstance(said, Mapping):
        strange = sorted(set(said) - set(range(tree.num_actions)))
        if strange:
            raise UsageError(
                f"{tree.name}: where player {known.player} knows {known.key!r} there is no action "
                f"{strange[0]}; allowed are {known.actions}"
            )
        for action, probability in said.items():
            policy[action] = probability
        return
    values = np.asarray(said, np.float64)
    if values.shape != policy.shape:
        raise UsageError(
            f"{tree.name}: a policy says {values.shape} where player {known.player} knows "
            f"{known.key!r}; it must be probabilities of {tree.num_actions} actions"
        )
    policy[...] = values
