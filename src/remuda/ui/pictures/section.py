"""The sections of a run's report about its population: lineage and analysis."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from remuda.analysis.from_ledger import read_payoffs
from remuda.analysis.population_report import Analysis, analyse
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.registry import make_env
from remuda.errors import RemudaError
from remuda.population.lineage import read_lineage, read_matches
from remuda.population.ratings import sides_of
from remuda.population.roster import Roster
from remuda.ui.html import render
from remuda.ui.pictures.drawing import Picture, look, write_pictures
from remuda.ui.pictures.gallery import draw_pictures
from remuda.ui.pictures.lineage import lineage_picture
from remuda.ui.pictures.ratings import read_ratings

log = logging.getLogger(__name__)

SAMPLES = 100
"""Draws of the payoffs; `remuda analyse` makes more and takes longer."""
MOST = 64
"""The most policies that are analysed."""
IN_TRAINING = Markup(
    "These matches were played in training; a policy is one member, whatever its version. "
    f"At most {MOST} policies. <code>remuda tournament</code> compares the final policies, and "
    "<code>remuda analyse</code> also writes these pictures as SVG and PDF."
)
PREFIX = "report_"
"""Begins the names of the report's pictures, to tell them from those of `remuda analyse`."""
HEADING = "Strengths and exploitation"


def write_section(run: RunDirectory) -> Markup:
    """Analyse the ledger of a run, write the pictures, and return the section.

    Raises:
        RunDirectoryError: a picture cannot be written.
    """
    try:
        meeting, rated = _sides_of(run)
    except Exception as error:  # the user's environment knows the sides
        log.error("no analysis", exc_info=error)
        words = " ".join(f"the game cannot be made: {type(error).__name__}: {error}".split())
        return section_of(None, (), words)
    found, why = None, ""
    try:
        payoffs = read_payoffs(
            run.ledger, sides=meeting, keep=lambda ref: not ref.is_frozen, most=MOST
        )
        found = analyse(payoffs, np.random.default_rng(0), SAMPLES)
    except RemudaError as error:
        why = str(error)
    try:
        ratings = read_ratings(run.ledger, rated)
    except RemudaError as error:
        ratings = f"{error}."
    pictures = draw_pictures(found, ratings)
    write_pictures(pictures, run.path, ("png",), PREFIX)
    return section_of(found, pictures, why, prefix=PREFIX)


def draw_lineage(run: RunDirectory) -> Picture | None:
    """Write the lineage of a run as a picture; None: no policy was born.

    Raises:
        RunDirectoryError: the ledger is damaged, or the picture cannot be written.
    """
    births = read_lineage(run.ledger)
    if not births:
        return None
    with look():
        picture = lineage_picture(births, read_matches(run.ledger))
    write_pictures([picture], run.path, ("png",), PREFIX)
    return picture


def _sides_of(run: RunDirectory) -> tuple[list[int], list[int]]:
    """Return the team of each seat: of those that meet others, and of all that are rated."""
    config = run.read_config()
    env = make_env(config.game, 1, **config.env.made_with)
    env.close()
    roster = Roster.of(config, env.agents)
    count = len(env.agents)
    meeting, rated = sides_of(roster.teams, count, roster.taken), sides_of(roster.teams, count)
    return meeting.tolist(), rated.tolist()


def section_of(
    found: Analysis | None,
    pictures: Sequence[Picture],
    why: str = "",
    note: str = IN_TRAINING,
    prefix: str = "",
) -> Markup:
    """Return the section as HTML; its pictures are the PNG files beside the page.

    Args:
        found: the analysis; None: there is none.
        pictures: all of them, drawn or not.
        why: the reason why there is no analysis.
        note: the matches that were analysed.
        prefix: of the names of the PNG files.
    """
    sentences = found.in_words() if found is not None else None
    return render(
        "section.html",
        heading=HEADING,
        sentences=sentences,
        why=why,
        note=note,
        pictures=pictures,
        prefix=prefix,
    )
