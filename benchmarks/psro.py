"""Double oracle in Kuhn and Leduc poker, with exact oracles and with trained ones, held to bars.

    python benchmarks/psro.py exact            NashConv <= 0.005 within 10 iterations
    python benchmarks/psro.py three            three players: gains <= 0.05 in 10 minutes, each seed
    python benchmarks/psro.py ppo --seeds 5    NashConv <= 0.02, 10 policies, 5 minutes, each seed
    python benchmarks/psro.py leduc            Leduc: exploitability <= 0.4 in an hour (--minutes)
    python benchmarks/psro.py stack            seconds of a policy: one stack, or one after another
    python benchmarks/psro.py brigade          four agents: gains <= 2% of the reward in 30 minutes

`three` plays Kuhn poker for three players with exact oracles. Each seed draws other deterministic
first policies. OpenSpiel's JPSRO runs beside it, with its maximum-Gini coarse correlated
equilibrium and first policies drawn in the same way, for --peer-seconds of CPU time; the row is its
last complete iteration. --peers names its Python interpreter, else its packages are installed into
.peers/.

A benchmark of trained oracles ends a seed as soon as NashConv, worked out exactly from the
networks, is no more than the bar; the time is that of everything, with starts and matches.
`leduc` holds exploitability to its bar, which is half of NashConv; with exact oracles it is reached
after 45 iterations.

`stack` trains oracles of both players against the same mixtures, with as many turns of each: all of
them in one run, as `remuda psro` does it, and each in a separate run, in turns so often as
`--rounds` says. A run by itself has its share of the copies. The time of a policy is that of all
runs, with their starts, by the number of policies; and by itself that of training.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from peers import PROGRAMS, peers_python
from psro_brigade import SCENARIOS, brigade
from recording import Results, options_of

from remuda.envs.description import EnvSpec
from remuda.solvers.exploit.training import Exploiters, train_exploiters
from remuda.solvers.psro.exact import ExactLoop
from remuda.solvers.psro.games import tree_of
from remuda.solvers.psro.iterations import Iteration, Setup
from remuda.solvers.psro.meta_solvers import meta_solver
from remuda.solvers.psro.oracles import (
    SeatedTarget,
    candidate_name,
    config_of,
    seated_target,
)
from remuda.solvers.psro.populations import Populations
from remuda.solvers.psro.settings import PsroSettings
from remuda.solvers.psro.trained import run_trained
from remuda.ui.analysis.psro import lines_of, psro
from remuda.ui.terminal.live import PlainView

EXACT_BAR, EXACT_ITERATIONS = 0.005, 10
PPO_BAR, POLICIES, SECONDS = 0.02, 10, 300.0
TRAINED: dict[str, Any] = {
    "schedule": "sequential",
    "seconds": None,
    "turns": 80_000,
    "num_envs": 128,
    "candidates": 2,
    "matches": 20_000,
    "trials": 20_000,
    "policy": {
        "network": {"hidden": [32], "shared": True},
        "learning_rate": 5e-3,  # 1e-3 levels off below best responses in 35 updates
        "ppo": {"rollout_length": 16, "minibatches": 4, "epochs": 4},
    },
}
"""How oracles are trained, but for the seed: in this process, whose start costs nothing."""
LEDUC_BAR, MINUTES, ITERATIONS = 0.4, 60.0, 1000
BRIGADE_MINUTES = 30.0
LEDUC: dict[str, Any] = {
    "schedule": "sequential",
    "seconds": None,
    "turns": 400_000,
    "num_envs": 256,
    "candidates": 2,
    "matches": 3000,
    "trials": 5000,
    "policy": {
        "network": {"hidden": [64, 64], "shared": True},
        "learning_rate": 2e-3,
        "ppo": {"rollout_length": 16, "minibatches": 4, "epochs": 4},
    },
}
"""The same for Leduc poker."""


class QuietView(PlainView):
    """Training in silence: each iteration is one line already."""

    def say(self, message: str) -> None:
        """Nothing."""


def exact(results: Results) -> None:
    """Exact best responses from a uniform start."""
    for solver in ("nash", "max-entropy-nash", "rectified-nash"):
        began = time.perf_counter()
        found = psro("kuhn_poker", meta_solver=solver, iterations=EXACT_ITERATIONS)
        seconds = time.perf_counter() - began
        curve = [each.nash_conv for each in found.iterations]
        first = next((i for i, value in enumerate(curve) if value <= EXACT_BAR), None)
        results.row(
            {"meta-solver": solver, "NashConv": curve[-1], "iterations": first, "seconds": seconds}
        )
        if solver == "nash":
            results.bar(f"exact, {solver}: NashConv", curve[-1], most=EXACT_BAR)


THREE_BAR, THREE_SECONDS, THREE_SEEDS = 0.05, 600.0, 3
THREE_SOLVERS = ("max-entropy-cce", "max-welfare-ce", "projected-replicator")
THREE_ITERATIONS = 40


def three(results: Results, seeds: int, python: str | None, peer_seconds: float) -> None:
    """Exact best responses of three players, and OpenSpiel's JPSRO."""
    tree = tree_of("open_spiel:kuhn_poker(players=3)")
    for solver in THREE_SOLVERS:
        for seed in range(seeds):
            rng, first = np.random.default_rng(seed), []
            for player in range(tree.num_players):
                legal = tree.legal_of(player)
                chosen = [rng.choice(np.flatnonzero(own)) for own in legal]
                first.append(np.eye(tree.num_actions)[chosen])
            began, lines = time.perf_counter(), list[Iteration]()
            computed = time.process_time()

            def told(found: Iteration, lines: list[Iteration] = lines) -> None:
                lines.append(found)
                print(lines_of(found), flush=True)

            loop = ExactLoop(
                Populations(tree, first=first),
                meta_solver(solver),
                on_iteration=told,
                stopped=lambda began=began: time.perf_counter() - began > THREE_SECONDS,
            )
            loop.run(THREE_ITERATIONS, THREE_BAR)
            seconds, last = time.perf_counter() - began, lines[-1]
            gap = f"{solver}, {last.strategy.gap}"
            computed = time.process_time() - computed
            _row_of_three(results, gap, seed, last.nash_conv, last.policies, computed)
            results.bar(f"{gap}, seed {seed}", last.nash_conv, most=THREE_BAR)
            results.bar(f"{gap}, seed {seed}: seconds", seconds, most=THREE_SECONDS)
    python = python or peers_python("jpsro_requirements.txt")
    for seed in range(seeds):
        words = [python, "jpsro_kuhn.py", str(seed), str(peer_seconds), str(THREE_BAR), "mgcce"]
        found = subprocess.run(words, cwd=PROGRAMS, stdout=subprocess.PIPE, text=True, check=False)
        line = json.loads(found.stdout.splitlines()[-1])
        peer = "OpenSpiel JPSRO mgcce, CCE gap"
        _row_of_three(results, peer, seed, line["gap"], line["policies"], line["seconds"])


