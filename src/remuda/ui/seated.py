"""Who takes which seat in `remuda play`: you, policies that runs trained, scripted ones."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gymnasium.spaces import Discrete
from rich.console import Console, RenderableType
from rich.text import Text

from remuda.crossplay import check_fits
from remuda.envs.registry import RANDOM, Game
from remuda.envs.scripted import ScriptedPolicy, masks_of
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError, RemudaError
from remuda.saved import Reference, SavedPolicies
from remuda.saved_games import is_meant_of_run
from remuda.trained import Policy
from remuda.types import Array, Bools
from remuda.ui.keyboard import BACKSPACE, END, ENTER, Keyboard

ME = "me"
"""The name of the person at the keyboard."""
MOST_SHOWN = 40
"""Numbers of an observation that are printed, where a game has neither picture nor words."""
SINGLE_KEYS = 10
"""Actions that are chosen by a single digit; more of them by a number and Enter."""


class LeftError(Exception):
    """The person at the keyboard does not want to go on."""


class Remembering(ABC):
    """What takes a seat and may remember what it saw before."""

    @abstractmethod
    def begin(self) -> None:
        """Forget what was seen: its agent's episode is over."""


@dataclass
class Trained(Remembering):
    """A policy of a run on a seat, as a `ScriptedPolicy`."""

    policy: Policy
    sampled: bool
    """Whether it explores as at the end of training; else it is greedy."""

    def begin(self) -> None:
        """Forget it, where the policy is recurrent or stacks frames."""
        self.policy.begin()

    def __call__(
        self, env: VectorEnv, agent: int, observations: Array, random: np.random.Generator
    ) -> Array:
        """Choose in the one copy there is; where the agent does not act, nothing is asked."""
        space = env.agents[agent].action_space
        if not env.active[0, agent]:
            return np.zeros((1, *(space.shape or ())), space.dtype)
        masks = masks_of(env, agent)
        actions: Array = self.policy.act(
            observations, mask=masks, deterministic=not self.sampled, rng=random
        )
        return actions


@dataclass
class Human:
    """A person at the keyboard on a seat, as a `ScriptedPolicy` of one copy.

    Where only one action is allowed it is taken without asking.
    """

    console: Console
    keyboard: Keyboard
    above: Callable[[], list[RenderableType]] = list
    """What is shown above a question: the world, and what happened last."""

    def __call__(
        self,
        env: VectorEnv,
        agent: int,
        observations: Array,
        random: np.random.Generator,  # noqa: ARG002
    ) -> Array:
        """Ask what to do.

        Raises:
            LeftError: the answer is to leave.
        """
        spec = env.agents[agent]
        space = spec.action_space
        assert isinstance(space, Discrete), "other seats are refused"
        chosen = np.full(1, space.start, np.int64)
        if not env.active[0, agent]:
            return chosen
        masks = masks_of(env, agent)
        allowed: Bools = np.ones(int(space.n), np.bool_) if masks is None else masks[0]
        names = names_of(env, agent)
        if allowed.sum() == 1:
            chosen += int(allowed.argmax())
            return chosen
        self._show(env, agent, observations)
        chosen += self._ask(spec.name, names, allowed)
        return chosen

    def _show(self, env: VectorEnv, agent: int, observations: Array) -> None:
        self.console.clear()
        for part in self.above():
            self.console.print(part)
        words = env.describe(agent)
        seen = observations[0].ravel()
        if not words and picture_of(env) is None and seen.size <= MOST_SHOWN:
            words = "sees " + " ".join(f"{float(value):.4g}" for value in seen)
        if words:
            self.console.print(Text(f"{env.agents[agent].name}: {words}"))

    def _ask(self, agent: str, names: list[str], allowed: Bools) -> int:
        """The number of an action that is allowed, from 0."""
        there = [i for i, may in enumerate(allowed.tolist()) if may]
        many = len(names) > SINGLE_KEYS
        how = "a number and Enter" if many else "a key"
        listed = "  ".join(f"{i} {names[i]}" if names[i] != str(i) else str(i) for i in there)
        self.console.print(Text(f"{agent}, your turn ({how}; q leaves): {listed}"))
        arrows = {names[i]: i for i in there}
        typed = ""
        while True:
            key = self.keyboard.key()
            if key in (END, "q"):
                raise LeftError
            if key in arrows and not key.isdecimal():
                return arrows[key]
            if key == BACKSPACE:
                typed = typed[:-1]
                continue
            if key.isdecimal():
                typed += key
            if not (key == ENTER if many else key.isdecimal()):
                continue
            if typed.isdecimal() and int(typed) in there:
                return int(typed)
            if typed:
                self.console.print(Text(f"{typed} is not among what is allowed now: {listed}"))
            typed = ""


