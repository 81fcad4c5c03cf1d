"""The commands for games, without learning: `remuda games`, `play`."""

from __future__ import annotations

from remuda.config import Section
from remuda.errors import UsageError
from remuda.ui.cli.commands.options import PlayOptions


class GamesOptions(Section):
    """The available games."""

    game: str = ""
    """The game whose rules to print; empty: list all of them."""
    all: bool = False
    """List the games of other installed libraries, too."""


def games(options: GamesOptions) -> int:
    """List the games, or print the rules of one."""
    from remuda.envs.registry import find_game
    from remuda.ui.play.games import print_game, print_games, print_libraries

    if options.game and options.all:
        raise UsageError(
            "--all lists games, and GAME prints the rules of one game; use one of them"
        )
    if options.game:
        print_game(find_game(options.game))
    else:
        print_games()
    if options.all:
        print_libraries()
    return 0


def play(options: PlayOptions) -> int:
    """Show a game in the terminal or as a GIF, or play in it yourself."""
    from remuda.ui.play.playing import play as show

    show(options)
    return 0
