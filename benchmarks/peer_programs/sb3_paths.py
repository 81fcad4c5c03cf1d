"""Stable-Baselines3 at its best on one path: one network for all, every agent a row of one batch.

Arguments: seconds, and JSON: `algorithm` (ppo, masked_ppo, recurrent_ppo, central_ppo, dqn,
qr_dqn, sac), `seen`, `does`, `copies`, `agents`, `hidden`, `convolutions`, `activation`, `towers`,
`recurrent` and `threads`. Prints the trained agent-steps a second. Equal to Remuda's: sizes of
networks,
rollouts of 128 turns, 4 epochs of 4 minibatches (larger with more agents, which is faster); of
Q-learners and SAC one sample a step, batches of 64 for each agent. `central_ppo` has two towers,
the value's with the observations of all agents of a copy.
"""

import json
import math
import sys
import time

import numpy as np
import torch
from gymnasium.spaces import Box, Dict
from pools import Pool, done_of, seen_of
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import MultiInputActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv

ROLLOUT = 128
ACTIVATIONS = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}


class Rows(VecEnv):
    """All agents of all copies as separate environments."""

    def __init__(self, asked):
        rows = asked["copies"] * asked["agents"]
        self.pool = Pool(asked["seen"], rows, asked["copies"])
        self.agents = asked["agents"] if asked["algorithm"] == "central_ppo" else 0
        seen = seen_of(asked["seen"])
        if self.agents:
            joint = Box(0.0, 1.0, (self.agents * seen.shape[0],), seen.dtype)
            seen = Dict({"own": seen, "joint": joint})
        super().__init__(rows, seen, done_of(asked["does"]))
        self.infos = [{} for _ in range(rows)]

    def reset(self):
        return self.observe()

    def observe(self):
        own = self.pool.observe()
        if not self.agents:
            return own
        copies = own.reshape(self.agents, -1, own.shape[1]).swapaxes(0, 1)
        joint = copies.reshape(len(copies), -1)
        return {"own": own, "joint": np.tile(joint, (self.agents, 1))}

    def step_async(self, actions): ...

    def step_wait(self):
        before = self.pool.observe()
        rewards, ends = self.pool.step()
        infos = self.infos
        if ends.any():  # replay buffers look for the last observation of an episode
            infos = [{"terminal_observation": before[i]} if e else {} for i, e in enumerate(ends)]
        return self.observe(), rewards, ends, infos

    def close(self): ...

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs

    def env_method(self, method_name, *args, indices=None, **kwargs):
        assert method_name == "action_masks"
        return list(self.pool.masks())

    def has_attr(self, attr_name):
        return attr_name == "action_masks"

    def get_attr(self, attr_name, indices=None):
        return [None] * self.num_envs

    def set_attr(self, attr_name, value, indices=None): ...


class Trunk(BaseFeaturesExtractor):
    """Convolutions and layers that policy and value share."""

    def __init__(self, space, convolutions, hidden, activation):
        super().__init__(space, hidden[-1])
        kind, layers = ACTIVATIONS[activation], []
        channels = space.shape[0]
        for out, kernel, stride in convolutions:
            layers += [torch.nn.Conv2d(channels, out, kernel, stride), kind()]
            channels = out
        layers.append(torch.nn.Flatten())
        shown = torch.zeros(1, *space.shape)
        width = torch.nn.Sequential(*layers)(shown).shape[1]
        for units in hidden:
            layers += [torch.nn.Linear(width, units), kind()]
            width = units
        self.net = torch.nn.Sequential(*layers)

    def forward(self, seen):
        return self.net(seen)


class Part(BaseFeaturesExtractor):
    """One of the parts of an observation, as it is."""

    parts = ("own", "joint")

    def __init__(self, space):
        self.part = self.parts[0]
        super().__init__(space, space[self.part].shape[0])

    def forward(self, seen):
        return seen[self.part]


class Joint(Part):
    """The observations of all agents."""

    parts = ("joint",)


