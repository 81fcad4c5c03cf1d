"""The commands about several runs: `remuda runs`, `compare`, `analyse`, ...."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from remuda.config import Section
from remuda.errors import ConfigError, RunDirectoryError, UsageError
from remuda.ui.arguments import validate
from remuda.ui.commands.options import GameOptions, PrintOptions, needs

if TYPE_CHECKING:
    from remuda.tournaments.entrants import TournamentSetup

ONE_OF_SEEDS = "train-one-of-seeds"  # unlisted: a process of `remuda train --seeds`
SEEDS = "seeds.json"  # in a directory of several seeds: the seeds and their configuration


class RunsOptions(PrintOptions):
    """The runs in a directory: game, last activity, how they ended, their best return."""

    directory: Path = Path("runs")
    """The directory of the runs; its subdirectories are searched, too."""


class CompareOptions(PrintOptions):
    """Runs side by side; those that differ by nothing but their seed are one group."""

    NEEDED = needs("runs", "name the runs to compare, as in `remuda compare RUN RUN`")

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
    from remuda.ui.summary import list_runs, print_runs

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

    from remuda.analysis.next_matches import parse_until
    from remuda.coordinator.coordinator import Signals
    from remuda.tournaments.until import SPENT
    from remuda.ui.crossplay import Length, check_ends, directory_of, options_to_record, play_shown
    from remuda.ui.tournament import print_tournament

    if options.until:
        parse_until(options.until)
    if options.resume is None:
        check_ends(options.until, given, are_flags=True)
    setup, sources = _setup(options)
    directory = directory_of(setup, options.resume or options.directory, options.until)
    record = options_to_record(options.model_dump(mode="json"), options.run, sources)
    length = Length(
        None if options.until else options.episodes,
        options.until,
        options.matches if options.until else None,
        options.seconds,
        options.processes,
    )
    signals = Signals()
    with signals.watching():
        found, progress = play_shown(setup, length, directory, record, signals.stopped)
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


def _setup(options: TournamentOptions) -> tuple[TournamentSetup, Mapping[str, str]]:
    from remuda.ui.crossplay import is_among_checkpoints, recorded_setup, set_up

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


class AnalyseOptions(PrintOptions):
    """Analyse policies: ranking, equilibrium, cycles and diversity, with confidence intervals."""

    NEEDED = needs("sources", "name what to analyse: a run, a tournament's directory or a .csv")

    sources: tuple[Path, ...] = Field(min_length=1)
    """Runs, directories of runs as `--seeds` makes them, or tournaments, all of one game; or files
    of payoffs (.csv, .npz). Several are shown side by side, with what they have in common."""
    only: tuple[str, ...] = ()
    """Names of the policies to analyse, such as `policy_0` or `policy_0@12`; none: all."""
    frozen: bool = False
    """Include frozen copies; they must have met, as in a tournament of `RUN:all@frozen`."""
    wins: bool = False
    """Count wins, with draws as half of one, instead of returns."""
    roles: bool = False
    """Average the first and the second seat separately, so that a policy that sat more often on the
    better one gains nothing by it; all pairs must have met both ways."""
    samples: int = Field(400, ge=50)
    """Draws of the payoffs, from which intervals are computed."""
    seconds: float = Field(10.0, ge=0.0)
    """Seconds of fresh play of each run, separate from its training: for the behaviour of its
    policies and, with independent learners, for returns and welfare; 0: none."""
    seed: NonNegativeInt = 0
    """Seed of the draws, and of fresh play."""
    out: Path | None = None
    """The directory for analysis.json and the pictures; none: that of the run or the file, and of
    several `analysis`."""


def analyse(options: AnalyseOptions) -> int:
    """Analyse a population: ranking, equilibrium, cycles and diversity, with intervals."""
    # The matrices are small, so threads cost more than they gain. NumPy reads this when it is
    # imported.
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    import numpy as np

    from remuda.ui import analysing
    from remuda.ui.analysis_sources import Choice, open_sources

    sources = open_sources(options.sources)
    place = options.out or (sources[0].place if len(sources) == 1 else Path("analysis"))
    report: analysing.Report | analysing.SocietyReport
    rng, play = np.random.default_rng(options.seed), (options.seconds, options.seed)
    if sources[0].has_payoffs:
        choice = Choice(options.only, options.frozen, options.wins, options.roles)
        report = analysing.analyse_what_there_is(sources, choice, rng, options.samples, *play)
    else:
        for flag in ("only", "frozen", "wins", "roles"):
            if getattr(options, flag):
                raise UsageError(
                    f"--{flag} is about matches, and {sources[0].path} has none: each of its "
                    "agents has one policy for the whole run"
                )
        report = analysing.report_societies(sources, rng, *play)
    options.show(report.as_summary, lambda: analysing.print_report(report))
    written = analysing.write_report(report, place)
    if options.format == "table":
        print(f"wrote {', '.join(str(path) for path in written)}")
    return 0


class DashboardOptions(Section):
    """Show runs in a browser, live or finished; without `--control` it only reads."""

    directory: Path = Path("runs")
    """The directory of the runs, which may be up to three levels deep, or a single run."""
    port: int = Field(default=8700, ge=0, le=65535)
    """Port of the server; 0: any free port."""
    host: str = "127.0.0.1"
    """Address to listen on. Any address but this machine's own is protected by a token, which is
    part of the printed address."""
    control: bool = False
    """Let the pages control live runs: stop them, save a checkpoint, change hyperparameters, and
    show the current weights at play."""
    open: bool = False
    """Open the address in this machine's browser."""


def dashboard(options: DashboardOptions) -> int:
    """Show runs in a browser, live or finished."""
    if not options.directory.is_dir():
        raise RunDirectoryError(
            f"there is no directory {options.directory}; name the one that runs are in"
        )
    try:
        from remuda.ui.dashboard.server import Server, is_local, make_app
    except ImportError as error:
        raise UsageError(
            f"the dashboard needs {error.name}: pip install 'remuda[dashboard]'"
        ) from None

    token = "" if is_local(options.host) else secrets.token_urlsafe(16)
    with _listen(options.host, options.port) as bound:
        port = bound.getsockname()[1]
        shown = f"[{options.host}]" if ":" in options.host else options.host
        address = f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
        print(f"remuda: runs in {options.directory} at {address}  (Ctrl-C ends it)", flush=True)
        if options.open:
            import webbrowser

            webbrowser.open(address)
        app = make_app(options.directory, options.host, token, control=options.control)

        Server(app).run(sockets=[bound])
    return 0


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen()  # a browser that opens the address at once waits, and is not refused
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}, port {port}: {error.strerror}; name another with --port, or "
            "--port 0 for any that is free"
        ) from None
    return found
