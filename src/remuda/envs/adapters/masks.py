"""Action masks of environments of other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.mask_forms import mask_form, write_mask
from remuda.envs.adapters.spaces import MASK, ActionConverter, ObservationConverter
from remuda.envs.checks import BadValueError, of_mask
from remuda.envs.scripted import possibilities
from remuda.types import AgentSpec, Bools


def can_be_masked(actions: ActionConverter) -> bool:
    """Return whether an agent's actions are discrete; continuous ones have no masks."""
    return isinstance(actions.space, spaces.Discrete | spaces.MultiDiscrete)


class Masks:
    """The newest mask of one agent in each copy."""

    def __init__(
        self,
        spec: AgentSpec,
        observations: ObservationConverter,
        actions: ActionConverter,
        num_envs: int,
        has_given: bool,
    ) -> None:
        """Allow everything; with `has_given` the agent needs a mask whenever it acts."""
        self._observations = observations
        self._is_masked, self._could_be = spec.masked, can_be_masked(actions)
        self._has_given = has_given or observations.has_mask
        self._form = mask_form(actions.env_space) if spec.masked else None
        width = possibilities(spec) if spec.masked else 0
        self._rows: Bools = np.ones((num_envs, width), np.bool_)
        self._lacking: set[int] = set()  # copies whose newest observation came without a mask

    def reads_info(self, check: bool) -> bool:
        """Return whether `note` needs `info`: for its mask, or to refuse an unexpected one."""
        if self._is_masked:
            return not self._observations.has_mask
        return check and self._could_be

    def clear(self, e: int) -> None:
        """Allow everything in a copy whose episode begins."""
        self._rows[e] = True
        self._lacking.discard(e)

    def note(self, e: int, observation: Any, info: Mapping[str, Any], check: bool) -> None:
        """Take the mask that came with an observation, or raise a `BadValueError`."""
        try:
            self._note(e, observation, info, check)
        except BadValueError as error:
            of_mask(error)
            raise

    def _note(self, e: int, observation: Any, info: Mapping[str, Any], check: bool) -> None:
        if not self._is_masked:
            if check and info and self._could_be and info.get(MASK) is not None:
                raise BadValueError(
                    "`info` holds an `action_mask`, and held none after the first reset, so that "
                    "no policy would use it; let every reset return it too"
                )
            return
        mask = self._observations.mask(observation, info)
        write_mask(mask, self._rows[e], check, self._form)
        if mask is None:
            self._lacking.add(e)
        else:
            self._has_given = True
            self._lacking.discard(e)

    @staticmethod
    def missing() -> BadValueError:
        """Return the error for a copy that `lacking` found."""
        return of_mask(BadValueError("its mask is missing"))

    def lacking(self, active: Bools) -> int | None:
        """Return a copy where the agent acts without a mask though it had some before."""
        if not (self._lacking and self._has_given):
            return None
        return next((e for e in sorted(self._lacking) if active[e]), None)

    def write(self, out: Bools, active: Bools, check: bool) -> None:
        """Write all rows into `out`: [num_envs, possibilities]."""
        out[...] = self._rows
        allow_idle(out, active, check)


def allow_idle(masks: Bools, active: Bools, check: bool) -> None:
    """Allow everything where nothing is allowed: it is another agent's turn, or the end.

    With `check`, the mask of an agent that acts stays; the actor refuses it.

    Args:
        masks: [num_envs, possibilities] of one agent.
        active: [num_envs], where it acts.
        check: whether masks are refused.
    """
    nothing = ~masks.any(axis=1)
    if check:
        nothing &= ~active
    masks[nothing] = True
