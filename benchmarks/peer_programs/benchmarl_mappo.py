"""BenchMARL's MAPPO in other people's worlds: one actor for all agents, and one joint critic.

Argument: JSON with `game` and `options`, `turns`, `seed`, `copies`, `hidden`, `threads`, PPO's
`learning_rate`, `discount`, `gae_lambda`, `rollout`, `epochs`, `minibatches`, `clip`,
`entropy_cost` and `max_grad_norm`, and `episodes` to be judged by greedily. The critic takes the
observations of all agents. The last line is JSON: the team's mean return, its standard error, the
turns played, and the seconds.
"""

import json
import sys
import tempfile
import time

import numpy as np
import torch
from benchmarl.algorithms import MappoConfig
from benchmarl.environments.common import TaskClass
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from pettingzoo import ParallelEnv
from torchrl.envs import PettingZooWrapper
from torchrl.envs.utils import ExplorationType, set_exploration_type
from worlds_made import make


class World(ParallelEnv):
    """A named environment whose agents act at once."""

    metadata = {"name": "world"}

    def __init__(self, asked):
        self.made = make(asked["game"], asked["options"])
        self.possible_agents = list(self.made.possible_agents)
        self.agents = []

    def observation_space(self, agent):
        return self.made.observation_space(agent)

    def action_space(self, agent):
        return self.made.action_space(agent)

    def reset(self, seed=None, options=None):
        seen, _ = self.made.reset(seed=seed)
        self.agents = list(self.made.agents)
        return seen, {name: {} for name in self.agents}

    def step(self, actions):
        seen, rewards, ended, cut, _ = self.made.step({n: int(a) for n, a in actions.items()})
        names = list(self.agents)
        self.agents = list(self.made.agents)
        rewards = {name: float(rewards[name]) for name in names}
        return seen, rewards, ended, cut, {name: {} for name in names}


class Task(TaskClass):
    """What BenchMARL has to know of an environment without a state or masks."""

    def get_env_fun(self, num_envs, continuous_actions, seed, device):
        asked = self.config

        def made():
            agents = World(asked)
            groups = {"team": agents.possible_agents}
            options = {"categorical_actions": True, "group_map": groups, "device": device}
            return PettingZooWrapper(agents, seed=seed, **options)

        return made

    def supports_continuous_actions(self):
        return False

    def supports_discrete_actions(self):
        return True

    def has_render(self, env):
        return False

    def max_steps(self, env):
        return 1000

    def group_map(self, env):
        return env.group_map

    def _of(self, env, key):
        spec = env.observation_spec.clone()
        for group in self.group_map(env):
            for name in list(spec[group].keys()):
                if name != key:
                    del spec[group][name]
        return spec

    def observation_spec(self, env):
        return self._of(env, "observation")

    def info_spec(self, env):
        return None

    def state_spec(self, env):
        return None

    def action_mask_spec(self, env):
        return None

    def action_spec(self, env):
        return env.full_action_spec

    @staticmethod
    def env_name():
        return "worlds"


def experiment_of(asked, folder):
    config = ExperimentConfig.get_from_yaml()
    frames = asked["copies"] * asked["rollout"]
    own = {
        "prefer_continuous_actions": False,
        "share_policy_params": True,
        "gamma": asked["discount"],
        "lr": asked["learning_rate"],
        "clip_grad_val": asked["max_grad_norm"],
        "max_n_frames": asked["turns"],
        "on_policy_collected_frames_per_batch": frames,
        "on_policy_n_envs_per_worker": asked["copies"],
        "on_policy_n_minibatch_iters": asked["epochs"],
        "on_policy_minibatch_size": frames // asked["minibatches"],
        "evaluation": False,
        "loggers": [],
        "create_json": False,
        "save_folder": folder,
    }
    for name, value in own.items():
        setattr(config, name, value)
    mappo = MappoConfig.get_from_yaml()
    mappo.clip_epsilon, mappo.entropy_coef = asked["clip"], asked["entropy_cost"]
    mappo.lmbda = asked["gae_lambda"]
    layers = {"num_cells": list(asked["hidden"]), "layer_class": torch.nn.Linear}
    networks = [MlpConfig(activation_class=torch.nn.Tanh, **layers) for _ in range(2)]
    return Experiment(
        task=Task("WORLD", asked),
        algorithm_config=mappo,
        model_config=networks[0],
        critic_model_config=networks[1],
        seed=asked["seed"],
        config=config,
    )


def judged(asked, policy):
    """Return the team's greedy returns of whole episodes."""
    env = Task("WORLD", asked).get_env_fun(1, False, asked["seed"] + 1000, "cpu")()
    found = []
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        for _ in range(asked["episodes"]):
            steps = env.rollout(10_000, policy)
            found.append(float(steps["next", "team", "reward"].sum()))
    return np.array(found)


def main():
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked["threads"])
    with tempfile.TemporaryDirectory() as folder:
        experiment, begun = experiment_of(asked, folder), time.perf_counter()
        experiment.run()
        seconds = time.perf_counter() - begun
        found = judged(asked, experiment.policy)
    turns = int(experiment.total_frames)
    error = float(found.std(ddof=1) / len(found) ** 0.5)
    told = {"return": float(found.mean()), "error": error, "turns": turns, "seconds": seconds}
    print("\n" + json.dumps(told))


if __name__ == "__main__":
    main()
