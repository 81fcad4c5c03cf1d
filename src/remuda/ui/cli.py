"""The command `remuda`. Heavy libraries are imported inside the commands, so that help is quick."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from remuda import __version__
from remuda.config import Config, Section, load_config, overlay, read_config
from remuda.errors import ConfigError, RemudaError, RunDirectoryError
from remuda.ui.arguments import help_of, parse_flags, validate
from remuda.ui.interrupts import HALTED, INTERRUPTED, tell_at_the_end, told_at_the_end
from remuda.ui.many import SEEDS, CompareOptions, RunsOptions, compare, runs
from remuda.user_code import naming_user_code

if TYPE_CHECKING:
    from remuda.coordinator.run_directory import RunDirectory
    from remuda.crossplay import Tournament


class EvaluateOptions(Section):
    """Greedy play of a run's policies: mean and standard error of each agent's return."""

    run: Path
    """The run directory."""
    episodes: PositiveInt = 200
    """Episodes to play."""
    seconds: PositiveFloat | None = None
    """Seconds after which those that are over must do. None: as long as it takes."""
    seed: NonNegativeInt = 0
    """Seed of the games."""
    checkpoint: Literal["final", "best"] | PositiveInt = "final"
    """`final`: the weights at the end of the run, or the newest there are; `best`: those of the
    checkpoint that did best in evaluation; or a checkpoint's number."""
    scripted: dict[str, str] = Field(default_factory=dict)
    """By agent, who plays in its place without having learned, as in `--scripted.agent_1 random`:
    `random`, one that `remuda games GAME` lists, or your own as `module:callable`."""
    format: Literal["table", "json"] = "table"
    """A table to read, or one line of JSON."""


class WatchOptions(Section):
    """A picture of a run's policies at play."""

    run: Path
    """The run directory."""
    out: Path | None = None
    """The GIF to write. None: `play.gif` in the run directory."""
    turns: PositiveInt = 100
    """The most turns to show; an episode's end comes first."""
    seed: NonNegativeInt = 0
    """Seed of the game."""
    checkpoint: Literal["final", "best"] | PositiveInt = "final"
    """As for `remuda evaluate`."""
    frames_per_second: PositiveInt = 8
    """Turns shown in a second."""


class GameOptions(Section):
    """The game that is played."""

    options: dict[str, Any] = Field(default_factory=dict)
    """The game's own parameters by name, as in `--env.options.num_agents 4`."""


class TournamentOptions(Section):
    """All against all: the checkpoints of a run, or policies of any runs."""

    run: tuple[str, ...] = Field(min_length=1)
    """A run, whose checkpoints play; or several that play: `RUN:policy`, with `@VERSION`, `@best`
    or `@checkpoint-N` behind it for others than its newest weights, or one that plays without
    having learned, such as `random`."""
    checkpoints: tuple[PositiveInt, ...] = ()
    """Of a single run, which; none: all there are, and the weights at the end of the run."""
    game: str = ""
    """What several play; empty: the game of the first run, with its options."""
    env: GameOptions = GameOptions()
    episodes: PositiveInt = 100
    """Episodes for each pair and seat."""
    sampled: bool = False
    """Let policies explore as at the end of training; else they are greedy."""
    seed: NonNegativeInt = 0
    """Seed of the games."""
    format: Literal["table", "json"] = "table"
    """A table to read, or one line of JSON."""


class StatusOptions(Section):
    """What a run is doing, from another terminal."""

    run: Path
    """The run directory."""
    format: Literal["table", "json"] = "table"
    """A table to read, or the whole status as JSON; `--json` is short for the latter."""


class ReportOptions(Section):
    """What came of a run: its results, its picture and its report, made again."""

    run: Path
    """The run directory."""


class GamesOptions(Section):
    """The games that can be played."""

    game: str = ""
    """The game whose rules to tell; empty: list all of them."""


class PlayOptions(Section):
    """A game to look at or to take part in, without any learning."""

    game: str = "treasure_hunt"
    """The game; `remuda games` lists them."""
    policy: str = "random"
    """Who plays all seats, or those that `seat` does not name: `random`, or one that `remuda games
    GAME` lists."""
    seat: dict[str, str] = Field(default_factory=dict)
    """By agent, who plays it, as in `--seat agent_0=me agent_1=RUN:policy`: you at the keyboard, a
    policy of a run (`RUN:policy@best`, or another version), or one that plays without learning."""
    sampled: bool = False
    """Let policies of runs explore as at the end of training; else they are greedy."""
    out: Path | None = None
    """The GIF to write. None: show it in the terminal."""
    turns: PositiveInt = 100
    """The most turns to show; an episode's end comes first."""
    seed: NonNegativeInt = 0
    """Seed of the game and of the policies."""
    frames_per_second: PositiveInt = 8
    """Turns shown in a second."""
    env: GameOptions = GameOptions()


