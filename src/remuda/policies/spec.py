"""`PolicySpec`: everything a process must know to build a policy, as plain data that crosses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from remuda.config import Config, PolicyConfig
from remuda.errors import ContractError
from remuda.types import AgentSpec

if TYPE_CHECKING:
    import torch

    from remuda.policies.algorithms.dqn import DQN
    from remuda.policies.networks.q_network import QNetwork


@dataclass(frozen=True)
class PolicySpec:
    """One policy: its name, its configuration, and what it sees and does."""

    name: str
    config: PolicyConfig
    observation: tuple[int, ...]
    """The shape of one observation, unstacked."""
    dtype: npt.DTypeLike
    """The dtype of an observation, as the environment writes it."""
    num_actions: int

    @property
    def observation_size(self) -> int:
        """Numbers in one observation, unstacked."""
        return int(np.prod(self.observation, dtype=np.int64))

    def network(self) -> QNetwork:
        """The network that the configuration asks for, over stacked observations."""
        from remuda.policies.networks.iqn import IQN
        from remuda.policies.networks.q_network import MLP

        inputs = self.config.n_frames * self.observation_size
        kind = IQN if self.config.algorithm == "iqn" else MLP
        return kind(inputs, self.num_actions, self.config.network)

    def algorithm(self, streams: Sequence[torch.Generator], device: str = "cpu") -> DQN:
        """The algorithm that the configuration asks for, one policy for each stream."""
        from remuda.policies.algorithms.dqn import DQN
        from remuda.policies.algorithms.iqn import IQN

        kind = IQN if self.config.algorithm == "iqn" else DQN
        return kind(self.config, self.network(), streams, device)


def policy_specs(config: Config, agents: Sequence[AgentSpec]) -> tuple[PolicySpec, ...]:
    """One policy for each agent, of the agent's name.

    Raises:
        ContractError: an agent whose spaces no algorithm here can learn in.
        ConfigError: `policies` names a policy that no agent has.
    """
    from gymnasium.spaces import Box, Discrete

    from remuda.errors import ConfigError

    names = [agent.name for agent in agents]
    for name in config.policies:
        if name not in names:
            raise ConfigError(
                f"policies.{name}: {config.game} has no such policy; it has {', '.join(names)}"
            )
    specs = []
    for agent in agents:
        sees, does = agent.observation_space, agent.action_space
        if not isinstance(sees, Box):
            raise ContractError(f"{agent.name} observes {sees}; policies learn from a Box")
        if not isinstance(does, Discrete) or does.start != 0:
            raise ContractError(
                f"{agent.name} acts in {does}; DQN and IQN need Discrete actions from 0"
            )
        specs.append(
            PolicySpec(
                agent.name,
                config.policy_of(agent.name),
                sees.shape,
                sees.dtype,
                int(does.n),
            )
        )
    return tuple(specs)
