"""Games of other libraries, by paths that the children of a run can import."""

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.gymnasium import GymnasiumEnv
from remuda.envs.adapters.sorrel import SorrelCopies
from sorrel_double import berries


class Spot(gymnasium.Env):
    """A picture with a bright spot; step to the side where it lies to be given 1."""

    observation_space = spaces.Box(0, 255, (12, 12, 3), np.uint8)
    action_space = spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._draw(), {}

    def step(self, action):
        reward = float(action == 1 + (self.x >= 6))
        self.steps += 1
        return self._draw(), reward, False, self.steps == 8, {}

    def _draw(self):
        picture = self.np_random.integers(0, 60, (12, 12, 3)).astype(np.uint8)
        y, self.x = self.np_random.integers(0, 11, 2)
        self.x += self.x == 5  # it lies on one side
        picture[y : y + 2, self.x : self.x + 2] = 255
        return picture


def spots(num_envs):
    return GymnasiumEnv(Spot, num_envs)


def society(num_envs):
    return SorrelCopies(berries, num_envs, max_turns=20)
