"""Double oracle with trained best responses (PSRO, Lanctot et al. 2017), for any number of players.

Each iteration plays the line-ups of policies that have not met, solves the meta-game, and trains
best responses of all roles to the resulting distribution, as one stack. If the game can be
traversed, the gains of deviations are computed exactly from the networks. Otherwise they are lower
bounds, from the gains of the known policies in fresh matches.
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
from remuda.evaluation.tournaments.entrants import Entrant, Player
from remuda.runs.metrics import View
from remuda.solvers.exploit.bounds import policy_of
from remuda.solvers.exploit.target import PROFILE, Target
from remuda.solvers.exploit.training import Exploiters, scale_of, train_exploiters
from remuda.solvers.psro.checks import check_setup, check_warm, first_policies
from remuda.solvers.psro.exact import least_gain
from remuda.solvers.psro.games import check_played
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
from remuda.solvers.psro.matches import gains_of
from remuda.solvers.psro.meta_solvers import TOLERANCE, aimed, meta_solver, to_beat
from remuda.solvers.psro.meta_strategy import (
    SUPPORT,
    MetaStrategy,
    Mixtures,
    ResponseTarget,
    gain_of,
    payoffs_against,
)
from remuda.solvers.psro.oracles import (
    Named,
    SeatedTarget,
    choose,
    config_of,
    joint_target,
    seated_target,
)
from remuda.solvers.psro.populations import Populations
from remuda.solvers.psro.record import Record, begin, go_on, read
from remuda.solvers.psro.rounds import Rounds, StoppedError
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
    check_played(setup.game)
    known = read(directory) if resume else []
    firsts = next((line["first_policies"] for line in known if "first_policies" in line), None)
    if firsts is not None:  # their run may be gone by now
        first = [(role, _entrant(directory, role, place)) for role, _, place in firsts]
    else:
        first = [] if setup.settings.first is None else first_policies(setup)
        check_warm(setup, first)
    walked = check_setup(setup, [policy for _, policy in first])
    with go_on(directory) if resume else begin(directory, setup.description()) as record:
        (directory / PROFILE).unlink(missing_ok=True)  # of earlier mixtures
        loop = TrainedLoop(setup, walked, record, view, on_iteration, stopped)
        ended = loop.run()
    play: tuple[Numbers, ...] = ()
    if loop.iterations:
        play = loop.played(loop.iterations[-1].mixtures)
        loop.profile(loop.iterations[-1].strategy).save(directory / PROFILE)
    return setup.result(loop, ended, directory, play)


@dataclass(frozen=True)
class _Responses:
    """The best responses that joined the population in one iteration."""

    added: list[list[Any]]  # role, name, and file or scripted policy of each
    strategy: MetaStrategy  # of the meta-game to which these are responses


def _entrant(directory: Path, role: int, place: str | Mapping[str, str]) -> Entrant:
    """Return a recorded policy of a role."""
    if isinstance(place, str):
        return Target.load(directory / place).players[0][role]
    return place["scripted"]


ORACLES = "oracles"  # the run of an iteration's oracles, in its folder


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
        first = None if setup.settings.first is None else ()
        self._tree = None if walked is None else Populations(walked.tree, symmetric, first)
        self._gain = 0.0 if walked is None else least_gain(walked.tree)
        roles = 1 if symmetric else self._seats
        usual: list[Named] = [(RANDOM, RANDOM)] if first is None else []
        self.policies: list[list[Named]] = [usual.copy() for _ in range(roles)]
        self._runs: list[list[Path | None]] = [[None] * len(usual) for _ in range(roles)]
        """The run that trained each policy; None: not trained."""
        self._rounds = Rounds(
            setup, lambda line: record.append({**line, "seconds": self.seconds}), stopped
        )
        self.sums = self._rounds.sums
        self._firsts: list[list[Any]] | None = None  # role, name and place; None: not recorded yet
        self._trained: dict[int, _Responses] = {}  # responses by iteration
        self._solver = meta_solver(self._settings.meta_solver, TOLERANCE, symmetric, stopped)
        self._solved: tuple[Numbers, MetaStrategy] | None = None  # the last meta-game

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
        except StoppedError:
            return INTERRUPTED

    def _begin(self) -> None:
        """Add the policies of `first`; they are recorded with the roles that they play."""
        if self._settings.first is None:
            return
        if self._firsts is None:
            added: list[list[Any]] = []
            for i, (role, policy) in enumerate(first_policies(self._setup)):
                name = f"player {role}, first"
                place: Any = {"scripted": policy}
                if not isinstance(policy, str):
                    place = self._save(role, name, policy, self._record.directory / f"first_{i}")
                added.append([role, name, place])
            self._firsts = added
            self._record.append({"first_policies": added})
        for role, name, place in self._firsts:
            self._join(-1, role, name, place)

    def _iterate(self) -> str:
        self._begin()
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
                self._join(number, role, name, place)
            number += 1
            if not self._solver.fits(self.counts):
                if self._tree is None and number > len(self.iterations):
                    self._rounds.play_new(number, self.by_seat)
                    self._bound(number - 1)
                return FULL

    def _join(self, number: int, role: int, name: str, place: str | Mapping[str, str]) -> None:
        """Add a response of an iteration; -1: of the first policies."""
        policy = _entrant(self._record.directory, role, place)
        run = self._settings.first if number < 0 else self._folder(number) / ORACLES
        self.policies[role].append((name, policy))
        self._runs[role].append(run)
        if self._tree is not None and self._walked is not None:
            seats = range(self._seats) if self._settings.symmetric else (role,)
            played = {seat: policy_of(self._walked, seat, policy) for seat in seats}
            self._tree.join(role, [played.get(seat, played[role]) for seat in range(self._seats)])

    def _folder(self, number: int) -> Path:
        return self._record.directory / f"iteration_{number}"

    def played(self, mixtures: Mixtures) -> tuple[Numbers, ...]:
        """Return each role's mixture as one policy; empty: the game is not traversed."""
        return () if self._tree is None else self._tree.played(mixtures)

    def profile(self, strategy: MetaStrategy) -> Target:
        """Return a target whose seats draw their policies from a strategy."""
        seats = range(self._seats)
        return joint_target(self._setup.env, seats, self.by_seat, strategy.joint)

    def _resume(self) -> None:
        for line in self._record.lines[1:]:
            if "round" in line:
                self._rounds.count(line)
            elif "first_policies" in line:
                self._firsts = line["first_policies"]
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
        """Play matches, solve the meta-game, and measure its mixtures."""
        self._rounds.play_new(number, self.by_seat)
        self._rounds.play_more(number, self.by_seat, self._strategy)
        known, payoffs = len(self.iterations), self.sums.payoffs(self.counts)
        if number < known:  # a search that was limited by time may find another
            name, strategy = self._settings.meta_solver, self.iterations[number].strategy
            return aimed(name, payoffs, strategy)
        strategy = self._strategy()
        if self._tree is not None:
            gains, _ = self._tree.gains(strategy)
            policies = tuple(map(len, self.policies))
            iteration = Iteration(number, policies, strategy, gains, payoffs, seconds=self.seconds)
            self.keep(iteration)
        elif number > known:
            self._bound(number - 1)
        return strategy

    def _strategy(self) -> MetaStrategy:
        """Solve the meta-game, unless it is the last one that was solved."""
        payoffs = self.sums.payoffs(self.counts)
        if self._solved is None or not np.array_equal(self._solved[0], payoffs):
            strategy = self._solver.solve(payoffs)
            if strategy.note and self._stopped():
                raise StoppedError
            self._solved = payoffs, strategy
        return self._solved[1]

    def _respond(self, number: int, strategy: MetaStrategy) -> bool:
        """Train oracles, and add the best for each target if it gains; False: a signal came."""
        folder = self._folder(number)
        shutil.rmtree(folder, ignore_errors=True)  # left by a killed process
        folder.mkdir()
        targets = self._targets(strategy, folder)
        trained = self._train(number, strategy, targets, folder)
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
        incumbents = [
            [(known[each.player][k], float(shares[k])) for k in np.flatnonzero(shares > SUPPORT)]
            for each, shares in self._to_beat(strategy)
        ]
        chosen = choose(targets, players, scripted, incumbents, self._settings, seeds)
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

    def _to_beat(self, strategy: MetaStrategy) -> list[tuple[ResponseTarget, Numbers]]:
        """Return the mixture that a response to each target has to beat."""
        name, payoffs = self._settings.meta_solver, self.sums.payoffs(self.counts)
        return [(each, to_beat(name, payoffs, strategy, each)) for each in strategy.targets]

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
        self, number: int, strategy: MetaStrategy, targets: Sequence[SeatedTarget], folder: Path
    ) -> Exploiters | None:
        """Train the candidates of all targets side by side; None: only scripted ones are set."""
        setup, settings = self._setup, self._settings
        if settings.oracle == SCRIPTED:
            return None
        seed = int(make_rng(settings.seed, "psro", "oracles", number).integers(2**31))
        payoffs, variances = self.sums.payoffs(self.counts), self.sums.variances(self.counts)
        scale = scale_of(float(np.sqrt(variances + payoffs**2).max()))
        sources = [self._source(each, strategy) for each in strategy.targets]
        config = config_of(settings, targets, seed, folder / ORACLES, scale, sources)
        heading = f"{setup.game}: best responses of iteration {number}"
        return train_exploiters(config, self._view, heading)

    def _source(self, target: ResponseTarget, strategy: MetaStrategy) -> str:
        """Return the trained policy that a role plays most often, as in `init_from`; "": none."""
        role, likely = target.player, strategy.mixtures[target.player]
        for index in np.argsort(-likely, kind="stable").tolist():
            policy, run = self.policies[role][index][1], self._runs[role][index]
            if likely[index] > SUPPORT and not isinstance(policy, str):
                return f"{run}:{policy.spec.name}"
        return ""

    def _added(
        self,
        number: int,
        strategy: MetaStrategy,
        chosen: Sequence[tuple[Entrant, float]],
        folder: Path,
    ) -> list[list[Any]]:
        """Save the responses that gain, and return them as they are recorded.

        `chosen`: each target's response, and what it earns more than the mixture to beat.
        """
        payoffs = self.sums.payoffs(self.counts)
        gains: dict[int, tuple[float, list[Any]]] = {}
        added: list[list[Any]] = []
        beaten = self._to_beat(strategy)
        for i, ((target, shares), (policy, more)) in enumerate(zip(beaten, chosen, strict=True)):
            role = target.player
            if more <= 0.0:
                continue  # nothing better was found
            name = f"player {role}, iteration {number + 1}"
            place: Any = {"scripted": policy}
            if not isinstance(policy, str):
                place = self._save(role, name, policy, folder / f"policy_{i}")
            if not self._solver.skips_known:
                added.append([role, name, place])
                continue
            payoff = float(payoffs_against(payoffs, target) @ shares) + more
            gain = gain_of(payoffs, strategy, target, payoff)
            if gain > gains.get(role, (-np.inf, []))[0]:
                gains[role] = gain, [role, name, place]
        return added + [each for _, each in gains.values()]

    def _save(self, role: int, name: str, policy: Player, file: Path) -> str:
        """Save a policy of a role, and return its place in the directory."""
        mine = range(self._seats) if self._settings.symmetric else (role,)
        seats = tuple(policy if seat in mine else RANDOM for seat in range(self._seats))
        Target(self._setup.env, (name,), (1.0,), (seats,)).save(file)
        return str(file.relative_to(self._record.directory))

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
