"""The commands for one run: `remuda status`, `evaluate`, `record`, `watch`, `report`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from remuda.errors import ConfigError, RemudaError, RunDirectoryError
from remuda.ui.cli.commands.options import (
    GameOptions,
    PictureOptions,
    PrintOptions,
    RunOptions,
    needs,
)
from remuda.ui.cli.commands.several_runs import SEEDS

if TYPE_CHECKING:
    from remuda.evaluation.results import Evaluation, Limits
    from remuda.evaluation.tournaments.focal import FocalEvaluation
    from remuda.runs.run_directory import RunDirectory


class EvaluateOptions(PrintOptions, RunOptions):
    """Evaluate a run's policies: the mean return of each agent, and its standard error."""

    NEEDED = needs("run", "name the run to evaluate, as in `remuda evaluate RUN`")

    run: Path
    """The run directory, or that of `--seeds`: each seed is evaluated. With `--policy`, the name of
    a game."""
    episodes: PositiveInt = 200
    """Episodes to play."""
    seconds: PositiveFloat | None = None
    """Time limit in seconds; only finished episodes count. None: no limit."""
    seed: NonNegativeInt = 0
    """Seed of the games."""
    sampled: bool | None = None
    """`true`: policies explore as at the end of training; `false`: they act greedily. None: as
    `run.evaluate_sampled` of the run, which is greedy by default."""
    checkpoint: Literal["final", "best"] | PositiveInt = "final"
    """`final`: the weights at the end of the run, or the newest; `best`: those of the checkpoint
    with the best evaluation; or a checkpoint's number."""
    scripted: dict[str, str] = Field(default_factory=dict)
    """For each agent, a scripted policy that replaces its trained one, as in
    `--scripted.agent_1 random`: `random`, one that `remuda games GAME` lists, or your own as
    `module:callable`."""
    background: str | None = None
    """Another run, or a scripted policy: its policies take all but the focal seats. None: the run's
    own policies play all seats."""
    policy: str | None = None
    """With `--background`: a scripted policy that takes the focal seats of a game, as in `remuda
    evaluate prisoners_dilemma --policy cooperate --background defect --focal 0 1 2`. None: a run's
    policies take them."""
    focal: tuple[NonNegativeInt, ...] = (1,)
    """With `--background`: how many seats the run's policies, or `--policy`, take. Several numbers,
    such as `--focal 0 1 2 3 4`, make a Schelling diagram."""
    out: Path | None = None
    """With `--background`: a picture of the returns by number of focal seats; `.png`, `.svg` or
    `.pdf`."""
    histories: Path | None = None
    """A file for the moves of each episode, one JSON line per episode, with OpenSpiel's action
    numbers. Only for OpenSpiel games."""
    env: GameOptions = GameOptions()


class RecordOptions(RunOptions):
    """Record episodes of a run's policies: every observation, action and reward."""

    NEEDED: ClassVar[Mapping[str, str]] = {
        **needs("run", "name the run to record, as in `remuda record RUN --to data.npz`"),
        "to": "name the file to write, as in `remuda record RUN --to data.npz`",
    }

    to: str
    """The file to write, which ends with `.npz`; `remuda.Trajectories.load` reads it. Or
    `minari:NAME-v0` for a data set of Minari, one for each agent."""
    episodes: PositiveInt = 100
    """Episodes to play."""
    seed: NonNegativeInt = 0
    """Seed of the games."""
    sampled: bool | None = None
    """As for `remuda evaluate`."""
    checkpoint: Literal["final", "best"] | PositiveInt = "final"
    """As for `remuda evaluate`."""
    scripted: dict[str, str] = Field(default_factory=dict)
    """As for `remuda evaluate`."""


class WatchOptions(PictureOptions, RunOptions):
    """Write a GIF of a run's policies playing."""

    NEEDED = needs("run", "name the run to watch, as in `remuda watch RUN`")

    sampled: bool | None = None
    """As for `remuda evaluate`."""
    checkpoint: Literal["final", "best"] | PositiveInt = "final"
    """As for `remuda evaluate`."""


class StatusOptions(PrintOptions, RunOptions):
    """Show what a run is doing, from another terminal."""

    NEEDED = needs("run", "name the run to show, as in `remuda status RUN`")


class ReportOptions(RunOptions):
    """Show the results of a run, and rewrite its GIF and its report."""

    NEEDED = needs("run", "name the run to report on, as in `remuda report RUN`")


