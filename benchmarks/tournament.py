"""A tournament of many policies: matches a second, and where the time goes.

16 policies with random weights, all of the default network, play connect four against each other,
sampled, on both seats, in one process. The bar applies to the rate once everything is
compiled: a million matches in ten minutes on two quiet cores.

    python benchmarks/tournament.py             # the rate and the bar
    python benchmarks/tournament.py --profile   # and a profile, by function
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from recording import Results, options_of

from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.engine import play
from remuda.evaluation.tournaments.entrants import Player, setup_of_entrants
from remuda.policies.spec import first_weights
from remuda.population.specs import policy_specs
from remuda.publish.snapshot import Snapshot
from remuda.system.rng import torch_rng

GAME = "connect_four"
LEAST = 1_000_000 / 600.0
"""Matches a second: a million in ten minutes."""


class Rate:
    """Matches a second, from the first telling after everything is compiled."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None
        self.last = (0.0, 0)

    def __call__(self, done: int, wanted: int) -> None:  # noqa: ARG002 - as `Limits.watch`
        self.last = (time.perf_counter(), done)
        if self.first is None and done:
            self.first = self.last

    @property
    def value(self) -> float:
        """Matches a second; 0: nothing was printed."""
        if self.first is None or self.last[0] <= self.first[0]:
            return 0.0
        return (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])


def players(count: int, hidden: list[int]) -> dict[str, Player]:
    """Policies with weights before any training."""
    tree = {
        "game": GAME,
        "policy": {"algorithm": "ppo", "network": {"hidden": hidden}},
        "population": {"matchmaker": "uniform", "policies": count},
    }
    env = make_env(GAME, 1)
    found = {}
    for spec in policy_specs(load_config(tree), env.agents):
        weights = first_weights(spec, torch_rng(0, "benchmark", spec.name))
        found[spec.name] = Player(spec, Snapshot(weights, 0, 0, 0.0), env.agents[0])
    return found


def main() -> None:
    """Play, and print the rate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=int, default=16)
    parser.add_argument("--matches", type=int, default=200_000)
    parser.add_argument("--hidden", type=int, nargs="+", default=[250, 250])
    parser.add_argument("--profile", action="store_true")
    options = options_of(parser)
    setup = setup_of_entrants(GAME, {}, players(options.policies, options.hidden), sampled=True)
    episodes = max(1, options.matches // options.policies**2)
    profile, rate = cProfile.Profile(), Rate()
    with tempfile.TemporaryDirectory() as home:
        play(replace(setup, seed=1), 2)  # compiles
        began = time.perf_counter()
        if options.profile:
            profile.enable()
        play(setup, episodes, Path(home) / "matches", limits=Limits(watch=rate))
        profile.disable()
        seconds = time.perf_counter() - began
        size = (Path(home) / "matches" / "ledger.bin").stat().st_size
    matches = episodes * options.policies**2
    results = Results("tournament")
    results.row(
        {
            "policies": options.policies,
            "hidden layers": " ".join(map(str, options.hidden)),
            "matches": matches,
            "seconds": seconds,
            "matches a second": rate.value,
            "bytes a match": size / matches,
        }
    )
    results.bar("connect four: matches a second", rate.value, least=LEAST)
    results.finish(options)
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(18)


if __name__ == "__main__":
    main()
