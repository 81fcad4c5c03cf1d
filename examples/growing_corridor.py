"""Train with a curriculum: a corridor that grows whenever the policy reaches its end.

python examples/growing_corridor.py [LENGTH]
"""

import sys

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

import remuda


class Corridor(gymnasium.Env):
    """Walk right to the end of a corridor; only the end is rewarded, and time is short."""

    changeable_options = ("length",)
    observation_space = Box(0.0, 1.0, (2,), np.float32)
    action_space = Discrete(2)  # left, right

    def __init__(self, length=2):
        self.set_option("length", length)

    def set_option(self, name, value):  # noqa: ARG002 - there is one option
        """Change the length from the next reset on."""
        if not isinstance(value, int) or not 1 <= value <= 100:
            raise ValueError(f"length is {value!r}; allowed is a whole number, 1 to 100")
        self.length = value

    def reset(self, *, seed=None, options=None):
        """Start at the left end."""
        super().reset(seed=seed, options=options)
        self.place = self.turn = 0
        return self.observe(), {}

    def observe(self):
        """Return the place and the time."""
        return np.array([self.place / 100, self.turn / 200], np.float32)

    def step(self, action):
        """Move one square; the episode ends at the right end, or when the time is up."""
        self.place, self.turn = max(self.place + 2 * int(action) - 1, 0), self.turn + 1
        at_end = self.place == self.length
        return self.observe(), float(at_end), at_end, self.turn == 2 * self.length, {}


class Grow(remuda.Callback):
    """Double the corridor once nine of ten episodes reach its end; stop at the goal."""

    enough = 200  # episodes; the first to end are the short ones

    def __init__(self, goal):
        self.goal = goal
        self.lengths, self.episodes, self.reached = [], 0, 0.0

    def on_episodes(self, run, episodes):
        """Judge by the mean return of enough episodes."""
        ended = episodes["agent_0"]
        self.episodes += ended.episodes
        self.reached += ended.episodes * ended.mean_return
        if self.episodes < self.enough:
            return
        share, self.episodes, self.reached = self.reached / self.episodes, 0, 0.0
        length = run.env_options().get("length", 2)
        if share < 0.9:
            return
        if length == self.goal:
            run.stop(f"it reaches the end of a corridor of {length}")
        else:
            self.lengths.append(min(2 * length, self.goal))
            run.set_env_option("length", self.lengths[-1])


def main() -> None:
    """Train until the corridor has grown to its goal, and evaluate there."""
    grow = Grow(int(sys.argv[1]) if len(sys.argv) > 1 else 32)
    result = remuda.train(
        Corridor,
        policy={"algorithm": "ppo", "learning_rate": 1e-3, "ppo": {"entropy_cost": 0.02}},
        env={"num_envs": 16},
        run={"seconds": 300, "log_every": 0.5, "evaluate_episodes": 16},
        callbacks=[grow],
    )
    print("lengths:", *grow.lengths)
    print(f"the greedy policy reaches the end in {result.evaluation.mean(0):.0%} of episodes")


if __name__ == "__main__":
    main()
