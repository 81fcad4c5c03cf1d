"""Episode metrics of JaxMARL's worlds, from a copy's last state and its agents' returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Metric = Callable[[Any, Any], Any]
"""(state, returns [num_agents]) -> a number, traced for one copy."""

SOUP = 20.0  # Overcooked's reward for a delivery


def metrics_of(env: Any) -> dict[str, Metric]:
    """Return the named metrics of a world; empty for most."""
    for kind in type(env).__mro__:
        if kind.__name__ in _METRICS and kind.__module__.startswith("jaxmarl."):
            return _METRICS[kind.__name__](env)
    return {}


def _battle(env: Any) -> dict[str, Metric]:
    """SMAX: 1 if all enemies and not all allies have died."""

    def win_rate(state: Any, returns: Any) -> Any:  # noqa: ARG001
        alive = getattr(state, "state", state).unit_alive
        allies, enemies = alive[: env.num_allies], alive[env.num_allies :]
        return allies.any() & ~enemies.any()

    return {"win_rate": win_rate}


def _kitchen(env: Any) -> dict[str, Metric]:  # noqa: ARG001
    """Overcooked: the delivered soups; in version 2, minus those that were not ordered."""
    return {"deliveries": lambda state, returns: returns[0] / SOUP}  # noqa: ARG005


def _coins(env: Any) -> dict[str, Metric]:  # noqa: ARG001
    """Coin game: the coins taken of the own colour (cooperation) and of the other (defection)."""
    return {
        "own_coins": lambda state, returns: state.red_coop.sum() + state.blue_coop.sum(),  # noqa: ARG005
        "other_coins": lambda state, returns: state.red_defect.sum() + state.blue_defect.sum(),  # noqa: ARG005
    }


_METRICS: dict[str, Callable[[Any], dict[str, Metric]]] = {
    "SMAX": _battle,
    "EnemySMAX": _battle,
    "Overcooked": _kitchen,
    "OvercookedV2": _kitchen,
    "CoinGame": _coins,
}
