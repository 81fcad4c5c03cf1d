"""The command `remuda`. Heavy libraries are imported inside the commands, so that help is quick."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.config import Config, Section, all_presets
from remuda.errors import ConfigError, RemudaError
from remuda.system.output import OutputError, unfailing
from remuda.system.user_errors import naming_user_code
from remuda.system.version import __version__
from remuda.ui.cli.arguments import parse_flags, validate
from remuda.ui.cli.commands import games, one_run, options, several_runs, solvers
from remuda.ui.cli.commands import train as training
from remuda.ui.cli.help import help_of, is_help, wrapped
from remuda.ui.cli.program import INTERRUPTED, exit_message, set_exit_hints


@dataclass(frozen=True)
class Command:
    """A subcommand of `remuda`."""

    run: Callable[[Any], int]  # takes options, or words if `takes_words`
    options: type[Section]
    positional: str
    takes_words: bool = False
    is_long: bool = False  # may run for hours; continues even if its output is closed

    @property
    def summary(self) -> str:
        return (self.run.__doc__ or "").strip().splitlines()[0]


COMMANDS = {
    "train": Command(training.train, Config, "game", takes_words=True, is_long=True),
    "status": Command(one_run.status, one_run.StatusOptions, "run"),
    "evaluate": Command(one_run.evaluate, one_run.EvaluateOptions, "run", is_long=True),
    "tournament": Command(
        several_runs.tournament, several_runs.TournamentOptions, "run", is_long=True
    ),
    "analyse": Command(several_runs.analyse, several_runs.AnalyseOptions, "sources"),
    "exploit": Command(
        solvers.exploit, solvers.ExploitOptions, "target", takes_words=True, is_long=True
    ),
    "psro": Command(solvers.psro, solvers.PsroOptions, "game", takes_words=True, is_long=True),
    "record": Command(one_run.record, one_run.RecordOptions, "run", is_long=True),
    "watch": Command(one_run.watch, one_run.WatchOptions, "run"),
    "report": Command(one_run.report, one_run.ReportOptions, "run"),
    "runs": Command(several_runs.runs, several_runs.RunsOptions, "directory"),
    "dashboard": Command(several_runs.dashboard, several_runs.DashboardOptions, "directory"),
    "compare": Command(several_runs.compare, several_runs.CompareOptions, "runs"),
    "games": Command(games.games, games.GamesOptions, "game"),
    "play": Command(games.play, options.PlayOptions, "game"),
}
# Not for users: `remuda train --seeds --jobs` starts its child processes with this command.
UNLISTED = {
    several_runs.ONE_OF_SEEDS: Command(
        training.train_one_of_seeds, Config, "game", takes_words=True, is_long=True
    )
}

EXIT_CODES = (
    "exit code: 0: success. 1: something failed, or the state of a run does not allow the command; "
    "the message explains why. 2: an unknown command, flag, key or game, or a value of the wrong "
    "type (errors found after a run is opened exit with 1). 3: the run finished, but a policy "
    "stopped learning because too many of its updates were not finite. 129, 130, 143: "
    "stopped by SIGHUP (the terminal was closed), Ctrl-C or SIGTERM."
)


def usage() -> str:
    """Return what `remuda --help` prints."""
    calls = [f"  {name} {command.positional.upper()}" for name, command in COMMANDS.items()]
    widest = max(map(len, calls)) + 2
    commands = [
        wrapped(f"{call:<{widest}}{command.summary}", " " * widest)
        for call, command in zip(calls, COMMANDS.values(), strict=True)
    ]
    title = f"remuda {__version__}: train many policies at once, in environments they share"
    text = _help_texts()[0].format(commands="\n".join(commands))
    return f"{title}\n\n{text}\n{wrapped(EXIT_CODES)}"


def _help_texts() -> list[str]:
    """Return the texts for all commands, and for `train`."""
    return Path(__file__).with_name("help.txt").read_text(encoding="utf-8").split("====\n")


def main() -> None:
    """Run the command line and end the process with its exit code."""
    # The user's own game is imported from the current directory.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run one command; return the exit code. Print errors that the user can fix as one line."""
    set_exit_hints()
    command = COMMANDS.get(words[0]) or UNLISTED.get(words[0]) if words else None
    is_long = command is not None and command.is_long and not is_help(words[1:])
    with unfailing() if is_long else nullcontext():
        return _run(words, command)


def _run(words: Sequence[str], command: Command | None) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if words[0] == "--version":
        print(f"remuda {__version__}")
        return 0
    try:
        if command is None:
            near = difflib.get_close_matches(words[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(f"no command {words[0]!r}; {hint}Commands: {', '.join(COMMANDS)}")
        if is_help(words[1:]):
            print(_help(words[0], command, words[1:]))
            return 0
        with naming_user_code():
            if command.takes_words:
                return command.run(words[1:])
            tree = parse_flags(words[1:], command.options, command.positional)
            return command.run(validate(tree, command.options))
    except OutputError:
        raise  # no output can show the error; the program ends
    except RemudaError as error:
        print(f"remuda: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(exit_message(), file=sys.stderr)
        return INTERRUPTED


def _help(name: str, command: Command, words: Sequence[str]) -> str:
    program, summary = f"remuda {name}", command.summary
    text = help_of(words, command.options, program, command.positional, summary)
    if command.options is Config and text.startswith("usage"):
        presets = "; ".join(f"{each}, for {preset.suits}" for each, preset in all_presets().items())
        more = _help_texts()[1].format(presets=presets)
        text += "\n\n" + wrapped(f"{more}\n{EXIT_CODES}")
    return text