def train(words: Sequence[str]) -> int:
    """Train the policies of a game."""
    words, count = take_option(words, "--seeds", "how many seeds to train")
    words, jobs = take_option(words, "--jobs", "how many seeds to train at a time")
    words, resumed = take_option(words, "--resume", "the directory of the run to go on with")
    if count or jobs or (Path(resumed) / SEEDS).is_file():
        return _train_seeds(words, resumed, count, jobs)
    config = read_resumed(words, Path(resumed)) if resumed else read_arguments(words)
    without_config = take_option(words, "--config", "the path of a YAML file")[0]
    if config.schedule != "sequential" or config.env.workers > 1:
        from remuda.forkserver import client as forkserver

        forkserver.load_and_begin(print)

    from remuda.coordinator.run_directory import RunDirectory
    from remuda.effects import leaves
    from remuda.result import Result
    from remuda.training import Callbacks
    from remuda.training import train as run_training
    from remuda.ui.drawing import Preparation
    from remuda.ui.live import make_view
    from remuda.ui.progress import Progress
    from remuda.ui.resuming import offer_to_resume

    if not resumed and config.run.directory is None:
        unfinished = offer_to_resume(config)
        if unfinished is not None:
            config, resumed = read_resumed(without_config, unfinished), str(unfinished)
    said = frozenset(leaves(parse_flags(without_config, Config, positional="game")))
    progress = Progress()
    told: list[str] = []

    def tell_results(result: Result) -> None:
        progress.close()
        for note in _tell_results(RunDirectory.open(result.directory)):
            print(f"note: {note}")
        if not result.finished:
            print(f"{result.ended}; go on with: remuda train --resume {result.directory}")
        sys.stdout.flush()
        told.extend(result.notes)
        tell_at_the_end(f"its report can be made by: remuda report {result.directory}")

    preparation = Preparation()

    def prepare(directory: Path, turns: int) -> None:
        preparation.begin(RunDirectory.open(directory), turns > 0)

    callbacks = Callbacks(progress, prepare, tell_results)
    try:
        view = make_view(config.run.live)
        result = run_training(config, view, bool(resumed), callbacks, said)
    finally:
        progress.close()
        preparation.end()
    later = [note for note in result.notes if note not in told]
    _tell_pictures(RunDirectory.open(result.directory), later, preparation.picture)
    if result.signal is not None:
        return 128 + result.signal
    return HALTED if result.halted else 0


def _train_seeds(words: Sequence[str], resumed: str, count: str, jobs: str) -> int:
    """Train several seeds of one run."""
    from remuda.effects import leaves
    from remuda.ui.seeds import Seeds, number_of, train_seeds

    at_once = number_of(jobs, "--jobs") if jobs else 1
    without_config = take_option(words, "--config", "the path of a YAML file")[0]
    flags = parse_flags(without_config, Config, positional="game")
    if resumed:
        if count:
            raise ConfigError(
                "--seeds is for runs that begin; --resume goes on with those there are"
            )
        if not (Path(resumed) / SEEDS).is_file():
            raise ConfigError(
                f"--jobs: {resumed} does not hold several seeds, as --seeds makes them"
            )
        if "seed" in flags or "directory" in flags.get("run", {}):
            raise ConfigError("--seed and --run.directory cannot change for seeds that go on")
        seeds = Seeds.open(Path(resumed), flags)
    elif not count:
        raise ConfigError("--jobs is for --seeds: how many of them to train at a time")
    else:
        seeds = Seeds.create(read_arguments(words), number_of(count, "--seeds"))
    if seeds.config.schedule != "sequential" or seeds.config.env.workers > 1:
        from remuda.forkserver import client as forkserver

        if at_once == 1:
            forkserver.load_and_begin(print)
    return train_seeds(seeds, at_once, frozenset(leaves(flags)), without_config)


def _tell_results(run: RunDirectory) -> list[str]:
    """Print what came of a run; returns notes: that this could not be done, and why."""
    from remuda.ui.summary import print_results

    notes = []
    try:
        print_results(run.path)
    except RemudaError as error:  # of a file of the run
        notes = [f"no table: {error}"]
    sys.stdout.flush()
    return notes