def _row_of_three(
    results: Results, name: str, seed: int, gap: float, policies: Sequence[int], seconds: float
) -> None:
    results.row(
        {
            "meta-solver, gains": name,
            "seed": seed,
            "sum of gains": gap,
            "policies": " ".join(map(str, policies)),
            "CPU seconds": seconds,
        }
    )


def ppo(results: Results, seeds: int, first: int) -> None:
    """PPO best responses, all candidates of both players as one stack."""
    for seed in range(first, first + seeds):
        lines: list[Iteration] = []

        def told(found: Iteration, lines: list[Iteration] = lines) -> None:
            lines.append(found)
            print(lines_of(found), flush=True)

        began, computed = time.perf_counter(), time.process_time()
        with tempfile.TemporaryDirectory() as home:
            found = psro(
                "kuhn_poker",
                oracle="ppo",
                iterations=POLICIES - 1,
                enough=PPO_BAR,
                seed=seed,
                directory=Path(home) / "psro",
                view=QuietView(),
                on_iteration=told,
                **TRAINED,
            )
        seconds = time.perf_counter() - began
        policies = max(found.last.policies)
        results.row(
            {
                "seed": seed,
                "NashConv": found.nash_conv,
                "policies of a player": policies,
                "seconds": seconds,
                "CPU seconds": time.process_time() - computed,
            }
        )
        results.bar(f"seed {seed}: NashConv", found.nash_conv, most=PPO_BAR)
        results.bar(f"seed {seed}: policies of a player", policies, most=POLICIES)
        results.bar(f"seed {seed}: seconds", seconds, most=SECONDS)


def leduc(results: Results, minutes: float, first: int) -> None:
    """PPO best responses in Leduc poker, until the bar is reached or the time is over."""
    lines: list[Iteration] = []
    began, computed = time.perf_counter(), time.process_time()

    def spent() -> bool:
        return time.perf_counter() - began > 60.0 * minutes

    def told(found: Iteration) -> None:
        seconds = time.perf_counter() - began
        if spent():
            return  # what came after the time does not count
        lines.append(found)
        results.row(
            {
                "iteration": found.number,
                "exploitability": found.nash_conv / 2.0,
                "policies of a player": max(found.policies),
                "played": max(found.support),
                "seconds": seconds,
            }
        )
        print(lines_of(found), flush=True)

    settings = PsroSettings(
        oracle="ppo", seed=first, iterations=ITERATIONS, enough=2.0 * LEDUC_BAR, **LEDUC
    )
    with tempfile.TemporaryDirectory() as home:
        place = Path(home) / "psro"
        setup = Setup("leduc_poker", {}, settings)
        run_trained(setup, place, QuietView(), False, told, spent)
    seconds, last = time.perf_counter() - began, lines[-1]
    print(f"{seconds:.0f} s, of the processor {time.process_time() - computed:.0f} s")
    results.bar(f"seed {first}: exploitability", last.nash_conv / 2.0, most=LEDUC_BAR)


