"""Schelling diagrams: what is drawn where, in black and white too, and nothing over anything."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from remuda.evaluation.tournaments.focal import FocalEvaluation, FocalReturns
from remuda.ui.plots.focal_chart import focal_chart

LONG = "bucket_brigade-20261130-101112-with-a-long-name-of-"


def evaluation(seats=4, counts=None, names=("cooperate", "defect"), size=1.0, errors=(0.1, 0.2)):
    """k of n cooperate: each of them earns k, and each of the others k + 2."""
    returns = tuple(
        FocalReturns(
            k,
            k * size if k else math.nan,
            errors[0] if k else math.nan,
            (k + 2) * size if k < seats else math.nan,
            errors[1] if k < seats else math.nan,
            k * size,
            10,
        )
        for k in (range(seats + 1) if counts is None else counts)
    )
    return FocalEvaluation("game", *names, seats, returns, 10)


def test_curves_are_by_the_number_of_others():
    (axes,) = focal_chart(evaluation(counts=(4, 0, 2, 1, 3))).axes
    focal, background, _ = (bars.lines[0] for bars in axes.containers)
    assert focal.get_xydata().tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert background.get_xydata().tolist() == [[0, 2], [1, 3], [2, 4], [3, 5]]
    mean = axes.lines[-1].get_xydata()
    assert mean[np.isfinite(mean).all(1)].tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    lengths = [np.ptp(segment[:, 1]) for segment in axes.containers[1].lines[2][0].get_segments()]
    assert lengths == pytest.approx([0.4] * 4)
    assert axes.get_xlabel() == "number of other agents that play cooperate (of 3)"


def bars_of(found):
    (axes,) = focal_chart(found).axes
    bars = [each.lines[2][0].get_segments() for each in axes.containers[:2]]
    return [[each for each in own if np.isfinite(each).all() and len(each)] for own in bars]


def test_an_unknown_error_is_a_cross_without_a_bar():
    """Red before: it was drawn as if it were zero."""
    assert [len(each) for each in bars_of(evaluation())] == [4, 4]
    unknown = evaluation(errors=(0.1, math.nan))
    assert [len(each) for each in bars_of(unknown)] == [4, 0]
    (axes,) = focal_chart(unknown).axes
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [line.get_xydata().tolist() for line in crosses] == [[[0, 2], [1, 3], [2, 4], [3, 5]]]
    assert "× unknown" in axes.get_ylabel()
    assert "unknown" not in focal_chart(evaluation()).axes[0].get_ylabel()
    assert not [
        line for line in focal_chart(evaluation()).axes[0].lines if line.get_marker() == "x"
    ]


def test_only_adjacent_numbers_are_joined():
    """Red before: lines between distant points suggested a distance where no x has both curves."""
    (axes,) = focal_chart(evaluation(seats=10, counts=(0, 1, 5, 10))).axes
    lines = [bars.lines[0] for bars in axes.containers]
    for line, known in zip(lines, ([0, 4, 9], [0, 1, 5], [0, 1, 5]), strict=True):
        places = line.get_xdata()
        assert places[np.isfinite(places)].tolist() == known
        pairs = np.stack([places[:-1], places[1:]], 1)
        assert (np.diff(pairs[np.isfinite(pairs).all(1)]) == 1).all()
        assert line.get_marker() not in ("None", "", None)


@pytest.mark.parametrize(("counts", "entries"), [((1,), 3), ((4,), 1), ((0,), 2), (None, 3)])
def test_the_legend_names_what_is_drawn(counts, entries):
    figure = focal_chart(evaluation(counts=counts))
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(names) == entries
    assert ("mean of all agents" in names) == (counts != (4,))


def test_reserved_seats_are_named_at_the_axis():
    found = evaluation()
    for scripted in (
        {"agent_4": "cooperate"},
        {f"agent_{i}": "a_module_with_a_long_name:" + "policy_with_a_very_long_name" * 3
         for i in range(4, 9)},
    ):  # fmt: skip
        label = focal_chart(replace(found, scripted=scripted)).axes[0].get_xlabel()
        assert "besides agent_4" in label
        assert "always play" in " ".join(label.split())


def test_curves_differ_without_colours():
    (axes,) = focal_chart(evaluation()).axes
    drawn = [bars.lines[0] for bars in axes.containers]
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
        replace(evaluation(errors=(math.nan, math.nan)), scripted={"agent_4": "cooperate"}),
        replace(
            evaluation(), scripted={f"agent_{i}": f"mine:{LONG * 3}{i // 2}" for i in range(9)}
        ),
        evaluation(seats=10_000, counts=(0, 5000, 10_000), size=1e-7),
    ],
    ids=["small", "losses", "long names", "one number", "reserved", "many reserved", "many"],
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
