"""The games by name. A game is a name, what it is, and a factory; its module is imported late."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from remuda.errors import ConfigError, UnknownGameError

if TYPE_CHECKING:
    from remuda.envs.vector_env import VectorEnv


@dataclass(frozen=True)
class Game:
    """An entry of the registry."""

    name: str
    summary: str
    """One line for `remuda games`."""
    kind: str
    """cooperative, competitive or mixed."""
    factory: str
    """`module:callable`; it takes `num_envs` and the game's options, and returns a `VectorEnv`."""

    def load(self) -> Callable[..., VectorEnv]:
        """Import the factory.

        Raises:
            UnknownGameError: there is no such module, or nothing of that name in it.
        """
        module, _, attribute = self.factory.partition(":")
        if module in LIBRARIES:
            made: Callable[..., VectorEnv] = partial(_adapter(module), attribute)
            return made
        try:
            factory: Callable[..., VectorEnv] = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise UnknownGameError(f"cannot load the game {self.factory}: {error}") from None
        return factory

    def make(self, num_envs: int, **options: Any) -> VectorEnv:
        """Build `num_envs` copies.

        Raises:
            ConfigError: an option that the game does not know, or a value that it refuses.
        """
        factory = self.load()
        parameters = inspect.signature(factory).parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        allowed = {name: parameter for name, parameter in parameters.items() if name != "num_envs"}
        unknown = sorted(set(options) - set(allowed))
        if unknown and not open_ended:
            raise ConfigError(
                f"env.options.{unknown[0]}: {self.name} has no such option; "
                f"it has {', '.join(allowed)}"
            )
        try:
            return factory(num_envs=num_envs, **options)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"env.options: {self.name} refuses them: {error}") from error


GAMES: dict[str, Game] = {
    game.name: game
    for game in (
        Game(
            name="treasure_hunt",
            summary="agents compete for gems and food on a grid, and step round bones",
            kind="competitive",
            factory="remuda.envs.treasure_hunt:TreasureHunt",
        ),
        Game(
            name="bucket_brigade",
            summary="neighbours on a ring of houses put out fires together, each tempted to rest",
            kind="mixed",
            factory="remuda.envs.bucket_brigade:BucketBrigade",
        ),
        Game(
            name="kuhn_poker",
            summary="two agents, three cards and one bet: the smallest game with bluffing",
            kind="competitive",
            factory="remuda.envs.kuhn_poker:KuhnPoker",
        ),
        Game(
            name="rock_paper_scissors",
            summary="two agents choose at once; each choice beats another",
            kind="competitive",
            factory="remuda.envs.matrix_games:rock_paper_scissors",
        ),
        Game(
            name="matching_pennies",
            summary="two agents choose a side; one wants them to match, one to differ",
            kind="competitive",
            factory="remuda.envs.matrix_games:matching_pennies",
        ),
        Game(
            name="prisoners_dilemma",
            summary="two agents cooperate or defect; each does better by defecting",
            kind="mixed",
            factory="remuda.envs.matrix_games:prisoners_dilemma",
        ),
        Game(
            name="stag_hunt",
            summary="two agents hunt a stag together, or a hare each alone",
            kind="mixed",
            factory="remuda.envs.matrix_games:stag_hunt",
        ),
        Game(
            name="hawk_dove",
            summary="two agents fight or yield; one of each is best",
            kind="mixed",
            factory="remuda.envs.matrix_games:hawk_dove",
        ),
        Game(
            name="bach_or_stravinsky",
            summary="two agents gain by agreeing, and like different ends",
            kind="mixed",
            factory="remuda.envs.matrix_games:bach_or_stravinsky",
        ),
    )
}


LIBRARIES = {"gymnasium": "remuda.envs.adapters.gymnasium:make_gymnasium"}
"""By library, what makes an environment of a name that the library knows."""


def _adapter(library: str) -> Callable[..., VectorEnv]:
    module, _, attribute = LIBRARIES[library].partition(":")
    adapter: Callable[..., VectorEnv] = getattr(import_module(module), attribute)
    return adapter


def find_game(name: str) -> Game:
    """The game called `name`.

    One of `GAMES`, one of a library as `gymnasium:CartPole-v1`, or the user's own as
    `module:callable`.

    Raises:
        UnknownGameError: there is none; the message names the nearest and all there are.
    """
    if name in GAMES:
        return GAMES[name]
    if name.partition(":")[0] in LIBRARIES:
        return Game(name, f"a game of {name.partition(':')[0]}", "unknown", factory=name)
    if ":" in name:
        return Game(name, "a game of your own", "unknown", factory=name)
    near = difflib.get_close_matches(name, GAMES, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise UnknownGameError(
        f"there is no game called {name!r}: {hint}Known games are {', '.join(sorted(GAMES))}; "
        "a game of a library is named gymnasium:CartPole-v1, and one of your own "
        "package.module:callable"
    )


def make_env(name: str, num_envs: int, **options: Any) -> VectorEnv:
    """Build `num_envs` copies of the game called `name`, with its options."""
    return find_game(name).make(num_envs, **options)
