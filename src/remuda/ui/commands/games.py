"""The commands about games, without learning: `remuda games`, `play`."""

from __future__ import annotations

from pydantic import Field

from remuda.config import Section
from remuda.errors import UsageError
from remuda.ui.commands.options import GameOptions, PictureOptions


class GamesOptions(Section):
    """The available games."""

    game: str = ""
    """The game whose rules to print; empty: list all of them."""
    all: bool = False
    """List the games of other installed libraries, too."""


class PlayOptions(PictureOptions):
    """Show a game, or play in it yourself, without any learning."""

    game: str | None = None
    """The game; `remuda games` lists them. None: that of the first run whose policy has a seat,
    with its options and wrappers; or treasure_hunt."""
    policy: str = "random"
    """The policy of all seats that `seat` does not name: `random`, or one that `remuda games GAME`
    lists."""
    seat: dict[str, str] = Field(default_factory=dict)
    """For each agent its policy, as in `--seat agent_0=me agent_1=RUN:policy`: you at the keyboard;
    a policy of a run (`RUN:policy@best`, or another version; `RUN:policy@live`: with the weights
    that the live run plays with now); or a scripted policy."""
    sampled: bool = False
    """Let policies of runs explore as at the end of training; else they are greedy."""
    env: GameOptions = GameOptions()


def games(options: GamesOptions) -> int:
    """List the games, or print the rules of one."""
    from remuda.envs.registry import find_game
    from remuda.ui.games import print_game, print_games, print_libraries

    if options.game and options.all:
        raise UsageError("--all lists games, and GAME prints the rules of one; leave one out")
    if options.game:
        print_game(find_game(options.game))
    else:
        print_games()
    if options.all:
        print_libraries()
    return 0


def play(options: PlayOptions) -> int:
    """Show a game in the terminal or as a GIF, or play in it yourself."""
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
