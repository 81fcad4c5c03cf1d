"""Make and reset other libraries' environments, and check what `reset` and `step` return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import Any

from remuda.envs.adapters.detect import article
from remuda.envs.adapters.lasting_state import refuse_statistics
from remuda.envs.checks import UntakeableError, short
from remuda.envs.closing import close
from remuda.errors import ConfigError, ContractError
from remuda.system.user_errors import where_raised

# The results of Gymnasium's methods; in PettingZoo each is a mapping from agents.
STEP = "observation, reward, terminated, truncated, info"
RESET = "observation, info"
OLD_STEP = "4 values"  # what a step of old Gym returns


@contextmanager
def making(name: str, *refusals: type[Exception]) -> Iterator[None]:
    """Turn an error in making an environment into a `ConfigError`, unless user code raised it."""
    try:
        yield
    except refusals as error:
        if where_raised(error, libraries=False):
            raise
        line = " ".join(str(error).split())
        raise ConfigError(f"{name} cannot be made: {line}") from None


def reset_env(copy: Any, seed: int | None, wanted: str = RESET, agents: int = 0) -> Any:
    """Reset an environment and return its checked result; unchecked if `wanted` is empty."""
    try:
        result = copy.reset(seed=seed)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # raised within the environment
        raise UntakeableError(
            f"reset of {article(copy)} cannot be called with a seed ({error}); it is "
            "reset(self, seed=None, options=None)"
        ) from None
    return parts(copy, "reset", result, wanted, agents) if wanted else result


def first_reset(copy: Any, wanted: str = RESET) -> Any:
    """Check and reset a new environment."""
    for name in ("observation_space", "action_space"):
        if not hasattr(copy, name):
            raise ContractError(
                f"{article(copy)} has no {name}: an environment declares observations and actions "
                "in observation_space and action_space, which `__init__` sets"
            )
    try:
        refuse_statistics(copy)
        return reset_env(copy, 0, wanted)
    except UntakeableError as error:
        raise ContractError(f"the game breaks its contract: {error}") from None


def parts(copy: Any, method: str, result: Any, wanted: str, agents: int = 0) -> Any:
    """Return the `wanted` values; the last, `info`, is a mapping, empty or has `agents` entries."""
    count = wanted.count(",") + 1
    if not isinstance(result, tuple | list) or len(result) != count:
        found = f"{len(result)} values" if isinstance(result, tuple | list) else short(result)
        hint = "; `done` of old Gym is `terminated` or `truncated` now"
        raise UntakeableError(
            f"{method} of {article(copy)} returned {found}, not {count} values: {wanted}"
            f"{hint if method == 'step' and found == OLD_STEP else ''}"
        )
    info = result[-1]
    if type(info) is dict or info is None or isinstance(info, Mapping):
        return result
    if agents and is_sequence(info) and len(info) == agents:
        return result
    if _is_empty(info):
        return (*result[:-1], {})
    raise UntakeableError(
        f"{method} of {article(copy)} returned {short(info)} as `info`, the last of "
        f"{count} values ({wanted}), not a mapping such as {{}}"
    )


def mapping_of(info: Any) -> Mapping[str, Any]:
    """Return an `info` as a mapping, or raise an `UntakeableError`."""
    if isinstance(info, Mapping):
        return info
    if info is None or _is_empty(info):
        return {}
    raise UntakeableError(f"its `info` is {short(info)}, not a mapping such as {{}}")


def _is_empty(info: Any) -> bool:
    return isinstance(info, Sized) and getattr(info, "shape", None) != () and len(info) == 0


def is_sequence(values: Any) -> bool:
    """Return whether a value is a sequence, or an array or tensor with dimensions."""
    shape = getattr(values, "shape", None)
    return isinstance(values, Sequence) or (hasattr(values, "__len__") and shape not in (None, ()))


def refuse_lists(copy: Any, method: str, values: Sequence[Any], wanted: str) -> None:
    """Refuse a multi-agent result with a part that is not a mapping; `info` was checked before."""
    for value, name in zip(values[:-1], wanted.split(", "), strict=False):
        if type(value) is not dict and not isinstance(value, Mapping):
            raise UntakeableError(
                f"{method} of {article(copy)} returned {short(value)} as `{name}`, not a "
                "mapping from its agents"
            )


def parameters_of(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a factory; `**options` if unknown, as for compiled code."""
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {"options": inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)}


def takes_anything(parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Return whether there is a `**options` among the parameters."""
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def with_pictures(factory: Callable[..., Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add `render_mode="rgb_array"` to the options if the environments support it."""
    parameters, mode = parameters_of(factory), "rgb_array"
    metadata = getattr(factory, "metadata", None) or {"render_modes": [mode]}
    if "render_mode" not in parameters and not takes_anything(parameters):
        return options
    if "render_mode" in options or mode not in (metadata.get("render_modes") or ()):
        return options
    try:
        env = factory(**options, render_mode=mode)
        modes = env.metadata.get("render_modes") or ()
        close(env.close, env)
    except Exception:  # an error that is not due to the mode is raised again later
        return options
    return {**options, "render_mode": mode} if mode in modes else options
