"""The learner's side of replay: sampling of steps or n-step transitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from remuda.experience.experience import Experience
from remuda.experience.pieces import (
    Observed,
    observed,
    write_next_observation,
    write_observation,
)
from remuda.experience.ring import OTHERS, TRUNCATED, ExperienceRing
from remuda.system.checkpoint.fitting import whole
from remuda.system.checkpoint.state import restore_rng, rng_state
from remuda.system.kernels import njit
from remuda.system.memory.atomic import fence_acquire, load
from remuda.types import Array, Bools, Floats, Integers, State


class Weighed(Protocol):
    """A batch for K policies; every array is [K, ...]."""

    @property
    def weights(self) -> Floats:
        """Return the weight of each item, [K, B], or [K, 0] for equal weights."""


B = TypeVar("B", bound=Weighed)


@dataclass(frozen=True)
class SurveyedRing:
    """A ring, and the segments that `Replay` last found in it."""

    ring: ExperienceRing
    own: bool  # whether the policy itself played these steps
    sequences: Integers  # by segment
    ends: Integers  # cumulative number of items, up to and including each segment
    # by segment, committed steps and ended pieces, if items are pieces
    counted: tuple[Integers, Integers]

    @staticmethod
    def of(ring: ExperienceRing, own: bool) -> SurveyedRing:
        sequences, ends, steps, pieces = np.zeros((4, ring.num_segments), np.int64)
        return SurveyedRing(ring, own, sequences, ends, (steps, pieces))


class Replay(ABC, Generic[B]):
    """Uniform replay of steps or pieces from the experience of a policy and of its group.

    An item is a step, or a piece if `draws_pieces`. Sampling never waits; if a writer overwrites an
    item during the copy, another item is drawn.
    """

    draws_pieces: ClassVar[bool] = False

    def __init__(
        self,
        sources: Sequence[Experience],
        n_steps: int,
        discount: float,
        rng: np.random.Generator,
        check_sequence: bool = True,
    ) -> None:
        """Draw from `sources`; the policy's own experience comes first."""
        self.experience = experience = sources[0]
        experience.warm_up()
        self.redrawn = 0  # draws repeated because a writer overwrote the item
        self._rng, self._check = rng, check_sequence
        self._n_steps, self.discount = n_steps, discount
        shape = experience.shape
        self._sizes: Integers = np.array(shape.choices or (shape.mask_size,), np.int64)
        self._held = tuple(
            SurveyedRing.of(ring, i == 0) for i, found in enumerate(sources) for ring in found.rings
        )
        self._survey()
        # Compile the kernels by a call that draws nothing.
        nothing: Bools = np.zeros(1, np.bool_)
        self._draw(np.zeros(1, np.int64), nothing, self.empty(1, 1), 0)

    @abstractmethod
    def empty(self, num_policies: int, size: int, weighed: bool = False) -> B:
        """Allocate `size` items of each of K policies, with weights if `weighed`."""

    def sample(self, out: B, policy: int, size: int, beta: float = 1.0) -> bool:  # noqa: ARG002
        """Draw items into row `policy` of a batch; return False if there are none."""
        todo: Bools = np.ones(size, np.bool_)
        left = size
        while left:
            total = self._survey()
            if total == 0:
                return False
            left = self._draw(self._rng.integers(0, total, size), todo, out, policy)
            self.redrawn += left
        return True

    def learn(self, errors: Floats) -> None:
        """Use the TD errors [B] of the last draw; uniform replay ignores them."""

    def forget(self) -> None:
        """Reset priorities when another policy takes over."""

    def state(self, whole: bool = False) -> State:  # noqa: ARG002
        return {"random": rng_state(self._rng), "redrawn": self.redrawn}

    def restore(self, state: State) -> None:
        restore_rng(self._rng, state["random"])
        self.redrawn = whole(state, "redrawn")

    @abstractmethod
    def _copy(
        self, held: SurveyedRing, picks: Integers, todo: Bools, out: B, policy: int, base: int
    ) -> int:
        """Copy picks of a ring whose first item is number `base`; return the overwritten count."""

    def _survey(self) -> int:
        total = 0
        for held in self._held:
            shared, found = held.ring.shared, (held.sequences, held.ends)
            counts = shared["sequence"], shared["committed"]
            if self.draws_pieces:
                total += _survey_pieces(*counts, shared["discounts"], *found, *held.counted)
            else:
                total += _survey(*counts, *found)
        return total

    def _draw(self, picks: Integers, todo: Bools, out: B, policy: int) -> int:
        """Copy the picks in `todo`; return how many were overwritten and stay True in `todo`."""
        left = base = 0
        for held in self._held:
            left += self._copy(held, picks, todo, out, policy, base)
            base += int(held.ends[-1])
        return left


