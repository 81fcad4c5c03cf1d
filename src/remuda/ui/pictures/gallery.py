"""All pictures of an analysis."""

from __future__ import annotations

import numpy as np

from remuda.analysis.population_report import Analysis
from remuda.ui.pictures.drawing import Picture, look
from remuda.ui.pictures.maps import diversity_picture, structure_picture
from remuda.ui.pictures.pareto import analysis_pareto_picture
from remuda.ui.pictures.ratings import Ratings, ratings_picture
from remuda.ui.pictures.rows import equilibrium_picture, payoffs_picture, ranking_picture


def draw_pictures(
    found: Analysis | None, ratings: Ratings | str | None = None, seed: int = 0
) -> tuple[Picture, ...]:
    """Draw all pictures; those that would show nothing say why.

    Args:
        found: the analysis, if there is one.
        ratings: over the matches of a run, or why there are none; None: it is no run.
        seed: of the draws of payoffs, for the uncertainty of places.
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
