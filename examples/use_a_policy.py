"""Train, open the run, and act with a policy.

python examples/use_a_policy.py [RUN]    trains for a few seconds if no run is named
"""

import sys

import numpy as np

import remuda


def main() -> None:
    """Train or open a run, and use its policies."""
    if len(sys.argv) > 1:
        run = remuda.load(sys.argv[1])
    else:
        result = remuda.train(
            "treasure_hunt", policy={"algorithm": "ppo"}, run={"turns": 3000}, env={"num_envs": 8}
        )
        run = remuda.load(result)

    print(f"{run.game}: {', '.join(run)}")
    policy = run["agent_0"]
    print(policy)

    # One observation, or a batch of them.
    space = policy.observation_space
    space.seed(0)
    observations = np.stack([space.sample() for _ in range(5)])
    print("one:", policy.act(observations[0]))
    print("a batch:", policy.act(observations))
    print("exploring:", policy.act(observations, deterministic=False, rng=1))

    # The network, with gradients, as a torch module.
    import torch

    module = policy.module()
    print(
        module(torch.as_tensor(observations)).shape,
        "of",
        sum(p.numel() for p in module.parameters()),
    )

    # The metrics of the run, and an evaluation.
    metrics = run.metrics()
    print(f"{metrics['turns'][-1]:,.0f} turns, {metrics['agent_0/updates'][-1]:,.0f} updates")
    played = run.evaluate(episodes=20)
    for i, agent in enumerate(played.agents):
        print(f"{agent}: {played.mean(i):.1f} ± {played.standard_error(i):.1f}")


if __name__ == "__main__":  # children begin by reading this file again
    main()
