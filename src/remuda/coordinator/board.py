"""From the scoreboard's counters to records: two readings, and what happened between them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from remuda.coordinator.metrics import MemberRecord, PolicyRecord, Record
from remuda.experience.experience import Experience
from remuda.population.records import GAMES, MEETINGS, RATING, REWARD, UNCERTAINTY, WINS
from remuda.population.table import MATCHES, MemberRow, Table
from remuda.scoreboard import Facts, Learn, Play, Policy, Row, Scoreboard

SHARES = {
    "env": Play.SECONDS_ENV,
    "infer": Play.SECONDS_INFER,
    "write": Play.SECONDS_WRITE,
    "weights": Play.SECONDS_WEIGHTS,
    "wait": Play.WAIT_SECONDS,
}


@dataclass(frozen=True)
class Reading:
    """All counters at one moment."""

    time: float
    """Seconds on a clock that never goes back."""
    play: Row
    policy: Row
    """[policies, fields by `Policy`]."""
    learn: Row
    """[policies, fields by `Learn`]."""
    facts: Row


ORDER = [field.name for field in fields(PolicyRecord)]
FEW = 100
"""So many frozen copies stand in every record; more of them only in those that are asked for."""


class Board:
    """Reads the counters of a run, several times a second: what it does is linear in the policies.

    It goes on when the board is made, after `seconds` of play in earlier sessions.
    """

    def __init__(
        self,
        scoreboard: Scoreboard,
        experience: Mapping[str, Experience],
        seconds: float = 0.0,
        table: Table | None = None,
    ) -> None:
        self._scoreboard, self._experience, self._table = scoreboard, experience, table
        self.earlier = seconds
        self.start = self.read()

    def read(self) -> Reading:
        """The counters as they are now."""
        board = self._scoreboard
        return Reading(
            time.perf_counter(),
            board.played(),
            board.all_acted(),
            board.all_learned(),
            board.told(),
        )

    def seconds(self, reading: Reading) -> float:
        """Seconds of play until a reading, with those of earlier sessions."""
        return self.earlier + reading.time - self.start.time

    def between(self, earlier: Reading, later: Reading, whole: bool = False) -> Record:
        """What happened between two readings; totals are those of the later.

        Args:
            earlier: the first.
            later: the second.
            whole: with all frozen copies, however many there are.
        """
        seconds = max(later.time - earlier.time, 1e-9)
        play = later.play
        change = play - earlier.play
        return Record(
            seconds=self.seconds(later),
            turns=int(play[Play.TURNS]),
            agent_steps=int(play[Play.AGENT_STEPS]),
            turns_per_second=float(change[Play.TURNS] / seconds),
            agent_steps_per_second=float(change[Play.AGENT_STEPS] / seconds),
            waits=int(play[Play.WAITS]),
            wait_seconds=float(play[Play.WAIT_SECONDS]),
            overtaken=int(play[Play.OVERTAKEN]),
            shares={
                name: float(change[field] / seconds / self._scoreboard.num_actors)
                for name, field in SHARES.items()
            },
            policies=self._policies(earlier, later, seconds),
            facts={
                name: _mean(later.facts - earlier.facts, len(Facts) + i, Facts.EPISODES)
                for i, name in enumerate(self._scoreboard.fact_names)
            },
            members=self._members(whole),
            frozen=self._table.frozen if self._table is not None else 0,
            matches=self._table.word(MATCHES) if self._table is not None else 0,
        )

    def _members(self, whole: bool) -> dict[str, MemberRecord]:
        """Of the population, as they are now: those that learn, and not too many frozen copies."""
        if self._table is None:
            return {}
        rows = self._table.rows(whole or self._table.frozen <= FEW)
        return {str(row[0]): member_record(row, self._table) for row in rows}

    def _policies(
        self, earlier: Reading, later: Reading, seconds: float
    ) -> dict[str, PolicyRecord]:
        """By name. Worked out for all policies at once, a column for each of a record's numbers."""
        names = self._scoreboard.policies
        rings = [self._experience[name] for name in names]
        policy, learn = later.policy, later.learn
        played, learned = policy - earlier.policy, learn - earlier.learn
        # Of a learner that was restored in between, the two readings are of two histories.
        known = learned[:, Learn.RESTORED] == 0.0
        learned[~known] = 0.0
        busy = learned[:, Learn.SECONDS_SAMPLE : Learn.SECONDS_PUBLISH + 1].sum(1) / seconds
        written, samples = [ring.written for ring in rings], learn[:, Learn.SAMPLES].tolist()
        begun = [
            steps - (0 if ring.rollout else ring.config.learning_starts)
            for steps, ring in zip(written, rings, strict=True)
        ]

        def rates(values: Row) -> list[float | None]:
            return [x if k else None for x, k in zip(values.tolist(), known.tolist(), strict=True)]

        def total(field: Learn) -> list[int]:
            numbers: list[int] = learn[:, field].astype(np.int64).tolist()
            return numbers

        def update(field: Learn) -> list[float | None]:
            return _means(learned[:, field], learned[:, Learn.ACCEPTED])

        def on_policy(field: Learn) -> list[float | None]:
            means = update(field)
            return [m if r.rollout else None for m, r in zip(means, rings, strict=True)]

        columns: dict[str, Sequence[Any]] = {
            "mean_return": _means(played[:, Policy.RETURN_SUM], played[:, Policy.EPISODES]),
            "episodes": policy[:, Policy.EPISODES].astype(np.int64).tolist(),
            "loss": update(Learn.LOSS_SUM),
            "policy_loss": on_policy(Learn.POLICY_LOSS_SUM),
            "value_loss": on_policy(Learn.VALUE_LOSS_SUM),
            "updates": total(Learn.UPDATES),
            "updates_per_second": rates(np.maximum(learned[:, Learn.UPDATES] / seconds, 0.0)),
            "version": total(Learn.VERSION),
            "staleness": update(Learn.STALENESS_SUM),
            "steps": written,
            "replay_fill": [ring.fill for ring in rings],
            "replay_ratio": [n / m if m > 0 else None for n, m in zip(samples, begun, strict=True)],
            "redrawn": total(Learn.REDRAWN),
            "behind": [_behind(*each) for each in zip(rings, written, learn, strict=True)],
            "trained": total(Learn.TRAINED),
            "lost": [_lost(*each) for each in zip(rings, written, learn, strict=True)],
            "effective": on_policy(Learn.EFFECTIVE_SUM),
            "others": update(Learn.OTHERS_SUM),
            "others_weight": _means(
                learned[:, Learn.OTHERS_WEIGHT_SUM], learned[:, Learn.OTHERS_STEPS]
            ),
            "staleness_low": update(Learn.STALENESS_LOW_SUM),
            "staleness_high": update(Learn.STALENESS_HIGH_SUM),
            "staleness_max": total(Learn.STALENESS_MAX),
            "entropy": on_policy(Learn.ENTROPY_SUM),
            "kl": on_policy(Learn.KL_SUM),
            "batch": _means(learned[:, Learn.SAMPLES], learned[:, Learn.UPDATES]),
            "clipped": on_policy(Learn.CLIPPED_SUM),
            "epsilon": policy[:, Policy.EPSILON].tolist(),
            "busy": rates(busy),
            "nonfinite": total(Learn.NONFINITE),
            "halted": (learn[:, Learn.HALTED] != 0).tolist(),
        }
        rows = zip(*(columns[name] for name in ORDER), strict=True)
        return {name: PolicyRecord(*row) for name, row in zip(names, rows, strict=True)}


