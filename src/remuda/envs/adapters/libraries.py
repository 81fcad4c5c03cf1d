"""Game libraries, imported on first use; their games are named `library:name`."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

from remuda.envs.adapters import jax_library
from remuda.envs.games import data
from remuda.errors import ConfigError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Library:
    """A library of games."""

    name: str  # the part of a game's name before the colon
    adapter: str  # `module:callable`, which makes copies of a game
    package: str  # the Python package that is imported
    extra: str  # the extra of Remuda that installs it; empty: always installed
    example: str
    listing: Callable[[], Iterable[str]]  # returns all games of the installed library
    wraps: bool = False
    """True if its environments have Gymnasium's or PettingZoo's interface, so wrappers apply."""

    @property
    def is_installed(self) -> bool:
        return find_spec(self.package) is not None

    def names(self) -> list[str]:
        """Return the names in Remuda of all its games, sorted; empty if it is not installed."""
        if not self.is_installed:
            return []
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                return [f"{self.name}:{name}" for name in sorted(self.listing())]
            except Exception as error:  # a broken library must not hide the others
                log.warning("the games of %s cannot be listed: %s", self.name, error)
                return []


def _registered(package: str, prefix: str) -> list[str]:
    """Return a package's environments in Gymnasium's registry."""
    import gymnasium

    import_module(package)
    return [name for name in gymnasium.registry if name.startswith(prefix)]


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
    except Exception:  # not only ImportError: a game's module may raise anything
        return False
    return True


def _open_spiel() -> list[str]:
    from remuda.envs.adapters.open_spiel import OpenSpielEnv

    def is_played(kind: Any) -> bool:
        try:
            OpenSpielEnv(kind.short_name)
        except ConfigError:
            return False
        return True

    kinds = import_module("pyspiel").registered_games()
    return [kind.short_name for kind in kinds if kind.default_loadable and is_played(kind)]


_LISTINGS: dict[str, Callable[[], Iterable[str]]] = {
    "gymnasium": _gymnasium,
    "pettingzoo": _pettingzoo,
    "open_spiel": _open_spiel,
    "sorrel": lambda: data.load("sorrel"),
    "jaxmarl": jax_library.names,
    "lbf": partial(_registered, "lbforaging", "Foraging"),
    "rware": partial(_registered, "rware", "rware"),
}
LIBRARIES = {
    name: Library(name, listing=_LISTINGS[name], **entry)
    for name, entry in data.load("libraries").items()
}
