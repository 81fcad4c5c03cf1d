"""A policy and the value of what it sees, for K policies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.actions import Actions
from remuda.policies.networks.layers import linear_shapes
from remuda.policies.networks.network import Network, Weights, activate, apply
from remuda.policies.stack import Parameters, Shapes

MEAN, VARIANCE, COUNT = "observations.mean", "observations.variance", "observations.count"
"""Buffers of what was seen so far, by which inputs are normalised."""
INPUT_LIMIT = 10.0
"""How far a normalised input counts from 0."""


class ActorCritic(Network):
    """Hidden layers, shared or one set each, a head for the policy and a head for the value.

    The policy's head gives the parameters of a distribution (`remuda.policies.actions`). Weights
    are drawn orthogonal, with a gain of sqrt(2) in hidden layers, 0.01 in the policy's head, so
    that a fresh policy is close to uniform, and 1 in the value's (Andrychowicz et al. 2021).
    """

    def __init__(
        self, num_inputs: int, actions: Actions, config: NetworkConfig, normalised: bool = False
    ) -> None:
        super().__init__(num_inputs, config)
        self.actions, self.normalised = actions, normalised
        widths = (num_inputs, *config.hidden)
        shapes: dict[str, tuple[int, ...]] = {}
        for tower in self._towers:
            for i in range(len(config.hidden)):
                shapes |= linear_shapes(f"{tower}{i}", widths[i], widths[i + 1])
        shapes |= linear_shapes("policy", widths[-1], actions.num_logits)
        shapes |= linear_shapes("value", widths[-1], 1)
        if actions.num_scales:
            shapes["log_scale"] = (1, actions.num_scales)
        if normalised:
            shapes |= {MEAN: (1, num_inputs), VARIANCE: (1, num_inputs), COUNT: (1, 1)}
            self.buffers = frozenset((MEAN, VARIANCE, COUNT))
        self.shapes: Shapes = shapes

    @property
    def _towers(self) -> tuple[str, ...]:
        return ("hidden",) if self.config.shared else ("policy_hidden", "value_hidden")

    @property
    def layers(self) -> tuple[str, ...]:
        """The hidden layers of each tower, then the two heads."""
        hidden = range(len(self.config.hidden))
        return (*(f"{tower}{i}" for tower in self._towers for i in hidden), "policy", "value")

    def initialise(self, parameters: Parameters, generator: torch.Generator) -> None:
        """Draw the parameters of one policy, views [1, ...]."""
        gains = {"policy": 0.01, "value": 1.0}
        with torch.no_grad():
            for layer in self.layers:
                weight = torch.empty(parameters[f"{layer}.weight"].shape[1:])
                gain = gains.get(layer, math.sqrt(2.0))
                torch.nn.init.orthogonal_(weight, gain, generator)
                parameters[f"{layer}.weight"].copy_(weight)
                parameters[f"{layer}.bias"].zero_()
            if self.normalised:
                parameters[VARIANCE].fill_(1.0)

    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:  # noqa: ARG002
        """The weights that the policy needs; a value is for those who learn."""
        tower = self._towers[0]
        weights = {
            f"{layer}.{part}": parameters[f"{layer}.{part}"]
            for layer in (*self._hidden(tower), "policy")
            for part in ("weight", "bias")
        }
        if self.actions.num_scales:
            weights["log_scale"] = parameters["log_scale"]
        if self.normalised:
            weights |= {"mean": parameters[MEAN], "scale": _scale(parameters)}
        return weights

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        """The parameters of the policies' distributions: [K, B, num_outputs]."""
        if self.normalised:
            inputs = _normalise(inputs, weights["mean"], weights["scale"])
        x = self._features(weights, self._towers[0], inputs)
        return self._with_scales(weights, apply(weights, "policy", x))

    def policy_and_value(self, parameters: Parameters, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Distributions [K, B, num_outputs] and values [K, B] of inputs [K, B, num_inputs].

        The inputs are normalised already, by `prepare`: a batch is prepared once and used often.
        """
        weights = dict(parameters)
        x = self._features(weights, self._towers[0], inputs)
        if not self.config.shared:
            values = apply(weights, "value", self._features(weights, "value_hidden", inputs))
            return self._with_scales(weights, apply(weights, "policy", x)), values.squeeze(-1)
        # One product for both heads.
        weight = torch.cat((weights["policy.weight"], weights["value.weight"]), -1)
        bias = torch.cat((weights["policy.bias"], weights["value.bias"]), -1)
        both = torch.baddbmm(bias, x, weight)
        return self._with_scales(weights, both[..., :-1]), both[..., -1]

    def prepare(self, parameters: Parameters, observations: Tensor) -> Tensor:
        """Inputs of the network from observations [K, B, num_inputs] of any dtype."""
        inputs = observations.float()
        if not self.normalised:
            return inputs
        with torch.no_grad():
            return _normalise(inputs, parameters[MEAN], _scale(parameters))

    def _features(self, weights: Weights, tower: str, inputs: Tensor) -> Tensor:
        x = inputs
        for layer in self._hidden(tower):
            x = activate(apply(weights, layer, x), self.config)
        return x

    def _hidden(self, tower: str) -> tuple[str, ...]:
        return tuple(f"{tower}{i}" for i in range(len(self.config.hidden)))

    def _with_scales(self, weights: Weights, logits: Tensor) -> Tensor:
        if not self.actions.num_scales:
            return logits
        scales = weights["log_scale"].expand(*logits.shape[:-1], -1)
        return torch.cat((logits, scales), -1)


def _scale(parameters: Parameters) -> Tensor:
    return (parameters[VARIANCE] + 1e-8).rsqrt()


def _normalise(inputs: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    return ((inputs - mean) * scale).clamp(-INPUT_LIMIT, INPUT_LIMIT)
