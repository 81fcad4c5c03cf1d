"""Profiles of Bucket Brigade that no trained deviation improves on by much: `psro.py brigade`.

Two searches in each scenario, with turns of training such that both and their checks take less than
half an hour of CPU time (--minutes: another time). Everything runs in one process.

- *by role*: four independent PPO learners, then `remuda psro --first`, a set of policies for each
  seat;
- *symmetric*: one PPO policy in all seats (parameter sharing), then `remuda psro --symmetric true`.

The check takes the profile that the double oracle ends with. For each seat, two PPO policies train
against the other three of the profile: one begins with random weights, the other with those of the
profile's own policy. The best of them, greedy or sampled, and of the scripted specialist, is chosen
in some matches and measured in others. There the profile plays too, with the same random numbers,
so that the gain is a mean of differences.

An observation names the agent, so one policy can play four different parts. Therefore a row also
says how often each seat works on the nights on which one of its own houses burns, and on those on
which only others' houses burn.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from recording import Results

import remuda
from remuda.envs.games.bucket_brigade import BURNING, WORK, BucketBrigade
from remuda.envs.registry import find_game
from remuda.evaluation.tournaments.entrants import Entrant, Player
from remuda.solvers.exploit.game import Sitter
from remuda.solvers.exploit.matches import Lineup, play_lineups
from remuda.solvers.exploit.parse_target import find_target
from remuda.solvers.exploit.target import Target
from remuda.solvers.exploit.training import scale_of, train_exploiters, ways_to_act
from remuda.solvers.psro.iterations import DoubleOracle
from remuda.solvers.psro.oracles import SeatedTarget, candidate_name, config_of
from remuda.solvers.psro.record import read
from remuda.solvers.psro.settings import PsroSettings
from remuda.types import Bools, Numbers
from remuda.ui.analysis.psro import lines_of, psro
from remuda.ui.terminal.live import PlainView

GAME, SEATS, SCRIPTED = "bucket_brigade", 4, "owners_duty"
SCENARIOS = ("rest_trap", "minimal_specialization")
PUBLISHED = {"rest_trap": "asymmetric_only", "minimal_specialization": "symmetric_ne_superior"}
BAR = 0.02  # of the team reward per agent
POLICY: Mapping[str, Any] = {
    "network": {"hidden": [64, 64], "activation": "tanh"},
    "learning_rate": 1e-3,
    "discount": 0.999,
    # with a low lambda the luck of later fires counts less
    "ppo": {"rollout_length": 32, "minibatches": 4, "epochs": 4, "gae_lambda": 0.5},
}
LEARNERS: Mapping[str, Any] = {"algorithm": "ppo", "reward_scale": 0.01}
ENTROPY = 0.005  # of the learners; candidates of oracles differ in theirs
COPIES = 64  # of the game, for each policy that plays one of its seats
CANDIDATES, WARM = 2, 1
ORACLES: Mapping[str, Any] = {
    "oracle": "ppo",
    "meta_solver": "nash",
    "schedule": "sequential",
    "seconds": None,
    "scripted": (SCRIPTED,),
    "candidates": CANDIDATES,
    "warm": WARM,
    "num_envs": 2 * COPIES * CANDIDATES,
    "matches": 20_000,
    "trials": 10_000,
    "policy": POLICY,
}
ITERATIONS = 1
HELD_OUT = 100_000  # matches that measure a profile, and each seat's deviation
HALF_HOUR = 30.0
TURNS = {"by role": 4_500_000, "symmetric": 2_000_000, "oracles": 600_000, "check": 1_600_000}
"""Turns of training in half an hour: of the learners of both searches, of the oracles of an
iteration, and of those of a check."""
WATCHED = 4096  # episodes in which work is counted


class Quiet(PlainView):
    """Training in silence."""

    def say(self, message: str) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Check:
    """The deviation gains of a profile, by seat."""

    returns: Numbers  # [4] of the profile
    team: float
    team_error: float
    gains: Numbers  # [4] of the best candidate of each seat
    errors: Numbers  # [4] standard errors
    candidates: tuple[str, ...]

    @property
    def share(self) -> float:
        """The largest gain, as a share of the team reward per agent."""
        return float(max(self.gains.max(), 0.0)) / abs(self.team / SEATS)

    @property
    def share_error(self) -> float:
        return float(self.errors[self.gains.argmax()]) / abs(self.team / SEATS)


def brigade(results: Results, scenario: str, minutes: float, seed: int) -> None:
    """Search by role and with one set, and hold both profiles to the bar."""
    began, computed = time.perf_counter(), time.process_time()
    turns = {name: int(count * minutes / HALF_HOUR) for name, count in TURNS.items()}
    found: dict[str, Check] = {}
    with tempfile.TemporaryDirectory() as place:
        for symmetric in (False, True):
            search = "symmetric" if symmetric else "by role"
            home = Path(place) / search.replace(" ", "_")
            run = _learn(scenario, symmetric, turns[search], seed, home)
            oracle = _respond(scenario, symmetric, turns["oracles"], seed, run)
            target, sources = find_target(Path(oracle.directory)), sources_of(oracle, run)
            found[search] = check_of(target, sources, turns["check"], seed + 1000, home)
            spent = (time.process_time() - computed) / 60.0
            row = _row(search, oracle, found[search], work_of(target, seed))
            results.row(row | {"CPU minutes so far": spent})
            print(*(f"{name}: {cell}" for name, cell in results.rows[-1].items()), sep="\n")
            print(f"after {(time.perf_counter() - began) / 60.0:.1f} minutes", flush=True)
    for search, check in found.items():
        results.bar(f"{search}: largest gain / team reward per agent", check.share, most=BAR)
    results.bar("CPU minutes of both searches and checks", spent, most=minutes)


def _learn(scenario: str, symmetric: bool, turns: int, seed: int, home: Path) -> Path:
    """Train independent learners, or one policy in all seats."""
    steps = turns * SEATS if symmetric else turns  # of a policy
    ppo = {**POLICY["ppo"], "entropy_cost": ENTROPY, "anneal_steps": steps}
    policy = {**POLICY, **LEARNERS, "ppo": ppo}
    remuda.train(
        GAME,
        env={"num_envs": COPIES // 4 if symmetric else COPIES, "options": {"scenario": scenario}},
        policy=policy,
        population={"policies": 1} if symmetric else {},
        schedule="sequential",
        seed=seed,
        run={"turns": turns, "directory": str(home / "learners"), "evaluate_episodes": 0},
        view="quiet",
    )
    print(f"{home.name}: learners trained", flush=True)
    return home / "learners"


def _respond(scenario: str, symmetric: bool, turns: int, seed: int, run: Path) -> DoubleOracle:
    """Grow the learners' sets by best responses."""
    return psro(
        GAME,
        options={"scenario": scenario},
        first=run,
        symmetric=symmetric,
        iterations=ITERATIONS,
        turns=turns,
        seed=seed,
        directory=run.parent / "psro",
        view=Quiet(),
        on_iteration=lambda found: print(lines_of(found), flush=True),
        **ORACLES,
    )


