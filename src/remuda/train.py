"""Training: how a run is put together. Read this file for the map of the whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from remuda import __version__
from remuda.actor.role import ActorRole
from remuda.checkpoint.store import Checkpoints, Manifest, differences
from remuda.config import Config, write_config
from remuda.coordinator.board import Board
from remuda.coordinator.checkpointing import COORDINATOR, BestKeeper, Checkpointer, Contents
from remuda.coordinator.coordinator import Coordinator, Runtime, Signals
from remuda.coordinator.metrics import Goal, Record, View
from remuda.coordinator.run_directory import RunDirectory
from remuda.coordinator.status import StatusFile
from remuda.envs.registry import make_env
from remuda.errors import CheckpointError, RoleDiedError
from remuda.evaluate import Evaluation, evaluate
from remuda.experience.experience import Experience
from remuda.experience.ring import StreamShape
from remuda.learner.role import LearnerRole
from remuda.memory.waiting import Wakeup
from remuda.policies.spec import PolicySpec, policy_specs
from remuda.policies.stack import ParameterStack, layout_checksum, layout_size
from remuda.publish.snapshot import PublishedWeights, Publisher, Snapshot, SnapshotReader
from remuda.runtime.host import LOG_FORMAT
from remuda.runtime.inline import InlineRuntime
from remuda.runtime.layout import Layout, make_layout
from remuda.runtime.pace import FreePace, LockstepActor, LockstepLearner, Pace
from remuda.runtime.processes import Place, ProcessRuntime
from remuda.scoreboard import Scoreboard
from remuda.streams import torch_stream
from remuda.timeline import Timeline, write_trace
from remuda.types import State

log = logging.getLogger(__name__)

PATIENCE = 0.005
"""Seconds that a stack of policies waits for those fed last in a turn; updates take longer."""


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
    specs = policy_specs(config, env.agents)
    env.close()
    layout = make_layout(config, len(specs))
    run = _claim(config, resume)
    try:
        with _log_to(run.logs / "coordinator.log"):
            return _train(config, view, specs, layout, run, resume)
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
    specs: tuple[PolicySpec, ...],
    layout: Layout,
    run: RunDirectory,
    resume: bool,
) -> Result:
    found = _find_checkpoint(config, run, view) if resume else None
    ring = Ring(config, specs, layout)
    if found is not None:
        ring.restore(run.checkpoints, found)
    if resume:
        run.rewind(found.turns if found else 0)
        write_config(config, run.config)
    described = layout.describe(config.schedule, [spec.name for spec in specs])
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
            coordinator = ring.coordinator(run, view, found)
            try:
                ending = coordinator.run(config.run, config.checkpoint.every, signals)
            except RoleDiedError as error:
                if run.checkpoints.numbers():
                    error.args = (f"{error}. Mend it, and: remuda train --resume {run.path}",)
                raise
            finally:
                snapshots = ring.snapshots()
                save(run, specs, snapshots)
                ring.write_trace(view)
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


def _claim(config: Config, resume: bool) -> RunDirectory:
    """The run's directory, claimed for this process."""
    if not resume or config.run.directory is None:
        return RunDirectory.create(config)
    run = RunDirectory.open(config.run.directory)
    run.lock()
    return run


def _find_checkpoint(config: Config, run: RunDirectory, view: View) -> Manifest | None:
    """The newest whole checkpoint; None if there is none yet, so that the run begins anew.

    Raises:
        CheckpointError: it was made with another configuration.
    """
    found = run.checkpoints.newest_whole(view.say)
    if found is None:
        view.say(f"{run.path} has no checkpoint yet: it begins anew")
        return None
    for difference in differences(found.config, lasting(config)):
        raise CheckpointError(
            f"checkpoint {found.number} of {run.path} was made with another configuration: "
            f"{difference}; resume without that change, or begin a new run"
        )
    view.say(
        f"goes on from checkpoint {found.number}: {found.turns:,} turns, {found.seconds:,.0f} s"
    )
    return found


def lasting(config: Config) -> dict[str, Any]:
    """What of a configuration a resumed run must share with the run that it resumes."""
    return config.model_dump(mode="json", include={"game", "seed", "env", "policy", "policies"})