def _tell_pictures(
    run: RunDirectory,
    notes: Sequence[str] = (),
    drawn: Callable[[], str | None] = lambda: None,
) -> None:
    """Make the pictures of a run, print where they are, and notes; a failure is one of these."""
    from remuda.ui.ending import make_report
    from remuda.ui.summary import print_files

    notes = [*notes, *make_report(run, drawn)]
    print_files(run.path)
    for note in notes:
        print(f"note: {note}")


def read_arguments(words: Sequence[str]) -> Config:
    """The configuration from flags over the YAML file of `--config` over the defaults.

    Raises:
        ConfigError: anything in them that is wrong, in one line.
    """
    from remuda.envs.pickled import read_beside

    base: dict[str, Any] = {}
    words, source = take_option(words, "--config", "the path of a YAML file")
    if source:
        base = read_config(Path(source))
        load_config(base, source)  # a fault in the file is told as the file's
        read_beside(Path(source), str(base.get("game", "")))
    config = load_config(overlay(base, parse_flags(words, Config, positional="game")))
    from remuda.envs.registry import find_game

    find_game(config.game)
    return config


def read_resumed(words: Sequence[str], directory: Path) -> Config:
    """The configuration of the run in `directory`, with flags over it.

    Raises:
        RunDirectoryError: there is no such run.
        ConfigError: anything in the flags that is wrong, in one line.
    """
    from remuda.coordinator.run_directory import RunDirectory

    saved = RunDirectory.open(directory).read_config().model_dump(mode="json")
    tree = overlay(saved, parse_flags(words, Config, positional="game"))
    return load_config(overlay(tree, {"run": {"directory": directory}}))


def take_option(words: Sequence[str], option: str, needs: str) -> tuple[list[str], str]:
    """The words without `option` and its value, and that value; empty: it is not among them.

    Raises:
        ConfigError: it is there without a value.
    """
    words = list(words)
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == option:
            if not equals and i + 1 >= len(words):
                raise ConfigError(f"{option} needs {needs}")
            value = value if equals else words[i + 1]
            del words[i : i + (1 if equals else 2)]
            return words, value
    return words, ""


def take_pairs(words: Sequence[str], option: str) -> tuple[list[str], dict[str, str]]:
    """The words without `option` and the `NAME=VALUE` words behind it, and these as a mapping.

    Raises:
        ConfigError: a word behind it is no such pair, or there is none.
    """
    left: list[str] = []
    found: dict[str, str] = {}
    taking = False
    words = [part for word in words for part in _unglued(word, option)]
    for i, word in enumerate(words):
        if word.startswith("--"):
            taking = word == option
            if not taking:
                left.append(word)
            elif i + 1 == len(words) or words[i + 1].startswith("--"):
                raise ConfigError(f"{option} needs AGENT=WHO, as in {option} agent_0=me")
            continue
        name, equals, value = word.partition("=")
        if not taking:
            left.append(word)
        elif not equals or not name or not value:
            raise ConfigError(f"{option} {word}: it needs AGENT=WHO, as in {option} agent_0=me")
        else:
            found[name] = value
    return left, found


def _unglued(word: str, option: str) -> list[str]:
    """`--option=value` as two words; any other as it is."""
    name, equals, value = word.partition("=")
    return [option, value] if name == option and equals else [word]


def status(words: Sequence[str]) -> int:
    """Tell what a run is doing, from another terminal."""
    options = validate(parse_flags(words, StatusOptions, positional="run"), StatusOptions)

    from remuda.coordinator.run_directory import RunDirectory
    from remuda.ui.status import current_status, print_status

    found = current_status(RunDirectory.open(options.run))
    if options.format == "json":
        import json

        print(json.dumps(found))
    else:
        print_status(options.run, found)
    return 0


