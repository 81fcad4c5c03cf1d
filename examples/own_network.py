"""Train with your own network: any torch module from observations to features.

python examples/own_network.py [TURNS]
"""

import sys

from torch import nn

import remuda


def features(shape: tuple[int, ...]) -> nn.Module:
    """Make the network of one policy, for observations of this shape."""
    return nn.Sequential(nn.Linear(shape[0], 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())


PPO = {
    "algorithm": "ppo",
    "network": {"module": "own_network:features"},
    "ppo": {"epochs": 10, "minibatches": 8, "entropy_cost": 0.0, "anneal_steps": 150_000},
}


def main() -> None:
    """Train CartPole, and show the trained weights."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 150_000
    result = remuda.train(
        "gymnasium:CartPole-v1",
        policy=PPO,
        env={"num_envs": 8},
        run={"turns": turns, "evaluate_episodes": 20},
    )
    (policy,) = remuda.load(result).values()
    for name, weights in policy.weights().items():
        print(f"{name:32} {weights.shape}")


if __name__ == "__main__":
    main()
