"""Acting: the networks of K policies of one layout, renewed from snapshots, and exploration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numba import njit
from torch import Tensor

from remuda.checkpoint.state import fitting
from remuda.policies.networks.q_network import QNetwork, Weights
from remuda.policies.stack import ParameterStack
from remuda.types import Floats, Integers, State


class ActingStack:
    """K policies that act and never learn.

    A policy's plain weights are worked out when its snapshot is loaded, once per version, so that a
    pass is nothing but matrix products. With noisy layers that is also when their noise is drawn;
    without a noise stream the policy acts on the means.
    """

    def __init__(
        self,
        network: QNetwork,
        noise: Sequence[torch.Generator | None],
        device: str | torch.device = "cpu",
    ) -> None:
        self.network, self._noise, self._device = network, tuple(noise), torch.device(device)
        self._stack = ParameterStack(network.shapes, len(self._noise), device)
        with torch.inference_mode():
            self._weights = network.acting(self._stack.parameters, None)
            # `acting` may hand on views of the parameters; what is acted on is the stack's own.
            self._weights = {name: weight.clone() for name, weight in self._weights.items()}
        self._of: list[Weights] = [
            {name: weight[k : k + 1] for name, weight in self._weights.items()}
            for k in range(len(self._noise))
        ]

    def load(self, policy: int, weights: Floats) -> None:
        """Take these weights [P] as the newest of one policy."""
        with torch.inference_mode():
            self._stack.flat[policy].copy_(torch.from_numpy(weights))
            fresh = self.network.acting(self._stack.of(policy), self._noise[policy])
            for name, weight in fresh.items():
                self._of[policy][name].copy_(weight)

    def state(self, policy: int) -> State:
        """One policy's weights with the noise it acts with, and its stream."""
        noise = self._noise[policy]
        return {
            "plain": {name: w[0].cpu().numpy().copy() for name, w in self._of[policy].items()},
            "noise": noise.get_state().numpy() if noise is not None else None,
        }

    def restore(self, policy: int, state: State) -> None:
        """Let one policy act as it did when `state` was called."""
        with torch.inference_mode():
            for name, weight in self._of[policy].items():
                saved = fitting(state["plain"], name, weight[0].cpu().numpy())
                weight[0].copy_(torch.from_numpy(saved))
        noise = self._noise[policy]
        if noise is not None:
            noise.set_state(torch.from_numpy(state["noise"]))

    def act(self, policy: int, inputs: Tensor) -> Integers:
        """The greedy actions [B] of one policy for stacked observations [B, num_inputs]."""
        with torch.inference_mode():
            values = self.network.values(self._of[policy], inputs.to(self._device).unsqueeze(0))
            actions: Integers = values.argmax(-1)[0].cpu().numpy()
            return actions

    def values(self, policy: int, inputs: Tensor) -> Floats:
        """The action values [B, A] of one policy for stacked observations [B, num_inputs]."""
        with torch.inference_mode():
            values = self.network.values(self._of[policy], inputs.to(self._device).unsqueeze(0))
            as_numpy: Floats = values[0].cpu().numpy()
            return as_numpy


@njit(cache=True)
def explore(actions: Integers, uniforms: np.ndarray, epsilon: float, num_actions: int) -> None:
    """Replace each action, with probability `epsilon`, by a uniformly drawn one, in place.

    One uniform number decides both: given that it is below epsilon, it is uniform below epsilon.
    """
    for i in range(actions.size):
        if uniforms[i] < epsilon:
            actions[i] = min(int(uniforms[i] / epsilon * num_actions), num_actions - 1)
