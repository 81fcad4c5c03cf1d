"""The game that policies of saved runs play if the user names no game."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.config import Config, by_leaf, overlay
from remuda.envs.description import EnvSpec
from remuda.envs.registry import RANDOM, Game, find_game
from remuda.errors import ConfigError
from remuda.training.saved.policies import Reference, SavedPolicies, is_of_run


@dataclass(frozen=True)
class SavedGame:
    """The game of the first of several runs, with that run's options."""

    game: Game
    options: Mapping[str, Any]  # the run's options of the game, overridden by the user's options
    scripted: Mapping[str, str]  # the scripted policies that reserve seats in that run
    notes: tuple[str, ...]  # a line for each other run that learned in another game


def is_meant_of_run(word: str) -> bool:
    """Return whether a player's name refers to a run, or to a policy of a run."""
    return word != RANDOM and is_of_run(word)


def open_runs(words: Iterable[str]) -> dict[Path, SavedPolicies]:
    """Return the runs that players' names refer to, each opened once."""
    opened: dict[Path, SavedPolicies] = {}
    for word in filter(is_meant_of_run, words):
        reference = Reference.parse(word)
        place = reference.run.resolve()
        if place not in opened:
            opened[place] = reference.open()
    return opened


def game_of_runs(
    opened: Mapping[Path, SavedPolicies],
    asked: Mapping[str, Any],
    seated: Collection[str] | None = (),
) -> SavedGame:
    """Return the game of the first of several runs.

    `seated`: the agents whose seats the user assigned in place of `env.scripted`; None means all.
    """
    configs = {saved.files.path: saved.config for saved in opened.values()}
    first = next(iter(configs.values()))
    options = overlay(first.env.made_with, asked)
    notes = other_games(configs, asked, seated)
    return SavedGame(find_game(first.game), options, first.env.scripted, notes)


def other_games(
    configs: Mapping[Path, Config], asked: Mapping[str, Any], seated: Collection[str] | None = ()
) -> tuple[str, ...]:
    """Return a line for each run that learned in another game than the first run.

    `seated`: the agents whose seats the user assigned in place of `env.scripted`; None means all.
    """
    first, *others = configs.values()
    missing, notes = object(), []
    for run, config in zip(list(configs)[1:], others, strict=True):
        played, theirs = _made_with(first, asked), _made_with(config, asked)
        if config.game == first.game and played != theirs:
            first_in_force, their_in_force = _in_force(first, asked), _in_force(config, asked)
            # If a game cannot be made here, compare the options without defaults.
            if first_in_force is not None and their_in_force is not None:
                played, theirs = first_in_force, their_in_force
        played, theirs = by_leaf(played), by_leaf(theirs)
        different = [
            f"{name if name.startswith('env.') else f'env.options.{name}'} "
            f"{theirs.get(name, 'at its default')}"
            for name in sorted({*theirs, *played})
            if theirs.get(name, missing) != played.get(name, missing)
        ]
        own, played_by = config.env.scripted, first.env.scripted
        unassigned = {*own, *played_by} - {*seated} if seated is not None else ()
        different += [
            f"env.scripted.{agent} {own.get(agent, 'nobody')}"
            for agent in sorted(unassigned)
            if own.get(agent) != played_by.get(agent)
        ]
        if config.game != first.game:
            different = [config.game]
        if different:
            notes.append(
                f"{run} learned with {', '.join(different)}; all play {first.game} as in the first "
                "run; to play another game, name its run first"
            )
    return tuple(notes)


def unmeasured(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a game's options without `env.episode_metrics`, which does not change the game."""
    return {name: value for name, value in options.items() if name != "env.episode_metrics"}


def _made_with(config: Config, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's game options, overridden by the user's options."""
    return overlay(unmeasured(config.env.made_with), asked)


def _in_force(config: Config, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a run's game options with all defaults, or None if the game cannot be made here."""
    options = _made_with(config, asked)
    try:
        return overlay(EnvSpec.of(config.game, options).in_force, options)
    except Exception:  # a user's game may raise anything
        return None


def check_not_both(words: Iterable[str], game: Game) -> None:
    """Raise a `ConfigError` if a name is that of a run and of a scripted policy of the game."""
    for word in words:
        if word in game.scripted and is_of_run(word):
            raise ConfigError(
                f"{word} is a run, and a scripted policy of {game.name}: write ./{word} for the "
                "run, or rename it to use the scripted policy"
            )
