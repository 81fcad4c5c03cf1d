"""The curves of docs/worlds.md, from what `worlds.py --record` wrote.

python benchmarks/worlds_picture.py
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator
from recording import FIGURES, ROOT

PICTURE = ROOT / "docs" / "images" / "worlds.png"
COLOURS = {
    "Remuda": "#2f6f5e",
    "Remuda, one policy for all": "#8dbf4b",
    "SB3, one network for all": "#c2571a",
    "SB3, a learner for each": "#3b6fb6",
}
TITLES = {
    "spread": "MPE spread, mean of agents",
    "speaker": "MPE speaker and listener, mean of agents",
    "tag": "MPE tag, adversaries against a prey by hand",
    "tag_both": "MPE tag, adversaries where both learn",
    "lbf_coop": "foraging 8x8-2p-2f-coop, team",
    "lbf_10x10": "foraging 10x10-3p-3f, team",
    "rware": "RWARE tiny-4ag, team",
    "pursuit": "pursuit, team of 8",
    "multiwalker": "multiwalker, mean of agents",
    "pendulum": "Pendulum",
}
HEIGHT, LEGEND = 3.0, 0.3
"""Inches of a row of worlds, and of the names above all."""
WINDOW = 0.05
"""The share of the turns; a point is the mean of the records in so long a stretch."""
Points = list[tuple[int, float]]


def curves_of(file: Path) -> dict[str, dict[str, Points]]:
    """For each library and seed, the turns and the return of each record."""
    found: dict[str, dict[str, Points]] = defaultdict(lambda: defaultdict(list))
    with file.open() as lines:
        for row in csv.DictReader(lines):
            point = int(row["turns"]), float(row["return"])
            found[row["library"]][row["seed"]].append(point)
    return found


def on_grid(points: Points, grid: np.ndarray) -> np.ndarray:
    """The means of a curve in the stretches that end at the points of a grid."""
    turns, values = np.array(points, np.float64).T
    reach = WINDOW * grid[-1]
    found = np.full(len(grid), np.nan)
    for i, end in enumerate(grid):
        inside = (turns > end - reach) & (turns <= end)
        if inside.any():
            found[i] = values[inside].mean()
        elif turns[0] <= end:  # a run so short that few records were written
            found[i] = np.interp(end, turns, values)
    return found


def main() -> None:
    """Draw all worlds that were recorded."""
    files = {name: FIGURES / f"worlds.{name}.csv" for name in TITLES}
    files = {name: file for name, file in files.items() if file.exists()}
    columns = min(3, len(files))
    rows = -(-len(files) // columns)
    figure, panels = plt.subplots(
        rows, columns, figsize=(4.2 * columns, HEIGHT * rows), squeeze=False
    )
    for axes in panels.flat[len(files) :]:
        axes.set_visible(False)
    for axes, (name, file) in zip(panels.flat, files.items(), strict=False):
        for library, seeds in curves_of(file).items():
            last = min(points[-1][0] for points in seeds.values())
            grid = np.linspace(0.02, 1.0, 80) * last
            values = np.array([on_grid(points, grid) for points in seeds.values()])
            with np.errstate(invalid="ignore"):
                mean = values.mean(0)
                error = values.std(0, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0 * mean
            axes.plot(grid, mean, color=COLOURS[library], label=library, lw=1.6)
            axes.fill_between(
                grid, mean - error, mean + error, color=COLOURS[library], alpha=0.2, lw=0
            )
            for points in seeds.values():  # those that had more turns, from there on, each
                end = points[-1][0]
                if end > (1.0 + WINDOW) * last:
                    on = np.linspace(last, end, 40)
                    axes.plot(on, on_grid(points, on), color=COLOURS[library], lw=0.6, alpha=0.7)
        axes.set_title(TITLES[name], fontsize=9.5)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g} M" if x else "0")
    shown = {
        line.get_label(): line for axes in panels.flat for line in axes.get_lines()
    }  # a library may be missing in some
    named = {name: line for name, line in shown.items() if name in COLOURS}
    figure.legend(
        named.values(), named, fontsize=8, frameon=False, loc="upper center", ncols=len(named)
    )
    figure.supxlabel("turns of all copies", fontsize=9)
    figure.supylabel("return of an episode in training", fontsize=9)
    figure.tight_layout(rect=(0.0, 0.0, 1.0, 1.0 - LEGEND / (HEIGHT * rows)))
    figure.savefig(PICTURE, dpi=110)
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
