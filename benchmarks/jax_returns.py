"""Returns in JaxMARL's worlds, beside its own programs after as many steps.

python benchmarks/jax_returns.py cramped_room --record     Overcooked; also asymm_advantages,
                                                           coord_ring, forced_coord, counter_circuit
python benchmarks/jax_returns.py spread --record           MPE spread, PPO
python benchmarks/jax_returns.py spread_mappo --record     MPE spread, recurrent MAPPO

JaxMARL's programs have one network for all agents; Remuda trains the same with one shared policy,
and with a policy for each agent. Networks, copies, rollouts, epochs, minibatches, discounts and
learning rates with their annealing are equal; so is the annealing of Overcooked's shaped rewards.
A run's figure is the mean return of an agent over the last tenth of training, without shaped
rewards. With --record each run is written when it is over, and the same command leaves out the
runs that are recorded.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import yaml
from jax_worlds import TOGETHER, repository, theirs
from recording import Results, options_of
from seeds import Run, by_seed, compare

import remuda
from remuda.ui.reports.summary import read_run
from remuda.ui.terminal.live import PlainView

PARTS = 50  # steps of an annealed value over a run
THEIRS, SHARED, SEPARATE = "JaxMARL", "Remuda, one shared policy", "Remuda, a policy for each agent"


@dataclass(frozen=True)
class World:
    """A world with a network, in both libraries."""

    game: str
    program: str
    config: str
    network: Mapping[str, Any]
    algorithm: str = "ppo"
    layout: str = ""  # of Overcooked
    overrides: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 5_000_000
    times: float = 1.0  # of an agent's return, as their program counts it

    @property
    def name(self) -> str:
        return self.layout or self.game.partition(":")[2]


PERCEPTRON = {"hidden": [64, 64], "activation": "tanh", "shared": False}
MPE = "jaxmarl:MPE_simple_spread_v3"
LAYOUTS = ("cramped_room", "asymm_advantages", "coord_ring", "forced_coord", "counter_circuit")
WORLDS = {
    layout: World(
        "jaxmarl:overcooked",
        "IPPO/ippo_ff_overcooked",
        "ippo_ff_overcooked.yaml",
        PERCEPTRON,
        layout=layout,
    )
    for layout in LAYOUTS
} | {
    # Their log multiplies rewards by the number of agents.
    "spread": World(
        MPE, "IPPO/ippo_ff_mpe", "ippo_ff_mpe.yaml", PERCEPTRON, steps=2_000_000, times=3.0
    ),
    "spread_mappo": World(
        MPE,
        "MAPPO/mappo_rnn_mpe",
        "mappo_homogenous_rnn_mpe.yaml",
        {"hidden": [128], "recurrent": 128},
        algorithm="mappo",
        steps=500_000,
        times=3.0,
    ),
}


class Anneal(remuda.Callback):
    """Lower the learning rate to 0 over the run, and shaped rewards over their horizon."""

    def __init__(self, turns: int, rate: float, shaped: float) -> None:
        self.turns, self.rate, self.shaped = turns, rate, shaped

    def on_start(self, run: Any) -> None:
        for i in range(PARTS if self.shaped else 0):
            value = max(1.0 - (i + 0.5) / PARTS, 0.0)
            run.set_env_option("shaped_reward", value, from_turn=int(i * self.shaped / PARTS))
        if self.shaped:
            run.set_env_option("shaped_reward", 0.0, from_turn=int(self.shaped))

    def on_metrics(self, run: Any, row: Any) -> None:  # noqa: ARG002
        left = max(1.0 - run.turns / self.turns, 1.0 / PARTS)
        run.set_hyperparameters({"learning_rate": self.rate * left})


def settings(world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of their program for this world."""
    part, name = world.program.split("/")[0], world.config
    file = repository(options.jaxmarl) / "baselines" / part / "config" / name
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found | {"TOTAL_TIMESTEPS": options.steps or world.steps} | dict(world.overrides)


def train(
    world: World, options: argparse.Namespace, seed: int, together: bool, directory: Path
) -> remuda.Result:
    """Train with the settings of their program: one shared policy, or one for each agent."""
    their = settings(world, options)
    turns, rate = int(their["TOTAL_TIMESTEPS"]), float(their["LR"])
    env: dict[str, Any] = {"num_envs": their["NUM_ENVS"]}
    if world.layout:
        env["options"] = {"layout": world.layout, "shaped_reward": 1.0}
    return remuda.train(
        world.game,
        seed=seed,
        env=env,
        policy={
            "algorithm": world.algorithm,
            "network": dict(world.network),
            "learning_rate": rate,
            "discount": float(their["GAMMA"]),
            "max_grad_norm": float(their["MAX_GRAD_NORM"]),
            "reward_scale": 1.0,
            "ppo": {
                "rollout_length": int(their["NUM_STEPS"]),
                "epochs": int(their["UPDATE_EPOCHS"]),
                "minibatches": int(their["NUM_MINIBATCHES"]),
                "gae_lambda": float(their["GAE_LAMBDA"]),
                "clip": float(their["CLIP_EPS"]),
                "entropy_cost": float(their["ENT_COEF"]),
            },
        },
        **(TOGETHER if together else {}),
        run={
            "turns": turns,
            "directory": str(directory),
            "evaluate_episodes": 0,
            "log_every": 1,
        },
        checkpoint={"every": 3600, "evaluate_episodes": 0},
        callbacks=[Anneal(turns, rate, float(their.get("REW_SHAPING_HORIZON", 0)))],
        view=PlainView(),
    )


def training_return(directory: Path) -> float:
    """Return the mean over a run's policies of the return in the last tenth of training."""
    returns = [policy.training_return for policy in read_run(directory).policies]
    if any(value is None for value in returns):
        raise SystemExit("no episode ended in the last tenth of training")
    return mean(value for value in returns if value is not None)


def ours(world: World, options: argparse.Namespace, seed: int, together: bool) -> Run:
    with tempfile.TemporaryDirectory() as home:
        begun = time.perf_counter()
        train(world, options, seed, together, Path(home) / "run")
        found = training_return(Path(home) / "run")
    return {"return": found, "seconds": time.perf_counter() - begun}


def their_run(world: World, options: argparse.Namespace, seed: int) -> Run:
    their = settings(world, options)
    overrides = {"TOTAL_TIMESTEPS": their["TOTAL_TIMESTEPS"], **world.overrides}
    (found,) = theirs(world.program, world.config, overrides, world.layout, [seed], options.jaxmarl)
    value = found.get("returned_episode_returns", found.get("returns"))
    return {"return": value / world.times, "seconds": found["seconds"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("what", choices=[*WORLDS])
    add("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    add("--steps", type=int, help="of all copies together; by default as the world has them")
    add("--jaxmarl", default="", help="a checkout of JaxMARL's repository")
    options = options_of(parser)
    world = WORLDS[options.what]
    results = Results(f"jax_returns.{options.what}")
    libraries = {
        THEIRS: lambda seed: their_run(world, options, seed),
        SHARED: lambda seed: ours(world, options, seed, together=True),
        SEPARATE: lambda seed: ours(world, options, seed, together=False),
    }
    steps = options.steps or world.steps
    found = by_seed(results, options, libraries, {"steps": steps})
    for own in (SHARED, SEPARATE):
        compare(results, found[own], found[THEIRS], least=-2)
    results.finish(options)


if __name__ == "__main__":
    main()
