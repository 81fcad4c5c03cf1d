"""Callbacks: user objects that receive the events of a run, and may change the run."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from remuda.config import Config
from remuda.config.hyperparameters import LiveHyperparameters, checked_values, values_of
from remuda.envs.live_options import LiveEnvOptions
from remuda.errors import UsageError
from remuda.runs.metrics import is_column

if TYPE_CHECKING:
    from remuda.population.members.table import Table
    from remuda.runs.result import Result

log = logging.getLogger(__name__)

NAME = re.compile(r"[\w.\-]+(/[\w.\-]+)*")  # of a metric that a callback logs


@dataclass(frozen=True)
class EpisodeSummary:
    """The episodes of one policy that ended between two polls."""

    episodes: int
    """Their number, counting each agent that the policy plays."""
    mean_return: float
    """Mean undiscounted return of one agent over these episodes."""


class Callback:
    """The base of callbacks: each method handles an event, and does nothing by default.

    An object with any of these methods is a callback, even without this base. Guarantees:

    1. Callbacks run in the process that calls `train`, one at a time, between two polls of the run.
       Polls are a quarter of a second apart. Callbacks never run inside actors or learners.
    2. While a callback runs, nothing is logged, saved or restarted, and signals wait. Play and
       training continue in other processes, but wait in the schedule `sequential`. However long
       the callback takes, no process counts as hanging.
    3. An exception ends the run cleanly: with a checkpoint, weights and summary. Then `train`
       raises `RemudaError` with the file and the line, from the original exception.
    """

    essential: ClassVar[bool] = True
    """True if an exception ends the run. If false, an exception is reported, and the run continues
    without this callback."""

    def on_start(self, run: ActiveRun) -> None:
        """The run is about to start or resume; nothing has been played in this session."""

    def on_episodes(self, run: ActiveRun, episodes: Mapping[str, EpisodeSummary]) -> None:
        """Episodes ended since the last call; `episodes` has those of each policy."""

    def on_metrics(self, run: ActiveRun, row: Mapping[str, float]) -> None:
        """A line of metrics is written.

        `row` has the columns of `Run.metrics`, such as `row["turns"]` and
        `row["agent_0/mean_return"]`; NaN if a column has no value. It cannot be changed.
        """

    def on_checkpoint(self, run: ActiveRun, number: int, path: Path) -> None:
        """A checkpoint was written into `path`; `Run.policy` takes its `number`."""

    def on_end(self, run: ActiveRun, result: Result | None) -> None:
        """The run has ended; called once, after the evaluation, if `on_start` was called.

        `result` is that of `train`; None if it failed.
        """


class MetricsRow(dict[str, float]):
    """A row of metrics, which a callback can read and copy, but not change."""

    def _refuse(self, *_: object, **__: object) -> Any:
        raise UsageError(
            "a row of metrics cannot be changed; run.log(name, value) adds a metric, and dict(row) "
            "is a copy"
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[type, tuple[dict[str, float]]]:
        """Pickle and copy it as a plain dictionary."""
        return dict, (dict(self),)


class ActiveRun:
    """The current run, as its callbacks see it."""

    directory: Path
    config: Config
    policies: tuple[str, ...]
    """The names of the policies that the run trains."""
    turns: int
    """Turns played, over all copies and sessions, as of the last poll; right after a resume, those
    of the checkpoint."""
    seconds: float
    """Seconds of play, including earlier sessions, as of the last poll."""
    stopped: str
    """The reason passed to `stop`; empty if it was not called."""
    interrupted: str
    """The reason passed to `interrupt`; empty if it was not called."""

    def __init__(self, directory: Path, config: Config, policies: tuple[str, ...]) -> None:
        self.directory, self.config, self.policies = directory, config, policies
        self.turns, self.seconds, self.stopped, self.interrupted = 0, 0.0, "", ""
        self.logged: dict[str, float] = {}
        """The newest values that `log` has received, also in earlier sessions."""
        self._over = self._to_save = False
        self._set: dict[str, dict[str, float]] = {}
        """Values set in this session, by policy."""
        self._changes: LiveHyperparameters | None = None
        self._table: Table | None = None
        self._options: LiveEnvOptions | None = None
        self._count_turns: Callable[[], float] = lambda: 0.0

    def stop(self, why: str) -> None:
        """End the run cleanly at the next poll, with a last checkpoint and an evaluation.

        The run counts as finished, and reports the first reason, `why`, as its end.

        Raises:
            UsageError: the reason is empty.
        """
        if not isinstance(why, str) or not why.strip():
            raise UsageError(f"stop takes the reason as text; this is {why!r}")
        self.stopped = self.stopped or why.strip()

    def save(self) -> None:
        """Write a checkpoint at the next poll, in addition to those that are due."""
        self._to_save = True

    def interrupt(self, why: str) -> None:
        """End the run at the next poll like a signal, so that it can be resumed."""
        self.interrupted = self.interrupted or why

    def log(self, name: str, value: float) -> None:
        """Add your own metric to the run's metrics, as the column `logged/NAME`.

        Lines of metrics from the next on have its newest value, also after a resume.

        Args:
            name: letters, digits and `_ . - /`, such as `success` or `agent_0/distance`.
            value: a finite number.

        Raises:
            UsageError: the name has other characters or is that of a column of Remuda, the value
                is not a finite number, or the run has ended.
        """
        if self._over:
            raise UsageError("metrics cannot be logged any more: the run has ended")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise UsageError(
                f"log: {name!r} cannot name a metric; use letters, digits and _ . - /, as in "
                "'success'"
            )
        if is_column(name, self.policies):
            raise UsageError(f"log: {name} is a metric of Remuda; use another name")
        found: Any = value
        is_number = isinstance(found, Real) or getattr(found, "ndim", None) == 0
        if not is_number or not math.isfinite(found):
            raise UsageError(f"log: {name} is {value!r}; a metric must be a finite number")
        self.logged[name] = float(value)

    def take_save_request(self) -> bool:
        """Return whether a checkpoint was requested since the last call; for the coordinator."""
        requested, self._to_save = self._to_save, False
        return requested

    def hyperparameters(self, policy: str) -> dict[str, float]:
        """Return the current values of all hyperparameters that can change during the run.

        If new policies replace others during the run, the values belong to the newest policy of
        this name.

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

        The current update is not affected. Checkpoints and resumed runs keep the changes.

        Args:
            values: such as `{"learning_rate": 1e-4, "ppo.clip": 0.1}`; the names are those that
                `hyperparameters` returns.
            policy: the name of a policy, or None for all policies.

        Raises:
            UsageError: an unknown name or policy, a value that is not allowed, or the run has
                ended. In that case nothing is changed.
        """
        if self._over:
            raise UsageError("hyperparameters cannot be set any more: the run has ended")
        if self.config.population.has_births:
            raise UsageError(
                "hyperparameters cannot be set by a callback in a run that creates new policies "
                "(population.births, population.evolution, population.director, "
                "population.league), because each new policy gets its own values"
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

    def env_options(self) -> dict[str, Any]:
        """Return the environment options in force that the run has changed, with their values.

        They apply to episodes that start now. A resumed run starts with those of its checkpoint.
        """
        return self._options.in_force(self._played()) if self._options is not None else {}

    def changeable_env_options(self) -> dict[str, Any]:
        """Return all environment options that the run may change, with their values in force.

        A value is None if the run has not changed it and the environment does not report it.
        """
        return self._options.values(self._played()) if self._options is not None else {}

    def set_env_option(self, name: str, value: Any, from_turn: int | None = None) -> None:
        """Change an option of the environment, in each copy from its next reset.

        Current episodes are not affected. Checkpoints and resumed runs keep the change, and
        evaluation uses it. The value is first tried in one more copy of the environment.

        Args:
            name: one of the environment's `changeable_options`.
            value: plain data: a finite number, text, bool, None, or lists and dictionaries of
                these.
            from_turn: the number of turns, as in `turns`, from which the change applies; None, or
                a turn that has passed: from now on. Changes for later turns stay. In `sequential`
                and `lockstep` a change that is set before its turn reproduces bit for bit.

        Raises:
            UsageError: the environment does not declare the option or refuses the value,
                `from_turn` is not a whole number, or the run has ended. In that case nothing is
                changed.
        """
        if self._over or self._options is None:
            raise UsageError("environment options cannot be set any more: the run has ended")
        played = self._played()
        if from_turn is None:
            from_turn = played
        if type(from_turn) is not int or from_turn < 0:
            raise UsageError(f"from_turn must be a whole number, 0 or more; this is {from_turn!r}")
        plain = self._options.check(name, value, max(from_turn, played))
        self._options.change(name, plain, from_turn, played)
        log.info("a callback sets the environment option %s to %r", name, plain)

    def attach(
        self,
        changes: LiveHyperparameters,
        table: Table | None,
        options: LiveEnvOptions | None = None,
        played: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Write changes into this memory from now on, and those already made in this session.

        `played` returns the turns played so far; `turns` may be a poll older.
        """
        if self._options is not None and options is not None:
            options.restore(self._options.state())
        self._changes, self._table, self._options = changes, table, options
        self._count_turns = played
        for name, values in self._set.items():
            self._apply(name, values)

    def close(self) -> None:
        self._over = True

    def _played(self) -> int:
        return max(int(self._count_turns()), self.turns)

    def _apply(self, policy: str, values: Mapping[str, float]) -> None:
        assert self._changes is not None
        before = self.hyperparameters(policy)
        changed = {name: value for name, value in values.items() if before[name] != value}
        if not changed:
            return
        self._changes.change(policy, changed)
        if self._table is not None:
            slot = self._table.policies.index(policy)
            self._table.hyperparameters.change(slot, changed)
        text = ", ".join(f"{name} {before[name]:g} -> {to:g}" for name, to in changed.items())
        log.info("a callback changes policy %s: %s", policy, text)

    def _check_name(self, policy: str) -> None:
        if policy not in self.policies:
            raise UsageError(
                f"there is no policy {policy!r} in this run; there are {', '.join(self.policies)}"
            )
