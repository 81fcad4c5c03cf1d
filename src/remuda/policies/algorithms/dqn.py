"""Double DQN for K policies, and what every value learner has in common with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remuda.checkpoint.state import fitting
from remuda.config import PolicyConfig
from remuda.policies.losses import q_learning_loss, q_learning_target
from remuda.policies.networks.q_network import QNetwork
from remuda.policies.optimizer import Adam
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


class DQN:
    """Trains K private Q-networks, each with its own optimizer state and random stream.

    Only `online` receives gradients; `target` is a copy, renewed every `target_every` updates.
    """

    def __init__(
        self,
        config: PolicyConfig,
        network: QNetwork,
        streams: Sequence[torch.Generator],
        device: str | torch.device = "cpu",
    ) -> None:
        self.config, self.network, self.device = config, network, torch.device(device)
        self._streams = tuple(streams)
        num_policies = len(self._streams)
        self.online = ParameterStack(network.shapes, num_policies, device, trainable=True)
        self.target = ParameterStack(network.shapes, num_policies, device)
        self._optimizer = Adam(
            self.online.flat, self.online.gradients, config.learning_rate, config.adam_epsilon
        )
        self.updates = 0

    def load(self, policy: int, weights: Tensor) -> None:
        """Begin from these weights [P], in the online and in the target network."""
        with torch.no_grad():
            self.online.flat[policy].copy_(weights)
            self.target.flat[policy].copy_(weights)

    def update(self, batch: Transitions) -> Tensor:
        """Take one step on every policy's batch; returns the mean loss of each, [K]."""
        loss = self.loss(batch).mean(-1)
        self.online.backward(loss.sum())
        with torch.no_grad():
            norm = self.online.gradients.norm(dim=1, keepdim=True)
            self.online.gradients.mul_((self.config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        self._optimizer.step()
        self.updates += 1
        if self.updates % self.config.target_every == 0:
            with torch.no_grad():
                self.target.flat.copy_(self.online.flat)
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

    def is_finite(self) -> bool:
        """Whether every weight is a finite number."""
        return bool(torch.isfinite(self.online.flat).all())

    def state(self) -> State:
        """All that a successor needs to go on exactly here: `learned`, and the random streams."""
        streams = {str(k): stream.get_state().numpy() for k, stream in enumerate(self._streams)}
        return self.learned() | {"streams": streams}

    def learned(self) -> State:
        """Weights, optimizer and counters."""
        return {
            "online": self.online.flat.cpu().numpy().copy(),
            "target": self.target.flat.cpu().numpy().copy(),
            "optimizer": self._optimizer.state(),
            "updates": self.updates,
        }

    def restore(self, state: State) -> None:
        """Go on from what `state` returned.

        Raises:
            CheckpointError: it was saved by another network.
        """
        self.restore_learned(state)
        for k, stream in enumerate(self._streams):
            stream.set_state(torch.from_numpy(state["streams"][str(k)]))

    def restore_learned(self, state: State) -> None:
        """Go on from what `learned` returned; the random streams go on where they are."""
        flat = np.empty(self.online.flat.shape, np.float32)
        with torch.no_grad():
            self.online.flat.copy_(torch.from_numpy(fitting(state, "online", flat)))
            self.target.flat.copy_(torch.from_numpy(fitting(state, "target", flat)))
        self._optimizer.restore(state["optimizer"])
        self.updates = state["updates"]

    def _noise(self) -> torch.Generator | None:
        return self._streams[0] if self.config.network.noisy else None

    def _acting(self, stack: ParameterStack) -> dict[str, Tensor]:
        return self.network.acting(stack.parameters, self._noise())
