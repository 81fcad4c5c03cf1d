"""Stable-Baselines3 PPO at its best: one network for all agents, every agent a row of one batch.

Arguments: seconds, minibatch size, and `towers` for its own default of a network each for policy
and value, or `trunk` for one that both share. Prints the trained agent-steps a second.
"""

import sys
import time

import numpy as np
import torch
from game import ACTIONS, SIZE, Game
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv

ROLLOUT = 128


class Rows(VecEnv):
    """All agents of all copies as separate environments."""

    def __init__(self):
        self.game = Game()
        box = spaces.Box(0.0, 1.0, (SIZE,), np.float32)
        super().__init__(self.game.rows, box, spaces.Discrete(ACTIONS))
        self.infos = [{} for _ in range(self.game.rows)]

    def reset(self):
        return self.game.reset().reshape(-1, SIZE).copy()

    def step_async(self, actions):
        self.actions = actions.reshape(8, -1)

    def step_wait(self):
        seen, rewards, ends = self.game.step(self.actions)
        return seen.reshape(-1, SIZE).copy(), rewards.ravel() * 0.1, ends.ravel(), self.infos

    def close(self): ...

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs

    def env_method(self, method_name, *args, indices=None, **kwargs): ...

    def get_attr(self, attr_name, indices=None):
        return [None] * self.num_envs

    def set_attr(self, attr_name, value, indices=None): ...


class Trunk(BaseFeaturesExtractor):
    """Two layers of 64 that policy and value share."""

    def __init__(self, space):
        super().__init__(space, 64)
        layers = [torch.nn.Linear(SIZE, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64)]
        self.net = torch.nn.Sequential(*layers, torch.nn.Tanh())

    def forward(self, seen):
        return self.net(seen)


class Clock(BaseCallback):
    """Counts from the second rollout to the end of the time."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.start, self.first = seconds, None, 0

    def _on_rollout_start(self):
        now = time.perf_counter()
        if self.num_timesteps and self.start is None:
            self.start, self.first = now, self.num_timesteps
        if self.start is not None and now - self.start >= self.seconds:
            self.rate = (self.num_timesteps - self.first) / (now - self.start)

    def _on_step(self):
        return not hasattr(self, "rate")


def main():
    seconds, minibatch, network = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(2)
    kind = {"net_arch": [64, 64]}
    if network == "trunk":
        kind = {"net_arch": [], "features_extractor_class": Trunk}
    model = PPO(
        "MlpPolicy",
        Rows(),
        n_steps=ROLLOUT,
        batch_size=minibatch,
        n_epochs=4,
        policy_kwargs=kind,
        device="cpu",
    )
    clock = Clock(seconds)
    model.learn(10**9, callback=clock)
    print(f"{clock.rate:.0f}")


main()
