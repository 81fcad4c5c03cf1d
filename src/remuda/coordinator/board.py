"""From the scoreboard's counters to records: averages over the time since the record before."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from remuda.coordinator.metrics import PolicyRecord, Record
from remuda.experience.ring import ExperienceRing
from remuda.scoreboard import Learn, Play, Policy, Row, Scoreboard

SHARES = {
    "env": Play.SECONDS_ENV,
    "infer": Play.SECONDS_INFER,
    "write": Play.SECONDS_WRITE,
    "weights": Play.SECONDS_WEIGHTS,
    "wait": Play.WAIT_SECONDS,
}


class Board:
    """Reads the counters, and remembers them, so that each record is of its own interval."""

    def __init__(self, scoreboard: Scoreboard, rings: Mapping[str, ExperienceRing]) -> None:
        self._scoreboard, self._rings = scoreboard, rings
        self._began = self._at = time.perf_counter()
        self._play = scoreboard.play.copy()
        self._policy = {name: scoreboard.policy(name).copy() for name in scoreboard.policies}
        self._learn = {name: scoreboard.learn(name).copy() for name in scoreboard.policies}

    def record(self) -> Record:
        """The record of the interval that ends now."""
        now = time.perf_counter()
        seconds, self._at = max(now - self._at, 1e-9), now
        play = self._scoreboard.play.copy()
        change, self._play = play - self._play, play
        return Record(
            seconds=now - self._began,
            turns=int(play[Play.TURNS]),
            agent_steps=int(play[Play.AGENT_STEPS]),
            turns_per_second=float(change[Play.TURNS] / seconds),
            agent_steps_per_second=float(change[Play.AGENT_STEPS] / seconds),
            waits=int(play[Play.WAITS]),
            wait_seconds=float(play[Play.WAIT_SECONDS]),
            overtaken=int(play[Play.OVERTAKEN]),
            shares={name: float(change[field] / seconds) for name, field in SHARES.items()},
            policies={
                name: self._policy_record(name, seconds) for name in self._scoreboard.policies
            },
        )

    def _policy_record(self, name: str, seconds: float) -> PolicyRecord:
        ring = self._rings[name]
        policy, learn = self._scoreboard.policy(name).copy(), self._scoreboard.learn(name).copy()
        played, self._policy[name] = policy - self._policy[name], policy
        learned, self._learn[name] = learn - self._learn[name], learn
        busy = learned[Learn.SECONDS_SAMPLE : Learn.SECONDS_PUBLISH + 1].sum()
        written = ring.written
        trained_from = written - ring.config.learning_starts
        return PolicyRecord(
            mean_return=_mean(played, Policy.RETURN_SUM, Policy.EPISODES),
            episodes=int(policy[Policy.EPISODES]),
            loss=_mean(learned, Learn.LOSS_SUM, Learn.UPDATES),
            updates=int(learn[Learn.UPDATES]),
            updates_per_second=float(learned[Learn.UPDATES] / seconds),
            version=int(learn[Learn.VERSION]),
            staleness=_mean(learned, Learn.STALENESS_SUM, Learn.UPDATES),
            steps=written,
            replay_fill=ring.fill,
            replay_ratio=float(learn[Learn.SAMPLES] / trained_from) if trained_from > 0 else None,
            redrawn=int(learn[Learn.REDRAWN]),
            epsilon=float(policy[Policy.EPSILON]),
            busy=float(busy / seconds),
        )


def _mean(change: Row, total: int, count: int) -> float | None:
    mean = change[total] / change[count] if change[count] > 0 else np.nan
    return float(mean) if np.isfinite(mean) else None
