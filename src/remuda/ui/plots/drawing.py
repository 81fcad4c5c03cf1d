"""The style of all plots, drawing helpers, and picture files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

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
NAMED = 12  # points with a name if there are more than `FEW`
LONGEST = 22  # maximum characters of a name
SMALLEST = 4.5  # minimum font size of names in points; if rows are lower, every nth is named


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
            if (layout := self.figure.get_layout_engine()) is not None:  # once for all formats
                layout.execute(self.figure)
                self.figure.set_layout_engine(None)  # with any, each format is drawn twice
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


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure of this size in inches; its layout leaves room for all text."""
    return Figure((width, height), dpi=DOTS, layout="constrained")


def number_axes(axes: Axes, max_ticks: int = 5) -> None:
    """Set at most `max_ticks` ticks per axis; move the y axis's power of ten next to the title."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(max_ticks))
    axes.yaxis.get_offset_text().set_x(-0.15)


def count_along_x(axes: Axes, last: int) -> None:
    """Label the x axis with counts of turns or matches, from 0."""
    axes.set_xlim(0, max(last, 1))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))


def set_log_scale(axes: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers: names may contain $, so mathtext is off."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=5))
    axes.yaxis.set_major_formatter(lambda at, _: f"{at:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def name_rows(
    axes: Axes, labels: Sequence[str], height: float, side: Literal["left", "right"] = "left"
) -> None:
    """Name the rows of axes, counted from the top; `height` is a row's height in inches."""
    axis: Any = axes if side == "left" else axes.secondary_yaxis("right")
    wanted = 0.74 * 72.0 * height  # font size in points
    step = int(np.ceil(SMALLEST / wanted))
    size, rows = float(np.clip(wanted, SMALLEST, 8.5)), range(0, len(labels), step)
    axis.set_yticks(list(rows), [labels[row] for row in rows], fontsize=size)
    axis.tick_params(axis="y", length=0, pad=4)
    axis.spines[side].set_visible(False)
    axes.set_ylim(len(labels) - 0.5, -0.5)


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


def name_points(
    axes: Axes, points: Numbers, names: Sequence[str], order: Sequence[int] | Integers
) -> None:
    """Name points, [N, 2]; if there are more than `FEW`, only the first `NAMED` in this order."""
    size, shown = (7.5, len(order)) if len(names) <= FEW else (5.5, NAMED)
    short = shorten(names)
    for i in order[:shown]:
        where: Any = {"xytext": (3.5, 3.5), "textcoords": "offset points"}
        axes.annotate(short[i], tuple(points[i]), fontsize=size, zorder=5, **where)


def unnamed(count: int) -> str:
    """Return the caption's note on omitted names."""
    return f"; {NAMED} of {count} are named" if count > FEW else ""