def member_record(row: MemberRow, table: Table) -> MemberRecord:
    """A member of a population, from its row of the table."""
    ref, parent, born, place, numbers = row
    return MemberRecord(
        int(numbers[GAMES]),
        numbers[REWARD] / numbers[GAMES] if numbers[GAMES] else None,
        numbers[RATING],
        numbers[UNCERTAINTY],
        not ref.is_frozen,
        numbers[WINS] / numbers[MEETINGS] if numbers[MEETINGS] else None,
        None if parent is None else str(parent),
        born,
        {} if ref.is_frozen else table.hyperparameters(place),
    )


def _behind(experience: Experience, written: int, learn: Row) -> int | None:
    """Steps that were collected, and that the learner has not trained on yet."""
    if experience.rollout:
        passed = experience.passed  # with what it has taken, and trains on now or in a later piece
        training = 0 if passed is None else int(passed - learn[Learn.TRAINED] - learn[Learn.LOST])
        return experience.untaken + max(training, 0)
    ratio = experience.config.replay_ratio
    if ratio is None:
        return None
    paid = int(learn[Learn.SAMPLES] / ratio) + experience.config.learning_starts
    begins = experience.lost + experience.config.learning_starts
    return max(written - max(begins, paid), 0)


def _lost(experience: Experience, written: int, learn: Row) -> int:
    """On-policy: steps that nobody trained on; all that come once a policy learns no more."""
    if experience.rollout and learn[Learn.HALTED]:
        return int(written - learn[Learn.TRAINED])
    return int(learn[Learn.LOST])


def _mean(change: Row, total: int, count: int) -> float | None:
    """The mean over an interval; None where nothing was counted."""
    return float(change[total] / change[count]) if change[count] > 0 else None


def _means(totals: Row, counts: Row) -> list[float | None]:
    """`_mean` of many."""
    counted = counts > 0
    means = np.divide(totals, counts, out=np.zeros_like(totals), where=counted)
    return [m if c else None for m, c in zip(means.tolist(), counted.tolist(), strict=True)]
