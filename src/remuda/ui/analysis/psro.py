"""`remuda.psro`, and its result in the terminal."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from remuda.config import PolicyConfig
from remuda.coordinator.coordinator import Signals
from remuda.envs.registry import name_game
from remuda.errors import ConfigError, UsageError
from remuda.runs.metrics import View
from remuda.solvers.psro.exact import ExactSetup, run_exact
from remuda.solvers.psro.iterations import INTERRUPTED, ORACLE, DoubleOracle, Iteration
from remuda.solvers.psro.meta_solvers import SUPPORT
from remuda.solvers.psro.oracles import TRIALS, OracleSettings
from remuda.solvers.psro.record import LINES, description_of
from remuda.solvers.psro.trained import run_trained
from remuda.solvers.psro.trained_setup import MATCHES, TrainedSetup
from remuda.system.checkpoint.names import claimed_directory
from remuda.system.processes.child import check_guard
from remuda.system.user_errors import naming_user_code
from remuda.ui.analysis.exploiting import policy_tree
from remuda.ui.terminal.live import make_view
from remuda.ui.terminal.tables import table_of

PSRO_DIRECTORY = Path("runs/psro")  # the parent of default directories
SHOWN = 8  # policies of a mixture in the final table
ITERATIONS = 20

TRAINED = (  # arguments for trained oracles only
    *("seconds", "turns", "candidates", "matches", "trials", "policy", "num_envs"),
    *("schedule", "seed"),
)
RESUMED = ("resume", "iterations", "enough", "view", "on_iteration")
TYPES: tuple[tuple[str, Any, str], ...] = (  # arguments, their types, and descriptions of the types
    ("oracle", str, '"exact", or the name of an algorithm'),
    ("options", Mapping, "a dictionary"),
    ("policy", Mapping | PolicyConfig, "a dictionary, or a PolicyConfig"),
    ("directory", str | Path, "a path"),
    ("resume", str | Path, "a path"),
    ("on_iteration", Callable, "a function that takes an iteration"),
)


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

    Each iteration solves the empirical game among the policies, then adds each player's best
    response to the mixtures of the others. `resume` continues an interrupted run; finished
    iterations are not repeated.

    Arguments are the options of `remuda psro` (docs/commands.md), and:

    - `iterations`: the maximum; None: 20, or with `resume` the previous maximum.
    - `options`: the game's options.
    - `directory`: where results are written; None: with exact oracles nothing is written, with
      trained ones into a new directory under `runs/psro/`.
    - `resume`: a directory to continue; only `iterations`, `enough`, `view` and `on_iteration` may
      be passed with it.
    - `policy`: settings of the oracles, as for `train`; they override the preset of `exploit`.
    - `view`: shows training; None: the live view in a terminal, otherwise plain lines.
    - `on_iteration`: called with each iteration, including those read from disk by `resume`.

    Returns:
        `iterations`, each with `mixtures`, `payoffs`, `gains`, `nash_conv` and `is_exact`; the
        reason it `ended`; and the last mixture of each player (`play`).

    Raises:
        UsageError: an argument is invalid or would be ignored, or the meta-solver is unknown.
        ConfigError: there is no such game, or these oracles do not support it.
        RunDirectoryError: the directory is in use, damaged, or cannot be written.
    """
    _check_arguments(dict(locals()))
    setup: ExactSetup | TrainedSetup
    if resume is not None:
        where = Path(resume).expanduser()
        record = description_of(where)
        setup = ExactSetup.of(record) if record["oracle"] == ORACLE else TrainedSetup.of(record)
        most = record["iterations"] if iterations is None else iterations
        bound = record.get("enough", 0.0) if enough is None else enough
        return _run(setup, most, where, True, bound, view, on_iteration)
    if game is None:
        raise UsageError("game: name one, such as kuhn_poker")
    name, options = name_game(game), dict(options or {})
    if oracle == ORACLE:
        setup = ExactSetup(name, options, meta_solver)
    else:
        tree = policy_tree(policy)
        if tree.get("algorithm", oracle) != oracle:
            raise UsageError(
                f"policy.algorithm is {tree['algorithm']!r}, but the oracle is {oracle!r}; use "
                f"--oracle {tree['algorithm']}, and leave policy.algorithm out"
            )
        tree["algorithm"] = oracle
        oracles = OracleSettings(candidates, seconds, turns, tree, num_envs, schedule, trials)
        setup = TrainedSetup(name, options, meta_solver, seed, matches, oracles)
    with ExitStack() as stack:
        place = None if directory is None else Path(directory).expanduser()
        if place is None and oracle != ORACLE:
            place = stack.enter_context(claimed_directory(PSRO_DIRECTORY, name))
        most = ITERATIONS if iterations is None else iterations
        return _run(setup, most, place, False, enough or 0.0, view, on_iteration)


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    for name, kind, words in TYPES:
        value = arguments[name]
        if value is not None and not isinstance(value, kind):
            raise UsageError(f"{name}: {words}; this is {value!r}")
    defaults = {name: each.default for name, each in inspect.signature(psro).parameters.items()}
    explicit = [
        name
        for name, value in arguments.items()
        if value != defaults[name] and not (value == {} and defaults[name] is None)
    ]
    check_used(explicit, arguments["resume"], arguments["oracle"])


