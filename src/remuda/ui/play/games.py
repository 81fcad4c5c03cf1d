"""`remuda games`: a list of games, and the rules of one game."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from remuda.envs.adapters.libraries import LIBRARIES
from remuda.envs.registry import GAMES, Game
from remuda.envs.vector_env import VectorEnv

if TYPE_CHECKING:
    from gymnasium import Space


MAX_LISTED, EXAMPLES = 120, 8  # libraries with more games show some examples


def print_games(console: Console | None = None) -> None:
    """Print all games, three lines each."""
    console = console or Console()
    for game in GAMES.values():
        env = game.make(1)
        agent = env.agents[0]
        known = ", ".join(f"{name} {value:g}" for name, value in game.reference.items())
        console.print(
            Text.assemble(
                (f"{game.name:<20}", "bold"),
                f"{game.kind:<12}",
                f"{env.num_agents} {_order(env)}".ljust(11),
                f"obs {_space(agent.observation_space)}, {_space(agent.action_space)} actions",
            )
        )
        console.print(Text(f"  {game.summary}\n  mean return of an agent: {known}", "dim"))
        env.close()
    console.print(
        "\n`remuda games NAME` prints the rules, `remuda play NAME` shows a game. There are also\n"
        "games of other libraries, such as gymnasium:CartPole-v1, and your own as module:Class.\n"
        "`remuda games --all` lists the games of all installed libraries.",
        soft_wrap=True,
    )


def print_libraries(console: Console | None = None) -> None:
    """Print the games of other installed libraries, and how to install more."""
    console = console or Console()
    for library in LIBRARIES.values():
        names = library.names()
        count = f"{len(names):,} games" if names else f"pip install -e '.[{library.extra}]'"
        if library.is_installed and not names:
            count = "installed; cannot list its games"
        title = (f"\n{library.name}:", "bold"), "NAME  ", (f"{count}, as {library.example}", "dim")
        console.print(Text.assemble(*title), soft_wrap=True)
        if not names:
            continue
        spread = [names[i * len(names) // EXAMPLES] for i in range(EXAMPLES)]
        shown = names if len(names) <= MAX_LISTED else spread
        words = [name.partition(":")[2] for name in shown]
        columns = Columns(words, padding=(0, 2), equal=True)
        console.print(Padding(columns, (0, 0, 0, 2)))
        if len(shown) < len(names):
            more = f"... and {len(names) - len(shown):,} more"
            console.print(Text(f"  {more}", "dim"), soft_wrap=True)


def print_game(game: Game, console: Console | None = None) -> None:
    """Print the rules of a game, its options, and its scripted policies."""
    console = console or Console()
    env = game.make(1)
    console.print(Text(game.name, "bold"))
    rules = _rules(env)  # a user's docstring may be no Markdown
    is_own = type(env).__module__.startswith("remuda.")
    console.print(Markdown(rules) if is_own else Text(rules), width=min(console.width, 100))
    rows = {
        "kind": game.kind,
        "agents": f"{env.num_agents}, {_order(env)}",
        "observe": f"{env.agents[0].observation_space}",
        "actions": f"{env.agents[0].action_space}" + (", masked" if env.agents[0].masked else ""),
        "options": "\n".join(
            f"--env.options.{name} {value}" for name, value in env.options().items()
        ),
        **{f"{option}s": ", ".join(resolve_name(where)) for option, where in game.choices.items()},
        "policies": "\n".join(
            name + (f", return {game.reference[name]:g}" if name in game.reference else "")
            for name in ("random", *game.scripted)
        ),
        "episode_metrics": ", ".join(metric.replace("_", " ") for metric in env.episode_metrics),
    }
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows.items():
        if value:
            table.add_row(name, value)
    console.print()
    console.print(table)
    env.close()


def _rules(env: VectorEnv) -> str:
    """Return the docstring of a game's module, or of the adapter class."""
    kind = type(env)
    module = sys.modules.get(kind.__module__) or import_module(kind.__module__)
    return inspect.cleandoc((kind if ".adapters." in kind.__module__ else module).__doc__ or "")


def _order(env: VectorEnv) -> str:
    if env.num_agents == 1:
        return "alone"
    if len(env.turn_groups) == 1:
        return "at once"
    if all(len(group) == 1 for group in env.turn_groups):
        return "in turn"
    return f"in {len(env.turn_groups)} groups"


def _space(space: Space[object]) -> str:
    from gymnasium.spaces import Box, Discrete, MultiDiscrete

    if isinstance(space, Discrete):
        return f"{space.n}"
    if isinstance(space, MultiDiscrete):
        return " x ".join(str(n) for n in space.nvec.ravel())
    if isinstance(space, Box):
        return f"{' x '.join(str(n) for n in space.shape)} {space.dtype}"
    return str(space)
