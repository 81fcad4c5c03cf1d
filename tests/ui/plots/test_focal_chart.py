"""Schelling diagrams: what is drawn where, in black and white too, and nothing over anything."""

import math
from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from remuda.evaluation.tournaments.focal import FocalEvaluation, FocalReturns
from remuda.ui.plots.focal_chart import focal_chart

LONG = "bucket_brigade-20261130-101112-with-a-long-name-of-"


def evaluation(seats=4, counts=None, names=("cooperate", "defect"), size=1.0):
    """k of n cooperate: each of them earns k, and each of the others k + 2."""
    returns = tuple(
        FocalReturns(
            k,
            k * size if k else math.nan,
            0.1 if k else math.nan,
            (k + 2) * size if k < seats else math.nan,
            0.2 if k < seats else math.nan,
            k * size,
            10,
        )
        for k in (range(seats + 1) if counts is None else counts)
    )
    return FocalEvaluation("game", *names, seats, returns, 10)


def test_curves_are_by_the_number_of_others():
    (axes,) = focal_chart(evaluation(counts=(4, 0, 2, 1, 3))).axes
    focal, background = (bars.lines[0] for bars in axes.containers)
    assert focal.get_xydata().tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert background.get_xydata().tolist() == [[0, 2], [1, 3], [2, 4], [3, 5]]
    mean = axes.lines[-1].get_xydata()
    assert mean[np.isfinite(mean).all(1)].tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    lengths = [np.ptp(segment[:, 1]) for segment in axes.containers[1].lines[2][0].get_segments()]
    assert lengths == pytest.approx([0.4] * 4)
    assert axes.get_xlabel() == "number of other agents that play cooperate (of 3)"


def test_curves_differ_without_colours():
    (axes,) = focal_chart(evaluation()).axes
    drawn = [axes.containers[0].lines[0], axes.containers[1].lines[0], axes.lines[-1]]
    assert len({(line.get_linestyle(), line.get_marker()) for line in drawn}) == 3
    faces = [line.get_markerfacecolor() for line in drawn[:2]]
    assert faces[0] != faces[1] == "white"


@pytest.mark.parametrize(
    "found",
    [
        evaluation(),
        evaluation(seats=10, names=("taking_turns", "harvesters"), size=-1000.0),
        evaluation(seats=40, names=(LONG + "one", LONG + "two")),
        evaluation(seats=2, counts=(1,)),
        evaluation(seats=10_000, counts=(0, 5000, 10_000), size=1e-7),
    ],
    ids=["small", "losses", "long names", "one number", "many"],
)
def test_no_text_covers_another(found):
    figure = focal_chart(found)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    (legend,) = figure.legends
    texts = [axes.xaxis.label, axes.yaxis.label, *legend.get_texts(), axes.yaxis.get_offset_text()]
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        texts += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    assert len(boxes) > 8
    assert not [1 for one, other in combinations(boxes, 2) if one.overlaps(other)]
    page = figure.bbox
    for text in (axes.xaxis.label, axes.yaxis.label, *legend.get_texts()):
        box = text.get_window_extent()
        assert page.x0 <= box.x0 <= box.x1 <= page.x1
        assert page.y0 <= box.y0 <= box.y1 <= page.y1
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())
