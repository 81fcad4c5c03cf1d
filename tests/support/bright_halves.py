"""Games in which the half of a picture that is bright is the right action."""

import gymnasium
from gymnasium import spaces


class BrightHalf(gymnasium.Env):
    """Episodes of one step; a subclass has `observation_space` and `shown`."""

    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return self._show(), {}

    def step(self, action):
        right = float(action == self._half)
        return self._show(), right, True, False, {}

    def shown(self, half):
        """Return an observation in which this half is bright."""
        raise NotImplementedError

    def _show(self):
        self._half = int(self.np_random.integers(2))
        return self.shown(self._half)