@njit(cache=True)
def _survey(sequence: Integers, committed: Integers, sequences: Integers, ends: Integers) -> int:
    """Record sequences and cumulative numbers of steps."""
    total = 0
    for slot in range(sequence.size):
        sequences[slot] = load(sequence, slot)
        if sequences[slot] % 2 == 0:
            total += load(committed, slot)
        ends[slot] = total
    return total


@njit(cache=True)
def _survey_pieces(
    sequence: Integers,
    committed: Integers,
    discounts: Floats,
    sequences: Integers,
    ends: Integers,
    steps: Integers,
    pieces: Integers,
) -> int:
    """Record sequences and cumulative numbers of pieces.

    Count only what is new: `steps` and `pieces` are the committed steps of each segment at the last
    call, and the pieces that end with them.
    """
    total = 0
    for slot in range(sequence.size):
        found = load(sequence, slot)
        count = load(committed, slot) if found % 2 == 0 else 0
        if found != sequences[slot] or count < steps[slot]:
            steps[slot] = pieces[slot] = 0
        for t in range(steps[slot], count):
            pieces[slot] += discounts[slot, t] != 1.0
        sequences[slot], steps[slot] = found, count
        total += pieces[slot]
        if count > 0 and discounts[slot, count - 1] == 1.0:
            total += 1
        ends[slot] = total
    return total


@dataclass(frozen=True)
class Batch:
    """Transitions of K policies by time index: an action at t - 1 leads to the observation at t.

    An n-step transition sums the rewards of up to n steps, fewer at the end of an episode or of a
    segment.
    """

    s_tm1: Floats  # [K, B, n_frames * size] stacked observation
    # [K, B] action; a MultiDiscrete action is the index of its combination (the last component
    # varies fastest), or 0 if branching (one value per option of each component)
    a_tm1: Integers
    choices_tm1: Integers  # [K, B, C] components of the action if branching, else [K, B, 0]
    r_t: Floats  # [K, B] discounted sum of the following rewards
    # [K, B] factor of the value of s_t: discount ** n, or 0 if the episode terminated
    discount_t: Floats
    s_t: Floats  # [K, B, n_frames * size] stacked observation n steps later
    versions: Integers  # [K, B] version of the weights that chose a_tm1, or `OTHERS`
    allowed_tm1: Bools  # [K, B, A] actions allowed in s_tm1; A = 0: no masks
    # [K, B, A] actions allowed in s_t; all if the episode terminated. If no option of a component
    # is allowed, the agent does not act in s_t, and the component counts as unmasked.
    allowed_t: Bools
    weights: Floats  # [K, B] importance weights, or [K, 0]

    @staticmethod
    def empty(experience: Experience, num_policies: int, size: int, weighed: bool = False) -> Batch:
        """Allocate `size` samples of each policy, with weights if `weighed`."""
        at = (num_policies, size)
        width = experience.shape.num_inputs
        return Batch(
            s_tm1=np.zeros((*at, width), np.float32),
            a_tm1=np.zeros(at, np.int64),
            choices_tm1=experience.shape.empty_choices(at),
            r_t=np.zeros(at, np.float32),
            discount_t=np.zeros(at, np.float32),
            s_t=np.zeros((*at, width), np.float32),
            versions=np.zeros(at, np.int64),
            allowed_tm1=np.ones((*at, experience.shape.num_valued), np.bool_),
            allowed_t=np.ones((*at, experience.shape.num_valued), np.bool_),
            weights=np.ones((num_policies, size if weighed else 0), np.float32),
        )


