"""The commands for several runs: `remuda runs`, `compare`, `analyse` and others."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeInt, PositiveInt

from remuda.config import Section
from remuda.errors import ConfigError, RunDirectoryError, UsageError
from remuda.evaluation.tournaments.settings import TournamentSettings, check_ends
from remuda.ui.cli.arguments import validate
from remuda.ui.cli.commands.options import GameOptions, PrintOptions, needs

if TYPE_CHECKING:
    from remuda.evaluation.tournaments.entrants import TournamentSetup

ONE_OF_SEEDS = "train-one-of-seeds"  # unlisted command: a child process of `remuda train --seeds`
SEEDS = "seeds.json"  # in a directory of several seeds: the seeds and their configuration


class RunsOptions(PrintOptions):
    """The runs in a directory: game, last activity, ending, best return."""

    directory: Path = Path("runs")
    """The directory of the runs; its subdirectories are searched, too."""


class CompareOptions(PrintOptions):
    """Compare runs; runs that differ only by their seed form one group."""

    NEEDED = needs("runs", "name the runs to compare, as in `remuda compare RUN RUN`")

    runs: tuple[Path, ...] = Field(min_length=1)
    """Run directories, or directories of runs such as those of `--seeds`. `NAME=RUN` names the
    group: `IPPO=runs/ippo MAPPO=runs/mappo`."""
    out: Path | None = None
    """The directory for the page and its figure; a name that ends in .png, .pdf or .svg: the file
    for the figure alone. None: `comparison`, or `comparison-2` and so on if that exists."""


class TournamentOptions(TournamentSettings, PrintOptions):
    """Cross-play of all pairs: the checkpoints of one run, or policies of any runs."""

    run: tuple[str, ...] = ()
    """One run, whose checkpoints play; or several entrants: `RUN:policy`, with `@VERSION`, `@best`
    or `@checkpoint-N` for weights other than the newest; `RUN:all` for all policies of a run;
    `RUN:all@frozen` for its frozen copies and scripted members; or a scripted policy such as
    `random`."""
    checkpoints: tuple[PositiveInt, ...] = ()
    """Checkpoints of a single run; empty: all of them and the final weights."""
    game: str = ""
    """The game for several entrants; empty: the game of the first run, with its options."""
    env: GameOptions = GameOptions()
    resume: Path | None = None
    """The directory of a tournament to continue. Only `--episodes`, `--matches`, `--seconds`,
    `--processes`, `--copies` and `--format` may be used with it."""


def runs(options: RunsOptions) -> int:
    """List the runs in a directory: game, last activity, ending, best return."""
    from remuda.ui.reports.summary import list_runs, print_runs

    found = list_runs(options.directory)
    options.show(
        lambda: [run.as_summary() for run in found], lambda: print_runs(options.directory, found)
    )
    return 0


def compare(options: CompareOptions) -> int:
    """Compare runs: a table with mean and standard error over seeds, and learning curves."""
    from remuda.ui.reports.comparison import compare as comparison_of
    from remuda.ui.reports.comparison import print_comparison

    named: dict[str, list[str]] = {}
    for run in map(str, options.runs):
        name, equals, path = run.partition("=")
        has_name = equals and name and not Path(run).exists()  # a path may contain `=`
        named.setdefault(name if has_name else "", []).append(
            os.path.expanduser(path) if has_name else run
        )
    found = comparison_of(named)
    page = found.report(options.out or _new_directory("comparison"))
    options.show(found.as_summary, lambda: print_comparison(found))
    if options.format == "table":
        print(f"wrote {page}")
    return 0


def _new_directory(name: str) -> Path:
    """Return the first of `name`, `name-2`, `name-3` and so on that does not exist."""
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(path for path in map(Path, names) if not path.exists())


def tournament(options: TournamentOptions) -> int:
    """Play a run's checkpoints, or policies of any runs, against each other."""
    explicit = options.model_dump(include=options.model_fields_set)
    if options.resume is not None:
        from remuda.ui.analysis.tournament_setup import recorded_options

        options = validate(recorded_options(options.resume, explicit), TournamentOptions)
    if not options.run:
        raise ConfigError(
            "name the entrants: a run, or several RUN:policy; or use --resume DIR; `remuda runs` "
            "lists runs"
        )

    from remuda.analysis.ranking.next_matches import parse_until
    from remuda.coordinator.coordinator import Signals
    from remuda.evaluation.tournaments.until import SPENT
    from remuda.ui.analysis.tournament import print_tournament
    from remuda.ui.analysis.tournament_setup import directory_of, options_to_record, play_shown

    if options.until:
        parse_until(options.until)
    if options.resume is None:
        check_ends(options.until, explicit, are_flags=True)
    setup, sources = _setup(options)
    directory = directory_of(setup, options.resume or options.directory, options.until)
    record = options_to_record(options.model_dump(mode="json"), options.run, sources)
    signals = Signals()
    with signals.watching():
        found, progress = play_shown(setup, options, directory, record, signals.stopped)
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
    from remuda.analysis.ranking.next_matches import SmallRegret, parse_until
    from remuda.ui.analysis.tournament_setup import is_among_checkpoints, recorded_setup, set_up

    if options.resume is not None:
        return recorded_setup(options.resume.expanduser())
    if is_among_checkpoints(options.run):
        return _among_checkpoints(options)
    if options.checkpoints:
        raise ConfigError(
            "--checkpoints works with a single run only; with several entrants, name a checkpoint "
            "as RUN:policy@checkpoint-N"
        )
    crossplay = set_up(options.run, options.game, options.env.options, options.scripted)
    for note in crossplay.notes:
        print(f"remuda: {note}", file=sys.stderr)
    line_ups = bool(options.until) and isinstance(parse_until(options.until)[0], SmallRegret)
    return crossplay.setup(options.seed, options.sampled, line_ups), crossplay.sources


