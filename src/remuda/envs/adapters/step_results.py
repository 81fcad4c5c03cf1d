"""Make and reset other libraries' environments, and check what `reset` and `step` return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np

from remuda.envs.adapters.detect import article
from remuda.envs.adapters.lasting_state import refuse_statistics
from remuda.envs.checks import UntakeableError, numbers_in, short
from remuda.envs.closing import close
from remuda.errors import ConfigError, ContractError
from remuda.system.user_errors import where_raised

# The results of Gymnasium's methods; in PettingZoo each is a mapping from agents.
STEP = "observation, reward, terminated, truncated, info"
RESET = "observation, info"
OLD_STEP = 4  # number of values that a step of old Gym returns
SINGLE = bool, int, float, np.generic  # types of a number; a step's `info` of 0 counts as empty
MANY = 100  # limit of values read from an iterator, which may be endless


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
    refuse_statistics(copy)
    try:
        return reset_env(copy, 0, wanted)
    except UntakeableError as error:
        raise ContractError(f"the game breaks its contract: {error}") from None


class FirstCopy:
    """The copies of an environment, the first of which has been reset once for inspection.

    Some environments refuse a second reset before the episode ends; the first copy is then
    replaced.
    """

    def __init__(self, copies: list[Any], make: Callable[[], Any]) -> None:
        self._copies, self._make = copies, make
        self._was_reset = False

    def reset(self, e: int, seed: int, wanted: str = RESET) -> Any:
        """Reset a copy, as `reset_env` does."""
        if e or self._was_reset:
            return reset_env(self._copies[e], seed, wanted)
        self._was_reset = True
        try:
            return reset_env(self._copies[0], seed, wanted)
        except UntakeableError:
            raise
        except Exception:
            close(self._copies[0].close, self._copies[0])
            self._copies[0] = self._make()
            return reset_env(self._copies[0], seed, wanted)


def parts(copy: Any, method: str, result: Any, wanted: str, agents: int = 0) -> Any:
    """Return the values of a result, named in `wanted`; the last is `info`, a mapping or None.

    `info` may also be a sequence of length `agents`. Anything else raises an UntakeableError.
    """
    count = wanted.count(",") + 1
    values = result if isinstance(result, tuple | list) else _values_of(result)
    if values is not None and len(values) == count:
        info = values[-1]
        if type(info) is dict or info is None or isinstance(info, Mapping):
            return values
        if agents and is_sequence(info) and len(info) == agents:
            return values
        if _is_empty(info) and (method == "step" or not isinstance(info, SINGLE)):
            return (*values[:-1], {})
        raise UntakeableError(
            f"{method} of {article(copy)} returned {short(info)} as `info`, the last of "
            f"{count} values ({wanted}), not a mapping such as {{}}"
        )
    found = short(result) if values is None else f"{len(values)} values"
    old = values is not None and method == "step" and len(values) == OLD_STEP
    raise UntakeableError(
        f"{method} of {article(copy)} returned {found}, not {count} values: {wanted}"
        + ("; `done` of old Gym is `terminated` or `truncated` now" if old else "")
    )


def mapping_of(info: Any) -> Mapping[str, Any]:
    """Return an `info` as a mapping, or raise an `UntakeableError`."""
    if isinstance(info, Mapping):
        return info
    if info is None or _is_empty(info):
        return {}
    raise UntakeableError(f"its `info` is {short(info)}, not a mapping such as {{}}")


def _is_empty(info: Any) -> bool:
    """Return whether a value that is not a mapping is empty: `[]`, False or the like."""
    try:
        return len(info) == 0
    except TypeError:  # not a collection
        return bool(np.all(info == 0)) if isinstance(info, SINGLE) else False


def is_sequence(values: Any) -> bool:
    """Return whether a value is a sequence, or an array or tensor with dimensions."""
    shape = getattr(values, "shape", None)
    return isinstance(values, Sequence) or (hasattr(values, "__len__") and shape not in (None, ()))


def refuse_lists(copy: Any, method: str, values: Sequence[Any], wanted: str) -> None:
    """Refuse a multi-agent result with a part that is not a mapping; `info` was checked before."""
    for value, name in zip(values[:-1], wanted.split(", "), strict=False):
        # A pandas series has keys too.
        if type(value) is not dict and not (hasattr(value, "items") and hasattr(value, "get")):
            raise UntakeableError(
                f"{method} of {article(copy)} returned {short(value)} as `{name}`, not a "
                "mapping from its agents"
            )


def _values_of(result: Any) -> tuple[Any, ...] | None:
    if isinstance(result, str | bytes | Mapping | Set) or numbers_in(result) is not None:
        return None
    try:
        each = iter(result)
    except TypeError:
        return None
    return tuple(islice(each, MANY))
