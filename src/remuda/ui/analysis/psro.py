"""`remuda.psro`, and its result in the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from remuda.config.reading import read_keywords, takes_settings
from remuda.coordinator.coordinator import Signals
from remuda.envs.registry import name_game
from remuda.errors import ConfigError, UsageError
from remuda.runs.metrics import View
from remuda.solvers.psro.exact import run_exact
from remuda.solvers.psro.iterations import INTERRUPTED, DoubleOracle, Iteration, Setup
from remuda.solvers.psro.meta_strategy import SUPPORT
from remuda.solvers.psro.record import LINES, description_of
from remuda.solvers.psro.settings import EXACT, LEARNED, SCRIPTED, TRAINED, PsroSettings
from remuda.solvers.psro.trained import run_trained
from remuda.system.checkpoint.names import claimed_directory
from remuda.system.processes.child import check_guard
from remuda.system.user_errors import naming_user_code
from remuda.ui.analysis.exploiting import CallArguments
from remuda.ui.terminal.live import make_view
from remuda.ui.terminal.tables import table_of

PSRO_DIRECTORY = Path("runs/psro")  # the parent of default directories
SHOWN = 8  # policies of a mixture in the final table
IN_LINE = 3  # policies of a mixture in an iteration's lines
RESUMED = ("resume", "iterations", "enough", "view", "on_iteration")


@takes_settings(PsroSettings)
@naming_user_code()
def psro(
    game: str | Callable[..., Any] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    directory: Path | str | None = None,
    resume: Path | str | None = None,
    view: View | None = None,
    on_iteration: Callable[[Iteration], None] | None = None,
    **settings: Any,
) -> DoubleOracle:
    """Grow populations by best responses to their own meta-mixtures: double oracle, or PSRO.

    Each iteration solves the empirical game among the policies, then adds each player's best
    response to the mixtures of the others. `resume` continues an interrupted run; finished
    iterations are not repeated.

    Args:
        game: as for `train`; exact oracles need one that can be enumerated.
        options: the game's options.
        directory: where results are written; None: with exact oracles nothing is written, with
            trained ones into a new directory under `runs/psro/`.
        resume: a directory to continue; only `iterations`, `enough`, `view` and `on_iteration` may
            be passed with it.
        view: shows training; None: the live view in a terminal, otherwise plain lines.
        on_iteration: called with each iteration, including those read from disk by `resume`.
        settings: the options that `remuda psro --help` lists, such as `oracle="ppo"` or
            `policy={"learning_rate": 1e-3}`.

    Returns:
        `iterations`, each with `mixtures`, `payoffs`, `gains`, `nash_conv`, `is_exact`, `welfare`
        and the empirical `game`; the reason it `ended`; and the last mixture of each role (`play`).

    Raises:
        UsageError: an argument is invalid or would be ignored, or the meta-solver is unknown.
        ConfigError: there is no such game, or these oracles do not support it.
        RunDirectoryError: the directory is in use, damaged, or cannot be written.
    """
    chosen = read_keywords(PsroSettings, settings, psro)
    arguments = {
        "options": options,
        "directory": directory,
        "resume": resume,
        "on_iteration": on_iteration,
    }
    call = read_keywords(CallArguments, arguments, psro)
    passed = [name for name, value in {"game": game, **arguments}.items() if value is not None]
    check_used([*settings, *passed], resume, chosen.oracle)
    with ExitStack() as stack:
        place = call.resume or call.directory
        if call.resume is not None:
            setup = Setup.of(description_of(call.resume), settings)
        elif game is None:
            raise UsageError("game: name one, such as kuhn_poker")
        else:
            setup = Setup(name_game(game), call.options or {}, chosen)
            if place is None and chosen.oracle != EXACT:
                place = stack.enter_context(claimed_directory(PSRO_DIRECTORY, setup.game))
        return _run(setup, place, resume is not None, view, on_iteration)


def check_used(
    given: Iterable[str], resume: Path | str | None, oracle: str, are_flags: bool = False
) -> None:
    """Raise an error if an argument of `psro`, or a flag of the command, would have no effect."""
    error, dashes = (ConfigError, "--") if are_flags else (UsageError, "")
    for name in sorted(given):
        word = f"{dashes}{name.replace('_', '-')}" if are_flags else name
        if resume is not None and name not in RESUMED:
            raise error(f"{word} is fixed by {resume}; leave it out with {dashes}resume")
        unused = {EXACT: TRAINED, SCRIPTED: LEARNED}
        if resume is None and name in unused.get(oracle, ()):
            kind = SCRIPTED if name == SCRIPTED else "ppo"
            how = f"--oracle {kind}" if are_flags else f'oracle="{kind}"'
            raise error(f"{word} is for trained oracles; add {how}, or leave it out")


def _run(
    setup: Setup,
    directory: Path | None,
    resume: bool,
    view: View | None,
    on_iteration: Callable[[Iteration], None] | None,
) -> DoubleOracle:
    signals = Signals()
    common = (resume, on_iteration, signals.stopped)
    if directory is not None:
        try:
            json.dumps(setup.description(), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"options and policy must be JSON data to be saved in the directory: numbers, "
                f"strings, lists and dictionaries; {error}"
            ) from None
        if setup.settings.oracle != EXACT:
            check_guard()
            view = make_view(live=True) if view is None else view
            with signals.watching():
                return run_trained(setup, directory, view, *common)
    with signals.watching():
        return run_exact(setup, directory, *common)


def lines_of(found: Iteration) -> str:
    """Describe an iteration in a line, and each role in a line below it."""
    welfare = round(found.welfare, 4) + 0.0  # never -0
    lines = [f"iteration {found.number:3}: {_gap(found)}, welfare {welfare:.4f}"]
    for role, mixture in enumerate(found.mixtures):
        who = f"player {role}" if len(found.mixtures) > 1 else "all players"
        gain = f"{found.gains[role]:.6f}"
        if found.margins is not None:
            gain = f"{found.gains[role]:.4f} ± {found.margins[role]:.4f} (95%)"
        played = f"plays {found.support[role]} of {found.policies[role]}"
        lines.append(f"  {who}: gain {gain}, {played} ({_shares(mixture, IN_LINE)})")
    if found.strategy.note:
        regret = f"regret {found.strategy.regret:.4g} among the known policies"
        lines.append(f"  {found.strategy.note}: {regret}")
    return "\n".join(lines)


def print_double_oracle(found: DoubleOracle, console: Console | None = None) -> None:
    """Print the last mixture of each role as a table, then the result in words."""
    console = console or Console()
    oracles = "exact best responses" if found.oracle == EXACT else f"{found.oracle} oracles"
    console.print(Text.assemble((found.game, "bold"), f", {found.meta_solver}, {oracles}"))
    if found.iterations:
        last = found.last
        gain = "gain" if last.is_exact else "gain, at least"
        table = table_of("player", "policies", "support", gain)
        table.add_column("mixture, by policy")
        lowest = last.gains.tolist()
        if last.margins is not None:
            lowest = list(map(_lowest, lowest, last.margins.tolist()))
        for player, mixture in enumerate(last.mixtures):
            table.add_row(
                str(player) if len(last.mixtures) > 1 else "all",
                str(last.policies[player]),
                str(last.support[player]),
                f"{lowest[player]:.{6 if last.is_exact else 4}f}",
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
    count = "1 iteration" if last.number == 1 else f"{last.number} iterations"
    return f"{_gap(last)} after {count}: {found.ended}"


def _gap(found: Iteration) -> str:
    """Return the sum of the gains in words."""
    name = found.strategy.gap
    if found.is_exact:
        return f"{name} {found.nash_conv:.6f}"
    return f"{name} {_at_least(found.nash_conv, found.margin)}"


def _at_least(gain: float, margin: float) -> str:
    """Return the lower end of the 95% interval of an estimated gain, then the estimate."""
    return f"at least {_lowest(gain, margin):.4f} ({gain:.4f} ± {margin:.4f}, 95%)"


def _lowest(gain: float, margin: float) -> float:
    """Return the lower end of an interval; a best response never loses."""
    return max(gain - margin, 0.0)


def _shares(mixture: np.ndarray[Any, np.dtype[np.float64]], most: int = SHOWN) -> str:
    played = np.flatnonzero(mixture > SUPPORT)
    shown = np.sort(played[np.argsort(-mixture[played], kind="stable")[:most]])
    words = [f"{policy}: {mixture[policy]:.3f}" for policy in shown.tolist()]
    if len(shown) < len(played):
        left = 1.0 - float(mixture[shown].sum())
        words.append(f"{len(played) - len(shown)} others: {left:.3f}")
    return ", ".join(words)
