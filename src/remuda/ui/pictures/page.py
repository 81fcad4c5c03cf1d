"""The pictures of `remuda analyse`, and a page of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from remuda.analysis.population_report import Analysis
from remuda.coordinator.run_directory import write_file
from remuda.ui.html import render, with_pictures
from remuda.ui.pictures.drawing import Picture, matches_in_words, write_pictures
from remuda.ui.pictures.gallery import draw_pictures
from remuda.ui.pictures.ratings import read_ratings
from remuda.ui.pictures.section import HEADING, section_of

PAGE = "analysis.html"
NOTE = "Each picture is here as PNG, SVG and PDF; all numbers are in analysis.json."


def draw_into(
    directory: Path, found: Analysis, ledger: Path | None = None, sides: Sequence[int] = ()
) -> Path:
    """Write all pictures of an analysis and a page of them into a directory; return its path.

    Args:
        directory: must exist.
        found: the analysis.
        ledger: matches in training, for ratings over time.
        sides: the team of each seat of the ledger; empty: every seat for itself.

    Raises:
        RunDirectoryError: the disk is full or not writable, or the ledger is damaged.
        UsageError: no match of the ledger is over.
    """
    pictures = draw_pictures(found, None if ledger is None else read_ratings(ledger, sides))
    write_pictures(pictures, directory)
    page = directory / PAGE
    write_file(page, with_pictures(page_of(found, pictures), directory).encode())
    return page


def page_of(found: Analysis, pictures: Sequence[Picture]) -> str:
    """Return the page as HTML; its pictures are the PNG files in a directory."""
    return render(
        "analysis.html",
        heading=HEADING,
        count=len(found.payoffs.names),
        matches=matches_in_words(found.payoffs),
        section=section_of(found, pictures, note=NOTE),
    )
