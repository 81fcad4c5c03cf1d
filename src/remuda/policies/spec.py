"""`PolicySpec`: the picklable data from which a process builds a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from remuda.config import PolicyConfig
from remuda.envs.observation_parts import Part, packing_of
from remuda.errors import ConfigError, ContractError, RemudaError
from remuda.policies.networks.images import Guess, Image, guess_layout
from remuda.system.memory.packing import Packing
from remuda.types import AgentSpec

if TYPE_CHECKING:
    import torch

    from remuda.policies.actions import Actions
    from remuda.policies.networks.layers import Scale
    from remuda.policies.networks.lifted import LiftedModule
    from remuda.policies.networks.network import Network
    from remuda.policies.selectors import ActionSelector
    from remuda.publish.training_state import TrainingLayout


class Critic(NamedTuple):
    """The input of a centralised critic in addition to the policy's observation."""

    kind: str  # `joint` or `state`
    parts: tuple[Part, ...]
    dtype: str  # of a row: an observation, then the critic's inputs
    scale: tuple[tuple[int, float], ...]  # of the row

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


@dataclass(frozen=True)
class PolicySpec:
    """A policy's name, configuration, observations and actions."""

    name: str
    config: PolicyConfig
    observation: tuple[int, ...]  # shape of one observation, unstacked
    dtype: npt.DTypeLike  # dtype of the environment's observations
    actions: Actions
    masked: bool = False  # whether the environment provides action masks
    scale: Scale = 1.0  # multiplies observations, so that pixels are in [0, 1]
    parts: tuple[Part, ...] = ()  # parts of an observation in order; empty: a single array
    layout: str = ""  # `hwc` or `chw` if the environment declares its image axes
    critic: Critic | None = None  # None: the value network gets the observation
    section: str = field(default="policy", compare=False)  # where its module is set, for messages

    @property
    def observation_size(self) -> int:
        return int(np.prod(self.observation, dtype=np.int64))

    @property
    def num_inputs(self) -> int:
        return self.config.n_frames * self.observation_size

    @property
    def stored(self) -> tuple[int, ...]:
        """Return the shape in which experience stores an observation, with a critic's inputs."""
        if self.packing is not None:
            return (self.packing.size,)
        if self.critic is None:
            return self.observation
        return (self.observation_size + self.critic.size,)

    @property
    def stored_dtype(self) -> npt.DTypeLike:
        if self.packing is not None:
            return np.uint8
        return self.dtype if self.critic is None else self.critic.dtype

    @property
    def packing(self) -> Packing | None:
        """Return how experience packs an observation, with a critic's inputs; None: it does not."""
        added = () if self.critic is None else self.critic.parts
        return packing_of(self.parts, self.dtype, added)

    @property
    def memory(self) -> int:
        """Return the size of the network's recurrent state; 0: not recurrent."""
        network = self.config.network
        if not network.module:
            return network.recurrent
        return self.module().memory or network.recurrent

    def module(self) -> LiftedModule:
        """Return the user's module, which all callers share, so copy it first.

        Stacked frames come first in its input shape.
        """
        from remuda.policies.networks.lifted import lifted

        network, frames = self.config.network, self.config.n_frames
        shape = (frames, *self.observation) if frames > 1 else self.observation
        # A single array is a part without a name.
        parts = tuple(part for part in self.parts if part.name)
        try:
            return lifted(network.module, network.options, shape, self.module_key, parts)
        except RemudaError as error:
            if frames > 1 and f"[2, {frames}, " in str(error):  # the module cannot take the shape
                error.args = (
                    f"{error}. The module gets {frames} stacked frames of shape "
                    f"{[*self.observation]} (policy.n_frames); with --policy.n_frames 1 it gets "
                    "one",
                )
            raise

    @property
    def module_key(self) -> str:
        return f"{self.section}.network.module"

    @property
    def specification(self) -> tuple[object, ...]:
        """Return a key; policies with equal keys can be trained as one stack."""
        config, ppo = self.config, self.config.ppo
        numbers = config.entry.hyperparameters
        own = config.q_learning.model_dump_json(exclude={"target_every"})
        shape: tuple[object, ...] = (config.batch_size, own, config.sac.learn_temperature)
        if self.memory:  # recurrent policies learn from whole segments
            shape += (config.experience.segment_length,)
        if config.rollout_length:
            shape = (
                config.experience,
                ppo.rollout_length,
                ppo.epochs,
                ppo.minibatches,
                ppo.normalise_advantages,
                ppo.normalise_observations,
                ppo.normalise_values,
                ppo.anchor_cost > 0.0,
                config.learning_mode,
                config.replays,
            )
        return (
            config.algorithm,
            # Float settings may differ in a stack, like other hyperparameters.
            repr({k: v for k, v in config.settings.items() if f"settings.{k}" not in numbers}),
            config.network.model_dump_json(exclude={"shared"}),
            config.shares_network,
            # Noise is drawn for a whole stack, so noisy policies are trained separately.
            self.name if config.network.noisy else "",
            config.n_frames,
            config.priority,
            config.time_budget,
            shape,
            self.observation,
            str(np.dtype(self.dtype)),
            self.scale,
            self.parts,
            self.layout,
            self.critic,
            repr(self.actions),
            self.masked,
        )

    def action_selector(self) -> ActionSelector:
        from remuda.policies.selectors import EpsilonGreedy, Sampled

        return (Sampled if self.config.entry.samples else EpsilonGreedy)(self.actions)

    def network(self) -> Network:
        """Build the network; raise ConfigError if the algorithm does not support recurrence."""
        entry = self.config.entry
        kind: Any = entry.load()
        if entry.takes == "transitions" and self.memory and not kind.learns_from_sequences():
            raise ConfigError(
                f"policy.algorithm {self.config.algorithm} learns from single steps, so its "
                "network cannot be recurrent: remove network.recurrent, or the state_size "
                "of its module, or use ppo"
            )
        found: Network = kind.network_for(self)
        return found

    @property
    def pictures(self) -> tuple[Image, ...]:
        """Return the parts of an observation that are images.

        These have three axes, or two axes of pixels. If there are none, return all with two axes.
        """
        parts = self.parts or (Part("", 0, self.observation, self.scale != 1.0),)
        flat = [part for part in parts if len(part.shape) == 2]
        found = [p for p in parts if len(p.shape) == 3 or (len(p.shape) == 2 and p.is_pixels)]
        pictures = []
        for part in found or flat:
            layout = self.layout_of(part).layout
            if not layout:
                raise ConfigError(
                    f"policy.network.layout: {self.name} observes {self.described(part)}, which "
                    "may be height x width x channels or channels x height x width; set it to hwc "
                    "or chw"
                )
            shape = (1, *part.shape) if len(part.shape) == 2 else part.shape
            channels, height, width = (shape[2], *shape[:2]) if layout == "hwc" else shape
            last, frames = layout == "hwc", self.config.n_frames
            pictures.append(Image(channels, height, width, last, frames, part.start))
        return tuple(pictures)

    def layout_of(self, part: Part) -> Guess:
        """Return an image's layout: from the configuration, else the environment, else a guess."""
        layout = self.layout if self.config.network.layout == "auto" else self.config.network.layout
        if len(part.shape) == 2:
            return Guess("chw", True)
        return Guess(layout, True) if layout else guess_layout(part.shape, part.is_pixels)

    def described(self, part: Part) -> str:
        shape = " x ".join(map(str, part.shape))
        return f"{part.name} of {shape}" if part.name else shape


