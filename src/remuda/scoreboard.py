"""The scoreboard: what every role counts, in shared memory, for the coordinator to read.

Counters grow, so the coordinator makes averages from differences, and a reading that is missed
loses nothing; only a learner that is restarted counts on from its checkpoint, and `Learn.RESTORED`
tells that there is no difference to be made. Extremes do not grow: an actor counts them anew in
each interval that the coordinator marks. Every row has one writer; a number is one aligned
64-bit word and is never seen half-written. Nothing here can block a role, and all of it survives
the role's death.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from remuda.checkpoint.fitting import COUNT, FINITE_64, fitting
from remuda.memory.atomic import fence_acquire, fence_release
from remuda.memory.shared import SharedArrays
from remuda.types import Integers, State

Row = npt.NDArray[np.float64]


NOTES, NOTE_WORDS = 4, 96
"""Notes of the environment that an actor may leave, and words of 8 bytes that each of them has."""


class Play(IntEnum):
    """What the actor counts, over all policies."""

    TURNS = 0
    """Turns played, over all copies."""
    AGENT_STEPS = 1
    WAITS = 2
    """Times the actor waited for a learner; only where the user set experience to `wait`."""
    WAIT_SECONDS = 3
    FORCED = 4
    """Waits that ended because a learner took nothing for its limit; it was waited for no more."""
    OVERTAKEN = 5
    """Snapshots whose copy was overtaken by a newer one, and thrown away."""
    SECONDS_WEIGHTS = 6
    """Seconds spent on looking for news and loading snapshots."""
    SECONDS_ENV = 7
    """Seconds spent in the environment."""
    SECONDS_INFER = 8
    """Seconds spent on choosing actions."""
    SECONDS_WRITE = 9
    """Seconds spent on writing experience and counting."""


class Policy(IntEnum):
    """What the actor counts for each policy."""

    EPISODES = 0
    RETURN_SUM = 1
    """Sum over finished episodes of the undiscounted return."""
    EPSILON = 2
    """The exploration rate it acts with now."""
    VERSION = 3
    """The version it acts with now."""
    TURNS_SUM = 4
    """Sum over finished episodes of their turns."""
    MARK = 5
    """The mark of the interval that all below is of; of another one it means nothing any more.
    It neither grows nor is saved: see `Scoreboard.mark`."""
    RETURNS = 6
    """Returns that were counted since the mark..."""
    FIRST = 7
    """...the first of them, from which the next two are taken, so that no digits are lost..."""
    ABOVE_SUM = 8
    """...the sum of how far the others are above it..."""
    ABOVE_SQUARES = 9
    """...and of the squares of that; the least and the greatest return."""
    LOW = 10
    HIGH = 11


class Facts(IntEnum):
    """What the actor counts of whole episodes; after these, the sum of each fact of the game."""

    EPISODES = 0


class Learn(IntEnum):
    """What a learner counts for its policy."""

    UPDATES = 0
    SAMPLES = 1
    LOSS_SUM = 2
    """Sum over updates of the mean loss of a batch."""
    VERSION = 3
    STALENESS_SUM = 4
    """Sum over updates of this version minus the mean version that acted in the batch."""
    REDRAWN = 5
    """Samples that were overwritten while they were copied, and were drawn again."""
    SECONDS_SAMPLE = 6
    SECONDS_UPDATE = 7
    SECONDS_PUBLISH = 8
    NONFINITE = 9
    """Updates whose loss or weights were not finite, and that were undone."""
    HALTED = 10
    """1 once there were too many of these in a row: the policy learns no more."""
    STALENESS_MAX = 11
    """The greatest staleness of any step that was trained on."""
    TRAINED = 12
    """On-policy: steps behind the weights, each counted once: those that were trained on, and whose
    update was not undone, nor forgotten because a learner went back to a checkpoint."""
    LOST = 13
    """On-policy: steps that are not behind the weights and wait no more: overwritten, too old, or
    not brought along by a resumed run; or their update was undone, or forgotten with a learner that
    died."""
    ENTROPY_SUM = 14
    """On-policy: sum over updates of the policy's mean entropy, in nats."""
    KL_SUM = 15
    """On-policy: sum over updates of how far the policy moved, in nats."""
    CLIPPED_SUM = 16
    """On-policy: sum over updates of the share of steps whose ratio was clipped."""
    STALENESS_LOW_SUM = 17
    """Sum over updates of the least staleness in a batch..."""
    STALENESS_HIGH_SUM = 18
    """...and of the greatest."""
    EFFECTIVE_SUM = 19
    """On-policy: sum over updates of the effective share of their steps."""
    POLICY_LOSS_SUM = 20
    """On-policy: sum over updates of what of the loss is the policy's own..."""
    VALUE_LOSS_SUM = 21
    """...and of the values' error, before its weight."""
    OTHERS_SUM = 22
    """Sum over updates of the share of their steps that others of the group chose."""
    OTHERS_STEPS = 23
    """On-policy: those steps, each counted once in an update..."""
    OTHERS_WEIGHT_SUM = 24
    """...and the sum of what they weigh in it."""
    ACCEPTED = 25
    """Updates behind the sums over updates, with those that a later one took back."""
    RESTORED = 26
    """Grows whenever another learner begins to count here, or one goes back to a saved state; odd
    while all the other counts are written anew. Only within a session it means anything."""
    GRADIENT_NORM_SUM = 27
    """Sum over updates of the gradient's norm before it was cut."""
    EXPLAINED_SUM = 28
    """On-policy: sum of the explained variance of the values, over the updates that have one..."""
    EXPLAINED_UPDATES = 29
    """...and how many these are: where all targets are equal there is nothing to explain."""
    VALUE_SUM = 30
    """Off-policy: sum over updates of the mean value of the actions in a batch."""
    LEARNING_RATE = 31
    """Of the last update; before it, that of the first."""
    ENTROPY_COST = 32
    """What the entropy weighs in the loss now, with algorithms that know of it."""


