"""Algorithms that learn from replayed transitions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from remuda.config import PolicyConfig
from remuda.config.algorithm_registry import Section
from remuda.errors import ConfigError
from remuda.policies.actions import Actions, valued
from remuda.policies.algorithms.algorithm import Algorithm, has_flag
from remuda.policies.algorithms.own_losses import check_loss
from remuda.policies.losses import mean_of
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.encoders import encoder_for
from remuda.policies.networks.network import Heads, Network
from remuda.policies.networks.q_network import QNetwork
from remuda.policies.spec import PolicySpec
from remuda.policies.stack import ParameterStack
from remuda.publish.training_state import BEGUN, EXPLORED, TrainingLayout, TrainingState
from remuda.system.checkpoint.state import restore_torch
from remuda.types import State

TARGET = "target"  # the name of the target network in a policy's training state
NO_MASKS = torch.ones(0, dtype=torch.bool)  # masks if the environment has none
NO_WEIGHTS = torch.ones(0, dtype=torch.float32)  # weights if all samples weigh equally
# weight of the largest error in a sequence's priority, relative to the mean (Kapturowski et al.
# 2019, section 2.3)
GREATEST = 0.9


@dataclass(frozen=True)
class TransitionSequences:
    """G sequences of T steps for each of K policies, on the learner's device.

    Sequences follow each other in B = G * T rows. Rows after a sequence's end or in burn-in are not
    `valid`.
    """

    inputs: Tensor  # [K, G, T + 1, num_inputs] observations, including the final observation
    states: Tensor  # [K, G, memory] state before the first step
    burn_in: Tensor | None  # [K, G] steps that only update the state; None: no burn-in
    after: Tensor  # [K, G, T] input index of s_t
    a_tm1: Tensor  # [K, B] int64, or [K, B, C], as in `Transitions`
    r_t: Tensor  # [K, B] scaled
    discount_t: Tensor  # [K, B]
    allowed_t: Tensor  # [K, B, A] bool, actions allowed in s_t; if empty, all are allowed
    valid: Tensor  # [K, B] 1 for steps to learn from, else 0
    weights: Tensor  # [K, B] 0 if not valid; the mean is 1
    longest: int  # steps of the longest possible sequence; T is the longest in this batch

    def features_tm1(self, network: QNetwork, weights: Weights) -> Tensor:
        """Return a network's features [K, B, F] of each s_tm1."""
        return self.features(network, weights)[:, :, :-1].flatten(1, 2)

    def features_t(self, network: QNetwork, weights: Weights) -> Tensor:
        """Return a network's features [K, B, F] of each s_t."""
        features = self.features(network, weights)
        index = self.after.unsqueeze(-1).expand(*self.after.shape, features.shape[-1])
        return features.gather(2, index).flatten(1, 2)

    def features(self, network: QNetwork, weights: Weights) -> Tensor:
        """Return a network's features of all inputs: [K, G, T + 1, F]."""
        inputs = self.inputs.flatten(1, 2)
        features = network.unroll_features(weights, inputs, self.states, self.burn_in)
        return features.view(*self.inputs.shape[:3], -1)

    def priorities(self, errors: Tensor) -> Tensor:
        """Return the priorities [K, G] of sequences from the errors [K, B] of their steps."""
        valid = self.valid.view(self.after.shape)
        sizes = errors.abs().view(self.after.shape) * valid
        mean = sizes.sum(-1) / valid.sum(-1).clamp(min=1.0)
        return GREATEST * sizes.amax(-1) + (1.0 - GREATEST) * mean


@dataclass(frozen=True)
class Transitions:
    """A batch for each of K policies, on the learner's device, with the time indices of `Batch`."""

    s_tm1: Tensor  # [K, B, num_inputs]
    a_tm1: Tensor
    """[K, B] int64: actions; a MultiDiscrete action is the number of its combination of choices. If
    `branching`, its choices are separate: [K, B, choices]. Continuous actions are float32, [K, B,
    size], normalised."""
    r_t: Tensor  # [K, B], scaled
    discount_t: Tensor  # [K, B]
    s_t: Tensor  # [K, B, num_inputs]
    allowed_tm1: Tensor = NO_MASKS
    """[K, B, A] bool: actions allowed in s_tm1; if empty, all are allowed, as in `allowed_t`. If
    `branching`, A is the number of options of all choices."""
    allowed_t: Tensor = NO_MASKS
    """[K, B, A] bool: actions allowed in s_t; all if the episode terminated."""
    weights: Tensor = NO_WEIGHTS
    """[K, B]: weight of each sample in the loss; if empty, weights are equal."""

    def features_tm1(self, network: QNetwork, weights: Weights) -> Tensor:
        return network.features(weights, self.s_tm1)

    def features_t(self, network: QNetwork, weights: Weights) -> Tensor:
        return network.features(weights, self.s_t)