class CentralPolicy(MultiInputActorCriticPolicy):
    """The value network gets what all agents observe."""

    def make_features_extractor(self):
        made = getattr(self, "made", 0)
        self.made = made + 1  # SB3 makes the policy's first, then the value's
        return (Joint if made else Part)(self.observation_space)

    def _build_mlp_extractor(self):
        super()._build_mlp_extractor()
        wide = self.vf_features_extractor.features_dim
        first = self.mlp_extractor.value_net[0]
        self.mlp_extractor.value_net[0] = torch.nn.Linear(wide, first.out_features)


class Clock(BaseCallback):
    """Counts from the second rollout, or once Q-learners have begun, to the end of the time."""

    def __init__(self, seconds, begin):
        super().__init__()
        self.seconds, self.begin, self.start, self.first = seconds, begin, None, 0

    def _on_rollout_start(self):
        now = time.perf_counter()
        if self.num_timesteps > self.begin and self.start is None:
            self.start, self.first = now, self.num_timesteps
        elif self.start is not None and now - self.start >= self.seconds:
            self.rate = (self.num_timesteps - self.first) / (now - self.start)

    def _on_step(self):
        return not hasattr(self, "rate")


def model_of(asked):
    """The model, and the steps after which its time is taken."""
    env, agents, algorithm = Rows(asked), asked["agents"], asked["algorithm"]
    rows = asked["copies"] * agents
    hidden, activation = asked["hidden"], asked["activation"]
    trunk = {
        "features_extractor_class": Trunk,
        "features_extractor_kwargs": {
            "convolutions": asked["convolutions"],
            "hidden": hidden,
            "activation": activation,
        },
    }
    own = {"net_arch": hidden, "activation_fn": ACTIVATIONS[activation]}
    if algorithm in ("dqn", "qr_dqn", "sac"):
        kwargs = {
            "buffer_size": 50_000 * agents,
            "learning_starts": 2_000 * agents,
            "batch_size": 64 * agents,
            "train_freq": max(64 // asked["copies"], 1),
            "gradient_steps": max(asked["copies"] // 64, 1),
            "device": "cpu",
        }
        if algorithm == "sac":
            return SAC("MlpPolicy", env, policy_kwargs=own, **kwargs), kwargs["learning_starts"]
        kwargs["target_update_interval"] = 200 * 64
        if algorithm == "dqn":
            return DQN("MlpPolicy", env, policy_kwargs=own, **kwargs), kwargs["learning_starts"]
        from sb3_contrib import QRDQN

        own["n_quantiles"] = 12
        return QRDQN("MlpPolicy", env, policy_kwargs=own, **kwargs), kwargs["learning_starts"]
    kwargs = {
        "n_steps": ROLLOUT,
        "batch_size": ROLLOUT * rows // 4,
        "n_epochs": 4,
        "device": "cpu",
    }
    if algorithm == "central_ppo":
        own["share_features_extractor"] = False
        return PPO(CentralPolicy, env, policy_kwargs=own, **kwargs), 0
    policy = own if asked["towers"] else trunk | {"net_arch": []}
    if algorithm == "masked_ppo":
        from sb3_contrib import MaskablePPO

        return MaskablePPO("MlpPolicy", env, policy_kwargs=policy, **kwargs), 0
    if algorithm == "recurrent_ppo":
        from sb3_contrib import RecurrentPPO

        policy |= {
            "lstm_hidden_size": asked["recurrent"],
            "shared_lstm": True,
            "enable_critic_lstm": False,
        }
        return RecurrentPPO("MlpLstmPolicy", env, policy_kwargs=policy, **kwargs), 0
    return PPO("MlpPolicy", env, policy_kwargs=policy, **kwargs), 0


def main():
    seconds, asked = float(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(asked["threads"])
    np.random.seed(0)
    model, begin = model_of(asked)
    clock = Clock(seconds, begin)
    model.learn(10**9, callback=clock)
    assert math.isfinite(clock.rate)
    print(f"{clock.rate:.0f}")


main()
