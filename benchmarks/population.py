"""Populations: do they find equilibria, and what does dealing seats cost.

python benchmarks/population.py kuhn --seeds 5         self-play against a pool: exploitability
python benchmarks/population.py kuhn_anchor --seeds 5  held by an anchor: the last 100 versions
python benchmarks/population.py connect_four           20 minutes of self-play: wins, ratings
python benchmarks/population.py speed --rounds 3       dealt seats against fixed seats
python benchmarks/population.py teams --rounds 3       teams of unlike sizes against fixed seats
python benchmarks/population.py many                   8 and 64 policies: cost and memory
python benchmarks/population.py actors --rounds 3      a slow game, dealt by one actor and by two
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from recording import Results, options_of
from rich.console import Console
from rich.table import Table

from remuda.analysis.trees.exact_play import walked_game
from remuda.analysis.trees.exploitability import Exploitability, measure
from remuda.analysis.trees.trees import mixture
from remuda.config import load_config, overlay, read_config
from remuda.envs.registry import make_env
from remuda.evaluation.evaluate import evaluate
from remuda.population.ledger.ledger import MATCH, read_records
from remuda.population.members.table_parts import POLICY, VERSION
from remuda.population.specs import policy_specs
from remuda.runs.metrics import Goal, Record
from remuda.runs.result import Result
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.system.checkpoint.names import COORDINATOR
from remuda.training.run import train

EXAMPLES = Path(__file__).parents[1] / "examples"
QUIET = {"run": {"evaluate_episodes": 0}, "checkpoint": {"every": 3600, "evaluate_episodes": 0}}

KUHN = overlay(read_config(EXAMPLES / "self_play.yaml"), QUIET)
# Held by an anchor it needs no past to play against: the last hundred versions are averaged. Large
# rollouts, so that a hundred of them span more than one turn of the circle that it goes round.
KUHN_ANCHOR: dict[str, Any] = overlay(
    KUHN,
    {
        "policy": {
            "learning_rate": 1e-3,
            "ppo": {"rollout_length": 16, "anchor_cost": 0.2, "anchor_every": 12},
        },
        "population": {"newest": 1.0, "snapshots": {"every": 1, "keep": 100}},
        "run": {"turns": 2_000_000},
    },
)
CONNECT_FOUR = overlay(
    read_config(EXAMPLES / "connect_four.yaml"), overlay(QUIET, {"checkpoint": {"every": 60}})
)
SPEED: dict[str, Any] = {
    "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"minibatches": 4}},
    "env": {"num_envs": 64, "options": {"num_agents": 8}},
    "run": {"turns": 10**9, "evaluate_episodes": 0, "log_every": 0.5},
    "checkpoint": {"every": 3600, "evaluate_episodes": 0},
}
DEALT: dict[str, Any] = {"matchmaker": "round_robin", "policies": 8}
WARM_UP = 4.0
"""Seconds of a run that are not counted."""


class Watch:
    """Keeps the records of a run, and the memory of all its processes."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.memory = 0.0
        """The most MiB at a time that belong to this process and its children, shared ones once."""

    def start(self, goal: Goal) -> None: ...

    def show(self, record: Record) -> None: ...

    def say(self, message: str) -> None: ...

    def close(self) -> None: ...

    def log(self, record: Record) -> None:
        self.records.append(record)
        own = psutil.Process()
        family = [own, *own.children(recursive=True)]
        self.memory = max(self.memory, sum(p.memory_full_info().pss for p in family) / 2**20)

    def trained(self) -> float:
        """Agent-steps trained a second, after the warm-up."""
        kept = [r for r in self.records if r.seconds >= WARM_UP]
        first, last = kept[0], kept[-1]
        steps = [sum(p.trained for p in record.policies.values()) for record in (first, last)]
        return (steps[1] - steps[0]) / (last.seconds - first.seconds)


def run(tree: dict[str, Any], directory: Path, seed: int = 0) -> tuple[Result, Watch]:
    watch = Watch()
    tree = overlay(tree, {"seed": seed, "run": {"directory": str(directory)}})
    return train(load_config(tree), watch), watch


def exploitability_of(directory: Path) -> tuple[Exploitability, Exploitability]:
    """Measure the average of the frozen copies in the last checkpoint, and the newest alone."""
    files = RunDirectory.open(directory)
    config = files.read_config()
    spec = policy_specs(config, make_env(config.game, 1).agents)[0]
    saved = files.checkpoints.read(files.checkpoints.numbers()[-1], COORDINATOR)["population"]
    weights, identity = saved["copies"][spec.name]["weights"], saved["identity"]
    held = [i for i in range(1, len(identity)) if identity[i, POLICY] >= 0]
    held.sort(key=lambda slot: int(identity[slot, VERSION]))
    walked = walked_game(config.game, make_env(config.game, 1))
    assert walked is not None
    pools = [[walked.play(player, spec, weights[slot - 1]) for slot in held] for player in range(2)]
    average = [mixture(walked.tree, player, pool) for player, pool in enumerate(pools)]
    return measure(walked.tree, average), measure(walked.tree, [pool[-1] for pool in pools])


