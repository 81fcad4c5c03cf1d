"""Acting: the networks of K policies of one layout, renewed from snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from remuda.checkpoint.fitting import branch, fitting
from remuda.checkpoint.state import restore_torch
from remuda.memory.aligned import aligned_zeros, copied
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.network import Network
from remuda.policies.stack import ParameterStack
from remuda.types import Bools, Floats, State

KEPT_ROOMS = 1024
"""Passes of different shapes that are kept ready."""


class ActingStack:
    """K policies that act and never learn, each for N streams.

    A policy's plain weights are worked out when its snapshot is loaded, once per version, so that a
    pass is nothing but matrix products. With noisy layers that is also when their noise is drawn;
    without a noise stream the policy acts on the means.
    """

    def __init__(
        self,
        network: Network,
        noise: Sequence[torch.Generator | None],
        num_streams: int,
        device: str | torch.device = "cpu",
        gathered: bool = False,
        kept_rooms: int = KEPT_ROOMS,
    ) -> None:
        """Make room for K policies.

        Args:
            network: of all of them.
            noise: by policy, the stream of its noisy layers; None: it has none, or uses the means.
            num_streams: N, of each policy; of all together where they are gathered.
            device: of the networks.
            gathered: streams are gathered for each pass, by `room`, instead of each policy having N
                of its own: then memory grows with the streams, not with policies times streams.
            kept_rooms: passes of different shapes that are kept ready.
        """
        self.network, self._noise, self._device = network, tuple(noise), torch.device(device)
        count = len(self._noise)
        self._stack = ParameterStack(network.shapes, count, device)
        with torch.inference_mode():
            self._weights = network.acting(self._stack.parameters, None)
            here = self._device.type == "cpu" and self._noise == (None,) * count
            memory = self._stack.flat.untyped_storage().data_ptr() if here else None
            self._worked_out = [
                name
                for name, weight in self._weights.items()
                if not here or weight.untyped_storage().data_ptr() != memory
            ]
            """What of them is no view of the parameters, and so is written when some are loaded."""
            for name in self._worked_out:
                self._weights[name] = self._weights[name].clone()
            self._parameters = [self._stack.of(k) for k in range(count) if self._worked_out]
            """Of each policy, what they are worked out from: views."""
            if network.encoder is not None:
                network.encoder.bind(self._weights)
        at = (1 if gathered else count, num_streams)
        self.inputs: Floats = aligned_zeros((*at, network.num_inputs))
        """[K, N, num_inputs]: what the policies act on; written by their seats."""
        self._tensor = torch.from_numpy(self.inputs)
        kept = (count, 0 if gathered else num_streams, network.memory)
        self.memories: Floats = np.zeros(kept, np.float32)
        """[K, N, memory]: what each stream keeps; zeros where an episode begins."""
        self.kept: Floats = self.memories.copy()
        """[K, N, memory]: the same before the last pass."""
        self._of: list[Weights] = [self._rows(k, k + 1)[0] for k in range(count)]
        self._parts: dict[tuple[int, int], Callable[[], Floats]] = {}
        self._rooms: dict[tuple[int, int, int], tuple[Floats, Callable[[], Floats]]] = {}
        self._kept_rooms = kept_rooms
        here = self._device.type == "cpu"
        self.gathered_pass = network.gathered_pass(self._weights) if gathered and here else None
        """The pass of streams gathered by policy; None: they go through `room`, pass by pass."""

    def load(self, policy: int, weights: Floats) -> None:
        """Take these weights [P] as the newest of one policy."""
        with torch.inference_mode():
            self._stack.flat[policy].copy_(torch.from_numpy(weights))
            if self._worked_out:
                fresh = self.network.acting(self._parameters[policy], self._noise[policy])
                for name in self._worked_out:
                    self._of[policy][name].copy_(fresh[name])

    def state(self, policy: int) -> State:
        """One policy's weights with the noise it acts with, and its stream."""
        noise = self._noise[policy]
        return {
            "plain": {name: w[0].cpu().numpy().copy() for name, w in self._of[policy].items()},
            "noise": noise.get_state().numpy() if noise is not None else None,
            "memories": self.memories[policy].copy(),
        }

    def restore(self, policy: int, state: State) -> None:
        """Let one policy act as it did when `state` was called."""
        plain = branch(state, "plain")
        with torch.inference_mode():
            for name, weight in self._of[policy].items():
                saved = fitting(plain, name, weight[0].cpu().numpy())
                weight[0].copy_(torch.from_numpy(saved))
        noise = self._noise[policy]
        if noise is not None:
            restore_torch(noise, state, "noise")
        self.memories[policy] = fitting(state, "memories", self.memories[policy])

    def parameters_of(self, policy: int) -> dict[str, torch.Tensor]:
        """The parameters that one policy was loaded with: views, [1, *shape] by name."""
        return self._stack.of(policy)

    def flat_weights(self, policy: int) -> Floats:
        """The weights [P] that one policy was loaded with."""
        weights: Floats = self._stack.flat[policy].cpu().numpy().copy()
        return weights

    def room(self, first: int, end: int, width: int) -> tuple[Floats, Callable[[], Floats]]:
        """Where policies `first` to `end - 1` are given `width` streams each, and their pass.

        The room, [k * width, num_inputs], is the same memory for all passes of this kind: fill it,
        then call the pass, which returns [k, width, O].
        """
        key = (first, end, width)
        if key not in self._rooms:
            if len(self._rooms) >= self._kept_rooms:
                self._rooms.clear()
            count = (end - first) * width
            self._make_room(count)
            inputs = self._tensor.view(-1, self.network.num_inputs)[:count]
            inputs = inputs.view(end - first, width, -1)
            self._rooms[key] = (
                self.inputs.reshape(-1, self.network.num_inputs)[:count],
                self._pass(self._rows(first, end)[0], inputs),
            )
        return self._rooms[key]

    def _make_room(self, count: int) -> None:
        """Make the room of gathered passes large enough for so many rows of inputs."""
        if count > self.inputs.shape[0] * self.inputs.shape[1]:
            self._rooms.clear()  # their passes look at the old one
            self.inputs = aligned_zeros((1, 2 * count, self.network.num_inputs))
            self._tensor = torch.from_numpy(self.inputs)

    def remember(self, first: int, end: int, width: int, memories: Floats) -> tuple[Floats, Floats]:
        """Likewise for networks with a memory: outputs, and what they keep, [k, width, memory].

        Args:
            first: the first policy.
            end: one past the last.
            width: streams of each.
            memories: [k, width, memory] before.
        """
        count = (end - first) * width
        inputs = self._tensor.view(-1, self.network.num_inputs)[:count]
        inputs = inputs.view(end - first, width, -1).to(self._device)
        weights, _ = self._rows(first, end)
        with torch.inference_mode():
            before = copied(memories, self._device)
            outputs, after = self.network.step(weights, inputs, before)
        return outputs.cpu().numpy(), after.cpu().numpy()

    def outputs(self, first: int, end: int) -> Floats:
        """What policies `first` to `end - 1` make of their inputs, in one pass: [k, N, O].

        It may be written anew by the next pass.
        """
        part = self._parts.get((first, end))
        if part is None:
            part = self._parts[first, end] = self._part(first, end)
        return part()

    def stay(self, policy: int, acts: Bools) -> None:
        """Let the streams that did not act keep what they kept before the last pass."""
        if self.network.memory:
            self.memories[policy, ~acts] = self.kept[policy, ~acts]

    def _part(self, first: int, end: int) -> Callable[[], Floats]:
        """The pass of these policies."""
        weights, inputs = self._rows(first, end)
        if self.network.memory:
            return lambda: self._remember(weights, inputs, first, end)
        return self._pass(weights, inputs)

    def _pass(self, weights: Weights, inputs: torch.Tensor) -> Callable[[], Floats]:
        """The pass of these weights over these inputs, wherever they are then."""
        if self._device.type == "cpu":
            compiled = self.network.compiled_pass(weights, inputs)
            if compiled is not None:
                return compiled

        def found() -> Floats:
            with torch.inference_mode():
                moved = inputs.to(self._device)
                outputs: Floats = self.network.outputs(weights, moved).cpu().numpy()
            return outputs

        return found

    def _remember(self, weights: Weights, inputs: torch.Tensor, first: int, end: int) -> Floats:
        self.kept[first:end] = self.memories[first:end]
        with torch.inference_mode():
            memories = copied(self.kept[first:end], self._device)
            outputs, memories = self.network.step(weights, inputs.to(self._device), memories)
        self.memories[first:end] = memories.cpu().numpy()
        found: Floats = outputs.cpu().numpy()
        return found

    def _rows(self, first: int, end: int) -> tuple[Weights, torch.Tensor]:
        weights = {name: weight[first:end] for name, weight in self._weights.items()}
        return weights, self._tensor[first:end]
