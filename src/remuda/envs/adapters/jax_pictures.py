"""Pictures of one copy of a JAX world, by the world's own drawing functions where it has them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from remuda.envs.adapters.jax_library import quiet
from remuda.types import Array

SIZE, DOTS = 4.0, 80  # inches of a drawn picture's sides, and pixels of an inch
VIEW = 1.5  # the coordinates that a picture of a particle world shows, in each direction


def picture(env: Any, state: Any) -> Array:
    """Return [height, width, 3] uint8; raise NotImplementedError if the world draws nothing."""
    own = next((_PAINTERS[kind] for kind in _names(env) if kind in _PAINTERS), None)
    with quiet():
        try:
            pixels = np.asarray(own(env, state) if own is not None else env.render(state))
        except Exception as error:  # JaxMARL's drawing of some worlds fails with current libraries
            raise NotImplementedError(
                f"{type(env).__name__} draws no pictures ({type(error).__name__}: {error})"
            ) from None
    if pixels.ndim != 3 or pixels.shape[2] not in (3, 4):
        raise NotImplementedError(f"{type(env).__name__} draws no pictures")
    return np.ascontiguousarray(pixels[:, :, :3]).astype(np.uint8)


def _names(env: Any) -> list[str]:
    """Return the names of JaxMARL's classes from which an environment is derived."""
    kinds = type(env).__mro__
    return [kind.__name__ for kind in kinds if kind.__module__.startswith("jaxmarl.")]


def _drawn(draw: Callable[[Any], object]) -> Array:
    """Return what `draw` draws into the axes of a figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure((SIZE, SIZE), dpi=DOTS)
    canvas: Any = FigureCanvasAgg(figure)
    draw(figure.add_axes((0.0, 0.0, 1.0, 1.0)))
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def _particles(env: Any, state: Any) -> Array:
    from matplotlib.patches import Circle

    def draw(axes: Any) -> None:
        axes.set(xlim=(-VIEW, VIEW), ylim=(-VIEW, VIEW))
        axes.axis("off")
        colours = np.asarray(env.colour) / 255.0
        for place, radius, colour in zip(state.p_pos, env.rad, colours, strict=True):
            x, y = np.asarray(place).tolist()
            axes.add_patch(Circle((x, y), float(radius), color=colour))

    return _drawn(draw)


def _battle(env: Any, state: Any) -> Array:
    units = getattr(state, "state", state)
    actions = {
        agent: units.prev_attack_actions[i]
        for i, agent in enumerate(getattr(env, "all_agents", env.agents))
    }
    return _drawn(lambda axes: env.init_render(axes, (None, units, actions), 0, 0))


def _kitchen(env: Any, state: Any) -> Any:
    module = importlib.import_module("jaxmarl.viz.overcooked_visualizer")
    frame = env.agent_view_size - 2  # cells of padding around the kitchen, less its wall
    return module.OvercookedVisualizer._render_grid(
        np.asarray(state.maze_map[frame:-frame, frame:-frame, :]),
        agent_dir_idx=state.agent_dir_idx,
        agent_inv=state.agent_inv,
    )


def _second_kitchen(env: Any, state: Any) -> Any:  # noqa: ARG001
    return _compiled_painter()(state)


@cache
def _compiled_painter() -> Any:
    jax = importlib.import_module("jax")
    module = importlib.import_module("jaxmarl.viz.overcooked_v2_visualizer")
    return jax.jit(module.OvercookedV2Visualizer()._render_state)


_PAINTERS: dict[str, Callable[[Any, Any], Any]] = {
    "SimpleMPE": _particles,
    "SMAX": _battle,
    "EnemySMAX": _battle,
    "Overcooked": _kitchen,
    "OvercookedV2": _second_kitchen,
}
