"""A policy's network as a module of torch."""

from __future__ import annotations

from torch import Tensor, nn

from remuda.errors import UsageError
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
        inputs, memory = self._inputs(observations, recurrent_state)
        weights = self._network.acting(self._by_name(), None)
        if memory is None:
            return self._network.outputs(weights, inputs)[0]
        outputs, after = self._network.step(weights, inputs, memory)
        return outputs[0], after[0]

    def state_values(self, observations: Tensor, recurrent_state: Tensor | None = None) -> Tensor:
        """What PPO's value head expects of states: the discounted sum of rewards from there on.

        Args:
            observations: as of `forward`.
            recurrent_state: likewise: what the network kept before these observations.

        Returns:
            [B], in rewards as the policy is trained on them: times its `reward_scale`, and with
            `ppo.normalise_rewards` in the units that those were brought to.

        Raises:
            UsageError: the network is a Q-learner's, which has values of actions instead.
        """
        inputs, memory = self._inputs(observations, recurrent_state)
        values = self._network.state_values(self._by_name(), inputs, memory)
        if values is None:
            raise UsageError(
                "the network of a Q-learner has no values of states; what the module returns are "
                "the values of actions"
            )
        return values[0]

    def _inputs(
        self, observations: Tensor, recurrent_state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """[1, B, num_inputs], and what was kept before them, [1, B, memory]; None: nothing."""
        inputs = observations.float().flatten(1)[None]
        if not self._network.memory:
            return inputs, None
        if recurrent_state is None:
            recurrent_state = inputs.new_zeros(inputs.shape[1], self._network.memory)
        return inputs, recurrent_state[None]

    def _by_name(self) -> Parameters:
        tensors: dict[str, Tensor] = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        return {name: tensors[name][None] for name in self._names}


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
