"""Double oracle with exact best responses, in games small enough to traverse.

The algorithm is that of McMahan et al. 2003, "Planning in the presence of cost functions controlled
by an adversary". In extensive-form games, mixtures become behavioural policies (Lanctot et al.
2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np

from remuda.analysis.trees.exploitability import best_response, expected_returns
from remuda.analysis.trees.trees import OVER, Tree, mixture, uniform
from remuda.solvers.psro.games import tree_of
from remuda.solvers.psro.iterations import (
    CONVERGED,
    ENOUGH,
    INTERRUPTED,
    NOTHING_NEW,
    SPENT,
    DoubleOracle,
    Iteration,
    Loop,
    Setup,
)
from remuda.solvers.psro.meta_solvers import (
    OF_SETS,
    MetaStrategy,
    Mixtures,
    ResponseTarget,
    check_players,
    check_zero_sum,
    solve,
)
from remuda.solvers.psro.record import Record, begin, go_on
from remuda.types import Numbers

Solver = Callable[[Numbers], MetaStrategy]
GAIN, ROUNDING = 1e-9, 1e-13  # shares of the returns' range and size below which a gain is zero


class Populations:
    """The policies of a tree's players so far, and their payoffs."""

    def __init__(self, tree: Tree) -> None:
        """Start with each player's uniform policy."""
        self.tree = tree
        self._over = np.flatnonzero(tree.players == OVER)
        self._chance = tree.reach(tree.chance)[self._over]
        self.policies: list[list[Numbers]] = [[] for _ in range(tree.num_players)]
        self._reaches: list[list[Numbers]] = [[] for _ in range(tree.num_players)]
        for player, policy in enumerate(uniform(tree)):
            self._join(player, policy)
        self.payoffs: Numbers = np.full((tree.num_players, *(0 for _ in self.policies)), np.nan)

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(len(each) for each in self.policies)

    def add(self, player: int, actions: Sequence[int]) -> None:
        """Add a deterministic policy of a player: an action for each information set [I_p]."""
        self._join(player, self._policy(player, actions))

    def has(self, player: int, actions: Sequence[int]) -> bool:
        policy = self._policy(player, actions)
        return any(np.array_equal(policy, own) for own in self.policies[player])

    def fill(self) -> None:
        before = self.payoffs.shape[1:]
        added = [(0, n - old) for n, old in zip(self.counts, before, strict=True)]
        self.payoffs = np.pad(self.payoffs, [(0, 0), *added], constant_values=np.nan)
        returns = self.tree.returns[self._over]
        missing: list[list[int]] = np.argwhere(np.isnan(self.payoffs[0])).tolist()
        for cell in missing:
            reaches = [own[index] for own, index in zip(self._reaches, cell, strict=True)]
            index: tuple[slice | int, ...] = (slice(None), *cell)
            self.payoffs[index] = profile_returns(self._chance, reaches, returns)

    def played(self, mixtures: Mixtures) -> tuple[Numbers, ...]:
        """Return each player's mixture as one policy [I_p, A] (Kuhn 1953)."""
        found = []
        for player, shares in enumerate(mixtures):
            kept = np.flatnonzero(shares > 0.0)
            own = [self.policies[player][index] for index in kept.tolist()]
            found.append(mixture(self.tree, player, own, shares[kept]))
        return tuple(found)

    def _policy(self, player: int, actions: Sequence[int]) -> Numbers:
        policy = np.zeros(self.tree.legal_of(player).shape)
        policy[np.arange(len(policy)), np.asarray(actions, np.int64)] = 1.0
        return policy

    def _join(self, player: int, policy: Numbers) -> None:
        tree, chosen = self.tree, self.tree.own(player)[self.tree.sources]
        likely = np.ones(len(tree.children))
        rows = tree.sets[tree.sources[chosen]] - tree.offsets[player]
        likely[chosen] = policy[rows, tree.actions[chosen]]
        self.policies[player].append(policy)
        self._reaches[player].append(tree.reach(likely)[self._over])


def profile_returns(chance: Numbers, reaches: Sequence[Numbers], returns: Numbers) -> Numbers:
    """Return expected returns [R] from chance [T], reaches by player [T] and returns [T, R]."""
    likely = chance
    for own in reaches:
        likely = likely * own
    found: Numbers = likely @ returns
    return found


