"""A small double of Sorrel's interfaces, for Python versions that Sorrel itself does not run on.

It keeps what an adapter meets: a world of entities, agents with a `model` and its `memory`, and an
environment whose `take_turn` lets first the entities and then the agents have their transitions.
"""

from types import SimpleNamespace

import numpy as np


class Entity:
    """Something on a tile."""

    has_transitions = False
    value = 0.0

    def transition(self, world):
        """What it does by itself in a turn."""


class Gridworld:
    """A map of entities, the default one where there is nothing else."""

    def __init__(self, height, width, default):
        self.height, self.width, self._default = height, width, default
        self.is_done, self.total_reward = False, 0.0

    def create_world(self):
        self.map = np.empty((self.height, self.width), object)
        for at in np.ndindex(self.map.shape):
            self.map[at] = self._default()
        self.total_reward = 0.0


class Buffer:
    """The memory of a model that learns by itself."""

    def __init__(self, capacity, size, n_frames):
        self.capacity, self.n_frames = capacity, n_frames
        self.states = np.zeros((capacity, size), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.dones = np.zeros(capacity, np.float32)
        self.idx = self.size = 0
        self.extra_data = {}

    def add(self, obs, action, reward, done, **extra):
        self.states[self.idx], self.actions[self.idx] = obs, action
        self.rewards[self.idx], self.dones[self.idx] = reward, done
        self.idx = (self.idx + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def add_empty(self):
        self.idx = (self.idx + self.n_frames - 1) % self.capacity

    def current_state(self):
        return self.states[np.arange(self.idx - self.n_frames + 1, self.idx) % self.capacity]


class RandomModel:
    """A model that the game brings along; the adapter puts another in its place."""

    def __init__(self, size, n_actions):
        self.memory, self.epsilon, self._n = Buffer(64, size, 5), 0.5, n_actions

    def take_action(self, state):
        return int(np.random.randint(self._n))

    def reset(self):
        self.memory.add_empty()

    def start_epoch_action(self, **kwargs):
        """As the base class has it."""

    def end_epoch_action(self, **kwargs):
        """As the base class has it."""

    def train_step(self):
        return 0.0


class Agent(Entity):
    """An entity with a model; `transition` is Sorrel's own."""

    has_transitions = True

    def __init__(self, model, n_actions):
        self.model, self.action_spec = model, SimpleNamespace(n_actions=n_actions)
        self.location = None

    def transition(self, world):
        state = self.pov(world)
        action = self.get_action(state)
        reward = self.act(world, action)
        done = self.is_done(world)
        world.total_reward += reward
        self.model.memory.add(state, action, reward, done)


class Environment:
    """The loop of a game; `take_turn` is Sorrel's own, statistics included."""

    def __init__(self, world, config, stop_if_done=False):
        self.world, self.config, self.stop_if_done = world, config, stop_if_done
        self.turn = 0
        world.create_world()
        self.setup_agents()
        self.populate_environment()

    def reset(self):
        self.turn, self.world.is_done = 0, False
        self.world.create_world()
        self.populate_environment()
        for agent in self.agents:
            agent.reset()

    def take_turn(self, epoch=0):
        self.turn += 1
        for _, entity in np.ndenumerate(self.world.map):
            if entity.has_transitions and not isinstance(entity, Agent):
                entity.transition(self.world)
        for agent in self.agents:
            agent.transition(self.world)
        self.turn_stats = [
            (int(memory.actions[tail]), float(memory.rewards[tail]), bool(memory.dones[tail]))
            for memory in (agent.model.memory for agent in self.agents)
            if memory.size
            for tail in [(memory.idx - 1) % memory.capacity]
        ]


# A game as a user of Sorrel writes it.


class Grass(Entity):
    """Where a berry may grow by itself."""

    has_transitions = True

    def transition(self, world):
        if np.random.random() < 0.05:
            at = next(at for at, entity in np.ndenumerate(world.map) if entity is self)
            world.map[at] = Berry()


class Berry(Entity):
    value = 1.0


class Picker(Agent):
    """Walks on a ring of tiles in one row, and sees all of it."""

    def reset(self):
        self.model.reset()

    def pov(self, world):
        kinds = [[isinstance(e, Berry), isinstance(e, Agent), e is self] for e in world.map[0]]
        return np.array(kinds, np.float32).reshape(1, -1)

    def get_action(self, state):
        frames = np.vstack((self.model.memory.current_state(), state))
        return self.model.take_action(frames.reshape(1, -1))

    def act(self, world, action):
        to = (0, (self.location[1] + (1, -1)[action]) % world.width)
        target = world.map[to]
        if isinstance(target, Agent):
            return -0.5
        world.map[self.location], world.map[to] = Grass(), self
        self.location = to
        return target.value

    def is_done(self, world):
        return world.is_done


class Berries(Environment):
    """Three pickers on a ring; the last one is asked in every second turn alone."""

    lazy = False

    def setup_agents(self):
        size = 3 * self.world.width
        self.agents = [Picker(RandomModel(size, 2), 2) for _ in range(3)]

    def populate_environment(self):
        places = np.random.choice(self.world.width, len(self.agents), replace=False)
        for agent, x in zip(self.agents, places.tolist(), strict=True):
            agent.location = (0, x)
            self.world.map[agent.location] = agent


def berries(max_turns=12, **options):
    config = SimpleNamespace(experiment=SimpleNamespace(max_turns=max_turns))
    return Berries(Gridworld(1, 9, Grass), config, **options)
