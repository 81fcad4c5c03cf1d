"""Sorrel's Treasurehunt by its own loop and models, and by Remuda in the same minutes.

python benchmarks/sorrel_own.py --minutes 4 --rounds 3 --record      where Sorrel is installed

Both train its own PyTorchIQN for each agent, as its example makes them, at the replay ratio of its
example: one batch of 64 for each agent and epoch of 100 turns. What Remuda learned is put back into
the models, and Sorrel's own loop then judges both, greedily. It has one thread of torch, with
which it is faster than with two. Beside them: how fast the world is with agents that choose at
random.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import tempfile
import time
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from recording import Results, error_of, options_of
from sorrel.examples.treasurehunt.entities import EmptyEntity
from sorrel.examples.treasurehunt.env import TreasurehuntEnv
from sorrel.examples.treasurehunt.world import TreasurehuntWorld

import remuda.api.sorrel
from remuda.config import overlay
from remuda.envs.adapters.sorrel import EXAMPLES

TURNS, BATCH = 100, 64
EPISODES = 40
"""Episodes that compare the two."""
CONFIG: dict[str, Any] = overlay(
    EXAMPLES["treasurehunt"]["config"],
    {
        "experiment": {"epochs": 10**9, "max_turns": TURNS, "record_period": 10**9},
        "model": {"epsilon_decay": 0.0005},
    },
)
"""The settings of Sorrel's own example."""


class OverError(Exception):
    """The minutes are over."""


class Timed(TreasurehuntEnv):
    """Its loop, until the time is over: it asks at the end of each epoch."""

    until = float("inf")
    epochs = 0

    def _model_train_step(self, agent: Any) -> np.ndarray:
        loss: np.ndarray = super()._model_train_step(agent)
        if agent is self.agents[-1]:
            self.epochs += 1
            if time.perf_counter() > self.until:
                raise OverError
        return loss


def environment(seed: int) -> Timed:
    """Their environment, as their example makes it."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return Timed(TreasurehuntWorld(config=CONFIG, default_entity=EmptyEntity()), CONFIG)


def judged(env: Timed) -> float:
    """The mean return of an agent, by their loop, greedily."""
    returns = []
    for agent in env.agents:
        agent.model.epsilon = 0.0
    for _ in range(EPISODES):
        env.reset()
        for _ in range(TURNS):
            env.take_turn()
        returns.append(float(env.world.total_reward) / len(env.agents))
    return mean(returns)


def own(seed: int, minutes: float) -> tuple[float, float, float]:
    """Steps of agents and seconds of their loop, and what its models earn."""
    env, begun = environment(seed), time.perf_counter()
    env.until = begun + 60.0 * minutes
    with contextlib.suppress(OverError):
        env.run_experiment(animate=False, logging=False)
    seconds = time.perf_counter() - begun
    return env.epochs * TURNS * len(env.agents), seconds, judged(env)


def ours(seed: int, minutes: float) -> tuple[float, float, float]:
    """The same of Remuda, with their models."""
    env = environment(seed)
    model = env.agents[0].model
    settings: dict[str, Any] = {
        "seed": seed,
        "env": {"num_envs": 8},
        "policy": {
            "batch_size": BATCH,
            "learning_rate": 0.00025,
            "discount": model.GAMMA,
            "experience": {"replay_ratio": BATCH / TURNS},
        },
        "run": {"seconds": 60.0 * minutes, "evaluate_episodes": 0, "live": False},
        "checkpoint": {"evaluate_episodes": 0},
    }
    with tempfile.TemporaryDirectory() as directory:
        settings["run"]["directory"] = f"{directory}/run"
        result = remuda.api.sorrel.train(env, settings)
    return result.record.agent_steps, result.record.seconds, judged(env)


def world_alone(seed: int) -> float:
    """Steps of agents a second of one process whose agents choose at random."""
    env = environment(seed)
    for agent in env.agents:
        agent.model.epsilon = 1.0
        agent.model.take_action = lambda _: random.randrange(4)
    rates = []
    for _ in range(10):
        env.reset()
        begun = time.perf_counter()
        for _ in range(TURNS):
            env.take_turn()
        rates.append(TURNS * len(env.agents) / (time.perf_counter() - begun))
    return median(rates)


def spread(values: list[float]) -> str:
    """A mean with its standard error."""
    return f"{mean(values):.1f} ± {error_of(values):.1f}"


def main() -> None:
    """Train both in turns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=4.0, help="of each")
    parser.add_argument("--rounds", type=int, default=3, help="seeds")
    options = options_of(parser)
    os.environ.setdefault("MPLBACKEND", "agg")
    torch.set_num_threads(1)
    results = Results("sorrel_own")
    found: dict[str, list[tuple[float, float, float]]] = {"Sorrel's own loop": [], "Remuda": []}
    alone = []
    for seed in range(options.rounds):
        alone.append(world_alone(seed))
        for which, trains in zip(found, (own, ours), strict=True):
            found[which].append(trains(seed, options.minutes))
            steps, seconds, earned = found[which][-1]
            print(f"{which}, seed {seed}: {steps / seconds:,.0f}/s, {earned:.1f}", flush=True)
    rates = {which: [steps / s for steps, s, _ in each] for which, each in found.items()}
    earned = {which: [value for *_, value in each] for which, each in found.items()}
    for which, rounds in found.items():
        results.row(
            {
                "loop": which,
                "agent-steps/s": median(rates[which]),
                "agent-steps": int(mean(steps for steps, *_ in rounds)),
                "return of an agent, greedy": spread(earned[which]),
                "minutes": options.minutes,
                "seeds": options.rounds,
            }
        )
    results.row({"loop": "the world alone, one process, random", "agent-steps/s": median(alone)})
    own_name, name = found
    pairs = zip(rates[name], rates[own_name], strict=True)
    results.bar(
        "steps by those of Sorrel's own loop", median(one / other for one, other in pairs), least=2
    )
    # Within what seeds differ by: two standard errors of the difference.
    slack = 2.0 * float(np.hypot(error_of(earned[name]), error_of(earned[own_name])))
    least = mean(earned[own_name]) - slack
    results.bar("return beside its own", mean(earned[name]), least=least)
    results.finish(options)


if __name__ == "__main__":
    main()
