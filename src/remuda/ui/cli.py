"""The command `remuda`. Heavy libraries are imported inside the commands, so that help is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt

from remuda import __version__
from remuda.config import Config, Section, load_config, overlay, read_config
from remuda.errors import ConfigError, RemudaError
from remuda.ui.arguments import help_of, parse_flags, validate

INTERRUPTED = 130


class EvaluateOptions(Section):
    """Greedy play of a run's policies: mean and standard error of each agent's return."""

    run: Path
    """The run directory."""
    episodes: PositiveInt = 200
    """Episodes to play."""
    seed: NonNegativeInt = 0
    """Seed of the games."""
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
    frames_per_second: PositiveInt = 8
    """Turns shown in a second."""


def train(words: Sequence[str]) -> int:
    """Train the policies of a game."""
    config = read_arguments(words)

    from remuda.coordinator.run_directory import RunDirectory
    from remuda.evaluate import load_run
    from remuda.train import train as run_training
    from remuda.ui.live import make_view
    from remuda.ui.report import write_report
    from remuda.ui.summary import print_summary

    result = run_training(config, make_view(config.run.live))
    run = RunDirectory.open(result.directory)
    saved, snapshots = load_run(run)
    _record(saved, snapshots, run.recording, turns=100, seed=config.seed, frames_per_second=8)
    write_report(run.path)
    print_summary(run.path)
    return 0 if result.signal is None else 128 + result.signal


def read_arguments(words: Sequence[str]) -> Config:
    """The configuration from flags over the YAML file of `--config` over the defaults.

    Raises:
        ConfigError: anything in them that is wrong, in one line.
    """
    words = list(words)
    base: dict[str, Any] = {}
    source = ""
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--config":
            if not equals and i + 1 >= len(words):
                raise ConfigError("--config needs the path of a YAML file")
            source = value if equals else words[i + 1]
            del words[i : i + (1 if equals else 2)]
            base = read_config(Path(source))
            load_config(base, source)  # a fault in the file is told as the file's
            break
    config = load_config(overlay(base, parse_flags(words, Config, positional="game")))
    from remuda.envs.registry import find_game

    find_game(config.game)
    return config


def evaluate(words: Sequence[str]) -> int:
    """Play a run's policies greedily, and print what each agent earns."""
    options = validate(parse_flags(words, EvaluateOptions, positional="run"), EvaluateOptions)

    from remuda.coordinator.run_directory import RunDirectory
    from remuda.evaluate import evaluate as play
    from remuda.evaluate import load_run

    config, snapshots = load_run(RunDirectory.open(options.run))
    evaluation = play(config, snapshots, options.episodes, options.seed)
    if options.format == "json":
        import json

        print(json.dumps(evaluation.as_summary()))
        return 0
    print(f"{config.game}: {options.episodes} greedy episodes of {options.run}")
    width = max(len(name) for name in evaluation.agents)
    for i, name in enumerate(evaluation.agents):
        mean, error = evaluation.mean(i), evaluation.standard_error(i)
        print(f"  {name:<{width}}  return {mean:8.1f} ± {error:.1f}")
    return 0


def watch(words: Sequence[str]) -> int:
    """Write a GIF of a run's policies at play."""
    options = validate(parse_flags(words, WatchOptions, positional="run"), WatchOptions)

    from remuda.coordinator.run_directory import RunDirectory
    from remuda.evaluate import load_run

    run = RunDirectory.open(options.run)
    config, snapshots = load_run(run)
    path = options.out or run.recording
    wrote = _record(
        config,
        snapshots,
        path,
        turns=options.turns,
        seed=options.seed,
        frames_per_second=options.frames_per_second,
    )
    if not wrote:
        raise RemudaError(f"{config.game} draws no pictures, so there is nothing to watch")
    print(f"wrote {path}")
    return 0


def games(words: Sequence[str]) -> int:
    """List the games."""
    if words:
        raise ConfigError(f"what is {words[0]!r} for? `remuda games` takes no options")

    from remuda.envs.registry import GAMES

    for game in GAMES.values():
        env = game.make(num_envs=1)
        agent = env.agents[0]
        print(f"{game.name}: {game.summary}")
        print(f"  {game.kind}, {env.num_agents} agents")
        sees = agent.observation_space
        print(f"  observes {sees.shape} {sees.dtype}, acts in {agent.action_space}")
        options = ", ".join(f"{name} {value}" for name, value in env.options().items())
        print(f"  options (--env.options.NAME VALUE): {options}")
        env.close()
    return 0


def _record(
    config: Config,
    snapshots: Any,
    path: Path,
    *,
    turns: int,
    seed: int,
    frames_per_second: int,
) -> bool:
    """Write a GIF of greedy play; False where the game has no picture."""
    from remuda.evaluate import record
    from remuda.ui.recording import write_gif

    try:
        frames = record(config, snapshots, turns=turns, seed=seed)
    except NotImplementedError:
        return False
    write_gif(frames, path, frames_per_second)
    return True


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
    "evaluate": Command(evaluate, EvaluateOptions, "run"),
    "watch": Command(watch, WatchOptions, "run"),
    "games": Command(games),
}


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
        lines.append(f"  {words:<14} {command.summary}")
    lines += [
        "",
        "`remuda COMMAND --help` lists the options of a command. To begin with:",
        "",
        "  remuda train treasure_hunt",
        "  remuda train treasure_hunt --run.seconds 60 --policies.agent_0.learning_rate 1e-3",
        "  remuda train --config my_run.yaml --seed 3",
    ]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    words = sys.argv[1:] if words is None else words
    sys.exit(run(words))


def run(words: Sequence[str]) -> int:
    """Run one command; returns the exit code. What a user can mend is told in one line."""
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
        return command.run(words[1:])
    except RemudaError as error:
        print(f"remuda: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("remuda: interrupted", file=sys.stderr)
        return INTERRUPTED


def _help(name: str, command: Command) -> str:
    if command.options is None:
        return f"usage: remuda {name}\n\n{command.summary}"
    text = help_of(command.options, f"remuda {name}", command.positional)
    if command.options is Config:
        text += (
            "\n--config FILE reads the same keys from a YAML file; flags go over it. Of one policy "
            "or of\nthe game: --policies.agent_0.learning_rate 1e-3, --env.options.num_agents 4."
        )
    return text