class ActorMetrics(NamedTuple):
    """Metrics of an algorithm with an actor and critics, each [G, B], or [G] for an update."""

    policy_loss: Tensor
    value_loss: Tensor  # sum over the critics of half the squared errors
    entropy: Tensor  # in nats
    temperature: Tensor


class Loss(NamedTuple):
    """The result of `TransitionAlgorithm.loss`."""

    losses: Tensor  # [G, B]: loss of every sample
    values: Tensor  # [G, B, ...]: values of the sample's action, for metrics
    errors: Tensor | None = None
    """[G, B]: temporal-difference errors, for prioritised replay; None: the losses are used."""
    actor: ActorMetrics | None = None  # None: the algorithm has no actor


class UpdateMetrics(NamedTuple):
    """Metrics of an update by policy, on the learner's device: [G] each except `errors`."""

    loss: Tensor  # mean loss of a batch
    gradient_norm: Tensor  # before clipping
    value: Tensor  # mean value of the batch's actions before the update
    errors: Tensor  # [G, B] errors of samples, or [G, number] priorities of sequences
    actor: ActorMetrics | None = None


CACHE = 2**20
"""Maximum bytes of a layer's activations for which a stack is faster on a CPU than single policies.

Larger activations leave the cache before the next layer reads them (measured).
"""
# factor of `CACHE` for kernels: training a stack of wide quantile networks then takes about ten
# milliseconds, and only 1% of that is the overhead of calls
FUSED = 4


@dataclass(frozen=True)
class Part:
    """Policies of a stack that are trained together."""

    first: int
    end: int
    online: ParameterStack
    target: ParameterStack


