"""Options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from remuda.config import PolicyConfig, Section


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


class ResponseOptions(Section):
    """A command that trains best responses."""

    env: GameOptions = GameOptions()
    policy: PolicyConfig = PolicyConfig()
    """Settings of the trained policies, over a PPO preset for best responses."""
    num_envs: PositiveInt | None = None
    """Copies of the environment in training. None: 64 for each policy of a seat."""
    schedule: Literal["async", "lockstep", "sequential"] = "async"
    """How the roles take turns in training."""
    seed: NonNegativeInt = 0
    """Seed of training and of matches."""
    out: Path | None = None
    """The directory for the results. None: a new one under `runs/`, named by game and time."""
