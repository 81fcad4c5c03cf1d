"""Unchanged Sorrel games, whose agents are played by Remuda's policies.

    from remuda.envs.adapters.sorrel import SorrelCopies

    def game(num_envs, **options):
        return SorrelCopies(lambda: MyEnvironment(MyWorld(**options), config), num_envs)

    $ remuda train my_module:game

Sorrel's own `take_turn` runs the game. Every agent gets a stand-in for its model. When the game
calls the stand-in for an action, the game pauses (a greenlet, in mid-turn) until the policy has
chosen. The reward is the number that the game adds to the stand-in's memory. Importing this module
does not import Sorrel.

For a game that comes with Sorrel, each section of its configuration is an option. The defaults are
those of the game's script:

    $ remuda train sorrel:treasurehunt --env.options.world.spawn_prob 0.01
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.resources import files
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.random.mtrand import get_bit_generator, set_bit_generator

from remuda.config import overlay
from remuda.envs.checks import BadValueError, broken, number, write_checked
from remuda.envs.games import data
from remuda.envs.games.array_game import TurnArrays
from remuda.errors import ConfigError, ContractError
from remuda.types import AgentSpec, Array, Bools, Floats, Integers

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:
    raise ConfigError(f"Sorrel games need greenlet ({error}): pip install -e '.[sorrel]'") from None


EXAMPLES = data.load("sorrel")
"""Games that come with Sorrel. `environment`, `world` and `entity` (which fills empty places) are
each a `module:Class` below `sorrel`. The configuration is `config`, or in `file` in the game's
package; `more` lists further keys of its sections. If `is_plain`, the section `world` is passed as
keyword arguments."""
MOST_STILL = 1000
"""The limit of consecutive calls of `take_turn` without progress."""


class StandInMemory:
    """A stand-in for Sorrel's `Buffer` that keeps the newest step and passes the reward on."""

    def __init__(self, size: int, tell: Callable[[Any], None]) -> None:
        self.capacity, self.n_frames = 1, 1
        self.idx = self.size = 0
        self.states: Floats = np.zeros((1, size), np.float32)
        self.actions: Integers = np.zeros(1, np.int64)
        self.rewards: Floats = np.zeros(1, np.float32)
        self.dones: Floats = np.zeros(1, np.float32)
        self.extra_data: dict[str, Array] = {}
        self._tell = tell

    def add(self, obs: Any, action: int, reward: float, done: bool, **extra: Any) -> None:
        self._tell(reward)
        self.states[0] = np.ravel(obs)[: self.states.shape[1]]
        self.actions[0], self.rewards[0], self.dones[0] = action, reward, done
        self.extra_data = {name: np.asarray([value]) for name, value in extra.items()}
        self.size = 1

    def add_empty(self) -> None:
        """Do nothing: the policy stacks frames (`policy.n_frames`)."""

    def current_state(self) -> Floats:
        """Return an empty array, [0, size]: there are no earlier frames."""
        return self.states[:0]

    def clear(self) -> None:
        """Remove the newest step."""
        self.size = 0