def sources_of(found: DoubleOracle, learners: Path) -> list[str]:
    """Return the trained policy that each seat plays most often, as in `init_from`."""
    directory = Path(found.directory)
    places: list[list[tuple[Path, Any]]] = [[] for _ in found.last.mixtures]  # by role
    for line in read(directory)[1:]:
        for role, _, place in line.get("first_policies", []):
            places[role].append((learners, place))
        for role, _, place in line.get("added", []):
            places[role].append((directory / f"iteration_{line['responses']}" / "oracles", place))
    sources = []
    for role, mixture in enumerate(found.last.mixtures):
        trained = [index for index, (_, place) in enumerate(places[role]) if isinstance(place, str)]
        shares = np.pad(mixture, (0, len(places[role]) - len(mixture)))  # later ones are not played
        run, place = places[role][max(trained, key=lambda index: shares[index])]
        policy = Target.load(directory / place).players[0][role]
        assert isinstance(policy, Player)
        sources.append(f"{run}:{policy.spec.name}")
    return sources * (SEATS // len(sources))


def check_of(target: Target, sources: Sequence[str], turns: int, seed: int, home: Path) -> Check:
    """Train new responses for each seat, all side by side, and measure the best ones."""
    settings = PsroSettings(**ORACLES, turns=turns, seed=seed)
    (home / "check").mkdir()
    file = home / "check" / "target"
    target.save(file)
    targets = [SeatedTarget(seat, target, file, seat) for seat in range(SEATS)]
    (own,) = play_lineups(target, [Lineup()], HELD_OUT, seed)
    scale = scale_of(float(np.abs(own).max()))
    config = config_of(settings, targets, seed, home / "check" / "run", scale, sources)
    trained = train_exploiters(config, Quiet(), "check").players
    gains, errors, names = [], [], []
    for seat in range(SEATS):
        ways: dict[str, Entrant] = {SCRIPTED: SCRIPTED}
        ways |= {
            f"{'warm' if number < WARM else 'new'}, {'greedy' if greedy else 'sampled'}": policy
            for number in range(CANDIDATES)
            for greedy, policy in ways_to_act(trained[candidate_name(seat, number)])
        }
        chosen = _best(target, seat, list(ways.items()), settings.trials, seed + 1 + seat)
        (found,) = play_lineups(target, [Lineup(seat, chosen[1])], HELD_OUT, seed)
        more = found[:, seat] - own[:, seat]
        gains.append(more.mean())
        errors.append(more.std(ddof=1) / np.sqrt(len(more)))
        names.append(chosen[0])
    team = own.sum(1)
    error = float(team.std(ddof=1) / np.sqrt(len(team)))
    means = own.mean(0)
    return Check(means, float(team.mean()), error, np.array(gains), np.array(errors), tuple(names))


def _best(
    target: Target, seat: int, ways: Sequence[tuple[str, Entrant]], trials: int, seed: int
) -> tuple[str, Entrant]:
    """Return the candidate that earns most in the trial matches."""
    played = play_lineups(target, [Lineup(seat, policy) for _, policy in ways], trials, seed)
    return ways[int(np.argmax([returns[:, seat].mean() for returns in played]))]


def work_of(target: Target, seed: int) -> Numbers:
    """Return how often each seat works while an own house burns, or only others' do: [2, 4]."""
    game = find_game(GAME).make(WATCHED, **target.env.options)
    assert isinstance(game, BucketBrigade)
    sitters = [Sitter(game, seat, target) for seat in range(SEATS)]
    seeds, every = np.random.default_rng(seed).integers(2**62, size=WATCHED), np.ones(WATCHED, bool)
    game.reset(seeds, every)
    for sitter in sitters:
        sitter.begin(every, seeds)
    nights, worked = np.zeros((2, SEATS)), np.zeros((2, SEATS))
    while game.active.any():
        game.begin_turn()
        for sitter in sitters:
            sitter.choose()
        burning, active = game.houses == BURNING, game.active[:, 0].copy()
        for seat, sitter in enumerate(sitters):
            sitter.act()
            own = burning[:, seat::SEATS].any(1)
            situations: tuple[Bools, Bools] = (own, burning.any(1) & ~own)
            for i, here in enumerate(situations):
                nights[i, seat] += (here & active).sum()
                worked[i, seat] += (game.actions[:, seat, WORK] == 1)[here & active].sum()
        result = game.end_turn()
        for sitter in sitters:
            sitter.end(result)
    return worked / np.maximum(nights, 1)


def _row(search: str, found: DoubleOracle, check: Check, work: Numbers) -> dict[str, Any]:
    def several(numbers: Numbers, digits: int) -> str:
        return " ".join(f"{each:.{digits}f}" for each in numbers)

    return {
        "search": search,
        "team reward": f"{check.team:.1f} ± {check.team_error:.1f}",
        "gain of each seat": several(check.gains, 2),
        "± (standard errors)": several(check.errors, 2),
        "best responses": "; ".join(check.candidates),
        "largest gain, %": f"{100 * check.share:.2f} ± {100 * check.share_error:.2f}",
        "played": " ".join(map(str, found.last.support)),
        "works if an own house burns": several(work[0], 2),
        "if only others' burn": several(work[1], 2),
    }
