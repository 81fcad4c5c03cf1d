"""Compare how trained policies act on common states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.analysis.structure.behaviour import (
    BehaviourDistances,
    hellinger,
    hellinger_of_choices,
    jensen_shannon,
)
from remuda.analysis.trees.policy_adapter import choice_probabilities, gaussians, probabilities
from remuda.envs.recorded import ObservedStates
from remuda.errors import UsageError
from remuda.types import Floats

if TYPE_CHECKING:
    from remuda.policies.continuous_actions import ActionBounds
    from remuda.policies.spec import PolicySpec

STATES = 2000  # most states in a comparison: the mean is then accurate to about 0.01


@dataclass(frozen=True)
class PolicyBehaviour:
    """Distances between the action distributions of policies."""

    names: tuple[str, ...]
    distances: BehaviourDistances  # between each two policies, on the same states
    measure: str
    """`Jensen-Shannon` for discrete actions; `Hellinger` for continuous ones, or if several choices
    have too many combinations."""
    states: int  # number of common states
    not_measured: Mapping[str, str]  # by policy, the reason why it was left out

    def as_summary(self) -> dict[str, Any]:
        return {
            "policies": list(self.names),
            "measure": self.measure,
            "states": self.states,
            **self.distances.as_summary(),
            "not_measured": dict(self.not_measured),
        }

    def in_words(self) -> str:
        away = self.distances
        low, high = away.mean_interval
        words = (
            f"On {self.states:,} states the mean distance between the policies' actions is "
            f"{away.mean:.2f} ({low:.2f} to {high:.2f}; {self.measure} distance, 0: equal, "
            "1: disjoint)"
        )
        if len(self.names) > 2:
            pairs = np.where(np.eye(len(self.names), dtype=np.bool_), np.nan, away.distances)
            a, b = np.unravel_index(int(np.nanargmin(pairs)), pairs.shape)
            words += f"; {self.names[a]} and {self.names[b]} are closest, {pairs[a, b]:.2f}"
        return words + "."


def policy_behaviour(
    players: Mapping[str, tuple[PolicySpec, Floats]],
    states: ObservedStates,
    rng: np.random.Generator,
) -> PolicyBehaviour:
    """Compare the action distributions of policies on common states.

    `players`: names of policies, with their specifications and weights [P].
    """
    count, frames = states.observations.shape[:2]
    chosen = np.sort(rng.choice(count, min(STATES, count), replace=False))
    observations = states.observations[chosen]
    masks = None if states.masks is None else states.masks[chosen]
    by_choice = _has_many_combinations(players)
    distributions: dict[str, Any] = {}
    bounds: ActionBounds | None = None  # of continuous actions
    not_measured: dict[str, str] = {}
    for name, (spec, weights) in players.items():
        try:
            stacked = spec.config.n_frames
            if stacked > frames:
                raise UsageError(
                    f"the policy {spec.name} stacks {stacked} observations, but only {frames} were "
                    "recorded"
                )
            inputs = observations[:, -1] if stacked == 1 else observations[:, -stacked:]
            if spec.actions.mask_size:
                size = spec.actions.mask_size
                allowed = np.ones((len(chosen), size), np.bool_) if masks is None else masks
                ask = choice_probabilities if by_choice else probabilities
                distributions[name] = ask(spec, weights, inputs, allowed)
            else:
                found = gaussians(spec, weights, inputs)
                bounds = bounds or found.bounds
                if not bounds.equals(found.bounds):
                    raise UsageError(
                        f"the policy {spec.name} has {spec.actions}; actions are only compared "
                        f"within the same bounds, here {bounds.low.tolist()} to "
                        f"{bounds.high.tolist()}"
                    )
                distributions[name] = found
        except UsageError as error:
            not_measured[name] = str(error)
    if len(distributions) < 2:
        why = next(iter(not_measured.values()), "there are fewer than two policies")
        raise UsageError(f"policies cannot be compared by their actions: {why}")
    episodes = states.episodes[chosen]
    every = list(distributions.values())
    if bounds is not None:
        free = bounds.low < bounds.high  # equal bounds allow one action
        distances = hellinger(
            np.stack([each.means[:, free] for each in every]),
            np.stack([each.deviations[:, free] for each in every]),
            rng=rng,
            episodes=episodes,
            limits=[bounds.normalise(end)[free] for end in (bounds.low, bounds.high)],
            squashed=[each.squashed for each in every],
        )
    elif by_choice:
        choices = [np.stack(each) for each in zip(*every, strict=True)]
        distances = hellinger_of_choices(choices, rng=rng, episodes=episodes)
    else:
        distances = jensen_shannon(np.stack(every), rng=rng, episodes=episodes)
    measure = "Jensen-Shannon" if bounds is None and not by_choice else "Hellinger"
    return PolicyBehaviour(tuple(distributions), distances, measure, len(chosen), not_measured)


def _has_many_combinations(players: Mapping[str, tuple[PolicySpec, Floats]]) -> bool:
    """Return whether the policies have too many combinations of choices to list."""
    from remuda.policies.actions import MOST_COMBINATIONS

    sizes = [getattr(spec.actions, "sizes", ()) for spec, _ in players.values()]
    return any(math.prod(each) > MOST_COMBINATIONS for each in sizes)