POLICY_COUNTS = (Policy.EPISODES, Policy.EPSILON, Policy.VERSION, Policy.TURNS_SUM)
"""Columns that are 0 or more; the others are sums of anything."""
LEARN_COUNTS = (
    *(Learn.UPDATES, Learn.SAMPLES, Learn.VERSION, Learn.REDRAWN, Learn.SECONDS_SAMPLE),
    *(Learn.SECONDS_UPDATE, Learn.SECONDS_PUBLISH, Learn.NONFINITE, Learn.HALTED, Learn.TRAINED),
    *(Learn.LOST, Learn.OTHERS_STEPS, Learn.ACCEPTED, Learn.RESTORED, Learn.EXPLAINED_UPDATES),
)


class Scoreboard:
    """A row for each actor, one of each actor for each policy, and one of each policy's learner."""

    def __init__(
        self, policies: tuple[str, ...], num_actors: int = 1, facts: tuple[str, ...] = ()
    ) -> None:
        self.policies, self.num_actors, self.fact_names = policies, num_actors, facts
        self._shared = SharedArrays(
            {
                "play": ((num_actors, len(Play)), np.float64),
                "policy": ((num_actors, len(policies), len(Policy)), np.float64),
                "learn": ((len(policies), len(Learn)), np.float64),
                "facts": ((num_actors, len(Facts) + 2 * len(facts)), np.float64),
                "mark": ((1,), np.float64),
                "notes": ((num_actors, NOTES, NOTE_WORDS), np.int64),
            }
        )
        self.mark_interval()  # rows begin with zero, which is no mark

    @property
    def arrays(self) -> SharedArrays:
        """`play`, `policy`, `learn`, `facts` and `notes`, by row, and `mark`."""
        return self._shared

    def state(self) -> State:
        """All rows as they are now, those of the actors added up."""
        metrics = len(Facts) + len(self.fact_names)
        return {
            "play": self.played(),
            "policy": self.all_acted(),
            "learn": self._shared["learn"].copy(),
            "facts": self.told()[:metrics],
            "facts_told": self.told()[metrics:],
        }

    def restore(self, state: State) -> None:
        """Count on from what `state` returned; before any role begins.

        The first actor counts on, whatever the number of actors was.
        """
        shared, metrics = self._shared, len(Facts) + len(self.fact_names)
        facts, acted = shared["facts"][0], shared["policy"][0][:, : Policy.MARK]
        shared["play"][0] = fitting(state, "play", shared["play"][0], COUNT)
        facts[:metrics] = fitting(state, "facts", facts[:metrics], FINITE_64)
        facts[metrics:] = fitting(state, "facts_told", facts[metrics:], COUNT)
        acted[...] = fitting(state, "policy", acted, COUNT, POLICY_COUNTS)
        shared["learn"][...] = fitting_learned(state, "learn", shared["learn"])

    def play(self, actor: int = 0) -> Row:
        """An actor's row, by `Play`."""
        row: Row = self._shared["play"][actor]
        return row

    def policy(self, name: str, actor: int = 0) -> Row:
        """An actor's row of one policy, by `Policy`."""
        row: Row = self._shared["policy"][actor, self.policies.index(name)]
        return row

    def policies_of(self, actor: int = 0) -> Row:
        """An actor's rows of all policies, [policies, fields by `Policy`]."""
        rows: Row = self._shared["policy"][actor]
        return rows

    @property
    def mark(self) -> Row:
        """One word of the coordinator's: the interval that extremes of returns are counted in.

        [1]. They do not grow, so no difference tells of an interval. An actor that finds another
        mark than that of its row begins the row's extremes anew; one that looked just before may
        count an episode into an interval that is over, where nothing reads it.
        """
        word: Row = self._shared["mark"]
        return word

    def mark_interval(self) -> None:
        """Let extremes of returns be counted anew from now on; the coordinator alone does so."""
        self._shared["mark"][0] += 1.0

    def policy_rows(self) -> Row:
        """A copy of what all actors count: [actors, policies, fields by `Policy`]."""
        rows: Row = self._shared["policy"].copy()
        return rows

    def facts(self, actor: int = 0) -> Row:
        """An actor's row of whole episodes.

        By `Facts`; then by the game's own facts their sums, and in how many each was told.
        """
        row: Row = self._shared["facts"][actor]
        return row

    def note(self, key: str, text: str, actor: int = 0) -> None:
        """Tell the coordinator what an actor's environment noted; once by key, and a few keys.

        The last word of a note is its length, written once the text is there.
        """
        rows = self._shared["notes"][actor]
        found = [_note_in(row) for row in rows]
        if None not in found or any(each and each[0] == key for each in found):
            return
        row = rows[found.index(None)]
        told = f"{key}\n{text}".encode()[: 8 * (NOTE_WORDS - 1)]
        row.view(np.uint8)[: len(told)] = np.frombuffer(told, np.uint8)
        fence_release()
        row[-1] = len(told)

    def notes(self) -> dict[str, str]:
        """What environments noted, by key; of several actors that noted the same, the first."""
        found: dict[str, str] = {}
        for row in self._shared["notes"].reshape(-1, NOTE_WORDS):
            note = _note_in(row)
            if note is not None:
                found.setdefault(*note)
        return found

    def told(self) -> Row:
        """The rows of all actors' episodes added up."""
        total: Row = self._shared["facts"].sum(0)
        return total

    def turns(self) -> float:
        """Turns played by all actors."""
        turns: list[float] = self._shared["play"][:, Play.TURNS].tolist()
        return sum(turns)

    def most_steps(self, num_agents: int) -> int:
        """The most steps that a policy can have lived through so far.

        Each agent decides at most once in a turn. Actors on other nodes are counted a little late.
        """
        return 2 * int(self.turns()) * max(num_agents, 1) + 1_000_000

    def played(self) -> Row:
        """The rows of all actors added up, by `Play`."""
        total: Row = self._shared["play"].sum(0)
        return total

    def all_acted(self) -> Row:
        """`acted` of every policy: [policies, fields by `Policy` before `MARK`]."""
        return added_up(self._shared["policy"])

    def all_learned(self) -> Row:
        """A copy of every learner's row: [policies, fields by `Learn`].

        `Learn.RESTORED` is NaN where the row was being written anew meanwhile, by a learner that
        lives or one that died there, so that it equals no other.
        """
        shared = self._shared["learn"]
        before = shared[:, Learn.RESTORED].copy()
        fence_acquire()
        rows: Row = shared.copy()
        fence_acquire()
        after = shared[:, Learn.RESTORED].copy()
        rows[:, Learn.RESTORED] = np.where(
            (before == after) & (before % 2.0 == 0.0), before, np.nan
        )
        return rows

    def acted(self, name: str) -> Row:
        """The actors' rows of one policy added up, by `Policy` before `MARK`."""
        return added_up(self._shared["policy"][:, self.policies.index(name)])

    def learn(self, name: str) -> Row:
        """The learner's row of one policy, by `Learn`."""
        row: Row = self._shared["learn"][self.policies.index(name)]
        return row