def kuhn(results: Results, seeds: int, tree: dict[str, Any], bar: float) -> None:
    """The average policy of the pool, against exact best responses."""
    worst = 0.0
    for seed in range(seeds):
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as home:
            result, _ = run(tree, Path(home) / "run", seed)
            found, last = exploitability_of(Path(home) / "run")
        results.row(
            {
                "seed": seed,
                "exploitability": found.exploitability,
                "value": found.returns[0],
                "exploitability of the last alone": last.exploitability,
                "matches": result.record.matches,
                "seconds": round(time.monotonic() - begun),
            }
        )
        print(f"seed {seed}: {found.exploitability:.4f} {found.returns[0]:.4f}", flush=True)
        worst = max(worst, found.exploitability)
    results.bar("exploitability, the most of all seeds", worst, most=bar)


def connect_four(results: Results, seconds: float) -> None:
    """Self-play for so long; wins against random in both seats, and ratings of the pool."""
    console = Console()
    with tempfile.TemporaryDirectory() as home:
        tree = overlay(CONNECT_FOUR, {"run": {"seconds": seconds}})
        result, watch = run(tree, Path(home) / "run")
        spec, snapshots = load_run(RunDirectory.open(Path(home) / "run"))
        for seat in range(2):
            for opponent in ("random", "tactician"):
                scripted = {f"agent_{1 - seat}": opponent}
                played = evaluate(spec, snapshots, 1000, scripted=scripted)
                returns = played.returns[:, seat]
                wins = float((returns > 0).mean())
                results.row({"against": f"{opponent}, seat {seat}", "won, %": 100 * wins})
        members = watch.records[-1].members
        frozen = sorted((int(n.split("@")[1]), m) for n, m in members.items() if not m.learns)
        ratings = [m.rating for _, m in frozen]
        table = Table("copy", "rating", "±", "games", "above that of 10 before")
        for i, (version, member) in enumerate(frozen):
            above = "" if i < 10 else str(ratings[i] > ratings[i - 10])
            row = (f"{member.rating:.1f}", f"{member.uncertainty:.1f}", f"{member.games:,}")
            table.add_row(str(version), *row, above)
        console.print(table)
        results.row({"against": "matches played by then", "matches": result.record.matches})


def rate_of(tree: dict[str, Any], seconds: float) -> tuple[float, float]:
    """Trained agent-steps a second, and MiB; in a separate process, so that nothing lingers."""
    with tempfile.TemporaryDirectory() as home:
        tree = overlay(overlay(SPEED, tree), {"run": {"seconds": seconds}})
        _, watch = run(tree, Path(home) / "run")
    return watch.trained(), watch.memory


def in_turns(
    trees: dict[str, dict[str, Any]], seconds: float, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Measure each in turn, several times over."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in trees}
    for _ in range(rounds):
        for name, tree in trees.items():
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, context) as pool:
                found[name].append(pool.submit(rate_of, tree, seconds).result())
    return found


def compare(
    results: Results,
    what: str,
    trees: dict[str, dict[str, Any]],
    seconds: float,
    rounds: int,
    bar: float,
) -> None:
    """Trained agent-steps a second of dealt seats, against the same with fixed seats."""
    found = in_turns(trees, seconds, rounds)
    fixed, dealt = ([rate for rate, _ in found[name]] for name in ("fixed", "dealt"))
    ratios = [d / f for d, f in zip(dealt, fixed, strict=True)]
    ratio = median(ratios)
    results.row(
        {
            "": what,
            "fixed, trained/s": median(fixed),
            "dealt, trained/s": median(dealt),
            "ratio": ratio,
            "lowest": min(ratios),
            "highest": max(ratios),
        }
    )
    results.bar(f"{what}: dealt seats, of the speed of fixed ones", ratio, least=bar)


def speed(results: Results, seconds: float, rounds: int) -> None:
    """The same policies on fixed seats and dealt by a round robin."""
    for game in ("treasure_hunt", "bucket_brigade"):
        trees = {"fixed": {"game": game}, "dealt": {"game": game, "population": DEALT}}
        compare(results, game, trees, seconds, rounds, 0.85)


