"""Double oracle with exact best responses, in games small enough to traverse.

The algorithm is that of McMahan et al. 2003, "Planning in the presence of cost functions controlled
by an adversary". In extensive-form games, mixtures become behavioural policies (Lanctot et al.
2017).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np

from remuda.analysis.trees.exploitability import BestResponse
from remuda.analysis.trees.trees import OVER, Tree
from remuda.solvers.psro.games import tree_of
from remuda.solvers.psro.iterations import (
    CONVERGED,
    ENOUGH,
    FULL,
    INTERRUPTED,
    NOTHING_NEW,
    SPENT,
    DoubleOracle,
    Iteration,
    Loop,
    Setup,
)
from remuda.solvers.psro.meta_solvers import (
    MetaSolver,
    aimed,
    check_name,
    check_players,
    check_zero_sum,
    meta_solver,
)
from remuda.solvers.psro.meta_strategy import MetaStrategy, gain_of
from remuda.solvers.psro.populations import Populations
from remuda.solvers.psro.record import Record, begin, go_on
from remuda.types import Numbers

GAIN, ROUNDING = 1e-9, 1e-13  # shares of the returns' range and size below which a gain is zero


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
    ignores duplicates (`OF_SETS`) the loop also ends when no best response is new, and for one with
    a limit when the policies would exceed it. A resumed run gives the same result as an
    uninterrupted one.
    """
    settings = setup.settings
    check_name(settings.meta_solver)
    tree = tree_of(setup.game, setup.options)
    check_players(settings.meta_solver, tree.num_players)
    check_zero_sum(settings.meta_solver, tree.returns[tree.players == OVER].T)
    populations = Populations(tree, settings.symmetric)
    opened: AbstractContextManager[Record | None] = nullcontext()
    if directory is not None:
        opened = go_on(directory) if resume else begin(directory, setup.description())
    with opened as record:
        loop = ExactLoop(
            populations,
            meta_solver(settings.meta_solver, symmetric=settings.symmetric, stop=stopped),
            record,
            on_iteration,
            stopped,
        )
        ended = loop.run(settings.iterations, settings.enough)
    play = populations.played(loop.iterations[-1].mixtures)
    return setup.result(loop, ended, directory, play)


def least_gain(tree: Tree) -> float:
    """Return the largest gain that is treated as zero, from the game's returns."""
    returns = tree.returns[tree.players == OVER]
    return GAIN * float(np.ptp(returns, axis=0).max()) + ROUNDING * float(np.abs(returns).max())


class ExactLoop(Loop):
    """The loop of iterations, with any meta-solver."""

    def __init__(
        self,
        populations: Populations,
        solver: MetaSolver,
        record: Record | None = None,
        on_iteration: Callable[[Iteration], None] | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(record, on_iteration, stopped)
        self.populations, self._solver = populations, solver
        self._gain = least_gain(populations.tree)
        self._added: list[tuple[int, list[int]]] = []  # best responses: roles and their actions
        self._responses: list[tuple[float, BestResponse]] = []
        """Gains of best responses to the targets of the last meta-game, and the responses."""

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
                if not self._respond() and self._solver.only_new:
                    return NOTHING_NEW
                if not self._solver.fits(self.populations.sizes_with(self._added)):
                    return FULL
                for role, actions in self._added:
                    self.populations.add(role, actions)
            if not self._solve():
                return INTERRUPTED

    def _resume(self, record: Record) -> None:
        for line in record.lines[1:]:
            for role, actions in line["added"]:
                self.populations.add(role, actions)
            self.add(Iteration.from_line(line))
        if self.iterations:
            self.populations.payoffs = self.iterations[-1].payoffs
            self._earlier_seconds = self.iterations[-1].seconds
            self._measure(self.iterations[-1].strategy)

    def _respond(self) -> bool:
        """Choose the policies to add; return whether any best response is new."""
        self._added, is_any_new = [], False
        responses = self._responses
        if self._solver.skips_known:
            responses = sorted(responses, key=lambda each: -each[0])
        for _, response in responses:
            role, actions = response.player, response.policy.argmax(1).tolist()
            is_new = not self.populations.has(role, actions)
            is_any_new |= is_new
            has_one = any(role == own for own, _ in self._added)
            if self._solver.skips_known and (has_one or not is_new):
                continue
            if (role, actions) not in self._added:  # two targets may have one response
                self._added.append((role, actions))
        self._added.sort(key=lambda each: each[0])
        return is_any_new

    def _solve(self) -> bool:
        """Solve the meta-game, measure its mixtures, and record the iteration.

        Returns False, and records nothing, if a signal ends the search.
        """
        populations = self.populations
        populations.fill()
        strategy = self._solver.solve(populations.payoffs)
        if strategy.note and self._stopped():
            return False
        gains = self._measure(strategy)
        iteration = Iteration(
            len(self.iterations),
            populations.counts,
            strategy,
            gains,
            populations.payoffs.copy(),
            seconds=self.seconds,
        )
        self.keep(iteration, added=[[role, actions] for role, actions in self._added])
        return True

    def _measure(self, strategy: MetaStrategy) -> Numbers:
        """Find the responses to a strategy's targets, and return the gains [R]."""
        payoffs = self.populations.payoffs
        strategy = aimed(self._solver.name, payoffs, strategy)
        gains, responses = self.populations.gains(strategy)
        if strategy.aims:
            responses = [self.populations.respond(target) for target in strategy.aims]
        self._responses = [
            (gain_of(payoffs, strategy, target, response.value), response)
            for target, response in zip(strategy.targets, responses, strict=True)
        ]
        return gains
