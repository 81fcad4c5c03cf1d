"""Sorrel games: gridworld societies, as they are, with the policies of Remuda in their agents.

    from remuda.envs.adapters.sorrel import SorrelCopies

    def game(num_envs, **options):
        return SorrelCopies(lambda: MyEnvironment(MyWorld(**options), config), num_envs)

    $ remuda train my_module:game

Sorrel's own `take_turn` stays in charge. Every agent is given a stand-in for a model: where the
game asks it for an action, the game is put aside until the policy has chosen, and what the game
tells the stand-in's memory is the reward. A game is put aside as a greenlet: it keeps its place in
the middle of a turn, and nothing runs at the same time. Nothing of Sorrel is imported here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.random.mtrand import get_bit_generator, set_bit_generator

from remuda.envs.checks import BadValueError, broken, number, write_checked
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError, ContractError
from remuda.types import AgentSpec, Array, Bools, Floats, Integers, TurnResult

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:
    raise ConfigError(
        f"Sorrel games need greenlet ({error}): pip install 'remuda[sorrel]'"
    ) from None


MOST_STILL = 1000
"""Turns in a row in which a game may stand still before its episode is given up."""


class StandInMemory:
    """Looks like Sorrel's `Buffer`, keeps the newest step alone, and passes the reward on."""

    def __init__(self, size: int, tell: Callable[[Any], None]) -> None:
        """Hold one step.

        Args:
            size: numbers in an observation.
            tell: called with the reward.
        """
        self.capacity, self.n_frames = 1, 1
        self.idx = self.size = 0
        self.states: Floats = np.zeros((1, size), np.float32)
        self.actions: Integers = np.zeros(1, np.int64)
        self.rewards: Floats = np.zeros(1, np.float32)
        self.dones: Floats = np.zeros(1, np.float32)
        self.extra_data: dict[str, Array] = {}
        self._tell = tell

    def add(self, obs: Any, action: int, reward: float, done: bool, **extra: Any) -> None:
        """A step is over."""
        self._tell(reward)
        self.states[0] = np.ravel(obs)[: self.states.shape[1]]
        self.actions[0], self.rewards[0], self.dones[0] = action, reward, done
        self.extra_data = {name: np.asarray([value]) for name, value in extra.items()}
        self.size = 1

    def add_empty(self) -> None:
        """Frames are stacked by the policy (`policy.n_frames`), which begins with empty ones."""

    def current_state(self) -> Floats:
        """The frames before this one that a model is to see: none, [0, size]."""
        return self.states[:0]

    def clear(self) -> None:
        """Forget the newest step."""
        self.size = 0


class StandIn:
    """Looks like Sorrel's `BaseModel`, and asks Remuda's policy for what to do."""

    epsilon = 0.0

    def __init__(self, size: int, ask: Callable[[Any], int], tell: Callable[[Any], None]) -> None:
        """Stand in.

        Args:
            size: numbers in an observation.
            ask: called with the state; returns the action.
            tell: as of `StandInMemory`.
        """
        self.memory = StandInMemory(size, tell)
        self.input_size, self.n_frames = (1, size), 1
        self._ask = ask

    def take_action(self, state: Any) -> int:
        """What the policy chooses to do in this state."""
        return self._ask(state)

    def reset(self) -> None:
        """An episode begins; the policy knows."""

    def start_epoch_action(self, **kwargs: Any) -> None:
        """Nothing to do before an episode."""

    def end_epoch_action(self, **kwargs: Any) -> None:
        """Nothing to do after an episode."""

    def train_step(self) -> float:
        """Learning goes on elsewhere; there is no loss to tell."""
        return 0.0

    def epsilon_decay(self, *args: Any, **kwargs: Any) -> None:
        """The policy explores by its own configuration."""


