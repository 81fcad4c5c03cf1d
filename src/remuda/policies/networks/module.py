"""A policy's network as a torch module."""

from __future__ import annotations

from torch import Tensor, nn

from remuda.errors import UsageError
from remuda.policies.networks.actor_critic import ActorCritic
from remuda.policies.networks.network import Network
from remuda.policies.stack import Parameters


class PolicyModule(nn.Module):
    """The network of one policy, with weights named as in saved files.

    Noisy layers use their means. Gradients flow to all parameters that acting needs.
    """

    def __init__(self, network: Network, parameters: Parameters) -> None:
        super().__init__()
        self._network, self._names = network, tuple(parameters)
        for name, values in parameters.items():
            place(self, name, values.detach()[0].clone(), name not in network.buffers)

    def forward(
        self, observations: Tensor, recurrent_state: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return outputs [B, O] for action selection, and a recurrent network's next state.

        A Q-learner returns action values; PPO and SAC return logits, or means and log standard
        deviations (SAC: of actions before tanh).
        `observations` are [B, *shape], or with stacked frames [B, n_frames, *shape], the oldest
        first. `recurrent_state` is [B, size]; None: zeros, as at the start of an episode.
        """
        inputs, memory = self._inputs(observations, recurrent_state)
        weights = self._network.acting(self._by_name(), None)
        if memory is None:
            return self._network.outputs(weights, inputs)[0]
        outputs, after = self._network.step(weights, inputs, memory)
        return outputs[0], after[0]

    def state_values(self, observations: Tensor, recurrent_state: Tensor | None = None) -> Tensor:
        """Return PPO's state values [B], estimates of the discounted return.

        Training rewards are multiplied by `reward_scale` and, with `ppo.normalise_rewards`, divided
        by the standard deviation of returns. Arguments are as in `forward`. Raises UsageError for a
        Q-learner, which has action values instead, and for a centralised critic.
        """
        inputs, memory = self._inputs(observations, recurrent_state)
        if not isinstance(self._network, ActorCritic):
            raise UsageError(
                "only PPO's network has state values; a Q-learner's module returns action values"
            )
        if self._network.critic is not None:
            raise UsageError(
                "its critic is centralised (policy.value.input): an agent's own observation has no "
                "value, so only policies with value.input observation have state values"
            )
        return self._network.state_values(self._by_name(), inputs, memory)[0]

    def _inputs(
        self, observations: Tensor, recurrent_state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return inputs [1, B, num_inputs] and states [1, B, memory]; None: not recurrent."""
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
    """Register a parameter or buffer under this name; dots separate names of submodules."""
    *path, last = name.split(".")
    for step in path:
        if not hasattr(module, step):
            module.add_module(step, nn.Module())
        module = module.get_submodule(step)
    if learned:
        module.register_parameter(last, nn.Parameter(values))
    else:
        module.register_buffer(last, values)
