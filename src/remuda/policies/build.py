"""From a policy's configuration to its network and its algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remuda.config import PolicyConfig
from remuda.policies.algorithms.dqn import DQN
from remuda.policies.algorithms.iqn import IQN
from remuda.policies.networks.iqn import IQN as IQNNetwork
from remuda.policies.networks.q_network import MLP, QNetwork

if TYPE_CHECKING:
    import torch

NETWORKS: dict[str, type[QNetwork]] = {"dqn": MLP, "iqn": IQNNetwork}
ALGORITHMS: dict[str, type[DQN]] = {"dqn": DQN, "iqn": IQN}


def build_network(config: PolicyConfig, observation_size: int, num_actions: int) -> QNetwork:
    """The network that `config` asks for, for stacked observations of this size."""
    inputs = config.n_frames * observation_size
    return NETWORKS[config.algorithm](inputs, num_actions, config.network)


def build_algorithm(
    config: PolicyConfig,
    network: QNetwork,
    streams: Sequence[torch.Generator],
    device: str = "cpu",
) -> DQN:
    """The algorithm that `config` asks for, one policy for each stream."""
    return ALGORITHMS[config.algorithm](config, network, streams, device)
