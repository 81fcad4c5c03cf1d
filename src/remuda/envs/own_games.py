"""Games of the user's own: whatever makes environments becomes a `VectorEnv`.

A class or a function that takes `num_envs` makes all copies at once, as a `VectorEnv`. One that
does not makes a single environment of Gymnasium's or PettingZoo's at each call; the adapter for its
kind holds the copies.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

from remuda.envs.adapters.wrapping import NOTHING, Wrapping
from remuda.envs.closing import close
from remuda.envs.kinds import (
    AEC,
    COPIES,
    GYMNASIUM,
    OLD_GYM,
    PARALLEL,
    SINGLE,
    VECTOR,
    article,
    kind_of,
)
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError, RemudaError, UnknownGameError, UserCodeError
from remuda.loading import import_module
from remuda.user_code import where_raised

Factory = Callable[..., Any]
"""Makes environments: a class or a function."""

ALLOWED = (
    "a class, or a function that returns one: remuda's VectorEnv (it takes num_envs), a "
    "gymnasium.Env, a PettingZoo ParallelEnv or AECEnv"
)


def import_factory(path: str) -> Factory:
    """Import what `module:name` stands for; the name may have dots.

    Raises:
        UnknownGameError: there is no such module, or nothing of that name in it.
        UserCodeError: the module raised as it was imported.
        ConfigError: it is no class and no function.
    """
    module, _, name = path.partition(":")
    try:
        imported = import_module(module)
        found = attrgetter(name)(imported)
    except ModuleNotFoundError as error:
        raise UnknownGameError(
            f"cannot load the game {path}: {error}; modules are looked for in the current "
            "directory and among those installed"
        ) from None
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        near = difflib.get_close_matches(name, dir(sys.modules.get(module)), n=1)
        hint = f"; did you mean {module}:{near[0]}?" if near else ""
        raise UnknownGameError(f"cannot load the game {path}: {error}{hint}") from None
    check_factory(found, path)
    factory: Factory = found
    return factory


def check_factory(game: object, name: str) -> None:
    """Refuse an environment that has been made, and what makes none.

    Raises:
        ConfigError: it is one of these.
    """
    if not isinstance(game, type) and kind_of(game):
        kind = type(game).__name__
        raise ConfigError(
            f"{name} is an environment that has been made, and every process of a run makes its "
            f"own: give the class {kind}, or a function that makes one: lambda: {kind}(...)"
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
    """Copies of a game of the user's own.

    Args:
        factory: makes all copies, or one at each call.
        num_envs: copies.
        options: what it takes besides.
        name: of the game, for messages.
        wrapping: what stands round each copy.

    Raises:
        UserCodeError: the user's code raised.
        ConfigError: it does not take these options, or makes no environment; or there is something
            to be put round copies that it makes all at once.
        ContractError: what an agent sees cannot be written as numbers.
    """
    if takes_num_envs(factory, options):
        parameters = parameters_of(factory)
        if "num_envs" not in parameters and not takes_anything(parameters):
            raise ConfigError(f"{name} holds all copies of a game, and has to take num_envs")
        made = _call(factory, {"num_envs": num_envs, **options}, name)
        if kind_of(made) == COPIES:
            if wrapping != NOTHING:
                close(made.close, made)
                raise not_wrapped(name)
            copies: VectorEnv = made
            with suppress(AttributeError):  # it has slots: what it raises is then raised
                copies.close = partial(close, copies.close, copies)  # type: ignore[method-assign]
            return copies
        why = f"no VectorEnv; allowed is {ALLOWED}"
        if kind_of(made) in SINGLE:
            why = "which is one: leave num_envs out, and each copy is made by a call of its own"
        raise ConfigError(f"{name} takes num_envs, and makes {article(made)}, {why}")
    one = OneByOne(factory, _drawing(factory, options) if num_envs == 1 else options, name)
    adapter = _adapter_of(one.peek(), name, partial(_call, factory, options, name))
    try:
        return adapter(wrapping.around(one), num_envs, wrapping)
    except RemudaError:
        raise
    except Exception as error:
        told = where_raised(error)
        if told is None:
            raise
        raise UserCodeError(told) from error


class OneByOne:
    """Makes a copy at each call, and refuses one that it has made before."""

    def __init__(self, factory: Factory, options: Mapping[str, Any], name: str) -> None:
        self._factory, self._options, self._name = factory, dict(options), name
        self._spare: list[Any] = []
        self._made: list[Any] = []

    def peek(self) -> Any:
        """The copy that is handed out next."""
        if not self._spare:
            self._spare.append(_call(self._factory, self._options, self._name))
        return self._spare[0]

    def __call__(self) -> Any:
        """A copy."""
        made = self.peek()
        self._spare.clear()
        if any(made is other for other in self._made):
            raise ConfigError(
                f"{self._name} returns the same {type(made).__name__} at each call: let it make a "
                "new one, since copies share nothing"
            )
        self._made.append(made)
        return made


def takes_num_envs(factory: Factory, options: Mapping[str, Any]) -> bool:
    """Whether it makes all copies at once.

    One that takes any keywords may hand them on: it is asked for a single copy in this way.
    """
    if isinstance(factory, type) and kind_of(factory):
        return kind_of(factory) == COPIES
    parameters = parameters_of(factory)
    if "num_envs" in parameters:
        return True
    if not takes_anything(parameters):
        return False
    try:
        made = factory(num_envs=1, **options)
    except Exception:  # it takes no such keyword; what else it may be comes again
        return False
    if hasattr(made, "close"):
        close(made.close, made)
    return kind_of(made) == COPIES


def parameters_of(factory: Factory) -> Mapping[str, inspect.Parameter]:
    """What it takes, by name; anything, where that cannot be told, as of compiled functions."""
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {"options": inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)}


def takes_anything(parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether there is a `**options` among these."""
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _call(factory: Factory, options: Mapping[str, Any], name: str) -> Any:
    """Call what makes environments.

    Raises:
        UserCodeError: it raised.
        ConfigError: it does not take these options.
    """
    try:
        return factory(**options)
    except RemudaError:
        raise
    except Exception as error:
        told = where_raised(error)
        if told is not None:
            raise UserCodeError(told) from error
        if not isinstance(error, TypeError | ValueError):
            raise
        # The call itself: no line of the user's was reached.
        raise ConfigError(f"env.options: {name} refuses them: {error}") from error


