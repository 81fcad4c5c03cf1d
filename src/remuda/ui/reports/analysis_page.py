"""All pictures of an analysis, on a page and in a section of a run's report."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from remuda.analysis.population_report import Analysis
from remuda.analysis.roles_report import RolesAnalysis, analyse_game
from remuda.errors import RemudaError
from remuda.population.ledger.lineage import read_lineage, read_matches
from remuda.runs.run_directory import RunDirectory, write_file
from remuda.ui.analysis.sources import AnalysisSource, Choice, game_of, with_matches
from remuda.ui.plots.drawing import Picture, look, matches_in_words, write_pictures
from remuda.ui.plots.over_time import Ratings, lineage_picture, ratings_picture, read_ratings
from remuda.ui.plots.points import analysis_pareto_picture, diversity_picture, structure_picture
from remuda.ui.plots.rows import equilibrium_picture, payoffs_picture, ranking_picture
from remuda.ui.reports.html import render, with_pictures

log = logging.getLogger(__name__)

PREFIX = "report_"  # prefix of a report's picture files; `remuda analyse` writes them without it
HEADING = "Strengths and exploitation"
NOTE = "This directory has each picture as PNG, SVG and PDF; all numbers are in analysis.json."
SAMPLES = 100  # draws of the payoffs in a report; `remuda analyse` uses more
MOST = 64  # maximum number of policies in a report
IN_TRAINING = Markup(
    "These matches were played in training; all versions of a policy count as one member. "
    f"At most {MOST} policies. <code>remuda tournament</code> compares the final policies, and "
    "<code>remuda analyse</code> also writes these pictures as SVG and PDF."
)


def draw_pictures(
    found: Analysis | RolesAnalysis | None, ratings: Ratings | str | None = None
) -> tuple[Picture, ...]:
    """Draw all pictures of an analysis and of ratings; captions explain missing figures."""
    pictures = []
    with look():
        if isinstance(found, RolesAnalysis):
            pictures.append(payoffs_picture(found))
            for each in found.roles:
                pictures.append(ranking_picture(each.ranking, found.payoffs, each.role.name))
        elif found is not None:
            rng = np.random.default_rng(0)
            pictures += [
                payoffs_picture(found),
                ranking_picture(found.ranking, found.payoffs),
                equilibrium_picture(found),
                structure_picture(found, rng),
                diversity_picture(found, rng),
                analysis_pareto_picture(found, rng),
            ]
        if ratings is not None:
            pictures.append(ratings_picture(ratings))
    return tuple(pictures)


def draw_into(
    directory: Path,
    found: Analysis | RolesAnalysis,
    ledger: Path | None = None,
    sides: Sequence[int] = (),
) -> Path:
    """Write the pictures of an analysis and their page into a directory; return the page's path."""
    pictures = draw_pictures(found, None if ledger is None else read_ratings(ledger, sides))
    write_pictures(pictures, directory)
    page = directory / "analysis.html"
    write_file(page, with_pictures(page_of(found, pictures), directory).encode())
    return page


def page_of(found: Analysis | RolesAnalysis, pictures: Sequence[Picture]) -> str:
    """Return the page as HTML; its pictures are PNG files in the same directory."""
    return render(
        "analysis.html",
        heading=HEADING,
        count=len(found.payoffs.names),
        matches=matches_in_words(found.payoffs),
        section=_section(found, pictures, note=NOTE),
    )


def write_section(run: RunDirectory) -> Markup:
    """Analyse the ledger of a run, write the pictures, and return the section of its report."""
    try:
        source = with_matches(AnalysisSource(run.path, run.path.name, run.path, run=run), run)
    except Exception as error:  # code of the user's environment
        log.error("no analysis", exc_info=error)
        words = " ".join(f"cannot create the game: {type(error).__name__}: {error}".split())
        return _section(None, (), words)
    found, why = None, ""
    try:
        game = game_of(source, Choice(), MOST)
        found = analyse_game(game, np.random.default_rng(0), SAMPLES)
    except RemudaError as error:
        why = str(error)
    try:
        ratings = read_ratings(run.ledger, source.seats.rated)
    except RemudaError as error:
        ratings = f"{error}."
    pictures = draw_pictures(found, ratings)
    write_pictures(pictures, run.path, ("png",), PREFIX)
    return _section(found, pictures, why, prefix=PREFIX)


def draw_lineage(run: RunDirectory) -> Picture | None:
    """Write the lineage of a run as a picture; return None if no policy was born."""
    births = read_lineage(run.ledger)
    if not births:
        return None
    with look():
        picture = lineage_picture(births, read_matches(run.ledger))
    write_pictures([picture], run.path, ("png",), PREFIX)
    return picture


def _section(
    found: Analysis | RolesAnalysis | None,
    pictures: Sequence[Picture],
    why: str = "",
    note: str = IN_TRAINING,
    prefix: str = "",
) -> Markup:
    return render(
        "section.html",
        heading=HEADING,
        sentences=found.in_words() if found is not None else None,
        why=why,
        note=note,
        pictures=pictures,
        prefix=prefix,
    )
