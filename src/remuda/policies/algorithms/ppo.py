"""Proximal policy optimisation (Schulman et al. 2017) for K policies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numba import njit
from torch import Tensor

from remuda.checkpoint.state import fitting, random_state, restore_random
from remuda.config import PolicyConfig, PPOConfig
from remuda.experience.rollouts import AFTER, Rollout
from remuda.policies.advantages import (
    RunningMoments,
    effective_share,
    generalised_advantages,
    vtrace,
)
from remuda.policies.algorithms.algorithm import Algorithm
from remuda.policies.algorithms.by_hand import ByHand
from remuda.policies.algorithms.samples import Rows, Sequences
from remuda.policies.algorithms.surrogate import Batch, Costs, Surrogate
from remuda.policies.losses import normalised
from remuda.policies.networks.actor_critic import COUNT, MEAN, VARIANCE, ActorCritic
from remuda.policies.stack import ParameterStack
from remuda.types import Floats, Integers, State

WEIGHT_LIMITS = {"decoupled": 2.0, "vtrace": 1.0}
"""The most that a step counts, however much likelier it is now than when it was made."""
KL_MARGIN = 1.5
"""An update ends once it has moved a policy by so many times its `target_kl`."""


@dataclass(frozen=True)
class Learned:
    """What an update did, by policy: each [K], means over its minibatches."""

    loss: Floats
    entropy: Floats
    """In nats."""
    kl: Floats
    """How far the update moved the policy, in nats."""
    clipped: Floats
    """The share of steps whose probability ratio was clipped."""
    effective: Floats
    """The effective share of the steps, by how likely these weights were to choose them."""
    epochs: int
    """How often it went through its steps, the last time perhaps not to the end."""


class PPO(Algorithm):
    """Trains K policies, each on its own rollout, with its own hyperparameters.

    All that shapes the computation is alike in a stack: the network, the numbers of epochs and
    minibatches, the length of rollouts, the time budget. All else is a vector [K]: learning rate,
    costs, clipping, discount, trace decay.

    Where a rollout was played by weights older than these, the objective is decoupled (Hilton et
    al. 2022): an update is held close to the policy that it begins from, and its steps are weighted
    by how likely that policy was to make them; with V-trace, so is what they are credited with.
    With fresh rollouts this is plain PPO.
    """

    def __init__(
        self,
        configs: Sequence[PolicyConfig],
        network: ActorCritic,
        streams: Sequence[np.random.Generator],
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(configs, network, device)
        self.network = network
        self._streams = tuple(streams)
        self._trained = [0] * len(self.configs)
        self._returns = [_RunningReturns() for _ in self.configs]
        ppo = self.configs[0].ppo
        self._epochs, self._minibatches = ppo.epochs, ppo.minibatches
        self._normalises = ppo.normalise_advantages
        self._engines: dict[tuple[int, int], ByHand | Surrogate] = {}

        def column(name: str) -> Floats:
            return np.array([[_number(c.ppo, name)] for c in self.configs], np.float32)

        self._anchor: ParameterStack | None = None
        if any(config.ppo.anchor_cost for config in self.configs):
            self._anchor = ParameterStack(network.shapes, len(self.configs), device)
        self._costs = Costs(*(column(name) for name in Costs._fields))
        self._target_kl = column("target_kl")[:, 0]

    def begin(self, policy: int, weights: Tensor, config: PolicyConfig) -> None:
        """Let somebody else begin in a policy's place; updates are counted on."""
        super().begin(policy, weights, config)
        self._trained[policy], self._returns[policy] = 0, _RunningReturns()
        for name, column in zip(Costs._fields, self._costs, strict=True):
            column[policy] = _number(config.ppo, name)
        if self._anchor is not None:
            with torch.no_grad():
                self._anchor.flat[policy].copy_(self.online.flat[policy])

    def update(self, rollout: Rollout, first: int, end: int) -> Learned:
        """Train policies `first` to `end - 1` on their rows of a rollout."""
        samples = (Sequences if self.network.memory else Rows)(rollout, first, end, self.device)
        if self._anchor is not None:
            with torch.no_grad():
                for k in range(first, end):
                    if self.updates[k] % self.configs[k].ppo.anchor_every == 0:
                        self._anchor.flat[k].copy_(self.online.flat[k])
        batch, effective = self._prepare(rollout, samples, first, end)
        self._set_learning_rates(first, end)
        learned = self._train(batch, samples, first, end, effective)
        for k in range(first, end):
            if self.network.normalised:
                used = slice(0, int(rollout.num_rows[k]))
                steps = rollout.streams[k, used] != AFTER
                self._see(k, rollout.observations[k, used][steps])
            self._trained[k] += int(rollout.num_taken[k])
            self.updates[k] += 1
        return learned

    def _prepare(
        self, rollout: Rollout, samples: Rows | Sequences, first: int, end: int
    ) -> tuple[Batch, Floats]:
        """Values, advantages and targets of a rollout; and its effective share, by policy."""
        at, rows = slice(first, end), int(rollout.num_rows[first:end].max())
        observations = self._to_device(rollout.observations[at, :rows])
        actions = self._to_device(rollout.actions[at, :rows])
        masks = self._to_device(rollout.masks[at, :rows]) if rollout.masks.shape[-1] else None
        engine = self._engine(first, end)
        log_prox, before = engine.evaluate(observations, actions, masks, samples.everything())
        values = before.cpu().numpy()
        chances = log_prox.cpu().numpy()
        with np.errstate(over="ignore"):
            ratios = np.exp(chances - rollout.log_probs[at, :rows])
        advantages, targets = np.zeros_like(values), values.copy()
        weights, effective = np.ones_like(values), np.ones(end - first, np.float32)
        for i, k in enumerate(range(first, end)):
            used = int(rollout.num_rows[k])
            config = self.configs[k]
            streams = rollout.streams[k, :used]
            rewards = rollout.rewards[k, :used] * np.float32(config.reward_scale)
            discounts = rollout.discounts[k, :used] * np.float32(config.discount)
            if config.ppo.normalise_rewards:
                rewards = rewards * self._returns[k].scale(rewards, discounts, streams)
            after, correction = streams == AFTER, config.correction
            effective[i] = effective_share(ratios[i, :used][~after])
            if correction != "none":
                weights[i] = np.minimum(ratios[i], WEIGHT_LIMITS[correction])
            if correction == "vtrace":
                vtrace(
                    rewards,
                    discounts,
                    values[i, :used],
                    after,
                    ratios[i, :used],
                    config.ppo.gae_lambda,
                    WEIGHT_LIMITS["vtrace"],
                    advantages[i, :used],
                    targets[i, :used],
                )
                continue
            generalised_advantages(
                rewards,
                discounts,
                values[i, :used],
                after,
                config.ppo.gae_lambda,
                advantages[i, :used],
            )
            targets[i] += advantages[i]
        batch = Batch(
            observations=observations,
            actions=actions,
            masks=masks,
            log_prox=log_prox,
            weights=self._to_device(weights),
            advantages=self._to_device(advantages),
            values=before,
            targets=self._to_device(targets),
        )
        return batch, effective

    def _train(
        self,
        batch: Batch,
        samples: Rows | Sequences,
        first: int,
        end: int,
        effective: Floats,
    ) -> Learned:
        engine = self._engine(first, end)
        costs = Costs(*(part[first:end] for part in self._costs))
        # A rollout that was taken early, or that is a little longer than asked, is cut to the size
        # of the others: another random part of it is left out in each epoch.
        fewest = min(len(units) for units in samples.units)
        minibatches = min(self._minibatches, fewest)
        size = fewest // minibatches
        sums = torch.zeros(4, end - first, device=self.device)
        passes = 0
        going = list(range(first, end))
        begun, budget, epoch = time.perf_counter(), self.configs[first].time_budget, 0
        for epoch in range(1, self._epochs + 1):
            order = [
                stream.permutation(units)
                for stream, units in zip(self._streams[first:end], samples.units, strict=True)
            ]
            for at in range(0, minibatches * size, size):
                pick = samples.pick([units[at : at + size] for units in order])
                advantages = pick.of(batch.advantages)
                if self._normalises:
                    advantages = normalised(advantages, pick.valid)
                facts = engine.step(batch, pick, advantages, costs)
                self.clip_gradients(first, end)
                self.optimizer.step(going)
                sums += facts
                passes += 1
                if np.isfinite(self._target_kl[first:end]).any():
                    moved = facts[2].cpu().numpy() > KL_MARGIN * self._target_kl[first:end]
                    going = [k for k in going if not moved[k - first]]
            spent = time.perf_counter() - begun
            if not going or (budget is not None and spent * (epoch + 1) / epoch > budget):
                break
        loss, entropies, kl, clipped = (sums / passes).cpu().numpy()
        return Learned(loss, entropies, kl, clipped, effective, epoch)

    def _set_learning_rates(self, first: int, end: int) -> None:
        for k in range(first, end):
            config = self.configs[k]
            left = 1.0
            if config.ppo.anneal_steps is not None:
                left = max(1.0 - self._trained[k] / config.ppo.anneal_steps, 0.0)
            self.optimizer.learning_rates[k] = config.learning_rate * left

    def _see(self, policy: int, observations: np.ndarray) -> None:
        """Count what was seen into the moments by which inputs are normalised."""
        buffers = self.online.of(policy)
        moments = RunningMoments(
            buffers[MEAN][0, 0].cpu().double().numpy(),
            buffers[VARIANCE][0, 0].cpu().double().numpy(),
            float(buffers[COUNT]),
        )
        moments.add(observations.astype(np.float64))
        with torch.no_grad():
            buffers[MEAN][0, 0].copy_(torch.from_numpy(moments.mean))
            buffers[VARIANCE][0, 0].copy_(torch.from_numpy(moments.variance))
            buffers[COUNT].fill_(moments.count)

    def _engine(self, first: int, end: int) -> ByHand | Surrogate:
        """What works out the loss and its gradients for these policies."""
        if (first, end) not in self._engines:
            part = self.online.rows(first, end)
            if self._anchor is not None:
                engine: ByHand | Surrogate = Surrogate(
                    self.network, part, self._anchor.rows(first, end)
                )
            elif ByHand.suits(self.network, self.device):
                engine = ByHand(self.network, part)
            else:
                engine = Surrogate(self.network, part)
            self._engines[first, end] = engine
        return self._engines[first, end]

    def _to_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def learned(self, policy: int) -> State:
        """A policy's weights, optimizer and counters."""
        return super().learned(policy) | {
            "trained": self._trained[policy],
            "returns": self._returns[policy].state(),
            "anchor": self._anchor.flat[policy].cpu().numpy().copy() if self._anchor else None,
        }

    def restore_learned(self, policy: int, state: State) -> None:
        """Go on from what `learned` returned; the random stream goes on where it is."""
        super().restore_learned(policy, state)
        self._trained[policy] = state["trained"]
        if self._anchor is not None:
            like = np.empty(self._anchor.flat[policy].shape, np.float32)
            with torch.no_grad():
                self._anchor.flat[policy].copy_(torch.from_numpy(fitting(state, "anchor", like)))
        self._returns[policy].restore(state["returns"])

    def state(self, policy: int) -> State:
        """All that a successor needs to go on exactly here: `learned`, and the random stream."""
        return self.learned(policy) | {"stream": random_state(self._streams[policy])}

    def restore(self, policy: int, state: State) -> None:
        """Let a policy go on from what `state` returned."""
        self.restore_learned(policy, state)
        restore_random(self._streams[policy], state["stream"])