class StandIn:
    """A stand-in for Sorrel's `BaseModel`, whose `take_action` calls Remuda's policy."""

    epsilon = 0.0

    def __init__(self, size: int, ask: Callable[[Any], int], tell: Callable[[Any], None]) -> None:
        self.memory = StandInMemory(size, tell)
        self.input_size, self.n_frames = (1, size), 1
        self.take_action = ask

    def ignore(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the policy resets itself, and the configuration sets the exploration."""

    reset = start_epoch_action = end_epoch_action = epsilon_decay = ignore

    def train_step(self) -> float:
        """Return no loss: learners train the policy."""
        return 0.0


class _Copy:
    def __init__(self, make: Callable[[], Any], max_turns: int | None) -> None:
        self._numbers = np.random.MT19937(0)
        self._other_numbers = random.Random(0).getstate()
        self._play: greenlet | None = None
        self._calls = 0
        self.waits_for: int | None = None  # the agent that is to act; None: the episode has ended
        self.caller = 0  # the agent that the game called last
        self.world_ended = False  # whether the game ended the episode, not the limit of turns
        with self._own_numbers():
            self.game = game = _checked(make())
            sizes = [np.size(agent.pov(game.world)) for agent in game.agents]
        if max_turns is None:
            max_turns = int(game.config.experiment.max_turns)
        self._max_turns = max_turns
        self.rewards = np.zeros(len(sizes))  # by agent, since the last read
        self.observations: list[Floats] = [np.zeros(size, np.float32) for size in sizes]
        """The newest observation of each agent."""
        self._stand_ins = [
            StandIn(size, partial(self._choose, i), partial(self._earn, i))
            for i, size in enumerate(sizes)
        ]
        self._stand_in()

    def _stand_in(self) -> None:
        for agent, stand_in in zip(self.game.agents, self._stand_ins, strict=True):
            agent.model = stand_in

    def restart(self, seed: int) -> None:
        """Start an episode, and play up to the first decision."""
        self._numbers = np.random.MT19937(seed)
        self._other_numbers = random.Random(seed).getstate()
        for observation in self.observations:
            observation[:] = 0.0
        # A paused episode is discarded.
        self._play = greenlet(self._episode)
        self.act()

    def act(self, *action: int) -> None:
        """Continue with an action to the next decision, or without one to the first decision."""
        assert self._play is not None
        with self._own_numbers():
            agent = self._play.switch(*action)
        self.waits_for = None if self._play.dead else agent

    def _episode(self) -> None:
        game, world = self.game, self.game.world
        game.reset()
        self._stand_in()  # `reset` may have made new agents
        for agent in game.agents:
            agent.model.start_epoch_action(epoch=0)
        still = 0
        while not self._is_done() and game.turn < self._max_turns:
            before = game.turn, self._calls
            game.take_turn()
            still = still + 1 if (game.turn, self._calls) == before else 0
            if still == MOST_STILL:
                raise ContractError(
                    f"{type(game).__name__}: take_turn was called {still:,} times in a row, and "
                    "neither let an agent act nor changed `turn`, so its episode would never "
                    "end; let it count `self.turn` up"
                )
        self.world_ended = self._is_done()  # even if that was in the last allowed turn
        world.is_done = True
        for agent in game.agents:
            agent.model.end_epoch_action(epoch=0)
        for observation, agent in zip(self.observations, game.agents, strict=True):
            observation[:] = np.ravel(agent.pov(world))

    def _is_done(self) -> bool:
        game = self.game
        return bool(getattr(game.world, "is_done", False) and getattr(game, "stop_if_done", False))

    def _choose(self, agent: int, state: Any) -> int:
        """Pause the game until the agent's policy has chosen an action for this observation."""
        self._calls += 1
        flat = np.ravel(np.asarray(state))
        self.caller = agent
        if flat.size != self.observations[agent].size:
            raise ContractError(
                f"agent {agent} acts on {flat.size} numbers, but its `pov` gave "
                f"{self.observations[agent].size}: pass the result of `pov` to the model"
            )
        write_checked("the observation", flat, self.observations[agent])
        action: int = getcurrent().parent.switch(agent)
        return action

    def _earn(self, agent: int, reward: Any) -> None:
        self.caller = agent
        self.rewards[agent] += number(reward)

    @contextmanager
    def _own_numbers(self) -> Iterator[None]:
        numpy_generator, python_state = get_bit_generator(), random.getstate()
        set_bit_generator(self._numbers)
        random.setstate(self._other_numbers)
        try:
            yield
        finally:
            self._other_numbers = random.getstate()
            set_bit_generator(numpy_generator)
            random.setstate(python_state)


def _checked(game: Any) -> Any:
    for name in ("take_turn", "reset", "agents", "world"):
        if not hasattr(game, name):
            raise ContractError(f"{type(game).__name__} is not a Sorrel game: it has no {name}")
    return game


class SorrelCopies(TurnArrays):
    """Copies of a Sorrel game.

    A turn of Sorrel's game is a turn of this environment: the agents act one after another, in the
    game's order. An agent that the game skips does not act in that turn. An episode is truncated
    after `max_turns`; with the game's `stop_if_done` it terminates when the world is done. The
    `done` of a single agent is ignored, since the game lets the agent act again. Draws from NumPy's
    and Python's global generators are reproducible by the seed; draws from other generators are
    not.
    """

    can_observe_together = False

    def __init__(
        self, make: Callable[[], Any], num_envs: int = 1, max_turns: int | None = None
    ) -> None:
        """Make the copies, and replace their models.

        Args:
            make: makes a `sorrel.environment.Environment`; anything else raises a ContractError.
            num_envs: number of copies.
            max_turns: turns of an episode; None for the game's `config.experiment.max_turns`.
        """
        self._copies = [_Copy(make, max_turns) for _ in range(num_envs)]
        first = self._copies[0]
        agents = [
            AgentSpec(
                f"agent_{i}",
                Box(-np.inf, np.inf, (observation.size,), np.float32),
                Discrete(int(agent.action_spec.n_actions)),
            )
            for i, (agent, observation) in enumerate(
                zip(first.game.agents, first.observations, strict=True)
            )
        ]
        self._make_arrays(num_envs, agents)
        self.turn_groups = tuple((agent,) for agent in range(self.num_agents))
        self.rewards_so_far = self._rewards
        self._turns: Integers = np.zeros(num_envs, np.int64)

    def reset(self, seeds: Integers, mask: Bools) -> None:
        for e in np.flatnonzero(mask).tolist():
            self._turns[e] = 0
            self._play(e, self._copies[e].restart, int(seeds[e]) % 2**63)

    def begin_turn(self) -> None:
        """Clear rewards and flags; the game moved its entities after the last agent's action."""
        super().begin_turn()
        self._turns += 1

    def observe(self, agent: int, out: Array) -> None:
        for e, copy in enumerate(self._copies):
            out[e] = copy.observations[agent]

    def act(self, agent: int, actions: Integers) -> None:
        for e in np.flatnonzero(self.active[:, agent]).tolist():
            self._play(e, self._copies[e].act, int(actions[e]))

    def render(self, env: int = 0) -> Array:
        """Return one copy as Sorrel's renderer draws it: [height, width, 3] uint8."""
        try:
            visualization = import_module("sorrel.utils.visualization")
        except ImportError as error:
            raise NotImplementedError(f"drawing a Sorrel game needs Sorrel: {error}") from None
        layers = visualization.render_sprite(self._copies[env].game.world)
        picture = visualization.image_from_array(layers).convert("RGB")
        return np.asarray(picture).copy()

    def _play(self, e: int, play: Callable[[int], None], number: int) -> None:
        """Continue a copy, and read its rewards and the agent that acts next."""
        copy = self._copies[e]
        try:
            play(number)
        except BadValueError as error:
            turn = int(self._turns[e])
            raise broken(self, copy.caller, e, turn, error, lets_pass=False) from None
        self._rewards[e] += copy.rewards
        copy.rewards[:] = 0.0
        self.active[e] = False
        if copy.waits_for is not None:
            self.active[e, copy.waits_for] = True
        else:
            (self._terminated if copy.world_ended else self._truncated)[e] = True


def make_sorrel(name: str, /, num_envs: int = 1, **sections: Any) -> SorrelCopies:
    """Make copies of a game that comes with Sorrel."""
    example = EXAMPLES.get(name)
    if example is None:
        raise ConfigError(f"sorrel:{name}: no such game; known are {', '.join(EXAMPLES)}")
    try:
        environment, world, entity = (
            getattr(import_module(f"sorrel.{module}"), attribute)
            for module, _, attribute in (
                example[part].partition(":") for part in ("environment", "world", "entity")
            )
        )
    except ImportError as error:
        raise ConfigError(
            f"sorrel:{name} needs Sorrel and Python 3.12 ({error}): pip install -e '.[sorrel]'"
        ) from None
    usual = _from_file(example) if "file" in example else example["config"]
    more = example.get("more", {})
    known = {
        section: [*own, *more.get(section, ())]
        for section, own in usual.items()
        if isinstance(own, Mapping)
    }
    for section, own in sections.items():
        if section not in known:
            raise ConfigError(
                f"env.options.{section}: sorrel:{name} has no such section; it has "
                f"{', '.join(known)}"
            )
        if not isinstance(own, Mapping):
            raise ConfigError(f"env.options.{section} is {own!r}; set its keys, as {section}.KEY")
        for key in own:
            if key not in known[section]:
                raise ConfigError(
                    f"env.options.{section}.{key}: sorrel:{name} has no such key; it has "
                    f"{', '.join(known[section]) or 'none'}"
                )
    config = overlay(usual, sections)

    def make() -> Any:
        if example.get("is_plain"):
            return environment(world(**config["world"], default_entity=entity()), config)
        from omegaconf import OmegaConf

        tree = OmegaConf.create(config)
        return environment(world(config=tree, default_entity=entity()), tree)

    return SorrelCopies(make, num_envs)


def _from_file(example: Mapping[str, Any]) -> dict[str, Any]:
    import yaml

    package = "sorrel." + example["environment"].partition(":")[0].rpartition(".")[0]
    config: dict[str, Any] = yaml.safe_load(files(package).joinpath(example["file"]).read_text())
    return config
