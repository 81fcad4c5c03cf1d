"""Action selection from network outputs: epsilon-greedy or sampled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from remuda.policies.actions import Actions, DiscreteActions, Rng
from remuda.policies.joint_actions import (
    BranchingActions,
    JointActions,
    explore_allowed,
    explore_choices,
    take_best_choices,
    take_best_joint,
)
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers


class ActionSelector(ABC):
    """Action selection from network outputs."""

    actions: Actions
    meaning: str  # describes the network's outputs

    @abstractmethod
    def choose_for_all(
        self,
        outputs: Floats,  # [K, N, O]
        masks: Bools,  # [K, N, mask_size], or [K, N, 0] to allow all
        rngs: Sequence[Rng],
        epsilons: Sequence[float],  # exploration rates; 0 takes the best action
        actions: Array,  # [K, N, size], written
        log_probs: Floats,  # [K, N], written by `Sampled` only
    ) -> None:
        """Choose actions for K policies of N streams each."""

    @abstractmethod
    def choose(
        self,
        outputs: Floats,
        masks: Bools,
        rng: Rng,
        epsilons: np.ndarray,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """Choose for one policy of N streams, each with its exploration rate: [N]."""


class EpsilonGreedy(ActionSelector):
    """The action with the largest value or, with probability epsilon, a random allowed action."""

    meaning = "values of all actions"

    def __init__(self, actions: Actions) -> None:
        assert isinstance(actions, DiscreteActions | JointActions)
        self.actions: Actions = actions
        self._uniforms = np.zeros((0, 0))
        self._rates = np.zeros(0)
        self._sizes: Integers = np.array(actions.sizes, np.int64)
        self._branching = isinstance(actions, BranchingActions)
        if self._branching:
            self.meaning = actions.meaning
        elif isinstance(actions, JointActions):
            self.meaning = "values of all combinations of choices; the last choice varies fastest"

    def choose_for_all(
        self,
        outputs: Floats,
        masks: Bools,
        rngs: Sequence[Rng],
        epsilons: Sequence[float],
        actions: Array,
        log_probs: Floats,  # noqa: ARG002
    ) -> None:
        if self._uniforms.shape != outputs.shape[:2]:
            self._uniforms, self._rates = np.zeros(outputs.shape[:2]), np.zeros(len(outputs))
        for k, epsilon in enumerate(epsilons):
            self._rates[k] = epsilon
            if epsilon > 0.0:
                rngs[k].random(out=self._uniforms[k])
        choose_for_all(
            outputs, masks, self._uniforms, self._rates, self._sizes, self._branching, actions
        )

    def choose(
        self,
        outputs: Floats,
        masks: Bools,
        rng: Rng,
        epsilons: np.ndarray,
        actions: Array,
        log_probs: Floats,  # noqa: ARG002
    ) -> None:
        uniforms = np.zeros(len(outputs))
        if epsilons.any():
            rng.random(out=uniforms)
        each = (outputs[:, None], masks[:, None], uniforms[:, None])
        choose_for_all(*each, epsilons, self._sizes, self._branching, actions[:, None])


class Sampled(ActionSelector):
    """A sample from the network's distribution, or the most likely action if epsilon is 0."""

    def __init__(self, actions: Actions) -> None:
        self.actions, self.meaning = actions, actions.meaning

    def choose_for_all(
        self,
        outputs: Floats,
        masks: Bools,
        rngs: Sequence[Rng],
        epsilons: Sequence[float],
        actions: Array,
        log_probs: Floats,
    ) -> None:
        draws = [epsilon > 0.0 for epsilon in epsilons]
        if all(draws) or not any(draws):
            drawn = rngs if draws[0] else None
            self.actions.choose_for_all(outputs, masks, drawn, actions, log_probs)
            return
        for k, rng in enumerate(rngs):
            own = rng if draws[k] else None
            self.actions.choose(outputs[k], masks[k], own, actions[k], log_probs[k])

    def choose(
        self,
        outputs: Floats,
        masks: Bools,
        rng: Rng,
        epsilons: np.ndarray,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        draws = epsilons > 0.0
        if draws.all():
            self.actions.choose(outputs, masks, rng, actions, log_probs)
            return
        firsts = np.flatnonzero(np.diff(draws, prepend=~draws[:1]))
        for first, end in pairwise([*firsts.tolist(), len(outputs)]):
            own, part = rng if draws[first] else None, slice(first, end)
            self.actions.choose(outputs[part], masks[part], own, actions[part], log_probs[part])


@njit(cache=True)
def choose_for_all(
    outputs: Floats,
    masks: Bools,
    uniforms: np.ndarray,
    epsilons: np.ndarray,
    sizes: Integers,
    branching: bool,
    actions: Integers,
) -> None:
    """Write the best actions, or random actions if `uniforms` [K, N] are below `epsilons` [K]."""
    for k in range(outputs.shape[0]):
        if branching or sizes.size == 1:
            take_best_choices(outputs[k], masks[k], sizes, actions[k])
        else:
            take_best_joint(outputs[k], masks[k], sizes, actions[k])
        if epsilons[k] > 0.0:
            if branching:
                explore_choices(actions[k], masks[k], sizes, uniforms[k], epsilons[k])
            else:
                explore_allowed(actions[k], masks[k], sizes, uniforms[k], epsilons[k])