class _RunningReturns:
    """How large the discounted sums of one policy's rewards are (as in OpenAI Baselines).

    Each stream's sum runs on from segment to segment, until its episode terminates.
    """

    def __init__(self) -> None:
        self._moments = RunningMoments(np.zeros(()), np.ones(()), 0.0)
        self._sums: np.ndarray = np.zeros(0)

    def scale(self, rewards: Floats, discounts: Floats, streams: Integers) -> np.float32:
        """Count a rollout's rewards in; returns what to multiply them by."""
        needed = int(streams.max()) + 1
        if needed > self._sums.size:
            self._sums = np.concatenate((self._sums, np.zeros(needed - self._sums.size)))
        self._moments.add(running_sums(rewards, discounts, streams, self._sums))
        return np.float32(1.0 / np.sqrt(self._moments.variance + 1e-8))

    def state(self) -> State:
        moments = np.array([self._moments.mean, self._moments.variance, self._moments.count])
        return {"moments": moments, "sums": self._sums.copy()}

    def restore(self, state: State) -> None:
        mean, variance, count = fitting(state, "moments", np.zeros(3))
        self._moments = RunningMoments(np.asarray(mean), np.asarray(variance), float(count))
        self._sums = state["sums"].copy()


@njit(cache=True)
def running_sums(
    rewards: Floats, discounts: Floats, streams: Integers, sums: np.ndarray
) -> np.ndarray:
    """The discounted sum of rewards up to each step, and where each stream's `sums` go on."""
    found = np.zeros(rewards.size)
    count = 0
    for i in range(rewards.size):
        stream = streams[i]
        if stream == AFTER:
            continue
        sums[stream] += rewards[i]
        found[count] = sums[stream]
        sums[stream] *= discounts[i]
        count += 1
    return found[:count]


def _number(ppo: PPOConfig, name: str) -> float:
    """A hyperparameter; infinity where None means that there is no limit."""
    value = getattr(ppo, name)
    return float("inf") if value is None else float(value)
