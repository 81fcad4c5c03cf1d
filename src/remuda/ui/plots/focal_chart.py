"""A Schelling diagram: what a seat earns by the number of focal seats."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from remuda.evaluation.tournaments.focal import FocalEvaluation
from remuda.ui.plots.drawing import BLUE, ORANGE, QUIET, look, new_figure, shorten


def focal_chart(found: FocalEvaluation) -> Figure:
    """Draw the mean return of a focal seat, of a background seat and of all seats."""
    counts = np.array([each.focal_seats for each in found.returns])
    order = np.argsort(counts)
    own, others = shorten((found.focal, found.background))
    with look():
        figure = new_figure(5.6, 3.6)
        axes = figure.subplots()
        lines = (
            (own, BLUE, "focal", "focal_error"),
            (others, ORANGE, "background", "background_error"),
        )
        for name, colour, mean, error in lines:
            values, errors = (
                np.array([getattr(each, key) for each in found.returns])[order]
                for key in (mean, error)
            )
            axes.errorbar(
                counts[order], values, np.nan_to_num(errors), color=colour, label=name, marker="o"
            )
        together = np.array([each.all_seats for each in found.returns])[order]
        axes.plot(counts[order], together, "--", color=QUIET, label="mean of all seats")
        axes.set_xticks(range(found.seats + 1) if found.seats <= 16 else counts[order])
        axes.set_xlabel(f"seats of {own}, of {found.seats}")
        axes.set_ylabel("mean return of a seat")
        axes.legend()
    return figure
