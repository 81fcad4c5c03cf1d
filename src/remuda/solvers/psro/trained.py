"""Double oracle with trained best responses (PSRO, Lanctot et al. 2017), for any number of players.

Each iteration plays the line-ups of policies that have not met, solves the meta-game, and trains
best responses of all roles to the resulting distribution, as one stack. If the game can be
traversed, the gains of deviations are computed exactly from the networks. Otherwise they are lower
bounds, from the gains of the responses in fresh matches.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.trees.exact_play import WalkedGame
from remuda.envs.registry import RANDOM
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.entrants import Entrant
from remuda.runs.metrics import View
from remuda.solvers.exploit.bounds import policy_of
from remuda.solvers.exploit.target import Target
from remuda.solvers.exploit.training import Exploiters, scale_of, train_exploiters
from remuda.solvers.psro.checks import TOLERANCE, check_setup
from remuda.solvers.psro.exact import least_gain
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
from remuda.solvers.psro.matches import (
    LineUp,
    LineUpSums,
    first_matches,
    gains_of,
    play_line_ups,
    share_out,
)
from remuda.solvers.psro.meta_solvers import meta_solver, to_beat
from remuda.solvers.psro.meta_strategy import MetaStrategy, Mixtures, gain_of
from remuda.solvers.psro.oracles import (
    Named,
    SeatedTarget,
    choose,
    config_of,
    seated_target,
)
from remuda.solvers.psro.populations import Populations
from remuda.solvers.psro.record import Record, begin, go_on
from remuda.solvers.psro.settings import SCRIPTED
from remuda.system.rng import make_rng
from remuda.types import Numbers


def run_trained(
    setup: Setup,
    directory: Path,
    view: View,
    resume: bool = False,
    on_iteration: Callable[[Iteration], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> DoubleOracle:
    """Run or resume a double oracle with trained best responses.

    Finished matches, trained oracles and iterations are not repeated after an interruption;
    interrupted training starts over.

    `stopped` returns True to end the run. A round of matches is interrupted and discarded; other
    steps are finished first.
    """
    walked = check_setup(setup)
    with go_on(directory) if resume else begin(directory, setup.description()) as record:
        loop = TrainedLoop(setup, walked, record, view, on_iteration, stopped)
        ended = loop.run()
    play = loop.played(loop.iterations[-1].mixtures) if loop.iterations else ()
    return setup.result(loop, ended, directory, play)


@dataclass(frozen=True)
class _Responses:
    """The best responses that joined the population in one iteration."""

    added: list[list[Any]]  # role, name, and file or scripted policy of each
    strategy: MetaStrategy  # of the meta-game to which these are responses


class _StoppedError(Exception):
    """A stop signal during matches: the round is discarded."""


class TrainedLoop(Loop):
    """The loop of iterations: matches, the meta-game, oracles."""

    _record: Record

    def __init__(
        self,
        setup: Setup,
        walked: WalkedGame | None,
        record: Record,
        view: View,
        on_iteration: Callable[[Iteration], None] | None,
        stopped: Callable[[], bool],
    ) -> None:
        super().__init__(record, on_iteration, stopped)
        self._setup, self._settings = setup, setup.settings
        self._view, self._walked = view, walked
        self._seats, symmetric = len(setup.env.agents), setup.settings.symmetric
        self._tree = None if walked is None else Populations(walked.tree, symmetric)
        self._gain = 0.0 if walked is None else least_gain(walked.tree)
        roles = 1 if symmetric else self._seats
        self.policies: list[list[Named]] = [[(RANDOM, RANDOM)] for _ in range(roles)]
        self.sums = LineUpSums(self._seats, symmetric)
        self._rounds: set[tuple[int, int]] = set()  # rounds played: (iteration, 0 or 1)
        self._first: dict[int, int] = {}  # by iteration, the matches of each new line-up
        self._trained: dict[int, _Responses] = {}  # responses by iteration
        self._solver = meta_solver(self._settings.meta_solver, TOLERANCE, symmetric)

    @property
    def by_seat(self) -> list[list[Named]]:
        """The policies that may play each seat."""
        return self.policies * (self._seats // len(self.policies))

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of policies for each seat."""
        return tuple(map(len, self.by_seat))

    def run(self) -> str:
        self._resume()
        try:
            return self._iterate()
        except _StoppedError:
            return INTERRUPTED

    def _iterate(self) -> str:
        number = 0
        while True:
            measured = self._walked is None or number < len(self.iterations)
            if number not in self._trained or not measured:
                strategy = self._solve(number)
                ended = self._ended()
                if ended or self._stopped() or not self._respond(number, strategy):
                    return ended or INTERRUPTED
            added = self._trained[number].added
            if not added and self._settings.oracle == SCRIPTED:
                if self._tree is None and number >= len(self.iterations):
                    self._bound(number)
                return NOTHING_NEW
            for role, name, place in added:
                self._join(role, name, place)
            number += 1
            if not self._solver.fits(self.counts):
                if self._tree is None and number > len(self.iterations):
                    self._play_new(number)
                    self._bound(number - 1)
                return FULL

    def _join(self, role: int, name: str, place: str | Mapping[str, str]) -> None:
        if isinstance(place, str):
            file = self._record.directory / place
            policy: Entrant = Target.load(file).players[0][role]
        else:
            policy = place["scripted"]
        self.policies[role].append((name, policy))
        if self._tree is not None and self._walked is not None:
            seats = range(self._seats) if self._settings.symmetric else (role,)
            played = {seat: policy_of(self._walked, seat, policy) for seat in seats}
            self._tree.join(role, [played.get(seat, played[role]) for seat in range(self._seats)])

    def played(self, mixtures: Mixtures) -> tuple[Numbers, ...]:
        """Return each role's mixture as one policy; empty: the game is not traversed."""
        return () if self._tree is None else self._tree.played(mixtures)

    def _resume(self) -> None:
        for line in self._record.lines[1:]:
            if "round" in line:
                self._rounds.add((line["after"], line["round"]))
                if line["round"] == 0:
                    self._first[line["after"]] = line["first"]
                for each in line["line_ups"]:
                    self.sums.add(each["line_up"], each["sums"])
            elif "responses" in line:
                strategy = MetaStrategy.from_plain(line["strategy"], self._seats)
                self._trained[line["responses"]] = _Responses(line["added"], strategy)
            else:
                self.add(Iteration.from_line(line))
            self._earlier_seconds = max(self._earlier_seconds, line.get("seconds", 0.0))

    def _ended(self) -> str:
        """Return the reason for the end; empty: another iteration follows."""
        if not self.iterations:
            return ""
        last = self.iterations[-1]
        if last.is_exact and last.nash_conv <= max(self._settings.enough, self._gain):
            return CONVERGED if last.nash_conv <= self._gain else ENOUGH
        return SPENT if last.number >= self._settings.iterations else ""

    def _solve(self, number: int) -> MetaStrategy:
        """Play matches, solve the meta-game, and measure its mixtures.

        Round 0 plays the new line-ups. Round 1 plays more matches of those in the mixtures.
        """
        counts, matches = self.counts, self._settings.matches
        first = self._play_new(number)
        strategy = self._strategy()
        if (number, 1) not in self._rounds:
            total = matches * (sum(counts) - self._seats + 1)
            self._play(number, 1, share_out(strategy, self.sums, counts, total, first))
        strategy = self._strategy()
        known, payoffs = len(self.iterations), self.sums.payoffs(counts)
        if self._tree is not None and number >= known:
            gains, _ = self._tree.gains(strategy)
            policies = tuple(map(len, self.policies))
            iteration = Iteration(number, policies, strategy, gains, payoffs, seconds=self.seconds)
            self.keep(iteration)
        elif self._tree is None and number > known:
            self._bound(number - 1)
        return strategy

    def _play_new(self, number: int) -> int:
        """Play the line-ups that have not met; return the matches of each."""
        counts = self.counts
        played = self.sums.matches(counts)
        new = [line_up for line_up in self.sums.line_ups(counts) if not played[line_up]]
        if (number, 0) not in self._rounds:
            matches = first_matches(len(new), counts, self._settings.matches)
            self._first[number] = matches
            self._play(number, 0, dict.fromkeys(new, matches))
        return self._first[number]

    def _strategy(self) -> MetaStrategy:
        return self._solver.solve(self.sums.payoffs(self.counts))

    def _play(self, number: int, turn: int, wanted: Mapping[LineUp, int]) -> None:
        """Play and record a round."""
        played: list[dict[str, Any]] = []
        if wanted:
            by_seat = self.by_seat
            line_ups = {
                line_up: [by_seat[seat][policy][1] for seat, policy in enumerate(line_up)]
                for line_up in wanted
            }
            played = play_line_ups(
                self._setup.env,
                line_ups,
                list(wanted.values()),
                int(make_rng(self._settings.seed, "psro", "matches", number, turn).integers(2**62)),
                self._settings.symmetric,
                Limits(interrupted=self._stopped),  # a round may take minutes
            )
            if self._stopped():
                raise _StoppedError
        line = {
            "after": number,
            "round": turn,
            "first": self._first[number],
            "line_ups": played,
            "seconds": self.seconds,
        }
        self._record.append(line)
        self._rounds.add((number, turn))
        for each in played:
            self.sums.add(each["line_up"], each["sums"])

    def _respond(self, number: int, strategy: MetaStrategy) -> bool:
        """Train oracles, and add the best for each target if it gains; False: a signal came."""
        folder = self._record.directory / f"iteration_{number}"
        shutil.rmtree(folder, ignore_errors=True)  # left by a killed process
        folder.mkdir()
        targets = self._targets(strategy, folder)
        trained = self._train(number, targets, folder)
        if trained is not None and trained.interrupted is not None:
            return False
        rng_names = ("psro", "trials", number)
        seeds = [
            int(make_rng(self._settings.seed, *rng_names, i).integers(2**62))
            for i in range(len(targets))
        ]
        players = trained.players if trained is not None else {}
        known = [[policy for _, policy in own] for own in self.policies]
        scripted = [
            [name for name in self._settings.scripted if name not in known[each.player]]
            for each in strategy.targets
        ]
        chosen = choose(targets, players, scripted, self._settings, seeds)
        added = self._added(number, strategy, chosen, folder)
        line = {
            "responses": number,
            "added": added,
            "strategy": strategy.as_plain(),
            "steps": 0.0 if trained is None else trained.steps,
            "trained_seconds": 0.0 if trained is None else trained.seconds,
            "seconds": self.seconds,
        }
        self._record.append(line)
        self._trained[number] = _Responses(added, strategy)
        return True

    def _targets(self, strategy: MetaStrategy, folder: Path) -> list[SeatedTarget]:
        """Save and return the targets: one for each seat in which a role's oracles play."""
        found: list[SeatedTarget] = []
        for group, each in enumerate(strategy.targets):
            for seat in range(self._seats) if self._settings.symmetric else (each.player,):
                file = folder / f"target_{len(found)}"
                env, by_seat = self._setup.env, self.by_seat
                target = seated_target(env, seat, by_seat, each.others, file, group)
                target.target.save(file)
                found.append(target)
        return found

    def _train(
        self, number: int, targets: Sequence[SeatedTarget], folder: Path
    ) -> Exploiters | None:
        """Train the candidates of all targets side by side; None: only scripted ones are set."""
        setup, settings = self._setup, self._settings
        if settings.oracle == SCRIPTED:
            return None
        seed = int(make_rng(settings.seed, "psro", "oracles", number).integers(2**31))
        payoffs, variances = self.sums.payoffs(self.counts), self.sums.variances(self.counts)
        scale = scale_of(float(np.sqrt(variances + payoffs**2).max()))
        config = config_of(settings, targets, seed, folder / "oracles", scale)
        heading = f"{setup.game}: best responses of iteration {number}"
        return train_exploiters(config, self._view, heading)

    def _added(
        self,
        number: int,
        strategy: MetaStrategy,
        chosen: Sequence[tuple[Entrant, float]],
        folder: Path,
    ) -> list[list[Any]]:
        """Save the responses that gain, and return them as they are recorded."""
        settings, payoffs = self._settings, self.sums.payoffs(self.counts)
        gains: dict[int, tuple[float, list[Any]]] = {}
        added: list[list[Any]] = []
        for i, (target, (policy, payoff)) in enumerate(zip(strategy.targets, chosen, strict=True)):
            role = target.player
            if payoff <= to_beat(settings.meta_solver, payoffs, strategy, target):
                continue  # nothing better was found
            name = f"player {role}, iteration {number + 1}"
            place: Any = {"scripted": policy}
            if not isinstance(policy, str):
                file = folder / f"policy_{i}"
                mine = range(self._seats) if settings.symmetric else (role,)
                seats = tuple(policy if seat in mine else RANDOM for seat in range(self._seats))
                Target(self._setup.env, (name,), (1.0,), (seats,)).save(file)
                place = str(file.relative_to(self._record.directory))
            if not self._solver.skips_known:
                added.append([role, name, place])
                continue
            gain = gain_of(payoffs, strategy, target, payoff)
            if gain > gains.get(role, (-np.inf, []))[0]:
                gains[role] = gain, [role, name, place]
        return added + [each for _, each in gains.values()]

    def _bound(self, number: int) -> None:
        """Measure an iteration by the gains of its responses in the next iteration's matches."""
        strategy = self._trained[number].strategy
        gains, margins, margin = gains_of(self.sums, self.counts, strategy)
        sizes = strategy.joint.shape
        iteration = Iteration(
            number,
            tuple(map(len, strategy.mixtures)),
            strategy,
            gains,
            self.sums.payoffs(sizes),
            is_exact=False,
            margins=margins,
            margin=margin,
            seconds=self.seconds,
        )
        self.keep(iteration)
