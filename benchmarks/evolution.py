"""Measure evolution: on the toy problem of the paper, and in a game.

    python benchmarks/evolution.py toy                        # 200 seeds, four variants
    python benchmarks/evolution.py toy --picture toy.png      # and a picture of the first seed
    python benchmarks/evolution.py hunt --seeds 5             # eight hunters in Treasure Hunt
    python benchmarks/evolution.py brigade --seeds 3          # shares of rewards in Bucket Brigade
    python benchmarks/evolution.py cleanup --seeds 3          # the same in Cleanup

`toy` is figure 2 of Jaderberg et al. 2017, "Population based training of neural networks": the true
objective Q(theta) = 1.2 - theta_1^2 - theta_2^2 is only ever evaluated; workers climb the surrogate
1.2 - h_1 theta_1^2 - h_2 theta_2^2, whose hyperparameters h hide one of two dimensions from each.
Workers take turns at random, and each compares what it has just reached with what the other had
reached when it was evaluated last: nothing waits for a generation. Without exploration a worker
takes over weights alone, since with the other's h both would climb in one dimension. Given time,
either half of it comes to the top too; what differs is how fast: the mean of Q over all evaluations
of both workers. The number and the size of steps were chosen with other seeds than are played here.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from evolution_dilemma import dilemma
from evolution_hunt import hunt
from matplotlib.axes import Axes
from recording import Results, options_of

from remuda.population.evolution.explore import perturb
from remuda.population.evolution.fitness import Fitness
from remuda.population.evolution.numbers import Evolvable
from remuda.population.evolution.select import truncation
from remuda.ui.plots.drawing import (
    BLUE,
    LOOK,
    ORANGE,
    QUIET,
    Picture,
    new_figure,
    number_axes,
)

NUMBERS = (Evolvable("h_1", 0.0, 1.0), Evolvable("h_2", 0.0, 1.0))
NAMES = ("worker 1", "worker 2")
FIRST = 1000
"""The first seed."""
STEPS, EVERY, RATE = 600, 20, 0.01
"""Gradient steps of each worker, those between two evaluations, and their size."""
HIGH, ALONE = 1.199, 0.39
"""The bar for exploit and explore, and the end of a worker alone: 1.2 - 0.9^2."""
VARIANTS = {
    "exploit and explore": (True, True),
    "explore only": (False, True),
    "exploit only": (True, False),
    "each alone": (False, False),
}


@dataclass(frozen=True)
class Course:
    """The history of two workers in E evaluations, each in turn at random.

    Attributes:
        steps: [E] gradient steps of a worker, on the mean, before each evaluation.
        q: [E, 2] the true objective of both.
        theta: [E, 2, 2] weights of both, by dimension.
        copied: [E]: the worker that has just copied the other; -1: none.
    """

    steps: np.ndarray
    q: np.ndarray
    theta: np.ndarray
    copied: np.ndarray


def true_objective(theta: np.ndarray) -> np.ndarray:
    """Q of weights [..., 2]."""
    return 1.2 - (theta**2).sum(-1)


def climb(theta: np.ndarray, h: dict[str, float]) -> np.ndarray:
    """Weights [2] after the steps between two evaluations, up the gradient of the surrogate."""
    slopes = np.array([h[number.name] for number in NUMBERS])
    for _ in range(EVERY):
        theta = theta - RATE * 2.0 * slopes * theta
    return theta


def play(exploit: bool, explore: bool, seed: int) -> Course:
    """Train two workers; with `exploit` one takes over weights, and what explores, of the other."""
    rng = np.random.default_rng(seed)
    theta = np.full((2, 2), 0.9)
    h = [{"h_1": 1.0, "h_2": 0.0}, {"h_1": 0.0, "h_2": 1.0}]
    evaluated = true_objective(theta)
    q, path, copied = [evaluated.copy()], [theta.copy()], [-1]
    for one in np.tile([0, 1], STEPS // EVERY)[rng.permutation(2 * (STEPS // EVERY))].tolist():
        theta[one] = climb(theta[one], h[one])
        evaluated[one] = true_objective(theta[one])
        took = -1
        if exploit:
            # Q is known without noise, so that any difference is sure.
            means, zeros = evaluated[:, None], np.zeros((2, 1))
            fitness = Fitness(NAMES, means, zeros, np.full((2, 1), np.inf))
            for found in truncation(fitness, rng, fraction=0.5):
                if found.policy == NAMES[one]:
                    parent = NAMES.index(found.parent)
                    theta[one], evaluated[one], took = theta[parent], evaluated[parent], one
                    h[one] = dict(h[parent]) if explore else h[one]
        if explore:
            h[one] = perturb(h[one], NUMBERS, rng)
        q.append(evaluated.copy())
        path.append(theta.copy())
        copied.append(took)
    steps = 0.5 * EVERY * np.arange(len(q))
    return Course(steps, np.array(q), np.array(path), np.array(copied))


def toy(results: Results, seeds: int, picture: Path | None) -> None:
    """Play all variants, and hold them to what the paper's figure shows."""
    found = {
        name: [play(*flags, FIRST + seed) for seed in range(seeds)]
        for name, flags in VARIANTS.items()
    }
    ends = {name: np.array([c.q[-1].max() for c in courses]) for name, courses in found.items()}
    means = {
        name: np.array([course.q.mean() for course in courses]) for name, courses in found.items()
    }
    for name in VARIANTS:
        error = means[name].std(ddof=1) / np.sqrt(seeds) if seeds > 1 else 0.0
        results.row(
            {
                "variant": name,
                "lowest end": float(ends[name].min()),
                "mean end": float(ends[name].mean()),
                f"seeds of {seeds} at {HIGH}": int((ends[name] >= HIGH).sum()),
                "mean Q": float(means[name].mean()),
                "its standard error": float(error),
            }
        )
    best, first, second, alone = VARIANTS
    low, high = float(means[alone].mean()), float(means[best].mean())
    last = np.array([course.q[-1] for course in found[alone]])
    results.bar(f"{alone}: farthest end from {ALONE}", float(abs(last - ALONE).max()), most=1e-4)
    reached = int((ends[best] >= HIGH).sum())
    results.bar(f"{best}: seeds that end at {HIGH} or more", reached, least=seeds)
    for name in (first, second):
        results.bar(
            f"{name}: mean Q over all evaluations", float(means[name].mean()), least=low, most=high
        )
        ahead = means[best] - means[name]
        error = max(float(ahead.std(ddof=1) / np.sqrt(seeds)) if seeds > 1 else 0.0, 1e-12)
        results.bar(
            f"{name}: standard errors that {best} is ahead", float(ahead.mean() / error), least=3.0
        )
    if picture is not None:
        shown = {name: courses[0] for name, courses in found.items()}
        picture.write_bytes(drawn(shown).encoded("png"))
        print(f"drawn: {picture}")


