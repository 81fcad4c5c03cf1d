"""What tests of evolution share: numbers that evolve, policies that have them, small networks."""

import numpy as np
import torch
from hypothesis import strategies as some

from remuda.config import NetworkConfig
from remuda.policies.actions import DiscreteActions
from remuda.policies.networks.actor_critic import ActorCritic
from remuda.policies.networks.q_network import QNetwork
from remuda.policies.stack import ParameterStack
from remuda.population.evolution.fitness import Fitness
from remuda.population.evolution.numbers import Evolvable
from remuda.population.evolution.weights import WeightLayout

NUMBERS = (
    Evolvable("learning_rate", 1e-5, 1e-1, log=True),
    Evolvable("ppo.clip", 0.05, 0.5),
    Evolvable("units", 2.0, 9.0, log=True),
    Evolvable("offset", -3.0, 3.0),
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
    return QNetwork(inputs, actions, NetworkConfig(hidden=hidden, **options))


def alien(network, seed=1):
    """Weights whose every number differs from those of `drawn`."""
    return (
        np.random.default_rng(seed)
        .normal(5.0, 1.0, WeightLayout.of(network).size)
        .astype(np.float32)
    )


def of_samples(samples, least=10):
    """Fitness by independent samples of each policy; too few or broken ones are not judged."""
    rows = []
    for values in samples.values():
        found = np.asarray(values, np.float64)
        if len(found) < least or not np.isfinite(found).all():
            rows.append((np.nan, np.nan, np.nan))
        else:
            error = found.std(ddof=1) / np.sqrt(len(found))
            rows.append((found.mean(), error, len(found) - 1.0))
    means, errors, freedom = np.array(rows, np.float64).reshape(-1, 3).T[:, :, None]
    return Fitness(tuple(samples), means, errors, freedom)


def of_estimates(names, means, errors):
    """Fitness by means [P] with known standard errors [P]."""
    found = np.asarray(means, np.float64)[:, None]
    spread = np.asarray(errors, np.float64)[:, None]
    return Fitness(tuple(names), found, spread, np.full(found.shape, np.inf))


def joined(objectives):
    """Several objectives of the same policies as one fitness."""
    parts = ("means", "errors", "freedom")
    arrays = [np.concatenate([getattr(each, part) for each in objectives], 1) for part in parts]
    return Fitness(objectives[0].names, *arrays)


def outputs_of(network):
    """The function from weights [P] and states [B, ...] to what actions are chosen by: [B, O].

    A recurrent network sees every state as the first of an episode. Noisy layers use their means.
    """
    layout = WeightLayout.of(network)

    def outputs(weights, states):
        parameters = {
            name: weights[layout.slices[name]].reshape(1, *shape)
            for name, shape in network.shapes.items()
        }
        plain = network.acting(parameters, None)
        inputs = states.float().flatten(1)[None]
        if not network.memory:
            return network.outputs(plain, inputs)[0]
        begin = torch.zeros(1, inputs.shape[1], network.memory)
        return network.step(plain, inputs, begin)[0][0]

    return outputs