def status(options: StatusOptions) -> int:
    """Show what a run is doing, from another terminal."""
    from remuda.runs.run_directory import RunDirectory
    from remuda.ui.terminal.status import current_status, print_status

    found = current_status(RunDirectory.open(options.run))
    options.show(lambda: found, lambda: print_status(options.run, found))
    return 0


def evaluate(options: EvaluateOptions) -> int:
    """Evaluate a run's policies, and print the mean return of each agent."""
    if (options.run / SEEDS).is_file():
        return _evaluate_seeds(options)
    if options.background is not None:
        return _evaluate_among(options, options.background)
    for name in ("policy", "focal", "out"):
        if name in options.model_fields_set:
            raise ConfigError(f"--{name} has no effect without --background")
    from remuda.coordinator.coordinator import Signals
    from remuda.evaluation.evaluate import evaluate as play
    from remuda.evaluation.results import Limits
    from remuda.runs.run_directory import RunDirectory
    from remuda.runs.saved_weights import load_run
    from remuda.training.saved.games import with_game_options
    from remuda.ui.plots.recording import check_histories, write_histories
    from remuda.ui.terminal.live import PlayProgress

    run = RunDirectory.open(options.run)
    _note_best(run, options.checkpoint)
    spec, snapshots = load_run(run, options.checkpoint)
    spec = with_game_options(spec, options.env.options)
    if options.histories:
        check_histories(spec)
    progress, signals = PlayProgress(sys.stderr), Signals()
    with signals.watching():
        limits = Limits(options.seconds, signals.stopped, partial(progress, "play"))
        evaluation = play(
            spec,
            snapshots,
            options.episodes,
            options.seed,
            options.scripted,
            options.sampled,
            limits=limits,
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
    if options.histories:
        write_histories(options.histories, spec.config, evaluation)
    options.show(
        evaluation.as_summary, lambda: _print_evaluation(options, spec.env.game, evaluation)
    )
    return code


def _evaluate_seeds(options: EvaluateOptions) -> int:
    """Evaluate each run of a directory of seeds, until one fails or is interrupted."""
    from remuda.ui.reports.summary import find_runs

    runs = sorted(find_runs(options.run))
    for name in ("histories", "out"):
        if getattr(options, name) is not None:
            raise ConfigError(
                f"--{name} writes one file, and {options.run} has {len(runs)} runs; evaluate one "
                f"of them: remuda evaluate {runs[0]}"
            )
    for run in runs:
        if options.format == "table":
            print(f"{run}:", flush=True)
        code = evaluate(options.model_copy(update={"run": run}))
        if code:
            return code
    return 0


def _evaluate_among(options: EvaluateOptions, background: str) -> int:
    """Play the run's policies among others, and print the mean return of a seat."""
    from remuda.coordinator.coordinator import Signals
    from remuda.evaluation.results import Limits
    from remuda.ui.analysis.focal import check_picture, write_chart
    from remuda.ui.terminal.live import PlayProgress

    for name in ("scripted", "histories"):
        if getattr(options, name):
            raise ConfigError(f"--{name} cannot be combined with --background; leave one out")
    if options.out is not None:
        check_picture(options.out)
    progress, signals = PlayProgress(sys.stderr), Signals()
    with signals.watching():
        limits = Limits(options.seconds, signals.stopped, partial(progress, "play"))
        found = _play_among(options, background, limits)
    progress.close()
    code = 0 if signals.caught is None else 128 + signals.caught
    played = sum(each.episodes for each in found.returns)
    if found.cut:
        wanted = options.episodes * len(found.returns)
        print(f"remuda: {found.cut} after {played:,} of {wanted:,} episodes", file=sys.stderr)
    if not played:
        return code or 1
    options.show(found.as_summary, lambda: print(found.short_table().as_text(most=None)))
    if options.out is not None:
        write_chart(found, options.out)
    return code


def _play_among(options: EvaluateOptions, background: str, limits: Limits) -> FocalEvaluation:
    """Play the run's policies, or a scripted policy of a game, among others."""
    from remuda.envs.registry import find_game, is_known
    from remuda.runs.run_directory import RunDirectory
    from remuda.ui.analysis.focal import evaluate_among, evaluate_policy_among

    target = str(options.run)
    played = background, options.focal, options.episodes
    chosen: dict[str, Any] = {"seed": options.seed, "sampled": options.sampled, "limits": limits}
    if options.policy is None:
        if options.env.options:
            raise ConfigError(
                "--env.options cannot be combined with --background, unless --policy is set: the "
                "policies of a run play with the options of the run; leave one out"
            )
        if is_known(target) and not options.run.is_dir():
            raise ConfigError(
                f"{target} is a game; add --policy for a scripted policy in the focal seats, or "
                "name a run"
            )
        run = RunDirectory.open(options.run)
        _note_best(run, options.checkpoint)
        return evaluate_among(run, *played, checkpoint=options.checkpoint, **chosen)
    if "checkpoint" in options.model_fields_set:
        raise ConfigError("--checkpoint cannot be combined with --policy; leave one out")
    if not is_known(target):
        if options.run.is_dir():
            raise ConfigError(
                f"{target} is a run; with --policy, name a game, or leave out --policy to evaluate "
                "the run's policies"
            )
        try:
            find_game(target)
        except ConfigError as error:
            raise ConfigError(f"with --policy, name a game: {error}") from None
    game = options.env.options
    return evaluate_policy_among(options.policy, *played, game=target, options=game, **chosen)


def _print_evaluation(options: EvaluateOptions, game: str, evaluation: Evaluation) -> None:
    from remuda.analysis.payoffs.returns import standard_error
    from remuda.ui.terminal.numbers import number

    played = len(evaluation.returns)
    print(f"{game}: {played} {evaluation.way} episodes of {options.run}; ± standard error")
    width = max(len(name) for name in (*evaluation.agents, *evaluation.policies))
    for i, name in enumerate(evaluation.agents):
        mean, error = evaluation.mean(i), evaluation.standard_error(i)
        note = f"  ({options.scripted[name]})" if name in options.scripted else ""
        count = evaluation.episodes(i)
        if count < played:
            note += f"  in {count} of {played} episodes" if count else "  never took part"
        print(f"  {name:<{width}}  return {number(mean):>8} ± {number(error)}{note}")
    for name, returns in evaluation.policies.items():
        mean_return = f"{number(returns.mean()):>8} ± {number(standard_error(returns))}"
        print(f"  {name:<{width}}  return {mean_return}  over {len(returns)} seats")
    for name in evaluation.episode_metrics:
        values = evaluation.metric(name)
        shown = "in no episode"
        if len(values):
            shown = f"{values.mean():.4g} ± {standard_error(values):.2g}"
        print(f"  {name.replace('_', ' ')}: {shown}")


def record(options: RecordOptions) -> int:
    """Record a run's episodes: observations, actions and rewards, as a file or for Minari."""
    from remuda.evaluation.recording import record_trajectories
    from remuda.runs.run_directory import RunDirectory
    from remuda.runs.saved_weights import load_run

    run = RunDirectory.open(options.run)
    _note_best(run, options.checkpoint)
    spec, snapshots = load_run(run, options.checkpoint)
    found = record_trajectories(
        spec,
        snapshots,
        options.episodes,
        options.to,
        run=str(run.path),
        seed=options.seed,
        scripted=options.scripted,
        sampled=options.sampled,
    )
    steps = ", ".join(f"{len(own):,} steps of {agent}" for agent, own in found.items())
    print(f"wrote {options.to}: {found.num_episodes:,} episodes, {steps}")
    return 0


def watch(options: WatchOptions) -> int:
    """Write a GIF of a run's policies playing."""
    from remuda.runs.run_directory import RunDirectory
    from remuda.ui.reports.run_end import draw_play

    run = RunDirectory.open(options.run)
    _note_best(run, options.checkpoint)
    path = options.out or run.recording
    drawn = draw_play(
        run,
        path,
        turns=options.turns,
        seed=options.seed,
        frames_per_second=options.frames_per_second,
        checkpoint=options.checkpoint,
        sampled=options.sampled,
    )
    if not drawn:
        raise RemudaError(f"{run.read_config().game} cannot be drawn: it renders no images")
    print(f"wrote {path}")
    return 0


def report(options: ReportOptions) -> int:
    """Show the results of a run, and rewrite its GIF and its report."""
    from remuda.runs.run_directory import RunDirectory
    from remuda.ui.reports.results import print_files
    from remuda.ui.reports.run_end import make_report, show_results

    run = RunDirectory.open(options.run)
    if not run.read_summary()["turns"]:
        raise RunDirectoryError(f"no report of {run.path}: the run played no turn")
    failed = [*show_results(run), *make_report(run)]
    print_files(run.path)
    if failed:
        raise RemudaError("; ".join(failed))
    return 0


def _note_best(run: RunDirectory, checkpoint: int | str) -> None:
    numbers = run.checkpoints.numbers()
    if checkpoint == "best" and numbers and run.checkpoints.best() is None:
        print(
            f"remuda: no checkpoint was evaluated, so there is no best one; using the newest, "
            f"checkpoint {numbers[-1]}",
            file=sys.stderr,
        )
