"""What the agents of other libraries may do, where their games tell it by a mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.mask_forms import Form, flat_mask, form_of
from remuda.envs.adapters.spaces import MASK, Deeds, Sight
from remuda.envs.checks import BadValueError, of_mask
from remuda.envs.scripted import possibilities
from remuda.types import AgentSpec, Bools


def can_be_masked(deeds: Deeds) -> bool:
    """Whether an agent chooses among so many; what numbers are allowed no mask can tell."""
    return isinstance(deeds.space, spaces.Discrete | spaces.MultiDiscrete)


class Masks:
    """What one agent may do in each copy, as its library told it last."""

    def __init__(
        self, spec: AgentSpec, sight: Sight, deeds: Deeds, num_envs: int, tells: bool
    ) -> None:
        """Allow everything.

        Args:
            spec: what is declared of the agent.
            sight: what it sees.
            deeds: what it does.
            num_envs: copies.
            tells: whether its mask was told already, so that it has to be told whenever it acts.
        """
        self._sight = sight
        self._is_asked, self._could_be = spec.masked, can_be_masked(deeds)
        self._tells = tells or sight.has_mask
        theirs = deeds.space if deeds.theirs is None else deeds.theirs
        self._form = form_of(theirs) if spec.masked else None
        width = possibilities(spec) if spec.masked else 0
        self._rows: Bools = np.ones((num_envs, width), np.bool_)
        # The copies where it was told no mask with what it saw last.
        self._lacking: set[int] = set()

    def looks_at_info(self, check: bool) -> bool:
        """Whether `info` is looked at: for masks, or for such as nobody would ask for."""
        if self._is_asked:
            return not self._sight.has_mask
        return check and self._could_be

    def clear(self, e: int) -> None:
        """Allow everything in a copy that begins anew."""
        self._rows[e] = True
        self._lacking.discard(e)

    def note(self, e: int, seen: Any, info: Mapping[str, Any], check: bool) -> None:
        """Take over what is told with what was seen.

        Raises:
            BadValueError: it is no mask, or one that nobody asks for; without `check`, it is of
                another length.
        """
        try:
            self._note(e, seen, info, check)
        except BadValueError as error:
            of_mask(error)
            raise

    def _note(self, e: int, seen: Any, info: Mapping[str, Any], check: bool) -> None:
        if not self._is_asked:
            if check and info and self._could_be and info.get(MASK) is not None:
                raise BadValueError(
                    "`info` holds an `action_mask`, and held none after the first reset, so that "
                    "no policy would ask for it; let every reset tell it too"
                )
            return
        mask = self._sight.mask(seen, info)
        write_mask(mask, self._rows[e], check, self._form)
        if mask is None:
            self._lacking.add(e)
        else:
            self._tells = True
            self._lacking.discard(e)

    @staticmethod
    def missing() -> BadValueError:
        """What is said of a copy that is `lacking`."""
        return of_mask(BadValueError("its mask is missing"))

    def lacking(self, active: Bools) -> int | None:
        """A copy where it acts and was told no mask, although others are told; None: none.

        Args:
            active: [num_envs], where it acts.
        """
        if not (self._lacking and self._tells):
            return None
        return next((e for e in sorted(self._lacking) if active[e]), None)

    def write(self, out: Bools, active: Bools, check: bool) -> None:
        """Write all rows into `out`, [num_envs, possibilities]; who is idle may do anything."""
        out[...] = self._rows
        allow_idle(out, active, check)


def write_mask(
    mask: Any, out: Bools, check: bool = True, space: spaces.Space[Any] | Form | None = None
) -> None:
    """Write a library's mask into one row; its parts follow one another as those of the space do.

    Args:
        mask: in any form of `flat_mask`; None: all is allowed.
        out: [possibilities].
        check: refuse what is neither 0 nor 1.
        space: of the actions, as the library has it, or its form; None: they are one choice.

    Raises:
        BadValueError: it is of another length; or, with `check`, holds anything but 0 and 1.
    """
    if mask is None:
        out[...] = True
        return
    if type(mask) is np.ndarray and mask.shape == out.shape and mask.dtype.kind in "biuf":
        flat = mask  # as most are; one row has but one meaning in any space
    else:
        space = spaces.Discrete(out.size) if space is None else space
        flat = flat_mask(mask, space if isinstance(space, Form) else form_of(space), check)
    out[...] = flat.astype(np.bool_)
    # Most masks are int8, and right: their bytes are those of the row.
    if check and flat.dtype.kind != "b" and flat.tobytes() != out.tobytes():
        strange = flat != out
        if strange.any():
            at = int(strange.argmax())
            raise BadValueError(
                f"its mask holds {flat[at]} (number {at} of {flat.size}); it may hold 1 where an "
                "action is allowed and 0 where it is not, and nothing else"
            )


def allow_idle(masks: Bools, active: Bools, check: bool) -> None:
    """Allow everything where nothing is allowed, because it is another's turn or the end.

    The mask of an agent that acts stays as it is, for the actor to refuse.

    Args:
        masks: [num_envs, possibilities] of one agent.
        active: [num_envs], where it acts.
        check: whether masks are refused; if not, all is allowed there too.
    """
    nothing = ~masks.any(axis=1)
    if check:
        nothing &= ~active
    masks[nothing] = True
