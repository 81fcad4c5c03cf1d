"""`remuda.psro`, and its result in the terminal."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from remuda.checkpoint.names import claimed_directory
from remuda.config import PolicyConfig
from remuda.coordinator.coordinator import Signals
from remuda.coordinator.metrics import View
from remuda.double_oracle.exact import ExactSetup, run_exact
from remuda.double_oracle.iterations import INTERRUPTED, ORACLE, DoubleOracle, Iteration
from remuda.double_oracle.meta_solvers import SUPPORT
from remuda.double_oracle.oracles import TRIALS, OracleSettings
from remuda.double_oracle.record import LINES, description_of
from remuda.double_oracle.trained import run_trained
from remuda.double_oracle.trained_setup import MATCHES, TrainedSetup
from remuda.envs.registry import name_game
from remuda.errors import ConfigError, UsageError
from remuda.forkserver.child import check_guard
from remuda.ui.exploiting import policy_tree
from remuda.ui.live import make_view
from remuda.ui.tables import table_of
from remuda.user_code import naming_user_code

PSRO_DIRECTORY = Path("runs/psro")
"""The parent of directories that are not named."""
SHOWN = 8
"""Policies of a mixture that the closing table lists."""
ITERATIONS = 20

TRAINED = (
    *("seconds", "turns", "candidates", "matches", "trials", "policy", "num_envs"),
    *("schedule", "seed"),
)
"""Arguments of trained oracles."""
RESUMED = ("resume", "iterations", "enough", "view", "on_iteration")
"""Arguments that are allowed with `resume`."""
TYPES: tuple[tuple[str, Any, str], ...] = (
    ("oracle", str, '"exact", or the name of an algorithm'),
    ("options", Mapping, "a dictionary"),
    ("policy", Mapping | PolicyConfig, "a dictionary, or a PolicyConfig"),
    ("directory", str | Path, "a path"),
    ("resume", str | Path, "a path"),
    ("on_iteration", Callable, "a function that takes an iteration"),
)
"""Arguments, their type, and the type in words."""


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
    on_iteration: Callable[[Iteration], None] | None = None,
) -> DoubleOracle:
    """Grow populations by best responses to their own meta-mixtures: double oracle, or PSRO.

    Each iteration solves the empirical game whose strategies are the policies, and adds a best
    response of each player to the others' mixture. `resume` continues an interrupted run; finished
    iterations are not repeated.

    Args:
        game: its name; exact oracles need one that can be enumerated: `kuhn_poker`, `leduc_poker`,
            `tic_tac_toe`, a matrix game of one round, or `open_spiel:NAME`.
        meta_solver: `nash`, `max-entropy-nash`, `uniform`, `alpha-rank`, `projected-replicator` or
            `rectified-nash`.
        oracle: `exact`, or the algorithm that trains best responses, such as `ppo`.
        iterations: the most iterations, not counting that of the first policies, which play at
            random; None: 20, or as before with `resume`.
        options: of the game.
        directory: of the results; None: with exact oracles none, else a new one under `runs/psro/`.
        resume: a directory to continue; only `iterations`, `enough`, `view` and `on_iteration` may
            be passed with it.
        enough: stop once NashConv is known exactly and is at most this.
        seconds: of training in each iteration; None: by `turns` alone.
        turns: of training in each iteration, over all copies.
        candidates: oracles of each player, of which the best is used.
        matches: of each pair of policies, before more are played where the mixtures depend on them.
        trials: matches of each candidate, by which the best is chosen.
        policy: settings of the oracles, as for `train`, over the preset of `exploit`.
        num_envs: copies of the environment in training; None: 64 for each candidate of a player.
        schedule: of training.
        seed: of all random numbers.
        view: shows training; None: the live view in a terminal, else plain lines.
        on_iteration: called with each iteration, those before an interruption too.

    Returns:
        `iterations`, each with `mixtures`, `payoffs`, `gains`, `nash_conv` and whether that
        `is_exact`; why it `ended`; and by player the last mixture (`play`).

    Raises:
        UsageError: an argument is invalid or would be ignored, or the meta-solver is unknown.
        ConfigError: there is no such game, or it is not one for these oracles.
        RunDirectoryError: the directory is in use, damaged, or cannot be written.
    """
    _check_arguments(dict(locals()))
    setup: ExactSetup | TrainedSetup
    if resume is not None:
        where = Path(resume).expanduser()
        record = description_of(where)
        setup = ExactSetup.of(record) if record["oracle"] == ORACLE else TrainedSetup.of(record)
        most = record["iterations"] if iterations is None else iterations
        least = record.get("enough", 0.0) if enough is None else enough
        return _run(setup, most, where, True, least, view, on_iteration)
    if game is None:
        raise UsageError("game: name one, such as kuhn_poker")
    name, options = name_game(game), dict(options or {})
    if oracle == ORACLE:
        setup = ExactSetup(name, options, meta_solver)
    else:
        tree = policy_tree(policy)
        if tree.get("algorithm", oracle) != oracle:
            raise UsageError(
                f"policy.algorithm is {tree['algorithm']!r}, but the oracle is {oracle!r}; take "
                f"--oracle {tree['algorithm']}, and leave policy.algorithm out"
            )
        tree["algorithm"] = oracle
        oracles = OracleSettings(candidates, seconds, turns, tree, num_envs, schedule, trials)
        setup = TrainedSetup(name, options, meta_solver, seed, matches, oracles)
    with ExitStack() as stack:
        place = None if directory is None else Path(directory).expanduser()
        if place is None and oracle != ORACLE:
            place = stack.enter_context(directory_for(name))
        most = ITERATIONS if iterations is None else iterations
        return _run(setup, most, place, False, enough or 0.0, view, on_iteration)


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise a `UsageError` if an argument of `psro` has the wrong type, or would be ignored."""
    for name, kind, words in TYPES:
        value = arguments[name]
        if value is not None and not isinstance(value, kind):
            raise UsageError(f"{name}: {words}; this is {value!r}")
    defaults = {name: each.default for name, each in inspect.signature(psro).parameters.items()}
    given = [
        name
        for name, value in arguments.items()
        if value != defaults[name] and not (value == {} and defaults[name] is None)
    ]
    if arguments["resume"] is not None:
        if "game" in given or "directory" in given:
            raise UsageError("resume uses its own game and directory; leave both out")
        for name in given:
            if name not in RESUMED:
                raise UsageError(
                    f"{name} is fixed by {arguments['resume']}; leave it out with resume"
                )
    elif arguments["oracle"] == ORACLE:
        for name in given:
            if name in TRAINED:
                raise UsageError(
                    f'{name} is for trained oracles; add oracle="ppo", or leave it out'
                )


