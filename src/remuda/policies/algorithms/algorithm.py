"""What every algorithm has: a private stack of K networks, an optimizer, and a way to go on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from remuda.algorithms import Section, Takes
from remuda.checkpoint.fitting import branch, fitting, whole
from remuda.config import PolicyConfig
from remuda.kernels import njit
from remuda.policies.networks.activations import FAST
from remuda.policies.networks.network import Network
from remuda.policies.optimizer import Adam
from remuda.policies.stack import ParameterStack, whole_rows
from remuda.publish.training_state import MOMENTS, STEPS, TrainingLayout, TrainingState
from remuda.types import Floats, State

if TYPE_CHECKING:
    from remuda.policies.spec import PolicySpec


def says_so(kind: type, flag: str, method: str) -> bool:
    """Whether a class has this flag set, and no class made from it has a method of its own.

    What a flag says of a method holds for that of the class which says it, or one below it.
    """
    for each in kind.__mro__:
        if flag in vars(each):
            return bool(vars(each)[flag])
        if method in vars(each):
            return False
    return False


class Algorithm(ABC):
    """Trains K private networks of one layout; row k depends on what belongs to policy k alone.

    Each has its own hyperparameters, optimizer moments, gradient clipping and random stream.

    What the registry (`remuda.algorithms`) has to know of one that a user brings stands in its
    class; of those that come with Remuda it stands there.
    """

    takes: ClassVar[Takes]
    """What experience it learns from."""
    section: ClassVar[Section]
    """Where under `policy` its settings stand, beside `settings`."""
    masks: ClassVar[bool]
    """Whether it can learn where the game tells which actions are allowed."""
    samples: ClassVar[bool] = False
    """Whether it explores by drawing from the distribution that its network describes."""
    preset: ClassVar[Mapping[str, Any]] = {}
    """The defaults of its policies, where they differ: `{"learning_rate": 3e-4}`."""
    settings: ClassVar[Mapping[str, Any]] = {}
    """What `policy.settings` may name, with the defaults."""
    unused: ClassVar[Sequence[str]] = ()
    """Settings of a policy that it does not read, such as `ppo.clip`."""

    @classmethod
    @abstractmethod
    def network_for(cls, spec: PolicySpec) -> Network:
        """The network that a policy is configured to have."""

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
        self.updates = [0] * len(self.configs)
        """By policy."""
        norms = [[config.max_grad_norm] for config in self.configs]
        self._max_grad_norm = torch.tensor(norms, dtype=torch.float32, device=self.device)

    def settings_of(self, name: str, members: Iterable[int]) -> Tensor:
        """A number of `policy.settings`, of each of these policies: [G, 1]."""
        default = self.settings[name]
        found = [[float(self.configs[k].settings.get(name, default))] for k in members]
        return torch.tensor(found, dtype=torch.float32, device=self.device)

    @classmethod
    def training_layout(cls, config: PolicyConfig) -> TrainingLayout:  # noqa: ARG003
        """What `training` tells of a policy that is configured so."""
        return TrainingLayout(MOMENTS, (STEPS,))

    def training(self, learned: State) -> TrainingState:
        """Of what `learned` returned, all that a newborn may take over besides weights.

        Not the count of updates, which belongs to the place, and nothing that belongs to streams.
        """
        optimizer = learned["optimizer"]
        return TrainingState({name: optimizer[name] for name in MOMENTS}, {STEPS: optimizer[STEPS]})

    def take_over(self, policy: int, training: TrainingState) -> None:
        """Train a policy on from another's training state, whose weights it has been given."""
        self.optimizer.restore(policy, {**training.vectors, STEPS: training.numbers[STEPS]})

    def begin(
        self,
        policy: int,
        weights: Tensor,
        config: PolicyConfig,
        training: TrainingState | None = None,
    ) -> None:
        """Let another policy begin in a policy's place; updates are counted on.

        Args:
            policy: the place.
            weights: [P] that it begins with.
            config: its own.
            training: how it is trained on; None: nothing of that is known.
        """
        self.load(policy, weights, self.updates[policy])
        self.forget(policy)
        self.configure(policy, config)
        if training is not None:
            self.take_over(policy, training)

    def forget(self, policy: int) -> None:
        """Begin to train a policy's weights anew, as if none had been trained before."""
        self.optimizer.forget(policy)

    def configure(self, policy: int, config: PolicyConfig) -> None:
        """Train a policy with these hyperparameters from its next update on."""
        self.optimizer.learning_rates[policy] = config.learning_rate
        self.optimizer.epsilons[policy] = config.adam_epsilon
        self._max_grad_norm[policy] = config.max_grad_norm
        self.configs[policy] = config

    def load(self, policy: int, weights: Tensor, updates: int = 0) -> None:
        """Let a policy begin from these weights [P], that so many updates brought about."""
        with torch.no_grad():
            self.online.flat[policy].copy_(weights)
        self.updates[policy] = updates

    def weights(self, policy: int) -> Floats:
        """What there is to publish of a policy: [P]."""
        weights: Floats = self.online.flat[policy].detach().cpu().numpy()
        return weights

    def is_finite(self, policy: int, before: Floats | None = None) -> bool:
        """Whether every weight of a policy is finite, or a constant of its module that never was.

        Args:
            policy: which.
            before: [P] its weights at an earlier update; None: all must be finite. What is not
                finite and still the same is of a constant buffer, say a mask of minus infinity.
        """
        weights = self.online.flat[policy].detach()
        if weights.device.type == "cpu":
            if are_finite(weights.numpy()):
                return True
        elif torch.isfinite(weights).all():
            return True
        if before is None:
            return False
        now: Floats = weights.cpu().numpy()
        odd = ~np.isfinite(now)
        return bool((now[odd].view(np.int32) == before[odd].view(np.int32)).all())

    @abstractmethod
    def state(self, policy: int) -> State:
        """All that a successor needs to go on exactly here: `learned`, and the random stream."""

    @abstractmethod
    def restore(self, policy: int, state: State) -> None:
        """Let a policy go on from what `state` returned.

        Raises:
            CheckpointError: it was saved by another network.
        """

    def learned(self, policy: int) -> State:
        """A policy's weights, optimizer and counters."""
        return {
            "online": self.weights(policy).copy(),
            "optimizer": self.optimizer.state(policy),
            "updates": self.updates[policy],
        }

    def restore_learned(self, policy: int, state: State) -> None:
        """Go on from what `learned` returned; the random stream goes on where it is."""
        like = np.empty(self.online.flat[policy].shape, np.float32)
        online = fitting(state, "online", like)
        self.load(policy, torch.from_numpy(online), whole(state, "updates"))
        self.optimizer.restore(policy, branch(state, "optimizer"))

    def clip_gradients(self, gradients: Tensor, members: slice | Tensor) -> Tensor:
        """Scale gradients [G, P] of these policies down to the largest norm that each may have.

        Returns:
            [G, 1]: the norm of each before that.
        """
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
    """Whether all are finite: what is not makes no number of the sum of zeros."""
    total = np.float32(0.0)
    for i in range(numbers.size):
        total += numbers[i] * np.float32(0.0)
    return bool(total == np.float32(0.0))


@njit(**FAST)
def clip(gradients: Floats, size: int, limits: Floats, norms: Floats) -> None:
    """Scale rows [G, size] or more down to norms of at most `limits` [G, 1].

    Only the first `size` numbers of a row count. `norms` [G, 1] is written: what they were.
    """
    for k in range(gradients.shape[0]):
        row, total = gradients[k], np.float32(0.0)
        for i in range(size):
            total += row[i] * row[i]
        norm = np.sqrt(total)
        norms[k, 0] = norm
        factor = limits[k, 0] / (norm + np.float32(1e-6))
        if not factor >= np.float32(1.0):  # what is no number is seen in the weights
            for i in range(size):
                row[i] *= factor
