"""Which game `remuda play` plays: the one that is named, or that of the runs in its seats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda.config import overlay
from remuda.envs.registry import RANDOM, Game, find_game
from remuda.errors import ConfigError, RemudaError
from remuda.saved import Reference
from remuda.ui.crossplay import other_games
from remuda.ui.seated import ME, is_policy_of_run

DEFAULT_GAME = "treasure_hunt"
"""What is played where neither the game nor a policy of a run is named."""
OF_PICTURES = "render_mode"
"""The option of other libraries by which a game draws; a run may have had none."""


@dataclass(frozen=True)
class PlayedGame:
    """The game that is played, and how it is made."""

    game: Game
    options: Mapping[str, Any]
    """Of `Game.make`."""
    scripted: Mapping[str, str] = field(default_factory=dict)
    """By agent, who has its seat for good in the run whose game it is."""
    notes: tuple[str, ...] = ()
    """What the user may not expect, a line each."""


def game_of(name: str | None, options: Mapping[str, Any], seats: Mapping[str, str]) -> PlayedGame:
    """The game that is named, or as the first run had it that has a policy in the seats.

    Args:
        name: of the game; None: nobody named it.
        options: that were asked for; they go over those of the run.
        seats: by agent, who plays it.

    Raises:
        ConfigError: no game is named, and a seat is meant for a policy of none that is known.
        RunDirectoryError: there is no such run.
    """
    if name is not None:
        return PlayedGame(find_game(name), options)
    of_runs = [Reference.parse(who) for who in seats.values() if is_policy_of_run(who)]
    if not of_runs:
        _check_scripted(seats)
        return PlayedGame(find_game(DEFAULT_GAME), options)
    configs = {reference.run.resolve(): reference.open().config for reference in of_runs}
    run, config = of_runs[0].run, next(iter(configs.values()))
    notes = other_games(configs, options)
    own = {key: value for key, value in config.env.made_with.items() if key != OF_PICTURES}
    told = [f"{key} {value}" for key, value in own.items() if key not in options]
    told += [
        f"{agent} played by {who}"
        for agent, who in config.env.scripted.items()
        if agent not in seats
    ]
    told_of = f", with {', '.join(told)}" if told else ""
    return PlayedGame(
        find_game(config.game),
        overlay(own, options),
        config.env.scripted,
        (f"{config.game} as in {run}{told_of}", *notes),
    )


def _check_scripted(seats: Mapping[str, str]) -> None:
    """Raise an error where a seat is meant for a run that is not there, or for another game."""
    game = find_game(DEFAULT_GAME)
    for agent, who in seats.items():
        if who == ME:
            continue
        run = Reference.parse(who).run
        if who != RANDOM and run.is_dir():
            Reference.parse(who).open()  # which tells what is wrong with it
        try:
            game.policy(who)
        except RemudaError as error:
            raise ConfigError(
                f"--seat {agent}={who}: there is no run {run}; and where no game is named, "
                f"{game.name} is played: {error}"
            ) from None