def teams(results: Results, seconds: float, rounds: int) -> None:
    """Teams of unlike sizes, and one policy for each fixed seat."""
    for red, blue, seats in ((1, 8, (1, 3)), (2, 6, (2, 6)), (1, 7, (4, 4)), (4, 4, (1, 7))):
        agents = [f"agent_{i}" for i in range(sum(seats))]
        sides = {
            "red": {"policies": [f"red_{i}" for i in range(red)], "agents": agents[: seats[0]]},
            "blue": {"policies": [f"blue_{i}" for i in range(blue)], "agents": agents[seats[0] :]},
        }
        base = {
            "game": "treasure_hunt",
            "env": {"options": {"num_agents": len(agents)}},
            # One process for all policies, so that the layout is not what is compared.
            "learners": {"processes": 1},
            "actor": {"processes": 1},
        }
        dealt = overlay(base, {"population": {"matchmaker": "teams", "teams": sides}})
        what = f"{red}:{blue} on {seats[0]}+{seats[1]} seats"
        compare(results, what, {"fixed": base, "dealt": dealt}, seconds, rounds, 0.9)


def many(results: Results, seconds: float, rounds: int) -> None:
    """Measure the cost of a trained step by the number of policies, and its memory."""
    trees = {
        str(count): {
            "game": "treasure_hunt",
            "population": {"matchmaker": "round_robin", "policies": count},
            "env": {"num_envs": 8 * count},  # so that each policy has as many streams
        }
        for count in (8, 64)
    }
    found = in_turns(trees, seconds, rounds)
    base = median(rate for rate, _ in found["8"])
    for name, measured in found.items():
        rate = median(rate for rate, _ in measured)
        memory = max(memory for _, memory in measured)
        results.row(
            {
                "policies": int(name),
                "trained/s": rate,
                "cost against 8": base / rate,
                "GiB": memory / 1024,
            }
        )


SLOW: dict[str, Any] = {
    "game": "slow_game:SlowGame",
    "env": {"num_envs": 16},
    "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"rollout_length": 16}},
    "run": SPEED["run"],
    "checkpoint": SPEED["checkpoint"],
    "population": {"matchmaker": "round_robin", "policies": 4},
    "learners": {"processes": 1},
}
"""A round robin of a game in Python, of a millisecond for each turn of a copy."""


def dealt_by(actors: int, seconds: float) -> tuple[float, int, int]:
    """Trained agent-steps a second, and how far counts of seatings lie apart: by actor, of all.

    In a separate process, so that nothing lingers.
    """
    tree = overlay(SLOW, {"actor": {"processes": actors}})
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home) / "run"
        _, watch = run(overlay(tree, {"run": {"seconds": seconds}}), directory)
        records = read_records(RunDirectory.open(directory).ledger)[1]
    matches = records[records["kind"] == MATCH]
    # In the order in which each actor dealt them, as far as all of them are over.
    counts = np.zeros((actors, 4, 4), np.int64)
    for actor in range(actors):
        own = np.sort(matches[matches["number"] % actors == actor], order="number")
        missing = np.flatnonzero(np.diff(own["number"]) != actors)
        own = own[: missing[0] + 1] if len(missing) else own
        np.add.at(counts[actor], tuple(own["policy"].T.astype(np.int64)), 1)
    apart = [int(np.ptp(found[~np.eye(4, dtype=bool)])) for found in (*counts, counts.sum(0))]
    return watch.trained(), max(apart[:-1]), apart[-1]


def actors(results: Results, seconds: float, rounds: int) -> None:
    """A slow game dealt by one actor and by two, in turns."""
    found: dict[int, list[tuple[float, int, int]]] = {1: [], 2: []}
    for _ in range(rounds):
        for count, measured in found.items():
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, context) as pool:
                measured.append(pool.submit(dealt_by, count, seconds).result())
    one, two = ([rate for rate, *_ in measured] for measured in found.values())
    ratios = [t / o for t, o in zip(two, one, strict=True)]
    own, together = (max(each[i] for each in found[2]) for i in (1, 2))
    results.row(
        {
            "one actor, trained/s": median(one),
            "two, trained/s": median(two),
            "ratio": median(ratios),
            "lowest": min(ratios),
            "highest": max(ratios),
            "seatings apart, by actor": own,
            "of both": together,
        }
    )
    results.bar("a slow game dealt by 2 actors, of the speed of one", median(ratios), least=1.7)
    results.bar("counts of a round robin apart, by actor", own, most=1)
    results.bar("counts of a round robin apart, of both", together, most=2)


NAMES = ("kuhn", "kuhn_anchor", "connect_four", "speed", "teams", "many", "actors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=NAMES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    words = options_of(parser)
    results = Results(f"population.{words.what}")
    todo: dict[str, Callable[[], None]] = {
        "kuhn": lambda: kuhn(results, words.seeds, KUHN, 0.03),
        "kuhn_anchor": lambda: kuhn(results, words.seeds, KUHN_ANCHOR, 0.06),
        "connect_four": lambda: connect_four(results, words.seconds or 1200),
        "speed": lambda: speed(results, words.seconds or 20, words.rounds),
        "teams": lambda: teams(results, words.seconds or 20, words.rounds),
        "many": lambda: many(results, words.seconds or 40, words.rounds),
        "actors": lambda: actors(results, words.seconds or 30, words.rounds),
    }
    todo[words.what]()
    results.finish(words)


if __name__ == "__main__":
    main()