def evaluate(words: Sequence[str]) -> int:
    """Play a run's policies greedily, and print what each agent earns."""
    options = validate(parse_flags(words, EvaluateOptions, positional="run"), EvaluateOptions)

    from remuda.coordinator.coordinator import Signals
    from remuda.coordinator.run_directory import RunDirectory
    from remuda.evaluate import evaluate as play
    from remuda.evaluation import Limits, standard_error
    from remuda.saved_weights import load_run
    from remuda.ui.progress import Progress
    from remuda.ui.summary import number

    run = RunDirectory.open(options.run)
    _tell_of_best(run, options.checkpoint)
    config, snapshots = load_run(run, options.checkpoint)
    progress, signals = Progress(sys.stderr), Signals()
    with signals.watching():
        limits = Limits(options.seconds, signals.stopped, partial(progress, "greedy play"))
        evaluation = play(
            config, snapshots, options.episodes, options.seed, options.scripted, limits=limits
        )
    progress.close()
    played = len(evaluation.returns)
    code = 0 if signals.caught is None else 128 + signals.caught
    if evaluation.cut:
        print(
            f"remuda: {evaluation.cut} after {played:,} of {options.episodes:,} episodes",
            file=sys.stderr,
        )
    if not played:
        return code or 1
    if options.format == "json":
        import json

        print(json.dumps(evaluation.as_summary()))
        return code
    print(f"{config.game}: {played} greedy episodes of {options.run}")
    width = max(len(name) for name in (*evaluation.agents, *evaluation.policies))
    for i, name in enumerate(evaluation.agents):
        mean, error = evaluation.mean(i), evaluation.standard_error(i)
        who = f"  ({options.scripted[name]})" if name in options.scripted else ""
        print(f"  {name:<{width}}  return {number(mean):>8} ± {number(error)}{who}")
    for name, earned in evaluation.policies.items():
        earns = f"{number(earned.mean()):>8} ± {number(standard_error(earned))}"
        print(f"  {name:<{width}}  return {earns}  on {len(earned)} seats")
    for name, told in evaluation.facts.items():
        print(f"  {name.replace('_', ' ')}: {told.mean():.4g} ± {standard_error(told):.2g}")
    return code


def watch(words: Sequence[str]) -> int:
    """Write a GIF of a run's policies at play."""
    options = validate(parse_flags(words, WatchOptions, positional="run"), WatchOptions)

    from remuda.coordinator.run_directory import RunDirectory
    from remuda.ui.ending import draw_play

    run = RunDirectory.open(options.run)
    _tell_of_best(run, options.checkpoint)
    path = options.out or run.recording
    wrote = draw_play(
        run,
        path,
        turns=options.turns,
        seed=options.seed,
        frames_per_second=options.frames_per_second,
        checkpoint=options.checkpoint,
    )
    if not wrote:
        raise RemudaError(f"{run.read_config().game} draws no pictures: there is nothing to watch")
    print(f"wrote {path}")
    return 0


def report(words: Sequence[str]) -> int:
    """Tell what came of a run, and make its picture and report again."""
    options = validate(parse_flags(words, ReportOptions, positional="run"), ReportOptions)

    from remuda.coordinator.run_directory import RunDirectory
    from remuda.ui.ending import make_report
    from remuda.ui.summary import print_files

    run = RunDirectory.open(options.run)
    if not run.read_summary()["turns"]:
        raise RunDirectoryError(f"no report of {run.path}: no turn was played in it")
    failed = [*_tell_results(run), *make_report(run)]
    print_files(run.path)
    if failed:  # all of it was asked for
        raise RemudaError("; ".join(failed))
    return 0


def _tell_of_best(run: RunDirectory, checkpoint: int | str) -> None:
    """Say which checkpoint stands in where the best is asked for, and none was measured."""
    numbers = run.checkpoints.numbers()
    if checkpoint == "best" and numbers and run.checkpoints.best() is None:
        print(
            f"remuda: none was measured, so the newest stands in for the best: checkpoint "
            f"{numbers[-1]}",
            file=sys.stderr,
        )


def tournament(words: Sequence[str]) -> int:
    """Let a run's checkpoints, or policies of any runs, play against each other."""
    options = validate(parse_flags(words, TournamentOptions, positional="run"), TournamentOptions)

    from remuda.ui.crossplay import is_one_run, set_up
    from remuda.ui.tournament import print_tournament

    if len(options.run) == 1 and (is_one_run(options.run) or ":" not in options.run[0]):
        game, found = _among_checkpoints(options)
    else:
        if options.checkpoints:
            raise ConfigError(
                "--checkpoints is for the checkpoints of a single run; among several, name one as "
                "RUN:policy@checkpoint-N"
            )
        crossplay = set_up(options.run, options.game, options.env.options)
        game = crossplay.game
        found = crossplay.play(options.episodes, options.seed, options.sampled)
    if options.format == "json":
        import json

        print(json.dumps(found.as_summary()))
    else:
        print_tournament(game, found)
    return 0


def _among_checkpoints(options: TournamentOptions) -> tuple[str, Tournament]:
    """The game of a single run, and the tournament of its checkpoints."""
    from remuda.coordinator.run_directory import RunDirectory
    from remuda.crossplay import play_tournament
    from remuda.saved_weights import load_run

    run = RunDirectory.open(Path(options.run[0]).expanduser())
    for flag, value in (("game", options.game), ("env.options", options.env.options)):
        if value:
            raise ConfigError(
                f"--{flag} is for several that play; the checkpoints of {run.path} play its game"
            )
    config, final = load_run(run)
    numbers = options.checkpoints or tuple(run.checkpoints.numbers())
    entrants = {str(number): load_run(run, number)[1] for number in numbers}
    if not options.checkpoints:
        entrants["final"] = final
    episodes, seed = options.episodes, options.seed
    return config.game, play_tournament(config, entrants, episodes, seed, options.sampled)


