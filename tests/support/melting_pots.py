"""A small world with the spaces of Melting Pot's substrates, as Shimmy shows them to PettingZoo.

Melting Pot itself (the package dm-meltingpot) is not needed. `Pot` is a `ParallelEnv` with what
`shimmy.meltingpot_compatibility` makes of a substrate; `substrate()` is the same world behind
Melting Pot's interface, for Shimmy to wrap, and needs the package dm_env.
"""

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from pettingzoo import ParallelEnv

PIXELS, WORLD, ACTIONS, TURNS = (88, 88, 3), (144, 192, 3), 8, 12
SHOOT = 7
SCALARS = {
    "COLLECTIVE_REWARD": (),
    "INTERACTION_INVENTORIES": (2, 2),
    "INVENTORY": (2,),
    "READY_TO_SHOOT": (),
}
"""The float64 arrays beside the image: of the matrix games; others have fewer."""


class Kettle:
    """Two players; an image is bright in its upper or lower half, and shooting pays if upper."""

    def __init__(self, turns=TURNS):
        self.turns, self.rng = turns, np.random.default_rng(0)

    def start(self, seed=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.turn = 0
        self._draw([0.0, 0.0])

    def step(self, actions):
        self.turn += 1
        hits = [is_up and action == SHOOT for is_up, action in zip(self.up, actions, strict=True)]
        rewards = [1.0 if hit else 0.0 for hit in hits]
        self._draw(rewards)
        return rewards, self.turn >= self.turns

    def _draw(self, rewards):
        self.up = self.rng.random(2) < 0.5
        self.seen = []
        for is_up in self.up:
            image = np.zeros(PIXELS, np.uint8)
            image[: 44 if is_up else 88][-44:] = 200
            arrays = {name: np.full(shape, -1.0) for name, shape in SCALARS.items()}
            arrays["COLLECTIVE_REWARD"] = np.float64(sum(rewards))
            arrays["READY_TO_SHOOT"] = np.float64(1.0)
            self.seen.append({"RGB": image, **arrays})


class Pot(ParallelEnv):
    """A substrate as `MeltingPotCompatibilityV0` shows it, with seeds."""

    def __init__(self, turns=TURNS):
        self.metadata = {"name": "pot"}
        self.possible_agents = ["player_0", "player_1"]
        self.state_space = Box(0, 255, WORLD, np.uint8)
        self._world = Kettle(turns)

    def observation_space(self, agent):
        scalars = {name: Box(-np.inf, np.inf, shape, np.float64) for name, shape in SCALARS.items()}
        return Dict({"RGB": Box(0, 255, PIXELS, np.uint8), **scalars})

    def action_space(self, agent):
        return Discrete(ACTIONS)

    def state(self):
        """Return what Shimmy's method does, which is not in `state_space`."""
        return [dict(own) for own in self._world.seen]

    def reset(self, seed=None, options=None):
        self.agents = self.possible_agents[:]
        self._world.start(seed)
        return self._observations(), {agent: {"timestep.discount": 0.0} for agent in self.agents}

    def step(self, actions):
        playing = self.agents
        rewards, over = self._world.step([actions[agent] for agent in playing])
        self.agents = [] if over else playing
        return (
            self._observations(),
            dict(zip(playing, map(np.asarray, rewards), strict=True)),
            dict.fromkeys(playing, over),
            dict.fromkeys(playing, False),
            {agent: {} for agent in playing},
        )

    def _observations(self):
        return {f"player_{i}": dict(own) for i, own in enumerate(self._world.seen)}


def shimmy_pot(turns=TURNS):
    """Return the same world, wrapped by Shimmy itself."""
    from shimmy.meltingpot_compatibility import MeltingPotCompatibilityV0

    return MeltingPotCompatibilityV0(env=substrate(turns))


def substrate(turns=TURNS):
    """Return the same world with Melting Pot's interface, that of dm_env."""
    import dm_env
    from dm_env import specs

    class Substrate:
        def __init__(self):
            self.world = Kettle(turns)

        def observation_spec(self):
            images = {"RGB": PIXELS, "WORLD.RGB": WORLD}
            found = {name: specs.Array(shape, np.uint8, name) for name, shape in images.items()}
            found |= {name: specs.Array(shape, np.float64, name) for name, shape in SCALARS.items()}
            return [dict(found) for _ in range(2)]

        def action_spec(self):
            return [specs.DiscreteArray(ACTIONS, np.int64, "action")] * 2

        def observation(self):
            return [own | {"WORLD.RGB": np.zeros(WORLD, np.uint8)} for own in self.world.seen]

        def reset(self):
            self.world.start()
            rewards = [np.asarray(0.0)] * 2
            return dm_env.TimeStep(dm_env.StepType.FIRST, rewards, 0.0, self.observation())

        def step(self, actions):
            rewards, over = self.world.step(actions)
            kind = dm_env.StepType.LAST if over else dm_env.StepType.MID
            return dm_env.TimeStep(kind, list(map(np.asarray, rewards)), 1.0, self.observation())

        def close(self):
            pass

    return Substrate()
