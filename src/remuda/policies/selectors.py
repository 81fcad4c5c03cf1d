"""How a policy chooses by what its network says: the best or any, or a draw from a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from remuda.kernels import njit
from remuda.policies.actions import Actions, DiscreteActions
from remuda.policies.combined import (
    BranchingActions,
    CombinedActions,
    explore_allowed,
    explore_choices,
    take_best_choices,
    take_best_combined,
)
from remuda.types import Array, Bools, Floats, Integers


class ActionSelector(Protocol):
    """How a policy chooses by what its network says."""

    actions: Actions
    """What there is to choose from."""

    @property
    def meaning(self) -> str:
        """What a network's outputs are to it, in words."""

    def choose(
        self,
        outputs: Floats,
        masks: Bools,
        random: np.random.Generator,
        epsilon: float,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """Write an action [N, size] and its log-probability [N] for each stream.

        Args:
            outputs: [N, O] of the network.
            masks: [N, mask_size] what each may do, or [N, 0]: anything.
            random: the policy's stream.
            epsilon: the exploration rate; 0: take what is best.
            actions: to be written.
            log_probs: to be written, where the selector knows it.
        """

    def choose_for_all(
        self,
        outputs: Floats,
        masks: Bools,
        randoms: Sequence[np.random.Generator],
        epsilons: Sequence[float],
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """The same for K policies of N streams each: what `choose` would do, one after another.

        Args:
            outputs: [K, N, O].
            masks: [K, N, mask_size], or [K, N, 0].
            randoms: by policy.
            epsilons: by policy.
            actions: [K, N, size], to be written.
            log_probs: [K, N], likewise.
        """

    def choose_by_rates(
        self,
        outputs: Floats,
        masks: Bools,
        random: np.random.Generator,
        epsilons: np.ndarray,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """As `choose`, for streams that each have an exploration rate of their own: [N]."""


class EpsilonGreedy:
    """Takes the action of the greatest value, or with probability epsilon any that is allowed."""

    meaning = "values of all actions"

    def __init__(self, actions: Actions) -> None:
        assert isinstance(actions, DiscreteActions | CombinedActions)
        self.actions: Actions = actions
        self._uniforms = np.zeros((0, 0))
        self._rates = np.zeros(0)
        self._sizes: Integers = np.array(actions.sizes, np.int64)
        self._branching = isinstance(actions, BranchingActions)
        if self._branching:
            self.meaning = actions.meaning
        elif isinstance(actions, CombinedActions):
            self.meaning = "values of all combinations of choices, the last changing fastest"

    def choose(
        self,
        outputs: Floats,
        masks: Bools,
        random: np.random.Generator,
        epsilon: float,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """The first of the best, unless it explores."""
        self.choose_for_all(
            outputs[None], masks[None], [random], [epsilon], actions[None], log_probs[None]
        )

    def choose_for_all(
        self,
        outputs: Floats,
        masks: Bools,
        randoms: Sequence[np.random.Generator],
        epsilons: Sequence[float],
        actions: Array,
        log_probs: Floats,  # noqa: ARG002
    ) -> None:
        """The first of the best of each, unless it explores."""
        if self._uniforms.shape != outputs.shape[:2]:
            self._uniforms, self._rates = np.zeros(outputs.shape[:2]), np.zeros(len(outputs))
        for k, epsilon in enumerate(epsilons):
            self._rates[k] = epsilon
            if epsilon > 0.0:
                randoms[k].random(out=self._uniforms[k])
        choose_for_all(
            outputs, masks, self._uniforms, self._rates, self._sizes, self._branching, actions
        )

    def choose_by_rates(
        self,
        outputs: Floats,
        masks: Bools,
        random: np.random.Generator,
        epsilons: np.ndarray,
        actions: Array,
        log_probs: Floats,  # noqa: ARG002
    ) -> None:
        """The first of the best, unless it explores."""
        uniforms = np.zeros(len(outputs))
        if epsilons.any():
            random.random(out=uniforms)
        choose_for_all(
            outputs[:, None],
            masks[:, None],
            uniforms[:, None],
            epsilons,
            self._sizes,
            self._branching,
            actions[:, None],
        )


class Sampled:
    """Draws from the distribution that the network describes, or takes its most likely action.

    What explores is the distribution itself, so the rate only tells whether to draw.
    """

    def __init__(self, actions: Actions) -> None:
        self.actions, self.meaning = actions, actions.meaning

    def choose(
        self,
        outputs: Floats,
        masks: Bools,
        random: np.random.Generator,
        epsilon: float,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """Draw for every stream, or for none."""
        self.actions.choose(outputs, masks, random if epsilon > 0.0 else None, actions, log_probs)

    def choose_for_all(
        self,
        outputs: Floats,
        masks: Bools,
        randoms: Sequence[np.random.Generator],
        epsilons: Sequence[float],
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """Likewise, of each policy."""
        draws = [epsilon > 0.0 for epsilon in epsilons]
        if all(draws) or not any(draws):
            who = randoms if draws[0] else None
            self.actions.choose_for_all(outputs, masks, who, actions, log_probs)
            return
        for k, random in enumerate(randoms):
            own = random if draws[k] else None
            self.actions.choose(outputs[k], masks[k], own, actions[k], log_probs[k])

    def choose_by_rates(
        self,
        outputs: Floats,
        masks: Bools,
        random: np.random.Generator,
        epsilons: np.ndarray,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        """Draw for streams whose rate is not 0."""
        draws = epsilons > 0.0
        if draws.all():
            self.actions.choose(outputs, masks, random, actions, log_probs)
            return
        firsts = np.flatnonzero(np.diff(draws, prepend=~draws[:1]))
        for first, end in pairwise([*firsts.tolist(), len(outputs)]):
            own, part = random if draws[first] else None, slice(first, end)
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
    """Of K policies: the best, or by the uniform numbers [K, N] below `epsilons` [K] any.

    See `EpsilonGreedy.choose_for_all`; one uniform number decides both whether and what.
    """
    for k in range(outputs.shape[0]):
        if sizes.size == 1:
            take_best(outputs[k], masks[k], actions[k, :, 0])
        elif branching:
            take_best_choices(outputs[k], masks[k], sizes, actions[k])
        else:
            take_best_combined(outputs[k], masks[k], sizes, actions[k])
        if epsilons[k] > 0.0:
            if branching:
                explore_choices(actions[k], masks[k], sizes, uniforms[k], epsilons[k])
            elif sizes.size == 1 and not masks.shape[2]:
                explore(actions[k, :, 0], uniforms[k], epsilons[k], outputs.shape[2])
            else:
                explore_allowed(actions[k], masks[k], sizes, uniforms[k], epsilons[k])


@njit(cache=True)
def take_best(outputs: Floats, masks: Bools, actions: Integers) -> None:
    """The first of the greatest of each row [N, A], among those allowed."""
    masked = masks.shape[1] > 0
    for i in range(outputs.shape[0]):
        best = -1
        for j in range(outputs.shape[1]):
            if masked and not masks[i, j]:
                continue
            if best < 0 or outputs[i, j] > outputs[i, best]:
                best = j
        actions[i] = max(best, 0)


@njit(cache=True)
def explore(actions: Integers, uniforms: np.ndarray, epsilon: float, num_actions: int) -> None:
    """Replace each action, with probability `epsilon`, by a uniformly drawn one, in place.

    One uniform number decides both: given that it is below epsilon, it is uniform below epsilon.
    """
    for i in range(actions.size):
        if uniforms[i] < epsilon:
            actions[i] = min(int(uniforms[i] / epsilon * num_actions), num_actions - 1)
