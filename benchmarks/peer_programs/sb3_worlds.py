"""Stable-Baselines3's PPO in other people's worlds: a network for all that are alike, or one each.

Arguments: JSON with `game` and `options`, `turns`, `seconds` (0: no limit), `seed`, `copies`,
`hidden`, `shared` (whether policy and value have these layers in common), `activation`, `separate`
(whether every agent has its own learner), `episodes` to be judged by, `team` (whether returns
are added up over agents), `scripted` (by agent the `module:function` that plays it without
learning), `counted` (how the names of agents begin whose returns count), and PPO's
`learning_rate`, `discount`, `rollout`, `epochs`, `minibatches` (null: by how many steps there are),
`entropy_cost`, `gae_lambda`, `max_grad_norm`, `normalise_observations` (as its own VecNormalize
does, with its running mean); and `kept`, a file for what chooses the actions of each learner at
the end, which must be discrete and of unprocessed observations. Its buffers, its networks and its
updates are the library's; the loop around them is that of its `collect_rollouts`, for several
learners at once. The last line is JSON: the curve, greedy and sampled returns, and the seconds.
"""

import json
import sys
import time
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv
from worlds_made import make

sys.path.append(str(Path(__file__).resolve().parents[1]))  # what plays without learning

WINDOW = 2
"""Episodes of each copy that a point of the curve is the mean of: with more it lags behind."""
ACTIVATIONS = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}


class Trunk(BaseFeaturesExtractor):
    """Hidden layers that policy and value have in common."""

    def __init__(self, observation_space, hidden, activation):
        super().__init__(observation_space, hidden[-1])
        sizes = [int(np.prod(observation_space.shape)), *hidden]
        layers = [torch.nn.Flatten()]
        for inputs, outputs in pairwise(sizes):
            layers += [torch.nn.Linear(inputs, outputs), activation()]
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, observations):
        return self.layers(observations)


def network_of(asked):
    hidden, activation = list(asked["hidden"]), ACTIVATIONS[asked["activation"]]
    if not asked["shared"]:
        return {"net_arch": hidden, "activation_fn": activation}
    return {
        "net_arch": [],
        "activation_fn": activation,
        "features_extractor_class": Trunk,
        "features_extractor_kwargs": {"hidden": hidden, "activation": activation},
    }


class Spaces(VecEnv):
    """Spaces of a learner's rows; nothing is stepped through it."""

    def __init__(self, rows, sees, does):
        super().__init__(rows, sees, does)

    def reset(self):
        return np.zeros((self.num_envs, *self.observation_space.shape), np.float32)

    def step_async(self, actions): ...

    def step_wait(self): ...

    def close(self): ...

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs

    def env_method(self, method_name, *args, indices=None, **kwargs): ...

    def get_attr(self, attr_name, indices=None):
        return [None] * self.num_envs

    def set_attr(self, attr_name, value, indices=None): ...


class World:
    """Copies of an environment; who is gone in mid-episode acts on what it saw last, in vain."""

    def __init__(self, asked, copies, seed):
        self.copies = [make(asked["game"], asked["options"]) for _ in range(copies)]
        self.names = list(self.copies[0].possible_agents)
        self.scripted = {
            name: getattr(import_module(path.partition(":")[0]), path.partition(":")[2])
            for name, path in asked["scripted"].items()
        }
        self.counted = [name.startswith(asked["counted"]) for name in self.names]
        self.rng = np.random.default_rng(seed)
        self.seen = [{} for _ in self.copies]
        self.returns = np.zeros((copies, len(self.names)))
        self.done = []
        """For each finished episode, the return of each agent."""
        for e in range(copies):
            self.restart(e)

    def restart(self, e):
        seen, _ = self.copies[e].reset(seed=int(self.rng.integers(2**31)))
        self.seen[e] = dict(seen)
        self.returns[e] = 0.0

    def step(self, e, actions):
        """Rewards, whether the episode is over, and whether it was cut off, with the last sight."""
        env = self.copies[e]
        for name, plays in self.scripted.items():
            space = env.action_space(name)
            seen = np.asarray(self.seen[e][name])[None]
            actions[name] = int(plays(None, 0, seen, None)[0]) + int(getattr(space, "start", 0))
        live = {name: actions[name] for name in env.agents}
        seen, rewards, ended, cut, _ = env.step(live)
        self.seen[e].update({name: what for name, what in seen.items() if what is not None})
        given = np.array([float(rewards.get(name, 0.0)) for name in self.names])
        self.returns[e] += given
        over = not env.agents or all(ended.get(n, False) or cut.get(n, False) for n in live)
        was_cut = over and not all(ended.get(name, False) for name in live)
        last = dict(self.seen[e])
        if over:
            self.done.append(self.returns[e, self.counted].copy())
            self.restart(e)
        return given, over, was_cut, last