def _among_checkpoints(options: TournamentOptions) -> tuple[TournamentSetup, Mapping[str, str]]:
    from remuda.evaluation.tournaments.entrants import setup_of_snapshots
    from remuda.runs.run_directory import RunDirectory
    from remuda.runs.saved_weights import load_run

    run = RunDirectory.open(Path(options.run[0]).expanduser())
    refused = {"game": options.game, "env.options": options.env.options}
    for flag, value in (refused | {"scripted": options.scripted}).items():
        if value:
            raise ConfigError(
                f"--{flag} works with several entrants only; the checkpoints of {run.path} play "
                "its game"
            )
    spec, final = load_run(run)
    numbers = options.checkpoints or tuple(run.checkpoints.numbers())
    loaded = {str(number): load_run(run, number) for number in numbers}
    entrants = {name: snapshots for name, (_, snapshots) in loaded.items()}
    played = spec.env.changed
    if other := [name for name, (own, _) in loaded.items() if own.env.changed != played]:
        at_end = ", ".join(f"{name} {value}" for name, value in played.items())
        print(
            f"remuda: checkpoints {', '.join(other)} were saved with other environment options; "
            f"all play with those at the end of the run: {at_end or 'those of its configuration'}",
            file=sys.stderr,
        )
    if not options.checkpoints:
        entrants["final"] = final
    sources = dict.fromkeys(entrants, str(run.path.resolve()))
    return setup_of_snapshots(spec, entrants, options.seed, options.sampled), sources


class AnalyseOptions(PrintOptions):
    """Analyse policies: ranking, equilibrium, cycles and diversity, with confidence intervals."""

    NEEDED = needs("sources", "name what to analyse: a run, a tournament's directory or a .csv")

    sources: tuple[Path, ...] = Field(min_length=1)
    """Runs, directories of runs such as those of `--seeds`, tournaments, or directories of `remuda
    psro`, all of one game; or files of payoffs (.csv, .npz). With several sources,
    the results that all have are compared."""
    only: tuple[str, ...] = ()
    """Names of the policies to analyse, such as `policy_0` or `policy_0@12`; empty: all."""
    frozen: bool = False
    """Include frozen copies; they must have met in matches, as in a tournament of
    `RUN:all@frozen`."""
    wins: bool = False
    """Use wins instead of returns; a draw counts as half a win."""
    roles: bool = False
    """Average the first and the second seat separately, which removes the advantage of playing the
    better seat more often. All pairs must have met both ways."""
    samples: int = Field(400, ge=50)
    """Number of random draws of the payoffs; the intervals are computed from them."""
    seconds: float = Field(10.0, ge=0.0)
    """Seconds of fresh episodes per run, played after training. They measure the behaviour of
    policies and, with independent learners, returns and welfare. 0: play none."""
    seed: NonNegativeInt = 0
    """Seed of the draws and of fresh episodes."""
    out: Path | None = None
    """The directory for analysis.json and the pictures. None: the directory of the run or file;
    with several sources, `analysis`."""


def analyse(options: AnalyseOptions) -> int:
    """Analyse policies: ranking, equilibrium, cycles and diversity, with confidence intervals."""
    # The matrices are small, so threads cost more than they gain. NumPy reads this variable when it
    # is imported.
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from remuda.ui.analysis import screen
    from remuda.ui.analysis.sources import Choice, open_sources

    sources = open_sources(options.sources)
    directory = options.out or (sources[0].place if len(sources) == 1 else Path("analysis"))
    choice = Choice(options.only, options.frozen, options.wins, options.roles)
    report = screen.report_on(sources, choice, options.samples, options.seconds, options.seed)
    options.show(report.as_summary, lambda: screen.print_report(report))
    written = screen.write_report(report, directory)
    if options.format == "table":
        print(f"wrote {', '.join(str(path) for path in written)}")
    return 0


class DashboardOptions(Section):
    """Show live and finished runs in a browser; read-only without `--control`."""

    directory: Path = Path("runs")
    """A single run, or a directory with runs up to three levels deep."""
    port: int = Field(default=8700, ge=0, le=65535)
    """Port of the server; 0: any free port."""
    host: str = "127.0.0.1"
    """Address to listen on. An address that other machines can reach is protected by a token,
    which is part of the printed URL."""
    control: bool = False
    """Let the pages control live runs: stop them, save a checkpoint, change hyperparameters and
    environment options, and watch the current weights play."""
    open: bool = False
    """Open the dashboard in this machine's browser."""


def dashboard(options: DashboardOptions) -> int:
    """Show live and finished runs in a browser."""
    if not options.directory.is_dir():
        raise RunDirectoryError(
            f"there is no directory {options.directory}; name the directory of the runs"
        )
    try:
        from remuda.ui.dashboard.server import Server, is_local, make_app
    except ImportError as error:
        raise UsageError(
            f"the dashboard needs {error.name}: pip install -e '.[dashboard]'"
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
    """Listen at once: a browser that connects before the server runs waits instead of failing."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # `::` includes IPv4
        return socket.create_server((host, port), family=family, dualstack_ipv6=both)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise UsageError(
            f"cannot listen on {host}, port {port}: {why}; choose another with "
            "--port; --port 0 takes any free port"
        ) from None
