"""The section of a run's report about its population: who is good, who exploits whom."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from html import escape

import matplotlib as mpl
import numpy as np

from remuda.analysis.meetings import read_payoffs
from remuda.analysis.overall import Analysis, analyse
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.registry import make_env
from remuda.errors import RemudaError
from remuda.population.lineage import read_lineage, read_matches
from remuda.population.ratings import sides_of
from remuda.population.roster import Roster
from remuda.ui.pictures.drawing import LOOK, Picture
from remuda.ui.pictures.gallery import draw_pictures, write_pictures
from remuda.ui.pictures.lineage import lineage_picture
from remuda.ui.pictures.ratings import Ratings, read_ratings

log = logging.getLogger(__name__)

SAMPLES = 100
"""Draws of the payoffs: a report must not keep a user waiting; `remuda analyse` makes more."""
MOST = 64
"""The most policies that are looked at."""
IN_TRAINING = (
    "Of the matches in training, in which a policy is one member whatever version of it played; "
    f"{MOST} policies at most. "
    "For the policies as they are in the end: <code>remuda tournament</code>. <code>remuda "
    "analyse</code> writes these pictures as SVG and PDF, too."
)
"""What matches a run's are."""
PREFIX = "report_"
"""Of the names of the report's pictures; those of `remuda analyse` lie beside them."""
HEADING = "Who is good, who exploits whom"


def write_section(run: RunDirectory) -> str:
    """Analyse the matches of a run, write the pictures, and return the section as HTML.

    Args:
        run: with a ledger of matches.

    Raises:
        RunDirectoryError: a picture cannot be written.
    """
    try:
        sides, rated = _sides_of(run)
    except Exception as error:  # the user's game tells who is on which side
        log.error("no analysis", exc_info=error)
        words = " ".join(f"the game cannot be made: {type(error).__name__}: {error}".split())
        return section_of(None, (), words)
    found, why = None, ""
    try:
        found = _analysis_of(run, sides)
    except RemudaError as error:
        why = str(error)
    pictures = draw_pictures(found, _ratings_of(run, rated))
    write_pictures(pictures, run.path, ("png",), PREFIX)
    return section_of(found, pictures, why, prefix=PREFIX)


def write_lineage(run: RunDirectory) -> str:
    """Draw who was born of whom into a run's directory, and return that section as HTML.

    Args:
        run: with a ledger of matches.

    Returns:
        Empty: no policy has been born in this run.

    Raises:
        RunDirectoryError: the ledger is damaged, or the picture cannot be written.
    """
    births = read_lineage(run.ledger)
    if not births:
        return ""
    with mpl.rc_context(LOOK):
        picture = lineage_picture(births, read_matches(run.ledger))
    write_pictures([picture], run.path, ("png",), PREFIX)
    if picture.figure is None:
        return f'<h2>Lineage</h2>\n<p class="note">{escape(picture.caption)}</p>'
    return f"<h2>Lineage</h2>\n{_figure(picture, PREFIX)}"


def _sides_of(run: RunDirectory) -> tuple[list[int], list[int]]:
    """By seat, the number of its team: of those that meet others, and of all that are rated."""
    config = run.read_config()
    env = make_env(config.game, 1, **config.env.made_with)
    env.close()
    roster = Roster.of(config, env.agents)
    count = len(env.agents)
    meeting, rated = sides_of(roster.teams, count, roster.taken), sides_of(roster.teams, count)
    return meeting.tolist(), rated.tolist()


def _analysis_of(run: RunDirectory, sides: Sequence[int]) -> Analysis:
    payoffs = read_payoffs(run.ledger, sides=sides, keep=lambda ref: not ref.is_frozen, most=MOST)
    return analyse(payoffs, np.random.default_rng(0), SAMPLES)


def _ratings_of(run: RunDirectory, sides: Sequence[int]) -> Ratings | str:
    try:
        return read_ratings(run.ledger, sides)
    except RemudaError as error:
        return f"{error}."


def section_of(
    found: Analysis | None,
    pictures: Sequence[Picture],
    why: str = "",
    note: str = IN_TRAINING,
    prefix: str = "",
) -> str:
    """The section as HTML; its pictures are the PNG files beside the page.

    Args:
        found: what its sentences are about; None: there is no analysis.
        pictures: that are drawn, and those that are not.
        why: there is no analysis.
        note: HTML on what matches these are.
        prefix: of the names of the PNG files.
    """
    parts = [f"<h2>{HEADING}</h2>"]
    if found is not None:
        parts += [f'<p class="note">{note}</p>', "<dl>"]
        for part, words in found.in_words().items():
            parts.append(f'<div class="wide"><dt>{part}</dt><dd>{escape(words)}</dd></div>')
        parts.append("</dl>")
    elif why:
        parts.append(f'<p class="note">Policies are not compared: {escape(why)}.</p>')
    parts += [_figure(each, prefix) for each in pictures if each.figure is not None]
    left_out = [each for each in pictures if each.figure is None]
    if left_out:
        told = "".join(f"<br>{each.heading}: {escape(each.caption)}" for each in left_out)
        parts.append(f'<p class="note">Not drawn:{told}</p>')
    return "\n".join(parts)


def _figure(picture: Picture, prefix: str) -> str:
    """A picture as wide as it was drawn, or as the page; its caption below."""
    width = 0.0 if picture.figure is None else float(picture.figure.get_size_inches()[0])
    words = escape(picture.caption)
    return (
        f'<figure class="drawn"><img class="chart" style="width: {width:.2f}in" '
        f'src="{prefix}{picture.name}.png" alt="{escape(picture.heading)}">'
        f"<figcaption>{words}</figcaption></figure>"
    )
