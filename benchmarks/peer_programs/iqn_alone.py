"""Implicit quantile networks in one file of PyTorch, as CleanRL writes its algorithms.

Stable-Baselines3 has none. Arguments and what is printed are those of `sb3_paths.py`, and so is
what is equal to Remuda's: one network for all, every agent a row, one sample a step, batches of 64
for each agent; 12 quantiles, 64 cosines, actions by the mean at fixed midpoints.
"""

import json
import math
import sys
import time
from copy import deepcopy

import numpy as np
import torch
from pools import Pool, seen_of
from torch import nn
from torch.nn import functional

QUANTILES, COSINES, ACTIONS = 12, 64, 4
DISCOUNT, HUBER, EPSILON, CLIP = 0.99, 1.0, 0.05, 10.0
CAPACITY, STARTS, BATCH, RENEWED = 50_000, 2_000, 64, 200


class Quantiles(nn.Module):
    """Values of actions at quantiles of their return (Dabney et al. 2018)."""

    def __init__(self, inputs, hidden):
        super().__init__()
        first, *others = hidden
        self.state = nn.Linear(inputs, first)
        self.quantile = nn.Linear(COSINES, first)
        layers, width = [], first
        for units in others:
            layers += [nn.Linear(width, units), nn.ReLU(inplace=True)]
            width = units
        self.head = nn.Sequential(*layers, nn.Linear(width, ACTIONS))
        self.register_buffer("turns", math.pi * torch.arange(COSINES))
        self.register_buffer("midpoints", (torch.arange(QUANTILES) + 0.5) / QUANTILES)

    def features(self, seen):
        return self.state(seen).relu_()

    def values(self, features, quantiles):
        """Values [B, N, A] at quantiles [B, N], or [1, N] for all."""
        embedded = self.quantile(torch.cos(quantiles.unsqueeze(-1) * self.turns)).relu_()
        return self.head(features.unsqueeze(1) * embedded)

    def best(self, features):
        return self.values(features, self.midpoints[None]).mean(1).argmax(-1)


class Replay:
    """The newest steps of all rows."""

    def __init__(self, turns, rows, width):
        self.seen = np.zeros((turns, rows, width), np.float32)
        self.actions = np.zeros((turns, rows), np.int64)
        self.rewards = np.zeros((turns, rows), np.float32)
        self.going = np.zeros((turns, rows), np.float32)
        self.turn = 0

    def add(self, seen, actions, rewards, ends):
        i = self.turn % len(self.seen)
        self.seen[i], self.actions[i], self.rewards[i], self.going[i] = (
            seen,
            actions,
            rewards,
            ~ends,
        )
        self.turn += 1

    def sample(self, random, count):
        """Sample from all turns but the newest, whose next observation is still to come."""
        kept = min(self.turn, len(self.seen)) - 1
        turn = (self.turn - 2 - random.integers(kept, size=count)) % len(self.seen)
        row = random.integers(self.seen.shape[1], size=count)
        following = (turn + 1) % len(self.seen)
        parts = (
            self.seen[turn, row],
            self.actions[turn, row],
            self.rewards[turn, row],
            self.going[turn, row],
            self.seen[following, row],
        )
        return [torch.from_numpy(part) for part in parts]


def train(online, target, optimizer, batch):
    """One step on a batch."""
    seen, actions, rewards, going, following = batch
    count = len(actions)
    every = torch.arange(count)
    with torch.no_grad():
        features = target.features(following)
        best = target.best(features)
        z_t = target.values(features, torch.rand(count, QUANTILES))[every, :, best]
        targets = rewards.unsqueeze(1) + DISCOUNT * going.unsqueeze(1) * z_t
    quantiles = torch.rand(count, QUANTILES)
    taken = online.values(online.features(seen), quantiles)[every, :, actions]
    error = targets.unsqueeze(1) - taken.unsqueeze(2)
    weight = (quantiles.unsqueeze(2) - (error.detach() < 0).float()).abs()
    bent = functional.huber_loss(
        taken.unsqueeze(2).expand_as(error),
        targets.unsqueeze(1).expand_as(error),
        reduction="none",
        delta=HUBER,
    )
    loss = (weight * bent / HUBER).mean(2).sum(1).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), CLIP)
    optimizer.step()


def main():
    seconds, asked = float(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(asked["threads"])
    random = np.random.default_rng(0)
    copies, agents = asked["copies"], asked["agents"]
    rows, width = copies * agents, seen_of(asked["seen"]).shape[0]
    pool, replay = Pool(asked["seen"], rows, copies), Replay(CAPACITY * agents // rows, rows, width)
    online = Quantiles(width, asked["hidden"])
    target = deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4, fused=True)
    every, steps = max(64 // copies, 1), max(copies // 64, 1)
    updates, start = 0, None
    while True:
        seen = pool.observe()
        with torch.inference_mode():
            actions = online.best(online.features(torch.from_numpy(seen))).numpy()
        explores = random.random(rows) < EPSILON
        actions = np.where(explores, random.integers(ACTIONS, size=rows), actions)
        replay.add(seen, actions, *pool.step())
        if replay.turn * copies < STARTS or replay.turn % every:
            continue
        for _ in range(steps):
            train(online, target, optimizer, replay.sample(random, BATCH * agents))
            updates += 1
            if updates % RENEWED == 0:
                target.load_state_dict(online.state_dict())
        now = time.perf_counter()
        if start is None:
            start, first = now, replay.turn
        elif now - start >= seconds:
            print(f"{(replay.turn - first) * rows / (now - start):.0f}")
            return


main()
