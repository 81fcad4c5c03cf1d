"""The command `remuda`. Heavy libraries are imported inside the commands, so that help is quick."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from remuda.config import Config, Section, all_presets
from remuda.errors import ConfigError, RemudaError
from remuda.output import OutputError, unfailing
from remuda.ui.arguments import help_of, read_options, wrapped
from remuda.ui.commands.analysis import AnalyseOptions, analyse
from remuda.ui.commands.dashboard import DashboardOptions, dashboard
from remuda.ui.commands.exploit import ExploitOptions, exploit
from remuda.ui.commands.games import GamesOptions, PlayOptions, games, play
from remuda.ui.commands.one_run import (
    EvaluateOptions,
    ReportOptions,
    StatusOptions,
    WatchOptions,
    evaluate,
    report,
    status,
    watch,
)
from remuda.ui.commands.psro import PsroOptions, psro
from remuda.ui.commands.several_runs import (
    ONE_OF_SEEDS,
    CompareOptions,
    RunsOptions,
    TournamentOptions,
    compare,
    runs,
    tournament,
)
from remuda.ui.commands.train import train, train_one_of_seeds
from remuda.ui.interrupts import INTERRUPTED, exit_message, set_exit_hints
from remuda.user_code import naming_user_code
from remuda.version import __version__


@dataclass(frozen=True)
class Command:
    """A word after `remuda`."""

    run: Callable[[Any], int]
    """Takes the options, or the words behind the command if it `takes_words`."""
    options: type[Section] | None = None
    positional: str = ""
    takes_words: bool = False
    is_long: bool = False
    """It works for long, and continues when nothing reads its output any more."""

    @property
    def summary(self) -> str:
        """One line for the list of commands."""
        return (self.run.__doc__ or "").strip().splitlines()[0]

    def call(self, words: Sequence[str]) -> int:
        """Run the command with the words behind it; returns the exit code."""
        if self.options is None or self.takes_words:
            return self.run(words)
        return self.run(read_options(words, self.options, self.positional))


COMMANDS = {
    "train": Command(train, Config, "game", takes_words=True, is_long=True),
    "status": Command(status, StatusOptions, "run"),
    "evaluate": Command(evaluate, EvaluateOptions, "run", is_long=True),
    "tournament": Command(tournament, TournamentOptions, "run", is_long=True),
    "analyse": Command(analyse, AnalyseOptions, "sources"),
    "exploit": Command(exploit, ExploitOptions, "target", takes_words=True, is_long=True),
    "psro": Command(psro, PsroOptions, "game", takes_words=True, is_long=True),
    "watch": Command(watch, WatchOptions, "run"),
    "report": Command(report, ReportOptions, "run"),
    "runs": Command(runs, RunsOptions, "directory"),
    "dashboard": Command(dashboard, DashboardOptions, "directory"),
    "compare": Command(compare, CompareOptions, "runs"),
    "games": Command(games, GamesOptions, "game"),
    "play": Command(play, PlayOptions, "game"),
}


UNLISTED = {ONE_OF_SEEDS: Command(train_one_of_seeds, is_long=True)}
"""Commands by which Remuda starts processes."""

EXIT_CODES = (
    "exit code: 0: success. 1: something failed, or cannot be done with the runs that exist; the "
    "message explains it. 2: an unknown command, flag, key or game, or a value of the wrong type "
    "(errors found only after runs are opened end with 1). 3: the run reached its end, but a "
    "policy stopped learning, since too many of its updates were not finite. 129, 130, 143: "
    "stopped by SIGHUP (the terminal was closed), Ctrl-C or SIGTERM."
)


def usage() -> str:
    """Return what `remuda --help` prints."""
    lines = [
        f"remuda {__version__}: train many policies at once, in environments they share",
        "",
        "usage: remuda COMMAND [OPTIONS]",
        "",
    ]
    calls = [f"  {name} {command.positional.upper()}" for name, command in COMMANDS.items()]
    widest = max(map(len, calls)) + 2
    lines += [
        wrapped(f"{call:<{widest}}{command.summary}", " " * widest)
        for call, command in zip(calls, COMMANDS.values(), strict=True)
    ]
    lines += [
        "",
        "`remuda COMMAND --help` lists the options of a command. To begin with:",
        "",
        "  remuda games",
        "  remuda play cleanup --policy division_of_labour",
        "  remuda train treasure_hunt",
        "  remuda train treasure_hunt --run.seconds 60 --policies.agent_0.learning_rate 1e-3",
        "  remuda train --config my_run.yaml --seed 3",
        "  remuda train --resume runs/treasure_hunt-20261121-101500",
        "  remuda train treasure_hunt --seeds 5",
        "",
        wrapped(EXIT_CODES),
    ]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    words = sys.argv[1:] if words is None else words
    # The user's own game is imported from the current directory.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    sys.exit(run(words))


def run(words: Sequence[str]) -> int:
    """Run one command; returns the exit code. An error that the user can fix is one line."""
    set_exit_hints()
    command = COMMANDS.get(words[0]) or UNLISTED.get(words[0]) if words else None
    is_long = command is not None and command.is_long and not _asks_for_help(words)
    with unfailing() if is_long else nullcontext():
        return _run(words, command)


def _asks_for_help(words: Sequence[str]) -> bool:
    return any(word in ("-h", "--help") for word in words[1:])


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
            raise ConfigError(f"no command {words[0]!r}; {hint}There are {', '.join(COMMANDS)}")
        if _asks_for_help(words):
            print(_help(words[0], command))
            return 0
        with naming_user_code():
            return command.call(words[1:])
    except OutputError:
        raise  # there is no output to print it on; the program ends
    except RemudaError as error:
        print(f"remuda: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(exit_message(), file=sys.stderr)
        return INTERRUPTED


def _help(name: str, command: Command) -> str:
    if command.options is None:
        return f"usage: remuda {name}\n\n{command.summary}"
    text = help_of(command.options, f"remuda {name}", command.positional)
    if command.options is Config:
        presets = "; ".join(f"{each}, for {preset.suits}" for each, preset in all_presets().items())
        parts = (
            "--resume RUN continues a run from its newest checkpoint; flags override its "
            "configuration. --resume auto is for batch queues: it continues the run that the same "
            "command began and did not finish (or that is in --run.directory), or begins one.",
            "--seeds N trains so many seeds one after the other, or --jobs J at a time, in one "
            "directory with one report; --resume of that directory trains the seeds that are left.",
            "--config FILE reads the same keys from a YAML file; flags override it. Of several, "
            "--config A --config B, each overrides those before it.",
            f"--preset NAME, below all of them, is for a kind of environment: {presets}.",
            "Of one policy or of the game: --policies.agent_0.learning_rate 1e-3, "
            "--env.options.num_agents 4.",
            EXIT_CODES,
        )
        text += "\n\n" + wrapped("\n\n".join(parts))
    return text
