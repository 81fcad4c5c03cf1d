"""The base class of algorithms, with a stack of K networks and an optimizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from remuda.config import PolicyConfig
from remuda.config.algorithm_registry import Section, Takes
from remuda.policies.networks.kernels.activations import FAST
from remuda.policies.networks.network import Network
from remuda.policies.optimizer import Adam
from remuda.policies.spec import PolicySpec
from remuda.policies.stack import ParameterStack, whole_rows
from remuda.publish.training_state import MOMENTS, STEPS, TrainingLayout, TrainingState
from remuda.system.checkpoint.fitting import branch, fitting, whole
from remuda.system.kernels import njit
from remuda.types import Floats, State


def has_flag(kind: type, flag: str, *methods: str) -> bool:
    """Return a class's flag; False if a subclass overrides one of the methods and not the flag."""
    for each in kind.__mro__:
        if flag in vars(each):
            return bool(vars(each)[flag])
        if any(method in vars(each) for method in methods):
            return False
    return False


class Algorithm(ABC):
    """An algorithm for K networks of one layout, each trained only on the data of its policy.

    User-defined classes set these attributes; built-in ones are in `config.algorithm_registry`.
    """

    takes: ClassVar[Takes]  # the kind of experience it learns from
    section: ClassVar[Section]  # the section of `policy` that it reads, besides `settings`
    masks: ClassVar[bool]  # whether it supports action masks
    samples: ClassVar[bool] = False  # whether it explores by sampling the network's distribution
    # defaults of `policy` that differ from the usual ones: `{"learning_rate": 3e-4}`
    preset: ClassVar[Mapping[str, Any]] = {}
    settings: ClassVar[Mapping[str, Any]] = {}  # keys and defaults of `policy.settings`
    # policy settings that it does not read, such as `ppo.clip`
    unused: ClassVar[Sequence[str]] = ()

    @classmethod
    @abstractmethod
    def network_for(cls, spec: PolicySpec) -> Network:
        """Build a policy's network from its configuration."""

    def __init__(
        self, configs: Sequence[PolicyConfig], network: Network, device: str | torch.device
    ) -> None:
        self.configs, self.device = list(configs), torch.device(device)
        self.online = ParameterStack(
            network.shapes, len(self.configs), device, trainable=True, buffers=network.buffers
        )
        self.optimizer = Adam(
            self.online.flat,
            self.online.gradients,
            [config.learning_rate for config in self.configs],
            [config.adam_epsilon for config in self.configs],
        )
        self.updates = [0] * len(self.configs)  # by policy
        norms = [[config.max_grad_norm] for config in self.configs]
        self._max_grad_norm = torch.tensor(norms, dtype=torch.float32, device=self.device)

    def settings_of(self, name: str, members: Iterable[int]) -> Tensor:
        """Return the value of one of `policy.settings` for each of these policies: [G, 1]."""
        default = self.settings[name]
        found = [[float(self.configs[k].settings.get(name, default))] for k in members]
        return torch.tensor(found, dtype=torch.float32, device=self.device)

    @classmethod
    def training_layout(cls, config: PolicyConfig) -> TrainingLayout:  # noqa: ARG003
        return TrainingLayout(MOMENTS, (STEPS,))

    def training(self, learned: State) -> TrainingState:
        """Return the part of `learned` that a new policy may inherit, without per-stream data."""
        optimizer = learned["optimizer"]
        return TrainingState({name: optimizer[name] for name in MOMENTS}, {STEPS: optimizer[STEPS]})

    def take_over(self, policy: int, training: TrainingState) -> None:
        """Continue from the training state of another policy, whose weights are already loaded."""
        self.optimizer.restore(policy, {**training.vectors, STEPS: training.numbers[STEPS]})

    def begin(
        self,
        policy: int,
        weights: Tensor,
        config: PolicyConfig,
        training: TrainingState | None = None,
    ) -> None:
        """Replace a policy by a new one with weights [P]; the update counter continues."""
        self.load(policy, weights, self.updates[policy])
        self.forget(policy)
        self.configure(policy, config)
        if training is not None:
            self.take_over(policy, training)

    def forget(self, policy: int) -> None:
        self.optimizer.forget(policy)

    def configure(self, policy: int, config: PolicyConfig) -> None:
        """Apply hyperparameters from the policy's next update on."""
        self.optimizer.learning_rates[policy] = config.learning_rate
        self.optimizer.epsilons[policy] = config.adam_epsilon
        self._max_grad_norm[policy] = config.max_grad_norm
        self.configs[policy] = config

    def load(self, policy: int, weights: Tensor, updates: int = 0) -> None:
        """Load weights [P] and their number of updates."""
        self.online.write(policy, weights)
        self.updates[policy] = updates

    def weights(self, policy: int) -> Floats:
        weights: Floats = self.online.flat[policy].detach().cpu().numpy()
        return weights

    def is_finite(self, policy: int, before: Floats | None = None) -> bool:
        """Return whether every weight is finite, or unchanged since `before` [P].

        Unchanged values may be constant buffers, such as a mask of minus infinity.
        """
        weights = self.online.flat[policy].detach()
        if weights.device.type == "cpu":
            if are_finite(weights.numpy()):
                return True
        elif torch.isfinite(weights).all():
            return True
        if before is None:
            return False
        current: Floats = weights.cpu().numpy()
        nonfinite = ~np.isfinite(current)
        return bool((current[nonfinite].view(np.int32) == before[nonfinite].view(np.int32)).all())

    @abstractmethod
    def state(self, policy: int) -> State:
        """Return the state from which training continues exactly: `learned` and random state."""

    @abstractmethod
    def restore(self, policy: int, state: State) -> None:
        """Restore what `state` returned; raise CheckpointError if the network differs."""

    def learned(self, policy: int) -> State:
        return {
            "online": self.online.read(policy),
            "optimizer": self.optimizer.state(policy),
            "updates": self.updates[policy],
        }

    def restore_learned(self, policy: int, state: State) -> None:
        like = np.empty(self.online.flat.shape[1], np.float32)
        online = fitting(state, "online", like)
        self.load(policy, torch.from_numpy(online), whole(state, "updates"))
        self.optimizer.restore(policy, branch(state, "optimizer"))

    def clip_gradients(self, gradients: Tensor, members: slice | Tensor) -> Tensor:
        """Scale gradients [G, P] down to each policy's maximum norm; return old norms [G, 1]."""
        if gradients.device.type == "cpu" and torch.get_num_threads() == 1:
            limits = self._max_grad_norm[members].numpy()
            norms: Floats = np.empty_like(limits)
            clip(whole_rows(gradients), gradients.shape[1], limits, norms)
            return torch.from_numpy(norms)
        with torch.no_grad():
            norm: Tensor = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
            gradients.mul_((self._max_grad_norm[members] / (norm + 1e-6)).clamp(max=1.0))
        return norm


@njit(**FAST)
def are_finite(numbers: Floats) -> bool:
    """Return whether all numbers are finite; for others, the product with 0 is NaN."""
    total = np.float32(0.0)
    for i in range(numbers.size):
        total += numbers[i] * np.float32(0.0)
    return bool(total == np.float32(0.0))


@njit(**FAST)
def clip(gradients: Floats, size: int, limits: Floats, norms: Floats) -> None:
    """Scale the first `size` numbers of rows to norms of at most `limits` [G, 1]."""
    for k in range(gradients.shape[0]):
        row, total = gradients[k], np.float32(0.0)
        for i in range(size):
            total += row[i] * row[i]
        norm = np.sqrt(total)
        norms[k, 0] = norm
        factor = limits[k, 0] / (norm + np.float32(1e-6))
        if not factor >= np.float32(1.0):  # NaN enters the weights, where `is_finite` finds it
            for i in range(size):
                row[i] *= factor
