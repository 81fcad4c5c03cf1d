"""Players of `remuda play`: a person, trained policies and scripted ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gymnasium.spaces import Discrete
from rich.console import Console, RenderableType
from rich.text import Text

from remuda.envs.registry import RANDOM, Game
from remuda.envs.scripted import ScriptedPolicy, masks_of
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError, RemudaError
from remuda.evaluation.policy import Policy
from remuda.evaluation.tournaments.entrants import check_fits
from remuda.training.saved.games import is_meant_of_run, open_runs
from remuda.training.saved.policies import Reference, SavedPolicies
from remuda.types import AgentSpec, Array, Bools
from remuda.ui.terminal.keyboard import BACKSPACE, END, ENTER, Keyboard

ME = "me"  # the player name of a person
MAX_PRINTED = 40  # observations up to this size are printed as numbers
SINGLE_KEYS = 10  # up to this many actions, one digit chooses; otherwise a number and Enter


class LeftError(Exception):
    """The person has left the game."""


@dataclass
class TrainedPlayer:
    """A policy of a run, as a `ScriptedPolicy` for one environment copy."""

    policy: Policy
    sampled: bool  # True: explore as at the end of training; False: play greedily

    def begin(self) -> None:
        """Reset the recurrent state and the frame stack."""
        self.policy.begin()

    def __call__(
        self, env: VectorEnv, agent: int, observations: Array, rng: np.random.Generator
    ) -> Array:
        """Choose an action; skip an inactive agent."""
        space = env.agents[agent].action_space
        if not env.active[0, agent]:
            return np.zeros((1, *(space.shape or ())), space.dtype)
        masks = masks_of(env, agent)
        actions: Array = self.policy.act(
            observations, mask=masks, deterministic=not self.sampled, rng=rng
        )
        return actions


@dataclass
class Question:
    """A question to a person, about the next action of an agent."""

    agent: str
    words: str  # what the agent observes, in words or numbers; empty: the picture shows it
    names: list[str]  # of all actions
    allowed: list[int]  # more than one of them


class Person:
    """A person, as a `ScriptedPolicy`; a single legal action is taken without a question."""

    def choose(self, question: Question) -> int:
        """Return the index of an allowed action; raise `LeftError` if the person quits."""
        raise NotImplementedError

    def __call__(
        self,
        env: VectorEnv,
        agent: int,
        observations: Array,
        rng: np.random.Generator,  # noqa: ARG002
    ) -> Array:
        spec = env.agents[agent]
        space = spec.action_space
        assert isinstance(space, Discrete), "check_person refuses other action spaces"
        chosen = np.full(1, space.start, np.int64)
        if not env.active[0, agent]:
            return chosen
        masks = masks_of(env, agent)
        allowed: Bools = np.ones(int(space.n), np.bool_) if masks is None else masks[0]
        legal = np.flatnonzero(allowed).tolist()
        if len(legal) > 1:
            words = _words_for(env, agent, observations)
            chosen += self.choose(Question(spec.name, words, names_of(env, agent), legal))
        else:
            chosen += int(allowed.argmax())
        return chosen


def _words_for(env: VectorEnv, agent: int, observations: Array) -> str:
    words, values = env.describe(agent), observations[0].ravel()
    if not words and picture_of(env) is None and values.size <= MAX_PRINTED:
        words = "observation " + " ".join(f"{float(value):.4g}" for value in values)
    return words


@dataclass
class HumanPlayer(Person):
    """A person at the keyboard."""

    console: Console
    keyboard: Keyboard
    above: Callable[[], list[RenderableType]] = list  # returns the lines to show above a question

    def choose(self, question: Question) -> int:
        """Wait for the keys of an action."""
        self.console.clear()
        for part in self.above():
            self.console.print(part)
        if question.words:
            self.console.print(Text(f"{question.agent}: {question.words}"))
        return self._ask(question.agent, question.names, question.allowed)

    def _ask(self, agent: str, names: list[str], legal: list[int]) -> int:
        needs_enter = len(names) > SINGLE_KEYS
        how = "a number and Enter" if needs_enter else "a key"
        listed = "  ".join(f"{i} {names[i]}" if names[i] != str(i) else str(i) for i in legal)
        self.console.print(Text(f"{agent}, your turn ({how}; q quits): {listed}"))
        arrows = {names[i]: i for i in legal}
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
            if not (key == ENTER if needs_enter else key.isdecimal()):
                continue
            if typed.isdecimal() and int(typed) in legal:
                return int(typed)
            if typed:
                self.console.print(Text(f"{typed} is not a legal action; choose from: {listed}"))
            typed = ""


def picture_of(env: VectorEnv) -> Array | None:
    """Return an image of the first copy, [height, width, 3] uint8; None: the game renders none."""
    try:
        return env.render().copy()
    except NotImplementedError:
        return None


def names_of(env: VectorEnv, agent: int) -> list[str]:
    """Return the names of an agent's actions, or their numbers if the game has no names."""
    space = env.agents[agent].action_space
    assert isinstance(space, Discrete), "only discrete actions have names"
    if len(env.action_names) == space.n:
        return list(env.action_names)
    return [str(i) for i in range(int(space.n))]


