"""`remuda evaluate --background` and `Run.evaluate_among`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from remuda.envs.registry import RANDOM, Game, find_game
from remuda.errors import ConfigError, UsageError
from remuda.evaluation.focal_play import PlayedRun, play_focal, setup_of_focal
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.focal import FocalEvaluation
from remuda.runs.run_directory import RunDirectory, write_file
from remuda.runs.saved_weights import load_run
from remuda.training.saved.games import RunGame, other_games
from remuda.training.saved.policies import is_of_run
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
    game = find_game(run.read_config().game)
    is_run = is_of_run(background)
    is_scripted = background in (RANDOM, *game.scripted)
    if is_run and is_scripted:
        raise UsageError(
            f"background: {background} is a directory, and a scripted policy of {game.name}: write "
            f"./{background} for the directory, or rename it to use the scripted policy"
        )
    others, notes = None, tuple[str, ...]()
    if is_run or (not is_scripted and Path(background).expanduser().is_dir()):
        others = RunDirectory.open(Path(background).expanduser())
    paths = [each.path for each in (run, others) if each is not None]
    names = distinct([path.name for path in paths])
    own = PlayedRun(names[0], *load_run(run, checkpoint))
    other: PlayedRun | str = background
    if others is not None:
        other = PlayedRun(names[1], *load_run(others))
        games = {
            each.name: RunGame(each.spec.config, each.spec.env.changed) for each in (own, other)
        }
        notes = other_games(games, {}, None)
    else:
        _check_scripted(game, background)
    setup = setup_of_focal(own, other, focal, seed, sampled)
    return replace(play_focal(setup, episodes, limits or Limits()), notes=tuple(notes))


def _check_scripted(game: Game, name: str) -> None:
    """Raise a `UsageError` unless the game has such a scripted policy."""
    try:
        game.policy(name)
    except ConfigError as error:
        raise UsageError(
            f"background: {name} is no directory of a run, and no scripted policy: {error}"
        ) from None


def check_picture(path: Path) -> None:
    """Raise a `UsageError` unless a file's name ends with the format of a picture."""
    if path.suffix.removeprefix(".") not in FORMATS:
        raise UsageError(f"out: {path} must end with one of {', '.join(f'.{k}' for k in FORMATS)}")


def write_chart(found: FocalEvaluation, path: Path) -> None:
    """Draw a Schelling diagram into a file with the name of a picture."""
    kind = path.suffix.removeprefix(".")
    name = f"{found.focal} among {found.background}"
    write_file(path, Picture(path.stem, name, name, focal_chart(found)).encoded(kind))
