"""Double DQN for K policies, and what every value learner has in common with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remuda.checkpoint.state import fitting
from remuda.config import PolicyConfig
from remuda.policies.algorithms.algorithm import Algorithm
from remuda.policies.losses import q_learning_loss, q_learning_target
from remuda.policies.networks.q_network import QNetwork
from remuda.policies.stack import ParameterStack
from remuda.types import State


@dataclass(frozen=True)
class Transitions:
    """A batch for each of K policies, on the learner's device; the indices are those of `Batch`."""

    s_tm1: Tensor
    """[K, B, num_inputs]."""
    a_tm1: Tensor
    """[K, B] int64."""
    r_t: Tensor
    """[K, B], already scaled."""
    discount_t: Tensor
    """[K, B]."""
    s_t: Tensor
    """[K, B, num_inputs]."""


CACHE = 2**20
"""Bytes of one layer's activations beyond which a stack is slower on a CPU than one policy after
another: what one layer leaves behind is no longer near when the next wants it. Measured."""


@dataclass(frozen=True)
class Part:
    """Some policies of a stack that are trained together."""

    first: int
    end: int
    online: ParameterStack
    target: ParameterStack


class DQN(Algorithm):
    """Trains K private Q-networks.

    Only `online` receives gradients; `target` is a copy, renewed every `target_every` updates. All
    that shapes the computation is alike in a stack: the network, the batch, `double` and `huber`;
    each policy has its own learning rate, target and random stream. Noise is drawn from the stream
    of the first, so policies with noisy layers are trained alone.
    """

    def __init__(
        self,
        configs: Sequence[PolicyConfig],
        network: QNetwork,
        streams: Sequence[torch.Generator],
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(configs, network, device)
        self.config, self.network = self.configs[0], network
        self._streams = tuple(streams)
        self.target = ParameterStack(network.shapes, len(self.configs), device)

    @property
    def width(self) -> int:
        """How many policies it is worth to train together."""
        if self.device.type != "cpu":
            return len(self.configs)
        widest = 4 * self._passes * self.config.batch_size * max(self.config.network.hidden)
        return max(CACHE // widest, 1)

    @property
    def _passes(self) -> int:
        """Passes through the hidden layers for each sample."""
        return 1

    def load(self, policy: int, weights: Tensor, updates: int = 0) -> None:
        """Begin from these weights [P], in the online and in the target network."""
        super().load(policy, weights, updates)
        with torch.no_grad():
            self.target.flat[policy].copy_(weights)

    def update(self, batch: Transitions, first: int = 0, end: int | None = None) -> Tensor:
        """Train policies `first` to `end - 1`, a step on the batch of each; returns mean losses."""
        end = len(self.configs) if end is None else end
        part = self._part(first, end)
        loss = self.loss(batch, part).mean(-1)
        part.online.backward(loss.sum())
        self.clip_gradients(part.online.gradients, slice(first, end))
        self.optimizer.step(range(first, end))
        for policy in range(first, end):
            self.updates[policy] += 1
            if self.updates[policy] % self.configs[policy].target_every == 0:
                with torch.no_grad():
                    self.target.flat[policy].copy_(self.online.flat[policy])
        return loss.detach()

    def loss(self, batch: Transitions, part: Part) -> Tensor:
        """The loss of every sample of these policies: [end - first, B]."""
        network = self.network
        with torch.no_grad():
            q_t = network.values(self._acting(part, part.target), batch.s_t)
            select = q_t
            if self.config.double:
                select = network.values(self._acting(part, part.online), batch.s_t)
            target = q_learning_target(batch.r_t, batch.discount_t, select, q_t)
        q_tm1 = network.values(self._acting(part, part.online), batch.s_tm1)
        return q_learning_loss(q_tm1, batch.a_tm1, target, self.config.huber)

    def state(self, policy: int) -> State:
        """All that a successor needs to go on exactly here: `learned`, and the random stream."""
        return self.learned(policy) | {"stream": self._streams[policy].get_state().numpy()}

    def learned(self, policy: int) -> State:
        """A policy's weights, optimizer and counters."""
        target = self.target.flat[policy].cpu().numpy().copy()
        return super().learned(policy) | {"target": target}

    def restore(self, policy: int, state: State) -> None:
        """Let a policy go on from what `state` returned."""
        self.restore_learned(policy, state)
        self._streams[policy].set_state(torch.from_numpy(state["stream"]))

    def restore_learned(self, policy: int, state: State) -> None:
        """Go on from what `learned` returned; the random stream goes on where it is."""
        super().restore_learned(policy, state)
        like = np.empty(self.target.flat[policy].shape, np.float32)
        with torch.no_grad():
            self.target.flat[policy].copy_(torch.from_numpy(fitting(state, "target", like)))

    def _part(self, first: int, end: int) -> Part:
        online, target = self.online.rows(first, end), self.target.rows(first, end)
        return Part(first, end, online, target)

    def _noise(self, part: Part) -> torch.Generator | None:
        return self._streams[part.first] if self.config.network.noisy else None

    def _acting(self, part: Part, stack: ParameterStack) -> dict[str, Tensor]:
        return self.network.acting(stack.parameters, self._noise(part))
