"""Leduc poker by self-play with a pool of past policies, measured exactly as it goes.

    python benchmarks/leduc.py self_play
    python benchmarks/leduc.py self_play --episodes 100000 --points 2
    python benchmarks/leduc.py self_play --game open_spiel:leduc_poker

One policy learns by PPO against its newest self and against frozen copies of what it was
(`population.matchmaker self_play`). At ten points and in the end a walk through the whole game
tells exploitability (NashConv / 2) of

    newest    the newest weights alone
    pool      one drawn for each game from all frozen copies, which span the whole past, and the
              newest weights: their average policy
    half      likewise, of the newer half of them

The bar is on the pool in the end: Heinrich and Silver 2016, "Deep reinforcement learning from
self-play in imperfect-information games", have 0.506 after 9.2 million episodes of neural
fictitious self-play.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recording import Results, options_of

from remuda.analysis.exact_play import WalkedGame, walked_game
from remuda.analysis.exploitability import exploitability
from remuda.analysis.tree_policies import mixture
from remuda.callbacks import ActiveRun, Callback
from remuda.config import load_config, overlay
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.registry import make_env
from remuda.saved import SavedPolicies
from remuda.training import train
from remuda.ui.live import PlainView

GAME, POLICY = "leduc_poker", "policy_0"
EPISODES, BAR = 9_200_000, 0.5
MOST_TURNS = 8
"""Of a game."""
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

    def __init__(self, game: str, results: Results, episodes: int, points: int) -> None:
        """Begin.

        Args:
            game: Leduc poker as it is here, or as OpenSpiel has it.
            results: take a row for each point.
            episodes: at most; the run ends two lines of metrics before they would be passed.
            points: so many, evenly spread.
        """
        self._results, self._episodes, self._each = results, episodes, episodes / points
        self._next, self.matches = self._each, 0
        env = make_env(game, 1)
        walked = walked_game(game, env)
        env.close()
        assert walked is not None
        self._walked: WalkedGame = walked
        self._begun = time.monotonic()

    def on_metrics(self, run: ActiveRun, row: Mapping[str, float]) -> None:
        """Count, and end the run before it plays more than was asked for."""
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

    def measure(self, directory: Path, number: int | None = None) -> float:
        """Measure a checkpoint, None being the last; exploitability of the pool."""
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
        self._results.row({**cells, "version": newest.snapshot.version, "seconds": seconds})
        told = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        print(f"{self.matches:,} games, {seconds} s: {told}", flush=True)
        return found["pool"]


def self_play(game: str, results: Results, episodes: int, points: int, seed: int) -> None:
    """Train, and measure on the way."""
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home) / "run"
        run = {"directory": str(directory), "turns": MOST_TURNS * episodes}
        tree = overlay(SELF_PLAY, {"game": game, "seed": seed, "run": run})
        measured = Measured(game, results, episodes, points)
        result = train(load_config(tree), QuietView(), user_callbacks=[measured])
        measured.matches = result.record.matches
        found = measured.measure(directory)
    results.bar("self-play: games", measured.matches, most=episodes)
    results.bar("self-play: exploitability of the pool", found, most=BAR)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("self_play",))
    parser.add_argument("--game", default=GAME, help=f"{GAME}, or open_spiel:{GAME}")
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--points", type=int, default=10, help="measure so often on the way")
    parser.add_argument("--seed", type=int, default=0)
    options = options_of(parser)
    some = "" if options.game == GAME else ".open_spiel"
    results = Results(f"leduc.{options.what}{some}")
    self_play(options.game, results, options.episodes, options.points, options.seed)
    results.finish(options)


if __name__ == "__main__":
    main()
