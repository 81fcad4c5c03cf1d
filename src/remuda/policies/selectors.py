"""Action selection from network outputs: epsilon-greedy or sampled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from remuda.policies.actions import Actions, BranchingActions, DiscreteActions, JointActions, Rng
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers


class EpsilonGreedy:
    """The action with the largest value or, with probability epsilon, a random allowed action."""

    meaning = "values of all actions"  # describes the network's outputs

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
        outputs: Floats,  # [K, N, O]
        masks: Bools,  # [K, N, mask_size], or [K, N, 0] to allow all
        rngs: Sequence[Rng],
        epsilons: Sequence[float],  # exploration rates; 0 takes the best action
        actions: Array,  # [K, N, size], written
        log_probs: Floats,  # noqa: ARG002  # [K, N], written by `Sampled` only
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
        """Choose for one policy of N streams, each with its exploration rate: [N]."""
        uniforms = np.zeros(len(outputs))
        if epsilons.any():
            rng.random(out=uniforms)
        each = (outputs[:, None], masks[:, None], uniforms[:, None])
        choose_for_all(*each, epsilons, self._sizes, self._branching, actions[:, None])


class Sampled:
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
            rates = np.full(len(outputs[k]), epsilons[k])
            self.choose(outputs[k], masks[k], rng, rates, actions[k], log_probs[k])

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
        firsts = [0] if draws.all() else np.flatnonzero(np.diff(draws, prepend=~draws[:1]))
        for first, end in pairwise([*firsts, len(outputs)]):
            at, rngs = (None, slice(first, end)), (rng,) if draws[first] else None
            self.actions.choose_for_all(outputs[at], masks[at], rngs, actions[at], log_probs[at])


ActionSelector = EpsilonGreedy | Sampled


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


@njit(cache=True)
def take_best_joint(outputs: Floats, masks: Bools, sizes: Integers, actions: Integers) -> None:
    """Write the first allowed combination with the largest value; zeros if none is allowed."""
    masked = masks.shape[1] > 0
    for n in range(outputs.shape[0]):
        best = -1
        for j in range(outputs.shape[1]):
            if best >= 0 and not outputs[n, j] > outputs[n, best]:
                continue
            allowed = True
            if masked:
                rest, end = j, masks.shape[1]
                for i in range(sizes.size - 1, -1, -1):
                    end -= sizes[i]
                    allowed &= masks[n, end + rest % sizes[i]]
                    rest //= sizes[i]
            if allowed:
                best = j
        rest = max(best, 0)
        for i in range(sizes.size - 1, -1, -1):
            actions[n, i] = rest % sizes[i]
            rest //= sizes[i]


@njit(cache=True)
def take_best_choices(outputs: Floats, masks: Bools, sizes: Integers, actions: Integers) -> None:
    """Write each choice's first allowed option with the largest value; 0 if none is allowed."""
    masked = masks.shape[1] > 0
    for n in range(outputs.shape[0]):
        begin = 0
        for i in range(sizes.size):
            best = -1
            for j in range(begin, begin + sizes[i]):
                if masked and not masks[n, j]:
                    continue
                if best < 0 or outputs[n, j] > outputs[n, best]:
                    best = j
            actions[n, i] = max(best - begin, 0)
            begin += sizes[i]


@njit(cache=True)
def explore_choices(
    actions: Integers, masks: Bools, sizes: Integers, uniforms: np.ndarray, epsilon: float
) -> None:
    """Replace each action, with probability `epsilon`, by allowed choices drawn independently.

    One uniform number cannot distinguish all combinations, so its bits seed a generator
    (SplitMix64) that draws each choice.
    """
    for n in range(actions.shape[0]):
        if uniforms[n] >= epsilon:
            continue
        state = np.uint64(uniforms[n] / epsilon * 2.0**53)
        begin = 0
        for i in range(sizes.size):
            count = _count(masks, n, begin, sizes[i])
            state += np.uint64(0x9E3779B97F4A7C15)
            bits = state
            bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            bits ^= bits >> np.uint64(31)
            if count:  # else the stream does not act and its choice is ignored
                number = min(int(np.float64(bits >> np.uint64(11)) * 2.0**-53 * count), count - 1)
                actions[n, i] = _allowed(masks, n, begin, sizes[i], number)
            begin += sizes[i]


@njit(cache=True)
def explore_allowed(
    actions: Integers, masks: Bools, sizes: Integers, uniforms: np.ndarray, epsilon: float
) -> None:
    """Replace each action [N, size], with probability `epsilon`, by a random allowed action.

    A uniform number below epsilon is uniform on [0, epsilon), so it also selects the new action.
    """
    for n in range(actions.shape[0]):
        if uniforms[n] >= epsilon:
            continue
        total, begin = 1, 0
        for i in range(sizes.size):
            total *= _count(masks, n, begin, sizes[i])
            begin += sizes[i]
        if total == 0:  # the stream does not act and its choice is ignored
            continue
        rest = min(int(uniforms[n] / epsilon * total), total - 1)
        for i in range(sizes.size - 1, -1, -1):
            begin -= sizes[i]
            count = _count(masks, n, begin, sizes[i])
            actions[n, i] = _allowed(masks, n, begin, sizes[i], rest % count)
            rest //= count


@njit(cache=True)
def _count(masks: Bools, n: int, begin: int, size: int) -> int:
    if masks.shape[1] == 0:
        return size
    count = 0
    for j in range(begin, begin + size):
        count += masks[n, j]
    return count


@njit(cache=True)
def _allowed(masks: Bools, n: int, begin: int, size: int, number: int) -> int:
    """Return the option with index `number` among the allowed options."""
    if masks.shape[1] == 0:
        return number
    for j in range(size):
        if masks[n, begin + j]:
            if number == 0:
                return j
            number -= 1
    return 0
