"""All pictures of an analysis, drawn and written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from remuda.analysis.overall import Analysis
from remuda.coordinator.run_directory import write_file
from remuda.ui.pictures.drawing import FORMATS, Picture, look
from remuda.ui.pictures.maps import diversity_picture, structure_picture
from remuda.ui.pictures.pareto import analysis_pareto_picture
from remuda.ui.pictures.ratings import Ratings, ratings_picture
from remuda.ui.pictures.rows import equilibrium_picture, payoffs_picture, ranking_picture


def draw_pictures(
    found: Analysis | None, ratings: Ratings | str | None = None, seed: int = 0
) -> tuple[Picture, ...]:
    """Draw all that payoffs and ratings show; of what would show nothing, say why.

    Args:
        found: the analysis; None: there is none, and ratings are all there is.
        ratings: over the matches of a run, or why there are none; None: it is no run.
        seed: of the draws of payoffs, from which the uncertainty of places is made.
    """
    pictures = []
    with look():
        if found is not None:
            rng = np.random.default_rng(seed)
            pictures += [
                payoffs_picture(found),
                ranking_picture(found),
                equilibrium_picture(found),
                structure_picture(found, rng),
                diversity_picture(found, rng),
                analysis_pareto_picture(found, rng),
            ]
        if ratings is not None:
            pictures.append(ratings_picture(ratings))
    return tuple(pictures)


def write_pictures(
    pictures: Sequence[Picture],
    directory: Path,
    formats: Sequence[str] = FORMATS,
    prefix: str = "",
) -> tuple[Path, ...]:
    """Write pictures into a directory; returns where.

    Files that an earlier analysis left of pictures that are not drawn now are removed.

    Args:
        pictures: of `draw_pictures`.
        directory: that exists.
        formats: some of `FORMATS`.
        prefix: of the names of the files.

    Raises:
        RunDirectoryError: the disk is full or not writable.
    """
    written = []
    for picture in pictures:
        for kind in FORMATS:
            path = directory / f"{prefix}{picture.name}.{kind}"
            if picture.figure is None:
                path.unlink(missing_ok=True)
            elif kind in formats:
                write_file(path, picture.encoded(kind))
                written.append(path)
    return tuple(written)