class _Copy:
    """One game, put aside wherever it waits for an action."""

    def __init__(self, make: Callable[[], Any], max_turns: int | None) -> None:
        self._numbers = np.random.MT19937(0)
        self._other_numbers = random.Random(0).getstate()
        self._play: greenlet | None = None
        self._asked = 0
        self.asking: int | None = None
        """Which agent is to act; None: the episode is over."""
        self.seen: list[Floats] = []
        """By agent, what it saw last."""
        self.telling = 0
        """Which agent the game told something of last."""
        self.world_ended = False
        """Whether the episode was ended by the game, not by the number of turns."""
        with self._own_numbers():
            self.game = game = _checked(make())
            sizes = [np.size(agent.pov(game.world)) for agent in game.agents]
        if max_turns is None:
            max_turns = int(game.config.experiment.max_turns)
        self._max_turns = max_turns
        self.rewards = np.zeros(len(sizes))
        """What each was given since this was last emptied."""
        self.seen = [np.zeros(size, np.float32) for size in sizes]
        self._stand_ins = [
            StandIn(size, self._asks(i), self._tells(i)) for i, size in enumerate(sizes)
        ]
        self._stand_in()

    def _stand_in(self) -> None:
        for agent, stand_in in zip(self.game.agents, self._stand_ins, strict=True):
            agent.model = stand_in

    def restart(self, seed: int) -> None:
        """Begin an episode, up to the first question."""
        self._numbers = np.random.MT19937(seed)
        self._other_numbers = random.Random(seed).getstate()
        for seen in self.seen:
            seen[:] = 0.0
        # An episode that was put aside in the middle of a turn is thrown away.
        self._play = greenlet(self._episode)
        self._go_on()

    def act(self, action: int) -> None:
        """Answer the question, up to the next one."""
        self._go_on(action)

    def _go_on(self, *answer: int) -> None:
        assert self._play is not None
        with self._own_numbers():
            question = self._play.switch(*answer)
        self.asking = None if self._play.dead else question

    def _episode(self) -> None:
        game, world = self.game, self.game.world
        game.reset()
        self._stand_in()  # it may have made its agents anew
        for agent in game.agents:
            agent.model.start_epoch_action(epoch=0)
        still = 0
        while not self._over():
            before = game.turn, self._asked
            game.take_turn()
            still = still + 1 if (game.turn, self._asked) == before else 0
            if still == MOST_STILL:
                raise ContractError(
                    f"{type(game).__name__}: take_turn was called {still:,} times in a row, and "
                    "neither let an agent act nor changed `turn`, so that its episode would never "
                    "end; let it count `self.turn` up"
                )
        self.world_ended = self._is_done()  # in its last turn, too
        world.is_done = True
        for agent in game.agents:
            agent.model.end_epoch_action(epoch=0)
        for seen, agent in zip(self.seen, game.agents, strict=True):
            seen[:] = np.ravel(agent.pov(world))

    def _over(self) -> bool:
        return self._is_done() or self.game.turn >= self._max_turns

    def _is_done(self) -> bool:
        game = self.game
        return bool(getattr(game.world, "is_done", False) and getattr(game, "stop_if_done", False))

    def _asks(self, agent: int) -> Callable[[Any], int]:
        def ask(state: Any) -> int:
            self._asked += 1
            flat = np.ravel(np.asarray(state))
            self.telling = agent
            if flat.size != self.seen[agent].size:
                raise ContractError(
                    f"agent {agent} acts on {flat.size} numbers, and its `pov` gave "
                    f"{self.seen[agent].size}: let it pass on what `pov` gives"
                )
            write_checked("the observation", flat, self.seen[agent])
            parent = getcurrent().parent
            action: int = parent.switch(agent)
            return action

        return ask

    def _tells(self, agent: int) -> Callable[[Any], None]:
        def tell(reward: Any) -> None:
            self.telling = agent
            self.rewards[agent] += number(reward)

        return tell

    @contextmanager
    def _own_numbers(self) -> Iterator[None]:
        """Let the game draw from generators of its own, where it draws from those of everybody."""
        theirs, others = get_bit_generator(), random.getstate()
        set_bit_generator(self._numbers)
        random.setstate(self._other_numbers)
        try:
            yield
        finally:
            self._other_numbers = random.getstate()
            set_bit_generator(theirs)
            random.setstate(others)


def _checked(game: Any) -> Any:
    for name in ("take_turn", "reset", "agents", "world"):
        if not hasattr(game, name):
            raise ContractError(f"{type(game).__name__} is no Sorrel game: it has no {name}")
    return game


