"""The Python API: train, open runs, play their policies.

`remuda/__init__.py` exports `train`, `tournament`, `load` and `Run`.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from pathlib import Path
from typing import Any, Literal

import numpy as np

from remuda.analysis.frame import Frame
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.config import Config, check_presets, load_config, overlay
from remuda.envs.registry import find_game, name_game
from remuda.errors import RunDirectoryError, UnguardedScriptError, UsageError
from remuda.evaluation.crossplay import Tournament
from remuda.evaluation.evaluate import evaluate as play_episodes
from remuda.evaluation.policy import Policy
from remuda.evaluation.results import Evaluation
from remuda.evaluation.tournaments.entrants import Entrant, Player
from remuda.runs.metrics import View, row_of
from remuda.runs.recorded_matches import read_births, read_ledger, read_payoffs
from remuda.runs.result import Result
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.system.processes.child import check_guard
from remuda.training.python_settings import (
    gone_on_with,
    name_objects,
    name_scripted,
    tree_of,
    written_in,
)
from remuda.training.run import train as run_training
from remuda.training.saved.policies import CHECKPOINT, SavedPolicies, UnknownPolicyError
from remuda.ui.analysis.tournament_setup import Length, named_entrants, play_in_python

Checkpoint = int | Literal["final", "best"]
"""A checkpoint's number; `final`: the weights at the end of the run, or the newest checkpoint if
the run has not ended; `best`: the checkpoint with the best evaluation.
"""


def train(
    game: str | Callable[..., Any] | None = None,
    *,
    preset: str | Sequence[str] = (),
    config: Path | str | Mapping[str, Any] | Config | None = None,
    resume: Run | Path | str | None = None,
    view: View | None = None,
    callbacks: Iterable[object] | None = (),
    **settings: Any,
) -> Result:
    """Train the policies of a game, and evaluate them.

    Unlike the command `remuda train`, this makes no `play.gif` and no report (see `Run.report`).

    Args:
        game: name, `module:Class`, or the class or function itself, also from a notebook: a
            `VectorEnv`, a Gymnasium or PettingZoo environment, or a function that makes one. None:
            the game of `config`, or Treasure Hunt.
        preset: one or more presets for kinds of games, such as `mpe`; other settings override them.
        config: settings as a YAML file, a nested mapping, or another run's `run.config` (whose
            `run.directory` is ignored).
        resume: a run to resume from its newest checkpoint; `settings` override the run's config.
        view: the display; None: the live view in a terminal, otherwise plain lines.
        callbacks: objects with methods of `Callback`. They receive events, and may end the run or
            change hyperparameters.
        settings: sections of the configuration, which override `config`: `policy={"algorithm":
            "ppo"}, run={"turns": 100_000}, seed=3`. A section may also come from another run's
            config (`run.config.policy`).

    Returns:
        The result; `remuda.load` accepts it.

    Raises:
        UserCodeError: the environment's code raised an error; the message says where.
        RemudaError: any other error that you can fix; the message says how.
    """
    from remuda.ui.terminal.live import make_view

    check_guard()
    named = {} if game is None else {"game": game}
    tree = overlay(tree_of(config, preset), overlay(name_objects(settings), named))
    if resume is not None:
        tree = gone_on_with(_path(resume, "resume"), tree, preset)
    if "game" in tree:
        tree["game"] = name_game(tree["game"])
    whole = load_config(tree)
    find_game(whole.game)
    check_presets(preset, whole.game)
    view = make_view(whole.run.live) if view is None else view
    explicit_keys = written_in(config, settings | named, resume is not None)
    try:
        return run_training(
            whole, view, resume is not None, explicit_keys=explicit_keys, user_callbacks=callbacks
        )
    except UnguardedScriptError as error:
        raise error.with_traceback(None) from None  # no traceback: the script is at fault


def tournament(
    entrants: Sequence[Policy | str] | Mapping[str, Policy | str],
    *,
    game: str | Callable[..., Any],
    options: Mapping[str, Any] | None = None,
    scripted: Mapping[str, str | Callable[..., Any]] | None = None,
    episodes: int | None = None,
    seed: int = 0,
    deterministic: bool = True,
    directory: Path | str | None = None,
    until: str = "",
    matches: int | None = None,
    seconds: float | None = None,
    processes: int | None = 1,
) -> Tournament:
    """Play policies of any runs against each other and themselves.

    Many matches are played in parallel. The random numbers of a match depend only on the seed and
    the match number. In a game of more than two seats, the row's entrant plays one seat (each seat
    in turn), and the column's entrant plays all others.

    Args:
        entrants: policies, or names of scripted policies (`random`, or from `remuda games GAME`),
            as a list or as a mapping from names.
        game: a game that all entrants can play, as in `train`.
        options: options of the game, as in `env.options`.
        scripted: scripted policies by agent, as in `env.scripted`; entrants do not play these
            seats.
        episodes: episodes for each pair and each seat of its first entrant; None: 100. Not
            allowed with `until`.
        seed: seed of all matches.
        deterministic: play greedily; otherwise explore as at the end of training.
        directory: where matches are saved (`ledger.bin` and `tournament.json`). The same call
            resumes an interrupted tournament, or adds matches up to a larger `episodes`.
        until: play rounds of the matches that help most to answer a question, until it is answered,
            such as `rank of the top 3 is 95% sure`. Empty: play `episodes`.
        matches: maximum number of matches, with `until`; None: a million.
        seconds: start no match after this time; None: no limit.
        processes: number of processes; 1: this process; None: as many as useful, at most one for
            each core. A script that uses more than 1 needs `if __name__ == "__main__":`.

    Returns:
        `entrants`; `means` and `errors` [N, N]: the mean return of the row's entrant against the
        column's, averaged over the seats, and its standard error; `matches` [N, N]; with `until`
        also `until`, the final state of the question.

    Raises:
        UsageError: there are no entrants, an entrant cannot play the game, `episodes`, `until` and
            `matches` contradict each other, or the directory contains another tournament.
        UnguardedScriptError: the script calls this at import in a process of the tournament.
        RunDirectoryError: the directory is in use, damaged, or cannot be written.
        ConfigError: there is no such game, or no such scripted policy.
    """
    check_guard()
    named = named_entrants(entrants)
    length = Length(episodes, until, matches, seconds, processes)
    _check_play(1 if episodes is None else episodes, seed)
    players: dict[str, Entrant] = {
        name: entrant if isinstance(entrant, str) else entrant.player
        for name, entrant in named.items()
    }
    try:
        arguments = (name_game(game), options, players, seed, deterministic, directory, length)
        return play_in_python(*arguments, scripted)
    except UnguardedScriptError as error:
        raise error.with_traceback(None) from None  # no traceback: the script is at fault


def _check_play(episodes: int, seed: int) -> None:
    if not _is_count(episodes) or episodes < 1:
        raise UsageError(f"episodes: a whole number, one at least; this is {episodes!r}")
    if not _is_count(seed) or seed < 0:
        raise UsageError(f"seed: a whole number, 0 or more; this is {seed!r}")


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def load(run: Result | Path | str) -> Run:
    """Open a run: its directory, or the result of `train`.

    Raises:
        RunDirectoryError: it is not a run directory, or is damaged.
    """
    return Run(_path(run))


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
        return tuple(agent.name for agent in self._saved.agents)

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The numbers of the run's checkpoints, in ascending order."""
        return tuple(self._files.checkpoints.numbers())

    @property
    def frozen(self) -> tuple[str, ...]:
        """The frozen copies in the newest checkpoint, as `policy@version`."""
        return self._saved.frozen()

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
        return Policy(player.spec, player.snapshot, player.agent, name, self.game, reference)

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
        named as in TensorBoard: `agent_0/mean_return`, `run/turns_per_second`; see docs/metrics.md.

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
    ) -> Evaluation:
        """Play episodes, and collect each agent's returns.

        Args:
            episodes: number of episodes.
            checkpoint: the checkpoint of the weights.
            seed: seed of the environments.
            scripted: scripted policies by agent: `random`, a name from `remuda games GAME`,
                `module:callable`, or such a function.
            sampled: explore as at the end of training; False: greedy; None: `run.evaluate_sampled`.

        Raises:
            UsageError: `episodes`, `seed` or `checkpoint` is invalid, or a function of `scripted`
                has no name from which it can be imported.
            RunDirectoryError: weights are missing or damaged.
            CheckpointError: the checkpoint is missing or damaged.
            ConfigError: there is no such agent, or no such scripted policy.
        """
        _check_play(episodes, seed)
        spec, snapshots = load_run(self._files, _checked_checkpoint(checkpoint))
        named = None if scripted is None else name_scripted(scripted, "scripted")
        return play_episodes(spec, snapshots, episodes, seed, named, sampled)

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


def _path(run: Run | Result | Path | str, name: str = "run") -> Path:
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
