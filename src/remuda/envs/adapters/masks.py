"""Convert other libraries' action masks to rows of booleans.

A mask is a row with one entry per action. With several choices (`MultiDiscrete`) the entries of all
choices are concatenated; each bit of a `MultiBinary` is a choice between off and on. A mask may
also have a part for each choice, as in Gymnasium's `sample(mask=...)`. A part that is None allows
all actions of its choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.checks import BadValueError, UntakeableError, numbers_in, of_mask, short
from remuda.envs.scripted import possibilities
from remuda.types import AgentSpec, Array, Bools

MASK = "action_mask"  # the key of a mask, in a `Dict` observation or in `info`


@dataclass(frozen=True)
class MaskForm:
    """The layout of the masks of an action space."""

    size: int  # actions, summed over all choices
    parts: Mapping[Any, MaskForm] | None = None  # by choice; None with a single choice
    is_named: bool = False  # whether the parts have names (`Dict`) instead of positions


def mask_form(space: spaces.Space[Any]) -> MaskForm:
    """Return the layout of the masks of an action space."""
    if isinstance(space, spaces.Discrete):
        return MaskForm(int(space.n))
    parts: dict[Any, spaces.Space[Any]]
    if isinstance(space, spaces.Dict):
        parts = dict(space.spaces)
    elif isinstance(space, spaces.Tuple):
        parts = dict(enumerate(space.spaces))
    else:
        assert isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary), (
            f"actions in {space} are not discrete"
        )
        is_bits = isinstance(space, spaces.MultiBinary)
        sizes = np.full(space.shape, 2) if is_bits else space.nvec  # type: ignore[union-attr]
        parts = {
            i: spaces.MultiDiscrete(own) if sizes.ndim > 1 else spaces.Discrete(int(own))
            for i, own in enumerate(sizes)
        }
    forms = {key: mask_form(part) for key, part in parts.items()}
    size = sum(form.size for form in forms.values())
    return MaskForm(size, forms, isinstance(space, spaces.Dict))


def write_mask(
    mask: Any, out: Bools, check: bool = True, space: spaces.Space[Any] | MaskForm | None = None
) -> None:
    """Write a library's mask into `out`, [actions], or raise a `BadValueError`; None allows all.

    Without `check`, entries other than 0 and 1 are accepted.
    """
    if mask is None:
        out[...] = True
        return
    if type(mask) is np.ndarray and mask.shape == out.shape and mask.dtype.kind in "biuf":
        flat = mask  # the usual case
    else:
        space = spaces.Discrete(out.size) if space is None else space
        flat = flat_mask(mask, space if isinstance(space, MaskForm) else mask_form(space))
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


def flat_mask(mask: Any, form: MaskForm, name: str = "its mask") -> Array:
    """Return a mask as one row of numbers or booleans: [form.size]."""
    if mask is None:
        return np.ones(form.size, np.bool_)
    array = None if isinstance(mask, Mapping) else numbers_in(mask)
    if array is not None and array.size == form.size and np.squeeze(array).ndim < 2:
        return np.ravel(array)
    if form.parts is None:
        raise UntakeableError(f"{name} is {short(mask)}, not {form.size} booleans")
    if form.is_named:
        if not isinstance(mask, Mapping) or mask.keys() != form.parts.keys():
            raise UntakeableError(
                f"{name} is {short(mask)}; it must have the parts "
                f"{', '.join(map(str, form.parts))}, or be {form.size} booleans"
            )
        values = [mask[key] for key in form.parts]
    else:
        several = mask if array is None else array
        is_sequence = isinstance(several, tuple | list) or getattr(several, "ndim", 0) > 0
        values = list(several) if is_sequence else []
        if len(values) != len(form.parts):
            raise UntakeableError(
                f"{name} is {short(mask)}, not {len(form.parts)} parts or {form.size} booleans"
            )
    rows = zip(form.parts.items(), values, strict=True)
    return np.concatenate([flat_mask(each, own, f"{name}, part {k}") for (k, own), each in rows])


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
        try:
            self._note(e, observation, info, check)
        except BadValueError as error:
            of_mask(error)
            raise

    def _note(self, e: int, observation: Any, info: Mapping[str, Any], check: bool) -> None:
        if not self._is_masked:
            if check and info and self._could_be and info.get(MASK) is not None:
                raise BadValueError(
                    "`info` holds an `action_mask`, but held none after the first reset, so "
                    "no policy would use it; let every reset return it too"
                )
            return
        try:
            mask = observation[MASK] if self._in_observation else info.get(MASK)
        except KeyError:
            mask = None
        write_mask(mask, self._rows[e], check, self._form)
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
