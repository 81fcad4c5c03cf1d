"""Functions that import JAX with bounded threads, and make worlds of JaxMARL."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from remuda.envs.adapters.jax_options import (
    defaults_of,
    shown_options,
    taken_options,
    unknown_option,
)
from remuda.envs.games import data
from remuda.errors import ConfigError
from remuda.system.kernels import machine

WORLDS: dict[str, list[str]] = data.load("jaxmarl")
"""The names of JaxMARL's worlds, by the Python package that they need beside JaxMARL."""
EXTRA = "pip install -e '.[jax]'"
EARLY = {
    "JAX_PLATFORMS": "cpu",
    "NPROC": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
"""Variables that JAX and XLA read once, when they start. XLA computes in one thread: an actor has
one core, and learners have the others."""


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
    with _early_variables():
        try:
            jax: Any = importlib.import_module("jax")
        except ImportError as error:
            raise ConfigError(f"JAX is missing ({error}): {EXTRA}") from None
        if jax.config.jax_compilation_cache_dir is None:
            jax.config.update("jax_compilation_cache_dir", str(cache_directory()))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        with contextlib.suppress(Exception):  # it is too late once XLA has started
            jax.config.update("jax_cpu_enable_async_dispatch", False)
        jax.devices()  # start XLA while the variables are set
    return jax


@contextlib.contextmanager
def _early_variables() -> Iterator[None]:
    """Set the variables that JAX and XLA read when they start, and restore those of the user."""
    before = {name: os.environ.get(name) for name in EARLY}
    for name, value in EARLY.items():
        own = before[name]
        if own is None:
            os.environ[name] = value
        elif name == "XLA_FLAGS":
            os.environ[name] = f"{value} {own}"  # the last of two equal flags applies
    try:
        yield
    finally:
        for name, own in before.items():
            if own is None:
                del os.environ[name]
            else:
                os.environ[name] = own


COMPILER = {
    "xla_cpu_enable_concurrency_optimized_scheduler": False,
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
}
"""Options with which XLA keeps a small function on its caller's thread. Otherwise it passes parts
to another thread and back, such as sums (all but single products are excluded here), which takes
longer than the parts."""


@cache
def compiler_options() -> dict[str, Any]:
    """Return the options of `COMPILER` that this version of JAX has; none on other devices."""
    jax: Any = import_jax()
    found: dict[str, Any] = {}
    for name, value in COMPILER.items() if jax.default_backend() == "cpu" else ():
        with contextlib.suppress(Exception):
            jax.jit(lambda x: x + 1, compiler_options={name: value})(0)
            found[name] = value
    return found


def cache_directory() -> Path:
    """Return the directory of JAX's compiled functions: beside Numba's, one per processor type."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    own = Path(chosen) if chosen else Path(__file__).parent / "__pycache__"
    if not os.access(own if own.exists() else own.parent, os.W_OK):
        own = Path.home() / ".cache" / "remuda"
    return own / f"jax-{machine()}"


def make_world(name: str, options: Mapping[str, Any]) -> Any:
    """Make a world of JaxMARL; raise a ConfigError for one that cannot be made."""
    import_jax()
    with quiet():
        try:
            jaxmarl: Any = importlib.import_module("jaxmarl")
        except ImportError as error:
            raise ConfigError(f"jaxmarl:{name} needs JaxMARL ({error}): {EXTRA}") from None
        _check_name(name, jaxmarl.registered_envs)
        world = None
        with contextlib.suppress(TypeError):  # a world that cannot be made without options
            world = jaxmarl.make(name)
        own = dict(options)
        if world is not None:
            own = taken_options(name, options, defaults_of(name, world))
        try:
            return jaxmarl.make(name, **own)
        except Exception as error:  # any error of the world's own code
            line = (str(error).strip() or "no message").splitlines()[0]
            twice = re.search(r"multiple values for keyword argument '(\w+)'", line)
            if twice:  # an option of its base class
                raise unknown_option(name, twice[1], "the world sets it itself;") from None
            raise ConfigError(
                f"env.options: jaxmarl:{name} refuses them: {type(error).__name__}: {line}"
            ) from None


def options_of(name: str) -> dict[str, Any]:
    """Return the options of a world that can be passed as plain values, with their defaults."""
    jaxmarl: Any = importlib.import_module("jaxmarl")
    with quiet():
        try:
            env = jaxmarl.make(name)
        except Exception:  # a world without defaults
            return {}
        return shown_options(name, env)


def _check_name(name: str, registered: Sequence[str]) -> None:
    """Refuse a world that JaxMARL does not have, or whose package is missing."""
    if name not in registered:
        near = difflib.get_close_matches(name, registered, 3, 0.5)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise ConfigError(
            f"JaxMARL has no world {name!r}; {hint}`remuda games --all` lists its worlds"
        )
    package = next((package for package, worlds in WORLDS.items() if name in worlds), "jaxmarl")
    if find_spec(package) is None:
        raise ConfigError(
            f"jaxmarl:{name} needs the package {package}, which is not installed; the "
            "documentation of JaxMARL says how to install it"
        )
