"""Functions that import JAX with bounded threads, and make worlds of JaxMARL."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from remuda.envs.games import data
from remuda.errors import ConfigError
from remuda.system.kernels import machine

WORLDS: dict[str, list[str]] = data.load("jaxmarl")
"""The names of JaxMARL's worlds, by the Python package that they need beside JaxMARL."""
EXTRA = "pip install -e '.[jax]'"
ONE_THREAD = {"NPROC": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
"""Variables that XLA reads once, when it starts. An actor has one core; learners have the rest."""


def names() -> list[str]:
    """Return the names of all worlds of JaxMARL whose packages are installed."""
    return [name for package, worlds in WORLDS.items() if find_spec(package) for name in worlds]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide what JAX's libraries print and warn of: deprecations, and dtypes that JAX shortens.

    JaxMARL sets `sys.stdout` to `sys.__stdout__` while it is imported, so both are replaced.
    """
    before = sys.stdout, sys.stderr, sys.__stdout__
    sink: Any = io.StringIO()
    sys.stdout = sys.__stdout__ = sink  # type: ignore[misc]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.stdout, sys.stderr, sys.__stdout__ = before  # type: ignore[misc]


def import_jax() -> Any:
    """Import JAX for a process that plays: on CPUs, with one thread, with a cache on disk.

    Variables of the user come first: `JAX_PLATFORMS`, `XLA_FLAGS`, `JAX_COMPILATION_CACHE_DIR`.
    """
    before = dict(os.environ)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    for name, value in ONE_THREAD.items():
        os.environ[name] = (
            f"{value} {before[name]}" if name == "XLA_FLAGS" and name in before else value
        )
    try:
        jax: Any = importlib.import_module("jax")
    except ImportError as error:
        raise ConfigError(f"JAX is missing ({error}): {EXTRA}") from None
    try:
        if jax.config.jax_compilation_cache_dir is None:
            jax.config.update("jax_compilation_cache_dir", str(cache_directory()))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        with contextlib.suppress(Exception):  # it is too late once XLA has started
            jax.config.update("jax_cpu_enable_async_dispatch", False)
        jax.devices()  # start XLA while the variables are set
    finally:
        for name in ONE_THREAD:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)
    return jax


def cache_directory() -> Path:
    """Return the directory of JAX's compiled functions: beside Numba's, one per processor type."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    own = Path(chosen) if chosen else Path(__file__).parent / "__pycache__"
    if not os.access(own if own.exists() else own.parent, os.W_OK):
        own = Path.home() / ".cache" / "remuda"
    return own / f"jax-{machine()}"


def make_world(name: str, options: Mapping[str, Any]) -> Any:
    """Make a world of JaxMARL; raise a ConfigError for one that cannot be made."""
    known = [world for worlds in WORLDS.values() for world in worlds]
    if name not in known:
        near = difflib.get_close_matches(name, known, 3, 0.5)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise ConfigError(
            f"JaxMARL has no world {name!r}; {hint}`remuda games --all` lists its worlds"
        )
    package = next(package for package, worlds in WORLDS.items() if name in worlds)
    import_jax()
    with quiet():
        try:
            jaxmarl: Any = importlib.import_module("jaxmarl")
        except ImportError as error:
            raise ConfigError(f"jaxmarl:{name} needs JaxMARL ({error}): {EXTRA}") from None
        if find_spec(package) is None:
            raise ConfigError(
                f"jaxmarl:{name} needs the package {package}, which is not installed; "
                "JaxMARL's own documentation says how to install it"
            )
        own = {key: _value(name, key, value) for key, value in options.items()}
        try:
            return jaxmarl.make(name, **own)
        except (TypeError, ValueError, AssertionError, ImportError, KeyError) as error:
            line = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ConfigError(f"env.options: jaxmarl:{name} refuses them: {line}") from None


def _value(name: str, key: str, value: Any) -> Any:
    """Return an option's value as the world takes it: some take objects that have names."""
    tables = {
        ("overcooked", "layout"): ("jaxmarl.environments.overcooked", "overcooked_layouts"),
        ("overcooked_v2", "layout"): (
            "jaxmarl.environments.overcooked_v2",
            "overcooked_v2_layouts",
        ),
        ("SMAX", "scenario"): SCENARIOS,
        ("HeuristicEnemySMAX", "scenario"): SCENARIOS,
    }
    found = tables.get((name, key))
    if found is None or not isinstance(value, str):
        return value
    module, attribute = found
    table = getattr(importlib.import_module(module), attribute)
    if value not in table:
        raise ConfigError(
            f"env.options.{key}: jaxmarl:{name} has no {key} {value!r}; it has {', '.join(table)}"
        )
    return table[value]


SCENARIOS = ("jaxmarl.environments.smax.smax_env", "MAP_NAME_TO_SCENARIO")
