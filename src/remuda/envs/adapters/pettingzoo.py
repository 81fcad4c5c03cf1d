"""Environments of PettingZoo, and of libraries with its interface."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.adapters.step_results import making, with_pictures
from remuda.envs.adapters.wrappers import NOTHING, Wrapping
from remuda.errors import ConfigError
from remuda.system.loading import import_module


def make_pettingzoo(
    name: str,
    /,
    num_envs: int = 1,
    *,
    api: str = "auto",
    wrapping: Wrapping = NOTHING,
    **options: Any,
) -> ParallelCopies | AECCopies:
    """Make copies of an environment of PettingZoo, or of a library with its interface.

    `name` is a name of PettingZoo's, such as `classic/tictactoe-v3` or `classic.tictactoe_v3`, or a
    module with `parallel_env` or `env`, such as `mpe2.simple_spread_v3`. `api="auto"` prefers the
    parallel API.
    """
    wanted = {"auto": (PARALLEL, AEC), "parallel": (PARALLEL,), "aec": (AEC,)}
    if api not in wanted:
        raise ConfigError(f"env.options.api is {api!r}; allowed are {', '.join(wanted)}")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # draw without a window
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        offered = _offered(name)
        kind = next((each for each in wanted[api] if each in offered), None)
        if kind is None:
            raise ConfigError(f"pettingzoo:{name} offers no {' and no '.join(wanted[api])}")
        make, adapter = offered[kind], ParallelCopies if kind == PARALLEL else AECCopies
        with making(f"pettingzoo:{name}", *_refusals()):
            if num_envs == 1:  # only a single copy is rendered; a render mode may slow down steps
                options = dict(with_pictures(make, options))
            return adapter(wrapping.around(partial(make, **options)), num_envs, wrapping)


PARALLEL, AEC = "parallel_env", "env"
"""The names of a module's functions that make an environment of each kind."""


def _refusals() -> tuple[type[Exception], ...]:
    """Return the errors that mean that an environment cannot be made."""
    errors = vars(import_module("pettingzoo")).get("env_registry")
    own = getattr(getattr(errors, "exceptions", None), "PettingZooRegistryError", ValueError)
    return (TypeError, ValueError, AssertionError, ImportError, own)


def _offered(name: str) -> dict[str, Callable[..., Any]]:
    try:
        import pettingzoo
    except ImportError as error:
        raise ConfigError(
            f"pettingzoo:{name} needs PettingZoo ({error}): pip install -e '.[pettingzoo]'"
        ) from None
    path = name.removeprefix("pettingzoo.").replace(".", "/")
    known = re.sub(r"_v(\d+)$", r"-v\1", path)  # modules end in _v3, registered names in -v3
    kinds = {PARALLEL: "parallel", AEC: "aec"}
    registered: dict[str, Callable[..., Any]] = {
        kind: partial(pettingzoo.make, api, known)
        for kind, api in kinds.items()
        if known in getattr(pettingzoo, f"{api}_registry", {})
    }
    if registered:
        return registered
    try:
        module = import_module(name)
    except (ImportError, TypeError, ValueError) as error:
        raise ConfigError(
            f"pettingzoo:{name} cannot be loaded: {error}; use a name of PettingZoo's, such as "
            "pettingzoo:classic/tictactoe-v3, or a module with an environment, such as "
            "pettingzoo:mpe2.simple_spread_v3"
        ) from None
    return {kind: getattr(module, kind) for kind in kinds if hasattr(module, kind)}
