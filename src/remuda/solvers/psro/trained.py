"""Double oracle with trained best responses (PSRO, Lanctot et al. 2017), for two players.

Each iteration plays the pairs of policies that have not met, solves the meta-game, and trains best
responses of both players to the resulting mixtures, as one stack. If the game can be traversed,
NashConv is computed exactly from the networks. Otherwise it is a lower bound, from the gains of the
responses in fresh matches.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.trees.exact_play import WalkedGame, walked_of
from remuda.analysis.trees.exploitability import measure
from remuda.analysis.trees.trees import OVER
from remuda.envs.description import EnvSpec
from remuda.envs.registry import RANDOM
from remuda.errors import ConfigError
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.entrants import Entrant
from remuda.policies.spec import PolicySpec
from remuda.population.run_spec import RunSpec
from remuda.runs.metrics import View
from remuda.solvers.exploit.bounds import mixture_of
from remuda.solvers.exploit.game import name_of
from remuda.solvers.exploit.matches import Lineup, play_lineups
from remuda.solvers.exploit.target import Target
from remuda.solvers.exploit.training import scale_of, train_exploiters
from remuda.solvers.psro.exact import least_gain
from remuda.solvers.psro.games import check_played
from remuda.solvers.psro.iterations import (
    CONVERGED,
    ENOUGH,
    INTERRUPTED,
    SPENT,
    DoubleOracle,
    Iteration,
    Loop,
    Setup,
)
from remuda.solvers.psro.matches import PairSums, gains_of, play_pairs, share_out
from remuda.solvers.psro.meta_solvers import (
    ZERO_SUM,
    MetaStrategy,
    Mixtures,
    check_players,
    check_zero_sum,
    solve,
    to_beat,
)
from remuda.solvers.psro.oracles import SeatedTarget, choose, config_of, seated_target
from remuda.solvers.psro.record import Record, begin, go_on
from remuda.system.rng import make_rng
from remuda.types import Numbers

TOLERANCE = 1e-4  # allowed spread of a constant sum, as a share of the payoffs' range
TRIED = 64  # matches that detect a game that is not zero-sum


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
    check_players(setup.settings.meta_solver, 2)
    walked = check_setup(setup)
    with go_on(directory) if resume else begin(directory, setup.description()) as record:
        loop = TrainedLoop(setup, walked, record, view, on_iteration, stopped)
        ended = loop.run()
    play = loop.played(loop.iterations[-1].mixtures) if loop.iterations else ()
    return setup.result(loop, ended, directory, play)


def check_setup(setup: Setup) -> WalkedGame | None:
    """Check all settings before anything is written; return the game's tree if it is traversed."""
    check_played(setup.game)
    env, meta_solver = setup.env, setup.settings.meta_solver
    if len(env.agents) != 2:
        raise ConfigError(
            f"{setup.game} has {len(env.agents)} agents; oracles are trained for games of two"
        )
    walked, spec = walked_of(env), _specs(setup)[0]
    if walked is not None and (walked.tree.merged or spec.memory or spec.config.n_frames != 1):
        walked = None
    if meta_solver not in ZERO_SUM:
        return walked
    if walked is not None:
        returns: Numbers = walked.tree.returns[walked.tree.players == OVER]
    else:  # of a few matches
        target = Target(env, (RANDOM,), (1.0,), ((RANDOM, RANDOM),))
        (returns,) = play_lineups(target, [Lineup(0, RANDOM)], TRIED, setup.settings.seed)
    check_zero_sum(meta_solver, returns.T, TOLERANCE)
    return walked


def _specs(setup: Setup) -> tuple[PolicySpec, ...]:
    empty = Target(setup.env, (), (), ())
    targets = [SeatedTarget(seat, empty, Path("target")) for seat in range(2)]
    config = config_of(setup.settings, targets, 0, Path("oracles"), 1.0)
    agents = tuple(
        replace(agent, name=name_of(number), team=name_of(number))
        for number, agent in enumerate(setup.env.agents)
    )
    return RunSpec(config, EnvSpec(config.game, {}, agents, ((0, 1),))).policies


