"""Episodes as the library that a game is from writes them: `remuda evaluate --histories FILE`."""

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
    """Refuse a game whose episodes have no histories, before any is played.

    Raises:
        UsageError: it is one of them.
        ConfigError: the game cannot be made.
    """
    env = make_env(config.game, 1, **config.env.made_with)
    known = env.history() is not None
    env.close()
    if not known:
        raise UsageError(
            f"--histories: {config.game} is no game of OpenSpiel, and only these have histories of "
            "all moves; games of Remuda's own are watched with `remuda watch`"
        )


def write_histories(path: Path, config: Config, evaluation: Evaluation) -> None:
    """Write one line of JSON an episode; the file is whole, or it is not there.

    Each has the `game` as `pyspiel.load_game` takes it, its `history` (all moves, those of chance
    too; where players move at the same time, one of each in their order), and by agent its
    `returns` (null: the agent took no part). A replay applies the moves of `history` to
    `new_initial_state()`.

    Raises:
        RunDirectoryError: the disk is full or not writable.
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
