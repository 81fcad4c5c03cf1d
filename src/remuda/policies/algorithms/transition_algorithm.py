"""Algorithms that learn from single steps, drawn from all that is kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from remuda.algorithms import Section
from remuda.checkpoint.fitting import fitting
from remuda.checkpoint.state import restore_torch
from remuda.config import PolicyConfig
from remuda.errors import ConfigError
from remuda.policies.algorithms.algorithm import Algorithm, says_so
from remuda.policies.algorithms.own_losses import check_loss
from remuda.policies.algorithms.sequences import TransitionSequences
from remuda.policies.losses import mean_of
from remuda.policies.networks.encoders import encoder_for
from remuda.policies.networks.heads import Heads
from remuda.policies.networks.network import Network
from remuda.policies.stack import ParameterStack
from remuda.publish.training_state import BEGUN, EXPLORED, TrainingLayout, TrainingState
from remuda.types import State

if TYPE_CHECKING:
    from remuda.policies.spec import PolicySpec


NO_MASKS = torch.ones(0, dtype=torch.bool)
"""Of a batch from a game where everything is always allowed."""


TARGET = "target"
"""The target network, as a vector of a policy's training state."""
NO_WEIGHTS = torch.ones(0, dtype=torch.float32)
"""Of a batch whose samples all count the same."""


@dataclass(frozen=True)
class Transitions:
    """A batch for each of K policies, on the learner's device; the indices are those of `Batch`."""

    s_tm1: Tensor
    """[K, B, num_inputs]."""
    a_tm1: Tensor
    """[K, B] int64; of several choices, the number of their combination, or where each choice is
    valued by itself (`branching`) the choices: [K, B, choices]."""
    r_t: Tensor
    """[K, B], already scaled."""
    discount_t: Tensor
    """[K, B]."""
    s_t: Tensor
    """[K, B, num_inputs]."""
    allowed_tm1: Tensor = NO_MASKS
    """[K, B, A] bool: which actions s_tm1 allowed; of size 0: any, as in `allowed_t`. Where each
    choice is valued by itself, A are the possibilities of all choices after one another."""
    allowed_t: Tensor = NO_MASKS
    """[K, B, A] bool: which actions s_t allows, all where nothing is to come."""
    weights: Tensor = NO_WEIGHTS
    """[K, B]: what each sample counts in the loss; of size 0: all the same."""


class Loss(NamedTuple):
    """What is minimised, and what is told of it."""

    losses: Tensor
    """[G, B]: of every sample."""
    values: Tensor
    """[G, B, ...]: of its action, for the metrics."""
    errors: Tensor | None = None
    """[G, B]: the temporal-difference error of every sample, by which those are prioritised that
    are far off; None: by the loss."""


class Learned(NamedTuple):
    """What an update did, by policy, on the learner's device: [G] each, but for the errors."""

    loss: Tensor
    """The mean loss of a batch."""
    gradient_norm: Tensor
    """Of the gradient, before it was cut."""
    value: Tensor
    """The mean value of the batch's actions before the update."""
    errors: Tensor
    """[G, B]: how far off every sample was before the update; of sequences: every sequence."""


CACHE = 2**20
"""Bytes of one layer's activations beyond which a stack is slower on a CPU than one policy after
another: what one layer leaves behind is no longer near when the next wants it. Measured."""
FUSED = 4
"""So many times as much goes into one call of kernels: a stack of wide quantile networks is trained
for some ten milliseconds, of which its calls are a hundredth."""


@dataclass(frozen=True)
class Part:
    """Some policies of a stack that are trained together."""

    first: int
    end: int
    online: ParameterStack
    target: ParameterStack


