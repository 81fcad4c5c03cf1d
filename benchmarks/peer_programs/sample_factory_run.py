"""Sample Factory's APPO on rows of one batch, with one shared policy or several independent ones.

Arguments: seconds, number of policies. Prints the trained agent-steps a second.
"""

import sys
import tempfile

import gymnasium
import numpy as np
from game import ACTIONS, AGENTS, SIZE, Game
from gymnasium import spaces
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl


class Agents(gymnasium.Env):
    """A few copies of the game, each agent of each a row."""

    is_multiagent = True
    observation_space = spaces.Box(0.0, 1.0, (SIZE,), np.float32)
    action_space = spaces.Discrete(ACTIONS)
    render_mode = None

    def __init__(self, copies):
        self.game = Game(copies)
        self.num_agents = self.game.rows

    def reset(self, seed=None, options=None):
        return list(self.game.reset().reshape(-1, SIZE).copy()), [{}] * self.num_agents

    def step(self, actions):
        acts = np.asarray(actions, np.int64).reshape(AGENTS, -1)
        seen, rewards, ends = self.game.step(acts)
        none = np.zeros(self.num_agents, bool)
        rows = list(seen.reshape(-1, SIZE).copy())
        return rows, rewards.ravel(), none, ends.ravel(), [{}] * self.num_agents


def make(name, config, env_config, render_mode=None):
    return Agents(copies=32)


def main():
    seconds, policies = float(sys.argv[1]), int(sys.argv[2])
    register_env("hunt", make)
    words = [
        "--algo=APPO",
        "--env=hunt",
        "--experiment=run",
        f"--train_dir={tempfile.mkdtemp()}",
        "--device=cpu",
        "--num_workers=2",
        "--num_envs_per_worker=1",
        "--worker_num_splits=1",
        f"--num_policies={policies}",
        "--rollout=128",
        "--batch_size=16384",
        "--num_batches_per_epoch=4",
        "--num_epochs=4",
        "--use_rnn=False",
        "--encoder_mlp_layers", "64", "64",
        "--nonlinearity=tanh",
        "--normalize_input=False",
        "--normalize_returns=False",
        f"--train_for_seconds={seconds + 15:.0f}",
        "--save_every_sec=100000",
        "--with_wandb=False",
        "--serial_mode=False",
        "--async_rl=True",
        "--decorrelate_envs_on_one_worker=False",
        "--decorrelate_experience_max_seconds=0",
    ]  # fmt: skip
    parser, _ = parse_sf_args(words)
    config = parse_full_cfg(parser, words)
    run_rl(config)


if __name__ == "__main__":
    main()
