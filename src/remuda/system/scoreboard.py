"""The scoreboard: counters of all processes in shared memory, for the coordinator to read.

Counters grow, so the coordinator computes averages from differences, and a missed reading loses
nothing. The exception is a restarted learner, which continues from its checkpoint's counts:
`Learn.RESTORED` then shows that differences are invalid. The lowest and highest returns are of one
interval: an actor resets them when the coordinator starts the next interval. Every row has one
writer; a number is one aligned 64-bit word, so no process reads it half written. Nothing here
blocks a process, and the counters survive its death.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from remuda.system.checkpoint.fitting import COUNT, FINITE_64, fitting
from remuda.system.memory.atomic import fence_acquire, fence_release
from remuda.system.memory.shared import SharedArrays
from remuda.types import Integers, State

Row = npt.NDArray[np.float64]

NOTES, NOTE_WORDS = 4, 96
"""Maximum number of an actor's notes about its environment, and the 8-byte words of a note."""


class Play(IntEnum):
    """Counters of the actor over all policies."""

    TURNS = 0  # turns played, over all copies
    AGENT_STEPS = 1
    WAITS = 2  # times the actor waited for a learner; only with `on_full: wait`
    WAIT_SECONDS = 3
    FORCED = 4  # waits that ended because a learner consumed no steps within its limit
    OVERTAKEN = 5  # copies of weights discarded because newer weights overwrote their source
    SECONDS_WEIGHTS = 6  # seconds spent on polling and loading snapshots
    SECONDS_ENV = 7
    SECONDS_INFER = 8
    SECONDS_WRITE = 9


class Policy(IntEnum):
    """Counters of the actor for each policy."""

    EPISODES = 0
    RETURN_SUM = 1  # sum over finished episodes of the undiscounted return
    EPSILON = 2
    VERSION = 3
    TURNS_SUM = 4
    MARK = 5
    """The interval that the columns below describe (`Scoreboard.mark`). They are invalid after this
    interval, and are not saved."""
    RETURNS = 6  # number of returns in the interval
    FIRST = 7
    """The first return of the interval. The next two columns are relative to it, for precision."""
    ABOVE_SUM = 8  # sum of the returns' differences from `FIRST`
    ABOVE_SQUARES = 9  # sum of the squares of these differences
    LOW = 10  # lowest return
    HIGH = 11  # highest return


class EpisodeTotals(IntEnum):
    """Counters of whole episodes; the sums and counts of episode metrics follow in the row."""

    EPISODES = 0


class Learn(IntEnum):
    """Counters of a policy's learner."""

    UPDATES = 0
    SAMPLES = 1
    LOSS_SUM = 2
    VERSION = 3
    STALENESS_SUM = 4
    """Sum over updates of the learner's version minus the mean version that acted in the batch."""
    REDRAWN = 5
    SECONDS_SAMPLE = 6
    SECONDS_UPDATE = 7
    SECONDS_PUBLISH = 8
    NONFINITE = 9  # updates undone because the loss or a weight was not finite
    HALTED = 10  # 1 after too many undone updates in a row: the policy has stopped learning
    STALENESS_MAX = 11  # the largest staleness of any step that was trained on
    TRAINED = 12
    """On-policy: steps that the weights were trained on, each counted once. Updates that were
    undone, or lost by a return to a checkpoint, do not count."""
    LOST = 13
    """On-policy: steps that are neither trained on nor pending: overwritten, too old, not restored
    by a resume, or in an update that was undone or lost with a dead learner."""
    ENTROPY_SUM = 14  # sum over `ACTOR_UPDATES` of the policy's mean entropy, in nats
    KL_SUM = 15  # on-policy: sum over updates of the KL divergence from the old policy, in nats
    CLIPPED_SUM = 16  # on-policy: sum over updates of the share of clipped steps
    STALENESS_LOW_SUM = 17  # sum over updates of the smallest staleness in a batch...
    STALENESS_HIGH_SUM = 18
    """...and of the largest."""
    EFFECTIVE_SUM = 19  # on-policy: sum over updates of effective sample size as a share of steps
    POLICY_LOSS_SUM = 20  # sum over `ACTOR_UPDATES` of the policy loss...
    VALUE_LOSS_SUM = 21
    """...and of the value loss, unweighted."""
    OTHERS_SUM = 22
    """Sum over updates of the share of steps that other policies of `experience.group` played."""
    OTHERS_STEPS = 23  # on-policy: number of those steps, each counted once in an update
    OTHERS_WEIGHT_SUM = 24  # on-policy: sum of the weights of those steps
    ACCEPTED = 25  # number of updates in the sums over updates, including those undone later
    RESTORED = 26
    """Grows whenever another learner process starts to count here, or returns to a saved state; odd
    while all other counts are rewritten. Only meaningful within a session."""
    GRADIENT_NORM_SUM = 27
    EXPLAINED_SUM = 28
    """On-policy: sum of the explained variance of the values, over the updates that have one..."""
    EXPLAINED_UPDATES = 29
    """...and their number: an update whose targets have no variance has none."""
    VALUE_SUM = 30  # off-policy: sum over updates of the mean value of the actions in a batch
    LEARNING_RATE = 31  # learning rate of the last update, or of the first if none is done yet
    ENTROPY_COST = 32  # current weight of the entropy in the loss, if the algorithm has one
    ACTOR_UPDATES = 33  # accepted updates of a policy with an actor beside its value or critics
    TEMPERATURE_SUM = 34
    """SAC: sum of the temperature over the accepted updates..."""
    TEMPERATURES = 35
    """...and their number."""