def oracles_of(candidates: int, schedule: str) -> PsroSettings:
    """As `ppo` trains them, but for how many there are and the schedule; the turns of each stay."""
    share = candidates / TRAINED["candidates"]
    counts = {name: int(TRAINED[name] * share) for name in ("turns", "num_envs")}
    changes = {"candidates": candidates, "schedule": schedule, **counts}
    return PsroSettings(oracle="ppo", **TRAINED | changes)


def trained_in(
    home: Path, settings: PsroSettings, targets: Sequence[SeatedTarget], seed: int
) -> Exploiters:
    """Train the candidates of all targets in one run."""
    with tempfile.TemporaryDirectory(dir=home) as place:
        config = config_of(settings, targets, seed, Path(place) / "run", 1.0)
        return train_exploiters(config, QuietView(), "oracles")


def targets_in(home: Path, settings: PsroSettings) -> list[SeatedTarget]:
    """For each player, half random play and half a briefly trained network."""
    targets, env = [], EnvSpec.of("kuhn_poker", {})
    for player in range(2):
        file = home / f"random_{player}"
        found = seated_target(env, player, [[("random", "random")]] * 2, np.ones(1), file, player)
        found.target.save(file)
        targets.append(found)
    short = settings.model_copy(update={"candidates": 1, "turns": 6400, "num_envs": 64})
    players = trained_in(home, short, targets, 0).players
    for player in range(2):
        file = home / f"target_{player}"
        other = players[candidate_name(1 - player, 0)]
        agent = env.agents[1 - player]
        others = [("random", "random"), ("network", replace(other, agent=agent))]
        found = seated_target(env, player, [others] * 2, np.full(2, 0.5), file, player)
        found.target.save(file)
        targets[player] = found
    return targets


def stack(results: Results, candidates: int, rounds: int, schedule: str) -> None:
    """Time oracles as one stack, and one after another."""
    together, alone = oracles_of(candidates, schedule), oracles_of(1, schedule)
    count = 2 * candidates
    times: dict[str, list[tuple[float, float, float]]] = {"one stack": [], "one after another": []}
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        targets = targets_in(home, alone)  # compiles besides
        for number in range(rounds):
            for way, found in times.items():
                runs = [(together, targets)]
                if way != "one stack":
                    runs = [(alone, [each]) for each in targets for _ in range(candidates)]
                began = time.perf_counter()
                trained = [
                    trained_in(home, settings, those, 1000 * number + seed)
                    for seed, (settings, those) in enumerate(runs)
                ]
                seconds = time.perf_counter() - began
                training = sum(each.seconds for each in trained)
                steps = sum(each.steps for each in trained)
                found.append((seconds / count, training / count, steps / count))
    for way, found in times.items():
        whole, training, steps = (median(column) for column in zip(*found, strict=True))
        results.row(
            {
                "oracles": f"{count}, {way}",
                "schedule": schedule,
                "seconds a policy": whole,
                "of training": training,
                "steps a policy": int(steps),
            }
        )
    ratios = [
        after[0] / one[0]
        for one, after in zip(times["one stack"], times["one after another"], strict=True)
    ]
    results.row(
        {
            "oracles": "one after another : one stack",
            "schedule": schedule,
            "seconds a policy": median(ratios),
        }
    )


def main() -> None:
    """Run one of the benchmarks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("exact", "three", "ppo", "leduc", "stack", "brigade"))
    parser.add_argument("--seeds", type=int, help="of ppo (5) and three (3): so many")
    parser.add_argument("--peers", help="of three: the interpreter with OpenSpiel's JPSRO")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--minutes", type=float, help="so long at most: of leduc (60), brigade (30)"
    )
    parser.add_argument("--scenario", choices=SCENARIOS, help="of brigade: this one only")
    parser.add_argument("--candidates", type=int, default=4, help="of stack: of each player")
    parser.add_argument("--rounds", type=int, default=3, help="of stack: each way so often")
    parser.add_argument("--schedule", default="sequential", help="of stack")
    parser.add_argument(
        "--peer-seconds", type=float, default=THREE_SECONDS, help="of three: CPU time of JPSRO"
    )
    options = options_of(parser)
    results = Results(f"psro.{options.what}")
    if options.what == "exact":
        exact(results)
    elif options.what == "three":
        three(results, options.seeds or THREE_SEEDS, options.peers, options.peer_seconds)
    elif options.what == "leduc":
        leduc(results, options.minutes or MINUTES, options.first_seed)
    elif options.what == "brigade":
        *first, last = (options.scenario,) if options.scenario else SCENARIOS
        for scenario in first:
            each = Results(f"psro.{scenario}")
            brigade(each, scenario, options.minutes or BRIGADE_MINUTES, options.first_seed)
            each.finish(options)
        results.name = f"psro.{last}"
        brigade(results, last, options.minutes or BRIGADE_MINUTES, options.first_seed)
    elif options.what == "stack":
        stack(results, options.candidates, options.rounds, options.schedule)
    else:
        ppo(results, options.seeds or 5, options.first_seed)
    results.finish(options)


if __name__ == "__main__":
    main()
