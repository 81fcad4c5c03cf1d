"""Which game `remuda play` plays: the one that is named, or that of the runs in its seats."""

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
"""What is played where neither the game nor a policy of a run is named."""


@dataclass(frozen=True)
class PlayedGame:
    """The game that is played, and how it is made."""

    game: Game
    options: Mapping[str, Any]
    """Of `Game.make`."""
    run: str = ""
    """Whose game it is; empty: the user named it, or nobody did."""
    of_run: Mapping[str, Any] = field(default_factory=dict)
    """Those of its options, by dotted key, that the user did not set."""
    scripted: Mapping[str, str] = field(default_factory=dict)
    """By agent, who has its seat for good in that run."""
    others: tuple[str, ...] = ()
    """A line for each other run that learned in another game than this."""

    def notes(self, seats: Sequence[str]) -> list[str]:
        """What the user may not expect, a line each.

        Args:
            seats: agents whose seats are taken as in the run.
        """
        if not self.run:
            return []
        taken = [f"{agent} played by {self.scripted[agent]}" for agent in seats]
        told = [*(f"{key} {value}" for key, value in self.of_run.items()), *taken]
        return [
            f"{self.game.name} as in {self.run}" + ", with " * bool(told) + ", ".join(told),
            *self.others,
        ]


def game_of(
    name: str | None,
    options: Mapping[str, Any],
    seats: Mapping[str, str],
    are_all_seated: bool = False,
) -> PlayedGame:
    """The game that is named, or as the first run had it that has a policy in the seats.

    Args:
        name: of the game; None: nobody named it.
        options: that were asked for; they go over those of the run.
        seats: by agent, who plays it.
        are_all_seated: whether the user gave the other seats, too, whoever had them in a run.

    Raises:
        ConfigError: no game is named, and a seat is meant for a policy of none that is known, or
            for one that may be either of a run or scripted.
        RunDirectoryError: there is no such run.
    """
    words = [who for who in seats.values() if is_policy_of_run(who)]
    if name is not None:
        game = find_game(name)
        check_not_both(words, game)
        return PlayedGame(game, options)
    if not words:
        _check_scripted(seats)
        return PlayedGame(find_game(DEFAULT_GAME), options)
    theirs = game_of_runs(open_runs(words), options, None if are_all_seated else seats)
    check_not_both(words, theirs.game)
    made, asked = unmeasured(theirs.options), by_leaf(options)
    return PlayedGame(
        theirs.game,
        made,
        str(Reference.parse(words[0]).run),
        {key: value for key, value in by_leaf(made).items() if key not in asked},
        theirs.scripted,
        theirs.notes,
    )


def _check_scripted(seats: Mapping[str, str]) -> None:
    """Raise an error where a seat is meant for a run that is not there, or for another game."""
    game = find_game(DEFAULT_GAME)
    for agent, who in seats.items():
        if who == ME:
            continue
        try:
            game.policy(who)
        except RemudaError as error:
            reference = Reference.parse(who)
            if os.path.isdir(reference.run):
                reference.open()  # which tells what is wrong with it
            raise ConfigError(
                f"--seat {agent}={who}: there is no run {reference.run} (a policy of one is "
                f"RUN:policy, or RUN:policy@best); and where no game is named, {game.name} is "
                f"played: {error}"
            ) from None
