"""The networks of SAC, for K policies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.actions import Actions
from remuda.policies.continuous_actions import SquashedActions
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.networks.layers import Scale, initialise_layer, linear_shapes, scaled
from remuda.policies.networks.network import Network, apply
from remuda.policies.stack import Parameters, Shapes

POLICY, CRITICS = "policy", ("q1", "q2")
LOG_TEMPERATURE = "log_temperature"


class SoftActorCritic(Network):
    """A policy, two critics with separate layers and encoders, and the logarithm of a temperature.

    Critics of continuous actions take the action beside the features of the observation; those of
    discrete actions have an output for each action.
    """

    def __init__(
        self,
        num_inputs: int,
        actions: Actions,
        config: NetworkConfig,
        temperature: float,  # the initial one
        learn_temperature: bool = True,  # else it is a buffer that nothing reads
        encoder: Encoder | None = None,
        scale: Scale = 1.0,
    ) -> None:
        super().__init__(num_inputs, config, encoder, scale)
        self.actions, self._temperature = actions, temperature
        self.is_continuous = isinstance(actions, SquashedActions)
        self.layers = tuple(layer for head in (POLICY, *CRITICS) for layer in self.tower(head))
        if encoder is None and scale == 1.0:
            self.plain_layers = self.tower(POLICY)
        shapes, width = self._tower_shapes(POLICY)
        found = shapes | linear_shapes(POLICY, width, actions.num_outputs)
        outputs = 1 if self.is_continuous else actions.num_outputs
        for critic in CRITICS:
            shapes, width = self._tower_shapes(critic)
            shapes |= linear_shapes(critic, width, outputs)
            if self.is_continuous:
                first = f"{self.tower(critic)[0]}.weight"
                inputs, units = shapes[first]
                shapes[first] = inputs + actions.size, units
            found |= shapes
        self.shapes: Shapes = found | {LOG_TEMPERATURE: (1, 1)}
        if not learn_temperature:
            self.buffers |= {LOG_TEMPERATURE}

    def initialise(self, parameters: Parameters, generator: torch.Generator) -> None:
        for head in (POLICY, *CRITICS):
            self._initialise_encoder(head, parameters, generator)
            for layer in self.tower(head):
                initialise_layer(parameters, layer, generator)
        with torch.no_grad():
            parameters[LOG_TEMPERATURE].fill_(math.log(self._temperature))

    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:  # noqa: ARG002
        return self._taken(parameters, POLICY, self.tower(POLICY))

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        x = self._tower(weights, POLICY, scaled(inputs, self.input_scale))
        return apply(weights, POLICY, x)

    def values(
        self, parameters: Parameters, inputs: Tensor, actions: Tensor | None
    ) -> list[Tensor]:
        """Return both critics' values.

        They are [K, B] for continuous actions [K, B, size], and [K, B, A] without `actions`.
        """
        weights, inputs, found = dict(parameters), scaled(inputs, self.input_scale), []
        for critic in CRITICS:
            x = inputs
            if self.encoder is not None:
                x = self.encoder.features(critic, weights, inputs)
            if actions is not None:
                x = torch.cat((actions, x), -1)  # first, so that more features move no weights
            x = apply(weights, critic, self._through_hidden(weights, critic, x))
            found.append(x if actions is None else x.squeeze(-1))
        return found

    def tower(self, head: str) -> tuple[str, ...]:
        """Return the names of the linear layers up to a head."""
        return (*self._hidden(head), head)

    def _hidden(self, tower: str) -> tuple[str, ...]:
        return tuple(f"{tower}_hidden{i}" for i in range(len(self.config.hidden)))
