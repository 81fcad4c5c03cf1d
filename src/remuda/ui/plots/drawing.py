"""The style of all plots, drawing helpers, and picture files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import EngFormatter, MaxNLocator
from matplotlib.transforms import Bbox

from remuda.runs.run_directory import write_file

if TYPE_CHECKING:
    from remuda.analysis.payoffs.payoffs import Payoffs
    from remuda.types import Integers, Numbers

INK, QUIET, FAINT = "#33373d", "#666c75", "#e4e6e9"
BLUE, ORANGE = "#3366b0", "#d9722e"
KINDS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#5b6470")
"""Colours for colour-blind readers (Okabe and Ito 2008, "Color universal design")."""

LOOK = mpl.rc_params_from_file(
    Path(__file__).with_name("plots.mplstyle"), use_default_template=False
)


@contextmanager
def look() -> Iterator[None]:
    """Draw in this style inside the `with`, without warnings about missing glyphs."""
    with mpl.rc_context(LOOK), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s)Glyph .* missing from", UserWarning)
        yield


FORMATS = ("png", "svg", "pdf")
DOTS = 160  # dots per inch of a PNG
FEW = 24  # up to this many policies, uncertainty is drawn; more would hide the points
LONGEST = 22  # maximum characters of a name
SMALLEST = 4.5  # minimum font size of names in points; below it only every nth row is named


@dataclass(frozen=True)
class Picture:
    """A picture of an analysis, or the reason why it is missing."""

    name: str  # the stem of the picture's files
    heading: str
    caption: str  # the content and the number of matches, or why the picture is not drawn
    figure: Figure | None = None

    @property
    def width(self) -> float:
        """The width in inches; 0 without a figure."""
        return 0.0 if self.figure is None else float(self.figure.get_size_inches()[0])

    def encoded(self, kind: str) -> bytes:
        """Encode as one of `FORMATS`, with the caption in the metadata."""
        if self.figure is None:
            raise ValueError(f"{self.name} was not drawn: {self.caption}")
        about: dict[str, dict[str, Any]] = {
            "png": {"Description": self.caption},
            "svg": {"Description": self.caption, "Date": None},
            "pdf": {"Subject": self.caption, "CreationDate": None},
        }
        data, metadata = io.BytesIO(), {"Title": self.heading} | about[kind]
        with look():
            self.figure.savefig(data, format=kind, dpi=DOTS, metadata=metadata)
        return data.getvalue()


def write_pictures(
    pictures: Sequence[Picture], directory: Path, formats: Sequence[str] = FORMATS, prefix: str = ""
) -> tuple[Path, ...]:
    """Write pictures into a directory; return the paths. Remove files of pictures not drawn."""
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


def matches_in_words(payoffs: Payoffs) -> str:
    """Describe the number of matches or meetings: `12,345 matches`."""
    from remuda.analysis.payoffs.payoffs import count_matches

    return count_matches(payoffs) or "payoffs known without matches"


def shorten(names: Sequence[str], longest: int = LONGEST) -> list[str]:
    """Shorten names in the middle, but keep them distinct."""
    short = [_cut(name, longest) for name in names]
    if len(set(short)) < len(set(names)) and longest < max(map(len, names)):
        return shorten(names, longest + 4)
    return short


def _cut(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    begin = (longest - 1) // 2
    return f"{name[:begin]}…{name[len(name) - (longest - 1 - begin) :]}"


_RENDERER: Any = cast(Any, RendererAgg)(1, 1, 720.0)  # ten dots per point avoid rounding


def extent(words: str, size: float) -> tuple[float, float]:
    """Return width and height in inches of a line of text at a font size in points."""
    width, height, _ = _RENDERER.get_text_width_height_descent(
        words, FontProperties(size=size), False
    )
    return width / 720.0, height / 720.0


def widest(lines: Sequence[str], size: float) -> float:
    """Return the width of the widest line in inches."""
    return max((extent(line, size)[0] for line in lines), default=0.0)


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure of this size in inches."""
    figure = Figure(figsize=(width, height), dpi=DOTS)
    FigureCanvasAgg(figure)
    return figure


def add_panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes, in inches from the upper left; matplotlib's automatic layout is slow."""
    wide, high = figure.get_size_inches()
    box = left / wide, 1.0 - (top + height) / high, width / wide, height / high
    return figure.add_axes(box)


def number_axes(axes: Axes, most: int = 5) -> None:
    """Set at most `most` ticks per axis; move the y axis's power of ten next to the title."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(most))
    wide = axes.bbox.width / axes.figure.dpi
    axes.yaxis.get_offset_text().set_x(-0.6 / wide)


def count_along_x(axes: Axes, most: int) -> None:
    """Label the x axis with counts of turns or matches, from 0."""
    axes.set_xlim(0, max(most, 1))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))


def name_rows(axes: Axes, labels: Sequence[str], height: float) -> None:
    """Name the rows of axes, counted from the top; `height` is a row's height in inches."""
    size, step = row_size(height)
    rows = range(0, len(labels), step)
    axes.set_yticks(list(rows), [labels[row] for row in rows], fontsize=size)
    axes.tick_params(axis="y", length=0, pad=4)
    axes.set_ylim(len(labels) - 0.5, -0.5)


def row_size(height: float) -> tuple[float, int]:
    """Return the font size of row names in points, and the step between named rows."""
    wanted = 0.74 * 72.0 * height
    if wanted >= SMALLEST:
        return min(wanted, 8.5), 1
    return SMALLEST, int(np.ceil(SMALLEST / wanted))


def mark_points(axes: Axes, points: Numbers, colour: str, count: int, shape: str = "o") -> None:
    """Draw points, [N, 2] in data coordinates, smaller if there are many policies."""
    axes.plot(
        *points.T,
        shape,
        color=colour,
        markersize=6.4 if count <= FEW else 4.2,
        markeredgecolor="white",
        markeredgewidth=0.4,
        zorder=3,
    )


SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))  # by preference


def name_points(
    axes: Axes, points: Numbers, names: Sequence[str], order: Sequence[int] | Integers
) -> int:
    """Name points, [N, 2], in this order, skipping overlaps; return the number of names."""
    few = len(names) <= FEW
    size, away = (7.5, 6.0) if few else (5.5, 4.0)
    centres = axes.transData.transform(points)
    marker = away / 2.0 * axes.figure.dpi / 72.0
    taken = [Bbox([centre - marker, centre + marker]) for centre in centres]
    frame, named = axes.get_window_extent(), 0
    for point in order:
        for x, y in SIDES:
            text = axes.annotate(
                names[point],
                tuple(points[point]),
                (away * x, away * y),
                textcoords="offset points",
                fontsize=size,
                ha=("right", "center", "left")[x + 1],
                va=("top", "center", "bottom")[y + 1],
                zorder=5,
            )
            box = text.get_window_extent()
            inside = frame.contains(box.x0, box.y0) and frame.contains(box.x1, box.y1)
            if inside and not box.count_overlaps(taken):
                taken.append(box)
                named += 1
                break
            text.remove()
    return named


def unnamed(named: int, count: int) -> str:
    """Return the caption's note on omitted names."""
    return f"; {named} of {count} are named" if named < count else ""