def take_seats(
    game: Game,
    env: VectorEnv,
    seats: Mapping[str, str],
    policy: str | None,
    sampled: bool,
    console: Console,
    scripted: Mapping[str, str] | None = None,
) -> tuple[list[ScriptedPolicy], HumanPlayer | None]:
    """Find the player of each agent, from `seats`, `policy`, `scripted` or `random`, in order."""
    agents = [agent.name for agent in env.agents]
    for agent in seats:
        if agent not in agents:
            raise ConfigError(
                f"--seat {agent}: {game.name} has no agent {agent}; it has {', '.join(agents)}"
            )
    if policy is not None and set(agents) == set(seats):
        raise ConfigError(
            f"--policy {policy} is for seats that --seat does not name, but --seat names all of "
            f"{', '.join(agents)}; leave out one of them"
        )
    human = _human(game, env, seats, console) if ME in seats.values() else None
    trained = {
        agent: player
        for agent, player in seats.items()
        if player not in game.scripted and is_policy_of_run(player)
    }
    if sampled and not trained:
        raise ConfigError("--sampled is for policies of runs, but --seat names none; leave it out")
    opened = open_runs(trained.values())  # once, so that all live weights are of the same moment
    players: list[ScriptedPolicy] = []
    for spec in env.agents:
        named = spec.name in seats
        player = seats.get(spec.name, policy or (scripted or {}).get(spec.name, RANDOM))
        if spec.name in trained:
            players.append(_trained(game, spec, player, sampled, opened))
        elif human is not None and seats.get(spec.name) == ME:
            players.append(human)
        else:
            players.append(_scripted(game, spec.name, player, named))
    return players, human


def _human(game: Game, env: VectorEnv, seats: Mapping[str, str], console: Console) -> HumanPlayer:
    for spec in env.agents:
        if seats.get(spec.name) == ME:
            check_person(game, spec, f"--seat {spec.name}=me: ")
    if not (console.is_terminal and sys.stdin.isatty()):
        agent = next(agent for agent, player in seats.items() if player == ME)
        raise ConfigError(
            f"--seat {agent}=me: a human needs a terminal, but the input or output is not one; "
            "run it in a terminal, or seat a policy there"
        )
    return HumanPlayer(console, Keyboard())


def check_person(game: Game, spec: AgentSpec, key: str = "") -> None:
    """Refuse a person in the seat of an agent without numbered actions."""
    if not isinstance(spec.action_space, Discrete):
        raise ConfigError(
            f"{key}{spec.name} of {game.name} has {spec.action_space} actions"
            ", but a human can choose only among numbered actions (Discrete); seat a policy "
            "there"
        )


def is_policy_of_run(player: str) -> bool:
    """Return whether a player is a policy of a run."""
    return player != ME and is_meant_of_run(player)


def _trained(
    game: Game, spec: AgentSpec, name: str, sampled: bool, opened: Mapping[Path, SavedPolicies]
) -> TrainedPlayer:
    reference = Reference.parse(name)
    learned = reference.find_learned(opened[reference.run.resolve()], default=spec.name)
    player = learned.player
    check_fits(game.name, name, player, spec)
    policy = Policy(player.spec, player.snapshot, player.agent.in_arrays, learned.name)
    return TrainedPlayer(policy, sampled)


def _scripted(game: Game, agent: str, player: str, named: bool) -> ScriptedPolicy:
    try:
        return game.policy(player)
    except RemudaError as error:
        if not named:
            raise
        raise ConfigError(
            f"--seat {agent}={player}: {error}; `me` is you, RUN:policy a policy of a run"
        ) from None
