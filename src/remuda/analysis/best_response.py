"""What policies earn in a tree, and what the best answer to them does."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from remuda.analysis import tree_kernels as kernels
from remuda.analysis.trees import Policies, Tree

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BestResponse:
    """The best answer of one player to the policies of all others."""

    player: int
    value: float
    """What it earns a game, in expectation."""
    policy: Numbers = field(repr=False)
    """[I_p, A]: 1 for the action that is taken, else 0. Of equally good actions it is the first,
    also where the others' play never leads; in a game of perfect information it is the best there,
    too."""

    def as_summary(self) -> dict[str, float]:
        """Plain data, without the policy."""
        return {"player": self.player, "value": self.value}


def expected_returns(tree: Tree, policies: Policies) -> Numbers:
    """What each player earns a game: [R], exactly, by the likelihood of every end.

    Args:
        tree: of the game.
        policies: by player, [I_p, A].

    Raises:
        UsageError: the policies do not fit the game (`Tree.check_policy`).
    """
    found: Numbers = tree.reach(tree.edge_probabilities(policies)) @ tree.returns
    return found


def best_response(tree: Tree, player: int, policies: Policies) -> BestResponse:
    """The best that one player can do against the policies of the others.

    In each information set, from the end, the action is taken that is worth most, its nodes
    weighted by how likely the others and chance make them (their counterfactual reach; Zinkevich et
    al. 2007, "Regret minimization in games with incomplete information").

    Args:
        tree: of the game.
        player: who answers.
        policies: by player, [I_p, A]; the player's own is not looked at.

    Raises:
        UsageError: the policies do not fit the game, or there is no such player.
    """
    tree.check_player(player)
    probabilities = tree.edge_probabilities(policies, free=player)
    own = tree.own(player)
    stage = kernels.stages(tree.first, tree.children, own)
    order = np.lexsort((-np.arange(tree.num_nodes), -stage))
    # With perfect information each set is one node, and what is best there hangs on no weight.
    perfect = tree.is_perfect_information
    weights = np.ones(tree.num_nodes) if perfect else tree.reach(probabilities)
    values, chosen = kernels.respond(
        order,
        stage,
        tree.first,
        tree.children,
        tree.actions,
        probabilities,
        tree.sets,
        own,
        tree.legal,
        weights,
        np.ascontiguousarray(tree.returns[:, player]),
    )
    part = chosen[tree.offsets[player] : tree.offsets[player + 1]]
    policy = np.zeros(tree.legal_of(player).shape)
    policy[np.arange(len(part)), part] = 1.0
    return BestResponse(player, float(values[0]), policy)
