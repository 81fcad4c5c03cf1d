"""Check the presence, shape and finiteness of the values that a game returns.

Adapters check every value of another library's game before they write it into their arrays. The
actor checks the arrays of every game while it processes them. A fault ends the actor with an error
that states the agent, the copy, the turn and the value. `env.check false` turns all checks off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, NoReturn

import numpy as np

from remuda.envs.scripted import choice_sizes
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ContractError
from remuda.system.kernels import njit
from remuda.types import AgentSpec, Array, Bools, Floats, Integers, TurnResult

NONE = -1  # no row was found
PLAIN = (float, int, np.floating, np.integer, np.bool_)  # types of most numbers


class BadValueError(ValueError):
    """A value that breaks the contract of a game; the message describes it."""

    is_of_mask = False  # true for a mask; other libraries' checkers do not test masks


class UntakeableError(BadValueError):
    """A value that cannot be stored even with checks turned off."""


def number(value: Any, check: bool = True) -> float:
    """Convert a reward to a float: a Python or NumPy number, or an array or tensor of size 1."""
    if isinstance(value, PLAIN):
        return _float(value)
    if value is None:
        raise BadValueError("the reward is None, not a number")
    if not isinstance(value, Real | Decimal):
        array = value if isinstance(value, np.ndarray) else numbers_in(value)
        if array is not None and array.size == 1:
            value = array.item()
    found = _float(value)
    if check and not isinstance(value, Real | Decimal):
        raise BadValueError(f"the reward is {short(value)}, not a number")
    return found


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        fault = f"the reward is {short(value)}, which is beyond any float"
    except Exception:  # any error means that this is not a number
        fault = f"the reward is {short(value)}, not a number"
    raise UntakeableError(fault) from None


def flag(name: str, value: Any, check: bool = True) -> bool:
    """Convert an end-of-episode flag to a bool."""
    if value is True or value is False:
        return value
    array = numbers_in(value)
    if array is not None and array.size == 1 and array.item() in (0, 1):
        return bool(array.item())
    fault = f"`{name}` is {short(value)}, not true or false"
    try:
        truth = bool(value)
    except Exception:  # any error means that this has no truth value
        raise UntakeableError(fault) from None
    if check:
        raise BadValueError(fault)
    return truth


def write_checked(what: str, value: Any, out: Array) -> None:
    """Check a value and write it into its row."""
    if type(value) is np.ndarray and value.shape == out.shape and out.dtype.kind == "f":
        # Any number can be cast to float; infinite values are found later.
        if value.dtype.kind in "biu" or value.dtype == out.dtype:
            out[...] = value
            return
        if value.dtype.kind == "f":
            with np.errstate(over="ignore"):
                out[...] = value
            return
    out[...] = fitting(what, value, out.shape, out.dtype)


def fitting(what: str, value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Convert a value to an array of this shape and dtype, or raise a `BadValueError`."""
    if value is None:
        raise BadValueError(f"{what} is missing")
    array = numbers_in(value)
    if array is None:
        raise UntakeableError(f"{what} is {short(value)}, not numbers")
    if array.shape != shape:
        raise BadValueError(f"{what} has the shape {array.shape}, not {shape}: {short(value)}")
    with np.errstate(invalid="ignore", over="ignore"):
        cast: Array = array.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(cast, array):
        raise BadValueError(f"{what} does not fit into {dtype}: {short(value)}")
    return cast


def numbers_in(value: Any) -> Array | None:
    """Convert a value to an array of numbers; None if that is impossible."""
    try:
        # A tensor may be on a device, or require a gradient.
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None
    if array.dtype.kind == "O" and all(isinstance(entry, PLAIN) for entry in array.flat):
        array = np.array(array.tolist())
    return array if array.dtype.kind in "biuf" else None


def of_mask(error: BadValueError) -> BadValueError:
    """Mark an error as a fault of a mask, and return it."""
    error.is_of_mask = True
    return error


def broken(
    env: VectorEnv, agent: int | None, copy: int, turn: int, fault: object, lets_pass: bool = True
) -> ContractError:
    """Return the error for a fault in a copy of a game.

    `turn` counts from 1 in the copy's episode; 0 means that it was just reset. `lets_pass`: the
    value is accepted if checks are off.
    """
    prefix = "" if agent is None else f"{env.agents[agent].name} in "
    lets_pass = lets_pass and not isinstance(fault, UntakeableError)
    return ContractError(
        f"the game breaks its contract: {prefix}copy {env.first_copy + copy}, turn {turn} of "
        f"the episode: {fault}. Fix the game{_tester(env.checker, fault)}"
        f"{', or train without checks by --env.check false' if lets_pass else ''}"
    )