class SorrelCopies(VectorEnv):
    """Copies of a Sorrel game.

    A turn of the game is a turn here: its agents act one after another, in the order in which the
    game lets them. An agent that the game passes over does not act in that turn. An episode is cut
    off after `max_turns`; where the game has `stop_if_done`, it ends when the world is done. What
    the game tells of a single agent's being done is not listened to, since it will ask it again.
    Games that draw from NumPy's and Python's global random numbers repeat themselves by their
    seeds; what they draw elsewhere does not.
    """

    can_observe_together = False

    def __init__(
        self, make: Callable[[], Any], num_envs: int = 1, max_turns: int | None = None
    ) -> None:
        """Make the copies, and put the stand-ins in place.

        Args:
            make: makes one game, a `sorrel.environment.Environment`.
            num_envs: copies.
            max_turns: of an episode; None: the game's own `config.experiment.max_turns`.

        Raises:
            ContractError: it is no such game.
        """
        self.num_envs = num_envs
        self._copies = [_Copy(make, max_turns) for _ in range(num_envs)]
        first = self._copies[0]
        self.agents = tuple(
            AgentSpec(
                f"agent_{i}",
                Box(-np.inf, np.inf, (seen.size,), np.float32),
                Discrete(int(agent.action_spec.n_actions)),
            )
            for i, (agent, seen) in enumerate(zip(first.game.agents, first.seen, strict=True))
        )
        self.turn_groups = tuple((agent,) for agent in range(self.num_agents))
        shape = (num_envs, self.num_agents)
        self.active: Bools = np.zeros(shape, np.bool_)
        self._rewards: Floats = np.zeros(shape, np.float32)
        self.rewards_so_far = self._rewards
        self._terminated: Bools = np.zeros(shape, np.bool_)
        self._truncated: Bools = np.zeros(shape, np.bool_)
        self._turns: Integers = np.zeros(num_envs, np.int64)
        self._result = TurnResult(self._rewards, self._terminated, self._truncated)

    def reset(self, seeds: Integers, mask: Bools) -> None:
        """Restart the copies in `mask`, each from its own seed."""
        for e in np.flatnonzero(mask).tolist():
            self._turns[e] = 0
            try:
                self._copies[e].restart(int(seeds[e]) % 2**63)
            except BadValueError as error:
                raise self._broken(e, error) from None
            self._note(e)

    def begin_turn(self) -> None:
        """The game has moved its own entities already, right after the last agent's act."""
        self._rewards[:] = 0.0
        self._terminated[:] = False
        self._truncated[:] = False
        self._turns += 1

    def observe(self, agent: int, out: Array) -> None:
        """What it saw when it was asked last: [num_envs, size] float32."""
        for e, copy in enumerate(self._copies):
            out[e] = copy.seen[agent]

    def act(self, agent: int, actions: Integers) -> None:
        """Answer the copies that ask this agent."""
        for e in np.flatnonzero(self.active[:, agent]).tolist():
            try:
                self._copies[e].act(int(actions[e]))
            except BadValueError as error:
                raise self._broken(e, error) from None
            self._note(e)

    def end_turn(self) -> TurnResult:
        """What the game told the memories in this turn."""
        return self._result

    def render(self, env: int = 0) -> Array:
        """The world of one copy, as Sorrel's own renderer draws it: [height, width, 3] uint8."""
        try:
            visualization = import_module("sorrel.utils.visualization")
        except ImportError as error:
            raise NotImplementedError(
                f"Sorrel draws its worlds, and is not here: {error}"
            ) from None
        layers = visualization.render_sprite(self._copies[env].game.world)
        picture = visualization.image_from_array(layers).convert("RGB")
        return np.asarray(picture).copy()

    def _broken(self, e: int, said: object) -> ContractError:
        turn = int(self._turns[e])
        return broken(self, self._copies[e].telling, e, turn, said, lets_pass=False)

    def _note(self, e: int) -> None:
        """Take over what a copy has told, and whom it asks."""
        copy = self._copies[e]
        self._rewards[e] += copy.rewards
        copy.rewards[:] = 0.0
        self.active[e] = False
        if copy.asking is not None:
            self.active[e, copy.asking] = True
        elif copy.world_ended:
            self._terminated[e] = True
        else:
            self._truncated[e] = True
