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


class DQN(Algorithm):
    """Trains K private Q-networks.

    Only `online` receives gradients; `target` is a copy, renewed every `target_every` updates.
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

    def load(self, policy: int, weights: Tensor, updates: int = 0) -> None:
        """Begin from these weights [P], in the online and in the target network."""
        super().load(policy, weights, updates)
        with torch.no_grad():
            self.target.flat[policy].copy_(weights)

    def update(self, batch: Transitions) -> Tensor:
        """Take one step on every policy's batch; returns the mean loss of each, [K]."""
        loss = self.loss(batch).mean(-1)
        self.online.backward(loss.sum())
        self.clip_gradients(0, len(self.configs))
        self.optimizer.step()
        for policy in range(len(self.configs)):
            self.updates[policy] += 1
            if self.updates[policy] % self.config.target_every == 0:
                with torch.no_grad():
                    self.target.flat[policy].copy_(self.online.flat[policy])
        return loss.detach()

    def loss(self, batch: Transitions) -> Tensor:
        """The loss of every sample: [K, B]."""
        network = self.network
        with torch.no_grad():
            q_t = network.values(self._acting(self.target), batch.s_t)
            select = q_t
            if self.config.double:
                select = network.values(self._acting(self.online), batch.s_t)
            target = q_learning_target(batch.r_t, batch.discount_t, select, q_t)
        q_tm1 = network.values(self._acting(self.online), batch.s_tm1)
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

    def _noise(self) -> torch.Generator | None:
        return self._streams[0] if self.config.network.noisy else None

    def _acting(self, stack: ParameterStack) -> dict[str, Tensor]:
        return self.network.acting(stack.parameters, self._noise())