def picture_of(env: VectorEnv) -> Array | None:
    """A picture of the first copy: [height, width, 3] uint8; None: the game draws none."""
    try:
        return env.render().copy()
    except NotImplementedError:
        return None


def names_of(env: VectorEnv, agent: int) -> list[str]:
    """What the actions of an agent are called; their numbers where the game says nothing."""
    space = env.agents[agent].action_space
    assert isinstance(space, Discrete), "other actions have no names"
    if len(env.action_names) == space.n:
        return list(env.action_names)
    return [str(i) for i in range(int(space.n))]


@dataclass(frozen=True)
class Seats:
    """Who sits where."""

    policies: tuple[ScriptedPolicy, ...]
    """By agent."""
    human: Human | None
    """The person at the keyboard, the same on all their seats; None: there is none."""


def take_seats(
    game: Game,
    env: VectorEnv,
    seats: Mapping[str, str],
    policy: str | None,
    sampled: bool,
    console: Console,
    scripted: Mapping[str, str] | None = None,
) -> Seats:
    """Give each agent the one that plays it.

    Args:
        game: that is played.
        env: one copy of it.
        seats: by agent: `me`, `RUN:policy`, or who plays without having learned.
        policy: who plays all other seats; None: those of `scripted`, and else at random.
        sampled: whether policies of runs explore as at the end of training.
        console: where a person is asked what to do.
        scripted: by agent, who has its seat in the run whose game it is.

    Raises:
        ConfigError: there is no such agent or policy, or no terminal for a person.
        UsageError: a policy cannot play there.
    """
    agents = [agent.name for agent in env.agents]
    for agent in seats:
        if agent not in agents:
            raise ConfigError(
                f"--seat {agent}: {game.name} has no agent {agent}; it has {', '.join(agents)}"
            )
    if policy is not None and set(agents) == set(seats):
        raise ConfigError(
            f"--policy {policy} plays the seats that --seat does not name, and it names all of "
            f"{', '.join(agents)}; leave one of them out"
        )
    human = None
    if ME in seats.values():
        human = _human(game, env, seats, console)
    found: list[ScriptedPolicy] = []
    opened: dict[Path, SavedPolicies] = {}
    for spec in env.agents:
        who = seats.get(spec.name, policy or (scripted or {}).get(spec.name, RANDOM))
        if who == ME and spec.name in seats:
            assert human is not None
            found.append(human)
        elif spec.name in seats and who not in game.scripted and is_policy_of_run(who):
            found.append(_trained(game, env, spec.name, who, sampled, opened))
        else:
            found.append(_scripted(game, spec.name, who, named=spec.name in seats))
    if sampled and not any(isinstance(each, Trained) for each in found):
        raise ConfigError("--sampled is for policies of runs, and --seat names none; leave it out")
    return Seats(tuple(found), human)


def _human(game: Game, env: VectorEnv, seats: Mapping[str, str], console: Console) -> Human:
    for spec in env.agents:
        if seats.get(spec.name) == ME and not isinstance(spec.action_space, Discrete):
            raise ConfigError(
                f"--seat {spec.name}=me: {spec.name} of {game.name} acts in {spec.action_space}, "
                "and a human can choose among numbered actions (Discrete) only; seat another there"
            )
    if not (console.is_terminal and sys.stdin.isatty()):
        mine = next(agent for agent, who in seats.items() if who == ME)
        raise ConfigError(
            f"--seat {mine}=me: a human plays in a terminal, and here input or output is none; "
            "run it in one, or seat another there"
        )
    return Human(console, Keyboard())


def is_policy_of_run(who: str) -> bool:
    """Whether a policy of a run is meant, by who takes a seat."""
    return who != ME and is_meant_of_run(who)


def _trained(
    game: Game,
    env: VectorEnv,
    agent: str,
    who: str,
    sampled: bool,
    opened: dict[Path, SavedPolicies],
) -> Trained:
    """One that a run trained; each is opened once, so that live weights are of one moment."""
    reference = Reference.parse(who)
    place = reference.run.resolve()
    if place not in opened:
        opened[place] = reference.open()
    found = reference.find_learned(opened[place], default=agent)
    player = found.player
    spec = next(spec for spec in env.agents if spec.name == agent)
    check_fits(game.name, who, player, spec)
    return Trained(
        Policy(player.spec, player.snapshot, player.agent.in_arrays, found.name), sampled
    )


def _scripted(game: Game, agent: str, who: str, named: bool) -> ScriptedPolicy:
    try:
        return game.policy(who)
    except RemudaError as error:
        if not named:
            raise
        raise ConfigError(
            f"--seat {agent}={who}: {error}; `me` is you, and RUN:policy one of a run"
        ) from None
