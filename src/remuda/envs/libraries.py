"""Libraries whose games have names, `library:name`; they are imported when they are needed."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Library:
    """A library of games."""

    name: str
    """The part before the colon."""
    adapter: str
    """`module:callable`, which makes copies of a game."""
    package: str
    """The package to import."""
    extra: str
    """The extra of Remuda that installs it; empty: it always is."""
    example: str
    listing: Callable[[], Iterable[str]]
    """Returns all its games, if it is installed."""
    wraps: bool = False
    """True if its environments are Gymnasium's or PettingZoo's, so that wrappers fit."""

    @property
    def is_installed(self) -> bool:
        """Return whether it can be imported here."""
        return find_spec(self.package) is not None

    def names(self) -> list[str]:
        """Return all its games in order, as `remuda train` takes them; none if it is missing."""
        if not self.is_installed:
            return []
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                return [f"{self.name}:{name}" for name in sorted(self.listing())]
            except Exception as error:  # one library that is broken does not hide the others
                log.warning("the games of %s cannot be listed: %s", self.name, error)
                return []


def _registered(package: str, prefix: str) -> Callable[[], list[str]]:
    """Return a function that lists a package's environments in Gymnasium's registry."""

    def names() -> list[str]:
        import gymnasium

        import_module(package)
        return [name for name in gymnasium.registry if name.startswith(prefix)]

    return names


def _gymnasium() -> list[str]:
    import gymnasium

    own = [
        spec
        for spec in gymnasium.registry.values()
        if str(spec.entry_point).startswith("gymnasium.") and not spec.vector_entry_point
    ]
    both = [spec for spec in gymnasium.registry.values() if spec.vector_entry_point]
    return [spec.id for spec in (*own, *both) if _entry_exists(spec)]


def _entry_exists(spec: Any) -> bool:
    """Return whether an environment's simulator is installed: MuJoCo, Box2D or jax."""
    needs = {"mujoco": "mujoco", "box2d": "Box2D", "phys2d": "jax", "tabular": "jax"}
    point = str(spec.entry_point)
    return all(find_spec(needed) for part, needed in needs.items() if f".{part}" in point)


def _pettingzoo() -> list[str]:
    import pettingzoo

    found = set(getattr(pettingzoo, "parallel_registry", {}))
    found |= set(getattr(pettingzoo, "aec_registry", {}))
    found = {name for name in found if _can_be_imported(name)}
    if find_spec("mpe2"):
        import mpe2

        names = (module.name for module in iter_modules(mpe2.__path__))
        found |= {f"mpe2.{name}" for name in names if name.rpartition("_v")[2].isdigit()}
    return sorted(found)


def _can_be_imported(name: str) -> bool:
    """Return whether PettingZoo can import a game: `classic/tictactoe-v3`."""
    try:
        import_module("pettingzoo." + name.replace("/", ".").replace("-v", "_v"))
    except Exception:  # some raise other errors
        return False
    return True


def _has_size(spiel: Any, kind: Any) -> bool:
    from remuda.envs.adapters.open_spiel import MOST_ACTIONS

    game = spiel.load_game(kind.short_name)
    if game.num_distinct_actions() > MOST_ACTIONS:
        return False
    try:
        if kind.provides_information_state_tensor:
            return bool(game.information_state_tensor_shape())
        return bool(game.observation_tensor_shape())
    except spiel.SpielError:
        return False


def _open_spiel() -> list[str]:
    spiel: Any = import_module("pyspiel")
    kinds, chance = spiel.GameType.Dynamics, spiel.GameType.ChanceMode
    return [
        kind.short_name
        for kind in spiel.registered_games()
        if kind.default_loadable
        and kind.dynamics in (kinds.SEQUENTIAL, kinds.SIMULTANEOUS)
        and kind.chance_mode != chance.SAMPLED_STOCHASTIC
        and (kind.provides_information_state_tensor or kind.provides_observation_tensor)
        and _has_size(spiel, kind)
    ]


def _sorrel() -> list[str]:
    from remuda.envs.adapters.sorrel_examples import names

    return names()


ADAPTERS = "remuda.envs.adapters"
LIBRARIES = {
    library.name: library
    for library in (
        Library(
            "gymnasium",
            f"{ADAPTERS}.gymnasium:make_gymnasium",
            package="gymnasium",
            extra="",
            example="gymnasium:CartPole-v1",
            listing=_gymnasium,
            wraps=True,
        ),
        Library(
            "pettingzoo",
            f"{ADAPTERS}.pettingzoo:make_pettingzoo",
            package="pettingzoo",
            extra="pettingzoo",
            example="pettingzoo:mpe2.simple_spread_v3",
            listing=_pettingzoo,
            wraps=True,
        ),
        Library(
            "open_spiel",
            f"{ADAPTERS}.open_spiel:make_open_spiel",
            package="pyspiel",
            extra="openspiel",
            example="open_spiel:leduc_poker",
            listing=_open_spiel,
        ),
        Library(
            "sorrel",
            f"{ADAPTERS}.sorrel_examples:make_sorrel",
            package="sorrel",
            extra="sorrel",
            example="sorrel:treasurehunt",
            listing=_sorrel,
        ),
        Library(
            "lbf",
            f"{ADAPTERS}.tuples:make_lbf",
            package="lbforaging",
            extra="worlds",
            example="lbf:Foraging-8x8-2p-2f-coop-v3",
            listing=_registered("lbforaging", "Foraging"),
            wraps=True,
        ),
        Library(
            "rware",
            f"{ADAPTERS}.tuples:make_rware",
            package="rware",
            extra="worlds",
            example="rware:rware-tiny-4ag-v2",
            listing=_registered("rware", "rware"),
            wraps=True,
        ),
    )
}