class TransitionAlgorithm(Algorithm):
    """Trains K private networks, each on batches of its own steps.

    Only `online` receives gradients; `target` is a copy, renewed by `renew_targets`. All that
    shapes the computation is alike in a stack: the network, the batch, `double` and `huber`; each
    policy has its own learning rate, target and random stream. Noise is drawn from the stream of
    the first, so policies with noisy layers are trained alone.

    One's own is a subclass with `heads` and a `loss`; see docs/extend.md.
    """

    takes, masks = "transitions", False
    section: ClassVar[Section] = "dqn"
    recurrent: ClassVar[bool] = False
    """Whether its loss is that of sequences too, `TransitionSequences`: its network may then be
    recurrent. It is not inherited by a class with a loss of its own."""
    branching: ClassVar[bool] = False
    """Whether its loss can value each of several choices by itself, where they have too many
    combinations for a value each. It is not inherited by a class with a loss of its own."""
    heads: ClassVar[Sequence[str]] = ()
    """The heads of its network, each with a number for each action and on layers of its own. The
    first is what actions are chosen by: the greatest, or where `samples` is true drawn from the
    softmax of them."""

    def __init__(
        self,
        configs: Sequence[PolicyConfig],
        network: Network,
        streams: Sequence[torch.Generator],
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(configs, network, device)
        self.config, self.network = self.configs[0], network
        self._streams = tuple(streams)
        self.target = ParameterStack(network.shapes, len(self.configs), device)

    @classmethod
    def network_for(cls, spec: PolicySpec) -> Network:
        """A network with the heads of the class.

        Raises:
            ConfigError: it names none.
        """
        if not cls.heads:
            raise ConfigError(
                f"policy.algorithm {spec.config.algorithm}: the class names no heads, as in "
                'heads = ("policy", "q1", "q2")'
            )
        heads = dict.fromkeys(cls.heads, spec.actions.num_outputs)
        return Heads(spec.num_inputs, heads, spec.config.network, encoder_for(spec), spec.scale)

    @classmethod
    def learns_from_sequences(cls) -> bool:
        """Whether its loss is that of sequences too: the class that has the loss must say so."""
        return says_so(cls, "recurrent", "loss")

    @classmethod
    def values_each_choice(cls) -> bool:
        """Whether its loss can value each choice: the class that has the loss must say so."""
        return says_so(cls, "branching", "loss")

    @abstractmethod
    def loss(
        self, batch: Transitions, part: Part
    ) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor] | Loss:
        """The loss of every sample, [G, B], and the values of its action, [G, B, ...].

        Gradients flow from the loss to the online parameters; the values are for the metrics. A
        third tensor may tell the temporal-difference errors, as in `Loss`. The weights of samples
        are not this method's: losses are multiplied with them afterwards.

        Args:
            batch: of the policies of the part; not all of the stack's.
            part: the G policies that are trained.
        """

    def head(self, part: Part, head: str, inputs: Tensor, target: bool = False) -> Tensor:
        """What a head says of inputs [G, B, num_inputs]: [G, B, A].

        Args:
            part: the G policies.
            head: one of `heads`.
            inputs: of a batch.
            target: whether by the target network.
        """
        assert isinstance(self.network, Heads)
        stack = part.target if target else part.online
        return self.network.head(head, stack.parameters, inputs)

    def setting(self, part: Part, name: str) -> Tensor:
        """A number of `policy.settings`, of each policy of a part: [G, 1]."""
        return self.settings_of(name, range(part.first, part.end))

    def renew_targets(self, part: Part) -> None:
        """Renew the target networks after an update: a copy, every `dqn.target_every` updates."""
        for policy in range(part.first, part.end):
            if self.updates[policy] % self.configs[policy].q_learning.target_every == 0:
                self.target.flat[policy].copy_(self.online.flat[policy])

    @property
    def is_fused(self) -> bool:
        """Whether kernels of our own work out its steps on single transitions."""
        return False

    @property
    def width(self) -> int:
        """How many policies it is worth to train together."""
        if self.device.type != "cpu":
            return len(self.configs)
        widest = 4 * self.config.quantiles * self.config.batch_size * self.network.widest
        # Kernels take one after another, so nothing leaves the cache: more policies save the cost
        # of calling, and weights are published once all of them are trained.
        most = FUSED * CACHE if self.is_fused else CACHE
        return max(most // widest, 1)

    @classmethod
    def training_layout(cls, config: PolicyConfig) -> TrainingLayout:
        """Moments and the target network; its learner adds how far exploration has decayed."""
        found = super().training_layout(config)
        return TrainingLayout((*found.vectors, TARGET), (*found.numbers, EXPLORED, BEGUN))

    def training(self, learned: State) -> TrainingState:
        """Of what `learned` returned, all that a newborn may take over besides weights."""
        found = super().training(learned)
        found.vectors[TARGET] = learned[TARGET]
        return found

    def take_over(self, policy: int, training: TrainingState) -> None:
        """Train a policy on, by the target network of the other."""
        super().take_over(policy, training)
        with torch.no_grad():
            self.target.flat[policy].copy_(torch.from_numpy(training.vectors[TARGET]))

    def load(self, policy: int, weights: Tensor, updates: int = 0) -> None:
        """Begin from these weights [P], in the online and in the target network."""
        super().load(policy, weights, updates)
        with torch.no_grad():
            self.target.flat[policy].copy_(weights)

    def update(
        self, batch: Transitions | TransitionSequences, first: int = 0, end: int | None = None
    ) -> Learned:
        """Train policies `first` to `end - 1`, a step on the batch of each."""
        end = len(self.configs) if end is None else end
        part = self._part(first, end)
        loss, value, errors = self._differentiate(batch, part)
        norm = self.clip_gradients(part.online.gradients, slice(first, end))
        self.optimizer.step(range(first, end))
        for policy in range(first, end):
            self.updates[policy] += 1
        with torch.no_grad():
            self.renew_targets(part)
        return Learned(loss, norm.squeeze(1), value, errors)

    def _differentiate(
        self, batch: Transitions | TransitionSequences, part: Part
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Write the gradients of a batch; returns loss [G], value [G] and errors, as `Learned`."""
        # Sequences come only to algorithms that are `recurrent`; `PolicySpec.network` sees to it.
        found = self.loss(batch, part)  # type: ignore[arg-type]
        check_loss(self.configs[0].algorithm, found, batch.r_t.shape)
        losses, values, errors = Loss(*found)
        errors = losses if errors is None else errors
        if batch.weights.numel():
            losses = losses * batch.weights
        loss = losses.mean(-1)
        part.online.backward(loss.sum())
        value, errors = values.detach().flatten(1).mean(1), errors.detach()
        if isinstance(batch, TransitionSequences):
            by_step = values.detach().reshape(*batch.valid.shape, -1).mean(-1)
            value = mean_of(by_step, batch.valid)
            errors = batch.priorities(errors)
        return loss.detach(), value, errors

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
        restore_torch(self._streams[policy], state, "stream")

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
