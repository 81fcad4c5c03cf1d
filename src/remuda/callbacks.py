"""Callbacks: objects of the user's that are told what happens in a run, and may act on it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from remuda.config import Config
from remuda.errors import UsageError
from remuda.hyperparameters import values_of
from remuda.live_hyperparameters import LiveHyperparameters, checked_values

if TYPE_CHECKING:
    from remuda.population.table import Table
    from remuda.result import Result

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpisodeSummary:
    """The episodes of one policy that ended between two looks."""

    episodes: int
    """How many: of each agent that it plays, one at least."""
    mean_return: float
    """Mean over these of one agent's undiscounted return."""


class Callback:
    """The base of callbacks: every method is an event, and does nothing.

    An object with any of these methods is a callback, of this class or not. What holds:

    1. They are called in the process that calls `train`, one at a time, between two looks at the
       run, which are a quarter of a second apart. What plays and trains is never called from.
    2. While one runs, nothing is logged, saved or restarted, and a signal waits for it. Play and
       training go on in their own processes; in the schedule `sequential` they wait too. However
       long it takes, no process is taken for one that hangs.
    3. One that raises ends the run in order: with a checkpoint, weights and summary. Then `train`
       raises `RemudaError` with the file and the line, from the original exception.
    """

    essential: ClassVar[bool] = True
    """Whether the run ends when it raises. If not, that is told, and the run goes on without it."""

    def on_start(self, run: ActiveRun) -> None:
        """The run is about to begin, or to go on: nothing of this session was played yet."""

    def on_episodes(self, run: ActiveRun, episodes: Mapping[str, EpisodeSummary]) -> None:
        """Episodes ended since the last call.

        Args:
            run: that is under way.
            episodes: by policy, for those of which any ended; single episodes are not told.
        """

    def on_metrics(self, run: ActiveRun, row: Mapping[str, float]) -> None:
        """A line of metrics is written.

        Args:
            run: that is under way.
            row: its columns by name, as `Run.metrics` has them, such as `row["turns"]` and
                `row["agent_0/mean_return"]`; not a number where there was nothing to measure.
        """

    def on_checkpoint(self, run: ActiveRun, number: int, path: Path) -> None:
        """A checkpoint was written.

        Args:
            run: that is under way.
            number: of the checkpoint, as `Run.policy` takes it.
            path: its directory.
        """

    def on_end(self, run: ActiveRun, result: Result | None) -> None:
        """The run is over; called once, after the play that measures, if `on_start` was called.

        Args:
            run: that was under way.
            result: what came of it, as `train` returns it; None: it failed.
        """


class ActiveRun:
    """The run under way, as its callbacks see it."""

    directory: Path
    """Its directory."""
    config: Config
    """The configuration that it was started with."""
    policies: tuple[str, ...]
    """The names of those that it trains."""
    turns: int
    """Turns played, over all copies and sessions, as of the last look; of a resumed run that has
    not been looked at, those of the checkpoint that it goes on from."""
    seconds: float
    """Seconds of play, with those of earlier sessions, as of the last look."""
    stopped: str
    """Why it was asked to stop; empty: it was not."""
    interrupted: str
    """Likewise, without counting as finished."""

    def __init__(self, directory: Path, config: Config, policies: tuple[str, ...]) -> None:
        self.directory, self.config, self.policies = directory, config, policies
        self.turns, self.seconds, self.stopped, self.interrupted = 0, 0.0, "", ""
        self._over = self._to_save = False
        self._set: dict[str, dict[str, float]] = {}
        """By policy, what was set in this session."""
        self._changes: LiveHyperparameters | None = None
        self._table: Table | None = None

    def stop(self, why: str) -> None:
        """End the run in order at the next look, with a last checkpoint, and measured.

        It counts as finished: it has reached the end that its user wanted. The first reason holds.

        Args:
            why: in words; they are told as how the run ended.

        Raises:
            UsageError: no words.
        """
        if not isinstance(why, str) or not why.strip():
            raise UsageError(f"stop takes the reason in words; this is {why!r}")
        self.stopped = self.stopped or why.strip()

    def save(self) -> None:
        """Write a checkpoint at the next look, besides those that are due."""
        self._to_save = True

    def interrupt(self, why: str) -> None:
        """End the run at the next look as a signal does: it can be gone on with by a resume.

        Args:
            why: in words; they are told as how the run ended.
        """
        self.interrupted = self.interrupted or why

    def take_wish(self) -> bool:
        """Whether a checkpoint was asked for since this was asked last; for the coordinator."""
        wished, self._to_save = self._to_save, False
        return wished

    def hyperparameters(self, policy: str) -> dict[str, float]:
        """Those that can change while the run goes on, by name, as they were set last.

        Where policies are born: what the one has that is in its place now, or was there last.

        Raises:
            UsageError: there is no such policy.
        """
        self._check_name(policy)
        found = values_of(self.config.policy_of(policy))
        if self._table is not None:
            own = self._table.hyperparameters.of(self._table.policies.index(policy))
            found |= {name: value for name, value in own.items() if name in found}
        return found | (self._changes.changes(policy) if self._changes is not None else {})

    def set_hyperparameters(self, values: Mapping[str, float], policy: str | None = None) -> None:
        """Train with other hyperparameters from the learner's next update on.

        An update that goes on meanwhile is finished as it began. Checkpoints keep what was set, so
        a resumed run goes on with it.

        Args:
            values: by name: `{"learning_rate": 1e-4, "ppo.clip": 0.1}`; the names are those that
                `hyperparameters` returns.
            policy: whose; None: of all policies.

        Raises:
            UsageError: one that cannot change while the run goes on, a value that is not allowed,
                no such policy, or the run is over. Nothing is changed then.
        """
        if self._over:
            raise UsageError("hyperparameters cannot be set any more: the run is over")
        if self.config.population.has_births:
            raise UsageError(
                "hyperparameters cannot be set by a callback where policies are born "
                "(population.births, population.evolution, population.director, "
                "population.league): a newborn brings its own"
            )
        if policy is not None:
            self._check_name(policy)
        found = {
            name: checked_values(self.config.policy_of(name), values, f"policies.{name}.")
            for name in (self.policies if policy is None else (policy,))
        }
        for name, checked in found.items():
            self._set.setdefault(name, {}).update(checked)
            self._apply(name, checked)

    def attach(self, changes: LiveHyperparameters, table: Table | None) -> None:
        """Set what is set in this memory from now on; what was set before in this session too."""
        self._changes, self._table = changes, table
        for name, values in self._set.items():
            self._apply(name, values)

    def close(self) -> None:
        """Note that the run is over."""
        self._over = True

    def _apply(self, policy: str, values: Mapping[str, float]) -> None:
        assert self._changes is not None
        before = self.hyperparameters(policy)
        changed = {name: value for name, value in values.items() if before[name] != value}
        if not changed:
            return
        self._changes.change(policy, changed)
        if self._table is not None:
            place = self._table.policies.index(policy)
            self._table.hyperparameters.change(place, changed)
        told = ", ".join(f"{name} {before[name]:g} -> {to:g}" for name, to in changed.items())
        log.info("a callback sets of policy %s: %s", policy, told)

    def _check_name(self, policy: str) -> None:
        if policy not in self.policies:
            raise UsageError(
                f"there is no policy {policy!r} in this run; there are {', '.join(self.policies)}"
            )
