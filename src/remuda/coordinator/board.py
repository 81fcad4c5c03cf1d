"""From the scoreboard's counters to records: two readings, and what happened between them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from remuda.coordinator.metrics import MemberRecord, PolicyRecord, Record
from remuda.experience.experience import Experience
from remuda.population.records import GAMES, MEETINGS, RATING, REWARD, UNCERTAINTY, WINS
from remuda.population.table import MATCHES, Table
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
        self._scoreboard, self._experience, self._seconds = scoreboard, experience, seconds
        self._table = table
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
            seconds=self._seconds + later.time - self.start.time,
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
            policies={
                name: self._policy(i, name, earlier, later, seconds)
                for i, name in enumerate(self._scoreboard.policies)
            },
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
        whole = whole or self._table.frozen <= FEW
        return {
            str(ref): MemberRecord(
                int(numbers[GAMES]),
                numbers[REWARD] / numbers[GAMES] if numbers[GAMES] else None,
                numbers[RATING],
                numbers[UNCERTAINTY],
                not ref.is_frozen,
                numbers[WINS] / numbers[MEETINGS] if numbers[MEETINGS] else None,
                None if parent is None else str(parent),
                born,
                {} if ref.is_frozen else self._table.hyperparameters(place),
            )
            for ref, parent, born, place, numbers in self._table.rows(whole)
        }

    def _policy(
        self, number: int, name: str, earlier: Reading, later: Reading, seconds: float
    ) -> PolicyRecord:
        experience = self._experience[name]
        # As lists: a number of an array costs as much to take out as ten of these.
        policy, learn = later.policy[number].tolist(), later.learn[number].tolist()
        played = (later.policy[number] - earlier.policy[number]).tolist()
        learned = (later.learn[number] - earlier.learn[number]).tolist()
        busy = sum(learned[Learn.SECONDS_SAMPLE : Learn.SECONDS_PUBLISH + 1])
        written, on_policy = experience.written, experience.rollout > 0
        trained_from = written - (0 if on_policy else experience.config.learning_starts)
        return PolicyRecord(
            mean_return=_mean(played, Policy.RETURN_SUM, Policy.EPISODES),
            episodes=int(policy[Policy.EPISODES]),
            loss=_mean(learned, Learn.LOSS_SUM, Learn.UPDATES),
            policy_loss=_mean(learned, Learn.POLICY_LOSS_SUM, Learn.UPDATES) if on_policy else None,
            value_loss=_mean(learned, Learn.VALUE_LOSS_SUM, Learn.UPDATES) if on_policy else None,
            updates=int(learn[Learn.UPDATES]),
            updates_per_second=max(float(learned[Learn.UPDATES] / seconds), 0.0),
            version=int(learn[Learn.VERSION]),
            staleness=_mean(learned, Learn.STALENESS_SUM, Learn.UPDATES),
            steps=written,
            replay_fill=experience.fill,
            replay_ratio=float(learn[Learn.SAMPLES] / trained_from) if trained_from > 0 else None,
            redrawn=int(learn[Learn.REDRAWN]),
            behind=_behind(experience, written, learn[Learn.SAMPLES]),
            trained=int(learn[Learn.TRAINED]),
            lost=int(learn[Learn.LOST]),
            effective=_mean(learned, Learn.EFFECTIVE_SUM, Learn.UPDATES) if on_policy else None,
            staleness_low=_mean(learned, Learn.STALENESS_LOW_SUM, Learn.UPDATES),
            staleness_high=_mean(learned, Learn.STALENESS_HIGH_SUM, Learn.UPDATES),
            staleness_max=int(learn[Learn.STALENESS_MAX]),
            entropy=_mean(learned, Learn.ENTROPY_SUM, Learn.UPDATES) if on_policy else None,
            kl=_mean(learned, Learn.KL_SUM, Learn.UPDATES) if on_policy else None,
            batch=_mean(learned, Learn.SAMPLES, Learn.UPDATES),
            clipped=_mean(learned, Learn.CLIPPED_SUM, Learn.UPDATES) if on_policy else None,
            epsilon=float(policy[Policy.EPSILON]),
            busy=max(float(busy / seconds), 0.0),
            nonfinite=int(learn[Learn.NONFINITE]),
            halted=bool(learn[Learn.HALTED]),
        )


def _behind(experience: Experience, written: int, samples: float) -> int | None:
    """Steps that were collected, and that the learner has not come to yet."""
    if experience.rollout:
        return experience.untaken
    ratio = experience.config.replay_ratio
    if ratio is None:
        return None
    begins = experience.lost + experience.config.learning_starts
    return max(written - max(begins, int(samples / ratio) + experience.config.learning_starts), 0)


def _mean(change: Row | list[float], total: int, count: int) -> float | None:
    """The mean over an interval; None where nothing was counted, or a learner was set back."""
    return float(change[total] / change[count]) if change[count] > 0 else None
