"""Convert other libraries' action masks to rows of booleans.

A mask is a row with one entry per action. With several choices (`MultiDiscrete`) the entries of all
choices are concatenated; each bit of a `MultiBinary` is a choice between off and on. A mask may
also have a part for each choice, as in Gymnasium's `sample(mask=...)`. A part that is None allows
all actions of its choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import numpy as np
from gymnasium import spaces

from remuda.envs.checks import BadValueError, UntakeableError, numbers_in, of_mask, short
from remuda.envs.scripted import possibilities
from remuda.types import AgentSpec, Array, Bools

MASK = "action_mask"  # the key of a mask, in a `Dict` observation or in `info`


Form: TypeAlias = "int | list[Form] | dict[Any, Form]"
"""The layout of a mask: the number of actions of a choice, or the layouts of its parts."""


def mask_form(space: spaces.Space[Any]) -> Form:
    """Return the layout of the masks of an action space."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.Dict):
        return {key: mask_form(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return [mask_form(part) for part in space.spaces]
    if isinstance(space, spaces.MultiBinary):
        return cast(Form, np.full(space.shape, 2).tolist())
    assert isinstance(space, spaces.MultiDiscrete), f"actions in {space} are not discrete"
    return cast(Form, space.nvec.tolist())


def _size(form: Form) -> int:
    """Return the number of actions, summed over all choices."""
    if isinstance(form, int):
        return form
    return sum(map(_size, form.values() if isinstance(form, dict) else form))


def write_mask(mask: Any, out: Bools, check: bool = True, form: Form | None = None) -> None:
    """Write a library's mask into `out`, [actions], or raise a `BadValueError`; None allows all.

    Without `check`, entries other than 0 and 1 are accepted.
    """
    if type(mask) is np.ndarray and mask.shape == out.shape and mask.dtype.kind in "biuf":
        flat = mask  # the usual case
    else:
        flat = flat_mask(mask, out.size if form is None else form)
    out[...] = flat.astype(np.bool_)
    # An int8 mask of zeros and ones has the same bytes as the row.
    if check and flat.dtype.kind != "b" and flat.tobytes() != out.tobytes():
        strange = flat != out
        if strange.any():
            at = int(strange.argmax())
            raise BadValueError(
                f"its mask holds {flat[at]} (number {at} of {flat.size}); it may hold only 1 for "
                "an allowed action and 0 for a forbidden one"
            )


def flat_mask(mask: Any, form: Form, name: str = "its mask") -> Array:
    """Return a mask as one row of numbers or booleans: [actions]."""
    size = _size(form)
    if mask is None:
        return np.ones(size, np.bool_)
    array = None if isinstance(mask, Mapping) else numbers_in(mask)
    if array is not None and array.size == size and np.squeeze(array).ndim < 2:
        return np.ravel(array)
    if isinstance(form, int):
        raise UntakeableError(f"{name} is {short(mask)}, not {size} booleans")
    if isinstance(form, dict):
        if not isinstance(mask, Mapping) or mask.keys() != form.keys():
            raise UntakeableError(
                f"{name} is {short(mask)}; it must have the parts "
                f"{', '.join(map(str, form))}, or be {size} booleans"
            )
        parts = [(key, mask[key], own) for key, own in form.items()]
    else:
        several = mask if array is None else array
        is_sequence = isinstance(several, tuple | list) or getattr(several, "ndim", 0) > 0
        if not is_sequence or len(several) != len(form):
            raise UntakeableError(
                f"{name} is {short(mask)}, not {len(form)} parts or {size} booleans"
            )
        parts = [(i, several[i], own) for i, own in enumerate(form)]
    return np.concatenate([flat_mask(part, own, f"{name}, part {k}") for k, part, own in parts])


def can_be_masked(space: spaces.Space[Any]) -> bool:
    """Return whether a policy's actions are discrete; continuous ones have no masks."""
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete)


class Masks:
    """The newest mask of one agent in each copy."""

    def __init__(
        self,
        spec: AgentSpec,
        env_actions: spaces.Space[Any],
        num_envs: int,
        in_observation: bool,
        has_given: bool,
    ) -> None:
        """Start with all actions allowed; with `has_given`, an acting agent must have a mask."""
        self._in_observation = in_observation
        self._is_masked, self._could_be = spec.masked, can_be_masked(spec.action_space)
        self._has_given = has_given or in_observation
        self._form = mask_form(env_actions) if spec.masked else None
        width = possibilities(spec) if spec.masked else 0
        self._rows: Bools = np.ones((num_envs, width), np.bool_)
        self._lacking: set[int] = set()  # copies whose newest observation came without a mask

    def reads_info(self, check: bool) -> bool:
        """Return whether `note` needs `info`: for its mask, or to refuse an unexpected mask."""
        if self._is_masked:
            return not self._in_observation
        return check and self._could_be

    def clear(self, e: int) -> None:
        """Allow all actions in a copy whose episode starts."""
        self._rows[e] = True
        self._lacking.discard(e)

    def note(self, e: int, observation: Any, info: Mapping[str, Any], check: bool) -> None:
        """Store the mask that came with an observation, or raise a `BadValueError`."""
        if not self._is_masked:
            if check and info and self._could_be and info.get(MASK) is not None:
                raise of_mask(
                    BadValueError(
                        "`info` holds an `action_mask`, but held none after the first reset, so "
                        "no policy would use it; let every reset return it too"
                    )
                )
            return
        try:
            mask = observation[MASK] if self._in_observation else info.get(MASK)
        except KeyError:
            mask = None
        try:
            write_mask(mask, self._rows[e], check, self._form)
        except BadValueError as error:
            raise of_mask(error) from None
        if mask is None:
            self._lacking.add(e)
        else:
            self._has_given = True
            self._lacking.discard(e)

    def lacking(self, active: Bools) -> int | None:
        """Return a copy where the agent acts without a mask although it had masks before."""
        if not (self._lacking and self._has_given):
            return None
        return next((e for e in sorted(self._lacking) if active[e]), None)

    def write(self, out: Bools, active: Bools, check: bool) -> None:
        """Write all rows into `out`: [num_envs, possibilities]."""
        out[...] = self._rows
        allow_idle(out, active, check)


def allow_idle(masks: Bools, active: Bools, check: bool) -> None:
    """Allow all actions in rows that allow none, for example after an episode's end.

    `masks` [num_envs, possibilities] are those of one agent; `active` [num_envs] marks the copies
    in which it acts. With `check`, the rows of these copies do not change, so that the actor
    refuses them.
    """
    nothing = ~masks.any(axis=1)
    if check:
        nothing &= ~active
    masks[nothing] = True
