"""`remuda.load`, and the run that it opens."""

from __future__ import annotations

import os
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from remuda.analysis.frame import Frame
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.config import Config, Section
from remuda.config.plain import Options
from remuda.config.reading import read_keywords
from remuda.errors import RunDirectoryError, UsageError
from remuda.evaluation.evaluate import evaluate as play_episodes
from remuda.evaluation.policy import Policy
from remuda.evaluation.recording import record_trajectories
from remuda.evaluation.results import Evaluation
from remuda.evaluation.tournaments.entrants import Player
from remuda.evaluation.tournaments.focal import FocalEvaluation
from remuda.evaluation.trajectories import Trajectories
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import Snapshot
from remuda.runs.metrics import row_of
from remuda.runs.recorded_matches import read_births, read_ledger, read_payoffs
from remuda.runs.result import Result
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.training.python_settings import name_policy, name_scripted
from remuda.training.saved.games import with_game_options
from remuda.training.saved.policies import CHECKPOINT, SavedPolicies, UnknownPolicyError

if TYPE_CHECKING:
    from remuda.ui.analysis.screen import Report, SocietyReport

Checkpoint = int | Literal["final", "best"]
"""A checkpoint's number; `final`: the weights at the end of the run, or the newest checkpoint if
the run has not ended; `best`: the checkpoint with the best evaluation.
"""


def load(run: Result | Path | str) -> Run:
    """Open a run: its directory, or the result of `train`.

    Raises:
        RunDirectoryError: it is not a run directory, or is damaged.
    """
    return Run(path_of(run))