def not_wrapped(name: str) -> ConfigError:
    """The error where something is to be put round a game that holds all of its copies."""
    return ConfigError(
        f"env.wrappers and env.episode_metrics are for environments of Gymnasium, PettingZoo and "
        f"their like; {name} holds all of its copies itself"
    )


def _adapter_of(
    env: Any, name: str, another: Callable[[], Any]
) -> Callable[[Callable[[], Any], int, Wrapping], VectorEnv]:
    """What holds copies of an environment like this; `another` makes one more.

    Raises:
        ConfigError: it is none that there is an adapter for.
    """
    kind = kind_of(env)
    if kind == GYMNASIUM:
        from remuda.envs.adapters.gymnasium import GymnasiumEnv
        from remuda.envs.adapters.tuples import copies_of, has_agents

        return copies_of if has_agents(env, another) else GymnasiumEnv
    if kind in (PARALLEL, AEC):
        from remuda.envs.adapters.aec import AECCopies
        from remuda.envs.adapters.parallel import ParallelCopies

        return ParallelCopies if kind == PARALLEL else AECCopies
    reasons = {
        COPIES: "which holds all copies: it has to take num_envs",
        VECTOR: "which holds copies: give what makes a single one",
        OLD_GYM: "of gym, which Gymnasium has replaced: derive it from gymnasium.Env",
    }
    why = reasons.get(kind, f"no environment; allowed is {ALLOWED}")
    raise ConfigError(f"{name} makes {article(env)}, {why}")


def _drawing(factory: Factory, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with pictures asked for where the environment has them."""
    from remuda.envs.adapters.spaces import with_pictures

    parameters, options = parameters_of(factory), dict(options)
    modes = getattr(factory, "metadata", None) or {"render_modes": ["rgb_array"]}
    if "render_mode" not in parameters and not takes_anything(parameters):
        return options
    drawable = "rgb_array" in (modes.get("render_modes") or ())
    return with_pictures(factory, options) if drawable else options
