"""Networks with a policy head and a value head, for K policies."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.actions import Actions
from remuda.policies.advantages import RunningMoments
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.networks.kernels.perceptron import LINEAR, through
from remuda.policies.networks.layers import Scale, linear_shapes, scaled
from remuda.policies.networks.network import (
    Network,
    apply,
    apply_hidden,
    gate_shapes,
    recur,
    unroll_recurrent,
)
from remuda.policies.networks.value_normalisation import (
    VALUE_COUNT,
    VALUE_MEAN,
    VALUE_VARIANCE,
    real_values,
)
from remuda.policies.stack import Parameters, Shapes

# buffers of the moments that normalise observations
MEAN, VARIANCE, COUNT = "observations.mean", "observations.variance", "observations.count"
INPUT_LIMIT = 10.0  # bound of normalised observations


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
    ) -> None:
        super().__init__(num_inputs, config, encoder, scale)
        self.actions, self.normalised = actions, normalised
        self.memory = (encoder.memory if encoder is not None else 0) or config.recurrent
        both = config.serves_both
        self.settings += (f"shared {both}",)
        self._towers = ("hidden",) if both else ("policy_hidden", "value_hidden")
        # the hidden layers of each tower: the policy's first, the value's last
        self.towers = tuple(self._hidden(tower) for tower in self._towers)
        towers = (layer for tower in self._towers for layer in self._of_tower(tower))
        self.layers = (*towers, *self._gates, "policy", "value")
        if not (encoder or self.memory or normalised or actions.num_scales or scale != 1.0):
            self.plain_layers = (*self.towers[0], "policy")
        shapes: dict[str, tuple[int, ...]] = {}
        for tower in self._towers:
            own, width = self._tower_shapes(tower, self._hidden(tower))
            shapes |= own
        if self._gates:
            shapes |= gate_shapes(width, self.memory)
            width = self.memory
        shapes |= linear_shapes("policy", width, actions.num_logits)
        shapes |= linear_shapes("value", width, 1)
        if actions.num_scales:
            shapes["log_scale"] = (1, actions.num_scales)
        if normalised:
            shapes |= {MEAN: (1, num_inputs), VARIANCE: (1, num_inputs), COUNT: (1, 1)}
            self.buffers |= {MEAN, VARIANCE, COUNT}
        self.value_normalisation = value_normalisation
        if value_normalisation:
            moments = (VALUE_MEAN, VALUE_VARIANCE, VALUE_COUNT)
            shapes |= dict.fromkeys(moments, (1, 1))
            self.buffers |= set(moments)
        self.shapes: Shapes = shapes

    def _of_tower(self, tower: str) -> tuple[str, ...]:
        first = self.encoder.layers(tower) if self.encoder is not None else ()
        return (*first, *self._hidden(tower))

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
        if self.encoder is not None:
            for tower in self._towers:
                self.encoder.initialise(tower, parameters, generator)

    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:  # noqa: ARG002
        tower = self._towers[0]
        weights = self._taken(parameters, tower, (*self._hidden(tower), *self._gates, "policy"))
        if self.actions.num_scales:
            weights["log_scale"] = parameters["log_scale"]
        if self.normalised:
            weights |= {"mean": parameters[MEAN], "scale": scale_of(parameters[VARIANCE])}
        return weights

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        x = self._features(weights, self._towers[0], self._prepared(weights, inputs))
        return self._with_scales(weights, apply(weights, "policy", x))

    def step(self, weights: Weights, inputs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        tower, inputs = self._towers[0], self._prepared(weights, inputs)
        if self._gates:
            x = self._features(weights, tower, inputs)
            x = memory = recur(weights, apply(weights, "gates_in", x), memory)
        else:
            assert self.encoder is not None
            x, memory = self.encoder.step(tower, weights, inputs, memory)
            x = self._through_hidden(weights, tower, x)
        return self._with_scales(weights, apply(weights, "policy", x)), memory

    def policy_and_value(
        self, parameters: Parameters, inputs: Tensor, memory: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return policy outputs [K, B, num_outputs] and values [K, B] for inputs from `prepare`.

        `memory` [K, G, memory] is the state before each of G sequences of equal length, which
        follow each other in the B inputs.
        """
        weights = dict(parameters)
        if memory is not None and self.encoder is not None and self.encoder.memory:
            x = self.encoder.unroll_features(self._towers[0], weights, inputs, memory)
            x = self._through_hidden(weights, self._towers[0], x)
        else:
            x = self._features(weights, self._towers[0], inputs)
            if memory is not None:
                x = unroll_recurrent(weights, x, memory)
        if not self.config.serves_both:
            values = apply(weights, "value", self._features(weights, "value_hidden", inputs))
            return self._with_scales(weights, apply(weights, "policy", x)), values.squeeze(-1)
        # One product for both heads.
        weight = torch.cat((weights["policy.weight"], weights["value.weight"]), -1)
        bias = torch.cat((weights["policy.bias"], weights["value.bias"]), -1)
        both = through(x, [(weight, bias)], LINEAR)
        return self._with_scales(weights, both[..., :-1]), both[..., -1]

    def state_values(
        self, parameters: Parameters, observations: Tensor, memory: Tensor | None = None
    ) -> Tensor:
        """Return values in the units of the training rewards."""
        moments: Weights = {}
        if self.normalised:
            moments = {"mean": parameters[MEAN], "scale": scale_of(parameters[VARIANCE])}
        inputs = self._prepared(moments, observations)
        values = self.policy_and_value(parameters, inputs, memory)[1]
        return real_values(parameters, values) if self.value_normalisation else values

    def prepare(self, parameters: Parameters, observations: Tensor) -> Tensor:
        """Convert observations [K, B, num_inputs] of any dtype to network inputs."""
        with torch.no_grad():
            if not self.normalised:
                return self._prepared({}, observations.float())
            weights = {"mean": parameters[MEAN], "scale": scale_of(parameters[VARIANCE])}
            return self._prepared(weights, observations.float())

    def _prepared(self, weights: Weights, inputs: Tensor) -> Tensor:
        if self.normalised:
            return _normalise(inputs, weights["mean"], weights["scale"])
        return scaled(inputs, self.input_scale)

    def _features(self, weights: Weights, tower: str, inputs: Tensor) -> Tensor:
        x = inputs if self.encoder is None else self.encoder.features(tower, weights, inputs)
        return self._through_hidden(weights, tower, x)

    def _through_hidden(self, weights: Weights, tower: str, x: Tensor) -> Tensor:
        return apply_hidden(weights, self._hidden(tower), x, self.config.activation)

    def _hidden(self, tower: str) -> tuple[str, ...]:
        return tuple(f"{tower}{i}" for i in range(len(self.config.hidden)))

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


def _normalise(inputs: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    return ((inputs - mean) * scale).clamp(-INPUT_LIMIT, INPUT_LIMIT)