def directory_for(game: str) -> AbstractContextManager[Path]:
    """Return a new directory under `runs/psro/`, named by game and time."""
    return claimed_directory(PSRO_DIRECTORY, game)


def _run(
    setup: ExactSetup | TrainedSetup,
    iterations: int,
    directory: Path | None,
    resume: bool,
    enough: float,
    view: View | None,
    on_iteration: Callable[[Iteration], None] | None,
) -> DoubleOracle:
    signals = Signals()
    if directory is not None:
        try:
            json.dumps(setup.description(), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"options and policy: what a directory can keep, which is numbers, texts, lists "
                f"and dictionaries of Python; {error}"
            ) from None
    common = (resume, enough, on_iteration, signals.stopped)
    if isinstance(setup, ExactSetup):
        with signals.watching():
            return run_exact(setup, iterations, directory, *common)
    if directory is None:
        raise ConfigError("trained oracles need a directory")
    check_guard()
    view = make_view(live=True) if view is None else view
    with signals.watching():
        return run_trained(setup, iterations, directory, view, *common)


def line_of(found: Iteration) -> str:
    """Return an iteration in one line."""
    played = " + ".join(
        f"{used} of {count}" for used, count in zip(found.support, found.policies, strict=True)
    )
    how = f"{found.nash_conv:.6f}" if found.is_exact else f"at least {_bound(found)}"
    return f"iteration {found.number:3}: NashConv {how}, played {played}"


def print_line(found: Iteration, out: IO[str] | None = None) -> None:
    """Print an iteration in one line, at once."""
    print(line_of(found), file=out or sys.stdout, flush=True)


def print_double_oracle(found: DoubleOracle, console: Console | None = None) -> None:
    """Print the last mixture of each player as a table, and the result in words."""
    console = console or Console()
    oracles = "exact best responses" if found.oracle == ORACLE else f"{found.oracle} oracles"
    console.print(Text.assemble((found.game, "bold"), f", {found.meta_solver}, {oracles}"))
    if found.iterations:
        last = found.last
        gain = "gain" if last.is_exact else "gain, at least"
        table = table_of("player", "policies", "played", gain)
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
        resume = f"`remuda psro --resume {found.directory}` continues"
        console.print(Text(resume), soft_wrap=True)
    if found.directory:
        console.print(Text(f"wrote {found.directory}/{LINES}", "dim"), soft_wrap=True)


def in_words(found: DoubleOracle) -> str:
    """Return the result in a sentence."""
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
    """Return the policies with the largest shares of a mixture in words."""
    played = np.flatnonzero(mixture > SUPPORT)
    shown = np.sort(played[np.argsort(-mixture[played], kind="stable")[:SHOWN]])
    words = [f"{policy}: {mixture[policy]:.3f}" for policy in shown.tolist()]
    if len(shown) < len(played):
        left = 1.0 - float(mixture[shown].sum())
        words.append(f"{len(played) - len(shown)} others: {left:.3f}")
    return ", ".join(words)
