"""The commands about several runs: `remuda runs`, `compare`, `tournament`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from remuda.config import Section
from remuda.errors import ConfigError
from remuda.ui.arguments import parse_flags, validate
from remuda.ui.commands.games import GameOptions

if TYPE_CHECKING:
    from remuda.tournaments.setup import TournamentSetup

ONE_OF_SEEDS = "train-one-of-seeds"
"""The command, not listed, by which `remuda train --seeds` trains one of them in a process."""
SEEDS = "seeds.json"
"""In a directory of runs that differ by their seed: which there are to be, and how configured."""


class RunsOptions(Section):
    """The runs in a directory: game, when, how they ended, what they earned."""

    directory: Path = Path("runs")
    """Where they are; directories in it are looked into, too."""
    format: Literal["table", "json"] = "table"
    """A table to read, or a list as JSON; `--json` is short for the latter."""


class CompareOptions(Section):
    """Runs side by side; those that differ by nothing but their seed are one group."""

    NEEDED = MappingProxyType(
        {
            "runs": "name the runs to compare, as in `remuda compare RUN RUN`; `remuda runs` "
            "lists runs"
        }
    )

    runs: tuple[Path, ...] = Field(min_length=1)
    """The run directories, or directories of runs, as `--seeds` makes them."""
    out: Path = Path("comparison")
    """The directory that the page and its picture are written into."""
    format: Literal["table", "json"] = "table"
    """A table to read, or all of it as JSON; `--json` is short for the latter."""


class TournamentOptions(Section):
    """All against all: the checkpoints of a run, or policies of any runs."""

    run: tuple[str, ...] = ()
    """A run, whose checkpoints play; or several that play: `RUN:policy`, with `@VERSION`, `@best`
    or `@checkpoint-N` behind it for others than its newest weights, `RUN:all` for all policies of
    a run and `RUN:all@frozen` for their frozen copies and scripted members, or one that plays
    without having learned, such as `random`."""
    checkpoints: tuple[PositiveInt, ...] = ()
    """Of a single run, which; none: all there are, and the weights at the end of the run."""
    game: str = ""
    """What several play; empty: the game of the first run, with its options."""
    env: GameOptions = GameOptions()
    scripted: dict[str, str] = Field(default_factory=dict)
    """By agent, who takes its seat for good without having learned, as in `--scripted.agent_1
    random`: no entrant sits there, and what is earned there counts for nobody. Those that are not
    named: as in `env.scripted` of the first run, unless `--game` is named."""
    episodes: PositiveInt = 100
    """Episodes for each pair and seat."""
    until: str = ""
    """Play in rounds, each of those matches on which the answer hangs, until it is as sure as this
    says: `rank of the top 3 is 95% sure`, `the best is 95% sure` or `the response graph is 95%
    sure`. Empty: `--episodes` says how many there are."""
    matches: PositiveInt = 1_000_000
    """With `--until`: matches at most, over all pairs."""
    seconds: PositiveFloat | None = None
    """Begin no match after so many seconds; None: it takes as long as it takes."""
    sampled: bool = False
    """Let policies explore as at the end of training; else they are greedy."""
    seed: NonNegativeInt = 0
    """Seed of the games."""
    processes: PositiveInt | None = None
    """That play at once; what comes of it is the same. None: as many as are useful, one for each
    core at most."""
    directory: Path | None = None
    """Where matches are kept as they end; the same command goes on with what is there. None: a
    directory under `runs/tournaments/` that is named after the game and all that the matches
    follow from."""
    resume: Path | None = None
    """A tournament's directory to go on with, with no other option than how far: `--episodes`,
    `--matches`, `--seconds`."""
    format: Literal["table", "json"] = "table"
    """A table to read, or one line of JSON."""


def runs(words: Sequence[str]) -> int:
    """List the runs in a directory: game, when, how they ended, the best return."""
    options = validate(parse_flags(words, RunsOptions, positional="directory"), RunsOptions)

    from remuda.ui.found_runs import list_runs, print_runs

    found = list_runs(options.directory)
    if options.format == "json":
        print(json.dumps([run.as_summary() for run in found]))
    else:
        print_runs(options.directory, found)
    return 0


def compare(words: Sequence[str]) -> int:
    """Compare runs: a table with mean and standard error over seeds, and learning curves."""
    options = validate(parse_flags(words, CompareOptions, positional="runs"), CompareOptions)

    from remuda.ui.comparison import compare as comparison_of
    from remuda.ui.comparison import print_comparison

    found = comparison_of(options.runs)
    page = found.report(options.out)
    if options.format == "json":
        print(json.dumps(found.as_summary()))
    else:
        print_comparison(found)
        print(f"wrote {page}")
    return 0


def tournament(words: Sequence[str]) -> int:
    """Let a run's checkpoints, or policies of any runs, play against each other."""
    tree = parse_flags(words, TournamentOptions, positional="run")
    if "resume" in tree:
        from remuda.ui.crossplay import asked_before

        tree = asked_before(tree)
    options = validate(tree, TournamentOptions)
    if not options.run:
        raise ConfigError(
            "name what plays: a run, several as RUN:policy, or --resume DIR; `remuda runs` lists "
            "runs"
        )
    _check_how_far(tree, options)

    from remuda.coordinator.coordinator import Signals
    from remuda.crossplay import play_setup, play_setup_until
    from remuda.evaluation import Limits
    from remuda.tournaments.until import SPENT
    from remuda.ui.crossplay import asked_by, directory_of
    from remuda.ui.tournament import MatchProgress, print_tournament

    setup, sources = _tournament_of(options)
    directory = directory_of(setup, options.resume or options.directory, options.until)
    asked = asked_by(options.model_dump(mode="json"), options.run, sources)
    signals = Signals()
    with signals.watching(), MatchProgress(setup.game, signals.stopped) as progress:
        limits = Limits(options.seconds, interrupted=signals.stopped, watch=progress)
        if options.until:
            found = play_setup_until(
                setup,
                options.until,
                directory,
                asked,
                limits,
                options.matches,
                progress.look,
                options.processes,
            )
        else:
            found = play_setup(setup, options.episodes, directory, asked, limits, options.processes)
    code = 0 if signals.caught is None else 128 + signals.caught
    if options.format == "json":
        print(json.dumps(found.as_summary()))
    else:
        print_tournament(setup.game, found)
    if found.cut:
        enough = 2 * max(options.matches, progress.done)
        more = f" --matches {enough}" if found.cut == SPENT else ""
        print(
            f"remuda: {found.cut} after {progress.done:,} of {progress.wanted:,} matches; "
            f"`remuda tournament --resume {directory}{more}` goes on",
            file=sys.stderr,
        )
    return code if found.cut else 0