def parts_of(steps):
    """Minibatches of so many steps, as in Remuda by default."""
    return next((parts for parts in (4, 8, 16) if steps <= 1_300 * parts), 32)


class Group:
    """Agents of one learner: rows are theirs in every copy, agent by agent."""

    def __init__(self, asked, env, names, copies, seed):
        self.names, self.rows = names, len(names) * copies
        sees, does = env.observation_space(names[0]), env.action_space(names[0])
        self.continuous = hasattr(does, "low")
        self.known = RunningMeanStd(shape=sees.shape) if asked["normalise_observations"] else None
        steps = self.rows * asked["rollout"]
        batch = steps // (asked["minibatches"] or parts_of(steps))
        self.model = PPO(
            "MlpPolicy",
            Spaces(self.rows, sees, does),
            n_steps=asked["rollout"],
            batch_size=batch,
            n_epochs=asked["epochs"],
            learning_rate=asked["learning_rate"],
            gamma=asked["discount"],
            gae_lambda=asked["gae_lambda"],
            ent_coef=asked["entropy_cost"],
            max_grad_norm=asked["max_grad_norm"],
            policy_kwargs=network_of(asked),
            seed=seed,
            device="cpu",
        )
        self.model._setup_learn(10**9)
        self.starts = np.ones(self.rows, bool)

    def scaled(self, rows):
        if self.known is None:
            return rows
        scaled = (rows - self.known.mean) / np.sqrt(self.known.var + 1e-8)
        return np.clip(scaled, -10.0, 10.0).astype(np.float32)

    def act(self, world, greedy=False, training=False):
        rows = np.stack(
            [
                np.asarray(world.seen[e][n], np.float32)
                for n in self.names
                for e in range(len(world.seen))
            ]
        )
        if training and self.known is not None:
            self.known.update(rows)
        rows = self.scaled(rows)
        with torch.no_grad():
            seen = obs_as_tensor(rows, self.model.device)
            actions, values, log_probs = self.model.policy(seen, deterministic=greedy)
        return rows, actions.cpu().numpy(), values, log_probs

    def clipped(self, actions):
        space = self.model.action_space
        return np.clip(actions, space.low, space.high) if self.continuous else actions


def groups_of(asked, world):
    env, copies = world.copies[0], len(world.copies)
    learners = [name for name in world.names if name not in world.scripted]
    if asked["separate"]:
        alike = [[name] for name in learners]
    else:
        kinds = {}
        for name in learners:
            key = (
                name.rpartition("_")[0],
                str(env.observation_space(name)),
                str(env.action_space(name)),
            )
            kinds.setdefault(key, []).append(name)
        alike = list(kinds.values())
    first = 1000 * asked["seed"]
    return [Group(asked, env, names, copies, first + i) for i, names in enumerate(alike)]


