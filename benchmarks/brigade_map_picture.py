"""The heat maps of docs/brigade_map.md, from what `brigade_map.py --record` wrote.

python benchmarks/brigade_map_picture.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from brigade_map import REWARDS, cells
from recording import FIGURES, ROOT

PICTURE = ROOT / "docs" / "images" / "brigade_map.png"
TITLES = {"own": "Remuda, own rewards", "shared": "Remuda, shared rewards"}


def gaps() -> dict[str, Mapping[str, float]]:
    """Return the gap closed of each cell, by title: as published, and as recorded."""
    found = {"published": {cell.name: cell.gap_closed for cell in cells().values()}}
    for rewards in REWARDS:
        file = FIGURES / f"brigade_map.{rewards}.json"
        if file.exists():
            rows = json.loads(file.read_text())["figures"]["rows"]
            found[TITLES[rewards]] = {row["cell"]: row["gap closed"] for row in rows}
    return found


def main() -> None:
    """Draw a row of three heat maps, one for each cost, for each title."""
    known = cells().values()
    costs, betas, kappas = (
        sorted({getattr(cell, name) for cell in known}) for name in ("cost", "beta", "kappa")
    )
    shown = gaps()
    figure, panels = plt.subplots(
        len(shown),
        len(costs),
        figsize=(10.5, 2.1 * len(shown) + 0.5),
        squeeze=False,
        layout="constrained",
    )
    colours = plt.get_cmap("cividis").with_extremes(bad="#eeeeee")
    for axes_row, (title, values) in zip(panels, shown.items(), strict=True):
        for axes, cost in zip(axes_row, costs, strict=True):
            grid = np.full((len(betas), len(kappas)), np.nan)
            for cell in known:
                if cell.cost == cost:
                    at = betas.index(cell.beta), kappas.index(cell.kappa)
                    grid[at] = values[cell.name]
            image = axes.imshow(grid, cmap=colours, vmin=0.0, vmax=1.0, aspect="auto")
            for (row, column), value in np.ndenumerate(grid):
                if np.isfinite(value):
                    ink = "black" if value > 0.55 else "white"
                    axes.text(
                        column, row, f"{value:.2f}", ha="center", va="center", color=ink, fontsize=9
                    )
            axes.set_xticks(range(len(kappas)), [f"{kappa:g}" for kappa in kappas], fontsize=8)
            axes.set_yticks(range(len(betas)), [f"{beta:g}" for beta in betas], fontsize=8)
            axes.set_title(f"{title}, cost {cost:g}", fontsize=9.5)
    figure.supxlabel("kappa: probability that one agent puts out a fire", fontsize=9)
    figure.supylabel("beta: probability that fire spreads", fontsize=9)
    figure.colorbar(image, ax=panels, label="gap closed", shrink=0.8)
    figure.savefig(PICTURE, dpi=110)
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