def _tester(checker: str, fault: object) -> str:
    """Return a hint at the function that tests a game for this fault."""
    if checker == VectorEnv.checker:
        return f" ({checker} tests the whole contract)"
    if not checker or (isinstance(fault, BadValueError) and fault.is_of_mask):
        return ""
    return f" ({checker} tests much of its library's contract)"


def short(value: Any) -> str:
    """Return the `repr` of a value in one short line."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an int of thousands of digits, or an object whose own code raises
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


@njit(cache=True)
def first_strange(rows: Array, mask: Bools) -> int:
    """Return the first row in the mask with a number that is not finite in float32, or -1."""
    for i in range(rows.shape[0]):
        if mask[i]:
            for j in range(rows.shape[1]):
                if not math.isfinite(np.float32(rows[i, j])):
                    return i
    return NONE


@njit(cache=True)
def first_outside(
    rows: Array,
    low: Array,
    high: Array,
    agent: int,
    active: Bools,
    terminated: Bools,
    truncated: Bools,
) -> int:
    """Return the flat index of the first number in `rows` outside its bounds, or -1.

    `rows`, [num_envs, size], are the newest observations of an agent, and the bounds are [size] of
    the same dtype. Only copies in which the agent acts or its episode ended in this turn are
    checked.
    """
    num_envs, size = rows.shape
    for i in range(num_envs):
        if active[i, agent] or terminated[i, agent] or truncated[i, agent]:
            outside = False
            for j in range(size):  # no early exit, so that the loop is vectorised
                outside |= (rows[i, j] < low[j]) | (rows[i, j] > high[j])
            if outside:
                for j in range(size):
                    if rows[i, j] < low[j] or rows[i, j] > high[j]:
                        return int(i * size + j)
    return NONE


@njit(cache=True)
def first_stuck(masks: Bools, ends: Integers, acts: Bools) -> int:
    """Return the first acting row with a choice that has no allowed action, or -1."""
    for stream in range(masks.shape[0]):
        if not acts[stream]:
            continue
        begin = 0
        for choice in range(ends.size):
            end = ends[choice]
            while not masks[stream, begin]:
                begin += 1
                if begin == end:
                    return stream
            begin = end
    return NONE


SLACK = 1e-5  # tolerance for floats; relative for bounds larger than 1


class BoundsCheck:
    """A check that an adapter's observations are within their Boxes; if not, it adds a note."""

    def __init__(
        self, env: VectorEnv, newest: Sequence[Array], terminated: Bools, truncated: Bools
    ) -> None:
        """Check `newest`, the newest observations of each agent: [num_envs, ...]."""
        self._env, self._ends = env, (terminated, truncated)
        self._looks: list[tuple[Array, Array, Array] | None] = [
            _bounds_of(spec, rows) for spec, rows in zip(env.agents, newest, strict=True)
        ]

    def look(self, agent: int, turns: Integers) -> None:
        """Check an agent's observations; `turns`: [num_envs], turns of each episode so far."""
        looks = self._looks[agent]
        if looks is None:
            return
        rows, low, high = looks
        index = first_outside(rows, low, high, agent, self._env.active, *self._ends)
        if index == NONE:
            return
        copy, at = divmod(int(index), rows.shape[1])
        self._looks = [None] * len(self._looks)  # report only once
        spec, env = self._env.agents[agent], self._env
        space: Any = spec.observation_space
        self._env.notes["observation outside its space"] = (
            f"{spec.name} in copy {env.first_copy + copy}, turn {int(turns[copy])} of the episode: "
            f"its observation holds {rows[copy, at]:g} (number {at} of {rows.shape[1]}), and its "
            f"observation space says {np.ravel(space.low)[at]:g} to {np.ravel(space.high)[at]:g}. "
            "It is used unchanged; later violations are not reported. Fix the bounds of the space, "
            "or the observation"
        )


