"""What the pictures of an analysis share: look, sizes in inches, names that fit, and files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import MaxNLocator

from remuda.analysis.payoff import Payoffs
from remuda.analysis.told_matches import count_matches

INK, QUIET, FAINT = "#33373d", "#666c75", "#e4e6e9"
BLUE, ORANGE = "#3366b0", "#d9722e"
KINDS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#5b6470")
"""Colours that the colour-blind can tell apart (Okabe and Ito 2008, "Color universal design")."""
SHAPES = "osD^vPX"
"""Of markers, so that kinds differ without colours, too."""

LOOK: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 8.5,
    "text.color": INK,
    "text.parse_math": False,  # a policy may be called $
    "axes.edgecolor": "#c9cdd2",
    "axes.labelcolor": QUIET,
    "axes.labelsize": 8.5,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlepad": 8.0,
    "axes.formatter.limits": (-3, 5),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": "#c9cdd2",
    "ytick.color": "#c9cdd2",
    "xtick.labelcolor": QUIET,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    # Text stays text: it can be searched, and edited for a paper.
    "svg.fonttype": "none",
    "svg.hashsalt": "remuda",  # equal pictures are equal files
    "pdf.fonttype": 42,
}
"""matplotlib's settings for the pictures."""


@contextmanager
def look() -> Iterator[None]:
    """Draw with these settings inside the `with`.

    A letter that the font lacks is drawn as a box, and an SVG has it all the same; that is no
    reason to warn a user, once a letter, who called a policy so.
    """
    with mpl.rc_context(LOOK), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s)Glyph .* missing from", UserWarning)
        yield


FORMATS = ("png", "svg", "pdf")
DOTS = 160
"""An inch of a PNG."""
LONGEST = 22
"""The most characters of a name."""
SMALLEST = 4.5
"""Points of the smallest names; where there is no room for them every nth is told."""


@dataclass(frozen=True)
class Picture:
    """A picture of an analysis, or why there is none.

    Attributes:
        name: of its files, without what says their format.
        heading: of a few words.
        caption: one sentence on what it shows, and of how many matches; why it is not drawn.
        figure: as matplotlib has it; None: it would say nothing.
    """

    name: str
    heading: str
    caption: str
    figure: Figure | None = None

    def encoded(self, kind: str) -> bytes:
        """Return the file's content, with the caption in its metadata.

        Args:
            kind: of `FORMATS`.
        """
        if self.figure is None:
            raise ValueError(f"{self.name} was not drawn: {self.caption}")
        if kind == "png":
            about: dict[str, Any] = {"Title": self.heading, "Description": self.caption}
        elif kind == "svg":
            about = {"Title": self.heading, "Description": self.caption, "Date": None}
        else:
            about = {"Title": self.heading, "Subject": self.caption, "CreationDate": None}
        data = io.BytesIO()
        with look():
            self.figure.savefig(data, format=kind, dpi=DOTS, metadata=about)
        return data.getvalue()


def matches_in_words(payoffs: Payoffs) -> str:
    """How many matches payoffs are made of: `12,345 matches`; not known: how many meetings."""
    return count_matches(payoffs) or "payoffs that are known without matches"


def shorten(names: Sequence[str], longest: int = LONGEST) -> list[str]:
    """Names of so many characters at most, cut in the middle where they are longer.

    Names that would be the same then are cut less.
    """
    short = [_cut(name, longest) for name in names]
    if len(set(short)) < len(set(names)) and longest < max(map(len, names)):
        return shorten(names, longest + 4)
    return short


def _cut(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    begin = (longest - 1) // 2
    return f"{name[:begin]}…{name[len(name) - (longest - 1 - begin) :]}"


_RENDERER: Any = cast(Any, RendererAgg)(1, 1, 720.0)
"""Measures text at ten dots a point, so that rounding to dots adds nothing."""


def extent(words: str, size: float) -> tuple[float, float]:
    """Width and height in inches of a line of text in so many points."""
    width, height, _ = _RENDERER.get_text_width_height_descent(
        words, FontProperties(size=size), False
    )
    return width / 720.0, height / 720.0


def widest(lines: Sequence[str], size: float) -> float:
    """Inches that the widest of several lines takes; 0: there are none."""
    return max((extent(line, size)[0] for line in lines), default=0.0)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    figure = Figure(figsize=(width, height), dpi=DOTS)
    FigureCanvasAgg(figure)
    return figure


def add_panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes to a figure at a place in inches from its upper left corner.

    Places are set by hand: letting matplotlib find them takes longer than all the rest.
    """
    whole = figure.get_size_inches()
    box = (
        left / whole[0],
        1.0 - (top + height) / whole[1],
        width / whole[0],
        height / whole[1],
    )
    return figure.add_axes(box)


def number_axes(axes: Axes, most: int = 5) -> None:
    """Number both axes at so many places at most; a power of ten stands beside a title."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(most))
    wide = axes.bbox.width / axes.figure.dpi
    axes.yaxis.get_offset_text().set_x(-0.6 / wide)


def name_rows(axes: Axes, labels: Sequence[str], height: float) -> None:
    """Name the rows of axes, the first on top; every nth where there is no room for all.

    Args:
        axes: their y is the number of the row.
        labels: one for each row.
        height: of a row, in inches.
    """
    size, step = row_size(height)
    rows = range(0, len(labels), step)
    axes.set_yticks(list(rows), [labels[row] for row in rows], fontsize=size)
    axes.tick_params(axis="y", length=0, pad=4)
    axes.set_ylim(len(labels) - 0.5, -0.5)


def row_size(height: float) -> tuple[float, int]:
    """How large the names of rows may be, in points, and that every nth of them is told."""
    wanted = 0.74 * 72.0 * height
    if wanted >= SMALLEST:
        return min(wanted, 8.5), 1
    return SMALLEST, int(np.ceil(SMALLEST / wanted))