def drawn(courses: dict[str, Course]) -> Picture:
    """Draw Q over steps, and weights in their plane, for each variant."""
    with mpl.rc_context(LOOK):
        figure = new_figure(0.6 + len(courses) * 2.4, 4.75)
        panels = figure.subplots(2, len(courses), sharey="row", squeeze=False)
        for (name, course), (top, bottom) in zip(courses.items(), panels.T, strict=True):
            top.set_title(name)
            _draw_course(top, course)
            _draw_path(bottom, course)
        panels[0, 0].set_ylabel("true objective Q")
        panels[1, 0].set_ylabel("θ₂")
        panels[0, 0].legend(loc="lower right")
    caption = (
        "The true objective of two workers over gradient steps, and their weights; dots where a "
        "worker copied the other. After Jaderberg et al. 2017, figure 2."
    )
    return Picture("evolution_toy", "Exploit and explore", caption, figure)


def _draw_course(axes: Axes, course: Course) -> None:
    axes.axhline(1.2, color=QUIET, linewidth=0.7, linestyle=":")
    for one, colour in enumerate((BLUE, ORANGE)):
        axes.plot(course.steps, course.q[:, one], color=colour, linewidth=1.4, label=NAMES[one])
    axes.set_ylim(-0.5, 1.3)
    axes.set_xlabel("gradient steps of a worker", labelpad=1.0)
    number_axes(axes)


def _draw_path(axes: Axes, course: Course) -> None:
    grid = np.linspace(-0.05, 1.0, 60)
    x, y = np.meshgrid(grid, grid)
    levels = true_objective(np.stack([x, y], -1))
    axes.contour(x, y, levels, levels=8, colors="#d3d7dc", linewidths=0.7)
    for one, colour in enumerate((BLUE, ORANGE)):
        path = course.theta[:, one]
        axes.plot(*path.T, color=colour, linewidth=1.0, alpha=0.8)
        axes.plot(*path[course.copied == one].T, "o", color=colour, markersize=2.5)
    axes.set_xlim(-0.05, 1.0)
    axes.set_ylim(-0.05, 1.0)
    axes.set_xlabel("θ₁", labelpad=1.0)
    number_axes(axes)


def main() -> None:
    """Run the chosen parts, and print them beside their bars."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "what", choices=["toy", "hunt", "brigade", "cleanup"], help="which benchmark"
    )
    parser.add_argument("--seeds", type=int, help="toy: 200; hunt: 5; else 3")
    parser.add_argument("--turns", type=int, help="of each run, instead of the usual number")
    parser.add_argument("--picture", type=Path, help="draw the first seed into this file")
    options = options_of(parser)
    results = Results(f"evolution.{options.what}")
    if options.what == "hunt":
        hunt(results, options.seeds or 5, options.turns or 500_000)
    elif options.what in ("brigade", "cleanup"):
        dilemma(results, options.what, options.seeds or 3, options.turns)
    else:
        toy(results, options.seeds or 200, options.picture)
    results.finish(options)


if __name__ == "__main__":
    main()