@njit(cache=True)
def allow(
    masks: Bools, slot: int, t: int, sizes: Integers, branching: bool, allowed: Bools, b: int
) -> None:
    """Write the combinations that a mask allows, or each component's options if `branching`.

    A component of a MultiDiscrete action without an allowed option counts as unmasked.
    """
    for j in range(allowed.shape[1]):
        allowed[b, j] = True
    end, stride = masks.shape[2], 1
    for i in range(sizes.size - 1, -1, -1):
        begin, some = end - sizes[i], False
        for j in range(begin, end):
            some |= masks[slot, t, j]
        if some and branching:
            for j in range(begin, end):
                allowed[b, j] = masks[slot, t, j]
        elif some:
            for j in range(allowed.shape[1]):
                allowed[b, j] &= masks[slot, t, begin + j // stride % sizes[i]]
        end = begin
        stride *= sizes[i]


@njit(cache=True, inline="always")
def n_step_return(
    rewards: Floats, discounts: Floats, slot: int, t: int, end: int, discount: float
) -> tuple[float, float, int]:
    """Return the discounted rewards of steps t to `end` - 1, and the bootstrap's factor.

    Stop at the end of the episode; also return the step after the last one that is included.
    """
    total = 0.0
    factor = 1.0
    for i in range(t, end):
        total += factor * rewards[slot, i]
        factor *= discount * abs(discounts[slot, i])
        if discounts[slot, i] != 1.0:
            end = i + 1
            break
    return total, factor, end


@njit(cache=True)
def allow_next(
    discounts: Floats,
    masks: Bools,
    final_masks: Bools,
    slot: int,
    t: int,
    sizes: Integers,
    branching: bool,
    allowed: Bools,
    b: int,
) -> None:
    """Write what is allowed after step t, in the same episode; everything if it terminated."""
    if discounts[slot, t] == 0.0:
        allowed[b] = True
    elif discounts[slot, t] == TRUNCATED:
        allow(final_masks, slot, t, sizes, branching, allowed, b)
    else:
        allow(masks, slot, t + 1, sizes, branching, allowed, b)


@njit(cache=True, inline="always")
def write_action(
    actions: Array, slot: int, t: int, sizes: Integers, b: int, numbers: Integers, choices: Integers
) -> None:
    """Write the index of the action's combination, or its components if branching."""
    if choices.shape[1]:
        choices[b] = actions[slot, t]
        return
    action = 0
    for i in range(sizes.size):
        action = action * sizes[i] + actions[slot, t, i]
    numbers[b] = action


@njit(cache=True)
def _gather(
    ring: Observed,
    actions: Array,
    masks: Bools,
    final_masks: Bools,
    rewards: Floats,
    discounts: Floats,
    versions: Integers,
    sequence: Integers,
    sequences: Integers,
    ends: Integers,
    picks: Integers,
    todo: Bools,
    sizes: Integers,
    n_steps: int,
    discount: float,
    s_tm1: Floats,
    a_tm1: Integers,
    choices_tm1: Integers,
    r_t: Floats,
    discount_t: Floats,
    s_t: Floats,
    versions_out: Integers,
    allowed_tm1: Bools,
    allowed_t: Bools,
    base: int,
    own: bool,
    check: bool,
) -> int:
    """Copy the picks that belong to this ring, whose first step has number `base`.

    Return how many were overwritten during the copy; they stay True in `todo`.
    """
    left = 0
    for b in range(picks.size):
        pick = picks[b] - base
        if not todo[b] or pick < 0 or pick >= ends[-1]:
            continue
        slot = np.searchsorted(ends, pick, side="right")
        first = ends[slot - 1] if slot > 0 else 0
        t = pick - first
        end = min(t + n_steps, ends[slot] - first)
        r_t[b], discount_t[b], end = n_step_return(rewards, discounts, slot, t, end, discount)
        write_action(actions, slot, t, sizes, b, a_tm1, choices_tm1)
        versions_out[b] = versions[slot, t] if own else OTHERS
        write_observation(ring, slot, t, s_tm1, b)
        write_next_observation(ring, slot, end - 1, s_t, b)
        if allowed_t.shape[1]:
            branching = choices_tm1.shape[1] > 0
            allow(masks, slot, t, sizes, branching, allowed_tm1, b)
            allow_next(discounts, masks, final_masks, slot, end - 1, sizes, branching, allowed_t, b)
        fence_acquire()
        todo[b] = check and load(sequence, slot) != sequences[slot]
        left += todo[b]
    return left


# Names of arrays that `_gather` takes.
RING = ("actions", "masks", "final_masks", "rewards", "discounts", "versions", "sequence")
STEPS = ("s_tm1", "a_tm1", "choices_tm1", "r_t", "discount_t", "s_t", "versions")
WRITTEN = (*STEPS, "allowed_tm1", "allowed_t")


class TransitionReplay(Replay[Batch]):
    """Uniform replay of steps from the experience of a policy and of its group."""

    def empty(self, num_policies: int, size: int, weighed: bool = False) -> Batch:
        return Batch.empty(self.experience, num_policies, size, weighed)

    def _copy(
        self, held: SurveyedRing, picks: Integers, todo: Bools, out: Batch, policy: int, base: int
    ) -> int:
        experience, shared = self.experience, held.ring.shared
        arguments: list[Any] = [
            observed(held.ring, experience.shape),
            *[shared[name] for name in RING],
            *(held.sequences, held.ends, picks, todo),
            *(self._sizes, self._n_steps, self.discount),
            *[getattr(out, name)[policy] for name in WRITTEN],
            *(base, held.own, self._check),
        ]
        return _gather(*arguments)