def check_used(
    given: Iterable[str], resume: Path | str | None, oracle: str, are_flags: bool = False
) -> None:
    """Raise an error if an argument of `psro`, or a flag of the command, would have no effect."""
    error, dashes = (ConfigError, "--") if are_flags else (UsageError, "")
    for name in sorted(given):
        word = f"{dashes}{name.replace('_', '-')}" if are_flags else name
        if resume is not None and name not in RESUMED:
            raise error(f"{word} is fixed by {resume}; leave it out with {dashes}resume")
        if resume is None and oracle == ORACLE and name in TRAINED:
            how = "--oracle ppo" if are_flags else 'oracle="ppo"'
            raise error(f"{word} is for trained oracles; add {how}, or leave it out")


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
                f"options and policy must be JSON data to be saved in the directory: numbers, "
                f"strings, lists and dictionaries; {error}"
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
    """Describe an iteration in one line."""
    played = " + ".join(
        f"{used} of {count}" for used, count in zip(found.support, found.policies, strict=True)
    )
    how = f"{found.nash_conv:.6f}" if found.is_exact else f"at least {_bound(found)}"
    return f"iteration {found.number:3}: NashConv {how}, played {played}"


def print_line(found: Iteration, out: IO[str] | None = None) -> None:
    """Print an iteration in one line, unbuffered."""
    print(line_of(found), file=out or sys.stdout, flush=True)


def print_double_oracle(found: DoubleOracle, console: Console | None = None) -> None:
    """Print the last mixture of each player as a table, then the result in words."""
    console = console or Console()
    oracles = "exact best responses" if found.oracle == ORACLE else f"{found.oracle} oracles"
    console.print(Text.assemble((found.game, "bold"), f", {found.meta_solver}, {oracles}"))
    if found.iterations:
        last = found.last
        gain = "gain" if last.is_exact else "gain, at least"
        table = table_of("player", "policies", "support", gain)
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
    count = "1 iteration" if last.number == 1 else f"{last.number} iterations"
    return f"{how} after {count}: {found.ended}"


def _bound(found: Iteration) -> str:
    return f"{found.nash_conv:.4f} ± {found.margin:.4f}"


def _shares(mixture: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    played = np.flatnonzero(mixture > SUPPORT)
    shown = np.sort(played[np.argsort(-mixture[played], kind="stable")[:SHOWN]])
    words = [f"{policy}: {mixture[policy]:.3f}" for policy in shown.tolist()]
    if len(shown) < len(played):
        left = 1.0 - float(mixture[shown].sum())
        words.append(f"{len(played) - len(shown)} others: {left:.3f}")
    return ", ".join(words)
