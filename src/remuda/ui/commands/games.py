"""The commands about games, without learning: `remuda games`, `play`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, NonNegativeInt, PositiveInt

from remuda.config import Section, overlay
from remuda.errors import UsageError
from remuda.ui.arguments import parse_flags, take_pairs, validate


class GameOptions(Section):
    """The game that is played."""

    options: dict[str, Any] = Field(default_factory=dict)
    """The game's own parameters by name, as in `--env.options.num_agents 4`."""


class PlayedOptions(Section):
    """The game that is played."""

    options: dict[str, Any] = Field(default_factory=dict)
    """The game's own parameters by name, as in `--env.options.num_agents 4`; where no game is
    named they go over those of the run."""


class GamesOptions(Section):
    """The games that can be played."""

    game: str = ""
    """The game whose rules to tell; empty: list all of them."""
    all: bool = False
    """List those of other libraries that are installed, too."""


class PlayOptions(Section):
    """A game to look at or to take part in, without any learning."""

    game: str | None = None
    """The game; `remuda games` lists them. None: that of the first run whose policy has a seat,
    with its options and wrappers; or treasure_hunt."""
    policy: str = "random"
    """Who plays all seats, or those that `seat` does not name: `random`, or one that `remuda games
    GAME` lists."""
    seat: dict[str, str] = Field(default_factory=dict)
    """By agent, who plays it, as in `--seat agent_0=me agent_1=RUN:policy`: you at the keyboard, a
    policy of a run (`RUN:policy@best`, or another version; `RUN:policy@live`: with the weights that
    the run, which goes on, plays with now), or one that plays without learning."""
    sampled: bool = False
    """Let policies of runs explore as at the end of training; else they are greedy."""
    out: Path | None = None
    """The GIF to write, or the film, as `play.mp4`. None: show it in the terminal."""
    turns: PositiveInt = 100
    """The most turns to show; an episode's end comes first."""
    seed: NonNegativeInt = 0
    """Seed of the game and of the policies."""
    frames_per_second: PositiveInt = 8
    """Turns shown in a second."""
    env: PlayedOptions = PlayedOptions()


def games(words: Sequence[str]) -> int:
    """List the games, or tell the rules of one."""
    options = validate(parse_flags(words, GamesOptions, positional="game"), GamesOptions)

    from remuda.envs.registry import find_game
    from remuda.ui.games import print_game, print_games, print_libraries

    if options.game and options.all:
        raise UsageError("--all lists games, and tells the rules of none; leave one of both out")
    if options.game:
        print_game(find_game(options.game))
    else:
        print_games()
    if options.all:
        print_libraries()
    return 0


def play(words: Sequence[str]) -> int:
    """Show a game in the terminal or as a GIF, or play in it yourself."""
    words, seats = take_pairs(words, "--seat")
    tree = parse_flags(words, PlayOptions, positional="game")
    options = validate(overlay(tree, {"seat": seats} if seats else {}), PlayOptions)

    from remuda.ui.playing import play as show

    show(
        options.game,
        options.policy if "policy" in options.model_fields_set else None,
        turns=options.turns,
        seed=options.seed,
        frames_per_second=options.frames_per_second,
        out=options.out,
        options=options.env.options,
        seats=options.seat,
        sampled=options.sampled,
    )
    return 0
