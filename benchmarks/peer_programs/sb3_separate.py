"""Eight Stable-Baselines3 learners in one loop, as a user would write them by hand.

Arguments: seconds. Prints the trained agent-steps a second.
"""

import sys
import time

import gymnasium
import numpy as np
import torch
from game import ACTIONS, AGENTS, SIZE, Game
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv

ROLLOUT = 128


class Still(gymnasium.Env):
    """The parts of an environment that a learner needs."""

    observation_space = spaces.Box(0.0, 1.0, (SIZE,), np.float32)
    action_space = spaces.Discrete(ACTIONS)


def main():
    seconds = float(sys.argv[1])
    torch.set_num_threads(2)
    game = Game()
    models = []
    for _ in range(AGENTS):
        env = DummyVecEnv([Still] * game.copies)
        model = PPO(
            "MlpPolicy",
            env,
            n_steps=ROLLOUT,
            batch_size=2048,
            n_epochs=4,
            policy_kwargs={"net_arch": [64, 64]},
            device="cpu",
        )
        model.set_logger(configure(None, []))
        models.append(model)
    seen = game.reset().copy()
    starts = np.ones((AGENTS, game.copies), bool)
    start, steps = None, 0
    while True:
        now = time.perf_counter()
        if steps and start is None:
            start, steps = now, 0
        if start is not None and now - start >= seconds:
            break
        for model in models:
            model.rollout_buffer.reset()
        for _ in range(ROLLOUT):
            actions = np.zeros((AGENTS, game.copies), np.int64)
            chosen = []
            for agent, model in enumerate(models):
                with torch.no_grad():
                    act, value, log_prob = model.policy(torch.from_numpy(seen[agent]))
                actions[agent] = act.numpy()
                chosen.append((value, log_prob))
            after, rewards, ends = game.step(actions)
            for agent, model in enumerate(models):
                value, log_prob = chosen[agent]
                model.rollout_buffer.add(
                    seen[agent],
                    actions[agent][:, None],
                    rewards[agent] * 0.1,
                    starts[agent],
                    value,
                    log_prob,
                )
            seen, starts = after.copy(), ends
            steps += game.rows
        for agent, model in enumerate(models):
            with torch.no_grad():
                value = model.policy.predict_values(torch.from_numpy(seen[agent]))
            model.rollout_buffer.compute_returns_and_advantage(value, starts[agent])
            model.train()
    print(f"{steps / (now - start):.0f}")


main()