def run_exact(
    setup: Setup,
    directory: Path | None = None,
    resume: bool = False,
    on_iteration: Callable[[Iteration], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> DoubleOracle:
    """Run or resume a double oracle with exact best responses.

    The loop ends when no best response gains more than 1e-9 of the range of returns, when NashConv
    is at most `enough`, after `iterations`, or when `stopped` returns True. For a meta-solver that
    ignores duplicates (`OF_SETS`) the loop also ends when no best response is new. A resumed run
    gives the same result as an uninterrupted one.
    """
    settings = setup.settings
    check_players(settings.meta_solver, 2)
    tree = tree_of(setup.game, setup.options)
    check_players(settings.meta_solver, tree.num_players)
    check_zero_sum(settings.meta_solver, tree.returns[tree.players == OVER].T)
    opened: AbstractContextManager[Record | None] = nullcontext()
    if directory is not None:
        opened = go_on(directory) if resume else begin(directory, setup.description())
    with opened as record:
        solver = partial(solve, settings.meta_solver)
        only_new = settings.meta_solver in OF_SETS
        loop = ExactLoop(Populations(tree), solver, record, on_iteration, stopped, only_new)
        ended = loop.run(settings.iterations, settings.enough)
    play = loop.populations.played(loop.iterations[-1].mixtures)
    return setup.result(loop, ended, directory, play)


def least_gain(tree: Tree) -> float:
    """Return the largest gain that is treated as zero, from the game's returns."""
    returns = tree.returns[tree.players == OVER]
    return GAIN * float(np.ptp(returns, axis=0).max()) + ROUNDING * float(np.abs(returns).max())


class ExactLoop(Loop):
    """The loop of iterations, with any function from payoffs to a `MetaStrategy` as the solver."""

    def __init__(
        self,
        populations: Populations,
        solver: Solver,
        record: Record | None = None,
        on_iteration: Callable[[Iteration], None] | None = None,
        stopped: Callable[[], bool] = lambda: False,
        only_new: bool = False,
    ) -> None:
        super().__init__(record, on_iteration, stopped)
        self.populations, self._solver, self._only_new = populations, solver, only_new
        self._gain = least_gain(populations.tree)
        self._added: list[tuple[int, list[int]]] = []  # best responses: players and their actions
        self._targets: tuple[ResponseTarget, ...] = ()  # of the last meta-game; empty if resumed

    def run(self, iterations: int, enough: float = 0.0) -> str:
        """Iterate until no best response gains; return the reason for the end."""
        if self._record is not None:
            self._resume(self._record)
        while True:
            if self.iterations:
                last = self.iterations[-1]
                if last.gains.max() <= self._gain:
                    return CONVERGED
                if last.nash_conv <= enough:
                    return ENOUGH
                if last.number >= iterations:
                    return SPENT
                if self._stopped():
                    return INTERRUPTED
                if not self._respond() and self._only_new:
                    return NOTHING_NEW
                for player, actions in self._added:
                    self.populations.add(player, actions)
            self._solve()

    def _resume(self, record: Record) -> None:
        for line in record.lines[1:]:
            for player, actions in line["added"]:
                self.populations.add(player, actions)
            self.add(Iteration.from_line(line))
        if self.iterations:
            self.populations.payoffs = self.iterations[-1].payoffs
            self._earlier_seconds = self.iterations[-1].seconds

    def _respond(self) -> bool:
        """Find a best response to every target; return whether any of them is new."""
        self._added = []
        for target in self._targets or self._solver(self.populations.payoffs).targets:
            play = self.populations.played(target.mixtures)
            policy = best_response(self.populations.tree, target.player, play).policy
            actions: list[int] = policy.argmax(1).tolist()
            if (target.player, actions) not in self._added:  # two targets may have one response
                self._added.append((target.player, actions))
        return not all(self.populations.has(*each) for each in self._added)

    def _solve(self) -> None:
        """Solve the meta-game, measure its mixtures, and record the iteration."""
        populations = self.populations
        populations.fill()
        strategy = self._solver(populations.payoffs)
        mixtures, self._targets = strategy.mixtures, strategy.targets
        play = populations.played(mixtures)
        returns = expected_returns(populations.tree, play)
        best = [best_response(populations.tree, player, play).value for player in range(len(play))]
        iteration = Iteration(
            len(self.iterations),
            populations.counts,
            mixtures,
            # A negative gain is a rounding error, because a best response earns at least as much.
            np.maximum(np.array(best) - returns, 0.0),
            populations.payoffs.copy(),
            seconds=self.seconds,
        )
        self.keep(iteration, added=[[player, actions] for player, actions in self._added])
