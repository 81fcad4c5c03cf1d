"""Networks with a policy head and a value head, for K policies."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.actions import Actions
from remuda.policies.advantages import RunningMoments
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.networks.kernels.perceptron import LINEAR, through
from remuda.policies.networks.layers import Scale, linear_shapes, scaled
from remuda.policies.networks.network import Network, apply, gate_shapes
from remuda.policies.networks.value_normalisation import (
    VALUE_COUNT,
    VALUE_MEAN,
    VALUE_VARIANCE,
    real_values,
)
from remuda.policies.stack import Parameters, Shapes
from remuda.system.memory.packing import Packing
from remuda.types import Floats

# buffers of the moments that normalise observations
MEAN, VARIANCE, COUNT = "observations.mean", "observations.variance", "observations.count"
VALUE = "value_hidden"  # the hidden layers of a value network that shares none
INPUT_LIMIT = 10.0  # bound of normalised observations


class CriticInput(NamedTuple):
    """The input of a value network that gets more than the observation.

    A row [n_frames * (size + added)] holds stacked frames, each an observation and what is added.
    """

    size: int  # numbers in an observation, unstacked
    added: int  # numbers that only the value network gets
    frames: int
    scale: Scale = 1.0  # multiplies rows

    @property
    def num_inputs(self) -> int:
        return self.frames * (self.size + self.added)

    @property
    def is_plain(self) -> bool:
        """Return whether observations are the first columns, and one factor scales all."""
        return self.frames == 1 and isinstance(self.scale, float)

    def widened(self, observations: Floats) -> Floats:
        """Return rows with these stacked observations, and zeros for what is added to them."""
        frames = observations.reshape(len(observations), self.frames, self.size)
        rows = np.pad(frames, ((0, 0), (0, 0), (0, self.added)))
        return rows.reshape(len(observations), self.num_inputs)

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return stacked observations, and the rest."""
        frames = rows.reshape(*rows.shape[:-1], self.frames, self.size + self.added)
        return frames[..., : self.size].flatten(-2), frames[..., self.size :].flatten(-2)


