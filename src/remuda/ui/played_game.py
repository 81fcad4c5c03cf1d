"""The game of `remuda play`: the named one, or that of the runs in its seats."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.config import by_leaf
from remuda.envs.registry import Game, find_game
from remuda.errors import ConfigError, RemudaError
from remuda.saved import Reference
from remuda.saved_games import check_not_both, game_of_runs, open_runs, unmeasured
from remuda.ui.seated import ME, is_policy_of_run

DEFAULT_GAME = "treasure_hunt"


@dataclass(frozen=True)
class PlayedGame:
    """The game that is played, and its options."""

    game: Game
    options: Mapping[str, Any]
    """The arguments of `Game.make`."""
    run: str = ""
    """The run that the game is from; empty: the user named it, or it is the default."""
    of_run: Mapping[str, Any] = field(default_factory=dict)
    """The options that are from the run, by dotted key."""
    scripted: Mapping[str, str] = field(default_factory=dict)
    """The scripted policies of that run, by agent."""
    others: tuple[str, ...] = ()
    """A line for each other run that learned in another game."""

    def notes(self, seats: Sequence[str]) -> list[str]:
        """Return lines about options, and players of these seats, that are from the run."""
        if not self.run:
            return []
        taken = [f"{agent} played by {self.scripted[agent]}" for agent in seats]
        settings = [*(f"{key} {value}" for key, value in self.of_run.items()), *taken]
        head = ", with ".join(filter(None, (f"as in {self.run}", ", ".join(settings))))
        return [f"{self.game.name} {head}", *self.others]


def game_of(
    name: str | None,
    options: Mapping[str, Any],
    seats: Mapping[str, str],
    are_all_seated: bool = False,
) -> PlayedGame:
    """Return the named game, or that of the first run in the seats; options override the run's.

    Raises:
        ConfigError: a seat names no known run, or both a run's policy and a scripted one.
        RunDirectoryError: there is no such run.
    """
    words = [player for player in seats.values() if is_policy_of_run(player)]
    if name is not None:
        game = find_game(name)
        check_not_both(words, game)
        return PlayedGame(game, options)
    if not words:
        _check_scripted(seats)
        return PlayedGame(find_game(DEFAULT_GAME), options)
    theirs = game_of_runs(open_runs(words), options, None if are_all_seated else seats)
    check_not_both(words, theirs.game)
    made, explicit = unmeasured(theirs.options), by_leaf(options)
    return PlayedGame(
        theirs.game,
        made,
        str(Reference.parse(words[0]).run),
        {key: value for key, value in by_leaf(made).items() if key not in explicit},
        theirs.scripted,
        theirs.notes,
    )


def _check_scripted(seats: Mapping[str, str]) -> None:
    """Refuse players that are neither a policy of a run nor one of the default game."""
    game = find_game(DEFAULT_GAME)
    for agent, player in seats.items():
        if player == ME:
            continue
        try:
            game.policy(player)
        except RemudaError as error:
            reference = Reference.parse(player)
            if os.path.isdir(reference.run):
                reference.open()  # raises an error about the run
            raise ConfigError(
                f"--seat {agent}={player}: there is no run {reference.run} (a policy of one is "
                f"RUN:policy, or RUN:policy@best); and where no game is named, {game.name} is "
                f"played: {error}"
            ) from None
