"""A policy that takes what is best, as one module of torch: from observations to actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from remuda.policies.actions import Actions
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.module import place
from remuda.policies.networks.network import Network


class GreedyModule(nn.Module):
    """Chooses what a policy chooses that does not explore.

    It holds the plain weights of one version, so that what acting needs once per version (folded
    heads, means of noise, embedded quantiles) is not worked out for each observation.
    """

    def __init__(
        self,
        network: Network,
        weights: Weights,
        actions: Actions,
        shape: tuple[int, ...],
        start: Sequence[int] = (),
    ) -> None:
        """Copy the weights.

        Args:
            network: of the policy.
            weights: plain ones, of one policy, as `network.acting` makes them, each [1, ...].
            actions: what it can do.
            shape: of one action, as the space has it.
            start: [size] of discrete actions, the number of the first one; empty: 0.
        """
        super().__init__()
        self._start = tuple(start) if any(start) else ()
        self._network, self._actions, self._shape = network, actions, shape
        self._names = tuple(weights)
        for name, values in weights.items():
            # Networks compute in place, in compiled code, where nothing asks for a gradient; no
            # graph can be made of that, so the weights ask for one.
            place(self, name, values.detach().clone(), values.is_floating_point())

    def forward(
        self,
        observation: Tensor,
        mask: Tensor | None = None,
        recurrent_state: Tensor | None = None,
        starts: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Choose.

        Args:
            observation: [N, *shape] of any dtype; where frames are stacked, [N, n_frames, *shape].
            mask: [N, mask_size] bool: what is allowed; None: anything.
            recurrent_state: [N, size] of a recurrent network.
            starts: [N] bool: whose observation is the first of an episode, so that the state
                before counts nothing.

        Returns:
            Actions [N, *action shape]; what the network made of each, [N, O]; of a recurrent
            network also the state after it, [N, size].
        """
        tensors: Weights = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        weights = {name: tensors[name] for name in self._names}
        inputs = observation.float().flatten(1)[None]
        after: tuple[Tensor, ...] = ()
        if recurrent_state is None or starts is None:
            outputs = self._network.outputs(weights, inputs)
        else:
            before = recurrent_state.masked_fill(starts[:, None], 0.0)
            outputs, state = self._network.step(weights, inputs, before[None])
            after = (state[0],)
        return self.choose(outputs[0], mask), outputs[0], *after

    def choose(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        """The actions [N, *action shape] for what the network made of observations [N, O]."""
        actions = self._actions.greedy(outputs, mask)
        if self._start:
            actions = actions + torch.tensor(self._start)
        return actions.reshape(-1, *self._shape)
