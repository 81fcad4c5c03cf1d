"""Users' games: turn a class or function that makes environments into a `VectorEnv`.

With a `num_envs` parameter, one call returns all copies as a `VectorEnv`. Otherwise each call
returns one Gymnasium or PettingZoo environment, and an adapter combines the copies. One environment
with JaxMARL's or gymnax's interface suffices for all copies.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from remuda.envs.adapters import detect
from remuda.envs.adapters.detect import COPIES, article, kind_of
from remuda.envs.adapters.step_results import parameters_of, takes_anything, with_pictures
from remuda.envs.adapters.wrappers import NOTHING, Wrapping
from remuda.envs.closing import close
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError, RemudaError, UnknownGameError
from remuda.system.loading import find_named
from remuda.system.user_errors import naming_user_code

Factory = Callable[..., Any]  # makes environments: a class or a function

ALLOWED = (
    "a class, or a function that returns one: remuda's VectorEnv (it takes num_envs), a "
    "gymnasium.Env, a PettingZoo ParallelEnv or AECEnv, a JaxMARL MultiAgentEnv, or a gymnax "
    "Environment"
)


def import_factory(path: str) -> Factory:
    """Import `module:name`; the name may have dots."""
    module, _, name = path.partition(":")
    try:
        factory: Factory = find_named(path)
    except ModuleNotFoundError as error:
        raise UnknownGameError(
            f"cannot load the game {path}: {error}; modules are looked for in the current "
            "directory and among those installed"
        ) from None
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        near = difflib.get_close_matches(name, dir(sys.modules.get(module)), n=1)
        hint = f"; did you mean {module}:{near[0]}?" if near else ""
        raise UnknownGameError(f"cannot load the game {path}: {error}{hint}") from None
    check_factory(factory, path)
    return factory


def check_factory(game: object, name: str) -> None:
    """Refuse an environment instance, and anything that cannot be called."""
    if not isinstance(game, type) and kind_of(game):
        kind = type(game).__name__
        raise ConfigError(
            f"{name} is an environment that has been made, but every process of a run makes its "
            f"own: pass the class {kind}, or a function that makes one: lambda: {kind}(...)"
        )
    if not callable(game):
        raise ConfigError(f"{name} is a {type(game).__name__}; allowed is {ALLOWED}")


def make_copies(
    factory: Factory,
    num_envs: int,
    options: Mapping[str, Any],
    name: str,
    wrapping: Wrapping = NOTHING,
) -> VectorEnv:
    """Make copies of a user's game."""
    if takes_num_envs(factory, options):
        return _make_together(factory, num_envs, options, name, wrapping)
    own_options = with_pictures(factory, options) if num_envs == 1 else options
    spare = [_call(factory, own_options, name)]
    if kind_of(spare[0]) in (detect.JAXMARL, detect.GYMNAX):
        if wrapping != NOTHING:
            raise not_wrapped(name)
        from remuda.envs.adapters.jax_worlds import copies_of_jax

        return copies_of_jax(spare[0], num_envs, name)
    adapter = _adapter_of(spare[0], name, partial(_call, factory, options, name))
    made: list[Any] = []

    def make() -> Any:
        env = spare.pop() if spare else _call(factory, own_options, name)
        if any(env is other for other in made):
            raise ConfigError(
                f"{name} returns the same {type(env).__name__} at each call: let it make a new "
                "one, because copies share nothing, or set env.num_envs to 1"
            )
        made.append(env)
        return env

    with naming_user_code():
        return adapter(wrapping.around(make), num_envs, wrapping)


def _make_together(
    factory: Factory, num_envs: int, options: Mapping[str, Any], name: str, wrapping: Wrapping
) -> VectorEnv:
    parameters = parameters_of(factory)
    if "num_envs" not in parameters and not takes_anything(parameters):
        raise ConfigError(f"{name} is a VectorEnv, so it must have a parameter num_envs")
    env: VectorEnv = _call(factory, {"num_envs": num_envs, **options}, name)
    if kind_of(env) == COPIES:
        if wrapping != NOTHING:
            close(env.close, env)
            raise not_wrapped(name)
        with suppress(AttributeError):  # with __slots__ it cannot be replaced
            env.close = partial(close, env.close, env)  # type: ignore[method-assign]
        return env
    why = f"which is not a VectorEnv; allowed is {ALLOWED}"
    if kind_of(env) in detect.SINGLE:
        why = "which is a single copy: leave num_envs out, and return one copy per call"
    raise ConfigError(f"{name} takes num_envs, and makes {article(env)}, {why}")


def takes_num_envs(factory: Factory, options: Mapping[str, Any]) -> bool:
    """Return whether a factory makes all copies at once; with `**keywords`, call it to find out."""
    if isinstance(factory, type) and kind_of(factory):
        return kind_of(factory) == COPIES
    parameters = parameters_of(factory)
    if "num_envs" in parameters:
        return True
    if not takes_anything(parameters):
        return False
    try:
        made = factory(num_envs=1, **options)
    except Exception:  # it has no such keyword; any other error is raised again later
        return False
    if hasattr(made, "close"):
        close(made.close, made)
    return kind_of(made) == COPIES


def _call(factory: Factory, options: Mapping[str, Any], name: str) -> Any:
    """Call a factory; raise a ConfigError if the call fails outside the user's own code."""
    try:
        with naming_user_code():
            return factory(**options)
    except RemudaError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"env.options: {name} refuses them: {error}") from error


def not_wrapped(name: str) -> ConfigError:
    """Return the error for wrappers of a game that makes all copies at once."""
    return ConfigError(
        f"env.wrappers and env.episode_metrics are for single environments, such as Gymnasium's "
        f"and PettingZoo's; {name} holds all of its copies itself"
    )


def _adapter_of(
    env: Any, name: str, another: Callable[[], Any]
) -> Callable[[Callable[[], Any], int, Wrapping], VectorEnv]:
    """Return the adapter of an environment's kind; `another` makes one more environment."""
    kind = kind_of(env)
    if kind == detect.GYMNASIUM:
        from remuda.envs.adapters.gymnasium import GymnasiumEnv, copies_of, has_agents

        return copies_of if has_agents(env, another) else GymnasiumEnv
    if kind in (detect.PARALLEL, detect.AEC):
        from remuda.envs.adapters.aec import AECCopies
        from remuda.envs.adapters.parallel import ParallelCopies

        return ParallelCopies if kind == detect.PARALLEL else AECCopies
    reasons = {
        COPIES: "which holds all copies: give it a parameter num_envs",
        detect.VECTOR: "which holds copies: pass a class or function that makes a single one",
        detect.JAX_WRAPPER: (
            "which has step_env but is no JaxMARL MultiAgentEnv: derive it from that class, or "
            "pass the environment without wrappers such as LogWrapper, because a run records "
            "returns itself"
        ),
        detect.OLD_GYM: "of gym, which Gymnasium has replaced: derive it from gymnasium.Env",
    }
    why = reasons.get(kind, f"which is not an environment; allowed is {ALLOWED}")
    raise ConfigError(f"{name} makes {article(env)}, {why}")
