"""Recordings of episodes: GIFs, videos, and move histories of OpenSpiel games."""

from __future__ import annotations

import io
import json
import math
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from remuda.config import Config
from remuda.errors import UsageError
from remuda.evaluation.results import Evaluation
from remuda.population.run_spec import RunSpec
from remuda.runs.run_directory import write_file
from remuda.types import Array

FILM = ".mp4"
FORMATS = (".gif", FILM)
COLOURS = 255  # colours of the shared palette; the 256th means `as in the previous frame`
SAMPLES = 16  # frames from which the palette is made


def write_recording(frames: Sequence[Array], path: Path, frames_per_second: int = 8) -> None:
    """Write frames, [height, width, 3] uint8, as `.gif` or `.mp4`, whole or not at all."""
    check_format(path)
    kinds = {(frame.shape, str(frame.dtype)) for frame in frames}
    if len(kinds) != 1 or any(shape[2:] != (3,) or kind != "uint8" for shape, kind in kinds):
        raise ValueError(f"frames must be [height, width, 3] uint8 of one size; found {kinds}")
    write = _write_film if path.suffix.lower() == FILM else _write_gif
    write(frames, path, frames_per_second)


def _write_gif(frames: Sequence[Array], path: Path, frames_per_second: int) -> None:
    """Write a GIF that loops forever; all frames share one palette."""
    palette = _palette(frames)
    images = [
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    ]
    data = io.BytesIO()
    images[0].save(
        data,
        "GIF",
        save_all=True,
        append_images=images[1:],
        # GIF durations are in hundredths of a second; players slow down frames shorter than two.
        duration=max(round(100 / frames_per_second), 2) * 10,
        loop=0,
        disposal=1,
        optimize=True,
    )
    write_file(path, data.getvalue())


def check_format(path: Path) -> None:
    """Refuse an unsupported file format before any episode is played."""
    kind = path.suffix.lower()
    if kind not in FORMATS:
        raise UsageError(f"{path}: recordings are written as {' or '.join(FORMATS)}")
    if kind == FILM and find_spec("imageio_ffmpeg") is None:
        raise UsageError(
            f"{path}: an .mp4 needs FFmpeg: pip install -e '.[video]', or choose a .gif file"
        )


def _write_film(frames: Sequence[Array], path: Path, frames_per_second: int) -> None:
    import imageio.v3 as iio

    height, width = frames[0].shape[:2]
    padding = ((0, height % 2), (0, width % 2), (0, 0))  # to even sizes
    even = np.stack([np.pad(frame, padding, "edge") for frame in frames])
    with tempfile.TemporaryDirectory() as folder:  # FFmpeg does not write files atomically
        file = Path(folder) / "film.mp4"
        iio.imwrite(file, even, fps=frames_per_second, codec="libx264", macro_block_size=2)
        write_file(path, file.read_bytes())


def _palette(frames: Sequence[Array]) -> Image.Image:
    chosen = np.unique(np.linspace(0, len(frames) - 1, SAMPLES).astype(int))
    found = [Image.fromarray(frames[i]).getcolors(COLOURS) for i in chosen]
    colours = {colour for counts in found for _, colour in counts or ()}
    if None not in found and len(colours) <= COLOURS:  # frames with few colours keep all of them
        pixels = np.array([sorted(colours)], np.uint8)
    else:
        pixels = np.concatenate([frames[i].reshape(-1, 3) for i in chosen])[None]
    return Image.fromarray(pixels).quantize(COLOURS, Image.Quantize.MEDIANCUT)


def check_histories(spec: RunSpec) -> None:
    """Raise a `UsageError` if the episodes of the game have no histories."""
    if not spec.env.has_histories:
        raise UsageError(
            f"--histories: {spec.env.game} is not an OpenSpiel game, and only these have move "
            "histories; `remuda watch` shows other games"
        )


def write_histories(path: Path, config: Config, evaluation: Evaluation) -> None:
    """Write one JSON line per episode; the file is written whole or not at all.

    To replay a line, apply the moves of `history` (chance included) to the `new_initial_state()` of
    `pyspiel.load_game(game)`. `returns` are by agent; null: the agent took no part.
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
