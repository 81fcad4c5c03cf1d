"""The coin game of JaxMARL, a social dilemma: own against shared rewards, and focal play.

python benchmarks/jax_dilemma.py --record

Two agents collect coins of two colours. A coin pays 1 to the agent that takes it, and costs 2 to
the agent whose colour it has, if the other one takes it. For each seed, two independent PPO
learners are trained from their own rewards (the defectors) and two from shared rewards (the
cooperators, `policy.share_rewards 1`). Then 0, 1 or 2 cooperators play among the defectors of the
same seed, which is a Schelling diagram; with --record the first seed's is drawn. Policies sample
their actions. With --record each seed is written when it is over, and the same command leaves out
the seeds that are recorded.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recording import ROOT, Results, error_of, options_of
from seeds import Run, each_run

import remuda
from remuda.analysis.several_runs import spread
from remuda.ui.analysis.focal import write_chart
from remuda.ui.terminal.live import PlainView

GAME = "jaxmarl:coin_game"
PICTURE = ROOT / "docs" / "images" / "schelling_coin_game.png"
OWN, SHARED = "own", "shared"
SHARES = {OWN: 0.0, SHARED: 1.0}
NAMES = {OWN: "defectors", SHARED: "cooperators"}
FOCAL = (0, 1, 2)
EPISODES = 500  # of each evaluation


def train(seed: int, which: str, turns: int, parent: Path) -> remuda.Result:
    """Train two independent learners from their own or from shared rewards."""
    return remuda.train(
        GAME,
        seed=seed,
        env={"num_envs": 128},
        policy={
            "algorithm": "ppo",
            "network": {"hidden": [64, 64]},
            "learning_rate": 1e-3,
            "discount": 0.96,
            "share_rewards": SHARES[which],
            "ppo": {"rollout_length": 32},
        },
        run={
            "turns": turns,
            "directory": str(parent / NAMES[which]),
            "evaluate_episodes": EPISODES,
            "evaluate_sampled": True,
            "calibrate": 0.0,
        },
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
    )


def measure(seed: int, turns: int, picture: Path | None) -> Run:
    """Train both kinds of learners, and play cooperators among defectors."""
    begun = time.perf_counter()
    run: Run = {}
    with tempfile.TemporaryDirectory() as home:
        parent = Path(home)
        for which in SHARES:
            found = train(seed, which, turns, parent).evaluation
            assert found is not None
            own, other = (float(found.metric(f"{coins}_coins").mean()) for coins in (OWN, "other"))
            run |= {
                f"{which}: return": float(found.returns.mean()),
                f"{which}: own coins": own,
                f"{which}: other coins": other,
                f"{which}: part": own / (own + other),
            }
        cooperators = remuda.load(parent / NAMES[SHARED])
        diagram = cooperators.evaluate_among(parent / NAMES[OWN], FOCAL, EPISODES, sampled=True)
        for each in diagram.returns:
            run |= {
                f"cooperator of {each.focal_seats}": each.focal,
                f"defector with {each.focal_seats}": each.background,
            }
        if picture is not None:
            write_chart(diagram, picture)
    gain = run[f"{SHARED}: return"] - run[f"{OWN}: return"]
    plain = {
        name: value for name, value in run.items() if math.isfinite(value)
    }  # as JSON knows no NaN
    return plain | {"return": gain, "seconds": time.perf_counter() - begun}


def cells(name: str, values: Sequence[float]) -> dict[str, Any]:
    """Return the cells of a measure: its mean over seeds, and its standard error."""
    return {name: sum(values) / len(values), f"± {name}": error_of(list(values))}


def sure(results: Results, what: str, differences: Sequence[float]) -> None:
    """Hold the lower end of the 95% interval (Student's t) of a mean difference to 0."""
    if len(differences) > 1:  # not of a single seed
        results.bar(
            f"{what}, lower end of the 95% interval", spread(differences).interval[0], least=0
        )


def training(results: Results, runs: Sequence[Run]) -> None:
    """Add what both kinds of learners do and earn among themselves."""

    def of(which: str, measure: str) -> list[float]:
        return [float(run[f"{which}: {measure}"]) for run in runs]

    for which in SHARES:
        results.row(
            {
                "rewards": which,
                "seeds": len(runs),
                **cells("return of an agent", of(which, "return")),
                **cells("part of coins of the own colour", of(which, "part")),
                **cells("coins of the own colour", of(which, "own coins")),
                **cells("coins of the other's", of(which, "other coins")),
            }
        )
    for measure, what in (("part", "part of coins of the own colour"), ("return", "return")):
        pairs = zip(of(SHARED, measure), of(OWN, measure), strict=True)
        sure(results, f"{what}, shared rewards above own", [more - less for more, less in pairs])


def dilemma(results: Results, runs: Sequence[Run]) -> None:
    """Add the Schelling diagram: the return by what the other agent plays."""

    def of(name: str) -> list[float]:
        return [float(run[name]) for run in runs]

    returns = {
        "defector": (of("cooperator of 1"), of("defector with 0")),
        "cooperator": (of("cooperator of 2"), of("defector with 1")),
    }
    for other, (cooperating, defecting) in returns.items():
        results.row(
            {
                "the other agent": other,
                **cells("a cooperator earns", cooperating),
                **cells("a defector earns", defecting),
            }
        )
        gains = [more - less for more, less in zip(defecting, cooperating, strict=True)]
        sure(results, f"gain of defecting, the other a {other}", gains)
    best, worst = returns["cooperator"][0], returns["defector"][1]
    gains = [more - less for more, less in zip(best, worst, strict=True)]
    sure(results, "two cooperators earn more than two defectors", gains)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--turns", type=int, default=2_000_000, help="of all copies together")
    options = options_of(parser)
    results, diagram = Results("jax_dilemma"), Results("jax_dilemma.schelling")

    def pair(seed: int) -> Run:
        is_drawn = options.record and seed == options.seeds[0]
        return measure(seed, options.turns, PICTURE if is_drawn else None)

    found = each_run(results, options, {"Remuda": pair}, {"turns": options.turns})
    runs = list(found.values())
    training(results, runs)
    dilemma(diagram, runs)
    results.finish(options)
    diagram.finish(options)


if __name__ == "__main__":
    main()
