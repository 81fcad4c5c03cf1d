"""`remuda evaluate --background`, `Run.evaluate_among` and `remuda.evaluate_among`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.envs.description import EnvSpec
from remuda.envs.registry import RANDOM, Game, find_game
from remuda.errors import ConfigError, UsageError
from remuda.evaluation.focal_play import Played, PlayedPolicy, PlayedRun, play_focal, setup_of_focal
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.focal import FocalEvaluation, shown_policy
from remuda.runs.run_directory import RunDirectory, write_file
from remuda.runs.saved_weights import load_run
from remuda.training.saved.games import (
    RunGame,
    check_one_meaning,
    is_meant_of_run,
    made_with,
    other_games,
)
from remuda.training.saved.policies import Reference
from remuda.ui.plots.drawing import FORMATS, Picture
from remuda.ui.plots.focal_chart import focal_chart
from remuda.ui.terminal.numbers import distinct


def evaluate_among(
    run: RunDirectory,
    background: str,
    focal: Sequence[int],
    episodes: int,
    *,
    checkpoint: int | str = "final",
    seed: int = 0,
    sampled: bool | None = None,
    limits: Limits | None = None,
) -> FocalEvaluation:
    """Play a run's policies among others.

    background: the directory of a run, whose newest weights play, or a scripted policy. focal:
    numbers of focal seats.
    """
    others = _background_run(background, find_game(run.read_config().game))
    names = distinct((run.path.name, _shown(background, others)))
    own = PlayedRun(names[0], *load_run(run, checkpoint))
    other: Played = PlayedPolicy(names[1], background, own.env)
    notes = tuple[str, ...]()
    if others is not None:
        other = PlayedRun(names[1], *load_run(others))
        games = {each.name: RunGame(each.spec.config, each.env.changed) for each in (own, other)}
        notes = other_games(games, {}, None)  # reserved seats are named in the result
    setup = setup_of_focal(own, other, focal, seed, sampled)
    return replace(play_focal(setup, episodes, limits or Limits()), notes=notes)


def evaluate_policy_among(
    policy: str,
    background: str,
    focal: Sequence[int],
    episodes: int,
    *,
    game: str,
    options: Mapping[str, Any],
    seed: int = 0,
    sampled: bool | None = None,
    limits: Limits | None = None,
) -> FocalEvaluation:
    """Play a scripted policy of a game among others.

    background, focal: as in `evaluate_among`. options: options of the game; they override those of
    a run in the background.
    """
    played = find_game(game)
    _check_scripted(played, policy, "policy: ")
    others = _background_run(background, played)
    names = distinct((_shown(policy), _shown(background, others)))
    if others is None:
        own = PlayedPolicy(names[0], policy, EnvSpec.of(game, options))
        other: Played = PlayedPolicy(names[1], background, own.env)
    else:
        other = PlayedRun(names[1], *load_run(others))
        config, env = other.spec.config, other.env
        if config.game != game:
            raise UsageError(
                f"background: {background} is a run of {config.game}, not of {game}; name a run of "
                f"{game}, or evaluate a policy of {config.game}"
            )
        if options:
            env = EnvSpec.of(game, made_with(RunGame(config, env.changed), options))
            if env.names != other.env.names:
                keys = " and ".join(f"env.options.{name}" for name in options)
                raise UsageError(
                    f"{keys}: with this the agents of {game} are {', '.join(env.names)}, and "
                    f"{names[1]} plays with {', '.join(other.env.names)}; leave it out"
                )
        own = PlayedPolicy(names[0], policy, env)
    setup = setup_of_focal(own, other, focal, seed, sampled)
    return play_focal(setup, episodes, limits or Limits())


def _background_run(background: str, game: Game) -> RunDirectory | None:
    """Return the run in the background; None if it is a scripted policy of the game."""
    if not background:
        raise UsageError("background: the name is empty; name a run or a scripted policy")
    check_one_meaning(background, game)
    is_scripted = background in (RANDOM, *game.scripted)
    path = Path(background).expanduser()
    if is_meant_of_run(background) or (not is_scripted and path.is_dir()):
        reference = Reference.parse(background)
        if reference.policy and not path.is_dir() and reference.run.is_dir():
            raise UsageError(
                f"background: {background} is one policy; all policies of a run play, so name the "
                f"run, {reference.run}"
            )
        return RunDirectory.open(path)
    _check_scripted(game, background, f"background: {background} is no directory of a run; ")
    return None


def _check_scripted(game: Game, name: str, words: str) -> None:
    """Raise a `UsageError` that begins with `words` unless the game has the scripted policy."""
    try:
        game.policy(name)
    except ConfigError as error:
        raise UsageError(f"{words}{error}") from None


def _shown(policy: str, run: RunDirectory | None = None) -> str:
    """Return the name of a run, or else of a scripted policy, for tables and pictures."""
    return run.path.name if run is not None else shown_policy(policy)


def check_picture(path: Path) -> None:
    """Raise a `UsageError` if no picture can be written to a path."""
    if _format_of(path) not in FORMATS:
        raise UsageError(f"out: {path} must end with one of {', '.join(f'.{k}' for k in FORMATS)}")
    if path.is_dir():
        raise UsageError(f"out: {path} is a directory; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"out: {path.parent} is no directory; make it, or name another file")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"out: {path.parent} cannot be written; name a file elsewhere")


def write_chart(found: FocalEvaluation, path: Path) -> None:
    """Draw a Schelling diagram into a file with the name of a picture."""
    name = f"{found.focal} among {found.background}"
    write_file(path, Picture(path.stem, name, name, focal_chart(found)).encoded(_format_of(path)))


def _format_of(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()