def _check_how_far(tree: Mapping[str, Any], options: TournamentOptions) -> None:
    """Raise a `ConfigError` for ways to say how far it goes that do not belong together.

    And a `UsageError` for a question that is none, such as one without quotes around its words.
    """
    if options.until:
        from remuda.analysis.plan import parse_until

        parse_until(options.until)
    if options.until and "episodes" in tree and options.resume is None:
        raise ConfigError(
            "--until says how far it goes, and so does --episodes; leave out one of them"
        )
    if not options.until and "matches" in tree and options.resume is None:
        raise ConfigError(
            "--matches is for --until; without it, --episodes says how many there are"
        )


def _tournament_of(options: TournamentOptions) -> tuple[TournamentSetup, Mapping[str, str]]:
    """Who plays what, and by entrant the run that it is of."""
    from remuda.ui.crossplay import check_unchanged, recorded_sources

    if options.resume is None:
        return _tournament_of_named(options)
    directory = options.resume.expanduser()
    sources = recorded_sources(directory)
    if sources is None:
        setup, named = _tournament_of_named(options)
        check_unchanged(setup, directory)
        return setup, named

    from remuda.ui.recorded_tournament import recorded_setup

    return recorded_setup(directory, sources), sources


def _tournament_of_named(options: TournamentOptions) -> tuple[TournamentSetup, Mapping[str, str]]:
    """Likewise, by the names that entrants have now."""
    from remuda.ui.crossplay import is_among_checkpoints, set_up

    if is_among_checkpoints(options.run):
        return _among_checkpoints(options)
    if options.checkpoints:
        raise ConfigError(
            "--checkpoints is for the checkpoints of a single run; among several, name one as "
            "RUN:policy@checkpoint-N"
        )
    crossplay = set_up(options.run, options.game, options.env.options, options.scripted)
    for note in crossplay.notes:
        print(f"remuda: {note}", file=sys.stderr)
    return crossplay.setup(options.seed, options.sampled), crossplay.sources


def _among_checkpoints(options: TournamentOptions) -> tuple[TournamentSetup, Mapping[str, str]]:
    """The tournament of the checkpoints of a single run."""
    from remuda.coordinator.run_directory import RunDirectory
    from remuda.crossplay import setup_of_snapshots
    from remuda.saved_weights import load_run

    run = RunDirectory.open(Path(options.run[0]).expanduser())
    theirs = {"game": options.game, "env.options": options.env.options}
    for flag, value in (theirs | {"scripted": options.scripted}).items():
        if value:
            raise ConfigError(
                f"--{flag} is for several that play; the checkpoints of {run.path} play its game"
            )
    config, final = load_run(run)
    numbers = options.checkpoints or tuple(run.checkpoints.numbers())
    entrants = {str(number): load_run(run, number)[1] for number in numbers}
    if not options.checkpoints:
        entrants["final"] = final
    sources = dict.fromkeys(entrants, str(run.path.resolve()))
    return setup_of_snapshots(config, entrants, options.seed, options.sampled), sources
