"""What tests of evolution share: numbers that evolve, policies that have them, small networks."""

import numpy as np
import torch
from hypothesis import strategies as some

from remuda.config import NetworkConfig
from remuda.evolution.layout import WeightLayout
from remuda.evolution.numbers import Evolvable
from remuda.policies.actions import DiscreteActions
from remuda.policies.networks.actor_critic import ActorCritic
from remuda.policies.networks.q_network import MLP
from remuda.policies.stack import ParameterStack

NUMBERS = (
    Evolvable("learning_rate", 1e-5, 1e-1, log=True, prior=(1e-4, 1e-2)),
    Evolvable("ppo.clip", 0.05, 0.5),
    Evolvable("units", 2.0, 9.0, log=True, whole=True),
    Evolvable("offset", -3.0, 3.0, whole=True),
)
HYPERPARAMETERS = {
    "learning_rate": 1e-3,
    "ppo.clip": 0.2,
    "units": 4.0,
    "offset": 0.0,
    "discount": 0.99,
}


def values_within():
    """Hyperparameters of a policy, each within its bounds, and one that does not evolve."""
    parts = {
        number.name: some.floats(0.0, 1.0).map(lambda u, n=number: float(n.from_unit(u)))
        for number in NUMBERS
    }
    return some.fixed_dictionaries({**parts, "discount": some.floats(0.0, 1.0)})


def drawn(network, seed=0):
    """Weights [P] of a network that was not trained."""
    stack = ParameterStack(network.shapes, 1)
    network.initialise(stack.parameters, torch.Generator().manual_seed(seed))
    return stack.flat[0].numpy().copy()


def actor_critic(hidden=(8, 6), inputs=5, actions=3, normalised=False, **options):
    """A policy and a value, as PPO has them."""
    own = {"activation": "tanh", "dueling": False, "shared": True} | options
    config = NetworkConfig(hidden=hidden, **own)
    return ActorCritic(inputs, DiscreteActions((actions,)), config, normalised)


def values(hidden=(8, 6), inputs=5, actions=3, **options):
    """Values of actions, as DQN has them."""
    return MLP(inputs, actions, NetworkConfig(hidden=hidden, **options))


def alien(network, seed=1):
    """Weights whose every number differs from those of `drawn`."""
    return (
        np.random.default_rng(seed)
        .normal(5.0, 1.0, WeightLayout.of(network).size)
        .astype(np.float32)
    )
