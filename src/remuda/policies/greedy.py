"""A greedy policy as one torch module, from observations to actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from remuda.policies.actions import Actions
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.module import place
from remuda.policies.networks.network import Network


class GreedyModule(nn.Module):
    """The greedy policy of one version.

    It holds the plain weights, so that what acting computes once per version (folded heads, means
    of noise, embedded quantiles) is not computed for each observation.
    """

    def __init__(
        self,
        network: Network,
        weights: Weights,
        actions: Actions,
        shape: tuple[int, ...],
        start: Sequence[int] = (),
    ) -> None:
        """Copy weights of `network.acting`; `start` is the number of each choice's first action."""
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
        observation: Tensor,  # [N, *shape], or [N, n_frames, *shape]
        mask: Tensor | None = None,  # [N, mask_size] bool; None: all are allowed
        recurrent_state: Tensor | None = None,  # [N, size]
        starts: Tensor | None = None,  # [N] bool, whether an episode begins
    ) -> tuple[Tensor, ...]:
        """Return actions [N, *action shape], outputs [N, O], and the next recurrent state."""
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
        """Return the actions [N, *action shape] for outputs [N, O]."""
        actions = self._actions.greedy(outputs, mask)
        if self._start:
            actions = actions + torch.tensor(self._start)
        return actions.reshape(-1, *self._shape)
