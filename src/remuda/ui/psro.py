"""`remuda.psro`, and its answer on one screen."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.checkpoint.names import claimed_directory
from remuda.config import PolicyConfig
from remuda.coordinator.coordinator import Signals
from remuda.coordinator.metrics import View
from remuda.double_oracle.exact import ORACLE, ExactSetup, run_exact
from remuda.double_oracle.iterations import INTERRUPTED, DoubleOracle, Iteration
from remuda.double_oracle.meta_solvers import SUPPORT
from remuda.double_oracle.oracles import TRIALS, OracleSettings
from remuda.double_oracle.record import LINES, description_of
from remuda.double_oracle.trained import run_trained
from remuda.double_oracle.trained_setup import MATCHES, TrainedSetup
from remuda.envs.registry import name_game
from remuda.errors import ConfigError, UsageError
from remuda.forkserver.child import check_guard
from remuda.ui.live import make_view
from remuda.user_code import naming_user_code

KEPT = Path("runs/psro")
"""Where double oracles are kept if no directory is named."""
SHOWN = 8
"""Policies of a mixture that the closing table lists."""
ITERATIONS = 20
"""At most, where nothing else is said."""


TRAINED = (
    *("seconds", "turns", "candidates", "matches", "trials", "policy", "num_envs"),
    *("schedule", "seed"),
)
"""What is for trained oracles alone."""
RESUMED = ("resume", "iterations", "enough", "view", "told")
"""What goes with a directory that is gone on with."""
KINDS: tuple[tuple[str, Any, str], ...] = (
    ("oracle", str, '"exact", or the name of an algorithm'),
    ("options", Mapping, "a dictionary"),
    ("policy", Mapping | PolicyConfig, "a dictionary, or a PolicyConfig"),
    ("directory", str | Path, "a path"),
    ("resume", str | Path, "a path"),
)
"""Of which kind arguments are, and that in words."""


@naming_user_code()
def psro(
    game: str | Callable[..., Any] | None = None,
    *,
    meta_solver: str = "nash",
    oracle: str = ORACLE,
    iterations: int | None = None,
    options: Mapping[str, Any] | None = None,
    directory: Path | str | None = None,
    resume: Path | str | None = None,
    enough: float | None = None,
    seconds: float | None = 20.0,
    turns: int | None = None,
    candidates: int = 2,
    matches: int = MATCHES,
    trials: int = TRIALS,
    policy: Mapping[str, Any] | PolicyConfig | None = None,
    num_envs: int | None = None,
    schedule: str = "async",
    seed: int = 0,
    view: View | None = None,
    told: Callable[[Iteration], None] | None = None,
) -> DoubleOracle:
    """Let populations grow by best responses to their own meta-mixtures: double oracle, or PSRO.

    Each iteration solves the game in which policies are strategies, and adds a best response of
    each player to the others' mixture. What was interrupted goes on by `resume`, and does nothing
    twice that was finished.

    Args:
        game: its name; with exact oracles one that can be walked: `kuhn_poker`, `leduc_poker`,
            `tic_tac_toe`, a matrix game of one round, or `open_spiel:NAME`.
        meta_solver: `nash`, `max-entropy-nash`, `uniform`, `alpha-rank`, `projected-replicator` or
            `rectified-nash`.
        oracle: `exact`, or the algorithm that trains best responses, such as `ppo`.
        iterations: at most, not counting that of the first policies, which play at random; None:
            20, or as many as the directory that is resumed was to have.
        options: of the game.
        directory: where it is kept; None: with exact oracles nowhere, else a new one under
            `runs/psro/`.
        resume: a directory to go on with; only `iterations`, `enough`, `view` and
            `told` go with it.
        enough: end where NashConv is known exactly, and is no more than this.
        seconds: of training in each iteration; None: by `turns` alone.
        turns: of training in each iteration, over all copies.
        candidates: oracles of each player, of which the best is taken.
        matches: of each pair of policies, before more of those follow on which the mixtures hang.
        trials: matches by which the best candidate is chosen, of each.
        policy: what oracles are, as `train` takes it, over the preset of `exploit`.
        num_envs: copies of the game in training; None: 64 for each candidate of a player.
        schedule: of training.
        seed: of all random numbers.
        view: who watches training; None: the live view in a terminal, else plain lines.
        told: is told of every iteration, those before an interruption too.

    Returns:
        `iterations`, each with `mixtures`, `payoffs`, `gains`, `nash_conv` and whether that
        `is_exact`; why it `ended`; and by player what the last mixture plays (`play`).

    Raises:
        UsageError: a setting that cannot be or would be ignored, or an unknown meta-solver.
        ConfigError: there is no such game, or it is not one for these oracles.
        RunDirectoryError: the directory is in use, damaged, or cannot be written.
    """
    _check_together(dict(locals()))
    if resume is not None:
        return _go_on(Path(resume).expanduser(), iterations, enough, view, told)
    if game is None:
        raise UsageError("game: name one, such as kuhn_poker")
    name, most = name_game(game), ITERATIONS if iterations is None else iterations
    where = None if directory is None else Path(directory).expanduser()
    setup: ExactSetup | TrainedSetup
    if oracle == ORACLE:
        setup = ExactSetup(name, dict(options or {}), meta_solver)
    else:
        if isinstance(policy, PolicyConfig):
            tree = policy.model_dump(mode="json", exclude_unset=True)
        else:
            tree = dict(policy or {})
        if tree.get("algorithm", oracle) != oracle:
            raise UsageError(
                f"policy.algorithm is {tree['algorithm']!r}, but the oracle is {oracle!r}; take "
                f"--oracle {tree['algorithm']}, and leave policy.algorithm out"
            )
        oracles = OracleSettings(
            candidates, seconds, turns, {**tree, "algorithm": oracle}, num_envs, schedule, trials
        )
        setup = TrainedSetup(name, dict(options or {}), meta_solver, seed, matches, oracles)
    with ExitStack() as stack:
        if where is None and oracle != ORACLE:
            where = stack.enter_context(directory_for(name))
        return _run(setup, most, where, False, 0.0 if enough is None else enough, view, told)


def _check_together(asked: Mapping[str, Any]) -> None:
    """Raise a `UsageError` where an argument of `psro` is of another kind, or would be ignored.

    Args:
        asked: all arguments, by name.
    """
    for name, kinds, words in KINDS:
        value = asked[name]
        if value is not None and not isinstance(value, kinds):
            raise UsageError(f"{name}: {words}; this is {value!r}")
    if asked["told"] is not None and not callable(asked["told"]):
        raise UsageError(f"told: a function that takes an iteration; this is {asked['told']!r}")
    standard = {name: each.default for name, each in inspect.signature(psro).parameters.items()}
    nothing: tuple[Any, ...] = (None, {})  # no options are as good as none
    given = [
        name
        for name, value in asked.items()
        if value != standard[name] and not (value in nothing and standard[name] is None)
    ]
    if asked["resume"] is not None:
        if "game" in given or "directory" in given:
            raise UsageError("resume goes on with its own game and directory; leave both out")
        for name in given:
            if name not in RESUMED:
                raise UsageError(
                    f"{name} is as it was in {asked['resume']}; leave it out with resume"
                )
    elif asked["oracle"] == ORACLE:
        for name in given:
            if name in TRAINED:
                raise UsageError(
                    f'{name} is for trained oracles; add oracle="ppo", or leave it out'
                )


def _check_plain(setup: ExactSetup | TrainedSetup) -> None:
    """Raise a `UsageError` where a directory cannot keep what is asked."""
    try:
        json.dumps(setup.description(), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"options and policy: what a directory can keep, which is numbers, texts, lists and "
            f"dictionaries of Python; {error}"
        ) from None


def directory_for(game: str) -> AbstractContextManager[Path]:
    """A new directory under `runs/psro/`, named by game and time."""
    return claimed_directory(KEPT, game)


def _go_on(
    directory: Path,
    iterations: int | None,
    enough: float | None,
    view: View | None,
    told: Callable[[Iteration], None] | None,
) -> DoubleOracle:
    found = description_of(directory)
    setup: ExactSetup | TrainedSetup
    setup = ExactSetup.of(found) if found["oracle"] == ORACLE else TrainedSetup.of(found)
    most = found["iterations"] if iterations is None else iterations
    least = found.get("enough", 0.0) if enough is None else enough
    return _run(setup, most, directory, True, least, view, told)


def _run(
    setup: ExactSetup | TrainedSetup,
    iterations: int,
    directory: Path | None,
    resume: bool,
    enough: float,
    view: View | None,
    told: Callable[[Iteration], None] | None,
) -> DoubleOracle:
    signals = Signals()
    if directory is not None:
        _check_plain(setup)
    if isinstance(setup, ExactSetup):
        with signals.watching():
            return run_exact(setup, iterations, directory, resume, enough, told, signals.stopped)
    if directory is None:
        raise ConfigError("trained oracles need a directory")
    check_guard()
    view = make_view(live=True) if view is None else view
    with signals.watching():
        return run_trained(
            setup, iterations, directory, view, resume, enough, told, signals.stopped
        )


def line_of(found: Iteration) -> str:
    """An iteration in one line."""
    played = " + ".join(
        f"{used} of {count}" for used, count in zip(found.support, found.policies, strict=True)
    )
    how = f"{found.nash_conv:.6f}" if found.is_exact else f"at least {_bound(found)}"
    return f"iteration {found.number:3}: NashConv {how}, played {played}"


def print_line(found: Iteration, out: IO[str] | None = None) -> None:
    """Tell of an iteration, at once."""
    print(line_of(found), file=out or sys.stdout, flush=True)


def print_double_oracle(found: DoubleOracle, console: Console | None = None) -> None:
    """The closing table: who is played how often, and what that amounts to in words."""
    console = console or Console()
    oracles = "exact best responses" if found.oracle == ORACLE else f"{found.oracle} oracles"
    console.print(Text.assemble((found.game, "bold"), f", {found.meta_solver}, {oracles}"))
    if found.iterations:
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
        table.add_column("player", style="bold")
        last = found.last
        for name in ("policies", "played", "gain" if last.is_exact else "gain, at least"):
            table.add_column(name, justify="right")
        table.add_column("mixture, by policy")
        for player, mixture in enumerate(last.mixtures):
            table.add_row(
                str(player),
                str(last.policies[player]),
                str(last.support[player]),
                f"{last.gains[player]:.{6 if last.is_exact else 4}f}",
                _shares(mixture),
            )
        console.print(table)
    console.print(Text(in_words(found)))
    if found.ended == INTERRUPTED and found.directory:
        console.print(Text(f"`remuda psro --resume {found.directory}` goes on"), soft_wrap=True)
    if found.directory:
        console.print(Text(f"wrote {found.directory}/{LINES}", "dim"), soft_wrap=True)


def in_words(found: DoubleOracle) -> str:
    """What came of it, in a sentence."""
    if not found.iterations:
        return f"{found.ended}: nothing is known yet"
    last = found.last
    exact = f"NashConv {last.nash_conv:.6f}"
    how = exact if last.is_exact else f"NashConv at least {_bound(last)} (95%)"
    many = "1 iteration" if last.number == 1 else f"{last.number} iterations"
    return f"{how} after {many}: {found.ended}"


def _bound(found: Iteration) -> str:
    return f"{found.nash_conv:.4f} ± {found.margin:.4f}"


def _shares(mixture: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    """The policies that are played, of many those that are played most."""
    played = np.flatnonzero(mixture > SUPPORT)
    shown = np.sort(played[np.argsort(-mixture[played], kind="stable")[:SHOWN]])
    words = [f"{policy}: {mixture[policy]:.3f}" for policy in shown.tolist()]
    if len(shown) < len(played):
        left = 1.0 - float(mixture[shown].sum())
        words.append(f"{len(played) - len(shown)} others: {left:.3f}")
    return ", ".join(words)
