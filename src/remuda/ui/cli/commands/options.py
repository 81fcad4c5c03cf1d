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
    """Options of a command for one run."""

    run: Path
    """The run directory."""


class PrintOptions(Section):
    """Options of a command that prints its result."""

    format: Literal["table", "json"] = "table"
    """Tables, or the full result as JSON; `--json` is short for `--format json`."""

    def show(self, as_summary: Callable[[], Any], print_tables: Callable[[], None]) -> None:
        """Print the result as JSON or as tables."""
        if self.format == "json":
            from remuda.analysis.as_json import as_json

            print(json.dumps(as_json(as_summary()), allow_nan=False, default=str))
        else:
            print_tables()


class PictureOptions(Section):
    """Options of a command that shows episodes."""

    out: Path | None = None
    """The GIF or video to write, such as `play.mp4`. None: `play.gif` in the run directory;
    `remuda play` shows the game in the terminal."""
    turns: PositiveInt = 100
    """Maximum number of turns; the episode may end earlier."""
    seed: NonNegativeInt = 0
    """Seed of the game."""
    frames_per_second: PositiveInt = 8
    """Turns shown per second."""


class GameOptions(Section):
    """The options of the game."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the game, such as `--env.options.num_agents 4`. If the game comes from a run,
    they override the run's options."""


class PlayOptions(PictureOptions):
    """Show a game or play it yourself, without learning."""

    game: str | None = None
    """The game; `remuda games` lists them. None: the game of the first run that `seat` names, with
    its options and wrappers, or treasure_hunt if `seat` names no run."""
    policy: str = "random"
    """The policy for all seats that `seat` does not name: `random`, or one that `remuda games GAME`
    lists."""
    seat: dict[str, str] = Field(default_factory=dict)
    """The player of each agent, as in `--seat agent_0=me agent_1=RUN:policy`. `me`: you, at the
    keyboard. `RUN:policy`: a policy of a run, also with `@best`, `@VERSION`, or `@live` (the
    current weights of a live run). Or the name of a scripted policy."""
    sampled: bool = False
    """Let policies of runs explore as at the end of training; otherwise they act greedily."""
    env: GameOptions = GameOptions()
