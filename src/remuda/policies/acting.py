"""Inference for K policies of one network layout, updated from published snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.kernels.compiled_pass import CompiledPass, GatheredPass
from remuda.policies.networks.network import Network
from remuda.policies.stack import ParameterStack
from remuda.system.checkpoint.fitting import branch, fitting
from remuda.system.checkpoint.state import restore_torch
from remuda.system.memory.shared import aligned_zeros, copied
from remuda.types import Bools, Floats, State


class ActingStack:
    """K policies that act without learning, each for N streams (seats of environment copies).

    Noise and everything else that does not depend on inputs is computed when a snapshot is loaded.
    """

    def __init__(
        self,
        network: Network,
        noise: Sequence[torch.Generator | None],  # by policy; None: act without noise
        num_streams: int,  # streams of each policy or, if gathered, of all policies
        device: str | torch.device = "cpu",
        gathered: bool = False,  # streams are gathered by policy for each pass
        cached_passes: int = 1024,  # maximum passes of different shapes in the cache
    ) -> None:
        self.network, self._noise, self._device = network, tuple(noise), torch.device(device)
        count = len(self._noise)
        self._stack = ParameterStack(network.shapes, count, device)
        with torch.inference_mode():
            self._weights = network.acting(self._stack.parameters, None)
            on_cpu = self._device.type == "cpu"
            fixed = on_cpu and self._noise == (None,) * count
            memory = self._stack.flat.untyped_storage().data_ptr() if fixed else None
            self._worked_out = [
                name
                for name, weight in self._weights.items()
                if not fixed or weight.untyped_storage().data_ptr() != memory
            ]  # weights that `load` computes, since they are not views of the parameters
            for name in self._worked_out:
                self._weights[name] = self._weights[name].clone()
            # by policy, views of the parameters that these weights are computed from
            self._parameters = [self._stack.of(k) for k in range(count) if self._worked_out]
            if network.encoder is not None:
                network.encoder.bind(self._weights)
        at = (1 if gathered else count, num_streams)
        # [K, N, num_inputs], or [1, N, num_inputs] if gathered; written by the actor
        self.inputs: Floats = aligned_zeros((*at, network.num_inputs))
        self._tensor = torch.from_numpy(self.inputs)
        shape = (count, 0 if gathered else num_streams, network.memory)
        # [K, N, memory] recurrent state, zeros at the start of an episode; N is 0 if gathered
        self.recurrent_states: Floats = np.zeros(shape, np.float32)
        # [K, N, memory] recurrent state before the last pass
        self.previous_states: Floats = self.recurrent_states.copy()
        self._of: list[Weights] = [self._rows(k, k + 1)[0] for k in range(count)]
        self.parts: dict[tuple[int, int], Callable[[], Floats]] = {}
        self._padded: dict[tuple[int, int, int], tuple[Floats, Callable[[], Floats]]] = {}
        self._cached_passes = cached_passes
        # pass over streams gathered by policy; None: use `padded_pass`
        self.gathered_pass: GatheredPass | None = None
        layers = network.compiled_layers(self._weights) if gathered and on_cpu else None
        if layers is not None:
            self.gathered_pass = GatheredPass(layers)

    def load(self, policy: int, weights: Floats) -> None:
        with torch.inference_mode():
            self._stack.flat[policy].copy_(torch.from_numpy(weights))
            if self._worked_out:
                fresh = self.network.acting(self._parameters[policy], self._noise[policy])
                for name in self._worked_out:
                    self._of[policy][name].copy_(fresh[name])

    def state(self, policy: int) -> State:
        noise = self._noise[policy]
        return {
            "plain": {name: w[0].cpu().numpy().copy() for name, w in self._of[policy].items()},
            "noise": noise.get_state().numpy() if noise is not None else None,
            "recurrent_states": self.recurrent_states[policy].copy(),
        }

    def restore(self, policy: int, state: State) -> None:
        plain = branch(state, "plain")
        with torch.inference_mode():
            for name, weight in self._of[policy].items():
                saved = fitting(plain, name, weight[0].cpu().numpy())
                weight[0].copy_(torch.from_numpy(saved))
        noise = self._noise[policy]
        if noise is not None:
            restore_torch(noise, state, "noise")
        self.recurrent_states[policy] = fitting(
            state, "recurrent_states", self.recurrent_states[policy]
        )

    def parameters_of(self, policy: int) -> dict[str, torch.Tensor]:
        """Return views [1, *shape] of a policy's loaded parameters."""
        return self._stack.of(policy)

    def flat_weights(self, policy: int) -> Floats:
        return self._stack.read(policy)

    def padded_pass(self, first: int, end: int, width: int) -> tuple[Floats, Callable[[], Floats]]:
        """Return an input buffer [k * width, num_inputs], and the forward pass of some policies.

        All passes share the buffer's memory: fill the buffer, then call the pass, which returns
        outputs [k, width, O].
        """
        key = (first, end, width)
        if key not in self._padded:
            if len(self._padded) >= self._cached_passes:
                self._padded.clear()
            count = (end - first) * width
            if count > self.inputs.shape[0] * self.inputs.shape[1]:
                self._padded.clear()  # their passes read the old buffer
                self.inputs = aligned_zeros((1, 2 * count, self.network.num_inputs))
                self._tensor = torch.from_numpy(self.inputs)
            inputs = self._tensor.view(-1, self.network.num_inputs)[:count]
            inputs = inputs.view(end - first, width, -1)
            self._padded[key] = (
                self.inputs.reshape(-1, self.network.num_inputs)[:count],
                self._pass(self._rows(first, end)[0], inputs),
            )
        return self._padded[key]

    def recurrent_pass(
        self, first: int, end: int, width: int, states: Floats
    ) -> tuple[Floats, Floats]:
        """Return outputs and next recurrent states [k, width, memory] of recurrent networks."""
        count = (end - first) * width
        inputs = self._tensor.view(-1, self.network.num_inputs)[:count]
        weights, _ = self._rows(first, end)
        return self._step(weights, inputs.view(end - first, width, -1), states)

    def outputs(self, first: int, end: int) -> Floats:
        """Return outputs [k, N, O] of policies `first` to `end - 1`, valid until the next pass."""
        part = self.parts.get((first, end))
        if part is None:
            part = self.parts[first, end] = self._part(first, end)
        return part()

    def stay(self, policy: int, acts: Bools) -> None:
        """Restore the previous recurrent state of the streams that did not act."""
        if self.network.memory:
            self.recurrent_states[policy, ~acts] = self.previous_states[policy, ~acts]

    def _part(self, first: int, end: int) -> Callable[[], Floats]:
        weights, inputs = self._rows(first, end)
        if self.network.memory:
            return lambda: self._recurrent_step(weights, inputs, first, end)
        return self._pass(weights, inputs)

    def _pass(self, weights: Weights, inputs: torch.Tensor) -> Callable[[], Floats]:
        """Return a function that runs these weights on these inputs, reading both in place."""
        if self._device.type == "cpu":
            layers = self.network.compiled_layers(weights)
            if layers is not None:
                return CompiledPass(layers, inputs)

        def forward() -> Floats:
            with torch.inference_mode():
                moved = inputs.to(self._device)
                outputs: Floats = self.network.outputs(weights, moved).cpu().numpy()
            return outputs

        return forward

    def _recurrent_step(
        self, weights: Weights, inputs: torch.Tensor, first: int, end: int
    ) -> Floats:
        self.previous_states[first:end] = self.recurrent_states[first:end]
        outputs, after = self._step(weights, inputs, self.previous_states[first:end])
        self.recurrent_states[first:end] = after
        return outputs

    def _step(
        self, weights: Weights, inputs: torch.Tensor, states: Floats
    ) -> tuple[Floats, Floats]:
        with torch.inference_mode():
            before = copied(states, self._device)
            outputs, after = self.network.step(weights, inputs.to(self._device), before)
        return outputs.cpu().numpy(), after.cpu().numpy()

    def _rows(self, first: int, end: int) -> tuple[Weights, torch.Tensor]:
        weights = {name: weight[first:end] for name, weight in self._weights.items()}
        return weights, self._tensor[first:end]