class TransitionAlgorithm(Algorithm):
    """An algorithm that trains K private networks, each on batches of its transitions.

    Only `online` receives gradients; `target` is a copy, renewed by `renew_targets`. Policies
    of a stack have the same architecture, batch size, `double` and `huber`. Noise is drawn from the
    first policy's generator, so policies with noisy layers are trained separately.

    User-defined algorithms are subclasses with `heads` and a `loss`; see docs/extend.md.
    """

    takes, masks = "transitions", False
    section: ClassVar[Section] = "dqn"
    recurrent: ClassVar[bool] = False
    """True if `loss` also takes `TransitionSequences`, so that the network may be recurrent. Not
    inherited by a class that overrides `loss`."""
    branching: ClassVar[bool] = False
    """True if `loss` supports one value per option of each choice, used if an action has too many
    combinations of choices. Not inherited by a class that overrides `loss`."""
    heads: ClassVar[Sequence[str]] = ()
    """The network's heads, each with an output for each action and separate layers. The first
    head chooses actions: by its argmax, or with `samples` by a sample from its softmax."""

    def __init__(
        self,
        configs: Sequence[PolicyConfig],
        network: Network,
        rngs: Sequence[torch.Generator],
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(configs, network, device)
        self.config, self.network = self.configs[0], network
        self._rngs = tuple(rngs)
        self.target = ParameterStack(network.shapes, len(self.configs), device)

    @classmethod
    def network_for(cls, spec: PolicySpec) -> Network:
        """Build a network with the heads of the class; raise ConfigError if it has none."""
        if not cls.heads:
            raise ConfigError(
                f"policy.algorithm {spec.config.algorithm}: the class has no heads; add "
                'for example: heads = ("policy", "q1", "q2")'
            )
        heads = dict.fromkeys(cls.heads, spec.actions.num_outputs)
        return Heads(spec.num_inputs, heads, spec.config.network, encoder_for(spec), spec.scale)

    @classmethod
    def actions_for(cls, actions: Actions, agent: str, algorithm: str) -> Actions:
        """Return the action type for an agent's actions; raise ContractError if unsupported."""
        return valued(actions, agent, algorithm, has_flag(cls, "branching", "loss"))

    @classmethod
    def learns_from_sequences(cls) -> bool:
        return has_flag(cls, "recurrent", "loss")

    @abstractmethod
    def loss(
        self, batch: Transitions, part: Part
    ) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor] | Loss:
        """Return the loss of every sample, [G, B], and the values of its action, [G, B, ...].

        Gradients flow from the loss to the online parameters; the values are metrics. A third
        tensor may hold temporal-difference errors, as in `Loss`. The caller multiplies losses by
        the samples' weights. `batch` contains only the G policies of `part`.
        """

    def head(self, part: Part, head: str, inputs: Tensor, target: bool = False) -> Tensor:
        """Return a head's outputs [G, B, A]; with `target`, those of the target network."""
        assert isinstance(self.network, Heads)
        stack = part.target if target else part.online
        return self.network.head(head, stack.parameters, inputs)

    def setting(self, part: Part, name: str) -> Tensor:
        """Return the value of one of `policy.settings` for each policy of a part: [G, 1]."""
        return self.settings_of(name, range(part.first, part.end))

    def renew_targets(self, part: Part) -> None:
        """Copy weights to the target networks every `target_every` updates."""
        for policy in range(part.first, part.end):
            if self.updates[policy] % self.configs[policy].q_learning.target_every == 0:
                self.target.flat[policy].copy_(self.online.flat[policy])

    @property
    def is_fused(self) -> bool:
        """Return whether kernels compute the updates on single transitions."""
        return False

    @property
    def width(self) -> int:
        """Return how many policies are best trained together."""
        if self.device.type != "cpu":
            return len(self.configs)
        widest = 4 * self.config.quantiles * self.config.batch_size * self.network.widest
        # Kernels process one policy after another, so nothing leaves the cache. More policies save
        # calls, but no weights are published until all of them are trained.
        most = FUSED * CACHE if self.is_fused else CACHE
        return max(most // widest, 1)

    @classmethod
    def training_layout(cls, config: PolicyConfig) -> TrainingLayout:
        """Return the layout, with the target network and the learner's exploration progress."""
        found = super().training_layout(config)
        return TrainingLayout((*found.vectors, TARGET), (*found.numbers, EXPLORED, BEGUN))

    def training(self, learned: State) -> TrainingState:
        found = super().training(learned)
        found.vectors[TARGET] = learned[TARGET]
        return found

    def take_over(self, policy: int, training: TrainingState) -> None:
        super().take_over(policy, training)
        self.target.write(policy, training.vectors[TARGET])

    def load(self, policy: int, weights: Tensor, updates: int = 0) -> None:
        super().load(policy, weights, updates)
        self.target.write(policy, weights)

    def update(
        self, batch: Transitions | TransitionSequences, first: int = 0, end: int | None = None
    ) -> UpdateMetrics:
        """Train policies `first` to `end - 1` by one step, each on its batch."""
        end = len(self.configs) if end is None else end
        part = Part(first, end, self.online.rows(first, end), self.target.rows(first, end))
        loss, value, errors, actor = self._differentiate(batch, part)
        norm = self.clip_gradients(part.online.gradients, slice(first, end))
        self.optimizer.step(range(first, end))
        for policy in range(first, end):
            self.updates[policy] += 1
        with torch.no_grad():
            self.renew_targets(part)
        return UpdateMetrics(loss, norm.squeeze(1), value, errors, actor)

    def _differentiate(
        self, batch: Transitions | TransitionSequences, part: Part
    ) -> tuple[Tensor, Tensor, Tensor, ActorMetrics | None]:
        """Write the gradients of a batch; return `UpdateMetrics` without the gradient norm."""
        # Only `recurrent` algorithms get sequences; `PolicySpec.network` ensures it.
        found = self.loss(batch, part)  # type: ignore[arg-type]
        own = found[:3] if isinstance(found, Loss) else found
        check_loss(self.configs[0].algorithm, own, batch.r_t.shape)
        losses, values, errors, actor = Loss(*found)
        errors = losses if errors is None else errors
        if batch.weights.numel():
            losses = losses * batch.weights
            if actor is not None:
                actor = actor._replace(
                    policy_loss=actor.policy_loss * batch.weights,
                    value_loss=actor.value_loss * batch.weights,
                )
        loss = losses.mean(-1)
        part.online.backward(loss.sum())
        value, errors = values.detach().flatten(1).mean(1), errors.detach()
        if isinstance(batch, TransitionSequences):
            by_step = values.detach().reshape(*batch.valid.shape, -1).mean(-1)
            value = mean_of(by_step, batch.valid)
            errors = batch.priorities(errors)
        if actor is not None:
            actor = ActorMetrics(*(each.detach().mean(-1) for each in actor))
        return loss.detach(), value, errors, actor

    def state(self, policy: int) -> State:
        return self.learned(policy) | {"stream": self._rngs[policy].get_state().numpy()}

    def learned(self, policy: int) -> State:
        return super().learned(policy) | {TARGET: self.target.read(policy)}

    def restore(self, policy: int, state: State) -> None:
        self.restore_learned(policy, state)
        restore_torch(self._rngs[policy], state, "stream")

    def restore_learned(self, policy: int, state: State) -> None:
        super().restore_learned(policy, state)
        self.target.restore(policy, state, TARGET)

    def _noise(self, part: Part) -> torch.Generator | None:
        return self._rngs[part.first] if self.config.network.noisy else None
