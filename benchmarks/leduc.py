"""Leduc poker by self-play with a pool of past policies, measured exactly as it goes.

    python benchmarks/leduc.py self_play
    python benchmarks/leduc.py self_play --episodes 100000 --points 2
    python benchmarks/leduc.py self_play --game open_spiel:leduc_poker --seeds 5
    python benchmarks/leduc.py self_play --game open_spiel:leduc_poker --seeds 5 --defaults

One policy learns by PPO against its newest self and against frozen copies of what it was
(`population.matchmaker self_play`). At ten points and in the end a walk through the whole game
gives exploitability (NashConv / 2) of

    newest    the newest weights alone
    pool      one drawn for each game from all frozen copies, which span the whole past, and the
              newest weights: their average policy
    half      the same of the newer half of them

Of several seeds, and of OpenSpiel's game, the table has the end of each, and what they came to on
the way is in a CSV next to the recorded figures. With `--defaults` nothing of the policy is chosen
but PPO.

The bar is on the pool in the end, in the mean over seeds: below a curve of neural fictitious
self-play (Heinrich and Silver 2016), of 0.506 after 9.2 million episodes and 0.334 after 24.8
million, which is not that of its authors, whose program goes further.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

from recording import FIGURES, Cell, Results, options_of

from remuda.analysis.trees.exact_play import WalkedGame, walked_game
from remuda.analysis.trees.exploitability import exploitability
from remuda.analysis.trees.trees import mixture
from remuda.config import load_config, overlay
from remuda.coordinator.callback import ActiveRun, Callback
from remuda.envs.registry import make_env
from remuda.runs.run_directory import RunDirectory
from remuda.training.run import train
from remuda.training.saved.policies import SavedPolicies
from remuda.ui.terminal.live import PlainView

GAME, POLICY = "leduc_poker", "policy_0"
EPISODES, BAR = 9_200_000, 0.5
MOST_TURNS = 8
"""The most turns of a game."""
SELF_PLAY: dict[str, Any] = {
    "game": GAME,
    "env": {"num_envs": 512},
    "policy": {
        "algorithm": "ppo",
        "network": {"hidden": [128, 128], "activation": "relu", "shared": True},
        "discount": 1.0,
        "reward_scale": 0.25,  # 1 to 13 chips are won
        "learning_rate": 5.0e-4,
        "experience": {"segment_length": 8},
        "ppo": {
            "entropy_cost": 0.06,
            "rollout_length": 8,
            "minibatches": 4,
            "normalise_advantages": False,
        },
    },
    "population": {
        "matchmaker": "self_play",
        "policies": 1,
        "newest": 0.5,
        "snapshots": {"every": 20, "keep": 100, "drop": "crowded"},
    },
    "run": {"evaluate_episodes": 0, "log_every": 1.0},
    "checkpoint": {"every": 5.0, "evaluate_episodes": 0},
}


class QuietView(PlainView):
    """Training in silence: each point is one line already."""

    def say(self, message: str) -> None:
        """Nothing."""


class Measured(Callback):
    """Measures the policy at points of a run, and ends it."""

    def __init__(self, game: str, episodes: int, points: int) -> None:
        """Begin.

        Args:
            game: Remuda's Leduc poker, or OpenSpiel's.
            episodes: at most; the run ends two lines of metrics before they would be passed.
            points: so many, evenly spread.
        """
        self._episodes, self._each = episodes, episodes / points
        self._next, self.matches = self._each, 0
        self.found: list[dict[str, Cell]] = []
        """The measurements of each point."""
        env = make_env(game, 1)
        walked = walked_game(game, env)
        env.close()
        assert walked is not None
        self._walked: WalkedGame = walked
        self._begun = time.monotonic()

    def on_metrics(self, run: ActiveRun, row: Mapping[str, float]) -> None:
        """Count, and end the run before it plays more than was ordered."""
        before, self.matches = self.matches, int(row["population/matches"])
        # What ends here is over after another line at most.
        if self.matches + 2 * (self.matches - before) > self._episodes:
            run.stop(f"{self.matches:,} games were played")

    def on_checkpoint(self, run: ActiveRun, number: int, path: Path) -> None:  # noqa: ARG002
        """Measure, if a point was passed."""
        if self.matches >= self._next:
            self.measure(run.directory, number)
            while self._next <= self.matches:
                self._next += self._each

    def measure(self, directory: Path, number: int | None = None) -> None:
        """Measure a checkpoint, None being the last."""
        saved = SavedPolicies(RunDirectory.open(directory))
        which = saved.files.checkpoints.numbers()[-1] if number is None else number
        newest = saved.find(POLICY, which).player
        copies = sorted((copy for _, copy in saved.copies(which)), key=lambda copy: copy.version)
        weights = [copy.weights for copy in copies] + [newest.snapshot.weights]
        play = [
            [self._walked.play(player, newest.spec, each) for each in weights]
            for player in range(2)
        ]
        tree, half = self._walked.tree, len(weights) // 2
        found = {
            "newest": exploitability(tree, [own[-1] for own in play]),
            "pool": exploitability(tree, [mixture(tree, i, own) for i, own in enumerate(play)]),
            "half": exploitability(
                tree, [mixture(tree, i, own[half:]) for i, own in enumerate(play)]
            ),
        }
        cells = {"games": self.matches, **found, "copies": len(copies)}
        seconds = round(time.monotonic() - self._begun)
        self.found.append({**cells, "version": newest.snapshot.version, "seconds": seconds})
        told = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        print(f"{self.matches:,} games, {seconds} s: {told}", flush=True)


def self_play(
    game: str, episodes: int, points: int, seed: int, defaults: bool
) -> list[dict[str, Cell]]:
    """Train, and measure on the way; what each point came to, the last with the turns of all."""
    chosen = SELF_PLAY | ({"policy": {"algorithm": "ppo"}} if defaults else {})
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home) / "run"
        run = {"directory": str(directory), "turns": MOST_TURNS * episodes}
        tree = overlay(chosen, {"game": game, "seed": seed, "run": run})
        measured = Measured(game, episodes, points)
        result = train(load_config(tree), QuietView(), user_callbacks=[measured])
        measured.matches = result.record.matches
        measured.measure(directory)
    measured.found[-1]["turns"] = result.record.turns
    return measured.found


def write_points(results: Results, seeds: Mapping[int, list[dict[str, Cell]]]) -> None:
    """Write all points of all seeds, for plots."""
    with (FIGURES / f"{results.name}.csv").open("w", newline="") as file:
        columns = ("seed", "games", "newest", "pool", "half", "copies", "version", "seconds")
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        for seed, points in seeds.items():
            writer.writerows({"seed": seed, **point} for point in points)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("self_play",))
    parser.add_argument("--game", default=GAME, help=f"{GAME}, or open_spiel:{GAME}")
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--points", type=int, default=10, help="measure so often on the way")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--defaults", action="store_true", help="of the policy PPO alone is chosen")
    options = options_of(parser)
    if options.seeds < 1:
        parser.error("--seeds: at least 1")
    some = "" if options.game == GAME else ".open_spiel"
    called = f"leduc.{options.what}{some}{'.defaults' * options.defaults}"
    is_by_seed = options.seeds > 1 or options.game != GAME
    seeds: dict[int, list[dict[str, Cell]]] = {}
    for seed in range(options.seed, options.seed + options.seeds):
        asked = (options.game, options.episodes, options.points, seed, options.defaults)
        seeds[seed] = self_play(*asked)
        results = found_in(called, seeds, options.episodes, is_by_seed)
        if options.record and len(seeds) < options.seeds:  # what is stopped keeps what is over
            results.so_far = f"{len(seeds)} of {options.seeds} seeds"
            results.write()
    if options.record and is_by_seed:
        write_points(results, seeds)
    results.finish(options)


def found_in(
    called: str, seeds: Mapping[int, list[dict[str, Cell]]], episodes: int, is_by_seed: bool
) -> Results:
    """Rows and bars: the end of each seed, or each point of the only one."""
    results = Results(called)
    ends = {seed: points[-1] for seed, points in seeds.items()}
    if is_by_seed:
        for seed, end in ends.items():
            results.row({"seed": seed, **end})
    else:
        for point in chain(*seeds.values()):
            results.row({name: cell for name, cell in point.items() if name != "turns"})
    several = f", mean of {len(ends)} seeds" if len(ends) > 1 else ""
    results.bar("self-play: games", max(end["games"] for end in ends.values()), most=episodes)
    pool = mean(end["pool"] for end in ends.values())
    results.bar(f"self-play: exploitability of the pool{several}", pool, most=BAR)
    return results


if __name__ == "__main__":
    main()