POLICY_COUNTS = (Policy.EPISODES, Policy.EPSILON, Policy.VERSION, Policy.TURNS_SUM)
"""Non-negative columns; the others are sums of any sign."""
LEARN_COUNTS = (
    *(Learn.UPDATES, Learn.SAMPLES, Learn.VERSION, Learn.REDRAWN, Learn.SECONDS_SAMPLE),
    *(Learn.SECONDS_UPDATE, Learn.SECONDS_PUBLISH, Learn.NONFINITE, Learn.HALTED, Learn.TRAINED),
    *(Learn.LOST, Learn.OTHERS_STEPS, Learn.ACCEPTED, Learn.RESTORED, Learn.EXPLAINED_UPDATES),
    *(Learn.ACTOR_UPDATES, Learn.TEMPERATURES),
)


class Scoreboard:
    """Rows of counters: one per actor, one per actor and policy, and one per policy's learner.

    If an actor or a learner dies, its numbers remain. The extremes of returns may lack the episode
    that a dead actor was counting. Only the coordinator writes `mark`; its children end with it.
    """

    def __init__(
        self, policies: tuple[str, ...], num_actors: int = 1, episode_metrics: tuple[str, ...] = ()
    ) -> None:
        self.policies, self.num_actors, self.episode_metrics = policies, num_actors, episode_metrics
        totals = len(EpisodeTotals) + 2 * len(episode_metrics)
        self.arrays = SharedArrays(
            {
                "play": ((num_actors, len(Play)), np.float64),
                "policy": ((num_actors, len(policies), len(Policy)), np.float64),
                "learn": ((len(policies), len(Learn)), np.float64),
                "episode_totals": ((num_actors, totals), np.float64),
                "mark": ((1,), np.float64),
                "notes": ((num_actors, NOTES, NOTE_WORDS), np.int64),
            }
        )
        self.mark_interval()  # rows start with interval zero, which is never the current one

    def state(self) -> State:
        """Return all rows, with those of the actors added up."""
        metrics, totals = len(EpisodeTotals) + len(self.episode_metrics), self.all_episode_totals()
        return {
            "play": self.played(),
            "policy": self.all_acted(),
            "learn": self.arrays["learn"].copy(),
            "episode_totals": totals[:metrics],
            "metric_counts": totals[metrics:],
        }

    def restore(self, state: State) -> None:
        """Continue from the result of `state`, before any process starts.

        The first actor's row continues the sums of all earlier actors.
        """
        arrays, metrics = self.arrays, len(EpisodeTotals) + len(self.episode_metrics)
        totals, acted = arrays["episode_totals"][0], arrays["policy"][0][:, : Policy.MARK]
        arrays["play"][0] = fitting(state, "play", arrays["play"][0], COUNT)
        totals[:metrics] = fitting(state, "episode_totals", totals[:metrics], FINITE_64)
        totals[metrics:] = fitting(state, "metric_counts", totals[metrics:], COUNT)
        acted[...] = fitting(state, "policy", acted, COUNT, POLICY_COUNTS)
        learn = arrays["learn"]
        learn[...] = fitting(state, "learn", learn, COUNT, LEARN_COUNTS)

    def play(self, actor: int = 0) -> Row:
        """Return an actor's row, by `Play`."""
        return self.arrays["play"][actor]

    def policy(self, name: str, actor: int = 0) -> Row:
        """Return an actor's row of one policy, by `Policy`."""
        return self.policies_of(actor)[self.policies.index(name)]

    def policies_of(self, actor: int = 0) -> Row:
        """Return an actor's rows of all policies, [policies, fields by `Policy`]."""
        return self.arrays["policy"][actor]

    @property
    def mark(self) -> Row:
        """The number of the current interval of return extremes: [1], written by the coordinator.

        An actor whose row has another number resets the row's extremes. If it checked just before a
        change, it may count an episode in the old interval, which is not read again.
        """
        return self.arrays["mark"]

    def mark_interval(self) -> None:
        """Start an interval of return extremes; for the coordinator."""
        self.mark[0] += 1.0

    def episode_totals(self, actor: int = 0) -> Row:
        """Return an actor's row of whole episodes.

        Columns by `EpisodeTotals`, then the sums of episode metrics, and the number of episodes in
        which each had a value.
        """
        return self.arrays["episode_totals"][actor]

    def note(self, key: str, text: str, actor: int = 0) -> None:
        """Leave a note about an actor's environment: once per key, for at most `NOTES` keys.

        The last word of a note is its length, written after the text.
        """
        rows = self.arrays["notes"][actor]
        notes = [_note_in(row) for row in rows]
        if None not in notes or any(note and note[0] == key for note in notes):
            return
        row = rows[notes.index(None)]
        data = f"{key}\n{text}".encode()[: 8 * (NOTE_WORDS - 1)]
        row.view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
        fence_release()
        row[-1] = len(data)

    def notes(self) -> dict[str, str]:
        """Return the environments' notes by key; the first actor with a key decides."""
        notes: dict[str, str] = {}
        for row in self.arrays["notes"].reshape(-1, NOTE_WORDS):
            if (note := _note_in(row)) is not None:
                notes.setdefault(*note)
        return notes

    def all_episode_totals(self) -> Row:
        """Return the rows of all actors' episodes added up."""
        return self.arrays["episode_totals"].sum(0)

    def turns(self) -> float:
        return sum(self.arrays["play"][:, Play.TURNS].tolist())

    def played(self) -> Row:
        """Return the rows of all actors added up, by `Play`."""
        return self.arrays["play"].sum(0)

    def all_acted(self) -> Row:
        """Return the actors' rows added up: [policies, fields by `Policy` before `MARK`]."""
        return added_up(self.arrays["policy"])

    def all_learned(self) -> Row:
        """Return a copy of every learner's row: [policies, fields by `Learn`].

        `Learn.RESTORED` is NaN if the row was being rewritten by a live or dead learner, so that it
        equals no other.
        """
        shared = self.arrays["learn"]
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
        """Return the actors' rows of one policy added up, by `Policy` before `MARK`."""
        return added_up(self.arrays["policy"][:, self.policies.index(name)])

    def learn(self, name: str) -> Row:
        """Return the learner's row of one policy, by `Learn`."""
        return self.arrays["learn"][self.policies.index(name)]


def _note_in(row: Integers) -> tuple[str, str] | None:
    length = int(row[-1])
    if not 0 < length <= 8 * (NOTE_WORDS - 1):
        return None
    fence_acquire()
    key, _, text = bytes(row.view(np.uint8)[:length]).decode(errors="ignore").partition("\n")
    return key, text


def added_up(rows: Row) -> Row:
    """Add up rows [actors, ..., fields by `Policy`], without the columns of an interval.

    The exploration rate and the version are the first actor's.
    """
    total: Row = rows[..., : Policy.MARK].sum(0)
    of_first = [Policy.EPSILON, Policy.VERSION]
    total[..., of_first] = rows[0][..., of_first]
    return total


def count_on(row: Row, counts: Row) -> None:
    """Let a learner's row continue from saved counts, so that readers notice.

    `Learn.RESTORED` is odd during the write; if the process dies then, its successor makes it even.
    """
    row[Learn.RESTORED] += 1.0 - row[Learn.RESTORED] % 2.0
    fence_release()
    counts = np.array(counts)
    counts[Learn.RESTORED] = row[Learn.RESTORED]
    row[:] = counts
    fence_release()
    row[Learn.RESTORED] += 1.0