def _note_in(row: Integers) -> tuple[str, str] | None:
    """Return the key and text of a note; None: there is none."""
    length = int(row[-1])
    if not 0 < length <= 8 * (NOTE_WORDS - 1):
        return None
    fence_acquire()
    key, _, text = bytes(row.view(np.uint8)[:length]).decode(errors="ignore").partition("\n")
    return key, text


def added_up(rows: Row) -> Row:
    """Rows [actors, ..., fields by `Policy`] added up, without what is of an interval.

    What is no sum is the first actor's: the exploration rate and the version.
    """
    total: Row = rows[..., : Policy.MARK].sum(0)
    kept = [Policy.EPSILON, Policy.VERSION]
    total[..., kept] = rows[0][..., kept]
    return total


def count_on(row: Row, counts: Row) -> None:
    """Let a learner's row go on from saved counts, so that readers see it.

    `Learn.RESTORED` is odd meanwhile; if the process dies there, its successor makes it even.
    """
    row[Learn.RESTORED] += 1.0 - row[Learn.RESTORED] % 2.0
    fence_release()
    counts = np.array(counts)
    counts[Learn.RESTORED] = row[Learn.RESTORED]
    row[:] = counts
    fence_release()
    row[Learn.RESTORED] += 1.0


def fitting_learned(state: State, name: str, like: Row) -> Row:
    """The counts `name` of a state, of one learner or of several."""
    return fitting(state, name, like, COUNT, LEARN_COUNTS)
