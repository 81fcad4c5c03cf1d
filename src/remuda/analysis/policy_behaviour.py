"""How differently trained policies act: all of them are asked on the same states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.analysis.behaviour import BehaviourDistances, hellinger, jensen_shannon
from remuda.analysis.network_play import gaussians, joint_probabilities
from remuda.envs.recorded import ObservedStates
from remuda.errors import UsageError
from remuda.types import Array, Floats

if TYPE_CHECKING:
    from remuda.policies.spec import PolicySpec

STATES = 2000
"""States that policies are asked on, at most: the mean over them is known to about 0.01."""


@dataclass(frozen=True)
class PolicyBehaviour:
    """How differently policies act.

    Attributes:
        names: of the policies.
        distances: between each two of them, on the same states.
        measure: `Jensen-Shannon`, of discrete actions, or `Hellinger`, of continuous ones.
        states: that they were asked on.
        untold: by policy, why it could not be asked.
    """

    names: tuple[str, ...]
    distances: BehaviourDistances
    measure: str
    states: int
    untold: Mapping[str, str]

    def as_summary(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "policies": list(self.names),
            "measure": self.measure,
            "states": self.states,
            **self.distances.as_summary(),
            "untold": dict(self.untold),
        }

    def in_words(self) -> str:
        """One sentence."""
        away = self.distances
        low, high = away.mean_interval
        told = (
            f"On {self.states:,} states the policies act {away.mean:.2f} apart on the mean "
            f"({low:.2f} to {high:.2f}; {self.measure} distance, 0: alike, 1: never the same)"
        )
        if len(self.names) > 2:
            apart = np.where(np.eye(len(self.names), dtype=np.bool_), np.nan, away.distances)
            one, other = np.unravel_index(int(np.nanargmin(apart)), apart.shape)
            told += (
                f"; {self.names[one]} and {self.names[other]} the least, {apart[one, other]:.2f}"
            )
        return told + "."


def policy_behaviour(
    players: Mapping[str, tuple[PolicySpec, Floats]],
    states: ObservedStates,
    rng: np.random.Generator,
    most: int = STATES,
) -> PolicyBehaviour:
    """Ask policies what they do on the same states, and tell how far apart that is.

    Args:
        players: by name, specification and weights [P].
        states: what agents observed that acted.
        rng: by which states are chosen and resampled.
        most: states at most.

    Raises:
        UsageError: fewer than two policies can be asked.
    """
    count, frames = states.observations.shape[:2]
    chosen = np.sort(rng.choice(count, min(most, count), replace=False))
    observations = states.observations[chosen]
    masks = None if states.masks is None else states.masks[chosen]
    answers: dict[str, Any] = {}
    untold: dict[str, str] = {}
    for name, (spec, weights) in players.items():
        try:
            seen = _as_seen(spec, observations, frames)
            if spec.actions.mask_size:
                size = spec.actions.mask_size
                allowed = np.ones((len(chosen), size), np.bool_) if masks is None else masks
                answers[name] = joint_probabilities(spec, weights, seen, allowed)
            else:
                answers[name] = gaussians(spec, weights, seen)
        except UsageError as error:
            untold[name] = str(error)
    if len(answers) < 2:
        why = next(iter(untold.values()), "there are fewer than two policies")
        raise UsageError(f"how differently policies act is not told: {why}")
    episodes = states.episodes[chosen]
    found, measure = _distances(list(answers.values()), episodes, rng)
    return PolicyBehaviour(tuple(answers), found, measure, len(chosen), untold)


def _as_seen(spec: PolicySpec, observations: Array, frames: int) -> Array:
    """Of observations [S, frames, *shape] those that a policy goes by."""
    stacked = spec.config.n_frames
    if stacked > frames:
        raise UsageError(
            f"the policy {spec.name} stacks {stacked} observations, and {frames} are known"
        )
    found: Array = observations[:, -1] if stacked == 1 else observations[:, -stacked:]
    return found


def _distances(
    answers: Sequence[Any], episodes: Any, rng: np.random.Generator
) -> tuple[BehaviourDistances, str]:
    """Of distributions that are all discrete, or all Gaussian."""
    if not isinstance(answers[0], tuple):
        return jensen_shannon(np.stack(answers), rng=rng, episodes=episodes), "Jensen-Shannon"
    means, deviations = (np.stack(each) for each in zip(*answers, strict=True))
    return hellinger(means, deviations, rng=rng, episodes=episodes), "Hellinger"
