"""`remuda evaluate --background` and `Run.evaluate_among`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from remuda.envs.registry import find_game
from remuda.errors import ConfigError, UsageError
from remuda.evaluation.focal_play import PlayedRun, play_focal, setup_of_focal
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.focal import FocalEvaluation
from remuda.runs.run_directory import RunDirectory, write_file
from remuda.runs.saved_weights import load_run
from remuda.training.saved.games import RunGame, other_games
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
) -> tuple[FocalEvaluation, Sequence[str]]:
    """Play a run's policies among others; return the result, and notes about other games.

    background: the directory of a run, or a scripted policy. focal: numbers of focal seats.
    """
    directory = Path(background).expanduser()
    others, notes = None, tuple[str, ...]()
    if directory.is_dir():
        others = RunDirectory.open(directory)
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
        _check_scripted(own.spec.env.game, background)
    setup = setup_of_focal(own, other, focal, seed, sampled)
    return play_focal(setup, episodes, limits or Limits()), notes


def _check_scripted(game: str, name: str) -> None:
    """Raise a `UsageError` unless the game has such a scripted policy."""
    try:
        find_game(game).policy(name)
    except ConfigError as error:
        raise UsageError(
            f"background: {name} is no directory of a run, and no scripted policy: {error}"
        ) from None


def write_chart(found: FocalEvaluation, path: Path) -> None:
    """Draw a Schelling diagram into a .png, .svg or .pdf file."""
    kind = path.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(f"out: {path} must end with one of {', '.join(f'.{k}' for k in FORMATS)}")
    name = f"{found.focal} among {found.background}"
    write_file(path, Picture(path.stem, name, name, focal_chart(found)).encoded(kind))
