"""Double oracle with trained best responses (PSRO, Lanctot et al. 2017), for two players.

Each iteration plays the pairs of policies that have not met, solves the meta-game, and trains best
responses of both players to the resulting mixtures, as one stack. If the game can be traversed,
NashConv is computed exactly from the networks. Otherwise it is a lower bound, from the gains of the
responses in fresh matches.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.trees.exact_play import WalkedGame
from remuda.analysis.trees.exploitability import measure
from remuda.analysis.trees.trees import mixture
from remuda.envs.registry import RANDOM
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.entrants import Entrant
from remuda.runs.metrics import View
from remuda.solvers.exploit.bounds import policy_of
from remuda.solvers.exploit.target import Target
from remuda.solvers.exploit.training import scale_of, train_exploiters
from remuda.solvers.psro.exact import least_gain
from remuda.solvers.psro.iterations import (
    CONVERGED,
    ENOUGH,
    INTERRUPTED,
    SPENT,
    DoubleOracle,
    Iteration,
    Setup,
)
from remuda.solvers.psro.matches import PairSums, gains_of, play_pairs, share_out
from remuda.solvers.psro.meta_solvers import (
    MetaStrategy,
    Mixtures,
    check_players,
    solve,
    to_beat,
)
from remuda.solvers.psro.oracles import (
    SeatedTarget,
    choose,
    config_of,
    seated_target,
)
from remuda.solvers.psro.record import Record, open_record
from remuda.solvers.psro.trained_setup import TOLERANCE, check_setup
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
    check_players(setup.settings.meta_solver, 2)
    walked = check_setup(setup)
    description = setup.description()
    with open_record(directory, resume, description) as record:
        loop = _Loop(setup, walked, record, view, on_iteration, stopped)
        ended = loop.run()
    return DoubleOracle(
        setup.game,
        setup.settings.meta_solver,
        setup.settings.oracle,
        tuple(loop.found),
        ended,
        str(directory),
        loop.played(loop.found[-1].mixtures) if loop.found else (),
        description,
    )


@dataclass(frozen=True)
class _Responses:
    """The best responses that joined the population in one iteration."""

    added: list[list[Any]]  # player, name and file of each
    mixtures: Mixtures  # the meta-game's mixtures, to which these are responses


class _StoppedError(Exception):
    """A stop signal during matches: the round is discarded."""


class _Loop:
    """The loop of iterations: matches, the meta-game, oracles."""

    def __init__(
        self,
        setup: Setup,
        walked: WalkedGame | None,
        record: Record,
        view: View,
        on_iteration: Callable[[Iteration], None] | None,
        stopped: Callable[[], bool],
    ) -> None:
        self._setup, self._record, self._view = setup, record, view
        self._settings = setup.settings
        self._on_iteration, self._stopped = on_iteration, stopped
        self._walked = walked
        self._gain = 0.0 if walked is None else least_gain(walked.tree)
        self._policies: list[list[tuple[str, Entrant]]] = [[(RANDOM, RANDOM)] for _ in range(2)]
        self._sums = PairSums()
        self._rounds: set[tuple[int, int]] = set()  # rounds played: (iteration, 0 or 1)
        self._trained: dict[int, _Responses] = {}  # responses by iteration
        self.found: list[Iteration] = []
        self._begun, self._before = time.monotonic(), 0.0

    @property
    def counts(self) -> tuple[int, int]:
        return len(self._policies[0]), len(self._policies[1])

    def run(self) -> str:
        self._take()
        try:
            return self._iterate()
        except _StoppedError:
            return INTERRUPTED

    def _iterate(self) -> str:
        number = 0
        while True:
            if not self._is_done(number):
                strategy = self._solve(number)
                ended = self._ended()
                if ended or self._stopped() or not self._respond(number, strategy):
                    return ended or INTERRUPTED
            for player, name, file in self._trained[number].added:
                policy = Target.load(self._record.directory / file).players[0][player]
                self._policies[player].append((name, policy))
            number += 1

    def _is_done(self, number: int) -> bool:
        """Return whether the record already contains an iteration's responses and measurement."""
        return number in self._trained and (self._walked is None or number < len(self.found))

    def played(self, mixtures: Mixtures) -> tuple[Numbers, ...]:
        """Return each player's mixture as one policy; empty: the game is not traversed.

        Policies added later are ignored.
        """
        walked = self._walked
        if walked is None:
            return ()
        return tuple(
            mixture(
                walked.tree,
                player,
                [policy_of(walked, player, policy) for _, policy in own[: len(shares)]],
                shares,
            )
            for player, (own, shares) in enumerate(zip(self._policies, mixtures, strict=True))
        )

    def _take(self) -> None:
        counts = [1, 1]
        for place, line in enumerate(self._record.lines[1:], 1):
            self._record.check(place, self._follows(line, counts))
            if "round" in line:
                self._rounds.add((line["after"], line["round"]))
                for each in line["pairs"]:
                    self._sums.add((each["pair"][0], each["pair"][1]), each["sums"])
            elif "responses" in line:
                mixtures = tuple(np.array(each, np.float64) for each in line["mixtures"])
                self._trained[line["responses"]] = _Responses(line["added"], mixtures)
                for player, *_ in line["added"]:
                    counts[player] += 1
            else:
                self._note(Iteration.from_line(line))
            self._before = max(self._before, line.get("seconds", 0.0))

    def _follows(self, line: Mapping[str, Any], counts: Sequence[int]) -> bool:
        """Return whether a line of the record follows from the lines before it."""
        number, known = len(self._trained), len(self.found)
        if "round" in line:
            key = (line["after"], line["round"])
            met = all(self._sums.has(pair) for pair in np.ndindex(*counts))
            return key not in self._rounds and key == (number, 1 if met else 0)
        if (number, 1) not in self._rounds:
            return False
        measured = self._walked is None or known == number + 1
        if "responses" in line:
            return line["responses"] == number and measured
        return line.get("iteration") == known == (number - 1 if self._walked is None else number)

    def _ended(self) -> str:
        """Return the reason for the end; empty: another iteration follows."""
        if not self.found:
            return ""
        last = self.found[-1]
        if last.is_exact and last.nash_conv <= max(self._settings.enough, self._gain):
            return CONVERGED if last.nash_conv <= self._gain else ENOUGH
        return SPENT if last.number >= self._settings.iterations else ""

    def _solve(self, number: int) -> MetaStrategy:
        """Play matches, solve the meta-game, and measure its mixtures.

        Round 0 plays the new pairs. Round 1 plays more matches of the pairs in the mixtures.
        """
        counts = self.counts
        new = {(i, j) for i in range(counts[0]) for j in range(counts[1])}
        new = {pair for pair in new if not self._sums.has(pair)}
        if new and (number, 0) not in self._rounds:
            self._play(number, 0, dict.fromkeys(new, self._settings.matches))
        strategy = self._strategy()
        if (number, 1) not in self._rounds:
            more = share_out(
                strategy.mixtures,
                self._sums.variances(counts),
                self._sums.matches(counts),
                self._settings.matches * (sum(counts) - 1),
                self._settings.matches,
            )
            wanted = {(int(i), int(j)): int(more[i, j]) for i, j in np.argwhere(more)}
            self._play(number, 1, wanted)
        strategy = self._strategy()
        known, mixtures = len(self.found), strategy.mixtures
        if self._walked is not None and number >= known:
            gains = np.maximum(measure(self._walked.tree, self.played(mixtures)).gains, 0.0)
            self._keep(number, mixtures, gains, self._sums.payoffs(counts))
        elif self._walked is None and number > known:
            self._bound(number - 1)
        return strategy

    def _strategy(self) -> MetaStrategy:
        payoffs = self._sums.payoffs(self.counts)
        return solve(self._settings.meta_solver, payoffs, TOLERANCE)

    def _play(self, number: int, turn: int, wanted: Mapping[tuple[int, int], int]) -> None:
        """Play and record a round of matches.

        A batch contains the pairs with the same policy of player 1 and number of matches.
        """
        groups: dict[tuple[int, int], dict[int, Entrant]] = {}
        for (row, column), matches in sorted(wanted.items()):
            groups.setdefault((column, matches), {})[row] = self._policies[0][row][1]
        pairs: list[dict[str, Any]] = []
        for (column, matches), rows in sorted(groups.items()):
            names = ("psro", "matches", number, turn, column, min(rows))
            pairs += play_pairs(
                self._setup.env,
                rows,
                (column, self._policies[1][column][1]),
                matches,
                int(make_rng(self._settings.seed, *names).integers(2**62)),
                Limits(interrupted=self._stopped),  # a round may take minutes
            )
            if self._stopped():
                raise _StoppedError
        self._record.append({"after": number, "round": turn, "pairs": pairs, **self._seconds()})
        self._rounds.add((number, turn))
        for each in pairs:
            self._sums.add((each["pair"][0], each["pair"][1]), each["sums"])

    def _respond(self, number: int, strategy: MetaStrategy) -> bool:
        """Train oracles against the mixtures, and add the best for each target if it gains.

        Return False if a signal ended the training; its result is discarded.
        """
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
        config = config_of(settings, targets, seed, folder / "oracles", self._scale())
        trained = train_exploiters(config, self._view, heading)
        if trained.interrupted is not None:
            return False
        seeds = [
            int(make_rng(settings.seed, "psro", "trials", number, i).integers(2**62))
            for i in range(len(targets))
        ]
        payoffs = self._sums.payoffs(self.counts)
        least = [
            to_beat(settings.meta_solver, payoffs, strategy.mixtures, t) for t in strategy.targets
        ]
        added: list[list[Any]] = []
        for i, response in enumerate(choose(targets, trained.players, settings, seeds)):
            player = response.player
            if response.earned <= least[i]:
                continue  # nothing better was found
            name = f"player {player}, iteration {number + 1}"
            file, players_by_seat = folder / f"policy_{i}", ((response.who,) * 2,)
            Target(setup.env, (name,), (1.0,), players_by_seat).save(file)
            added.append([player, name, str(file.relative_to(self._record.directory))])
        found = _Responses(added, strategy.mixtures)
        line = {
            "responses": number,
            "added": added,
            "mixtures": [mixture.tolist() for mixture in strategy.mixtures],
            "steps": trained.steps,
            "trained_seconds": trained.seconds,
        }
        self._record.append({**line, **self._seconds()})
        self._trained[number] = found
        return True

    def _target(self, player: int, shares: Numbers, file: Path) -> SeatedTarget:
        opponents = self._policies[1 - player]
        own = self._policies[player][0][1]
        found = seated_target(self._setup.env, player, opponents, shares, own, file)
        found.target.save(file)
        return found

    def _bound(self, number: int) -> None:
        """Measure an iteration by the gains of its responses in the next iteration's matches."""
        mixtures = self._trained[number].mixtures
        gains, margin = gains_of(self._sums, self.counts, mixtures)
        payoffs = self._sums.payoffs(tuple(map(len, mixtures)))
        self._keep(number, mixtures, gains, payoffs, margin, False)

    def _keep(
        self,
        number: int,
        mixtures: Mixtures,
        gains: Numbers,
        payoffs: Numbers,
        margin: float = 0.0,
        is_exact: bool = True,
    ) -> None:
        counts, seconds = tuple(map(len, mixtures)), self._seconds()["seconds"]
        found = Iteration(number, counts, mixtures, gains, payoffs, is_exact, margin, seconds)
        self._record.append(found.as_line())
        self._note(found)

    def _note(self, found: Iteration) -> None:
        self.found.append(found)
        if self._on_iteration is not None:
            self._on_iteration(found)

    def _seconds(self) -> dict[str, float]:
        return {"seconds": self._before + time.monotonic() - self._begun}

    def _scale(self) -> float:
        variances = self._sums.variances(self.counts)
        largest = float(np.sqrt(variances + self._sums.payoffs(self.counts) ** 2).max())
        return scale_of(largest)
