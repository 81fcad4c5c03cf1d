"""The commands about several runs: `remuda runs`, `compare`, `tournament`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from remuda.errors import ConfigError
from remuda.ui.arguments import validate
from remuda.ui.commands.options import GameOptions, PrintOptions

if TYPE_CHECKING:
    from remuda.tournaments.entrants import TournamentSetup

ONE_OF_SEEDS = "train-one-of-seeds"
"""The unlisted command by which `remuda train --seeds` trains one seed in a process."""
SEEDS = "seeds.json"
"""The file in a directory of several seeds that lists the seeds and their configuration."""


class RunsOptions(PrintOptions):
    """The runs in a directory: game, last activity, how they ended, their best return."""

    directory: Path = Path("runs")
    """The directory of the runs; its subdirectories are searched, too."""


class CompareOptions(PrintOptions):
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


class TournamentOptions(PrintOptions):
    """Cross-play of all against all: the checkpoints of a run, or policies of any runs."""

    run: tuple[str, ...] = ()
    """A run, whose checkpoints play; or several entrants: `RUN:policy`, with `@VERSION`, `@best`
    or `@checkpoint-N` for weights other than the newest; `RUN:all` for all policies of a run;
    `RUN:all@frozen` for its frozen copies and scripted members; or a scripted policy such as
    `random`."""
    checkpoints: tuple[PositiveInt, ...] = ()
    """Checkpoints of a single run; none: all of them, and the weights at the end of the run."""
    game: str = ""
    """The game that several entrants play; empty: the game of the first run, with its options."""
    env: GameOptions = GameOptions()
    scripted: dict[str, str] = Field(default_factory=dict)
    """For each agent, the scripted policy that plays its seat in every match, as in
    `--scripted.agent_1 random`: no entrant plays there, and its returns count for no entrant. Other
    seats: as in `env.scripted` of the first run, unless `--game` is used."""
    episodes: PositiveInt = 100
    """Episodes for each pair and seat."""
    until: str = ""
    """Play in rounds, each of the matches that matter most, until the answer is this certain: `rank
    of the top 3 is 95% sure`, `the best is 95% sure` or `the response graph is 95% sure`. Empty:
    play `--episodes`."""
    matches: PositiveInt = 1_000_000
    """With `--until`: the most matches, over all pairs."""
    seconds: PositiveFloat | None = None
    """Start no match after so many seconds; None: no limit."""
    sampled: bool = False
    """Let policies explore as at the end of training; else they are greedy."""
    seed: NonNegativeInt = 0
    """Seed of the games."""
    processes: PositiveInt | None = None
    """Processes that play in parallel; the result does not depend on it. None: as many as are
    useful, at most one for each core."""
    directory: Path | None = None
    """The directory to keep matches in; the same command continues with those that are there. None:
    one under `runs/tournaments/`, named after the game and all settings that determine the
    matches."""
    resume: Path | None = None
    """The directory of a tournament to continue; allowed with it are only `--episodes`,
    `--matches`, `--seconds`, `--processes` and `--format`."""


def runs(options: RunsOptions) -> int:
    """List the runs in a directory: game, last activity, how they ended, the best return."""
    from remuda.ui.found_runs import list_runs, print_runs

    found = list_runs(options.directory)
    options.show(
        lambda: [run.as_summary() for run in found], lambda: print_runs(options.directory, found)
    )
    return 0


def compare(options: CompareOptions) -> int:
    """Compare runs: a table with mean and standard error over seeds, and learning curves."""
    from remuda.ui.comparison import compare as comparison_of
    from remuda.ui.comparison import print_comparison

    found = comparison_of(options.runs)
    page = found.report(options.out)
    options.show(found.as_summary, lambda: print_comparison(found))
    if options.format == "table":
        print(f"wrote {page}")
    return 0


def tournament(options: TournamentOptions) -> int:
    """Let a run's checkpoints, or policies of any runs, play against each other."""
    given = options.model_dump(include=options.model_fields_set)
    if options.resume is not None:
        from remuda.ui.crossplay import recorded_options

        options = validate(recorded_options(options.resume, given), TournamentOptions)
    if not options.run:
        raise ConfigError(
            "name what plays: a run, several as RUN:policy, or --resume DIR; `remuda runs` lists "
            "runs"
        )
    _check_length(options, set(given))

    from remuda.coordinator.coordinator import Signals
    from remuda.crossplay import play_setup, play_setup_until
    from remuda.evaluation import Limits
    from remuda.tournaments.until import SPENT
    from remuda.ui.crossplay import directory_of, options_to_record
    from remuda.ui.tournament import MatchProgress, print_tournament

    setup, sources = _setup(options)
    directory = directory_of(setup, options.resume or options.directory, options.until)
    record = options_to_record(options.model_dump(mode="json"), options.run, sources)
    signals = Signals()
    with signals.watching(), MatchProgress(setup.game, signals.stopped) as progress:
        limits = Limits(options.seconds, interrupted=signals.stopped, watch=progress)
        common = (directory, record, limits)
        if options.until:
            found = play_setup_until(
                setup, options.until, *common, options.matches, progress.look, options.processes
            )
        else:
            found = play_setup(setup, options.episodes, *common, options.processes)
    code = 0 if signals.caught is None else 128 + signals.caught
    options.show(found.as_summary, lambda: print_tournament(setup.game, found))
    if found.cut:
        enough = 2 * max(options.matches, progress.done)
        more = f" --matches {enough}" if found.cut == SPENT else ""
        print(
            f"remuda: {found.cut} after {progress.done:,} of {progress.wanted:,} matches; "
            f"`remuda tournament --resume {directory}{more}` continues",
            file=sys.stderr,
        )
    return code if found.cut else 0


def _check_length(options: TournamentOptions, given: set[str]) -> None:
    """Raise an error if options about the number of matches contradict each other."""
    if options.until:
        from remuda.analysis.next_matches import parse_until

        parse_until(options.until)
    if options.resume is not None:
        return
    if options.until and "episodes" in given:
        raise ConfigError(
            "--until says how far it goes, and so does --episodes; leave out one of them"
        )
    if not options.until and "matches" in given:
        raise ConfigError(
            "--matches is for --until; without it, --episodes says how many there are"
        )


def _setup(options: TournamentOptions) -> tuple[TournamentSetup, Mapping[str, str]]:
    """Return the tournament, and by entrant the directory of its run."""
    from remuda.ui.crossplay import is_among_checkpoints, set_up
    from remuda.ui.recorded_tournament import recorded_setup

    if options.resume is not None:
        return recorded_setup(options.resume.expanduser())
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
