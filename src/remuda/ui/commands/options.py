"""Options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from remuda.config import Section


def needs(key: str, words: str) -> Mapping[str, str]:
    """Return the message for a missing option."""
    return {key: f"{words}; `remuda runs` lists runs"}


class RunOptions(Section):
    """A command about one run."""

    run: Path
    """The run directory."""


class PrintOptions(Section):
    """A command whose result is printed."""

    format: Literal["table", "json"] = "table"
    """Tables to read, or all of it as JSON; `--json` is short for the latter."""

    def show(self, as_summary: Callable[[], Any], print_tables: Callable[[], None]) -> None:
        """Print the result as JSON or as tables."""
        if self.format == "json":
            from remuda.analysis.as_json import tree_as_json

            print(json.dumps(tree_as_json(as_summary()), allow_nan=False, default=str))
        else:
            print_tables()


class PictureOptions(Section):
    """A command that shows play."""

    out: Path | None = None
    """The GIF to write, or the film, as `play.mp4`. None: `play.gif` in the run directory, or of
    `remuda play` the terminal."""
    turns: PositiveInt = 100
    """The most turns to show; an episode's end comes first."""
    seed: NonNegativeInt = 0
    """Seed of the game."""
    frames_per_second: PositiveInt = 8
    """Turns shown in a second."""


class GameOptions(Section):
    """The game that is played."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the game, as in `--env.options.num_agents 4`; if no game is named, they
    override those of the run."""


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
