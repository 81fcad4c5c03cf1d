"""Equilibria of two-player zero-sum games, by the sequence form or by backward induction.

A realization plan represents a player's policy by the player's probability of each of its action
sequences. In these plans the payoff is bilinear and the constraints are linear. An equilibrium is
therefore the solution of a linear program, whose size is linear in the tree size (Koller, Megiddo
and von Stengel 1996, "Efficient computation of equilibria for extensive two-person games").
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from remuda.analysis.trees import tree_kernels as kernels
from remuda.analysis.trees.exploitability import best_response
from remuda.analysis.trees.trees import Tree, uniform
from remuda.errors import RemudaError, UsageError
from remuda.types import Integers, Numbers

MAX_SEQUENCES = 20_000  # most sequences of both players; a larger linear program takes many minutes


@dataclass(frozen=True)
class SequenceFormEquilibrium:
    """A Nash equilibrium of a two-player zero-sum game, with bounds that prove its accuracy.

    Against exact best responses, player 0's policy receives at least `lower`, and player 1's policy
    concedes at most `upper`. The game's value is between both; their difference is the NashConv of
    the policies.
    """

    value: float  # the solver's value of the game to player 0
    lower: float
    upper: float
    policies: tuple[Numbers, Numbers] = field(repr=False)  # [I_p, A] of each player

    @property
    def nash_conv(self) -> float:
        """`upper - lower`: 0 except for the solver's rounding."""
        return self.upper - self.lower


def equilibrium(tree: Tree, max_sequences: int = MAX_SEQUENCES) -> SequenceFormEquilibrium:
    """Return a Nash equilibrium, with the value of the game to player 0.

    Backward induction solves games of perfect information, which may be large. A linear program
    solves other games.
    """
    if tree.num_players != 2 or not tree.is_zero_sum:
        raise UsageError(
            f"{tree.name}: equilibria are computed for two-player zero-sum games; for "
            "other games, measure the exploitability of their policies"
        )
    if tree.is_perfect_information:
        value, policies = _solve_backward(tree)
    else:
        size = int(tree.legal.sum())
        if size > max_sequences:
            raise UsageError(
                f"{tree.name}: its linear program has {size:,} sequences, and {max_sequences:,} "
                "are allowed; use a smaller game, or allow more (max_sequences)"
            )
        value, policies = _solve_program(tree)
    lower = 0.0 - best_response(tree, 1, policies).value
    upper = best_response(tree, 0, policies).value
    return SequenceFormEquilibrium(value, lower, upper, policies)


def _solve_backward(tree: Tree) -> tuple[float, tuple[Numbers, Numbers]]:
    values, chosen = kernels.induct_backward(
        tree.first,
        tree.children,
        tree.actions,
        tree.players,
        tree.sets,
        tree.chance,
        tree.returns,
        len(tree.legal),
    )
    policies = np.zeros(tree.legal.shape)
    policies[np.arange(len(chosen)), chosen] = 1.0
    split = int(tree.offsets[1])
    return float(values[0, 0]), (policies[:split], policies[split:])


@dataclass(frozen=True)
class _Sequences:
    """The S sequences of one player; sequence 0 is the empty one."""

    numbers: Integers  # [I_p, A]: the sequence that ends in each action; -1: illegal
    before: Integers  # [I_p]: the sequence that leads to each information set
    at: Integers  # [N]: the sequence that leads to each node

    @property
    def count(self) -> int:
        return int(self.numbers.max(initial=0)) + 1

    def constraints(self) -> sparse.csr_matrix:
        """Return E, [1 + I_p, S]: realization plans x satisfy E x = e with e = (1, 0, ..., 0)."""
        sets, actions = np.nonzero(self.numbers >= 0)
        count = len(self.before)
        rows = np.concatenate([[0], 1 + np.arange(count), 1 + sets])
        columns = np.concatenate([[0], self.before, self.numbers[sets, actions]])
        values = np.concatenate([[1.0], np.full(count, -1.0), np.ones(len(sets))])
        return sparse.csr_matrix((values, (rows, columns)), shape=(1 + count, self.count))

    def policy(self, plan: Numbers, otherwise: Numbers) -> Numbers:
        """Return the policy [I_p, A] of a realization plan [S]; unreached sets use `otherwise`."""
        found = np.where(self.numbers >= 0, np.maximum(plan[self.numbers], 0.0), 0.0)
        sums = found.sum(1, keepdims=True)
        some = sums > 1e-12
        return np.where(some, found / np.where(some, sums, 1.0), otherwise)


def _sequences(tree: Tree, player: int) -> _Sequences:
    legal = tree.legal_of(player)
    numbers = np.full(legal.shape, -1, np.int64)
    numbers[legal] = 1 + np.arange(legal.sum())
    last = tree.sequences(player)
    some = last >= 0
    at = np.zeros(tree.num_nodes, np.int64)
    at[some] = numbers.reshape(-1)[last[some] - tree.offsets[player] * tree.num_actions]
    members = tree.members[tree.offsets[player] : tree.offsets[player + 1]]
    return _Sequences(numbers, at[members], at)


def _solve_program(tree: Tree) -> tuple[float, tuple[Numbers, Numbers]]:
    """Maximise the payoff of player 0's plan x against a best response.

    Let A be the payoffs by sequences and F player 1's constraint matrix. By duality, the payoff
    against a best response is max q_0 with F^T q <= A^T x. The multipliers of these constraints are
    player 1's plan.
    """
    row, column = _sequences(tree, 0), _sequences(tree, 1)
    terminal = np.flatnonzero(tree.returns[:, 0])
    by_chance = tree.reach(tree.chance)[terminal]
    weighted = tree.returns[terminal, 0] * by_chance
    payoffs = sparse.csr_matrix(
        (weighted, (row.at[terminal], column.at[terminal])), shape=(row.count, column.count)
    )
    plans, reply_constraints = row.constraints(), column.constraints()
    goal = np.zeros(row.count + reply_constraints.shape[0])
    goal[row.count] = -1.0
    start = np.zeros(plans.shape[0])
    start[0] = 1.0
    found = linprog(
        goal,
        A_ub=sparse.hstack([-payoffs.T, reply_constraints.T], format="csr"),
        b_ub=np.zeros(column.count),
        A_eq=sparse.hstack(
            [plans, sparse.csr_matrix((plans.shape[0], reply_constraints.shape[0]))], format="csr"
        ),
        b_eq=start,
        bounds=[(0.0, None)] * row.count + [(None, None)] * reply_constraints.shape[0],
        method="highs",
    )
    if found.status != 0:
        raise RemudaError(f"{tree.name}: the linear program was not solved: {found.message}")
    otherwise = uniform(tree)
    return 0.0 - float(found.fun), (
        row.policy(found.x[: row.count], otherwise[0]),
        column.policy(-found.ineqlin.marginals, otherwise[1]),
    )
