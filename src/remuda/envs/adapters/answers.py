"""What environments of other libraries answer to `reset` and `step`, told where it is unlike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import islice
from typing import Any

import numpy as np

from remuda.envs.adapters.lasting_state import refuse_statistics
from remuda.envs.checks import UntakeableError, numbers_in, short
from remuda.envs.closing import close
from remuda.envs.kinds import article
from remuda.errors import ContractError

STEP = "observation, reward, terminated, truncated, info"
RESET = "observation, info"
"""With `STEP`: what Gymnasium has them answer, and PettingZoo by agent."""
OLD_STEP = 4
"""Values that a step of Gym's answered before Gymnasium."""
SINGLE = bool, int, float, np.generic
"""Kinds of a number, which as `info` says nothing where it is 0."""
MANY = 100
"""Values of an answer without end that are looked at."""


def begin(copy: Any, seed: int | None, wanted: str = RESET, agents: int = 0) -> Any:
    """Reset an environment; returns its answer.

    Args:
        copy: the environment.
        seed: of the episode.
        wanted: what the answer should be, by commas; empty: it does not matter.
        agents: as of `parts`.

    Raises:
        UntakeableError: it takes no seed, or answers anything else.
    """
    try:
        answer = copy.reset(seed=seed)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # within the environment
        raise UntakeableError(
            f"reset of {article(copy)} cannot be called with a seed ({error}); it is "
            "reset(self, seed=None, options=None)"
        ) from None
    return parts(copy, "reset", answer, wanted, agents) if wanted else answer


def first_begin(copy: Any, wanted: str = RESET) -> Any:
    """Reset an environment that was just made, as `begin` does.

    Raises:
        ContractError: it takes no seed, answers anything else, or has no spaces.
    """
    for name in ("observation_space", "action_space"):
        if not hasattr(copy, name):
            raise ContractError(
                f"{article(copy)} has no {name}: an environment tells what its agents see and do "
                "in observation_space and action_space, which `__init__` sets"
            )
    refuse_statistics(copy)
    try:
        return begin(copy, 0, wanted)
    except UntakeableError as error:
        raise ContractError(f"the game breaks its contract: {error}") from None


class FirstCopy:
    """The first of several copies, which was reset once already, only to look at it."""

    def __init__(self, copies: list[Any], make: Callable[[], Any]) -> None:
        """Be the first of `copies`, as `make` makes them."""
        self._copies, self._make = copies, make
        self._is_untouched = False

    def begin(self, e: int, seed: int, wanted: str = RESET) -> Any:
        """Reset a copy, as `begin` does.

        An environment may refuse a reset before its episode is over. The first copy is made anew
        then: no episode of it was played.
        """
        if e or self._is_untouched:
            return begin(self._copies[e], seed, wanted)
        self._is_untouched = True
        try:
            return begin(self._copies[0], seed, wanted)
        except UntakeableError:
            raise
        except Exception:
            close(self._copies[0].close, self._copies[0])
            self._copies[0] = self._make()
            return begin(self._copies[0], seed, wanted)


def parts(copy: Any, method: str, answer: Any, wanted: str, agents: int = 0) -> Any:
    """An answer of so many values, the last of which is `info`: a mapping, or None.

    Args:
        copy: the environment.
        method: that was called.
        answer: of it; a tuple, a list, or whatever else unpacks to values.
        wanted: what it should be, by commas.
        agents: so many may have an `info` each, in a sequence; 0: that is one for all.

    Raises:
        UntakeableError: it has more or fewer values, is none of several, or its `info` is no
            mapping, and not empty either.
    """
    count = wanted.count(",") + 1
    values = answer if isinstance(answer, tuple | list) else _values_of(answer)
    if values is not None and len(values) == count:
        info = values[-1]
        if type(info) is dict or info is None or isinstance(info, Mapping):
            return values
        if agents and is_sequence(info) and len(info) == agents:
            return values
        if _is_nothing(info) and (method == "step" or not isinstance(info, SINGLE)):
            return (*values[:-1], {})
        raise UntakeableError(
            f"{method} of {article(copy)} returned {short(info)} as `info`, the last of "
            f"{count} values ({wanted}), and not a mapping such as {{}}"
        )
    found = short(answer) if values is None else f"{len(values)} values"
    old = values is not None and method == "step" and len(values) == OLD_STEP
    raise UntakeableError(
        f"{method} of {article(copy)} returned {found}, and not {count} values: {wanted}"
        + ("; `done` of old Gym is `terminated` or `truncated` now" if old else "")
    )


def mapping_of(info: Any) -> Mapping[str, Any]:
    """The `info` of an agent, or all by agent; empty where nothing is told.

    Raises:
        UntakeableError: it is no mapping, and not empty either.
    """
    if isinstance(info, Mapping):
        return info
    if info is None or _is_nothing(info):
        return {}
    raise UntakeableError(f"its `info` is {short(info)}, and not a mapping such as {{}}")


def _is_nothing(info: Any) -> bool:
    """Whether something that should be a mapping says nothing: `[]`, False or the like."""
    try:
        return len(info) == 0
    except TypeError:  # one value
        return bool(np.all(info == 0)) if isinstance(info, SINGLE) else False


def is_sequence(values: Any) -> bool:
    """Whether something holds several values in their order, arrays and tensors too."""
    shape = getattr(values, "shape", None)
    return isinstance(values, Sequence) or (hasattr(values, "__len__") and shape not in (None, ()))


def refuse_lists(copy: Any, method: str, values: Sequence[Any], wanted: str) -> None:
    """Each part of an answer that is told by agent is a mapping; of `info` that is known.

    Raises:
        UntakeableError: one is not.
    """
    for value, name in zip(values[:-1], wanted.split(", "), strict=False):
        # What has keys counts as a mapping, as a series of pandas.
        if type(value) is not dict and not (hasattr(value, "items") and hasattr(value, "get")):
            raise UntakeableError(
                f"{method} of {article(copy)} returned {short(value)} as `{name}`, and not a "
                "mapping from its agents"
            )


def _values_of(answer: Any) -> tuple[Any, ...] | None:
    """What an answer that is no tuple can be unpacked to; None: it is one value."""
    if isinstance(answer, str | bytes | Mapping | Set) or numbers_in(answer) is not None:
        return None
    try:
        each = iter(answer)
    except TypeError:
        return None
    return tuple(islice(each, MANY))
