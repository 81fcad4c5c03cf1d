"""The front door: train from Python, open what runs left behind, ask their policies.

`remuda/__init__.py` hands these on; nothing else of Remuda imports them.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from pathlib import Path
from typing import Any, Literal

import numpy as np

from remuda.analysis.payoff import Payoffs
from remuda.config import Config, check_presets, load_config, overlay
from remuda.coordinator.metrics import View, row_of
from remuda.coordinator.run_directory import RunDirectory
from remuda.crossplay import Entrant, Player, Tournament
from remuda.envs.registry import find_game, name_game
from remuda.errors import RunDirectoryError, UnguardedScriptError, UsageError
from remuda.evaluate import evaluate as play_episodes
from remuda.evaluation import Evaluation
from remuda.forkserver.child import check_guard
from remuda.frame import Frame
from remuda.matches import read_births, read_ledger, read_payoffs
from remuda.own_code import gone_on_with, name_objects, name_scripted, tree_of, written_in
from remuda.result import Result
from remuda.saved import CHECKPOINT, SavedPolicies, UnknownPolicyError
from remuda.saved_weights import load_run
from remuda.trained import Policy
from remuda.training import train as run_training
from remuda.ui.python_tournament import Length, named_entrants, play_in_python

Checkpoint = int | Literal["final", "best"]
"""A checkpoint's number; `final`: the weights at the end of the run, or its newest checkpoint where
it has not ended; `best`: that which did best in evaluation."""


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
    """Train the policies of a game, and measure them by play.

    What the command `remuda train` does, but for picture and report (`Run.report` makes them).

    Args:
        game: its name, `module:Class`, or the class or function itself, also one of a notebook's
            cell: a `VectorEnv`, a Gymnasium or a PettingZoo environment, or what makes one; None:
            that of `config`, or Treasure Hunt.
        preset: names of settings that suit a kind of world, under all others: `mpe`.
        config: settings as a YAML file, a nested mapping, or those of another run
            (`run.config`), whose directory this one does not take.
        resume: a run to go on with from its newest checkpoint; settings go over its own.
        view: who watches; None: the live view in a terminal, else plain lines.
        callbacks: objects with methods of `Callback`, which are told what happens in the run, may
            end it and may change hyperparameters.
        settings: sections of the configuration as the command line has them, over `config`:
            `policy={"algorithm": "ppo"}, run={"turns": 100_000}, seed=3`. A section of another
            run's configuration (`run.config.policy`) stands for all that was set in it.

    Returns:
        What came of it; `remuda.load` takes it.

    Raises:
        UserCodeError: the game's own code raised; the message says where.
        RemudaError: something else that can be mended; the message says how.
    """
    from remuda.ui.live import make_view

    check_guard()
    given = {} if game is None else {"game": game}
    tree = overlay(tree_of(config, preset), overlay(name_objects(settings), given))
    if resume is not None:
        tree = gone_on_with(_path(resume, "resume"), tree, preset)
    if "game" in tree:
        tree["game"] = name_game(tree["game"])
    whole = load_config(tree)
    find_game(whole.game)
    check_presets(preset, whole.game)
    view = make_view(whole.run.live) if view is None else view
    explicit_keys = written_in(config, settings | given, resume is not None)
    try:
        return run_training(
            whole, view, resume is not None, explicit_keys=explicit_keys, user_callbacks=callbacks
        )
    except UnguardedScriptError as error:
        raise error.with_traceback(None) from None  # the line says all, and the script is at fault


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
    """Let policies of any runs play against each other, themselves included.

    All meetings are played at once, each match with random numbers that follow from the seed and
    its number. In a game of more than two seats one agent of the row sits on each seat in turn
    among agents of the column.

    Args:
        entrants: policies, and names of such as play without having learned (`random`, or what
            `remuda games GAME` lists); by name, or named as they are.
        game: that all of them can play, as `train` takes it.
        options: of the game, as `env.options`.
        scripted: by agent, who takes its seat for good, as `env.scripted`: no entrant sits there.
        episodes: for each pair, and each seat of the first of it; None: 100. Not with `until`.
        seed: of the games; every pair plays others.
        deterministic: let them be greedy; else they explore as at the end of training.
        directory: where matches are written as they end (`ledger.bin`, and who played in
            `tournament.json`); the same call goes on with it, up to `episodes`. None: nowhere.
        until: play in rounds, each of those matches on which the answer hangs, until it is as sure
            as this says, such as `rank of the top 3 is 95% sure`. Empty: as `episodes` says.
        matches: at most, with `until`; None: a million.
        seconds: after which no match is begun; None: it takes as long as it takes.
        processes: that play; 1: this one; None: as many as are useful, one for each core at most.
            A script that asks for more than 1 needs `if __name__ == "__main__":`.

    Returns:
        `entrants`; `means` and `errors` [N, N]: what an agent of the row earns when all others are
        of the column, averaged over the seats, and its standard error; `matches` [N, N]; with
        `until` also `until`: what is known in the end.

    Raises:
        UsageError: there are no entrants, one cannot play the game, `episodes` and `until` or
            `matches` do not belong together, or the directory holds another tournament.
        UnguardedScriptError: a process that plays reads the script, which calls this as it is read.
        RunDirectoryError: the directory is in use, damaged, or cannot be written.
        ConfigError: there is no such game, or no such policy that plays without having learned.
    """
    check_guard()
    named = named_entrants(entrants)
    length = Length(episodes, until, matches, seconds, processes)
    _check_play(1 if episodes is None else episodes, seed)
    players: dict[str, Entrant] = {
        name: who if isinstance(who, str) else who.player for name, who in named.items()
    }
    try:
        given = (name_game(game), options, players, seed, deterministic, directory, length)
        return play_in_python(*given, scripted)
    except UnguardedScriptError as error:
        raise error.with_traceback(None) from None  # the line says all, and the script is at fault


def _check_play(episodes: int, seed: int) -> None:
    if not _is_count(episodes) or episodes < 1:
        raise UsageError(f"episodes: a whole number, one at least; this is {episodes!r}")
    if not _is_count(seed) or seed < 0:
        raise UsageError(f"seed: a whole number, 0 or more; this is {seed!r}")


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def load(run: Result | Path | str) -> Run:
    """Open what a run left behind.

    Args:
        run: its directory, or what `train` returned.

    Raises:
        RunDirectoryError: it is no run's directory, or damaged.
    """
    return Run(_path(run))


class Run(Mapping[str, Policy]):
    """A run's directory; as a mapping, its policies by name.

    It may be of a run that still goes on: then `final` is the newest checkpoint.
    """

    path: Path
    """Its directory."""
    config: Config
    """The configuration that it was started with."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises:
            RunDirectoryError: it is no run's directory, or damaged.
        """
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
        """The game's name."""
        return self.config.game

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the game's agents."""
        return tuple(agent.name for agent in self._saved.agents)

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The numbers of its checkpoints, in ascending order."""
        return tuple(self._files.checkpoints.numbers())

    @property
    def frozen(self) -> tuple[str, ...]:
        """The frozen copies in its newest checkpoint, as `policy@version`."""
        return self._saved.frozen()

    @property
    def initial(self) -> dict[str, dict[str, Any]]:
        """By policy, where its first weights are from (`init_from`); those of others are random.

        Of each `run`, `policy`, `version`, `learner_step`, `checkpoint` (None: the end of the run,
        or what it played with when it was asked: then `live` is true).
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
        """Its policies by name, all of one moment, read once."""
        return self._all().items()

    def values(self) -> ValuesView[Policy]:
        """Its policies, all of one moment, read once."""
        return self._all().values()

    def _all(self) -> dict[str, Policy]:
        return {name: self._made(name, player) for name, player in self._saved.all().items()}

    def _made(self, name: str, player: Player, checkpoint: int | None = None) -> Policy:
        """A policy; `checkpoint`: that it is from, where it is neither frozen nor the last one."""
        which = (
            f"@{player.snapshot.version}" if checkpoint is None else f"@{CHECKPOINT}{checkpoint}"
        )
        reference = f"{self.path}:{name.removesuffix(which)}{which}"
        return Policy(player.spec, player.snapshot, player.agent, name, self.game, reference)

    def policy(self, name: str, checkpoint: Checkpoint = "final") -> Policy:
        """One of its policies, ready to act.

        Args:
            name: of a policy, or `policy@version` of a frozen copy.
            checkpoint: whose weights; of a frozen copy a number, or `final`: the newest.

        Raises:
            UsageError: there is none of this name; it is a `KeyError` of the mapping, too.
            RunDirectoryError: weights are missing or damaged.
            CheckpointError: the checkpoint is missing or damaged.
        """
        which = _checked_checkpoint(checkpoint)
        if not isinstance(name, str):
            raise UnknownPolicyError(name, list(self))
        found = self._saved.find(name, which)
        return self._made(name, found.player, None if found.is_frozen else found.checkpoint)

    def summary(self) -> dict[str, Any]:
        """What came of it, as plain data: the content of `summary.json`.

        Raises:
            RunDirectoryError: it has not ended.
        """
        return self._files.read_summary()

    def metrics(self) -> Frame:
        """What it did, interval by interval; columns are float64, NaN: nothing was measured.

        `seconds`, `turns` and `steps` (of agents) are totals; the others are named as TensorBoard
        shows them: `agent_0/mean_return`, `run/turns_per_second`. docs/metrics.md describes all.

        Raises:
            RunDirectoryError: there are none, or no line of them is one.
        """
        return Frame.of_rows([row_of(record) for record in self._files.read_metrics()], "metrics")

    def ledger(self) -> Frame:
        """The matches that were over, a row for each, where seats are dealt (`population`).

        Columns: `match`, its number; `truncated`, whether it was cut off; and for each agent of the
        game `agent_0/policy`, who sat on its seat (of a frozen copy `policy@version`),
        `agent_0/return`, `agent_0/oldest_version` and `agent_0/newest_version` of the weights that
        acted.

        Raises:
            RunDirectoryError: the run has no ledger, or it is damaged.
        """
        return read_ledger(self._files, self.agents)

    def lineage(self) -> Frame:
        """The policies that were born while the run went on, a row for each, in order.

        Where policies evolve (`population.evolution`) or play in a league, those come first that
        it began with.

        Columns: `policy`, the place in which it was born, and `generation`, how many had been in it
        before; `matches` that were over then; `parent`, `parent_generation` and `parent_version` of
        the weights that it began with (an empty name: they were drawn); `optimizer_steps` behind
        the moments that it took over; `fitness` of the policy before it in its place and
        `parent_fitness`, NaN where they were not judged; and by name each hyperparameter that it
        began with.

        Raises:
            RunDirectoryError: the run has no ledger, or it is damaged.
        """
        return read_births(self._files)

    def payoffs(
        self, most: int | None = None, *, wins: bool = False, roles: bool = False
    ) -> Payoffs:
        """What policies earned against each other in the matches of the ledger, and how sure.

        A live policy is one, whatever version of it acted; each of its frozen copies is another.

        Args:
            most: so many policies at most: the live ones, then the newest frozen copies; None: all.
            wins: count wins, with draws as half of one, instead of returns.
            roles: keep the earlier and the later seat of a meeting apart; else they are pooled.

        Returns:
            `names` [N]; `matrix` [N, N], the mean return of the row against the column, NaN where
            they never met; `errors[0]` [N, N], its standard errors; `counts` [N, N] of matches;
            `intervals(0.95)[:, 0]` [2, N, N]. `remuda.analysis` takes it, and `to_pandas()` gives
            the means with their names.

        Raises:
            UsageError: `most` is less than 1, or no match is over.
            RunDirectoryError: the run has no ledger, or it is damaged.
        """
        return read_payoffs(self._files, self._saved.agents, most, wins=wins, roles=roles)

    def evaluate(
        self,
        episodes: int = 200,
        *,
        checkpoint: Checkpoint = "final",
        seed: int = 0,
        scripted: Mapping[str, str | Callable[..., Any]] | None = None,
        sampled: bool | None = None,
    ) -> Evaluation:
        """Play, and tell what each agent earned.

        Args:
            episodes: how many.
            checkpoint: whose weights.
            seed: of the games.
            scripted: by agent, who plays in its place without having learned: `random`, what
                `remuda games GAME` lists, `module:callable`, or such a function itself.
            sampled: whether policies explore as they do at the end of training, or are greedy;
                None: as the run itself measures them, `run.evaluate_sampled`.

        Raises:
            UsageError: no episodes, a seed below zero, what is no checkpoint, or a function that
                cannot be named.
            RunDirectoryError: weights are missing or damaged.
            CheckpointError: the checkpoint is missing or damaged.
            ConfigError: there is no such agent, or no such scripted policy.
        """
        _check_play(episodes, seed)
        config, snapshots = load_run(self._files, _checked_checkpoint(checkpoint))
        named = None if scripted is None else name_scripted(scripted, "scripted")
        return play_episodes(config, snapshots, episodes, seed, named, sampled)

    def report(self) -> Path:
        """Make its picture and its report; returns the page's path.

        Raises:
            RunDirectoryError: it has not ended, or no turn was played, or it cannot be written.
        """
        from remuda.ui.ending import make_report

        if not self.summary()["turns"]:
            raise RunDirectoryError(f"no report of {self.path}: no turn was played in it")
        failed = make_report(self._files)
        if failed:
            raise RunDirectoryError("; ".join(failed))
        return self.path / "report.html"


def _checked_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint that may be asked for, a number of numpy's as one of Python's.

    Raises:
        UsageError: it is none.
    """
    if _is_count(checkpoint):
        return int(checkpoint)
    if isinstance(checkpoint, str) and checkpoint in ("final", "best"):
        return checkpoint
    raise UsageError(f"checkpoint is a number, 'final' or 'best'; this is {checkpoint!r}")


def _path(run: Run | Result | Path | str, name: str = "run") -> Path:
    """A run's directory, absolute; `name`: of the argument, for the message.

    Raises:
        UsageError: it is no run.
    """
    if isinstance(run, Run):
        return run.path
    run = run.directory if isinstance(run, Result) else run
    if not isinstance(run, str | Path):
        raise UsageError(
            f"{name}: give a run's directory, what train returned or what load opened; this is "
            f"{run!r}"
        )
    return Path(run).expanduser().absolute()
