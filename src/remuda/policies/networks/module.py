"""A policy's network as a module of torch."""

from __future__ import annotations

from torch import Tensor, nn

from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.network import Network
from remuda.policies.stack import Parameters


class PolicyModule(nn.Module):
    """The network that one policy acts with; weights of its own, named as they are saved.

    Noisy layers have their means. Gradients flow to all parameters that acting needs.
    """

    def __init__(self, network: Network, parameters: Parameters) -> None:
        """Copy the weights.

        Args:
            network: the policy's.
            parameters: of one policy, by name, each [1, *shape].
        """
        super().__init__()
        self._network, self._names = network, tuple(parameters)
        for name, values in parameters.items():
            place(self, name, values.detach()[0].clone(), name not in network.buffers)

    def forward(
        self, observations: Tensor, recurrent_state: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """What actions are chosen by.

        Args:
            observations: [B, *shape]; where frames are stacked, [B, n_frames, *shape], the oldest
                first.
            recurrent_state: [B, size] of a recurrent network; None: zeros, as where an episode
                begins.

        Returns:
            [B, O]: values of actions of a Q-learner; with PPO the parameters of the distribution,
            logits or means and logarithms of deviations. Of a recurrent network, also the state
            after it, [B, size].
        """
        inputs = observations.float().flatten(1)[None]
        weights = self._acting()
        if not self._network.memory:
            return self._network.outputs(weights, inputs)[0]
        if recurrent_state is None:
            recurrent_state = inputs.new_zeros(inputs.shape[1], self._network.memory)
        outputs, after = self._network.step(weights, inputs, recurrent_state[None])
        return outputs[0], after[0]

    def _acting(self) -> Weights:
        tensors: dict[str, Tensor] = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        return self._network.acting({name: tensors[name][None] for name in self._names}, None)


def place(module: nn.Module, name: str, values: Tensor, learned: bool) -> None:
    """Give a module a parameter or buffer of this name, in submodules where it has dots."""
    *path, last = name.split(".")
    for step in path:
        if not hasattr(module, step):
            module.add_module(step, nn.Module())
        module = module.get_submodule(step)
    if learned:
        module.register_parameter(last, nn.Parameter(values))
    else:
        module.register_buffer(last, values)
