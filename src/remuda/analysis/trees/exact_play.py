"""Exact exploitability of trained policies, in games small enough to traverse.

These are matrix games of one round, the games of `played_trees` (Kuhn and Leduc poker, tic-tac-toe)
and small turn-based games of OpenSpiel. Stochastic policies sample from
their probabilities, and Q-learners act greedily.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.analysis.as_json import figures
from remuda.analysis.trees.exploitability import Exploitability, measure
from remuda.analysis.trees.open_spiel_games import OpenSpielGame
from remuda.analysis.trees.played_trees import played_rules
from remuda.analysis.trees.policy_adapter import probabilities
from remuda.analysis.trees.tree_games import MatrixGame
from remuda.analysis.trees.tree_walk import flatten
from remuda.analysis.trees.trees import Tree
from remuda.envs.adapters.open_spiel import OpenSpielEnv
from remuda.envs.description import EnvSpec
from remuda.envs.games.matrix_games import MatrixGame as MatrixEnv
from remuda.envs.vector_env import VectorEnv
from remuda.errors import UsageError
from remuda.types import Array, Bools, Floats, Numbers

if TYPE_CHECKING:
    from remuda.policies.spec import PolicySpec


@dataclass(frozen=True)
class WalkedGame:
    """A run's game as a tree."""

    tree: Tree
    observe: Callable[[int], tuple[Array, Bools]]
    """Returns observations [I_p, *shape] and legal actions [I_p, first + A] of a player's
    information sets."""
    first: int = 0  # the index that the run uses for the tree's action 0

    def play(self, player: int, spec: PolicySpec, weights: Floats) -> Numbers:
        """Return a policy's action probabilities in one seat: [I_p, A]."""
        return probabilities(spec, weights, *self.observe(player))[:, self.first :]


def walked_of(env: EnvSpec) -> WalkedGame | None:
    """Return the tree of an environment's game; None: it cannot be traversed, or has wrappers."""
    vector_env = env.make(1)
    try:
        return walked_game(env.game, vector_env)
    finally:
        vector_env.close()


def walked_game(game: str, env: VectorEnv) -> WalkedGame | None:
    """Return the tree of a run's game; None: it cannot be traversed, or has wrappers."""
    if type(env) is MatrixEnv:  # a subclass may have other rules
        return _matrix_game(env)
    if type(env) is OpenSpielEnv:
        return _open_spiel_game(env)
    played = played_rules(game, env)
    if played is None:
        return None
    tree = flatten(played.rules())

    @cache  # all policies of a population get the same batch
    def observe(player: int) -> tuple[Array, Bools]:
        return played.observations(tree, player)

    return WalkedGame(tree, observe, played.first)


def _matrix_game(env: MatrixEnv) -> WalkedGame | None:
    """Return the tree of a one-round game; None: it has more rounds, and hides their history."""
    if env.rounds > 1:
        return None
    tree = flatten(MatrixGame(*np.moveaxis(env.payoffs.astype(np.float64), 2, 0)))

    def observe(player: int) -> tuple[Array, Bools]:
        size = env.agents[player].observation_space.shape
        assert size is not None
        observations = np.zeros((1, *size), np.float32)
        observations[:, 0] = 1.0
        return observations, np.ones((1, env.payoffs.shape[player]), np.bool_)

    return WalkedGame(tree, observe)


def _open_spiel_game(env: OpenSpielEnv) -> WalkedGame | None:
    """Return the tree of a turn-based game; None: it has simultaneous moves, or is too large."""
    if env.moves_together:
        return None
    try:
        tree = flatten(OpenSpielGame(env.name), 50_000)  # states; it takes some seconds
    except UsageError:  # it cannot be traversed
        return None

    @cache
    def observe(player: int) -> tuple[Array, Bools]:
        sets = tree.information_sets[player]
        return np.stack([env.observation_in(each.state, player) for each in sets]), tree.legal_of(
            player
        )

    return WalkedGame(tree, observe)


@dataclass(frozen=True)
class ExactExploitability:
    """Exact exploitability by policy."""

    found: Mapping[str, Exploitability]  # by policy, or by the names of policies that play together
    not_measured: Mapping[str, str]  # reasons by policy

    def as_summary(self) -> dict[str, Any]:
        return {
            "policies": {name: each.as_summary() for name, each in self.found.items()},
            "not_measured": dict(self.not_measured),
        }

    def in_words(self) -> str:
        if not self.found:
            return next(iter(self.not_measured.values()), "No policy to measure.")
        best = min(self.found, key=lambda name: self.found[name].nash_conv)
        worst = max(self.found, key=lambda name: self.found[name].nash_conv)
        words = f"{best} has exploitability {figures(self.found[best].exploitability)}"
        words += (
            f" (NashConv {figures(self.found[best].nash_conv)}), by a walk through the whole game"
        )
        if worst != best:
            words += f"; {worst} has the most, {figures(self.found[worst].exploitability)}"
        words += "; 0 is an equilibrium"
        if self.not_measured:
            words += f" ({len(self.found)} of {len(self.found) + len(self.not_measured)}; "
            reasons = list(self.not_measured.values())
            if all("depends on earlier observations" in each for each in reasons):
                words += "the others depend on earlier observations)"
            else:
                words += f"of the others, {reasons[0]})"
        return words + "."


def exact_exploitability(
    game: WalkedGame, profiles: Mapping[str, Sequence[tuple[PolicySpec, Floats]]]
) -> ExactExploitability:
    """Measure policies exactly.

    `profiles`: the specification and weights [P] for each seat; a policy that plays all seats is
    listed once for each seat.
    """
    found: dict[str, Exploitability] = {}
    not_measured: dict[str, str] = {}
    for name, seats in profiles.items():
        try:
            policies = [game.play(player, *seat) for player, seat in enumerate(seats)]
        except UsageError as error:
            not_measured[name] = str(error)
            continue
        found[name] = measure(game.tree, policies)
    return ExactExploitability(found, not_measured)