def chosen_by(groups, world, greedy=False, training=False):
    """Return the actions of each agent by copy, and the output of each group."""
    copies = len(world.copies)
    actions, said = [{} for _ in range(copies)], []
    for group in groups:
        rows, chosen, values, log_probs = group.act(world, greedy, training)
        said.append((rows, chosen, values, log_probs))
        for row, action in enumerate(group.clipped(chosen)):
            name, e = group.names[row // copies], row % copies
            actions[e][name] = action if group.continuous else int(action)
    return actions, said


def judged(asked, groups, greedy):
    """The mean return, and its standard error, of whole episodes."""
    copies = min(16, asked["episodes"])
    world, each = World(asked, copies, asked["seed"] + 1000), -(-asked["episodes"] // copies)
    done = [[] for _ in range(copies)]
    while min(map(len, done)) < each:  # as many of each copy: or short ones would count more
        actions, _ = chosen_by(groups, world, greedy)
        for e in range(copies):
            if world.step(e, actions[e])[1]:
                done[e].append(world.done[-1])
    found = np.array([own[:each] for own in done]).reshape(-1, sum(world.counted))
    found = found.sum(1) if asked["team"] else found.mean(1)
    return float(found.mean()), float(found.std(ddof=1) / len(found) ** 0.5)


def keep(groups, file):
    """Write pairs: the agents of a learner, and the layers from observations to logits."""
    pairs = []
    for group in groups:
        policy = group.model.policy
        first = policy.pi_features_extractor
        first = first.layers if isinstance(first, Trunk) else torch.nn.Flatten()
        layers = torch.nn.Sequential(first, policy.mlp_extractor.policy_net, policy.action_net)
        pairs.append((group.names, layers))
    torch.save(pairs, file)


def main():
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked.get("threads", 2))
    world = World(asked, asked["copies"], asked["seed"])
    groups, copies = groups_of(asked, world), asked["copies"]
    if asked.get("kept") and any(g.continuous or g.known is not None for g in groups):
        raise SystemExit("kept: for discrete actions, and unprocessed observations")
    begun, turns, curve = time.perf_counter(), 0, []
    while turns < asked["turns"]:
        seconds = time.perf_counter() - begun
        if asked["seconds"] and seconds > asked["seconds"]:
            break
        for group in groups:
            group.model.policy.set_training_mode(False)
            group.model.rollout_buffer.reset()
        for _ in range(asked["rollout"]):
            actions, said = chosen_by(groups, world, training=True)
            results = [world.step(e, actions[e]) for e in range(copies)]
            turns += copies
            for group, (rows, chosen, values, log_probs) in zip(groups, said, strict=True):
                places = [world.names.index(name) for name in group.names]
                rewards = np.array(
                    [results[e][0][p] for p in places for e in range(copies)], np.float32
                )
                overs = np.array([results[e][1] for _ in places for e in range(copies)])
                cut = [
                    (row, results[row % copies][3][group.names[row // copies]])
                    for row in range(group.rows)
                    if results[row % copies][2]
                ]
                if cut:  # what was to come still counts
                    last = np.stack([np.asarray(what, np.float32) for _, what in cut])
                    with torch.no_grad():
                        ahead = group.model.policy.predict_values(
                            obs_as_tensor(group.scaled(last), "cpu")
                        )
                    for (row, _), value in zip(cut, ahead.flatten().tolist(), strict=True):
                        rewards[row] += asked["discount"] * value
                flat = chosen if group.continuous else chosen.reshape(-1, 1)
                group.model.rollout_buffer.add(rows, flat, rewards, group.starts, values, log_probs)
                group.starts = overs
        for group in groups:
            rows, _, values, _ = group.act(world)
            group.model.rollout_buffer.compute_returns_and_advantage(values, group.starts)
            group.model.train()
        recent = np.array(world.done[-WINDOW * copies :])
        if len(recent):
            mean = float((recent.sum(1) if asked["team"] else recent.mean(1)).mean())
            curve.append([round(time.perf_counter() - begun, 2), turns, mean])
    seconds = time.perf_counter() - begun
    if asked.get("kept"):
        keep(groups, asked["kept"])
    greedy, sampled = judged(asked, groups, True), judged(asked, groups, False)
    print(
        json.dumps(
            {
                "seconds": seconds,
                "turns": turns,
                "curve": curve,
                "greedy": greedy,
                "sampled": sampled,
            }
        )
    )


if __name__ == "__main__":
    main()
