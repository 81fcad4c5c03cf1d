"""Expected returns and best responses in game trees."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from remuda.analysis import tree_kernels as kernels
from remuda.analysis.trees import Policies, Tree

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BestResponse:
    """The best response of one player to the policies of all others."""

    player: int
    value: float
    """Its expected return."""
    policy: Numbers = field(repr=False)
    """[I_p, A]: 1 for the action taken, else 0. Ties go to the first action, also in information
    sets that the others' play never reaches.
    """

    def as_summary(self) -> dict[str, float]:
        """Return plain data, without the policy."""
        return {"player": self.player, "value": self.value}


def expected_returns(tree: Tree, policies: Policies) -> Numbers:
    """Return the exact expected return of each player: [R].

    `policies`: by player, [I_p, A].
    """
    found: Numbers = tree.reach(tree.edge_probabilities(policies)) @ tree.returns
    return found


def best_response(tree: Tree, player: int, policies: Policies) -> BestResponse:
    """Return a best response of one player to the policies of the others.

    In each information set, from the end, the action with the greatest value is taken; nodes are
    weighted by the probability with which others and chance reach them (their counterfactual reach;
    Zinkevich et al. 2007, "Regret minimization in games with incomplete information").

    `policies`: by player, [I_p, A]; the player's own is ignored.
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