class ActorCritic(Network):
    """Hidden layers, shared or separate, with a policy head and a value head.

    An encoder may precede the hidden layers, and a gated recurrent layer may follow them. Initial
    weights are orthogonal, with gain sqrt(2) in convolutions and hidden layers, 1 in the recurrent
    layer, and 0.01 in both heads, so that a new policy is close to uniform (Andrychowicz et al.
    2021).
    """

    def __init__(
        self,
        num_inputs: int,
        actions: Actions,
        config: NetworkConfig,
        normalised: bool = False,  # normalise observations by their moments, which are buffers
        encoder: Encoder | None = None,
        scale: Scale = 1.0,  # multiplies inputs
        value_normalisation: bool = False,  # PopArt
        shared: bool | None = None,  # both share all layers but the last; None: as configured
        critic: CriticInput | None = None,  # None: the value network gets the observation
        value_encoder: Encoder | None = None,  # precedes the value network's layers; gets the row
        packing: Packing | None = None,  # of stored rows
    ) -> None:
        super().__init__(num_inputs, config, encoder, scale)
        self.actions, self.normalised = actions, normalised
        self.memory = (encoder.memory if encoder is not None else 0) or config.recurrent
        self.shared = shared = config.serves_both if shared is None else shared
        self.critic, self.value_encoder, self.packing = critic, value_encoder, packing
        # numbers in a stored observation, from which the value network's inputs are made
        self.row_inputs = num_inputs if critic is None else critic.num_inputs
        self.settings += (f"shared {shared}", *([repr(critic)] if critic is not None else []))
        self._towers = ("hidden",) if shared else ("policy_hidden", VALUE)
        # the hidden layers of each tower: the policy's first, the value's last
        self.towers = tuple(self._hidden(tower) for tower in self._towers)
        towers: list[str] = []
        for tower in self._towers:
            found = self._encoder_of(tower)
            if found is not None:
                towers += found.layers(tower)
            towers += self._hidden(tower)
        self.layers = (*towers, *self._gates, "policy", "value")
        if not (encoder or self.memory or normalised or actions.num_scales or scale != 1.0):
            self.plain_layers = (*self.towers[0], "policy")
        shapes: dict[str, tuple[int, ...]] = {}
        own, width = self._tower_shapes(self._towers[0])
        shapes |= own
        value_width = width
        if not shared:
            own, value_width = self._value_shapes()
            shapes |= own
        if self._gates:
            shapes |= gate_shapes(width, self.memory)
            width = self.memory
        shapes |= linear_shapes("policy", width, actions.num_logits)
        shapes |= linear_shapes("value", width if shared else value_width, 1)
        if actions.num_scales:
            shapes["log_scale"] = (1, actions.num_scales)
        if normalised:
            width = self.row_inputs
            shapes |= {MEAN: (1, width), VARIANCE: (1, width), COUNT: (1, 1)}
            self.buffers |= {MEAN, VARIANCE, COUNT}
        self.value_normalisation = value_normalisation
        if value_normalisation:
            moments = (VALUE_MEAN, VALUE_VARIANCE, VALUE_COUNT)
            shapes |= dict.fromkeys(moments, (1, 1))
            self.buffers |= set(moments)
        self.shapes: Shapes = shapes

    def initialise(self, parameters: Parameters, generator: torch.Generator) -> None:
        gains = {"policy": 0.01, "value": 0.01, "gates_in": 1.0, "gates_memory": 1.0}
        with torch.no_grad():
            for layer in self.layers:
                weight = torch.empty(parameters[f"{layer}.weight"].shape[1:], dtype=torch.float32)
                gain = gains.get(layer, math.sqrt(2.0))
                torch.nn.init.orthogonal_(weight, gain, generator)
                parameters[f"{layer}.weight"].copy_(weight)
                parameters[f"{layer}.bias"].zero_()
            if self.normalised:
                parameters[VARIANCE].fill_(1.0)
        for tower in self._towers:
            encoder = self._encoder_of(tower)
            if encoder is not None:
                encoder.initialise(tower, parameters, generator)

    @property
    def input_sizes(self) -> tuple[int, int]:
        """Return the number of inputs of the policy and of the value network."""
        return self.num_inputs, self.row_inputs

    def _encoder_of(self, tower: str) -> Encoder | None:
        is_value = tower != self._towers[0]
        return self.value_encoder if is_value and self.value_encoder is not None else self.encoder

    def _value_shapes(self) -> tuple[dict[str, tuple[int, ...]], int]:
        """Return the shapes of the value network's layers before its head, and their width."""
        if self.critic is None and self.value_encoder is None:
            return self._tower_shapes(VALUE)
        shapes: dict[str, tuple[int, ...]] = {}
        width, encoder = self.row_inputs, self._encoder_of(VALUE)
        if encoder is not None:
            shapes, width = encoder.shapes(VALUE), encoder.width
            self.buffers |= encoder.buffers(VALUE)
            if self.value_encoder is None and self.critic is not None:
                width += self.critic.frames * self.critic.added
        for layer, units in zip(self._hidden(VALUE), self.config.hidden, strict=True):
            shapes |= linear_shapes(layer, width, units)
            width = units
        return shapes, width

    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:  # noqa: ARG002
        tower = self._towers[0]
        weights = self._taken(parameters, tower, (*self._hidden(tower), *self._gates, "policy"))
        if self.actions.num_scales:
            weights["log_scale"] = parameters["log_scale"]
        moments = self._moments(parameters)
        if self.critic is not None:
            moments = {name: self.critic.split(each)[0] for name, each in moments.items()}
        return weights | moments

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        x = self._tower(weights, self._towers[0], self._prepared(weights, inputs))
        return self._with_scales(weights, apply(weights, "policy", x))

    def step(self, weights: Weights, inputs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self._prepared(weights, inputs)
        x, memory = self._recurrent_step(weights, self._towers[0], inputs, memory)
        return self._with_scales(weights, apply(weights, "policy", x)), memory

    def policy_and_value(
        self, parameters: Parameters, inputs: Tensor, memory: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return policy outputs [K, B, num_outputs] and values [K, B] for rows from `prepare`.

        `memory` [K, G, memory] is the state before each of G sequences of equal length, which
        follow each other in the B inputs.
        """
        weights = dict(parameters)
        own = inputs if self.critic is None else self.critic.split(inputs)[0]
        if memory is None:
            x = self._tower(weights, self._towers[0], own)
        else:
            x = self._unrolled(weights, self._towers[0], own, memory)
        if not self.shared:
            values = apply(weights, "value", self._value_features(weights, inputs))
            return self._with_scales(weights, apply(weights, "policy", x)), values.squeeze(-1)
        # One product for both heads.
        weight = torch.cat((weights["policy.weight"], weights["value.weight"]), -1)
        bias = torch.cat((weights["policy.bias"], weights["value.bias"]), -1)
        both = through(x, [(weight, bias)], LINEAR)
        return self._with_scales(weights, both[..., :-1]), both[..., -1]

    def _value_features(self, weights: Weights, rows: Tensor) -> Tensor:
        if self.value_encoder is not None:
            x = self.value_encoder.features(VALUE, weights, rows)
        elif self.encoder is None:
            x = rows
        elif self.critic is None:
            x = self.encoder.features(VALUE, weights, rows)
        else:
            own, added = self.critic.split(rows)
            x = torch.cat((self.encoder.features(VALUE, weights, own), added), -1)
        return self._through_hidden(weights, VALUE, x)

    def state_values(
        self, parameters: Parameters, observations: Tensor, memory: Tensor | None = None
    ) -> Tensor:
        """Return values [K, B], in the units of training rewards, for states [K, B, memory]."""
        inputs = self.prepare(parameters, observations)
        values = self.policy_and_value(parameters, inputs, memory)[1]
        return real_values(parameters, values) if self.value_normalisation else values

    def prepare(self, parameters: Parameters, observations: Tensor) -> Tensor:
        """Convert stored rows [K, B, ...] of any dtype to inputs of both networks."""
        with torch.no_grad():
            rows = self._numbers(observations)
            if self.critic is None or self.normalised:
                return self._prepared(self._moments(parameters), rows)
            return scaled(rows, self.critic.scale)

    def _numbers(self, observations: Tensor) -> Tensor:
        if self.packing is None or observations.is_floating_point():
            return observations.float()
        return self.packing.unpack_tensor(observations)

    def _moments(self, parameters: Parameters) -> Weights:
        """Return the weights that normalise observations, if there are any."""
        if not self.normalised:
            return {}
        return {"mean": parameters[MEAN], "scale": scale_of(parameters[VARIANCE])}

    def _prepared(self, weights: Weights, inputs: Tensor) -> Tensor:
        if self.normalised:
            normal = (inputs - weights["mean"]) * weights["scale"]
            return normal.clamp(-INPUT_LIMIT, INPUT_LIMIT)
        return scaled(inputs, self.input_scale)

    def _with_scales(self, weights: Weights, logits: Tensor) -> Tensor:
        if not self.actions.num_scales:
            return logits
        scales = weights["log_scale"].expand(*logits.shape[:-1], -1)
        return torch.cat((logits, scales), -1)


def count_observations(buffers: Parameters, observations: np.ndarray) -> None:
    """Add observations [N, num_inputs] to the moments that normalise one policy's observations."""
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


def scale_of(variance: Tensor) -> Tensor:
    """Return the factor that normalises inputs of this variance."""
    return (variance + 1e-8).rsqrt()
