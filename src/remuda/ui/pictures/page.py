"""What `remuda analyse` leaves in a directory: the pictures of an analysis, and a page of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from remuda.analysis.overall import Analysis
from remuda.coordinator.run_directory import write_file
from remuda.ui.embedding import with_pictures
from remuda.ui.pictures.drawing import Picture, matches_in_words
from remuda.ui.pictures.gallery import draw_pictures, write_pictures
from remuda.ui.pictures.ratings import read_ratings
from remuda.ui.pictures.section import HEADING, section_of
from remuda.ui.report import STYLE

PAGE = "analysis.html"


def draw_into(
    directory: Path, found: Analysis, ledger: Path | None = None, sides: Sequence[int] = ()
) -> Path:
    """Draw all pictures of an analysis into a directory, with a page of them; returns its path.

    The page holds its pictures, so that it can be sent alone.

    Args:
        directory: that exists.
        found: what is drawn.
        ledger: of the run whose ratings over time are drawn; None: nothing learned.
        sides: by seat of the ledger, the number of its team; empty: each stands for itself.

    Raises:
        RunDirectoryError: the disk is full or not writable, or the ledger is damaged.
        UsageError: the ledger has no match that is over.
    """
    pictures = draw_pictures(found, None if ledger is None else read_ratings(ledger, sides))
    write_pictures(pictures, directory)
    page = directory / PAGE
    write_file(page, with_pictures(page_of(found, pictures), directory).encode())
    return page


def page_of(found: Analysis, pictures: Sequence[Picture]) -> str:
    """The page as HTML; its pictures are the PNG files in a directory."""
    note = "Each picture is here as PNG, SVG and PDF; all numbers are in analysis.json."
    count = len(found.payoffs.names)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{HEADING}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Analysis</h1>
<p class="lead">{count} policies, {matches_in_words(found.payoffs)}.</p>
{section_of(found, pictures, note=note)}
</body>
</html>
"""
