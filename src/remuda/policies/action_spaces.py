"""The action types of an environment's action spaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from remuda.errors import ContractError
from remuda.policies.actions import Actions, DiscreteActions
from remuda.policies.continuous_actions import ContinuousActions

if TYPE_CHECKING:
    from gymnasium import Space


def actions_of(space: Space[object], agent: str) -> Actions:
    """Return the action type of a space; raise ContractError if no algorithm supports it."""
    from gymnasium.spaces import Box, Discrete, MultiDiscrete

    if isinstance(space, Discrete) and space.start == 0:
        return DiscreteActions((int(space.n),))
    if isinstance(space, MultiDiscrete) and not np.any(space.start):
        return DiscreteActions(tuple(int(n) for n in space.nvec.ravel()))
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
        return ContinuousActions(space.low, space.high)
    raise ContractError(
        f"{agent} has the action space {space}; supported are Discrete and MultiDiscrete from 0, "
        "Box of floats and, through adapters, a Tuple or Dict of only discrete or only float spaces"
    )
