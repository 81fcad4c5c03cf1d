"""`remuda.evaluate_among`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from remuda.api.run import Run, check_play, focal_counts, name_of_background
from remuda.config.plain import Options
from remuda.config.reading import read_keywords
from remuda.config.sections import Section
from remuda.envs.registry import name_game
from remuda.evaluation.tournaments.focal import FocalEvaluation
from remuda.runs.result import Result
from remuda.training.python_settings import name_policy


class _GameArguments(Section):
    options: Options | None = None


def evaluate_among(
    policy: str | Callable[..., Any],
    background: Run | Result | Path | str | Callable[..., Any],
    focal: int | Iterable[int] = 1,
    episodes: int = 200,
    *,
    game: str | Callable[..., Any],
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    sampled: bool | None = None,
) -> FocalEvaluation:
    """Play a scripted policy among others, and collect the mean return of a seat.

    `Run.evaluate_among` does the same for the policies of a run.

    Args:
        policy: a scripted policy: `random`, one that `remuda games GAME` lists, or your own, as
            `module:callable` or a function.
        background: another scripted policy, or a run of this game, whose newest weights play. It
            plays all seats that are not focal.
        focal: the number of focal seats, which `policy` plays; or several numbers, each played for
            `episodes`. All placements of the focal seats take turns.
        episodes: number of episodes for each number of focal seats.
        game: the game, as in `train`.
        options: options of the game, as in `env.options`; they override those of the run.
        seed: seed of the environments.
        sampled: the policies of the run explore as at the end of training; False: greedy; None:
            `run.evaluate_sampled`.

    Raises:
        UsageError: an argument is invalid, the game has no such scripted policy, the run is one of
            another game, or there are fewer seats.
        ConfigError: there is no such game or option.
        RunDirectoryError: the run or its weights are missing or damaged.
    """
    from remuda.ui.analysis.focal import evaluate_policy_among

    check_play(episodes, seed)
    chosen = read_keywords(_GameArguments, {"options": options}, evaluate_among)
    return evaluate_policy_among(
        name_policy(policy, "policy"),
        name_of_background(background),
        focal_counts(focal),
        episodes,
        game=name_game(game),
        options=chosen.options or {},
        seed=seed,
        sampled=sampled,
    )
