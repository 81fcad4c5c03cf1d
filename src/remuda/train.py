"""Training: how a run is put together. Read this file for the map of the whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from remuda import __version__
from remuda.assembly import Assembly, check_births, lasting
from remuda.calibration import choose_layout
from remuda.checkpoint.store import Manifest, differences
from remuda.config import Config, write_config
from remuda.coordinator.coordinator import Signals
from remuda.coordinator.metrics import Goal, Record, View
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.registry import find_game, make_env
from remuda.envs.wrapped import with_scripted
from remuda.errors import CheckpointError, ConfigError, RoleDiedError
from remuda.evaluate import Evaluation, evaluate
from remuda.policies.sharing import shares_of
from remuda.policies.spec import PolicySpec, policy_specs
from remuda.policies.stack import ParameterStack
from remuda.population.setup import check_population
from remuda.publish.snapshot import Snapshot
from remuda.runtime.host import LOG_FORMAT
from remuda.runtime.layout import make_layout

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    directory: Path
    ended: str
    """How it ended, in words."""
    finished: bool
    """Whether it reached the end that it was given; if not, it can be resumed."""
    record: Record
    """This session of the run as one interval."""
    evaluation: Evaluation | None
    signal: int | None
    """The signal that stopped it, if one did."""
    restarts: Mapping[str, int]
    """How often each role was restarted, those that were."""


def train(config: Config, view: View, resume: bool = False) -> Result:
    """Train every policy of `config`, save them, and measure them by greedy play.

    Args:
        config: the whole run.
        view: where it is watched.
        resume: go on with the run in `config.run.directory` from its newest checkpoint.

    Raises:
        RemudaError: something that a user can mend; the message says how.
    """
    env = make_env(config.game, 1, **config.env.options)
    agents, facts, specs = env.agents, env.facts, policy_specs(config, env.agents)
    if config.population.dealt:
        check_population(config, agents, [spec.name for spec in specs])
        check_births(config, specs)
    shares_of(specs)  # what cannot be shared is refused before there is a directory
    with_scripted(find_game(config.game), env, config.env.scripted, np.random.default_rng(0))
    if config.env.observe_together and not env.can_observe_together:
        raise ConfigError(
            f"env.observe_together: in {config.game} one agent acts at a time, and sees what those "
            "before it did; leave it false"
        )
    env.close()
    make_layout(config, len(specs))  # what cannot be is refused before there is a directory
    run = _claim(config, resume)
    try:
        with _log_to(run.logs / "coordinator.log"):
            found = _find_checkpoint(config, run, view) if resume else None
            layout = choose_layout(config, agents)
            assembly = Assembly(config, specs, layout, facts=facts, agents=agents)
            return _train(config, view, assembly, run, found)
    finally:
        run.unlock()


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A log on a full disk is lost, and not worth a traceback in the terminal."""


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Send what this package logs in this process to a file, and not to the terminal."""
    logger = logging.getLogger("remuda")
    handler = _LogFile(path, delay=True)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate, logger.level = False, logging.INFO
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate, logger.level = before
        handler.close()


def _train(
    config: Config,
    view: View,
    assembly: Assembly,
    run: RunDirectory,
    found: Manifest | None,
) -> Result:
    specs = assembly.specs
    if found is not None:
        assembly.restore(run.checkpoints, found)
        _tell_of_damage(run.rewind(found.turns), view)
        write_config(config, run.config)
    described = assembly.layout.describe(config.schedule, [spec.name for spec in specs])
    signals = Signals()
    with signals.watching():
        view.start(
            Goal(
                config.game,
                config.schedule,
                run.path,
                config.run.turns,
                config.run.seconds,
                described,
            )
        )
        try:
            coordinator = assembly.coordinator(run, view, found)
            try:
                ending = coordinator.run(config.run, config.checkpoint.every, signals)
            except RoleDiedError as error:
                if run.checkpoints.numbers():
                    error.args = (f"{error}. Mend it, and: remuda train --resume {run.path}",)
                raise
            finally:
                snapshots = assembly.playing()
                save(run, [spec for spec in specs if spec.name in snapshots], snapshots)
                assembly.write_trace(view)
        finally:
            view.close()
    evaluation = None
    if config.run.evaluate_episodes and not signals.stopped():
        evaluation = evaluate(config, snapshots, config.run.evaluate_episodes, config.seed)
    result = Result(
        run.path,
        ending.words,
        ending.finished,
        ending.record,
        evaluation,
        signals.caught,
        ending.restarts,
    )
    run.save_summary(summarise(config, result, described))
    return result


def _tell_of_damage(damaged: Sequence[int], view: View) -> None:
    if damaged:
        lines = "1 line" if len(damaged) == 1 else f"{len(damaged)} lines"
        verb = "is" if len(damaged) == 1 else "are"
        view.say(f"{lines} of metrics.jsonl {verb} damaged, and passed over")


def _claim(config: Config, resume: bool) -> RunDirectory:
    """The run's directory, claimed for this process."""
    if not resume or config.run.directory is None:
        return RunDirectory.create(config)
    run = RunDirectory.open(config.run.directory)
    run.lock()
    return run


def _find_checkpoint(config: Config, run: RunDirectory, view: View) -> Manifest:
    """The newest whole checkpoint. Where there is none, nothing of the run is touched.

    Raises:
        CheckpointError: there is none, or it was made with another configuration.
    """
    found = run.checkpoints.newest_whole(view.say)
    if found is None:
        count = len(run.checkpoints.numbers())
        why = "none was written, or they were removed"
        if count:
            why = "the only one is damaged" if count == 1 else f"all {count} are damaged"
        raise CheckpointError(
            f"{run.path} has no checkpoint to go on from: {why}. Nothing was changed; begin a new "
            f"run: remuda train --config {run.config} --run.directory NEW"
        )
    for difference in differences(found.config, lasting(config)):
        raise CheckpointError(
            f"checkpoint {found.number} of {run.path} was made with another configuration: "
            f"{difference}; resume without that change, or begin a new run"
        )
    view.say(
        f"goes on from checkpoint {found.number}: {found.turns:,} turns, {found.seconds:,.0f} s"
    )
    return found


def save(run: RunDirectory, specs: Sequence[PolicySpec], snapshots: Mapping[str, Snapshot]) -> None:
    """Write every policy's weights by parameter name."""
    for spec in specs:
        snapshot = snapshots[spec.name]
        stack = ParameterStack(spec.network().shapes, 1)
        with torch.no_grad():
            stack.flat[0].copy_(torch.from_numpy(snapshot.weights))
        tensors = {name: view[0].numpy().copy() for name, view in stack.parameters.items()}
        facts = {
            "version": str(snapshot.version),
            "learner_step": str(snapshot.learner_step),
            "remuda": __version__,
        }
        run.save_weights(spec.name, tensors, facts)


def summarise(config: Config, result: Result, layout: str) -> dict[str, object]:
    """What came of a run, as plain data."""
    record, evaluation = result.record, result.evaluation
    return {
        "game": config.game,
        "schedule": config.schedule,
        "seed": config.seed,
        "ended": result.ended,
        "finished": result.finished,
        "seconds": record.seconds,
        "turns": record.turns,
        "agent_steps": record.agent_steps,
        "agent_steps_per_second": record.agent_steps_per_second,
        "waits": record.waits,
        "restarts": dict(result.restarts),
        "layout": layout,
        "version": __version__,
        "evaluation": evaluation.as_summary() if evaluation else None,
    }