class Ring:
    """The ring that data runs round: what actors and learners share, and their recipes."""

    def __init__(
        self,
        config: Config,
        specs: tuple[PolicySpec, ...],
        layout: Layout,
        learner_role: type[LearnerRole] = LearnerRole,
        actor_role: type[ActorRole] = ActorRole,
    ) -> None:
        self.config, self.specs = config, specs
        self._learner_role, self._actor_role = learner_role, actor_role
        self._actors = tuple(Wakeup() for _ in layout.copies)
        self._learners = tuple(Wakeup() for _ in layout.groups)
        self.scoreboard = Scoreboard(tuple(spec.name for spec in specs), len(layout.copies))
        self.experience: dict[str, Experience] = {}
        for group, wakeup in zip(layout.groups, self._learners, strict=True):
            for spec in (specs[i] for i in group):
                found = make_experience(spec, layout.copies, wakeup, self._actors)
                self.experience[spec.name] = found
        self.published = _published_weights(specs)
        self._publish_first_weights()
        self._layout = layout
        self._timelines: dict[str, Timeline] = {}
        self._resumed = False
        self._seconds = 0.0

    def restore(self, checkpoints: Checkpoints, found: Manifest) -> None:
        """Hold what was held at a checkpoint; the roles will restore their own parts.

        Raises:
            CheckpointError: it does not fit these policies.
        """
        saved = checkpoints.read(found.number, COORDINATOR)
        self.scoreboard.restore(saved["scoreboard"])
        for spec in self.specs:
            part = checkpoints.read(found.number, spec.name)
            contents = part["experience"] if self.config.saves_replay else None
            self.experience[spec.name].restore(contents, saved["written"][spec.name])
            self._publisher(spec).restore(saved["published"][spec.name])
        self._resumed, self._seconds = True, found.seconds

    def state(self) -> State:
        """The coordinator's part of a checkpoint."""
        return {
            "scoreboard": self.scoreboard.state(),
            "written": {name: found.written for name, found in self.experience.items()},
            "published": {name: s.state() for name, s in self.snapshots().items()},
        }

    def coordinator(self, run: RunDirectory, view: View, found: Manifest | None) -> Coordinator:
        """The one who runs it all."""
        config = self.config
        contents = Contents(
            parts=self.parts, gather=self.state, config=lasting(config), exact=config.exact
        )
        best = None
        if config.checkpoint.evaluate_episodes:
            best = BestKeeper(
                run.checkpoints,
                partial(measure, config),
                view.say,
                inline=config.schedule == "sequential",
            )
        return Coordinator(
            self.runtime(run.logs, run.checkpoints),
            partial(Board, self.scoreboard, self.experience, self._seconds),
            self.snapshots,
            run,
            view,
            StatusFile(run.status, self.published, config.schedule),
            Checkpointer(
                run.checkpoints,
                config.checkpoint,
                contents,
                view.say,
                found.turns if found else 0,
            ),
            best,
            found.turns if found else None,
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a checkpoint that the roles save."""
        return tuple(part for role in self._roles() for part in role.parts)

    def runtime(self, logs: Path, checkpoints: Checkpoints) -> Runtime:
        """The roles, and the place where the schedule lets them live."""
        config = self.config
        roles = self._roles()
        if config.schedule == "sequential":
            actor, *learners = roles
            return InlineRuntime(
                actor,
                learners,
                checkpoints,
                resumed=self._resumed,
                timeline=self._timeline("main"),
            )
        paces: list[Pace] = [FreePace() for _ in roles]
        if config.schedule == "lockstep":
            paces = [LockstepActor(), *(LockstepLearner() for _ in self._learners)]
        wakeups = (*self._actors, *self._learners)
        places = [
            Place(role, wakeup, pace, self._timeline(role.name))
            for role, wakeup, pace in zip(roles, wakeups, paces, strict=True)
        ]
        return ProcessRuntime(
            places,
            checkpoints,
            logs,
            config.supervision,
            num_actors=len(self._actors),
            nice=config.learners.nice,
            start_limit=config.run.start_limit,
            stop_limit=config.run.stop_limit,
            write_limit=config.checkpoint.write_limit,
            resumed=self._resumed,
        )

    def snapshots(self) -> dict[str, Snapshot]:
        """The newest weights of every policy."""
        return SnapshotReader(self.published).newer()

    def write_trace(self, view: View) -> None:
        """Write what everybody did when, if the user asked for it."""
        path = self.config.trace
        if path is None:
            return
        try:
            count = write_trace(path, self._timelines)
        except OSError as error:
            view.say(f"cannot write the trace {path}: {error.strerror}")
        else:
            view.say(f"wrote {count:,} spans into {path}: open it in https://ui.perfetto.dev")

    def _roles(self) -> tuple[ActorRole | LearnerRole, ...]:
        config, layout = self.config, self._layout
        actors = [
            self._actor_role(
                config,
                self.specs,
                self.experience,
                self.published,
                self.scoreboard,
                layout.copies,
                index,
            )
            for index in range(len(layout.copies))
        ]
        learners = [
            self._learner_role(
                seed=config.seed,
                specs=tuple(self.specs[i] for i in group),
                devices=tuple(layout.devices[i] for i in group),
                experience={self.specs[i].name: self.experience[self.specs[i].name] for i in group},
                published=self.published,
                scoreboard=self.scoreboard,
                wakeup=wakeup,
                saves_experience=config.saves_replay,
                patience=PATIENCE if config.schedule == "async" else 0.0,
            )
            for group, wakeup in zip(layout.groups, self._learners, strict=True)
        ]
        roles: tuple[ActorRole | LearnerRole, ...] = (*actors, *learners)
        return tuple(replace(role, timeline=self._timeline(role.name)) for role in roles)

    def _timeline(self, role: str) -> Timeline | None:
        """The timeline of a role, if the user asked for a trace."""
        if self.config.trace is None:
            return None
        role = "main" if self.config.schedule == "sequential" else role
        if role not in self._timelines:
            self._timelines[role] = Timeline()
        return self._timelines[role]

    def _publish_first_weights(self) -> None:
        """Draw every policy's first weights and publish them as version 1.

        So the actor has something to act with, and a learner something to begin from.
        """
        for spec in self.specs:
            network = spec.network()
            stack = ParameterStack(network.shapes, 1)
            network.initialise(
                stack.parameters, torch_stream(self.config.seed, "weights", spec.name)
            )
            start = spec.config.exploration.start
            self._publisher(spec).publish(stack.flat[0].numpy(), 0, start)

    def _publisher(self, spec: PolicySpec) -> Publisher:
        return Publisher(self.published, spec.name, layout_checksum(spec.network().shapes))


def make_experience(
    spec: PolicySpec, num_streams: Sequence[int], learner: Wakeup, actors: Sequence[Wakeup]
) -> Experience:
    """The experience of a policy that plays so many copies and seats at once, by actor."""
    config, actions = spec.config, spec.actions
    shape = StreamShape(
        spec.observation,
        spec.dtype,
        config.n_frames,
        actions.size,
        actions.dtype,
        actions.mask_size if spec.masked else 0,
        config.network.recurrent,
    )
    rollout = config.ppo.rollout_length * sum(num_streams) if config.on_policy else 0
    return Experience(shape, config.experience, num_streams, learner, actors, rollout)


def _published_weights(specs: tuple[PolicySpec, ...]) -> PublishedWeights:
    layouts = {}
    for spec in specs:
        shapes = spec.network().shapes
        layouts[spec.name] = (layout_size(shapes), layout_checksum(shapes), spec.config.publish)
    return PublishedWeights(layouts)


def measure(config: Config, snapshots: Mapping[str, Snapshot]) -> dict[str, Any]:
    """The greedy return of snapshots, for finding the best checkpoint."""
    evaluation = evaluate(config, snapshots, config.checkpoint.evaluate_episodes, config.seed)
    means = [evaluation.mean(agent) for agent in range(len(evaluation.agents))]
    return {"mean_return": sum(means) / len(means), **evaluation.as_summary()}


def save(
    run: RunDirectory, specs: tuple[PolicySpec, ...], snapshots: Mapping[str, Snapshot]
) -> None:
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
