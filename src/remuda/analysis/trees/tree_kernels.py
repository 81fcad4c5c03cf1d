"""Compiled passes over the arrays of `trees.Tree`.

Nodes are numbered so that parents come before their children. The edges of node n are `first[n]` to
`first[n + 1] - 1`.
"""

from __future__ import annotations

import numpy as np

from remuda.system.kernels import njit
from remuda.types import Bools, Integers, Numbers


@njit(cache=True)
def reach(first: Integers, children: Integers, probabilities: Numbers) -> Numbers:
    """Return the probability of reaching each node, [N], from the edges' probabilities [E].

    If several edges lead to a node, their probabilities are added.
    """
    found = np.zeros(first.size - 1)
    found[0] = 1.0
    for node in range(found.size):
        for edge in range(first[node], first[node + 1]):
            found[children[edge]] += found[node] * probabilities[edge]
    return found


@njit(cache=True)
def own_sequences(
    first: Integers,
    children: Integers,
    actions: Integers,
    sets: Integers,
    own: Bools,
    num_actions: int,
) -> Integers:
    """Return a player's last action before each node, [N], as set * num_actions + action; -1: none.

    `own`: [N] nodes where that player acts. With perfect recall the last action identifies the
    whole sequence.
    """
    found = np.full(first.size - 1, -1, np.int64)
    for node in range(found.size):
        for edge in range(first[node], first[node + 1]):
            last = sets[node] * num_actions + actions[edge]
            found[children[edge]] = last if own[node] else found[node]
    return found


@njit(cache=True)
def stages(first: Integers, children: Integers, own: Bools) -> Integers:
    """Return the largest number of a player's actions before each node: [N].

    `own`: [N] nodes where the player acts.
    """
    found = np.zeros(first.size - 1, np.int64)
    for node in range(found.size):
        after = found[node] + (1 if own[node] else 0)
        for edge in range(first[node], first[node + 1]):
            found[children[edge]] = max(found[children[edge]], after)
    return found


@njit(cache=True)
def respond(
    order: Integers,
    stage: Integers,
    first: Integers,
    children: Integers,
    actions: Integers,
    probabilities: Numbers,
    sets: Integers,
    own: Bools,
    legal: Bools,
    weights: Numbers,
    returns: Numbers,
    slack: float,
) -> tuple[Numbers, Integers]:
    """Best-respond for one player: return the values of nodes [N] and the action of each set [I].

    Stages are processed from last to first. The values of the player's actions are summed over all
    nodes of an information set. Each node is weighted by the probability that the others and chance
    reach it. The sums determine the set's best action, and the values of its nodes. Ties go to the
    first action.

    - `order`: [N] nodes by stage, from last to first; within a stage, children before parents.
    - `stage`: [N] from `stages`.
    - `first`: [N + 1]; `children`, `actions`: [E].
    - `probabilities`: [E] of the edges; those of the player are ignored.
    - `sets`: [N] the information set; -1: no player acts.
    - `own`: [N] nodes where the player acts; `legal`: [I, A].
    - `weights`: [N] probability that the others and chance reach each node.
    - `returns`: [N] the player's returns at terminal nodes; 0 elsewhere.
    - `slack`: differences up to this are ties.
    """
    values = returns.copy()
    action_values = np.zeros(legal.shape)
    chosen = np.full(legal.shape[0], -1, np.int64)
    start = 0
    while start < order.size:
        end = start
        while end < order.size and stage[order[end]] == stage[order[start]]:
            node = order[end]
            if own[node]:
                for edge in range(first[node], first[node + 1]):
                    gain = weights[node] * values[children[edge]]
                    action_values[sets[node], actions[edge]] += gain
            end += 1
        for place in range(start, end):
            node = order[place]
            if own[node] and chosen[sets[node]] < 0:
                chosen[sets[node]] = _best(action_values[sets[node]], legal[sets[node]], slack)
            for edge in range(first[node], first[node + 1]):
                if not own[node]:
                    values[node] += probabilities[edge] * values[children[edge]]
                elif actions[edge] == chosen[sets[node]]:
                    values[node] = values[children[edge]]
        start = end
    return values, chosen


@njit(cache=True)
def induct_backward(
    first: Integers,
    children: Integers,
    actions: Integers,
    players: Integers,
    sets: Integers,
    chance: Numbers,
    returns: Numbers,
    num_sets: int,
) -> tuple[Numbers, Integers]:
    """Solve a game of perfect information: return the values of all nodes [N, R], and actions [I].

    From the last nodes to the first, the player to act chooses the action with its highest return;
    ties go to the first.
    """
    values = returns.copy()
    chosen = np.full(num_sets, -1, np.int64)
    for node in range(first.size - 2, -1, -1):
        player, best = players[node], -1
        for edge in range(first[node], first[node + 1]):
            if player < 0:
                for role in range(values.shape[1]):
                    values[node, role] += chance[edge] * values[children[edge], role]
            elif best < 0 or values[children[edge], player] > values[children[best], player]:
                best = edge
        if best >= 0:
            for role in range(values.shape[1]):
                values[node, role] = values[children[best], role]
            chosen[sets[node]] = actions[best]
    return values, chosen


@njit(cache=True)
def _best(values: Numbers, legal: Bools, slack: float) -> int:
    best = -1
    for action in range(values.size):
        if legal[action] and (best < 0 or values[action] > values[best] + slack):
            best = action
    return best
