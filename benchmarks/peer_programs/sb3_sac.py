"""Stable-Baselines3's SAC, by its defaults except where the arguments say otherwise.

Argument: JSON with `game`, `steps`, `seconds` (0: no limit; else training stops so long after it
began to learn), `starts` (steps before it learns), `seed`, `threads`, and `episodes` to be judged
by greedily. The last line is JSON: the seconds, the trained steps a second, and with episodes the
mean return and its standard error.
"""

import json
import sys
import time

import gymnasium
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy


class Clock(BaseCallback):
    """Measures the steps with an update, without the first hundred of them."""

    def __init__(self, starts, limit):
        super().__init__()
        self.first, self.limit, self.begun, self.rate = starts + 100, limit, None, None

    def _on_step(self):
        now = time.perf_counter()
        if self.num_timesteps <= self.first:
            self.begun = now
            return True
        seconds = now - self.begun
        self.rate = (self.num_timesteps - self.first) / seconds
        return not self.limit or seconds < self.limit


def main():
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked["threads"])
    model = SAC(
        "MlpPolicy",
        gymnasium.make(asked["game"]),
        learning_starts=asked["starts"],
        buffer_size=asked["steps"],
        seed=asked["seed"],
        device="cpu",
    )
    clock, begun = Clock(asked["starts"], asked["seconds"]), time.perf_counter()
    model.learn(asked["steps"], callback=clock)
    found = {"seconds": time.perf_counter() - begun, "rate": clock.rate}
    if asked["episodes"]:
        env = gymnasium.make(asked["game"])
        env.reset(seed=asked["seed"] + 1000)
        mean, deviation = evaluate_policy(model, env, asked["episodes"], warn=False)
        error = float(deviation) / (asked["episodes"] - 1) ** 0.5
        found |= {"return": float(mean), "error": error}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