def _bounds_of(spec: AgentSpec, observations: Array) -> tuple[Array, Array, Array] | None:
    """Return observations [num_envs, size] and their bounds [size]; None if unbounded."""
    space: Any = spec.observation_space
    rows = observations.reshape(len(observations), -1)
    low, high, dtype = np.ravel(space.low), np.ravel(space.high), rows.dtype
    if dtype.kind == "f":
        if not (np.isfinite(low).any() or np.isfinite(high).any()):
            return None
        low, high = low.astype(np.float64), high.astype(np.float64)
        low = low - SLACK * np.maximum(1.0, np.abs(low))
        high = high + SLACK * np.maximum(1.0, np.abs(high))
    elif dtype.kind == "b" or _is_whole(low, high, dtype):
        return None
    with np.errstate(over="ignore"):
        return rows, low.astype(dtype), high.astype(dtype)


def _is_whole(low: Array, high: Array, dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return bool((low == limits.min).all() and (high == limits.max).all())


class TurnChecks:
    """The checks of an actor; error messages contain the agent and the copy."""

    def __init__(self, env: VectorEnv, turns: Integers) -> None:
        """Check `env`; `turns`: [num_envs], completed turns of each copy's episode."""
        self._env, self._turns = env, turns
        self._ends = [
            np.cumsum(choice_sizes(spec.action_space), dtype=np.int64) if spec.masked else None
            for spec in env.agents
        ]
        # Compile now, rather than when the first episode ends.
        nowhere: Bools = np.zeros((2, len(env.agents)), np.bool_)
        for agent, spec in enumerate(env.agents):
            self.last(agent, np.zeros((2, 2), spec.observation_space.dtype), nowhere[:, 0])

    def observed(self, agent: int, observations: Array, stream: int) -> None:
        """Refuse an observation that is not finite; `stream` is its copy, or -1 for none."""
        if stream != NONE:
            self._fail(agent, stream, not_finite("the observation", observations[stream]))

    def masked(self, agent: int, masks: Bools, acts: Bools) -> None:
        """Refuse a mask that allows no action to an acting agent."""
        ends = self._ends[agent]
        if ends is not None:
            copy = first_stuck(masks, ends, acts)
            if copy != NONE:
                fault = f"its mask allows nothing although it must act: {short(masks[copy])}"
                self._fail(agent, copy, of_mask(BadValueError(fault)))

    def last(self, agent: int, observations: Array, ended: Bools) -> None:
        """Refuse final observations that are not finite, of agents whose episode has ended."""
        if observations.dtype.kind == "f":
            rows = observations.reshape(len(observations), -1)
            copy = first_strange(rows, ended)
            if copy != NONE:
                fault = not_finite("the last observation", rows[copy])
                self._fail(agent, copy, fault, over=1)

    def shapes(self, result: TurnResult) -> None:
        """Check that the results of a turn are arrays of numbers for every agent."""
        shape = self._env.active.shape
        for name in ("rewards", "terminated", "truncated"):
            array = getattr(result, name)
            if getattr(array, "shape", None) != shape or array.dtype.kind not in "biuf":
                raise ContractError(
                    f"the game breaks its contract: `{name}` of a turn is {short(array)}, not "
                    f"{list(shape)} numbers"
                )

    def result(self, result: TurnResult, acted: Bools, active: Bools) -> None:
        """Raise a ContractError for the first fault in a turn's result."""
        over = ~np.any(active, axis=1)
        ended = result.terminated | result.truncated
        findings = (
            (~np.isfinite(result.rewards), "the reward is {}, which is not finite"),
            (result.terminated & result.truncated, "it is terminated and truncated at once"),
            (
                ended & active & (not self._env.may_return_at_once),
                "its episode has ended, but it is active",
            ),
            (
                acted & over[:, None] & ~ended,
                "no agent is active any more, but its episode has not ended",
            ),
        )
        for where, fault in findings:
            for copy, agent in np.argwhere(where).tolist():
                # `_turns` already counts this turn.
                self._fail(agent, copy, fault.format(result.rewards[copy, agent]), over=1)

    def _fail(self, agent: int, copy: int, fault: object, over: int = 0) -> NoReturn:
        turn = int(self._turns[copy]) + 1 - over
        raise broken(self._env, agent, copy, turn, fault)


def not_finite(what: str, values: Array) -> str:
    """Describe the first number that is not finite as float32."""
    flat: Floats = np.ravel(values)
    with np.errstate(over="ignore"):
        cast = flat.astype(np.float32)
    at = int(np.flatnonzero(~np.isfinite(cast))[0])
    return f"{what} holds {flat[at]} (number {at} of {flat.size}), which is not finite in float32"
