"""Compare playing through an adapter with stepping the same environment in a bare loop.

    python benchmarks/adapters.py

Both play at random, by actions drawn in the same way, in turns in one run.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from recording import Results, options_of

from remuda.envs.registry import make_env
from remuda.envs.scripted import at_random, turns

warnings.simplefilter("ignore")  # PettingZoo's own modules warn of themselves
COPIES = 8
BAR = 0.8
"""Share of the bare loop's speed that is to be kept."""


def through_the_adapter(name: str, seconds: float) -> float:
    """Agent-steps per second of random play through the adapter."""
    env = make_env(name, COPIES)
    steps = 0

    def counted(env: Any, agent: int, seen: Any, random: Any) -> Any:
        nonlocal steps
        steps += int(env.active[:, agent].sum())
        return at_random(env, agent, seen, random)

    began = time.perf_counter()
    for _ in turns(env, [counted] * env.num_agents, np.random.default_rng(0)):
        if time.perf_counter() - began > seconds:
            break
    rate = steps / (time.perf_counter() - began)
    env.close()
    return rate


def bare_parallel(make: Callable[[], Any], seconds: float) -> float:
    """Agent-steps per second of a loop over PettingZoo's parallel API."""
    random, copies, steps = np.random.default_rng(0), [make() for _ in range(COPIES)], 0
    for i, env in enumerate(copies):
        env.reset(seed=i)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for env in copies:
            if not env.agents:
                env.reset()
            actions = {
                name: int(random.random(env.action_space(name).n).argmax()) for name in env.agents
            }
            env.step(actions)
            steps += len(actions)
    return steps / (time.perf_counter() - began)


def bare_aec(make: Callable[[], Any], seconds: float) -> float:
    """Agent-steps per second of a loop over PettingZoo's AEC API."""
    random, copies, steps = np.random.default_rng(0), [make() for _ in range(COPIES)], 0
    for i, env in enumerate(copies):
        env.reset(seed=i)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for env in copies:
            if not env.agents:
                env.reset()
            seen, _, terminated, truncated, _ = env.last()
            if terminated or truncated:
                env.step(None)
                continue
            allowed = seen["action_mask"]
            env.step(int(np.where(allowed, random.random(allowed.shape), -1.0).argmax()))
            steps += 1
    return steps / (time.perf_counter() - began)


def bare_gymnasium(make: Callable[[], Any], seconds: float) -> float:
    """Steps per second of a loop over Gymnasium's API."""
    random, copies, steps = np.random.default_rng(0), [make() for _ in range(COPIES)], 0
    for i, env in enumerate(copies):
        env.reset(seed=i)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for env in copies:
            _, _, terminated, truncated, _ = env.step(int(random.random(2).argmax()))
            if terminated or truncated:
                env.reset()
            steps += 1
    return steps / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=7, help="rounds to take the median of")
    options = options_of(parser)
    results = Results("adapters")
    import pettingzoo
    from mpe2 import simple_spread_v3

    rows: list[tuple[str, Callable[[float], float]]] = [
        (
            "gymnasium:CartPole-v1",
            lambda s: bare_gymnasium(lambda: gymnasium.make("CartPole-v1"), s),
        ),
        (
            "pettingzoo:mpe2.simple_spread_v3",
            lambda s: bare_parallel(simple_spread_v3.parallel_env, s),
        ),
    ]
    for name in ("classic/tictactoe-v3", "classic/connect_four-v3"):
        rows.append(
            (f"pettingzoo:{name}", lambda s, n=name: bare_aec(lambda: pettingzoo.make("aec", n), s))
        )
    for name, bare in rows:
        pairs = [(bare(0.7), through_the_adapter(name, 0.7)) for _ in range(options.rounds)]
        ratio = median(through / alone for alone, through in pairs)
        alone, through = (median(column) for column in zip(*pairs, strict=True))
        rates = {"bare steps/s": alone, "through the adapter": through}
        results.row({"environment": name} | rates | {"ratio": ratio})
        results.bar(f"{name}, of the speed of a bare loop", ratio, least=BAR)
    results.finish(options)


if __name__ == "__main__":
    main()