def games(words: Sequence[str]) -> int:
    """List the games, or tell the rules of one."""
    options = validate(parse_flags(words, GamesOptions, positional="game"), GamesOptions)

    from remuda.envs.registry import find_game
    from remuda.ui.games import print_game, print_games

    if options.game:
        print_game(find_game(options.game))
    else:
        print_games()
    return 0


def play(words: Sequence[str]) -> int:
    """Show a game in the terminal or as a GIF, or play in it yourself."""
    words, seats = take_pairs(words, "--seat")
    tree = parse_flags(words, PlayOptions, positional="game")
    options = validate(overlay(tree, {"seat": seats} if seats else {}), PlayOptions)

    from remuda.ui.playing import play as show

    show(
        options.game,
        options.policy if "policy" in options.model_fields_set else None,
        turns=options.turns,
        seed=options.seed,
        frames_per_second=options.frames_per_second,
        out=options.out,
        options=options.env.options,
        seats=options.seat,
        sampled=options.sampled,
    )
    return 0


@dataclass(frozen=True)
class Command:
    """A word after `remuda`."""

    run: Callable[[Sequence[str]], int]
    options: type[Section] | None = None
    positional: str = ""

    @property
    def summary(self) -> str:
        """One line for the list of commands."""
        return (self.run.__doc__ or "").strip().splitlines()[0]


COMMANDS = {
    "train": Command(train, Config, "game"),
    "status": Command(status, StatusOptions, "run"),
    "evaluate": Command(evaluate, EvaluateOptions, "run"),
    "tournament": Command(tournament, TournamentOptions, "run"),
    "watch": Command(watch, WatchOptions, "run"),
    "report": Command(report, ReportOptions, "run"),
    "runs": Command(runs, RunsOptions, "directory"),
    "compare": Command(compare, CompareOptions, "runs"),
    "games": Command(games, GamesOptions, "game"),
    "play": Command(play, PlayOptions, "game"),
}


EXIT_CODES = (
    "exit code: 0: all is well. 1: something failed, as told. 2: a flag, a key or a game is not "
    "what\nit should be. 3: the run reached its end, but a policy stopped learning, since too many "
    "of its\nupdates were not finite. 130, 143: stopped by Ctrl-C or SIGTERM."
)


def usage() -> str:
    """What `remuda --help` prints."""
    lines = [
        f"remuda {__version__}: many policies that learn at once, in games they share",
        "",
        "usage: remuda COMMAND [OPTIONS]",
        "",
    ]
    for name, command in COMMANDS.items():
        words = f"{name} {command.positional.upper()}".strip()
        lines.append(f"  {words:<15} {command.summary}")
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
        EXIT_CODES,
    ]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    words = sys.argv[1:] if words is None else words
    # A game of the user's own lies where he works, which is not where the program lies.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    sys.exit(run(words))


def run(words: Sequence[str]) -> int:
    """Run one command; returns the exit code. What a user can mend is told in one line."""
    tell_at_the_end()
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if words[0] == "--version":
        print(f"remuda {__version__}")
        return 0
    try:
        command = COMMANDS.get(words[0])
        if command is None:
            raise ConfigError(f"no command {words[0]!r}; there are {', '.join(COMMANDS)}")
        if any(word in ("-h", "--help") for word in words[1:]):
            print(_help(words[0], command))
            return 0
        with naming_user_code():
            return command.run(words[1:])
    except RemudaError as error:
        print(f"remuda: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(told_at_the_end(), file=sys.stderr)
        return INTERRUPTED


def _help(name: str, command: Command) -> str:
    if command.options is None:
        return f"usage: remuda {name}\n\n{command.summary}"
    text = help_of(command.options, f"remuda {name}", command.positional)
    if command.options is Config:
        text += (
            "\n--resume RUN goes on with a run from its newest checkpoint; flags go over its "
            "configuration.\n--seeds N trains so many seeds one after the other, or --jobs J at a "
            "time, in one\ndirectory with one report; --resume of that goes on with those that "
            "are left.\n--config FILE reads the same keys from a YAML file; flags go over it. "
            "Of one policy or of\nthe game: --policies.agent_0.learning_rate 1e-3, "
            f"--env.options.num_agents 4.\n\n{EXIT_CODES}"
        )
    return text
