"""Histories of OpenSpiel games: `remuda evaluate --histories FILE`."""

from __future__ import annotations

import json
import math
from pathlib import Path

from remuda.config import Config
from remuda.coordinator.run_directory import write_file
from remuda.envs.registry import make_env
from remuda.errors import UsageError
from remuda.evaluation import Evaluation


def check_histories(config: Config) -> None:
    """Raise a `UsageError` if the episodes of the game have no histories."""
    env = make_env(config.game, 1, **config.env.made_with)
    known = env.history() is not None
    env.close()
    if not known:
        raise UsageError(
            f"--histories: {config.game} is no game of OpenSpiel, and only these have histories of "
            "all moves; games of Remuda's own are watched with `remuda watch`"
        )


def write_histories(path: Path, config: Config, evaluation: Evaluation) -> None:
    """Write one line of JSON for each episode; the file is complete or absent.

    A line has the `game` for `pyspiel.load_game`, its `history` (all moves, those of chance too; of
    simultaneous moves one of each player in order), and `returns` by agent (null: the agent took no
    part). To replay it, apply the moves of `history` to `new_initial_state()`.
    """
    game = config.game.partition(":")[2]
    lines = [
        json.dumps(
            {
                "game": game,
                "history": list(history),
                "returns": {
                    agent: None if math.isnan(value) else float(value)
                    for agent, value in zip(evaluation.agents, returns, strict=True)
                },
            }
        )
        for history, returns in zip(evaluation.histories, evaluation.filled_returns, strict=True)
    ]
    write_file(path, ("\n".join(lines) + "\n").encode())