def evaluate(
    run: Result | Path | str,
    episodes: int = 200,
    *,
    checkpoint: Checkpoint = "final",
    seed: int = 0,
    scripted: Mapping[str, str | Callable[..., Any]] | None = None,
    sampled: bool | None = None,
    env: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Play episodes of a saved run, and collect each agent's returns: `Run.evaluate`.

    Raises:
        RunDirectoryError: it is not a run directory, or is damaged.
        RemudaError: as `Run.evaluate` does.
    """
    return load(run).evaluate(
        episodes, checkpoint=checkpoint, seed=seed, scripted=scripted, sampled=sampled, env=env
    )


class _GameArguments(Section):
    options: Options = Field(default_factory=dict)


class _PlayArguments(Section):
    env: _GameArguments = _GameArguments()


class Run(Mapping[str, Policy]):
    """A saved run, as a mapping from names to its policies.

    If the run has not ended, `final` means the newest checkpoint.
    """

    path: Path
    """The run directory."""
    config: Config
    """The run's configuration."""

    def __init__(self, path: Path) -> None:
        self._files = RunDirectory.open(path)
        self.path = path
        self._saved = SavedPolicies(self._files)
        self.config = self._saved.config

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<remuda.Run {self.path}: {self.config.game}>"

    @property
    def game(self) -> str:
        """The name of the game."""
        return self.config.game

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the game's agents."""
        return tuple(agent.name for agent in self._saved.spec.agents)

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The numbers of the run's checkpoints, in ascending order."""
        return tuple(self._files.checkpoints.numbers())

    @property
    def frozen(self) -> tuple[str, ...]:
        """The frozen copies in the newest checkpoint, as `policy@version`."""
        return tuple(f"{name}@{found.version}" for name, found in self._saved.copies())

    @property
    def initial(self) -> dict[str, dict[str, Any]]:
        """Sources of initial weights (`init_from`) by policy; other policies started at random.

        Each source has `run`, `policy`, `version`, `learner_step`, `checkpoint` (None for final or
        live weights) and `live`.
        """
        return self._files.initial.sources()

    def __iter__(self) -> Iterator[str]:
        return iter(self._saved.names())

    def __len__(self) -> int:
        return len(self._saved.names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            name in self._saved.names() or ("@" in name and name in self.frozen)
        )

    def __getitem__(self, name: str) -> Policy:
        return self.policy(name)

    def items(self) -> ItemsView[str, Policy]:
        """Return names and policies as of one point in time; the files are read once."""
        return self._all().items()

    def values(self) -> ValuesView[Policy]:
        """Return the policies as of one point in time; the files are read once."""
        return self._all().values()

    def _all(self) -> dict[str, Policy]:
        return {name: self._made(name, player) for name, player in self._saved.all().items()}

    def _made(self, name: str, player: Player, checkpoint: int | None = None) -> Policy:
        """Return a policy; `checkpoint`: the number of an earlier checkpoint that it comes from."""
        which = (
            f"@{player.snapshot.version}" if checkpoint is None else f"@{CHECKPOINT}{checkpoint}"
        )
        reference = f"{self.path}:{name.removesuffix(which)}{which}"
        found = Policy(player.spec, player.snapshot, player.agent, name, self.game, reference)
        found.player = player
        return found

    def policy(self, name: str, checkpoint: Checkpoint = "final") -> Policy:
        """Return one of the run's policies, ready to act.

        `name` may be `policy@version` for a frozen copy, whose `checkpoint` is a number or `final`.

        Raises:
            UsageError: there is no such policy; this error is also a `KeyError`.
            RunDirectoryError: weights are missing or damaged.
            CheckpointError: the checkpoint is missing or damaged.
        """
        which = _checked_checkpoint(checkpoint)
        if not isinstance(name, str):
            raise UnknownPolicyError(name, list(self))
        found = self._saved.find(name, which)
        return self._made(name, found.player, None if found.is_frozen else found.checkpoint)

    def summary(self) -> dict[str, Any]:
        """Return the content of `summary.json`.

        Raises:
            RunDirectoryError: the run has not ended.
        """
        return self._files.read_summary()

    def metrics(self) -> Frame:
        """Return the metrics, a row for each interval; columns are float64, NaN: not measured.

        `seconds`, `turns` and `steps` (agent-steps) are totals since the start. Other columns are
        named as in TensorBoard: `agent_0/mean_return`, `run/turns_per_second`. The site's page
        of metrics (`make site`) describes them all.

        Raises:
            RunDirectoryError: there are no metrics, or all lines are damaged.
        """
        return Frame.of_rows([row_of(record) for record in self._files.read_metrics()], "metrics")

    def ledger(self) -> Frame:
        """Return the finished matches of a population, a row for each.

        Columns: `match`, the match number; `truncated`; and for each agent of the game
        `agent_0/policy` (`policy@version` for a frozen copy), `agent_0/return`, and
        `agent_0/oldest_version` and `agent_0/newest_version` of the weights that acted.

        Raises:
            RunDirectoryError: the run has no ledger, or it is damaged.
        """
        return read_ledger(self._files, self.agents)

    def lineage(self) -> Frame:
        """Return the births of policies during the run, a row for each, in order.

        A birth replaces the policy in a slot (a policy name) by a new policy, the newborn. If
        policies evolve (`population.evolution`) or play in a league, the initial policies come
        first.

        Columns: `policy`, the slot of the newborn, and `generation`, the number of policies that
        had the slot before; `matches` finished before the birth; `parent`, `parent_generation` and
        `parent_version` of the inherited weights (empty `parent`: random weights); `second` and
        `second_generation` of a second parent; `optimizer_steps` of the inherited optimizer state;
        `fitness` of the replaced policy and `parent_fitness`, NaN if not estimated; and each
        initial hyperparameter.

        Raises:
            RunDirectoryError: the run has no ledger, or it is damaged.
        """
        return read_births(self._files)

    def payoffs(
        self, most: int | None = None, *, wins: bool = False, roles: bool = False
    ) -> Payoffs:
        """Return the mean returns of policies against each other in the ledger's matches.

        All versions of a live policy count as one policy; each frozen copy is a separate policy.

        Args:
            most: maximum number of policies: live ones, then the newest frozen copies; None: all.
            wins: use win rates, with draws as half a win, instead of returns.
            roles: treat the earlier and the later seat of a pair as different roles; otherwise pool
                them.

        Returns:
            `names` [N]; `matrix` [N, N], the mean return of the row against the column, NaN if
            they never met; `errors[0]` [N, N], the standard errors; `counts` [N, N] of matches;
            `intervals(0.95)[:, 0]` [2, N, N]. Functions of `remuda.analysis` accept this object;
            `to_pandas()` returns the means with names.

        Raises:
            UsageError: `most` is less than 1, or no match has finished.
            RunDirectoryError: the run has no ledger, or it is damaged.
        """
        return read_payoffs(self._files, most, wins=wins, roles=roles)

    def evaluate(
        self,
        episodes: int = 200,
        *,
        checkpoint: Checkpoint = "final",
        seed: int = 0,
        scripted: Mapping[str, str | Callable[..., Any]] | None = None,
        sampled: bool | None = None,
        env: Mapping[str, Any] | None = None,
    ) -> Evaluation:
        """Play episodes, and collect each agent's returns.

        Args:
            episodes: number of episodes.
            checkpoint: the checkpoint of the weights.
            seed: seed of the environments.
            scripted: scripted policies by agent: `random`, a name from `remuda games GAME`,
                `module:callable`, or such a function.
            sampled: explore as at the end of training; False: greedy; None: `run.evaluate_sampled`.
            env: other options of the game, as in `env={"options": {"pits": 8}}`. They override the
                run's options, and must not change agents or spaces.

        Raises:
            UsageError: an argument is invalid, the policies cannot play with these options, or a
                function of `scripted` has no name from which it can be imported.
            RunDirectoryError: weights are missing or damaged.
            CheckpointError: the checkpoint is missing or damaged.
            ConfigError: there is no such agent, or no such scripted policy.
        """
        spec, snapshots = self._to_play(episodes, seed, checkpoint)
        named = None if scripted is None else name_scripted(scripted, "scripted")
        chosen = read_keywords(_PlayArguments, {} if env is None else {"env": env}, self.evaluate)
        spec = with_game_options(spec, chosen.env.options)
        return play_episodes(spec, snapshots, episodes, seed, named, sampled)

    def evaluate_among(
        self,
        background: Run | Result | Path | str | Callable[..., Any],
        focal: int | Iterable[int] = 1,
        episodes: int = 200,
        *,
        checkpoint: Checkpoint = "final",
        seed: int = 0,
        sampled: bool | None = None,
    ) -> FocalEvaluation:
        """Play the policies among those of another run, and collect the mean return of a seat.

        Args:
            background: another run of a game with the same agents, whose newest weights play, or
                a scripted policy, by its name or as a function. It plays all seats that are not
                focal.
            focal: the number of focal seats, which this run's policies take; or several numbers,
                each played for `episodes`. All placements of the focal seats take turns.
            episodes: number of episodes for each number of focal seats.
            checkpoint: the checkpoint of this run's weights.
            seed: seed of the environments.
            sampled: explore as at the end of training; False: greedy; None: `run.evaluate_sampled`.

        Raises:
            UsageError: an argument is invalid, the agents differ, or there are fewer seats.
            RunDirectoryError: weights are missing or damaged.
            CheckpointError: the checkpoint is missing or damaged.
        """
        from remuda.ui.analysis.focal import evaluate_among

        self._to_play(episodes, seed, checkpoint)
        return evaluate_among(
            self._files,
            name_of_background(background),
            focal_counts(focal),
            episodes,
            checkpoint=checkpoint,
            seed=seed,
            sampled=sampled,
        )

    def record(
        self,
        episodes: int = 100,
        *,
        to: str | os.PathLike[str],
        checkpoint: Checkpoint = "final",
        seed: int = 0,
        scripted: Mapping[str, str | Callable[..., Any]] | None = None,
        sampled: bool | None = None,
    ) -> Trajectories:
        """Play episodes, and write every step in the environment's own spaces.

        Args:
            episodes: number of episodes.
            to: a file that ends with `.npz`, which is replaced; `Trajectories.load` reads it. Or
                `minari:NAME-v0` for a data set of Minari; with several agents each has its data
                set, `NAME-AGENT-v0`.
            checkpoint: the checkpoint of the weights.
            seed: seed of the environments.
            scripted: scripted policies by agent, as in `evaluate`.
            sampled: explore as at the end of training; False: greedy; None: `run.evaluate_sampled`.

        Returns:
            What was recorded. All of it is in memory while the episodes are played.

        Raises:
            UsageError: an argument is invalid, the file cannot be written, Minari is missing, or
                an observation has parts that are not arrays.
            RunDirectoryError: weights are missing or damaged.
            CheckpointError: the checkpoint is missing or damaged.
            ConfigError: there is no such agent, or no such scripted policy.
        """
        spec, snapshots = self._to_play(episodes, seed, checkpoint)
        named = None if scripted is None else name_scripted(scripted, "scripted")
        return record_trajectories(
            spec,
            snapshots,
            episodes,
            to,
            run=str(self.path),
            seed=seed,
            scripted=named,
            sampled=sampled,
        )

    def _to_play(
        self, episodes: int, seed: int, checkpoint: Checkpoint
    ) -> tuple[RunSpec, dict[str, Snapshot]]:
        check_play(episodes, seed)
        return load_run(self._files, _checked_checkpoint(checkpoint))

    def analyse(self, **settings: Any) -> Report | SocietyReport:
        """Analyse the policies; arguments, result and errors are those of `remuda.analyse`."""
        from remuda.ui.analysis.analysing import analyse

        return analyse(self, **settings)

    def report(self) -> Path:
        """Write the run's `play.gif` and `report.html`; return the path of the page.

        Raises:
            RunDirectoryError: the run has not ended, no turn was played, or writing failed.
        """
        from remuda.ui.reports.run_end import make_report

        if not self.summary()["turns"]:
            raise RunDirectoryError(f"no report of {self.path}: no turn was played in it")
        failed = make_report(self._files)
        if failed:
            raise RunDirectoryError("; ".join(failed))
        return self.path / "report.html"


def _checked_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    if _is_count(checkpoint):
        return int(checkpoint)
    if isinstance(checkpoint, str) and checkpoint in ("final", "best"):
        return checkpoint
    raise UsageError(f"checkpoint is a number, 'final' or 'best'; this is {checkpoint!r}")


def path_of(run: Run | Result | Path | str, name: str = "run") -> Path:
    """Return a run's absolute directory; `name`: the argument's name, for the error message."""
    if isinstance(run, Run):
        return run.path
    run = run.directory if isinstance(run, Result) else run
    if not isinstance(run, str | Path):
        raise UsageError(
            f"{name}: give a run's directory, what train returned or what load opened; this is "
            f"{run!r}"
        )
    return Path(run).expanduser().absolute()


def name_of_background(background: Run | Result | Path | str | Callable[..., Any]) -> str:
    """Return a run's directory, or the name of a scripted policy."""
    if isinstance(background, str):
        return background
    if callable(background):
        return name_policy(background, "background")
    return str(path_of(background, "background"))


def check_play(episodes: Any, seed: Any) -> None:
    """Raise a `UsageError` unless these are a number of episodes and a seed."""
    if not _is_count(episodes) or episodes < 1:
        raise UsageError(f"episodes: a whole number, one at least; this is {episodes!r}")
    if not _is_count(seed) or seed < 0:
        raise UsageError(f"seed: a whole number, 0 or more; this is {seed!r}")


def focal_counts(focal: int | Iterable[int]) -> list[int]:
    """Return the numbers of focal seats; raise a `UsageError` if one is invalid."""
    several = isinstance(focal, Iterable) and getattr(focal, "ndim", 1) > 0
    counts: list[Any] = [*focal] if several else [focal]  # type: ignore[misc]
    if not all(_is_count(each) and each >= 0 for each in counts):
        raise UsageError(f"focal: one or several whole numbers, 0 or more; this is {focal!r}")
    return [int(each) for each in counts]


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