@dataclass(frozen=True)
class _Responses:
    """The best responses that joined the population in one iteration."""

    added: list[list[Any]]  # player, name and file of each
    mixtures: Mixtures  # the meta-game's mixtures, to which these are responses


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
        self._gain = 0.0 if walked is None else least_gain(walked.tree)
        self.policies: list[list[tuple[str, Entrant]]] = [[(RANDOM, RANDOM)] for _ in range(2)]
        self.sums = PairSums()
        self._rounds: set[tuple[int, int]] = set()  # rounds played: (iteration, 0 or 1)
        self._trained: dict[int, _Responses] = {}  # responses by iteration

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.policies[0]), len(self.policies[1])

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
            for player, name, file in self._trained[number].added:
                policy = Target.load(self._record.directory / file).players[0][player]
                self.policies[player].append((name, policy))
            number += 1

    def played(self, mixtures: Mixtures) -> tuple[Numbers, ...]:
        """Return each player's mixture as one policy; empty: the game is not traversed."""
        walked = self._walked
        if walked is None:
            return ()
        return tuple(
            mixture_of(walked, player, [policy for _, policy in own[: len(shares)]], shares)
            for player, (own, shares) in enumerate(zip(self.policies, mixtures, strict=True))
        )

    def _resume(self) -> None:
        for line in self._record.lines[1:]:
            if "round" in line:
                self._rounds.add((line["after"], line["round"]))
                for each in line["pairs"]:
                    self.sums.add((each["pair"][0], each["pair"][1]), each["sums"])
            elif "responses" in line:
                mixtures = tuple(np.array(each, np.float64) for each in line["mixtures"])
                self._trained[line["responses"]] = _Responses(line["added"], mixtures)
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

        Round 0 plays the new pairs. Round 1 plays more matches of the pairs in the mixtures.
        """
        counts = self.counts
        new = {(i, j) for i in range(counts[0]) for j in range(counts[1])}
        new = {pair for pair in new if not self.sums.has(pair)}
        if new and (number, 0) not in self._rounds:
            self._play(number, 0, dict.fromkeys(new, self._settings.matches))
        strategy = self._strategy()
        if (number, 1) not in self._rounds:
            more = share_out(
                strategy.mixtures,
                self.sums.variances(counts),
                self.sums.matches(counts),
                self._settings.matches * (sum(counts) - 1),
                self._settings.matches,
            )
            wanted = {(int(i), int(j)): int(more[i, j]) for i, j in np.argwhere(more)}
            self._play(number, 1, wanted)
        strategy = self._strategy()
        known, mixtures = len(self.iterations), strategy.mixtures
        if self._walked is not None and number >= known:
            gains = np.maximum(measure(self._walked.tree, self.played(mixtures)).gains, 0.0)
            payoffs = self.sums.payoffs(counts)
            self.keep(Iteration(number, counts, mixtures, gains, payoffs, seconds=self.seconds))
        elif self._walked is None and number > known:
            self._bound(number - 1)
        return strategy

    def _strategy(self) -> MetaStrategy:
        payoffs = self.sums.payoffs(self.counts)
        return solve(self._settings.meta_solver, payoffs, TOLERANCE)

    def _play(self, number: int, turn: int, wanted: Mapping[tuple[int, int], int]) -> None:
        """Play and record a round, in batches of pairs with one policy of player 1."""
        groups: dict[tuple[int, int], dict[int, Entrant]] = {}
        for (row, column), matches in sorted(wanted.items()):
            groups.setdefault((column, matches), {})[row] = self.policies[0][row][1]
        pairs: list[dict[str, Any]] = []
        for (column, matches), rows in sorted(groups.items()):
            names = ("psro", "matches", number, turn, column, min(rows))
            pairs += play_pairs(
                self._setup.env,
                rows,
                (column, self.policies[1][column][1]),
                matches,
                int(make_rng(self._settings.seed, *names).integers(2**62)),
                Limits(interrupted=self._stopped),  # a round may take minutes
            )
            if self._stopped():
                raise _StoppedError
        line = {"after": number, "round": turn, "pairs": pairs, "seconds": self.seconds}
        self._record.append(line)
        self._rounds.add((number, turn))
        for each in pairs:
            self.sums.add((each["pair"][0], each["pair"][1]), each["sums"])

    def _respond(self, number: int, strategy: MetaStrategy) -> bool:
        """Train oracles, and add the best for each target if it gains; False: a signal came."""
        setup, settings = self._setup, self._settings
        folder = self._record.directory / f"iteration_{number}"
        shutil.rmtree(folder, ignore_errors=True)  # left by a killed process
        folder.mkdir()
        targets = [
            self._target(each.player, each.mixtures[1 - each.player], folder / f"target_{i}")
            for i, each in enumerate(strategy.targets)
        ]
        seed = int(make_rng(settings.seed, "psro", "oracles", number).integers(2**31))
        heading = f"{setup.game}: best responses of iteration {number}"
        payoffs, variances = self.sums.payoffs(self.counts), self.sums.variances(self.counts)
        scale = scale_of(float(np.sqrt(variances + payoffs**2).max()))
        config = config_of(settings, targets, seed, folder / "oracles", scale)
        trained = train_exploiters(config, self._view, heading)
        if trained.interrupted is not None:
            return False
        seeds = [
            int(make_rng(settings.seed, "psro", "trials", number, i).integers(2**62))
            for i in range(len(targets))
        ]
        thresholds = [
            to_beat(settings.meta_solver, payoffs, strategy.mixtures, t) for t in strategy.targets
        ]
        added: list[list[Any]] = []
        for i, (policy, payoff) in enumerate(choose(targets, trained.players, settings, seeds)):
            if payoff <= thresholds[i]:
                continue  # nothing better was found
            player = targets[i].player
            name = f"player {player}, iteration {number + 1}"
            file, players_by_seat = folder / f"policy_{i}", ((policy,) * 2,)
            Target(setup.env, (name,), (1.0,), players_by_seat).save(file)
            added.append([player, name, str(file.relative_to(self._record.directory))])
        line = {
            "responses": number,
            "added": added,
            "mixtures": [mixture.tolist() for mixture in strategy.mixtures],
            "steps": trained.steps,
            "trained_seconds": trained.seconds,
            "seconds": self.seconds,
        }
        self._record.append(line)
        self._trained[number] = _Responses(added, strategy.mixtures)
        return True

    def _target(self, player: int, shares: Numbers, file: Path) -> SeatedTarget:
        opponents = self.policies[1 - player]
        own = self.policies[player][0][1]
        target = seated_target(self._setup.env, player, opponents, shares, own, file)
        target.target.save(file)
        return target

    def _bound(self, number: int) -> None:
        """Measure an iteration by the gains of its responses in the next iteration's matches."""
        mixtures = self._trained[number].mixtures
        gains, margin = gains_of(self.sums, self.counts, mixtures)
        counts = tuple(map(len, mixtures))
        shape = (number, counts, mixtures, gains, self.sums.payoffs(counts))
        self.keep(Iteration(*shape, is_exact=False, margin=margin, seconds=self.seconds))