def make_algorithm(specs: Sequence[PolicySpec], streams: Sequence[Any], device: str = "cpu") -> Any:
    """Build a stack's algorithm; `streams` are random generators: NumPy (rollouts) or torch."""
    kind: Any = specs[0].config.entry.load()
    return kind([spec.config for spec in specs], specs[0].network(), streams, device)


def training_layout(spec: PolicySpec) -> TrainingLayout:
    """Return the layout of a policy's training state, without its weights."""
    kind: Any = spec.config.entry.load()
    found: TrainingLayout = kind.training_layout(spec.config)
    return found


def first_weights(spec: PolicySpec, stream: torch.Generator) -> np.ndarray:
    """Draw initial weights: [P]."""
    from remuda.policies.stack import ParameterStack

    network = spec.network()
    stack = ParameterStack(network.shapes, 1)
    network.initialise(stack.parameters, stream)
    return stack.flat[0].numpy()


def check_first_weights(spec: PolicySpec, weights: np.ndarray) -> None:
    """Raise ContractError if an initial parameter (not a buffer) is not finite."""
    import torch

    from remuda.policies.stack import ParameterStack

    if np.isfinite(weights).all():
        return
    network = spec.network()
    stack = ParameterStack(network.shapes, 1)
    stack.flat[0].copy_(torch.from_numpy(weights))
    for name, parameter in stack.parameters.items():
        if name not in network.buffers and not bool(torch.isfinite(parameter).all()):
            raise ContractError(
                f"policy {spec.name}: its initial parameter {name} contains a number "
                "that is not finite, so nothing could be learned; initialise it with finite "
                "numbers, or make it a buffer if it is a constant"
            )


def alike(one: AgentSpec, other: AgentSpec) -> bool:
    """Return whether one policy can play both agents' seats."""
    return (
        one.observation_space == other.observation_space
        and one.action_space == other.action_space
        and one.masked == other.masked
    )


def kinds_of(agents: Sequence[AgentSpec]) -> list[int]:
    """Return, for each agent, the index of the first agent that is `alike`."""
    kinds: list[int] = []
    for i, agent in enumerate(agents):
        firsts = [k for k, first in enumerate(kinds) if k == first]
        kinds.append(next((k for k in firsts if alike(agents[k], agent)), i))
    return kinds
