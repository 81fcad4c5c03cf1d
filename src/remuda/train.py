"""Training: how a run is put together. Read this file for the map of the whole."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from remuda import __version__
from remuda.actor.role import ActorRole
from remuda.config import Config
from remuda.coordinator.board import Board
from remuda.coordinator.coordinator import Coordinator, Runtime, Signals
from remuda.coordinator.metrics import Goal, Record, View
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.registry import make_env
from remuda.evaluate import Evaluation, evaluate
from remuda.experience.ring import ExperienceRing, StreamShape
from remuda.learner.role import LearnerRole
from remuda.memory.waiting import Wakeup
from remuda.policies.spec import PolicySpec, policy_specs
from remuda.policies.stack import ParameterStack, layout_checksum, layout_size
from remuda.publish.snapshot import PublishedWeights, Publisher, Snapshot, SnapshotReader
from remuda.runtime.inline import InlineRuntime
from remuda.runtime.layout import Layout, make_layout
from remuda.runtime.processes import ProcessRuntime
from remuda.scoreboard import Scoreboard
from remuda.streams import torch_stream

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    directory: Path
    ended: str
    """How it ended, in words."""
    record: Record
    """The whole run as one interval."""
    evaluation: Evaluation | None
    signal: int | None
    """The signal that stopped it, if one did."""


def train(config: Config, view: View) -> Result:
    """Train every policy of `config`, save them, and measure them by greedy play.

    Raises:
        RemudaError: something that a user can mend; the message says how.
    """
    env = make_env(config.game, 1, **config.env.options)
    specs = policy_specs(config, env.agents)
    env.close()
    layout = make_layout(config, len(specs))
    run = RunDirectory.create(config)
    ring = Ring(config, specs, layout)
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
            make_board = partial(Board, ring.scoreboard, ring.rings)
            coordinator = Coordinator(ring.runtime(run.logs), make_board, run, view)
            ended, record = coordinator.run(config.run, signals)
            snapshots = ring.snapshots()
            save(run, specs, snapshots)
        finally:
            view.close()
    evaluation = None
    if config.run.evaluate_episodes and not signals.stopped():
        evaluation = evaluate(config, snapshots, config.run.evaluate_episodes, config.seed)
    result = Result(run.path, ended, record, evaluation, signals.caught)
    run.save_summary(summarise(config, result, described))
    return result


class Ring:
    """The ring that data runs round: what the actor and the learners share, and their recipes."""

    def __init__(
        self,
        config: Config,
        specs: tuple[PolicySpec, ...],
        layout: Layout,
        learner_role: type[LearnerRole] = LearnerRole,
    ) -> None:
        self.config, self.specs = config, specs
        self._learner_role = learner_role
        self._actor = Wakeup()
        self._learners = tuple(Wakeup() for _ in layout.groups)
        self.scoreboard = Scoreboard(tuple(spec.name for spec in specs))
        self.rings: dict[str, ExperienceRing] = {}
        for group, wakeup in zip(layout.groups, self._learners, strict=True):
            for spec in (specs[i] for i in group):
                shape = StreamShape(spec.observation, spec.dtype, spec.config.n_frames)
                self.rings[spec.name] = ExperienceRing(
                    shape, spec.config.experience, config.env.num_envs, wakeup, self._actor
                )
        self.published = _publish_first_weights(config, specs)
        self._layout = layout

    def runtime(self, logs: Path) -> Runtime:
        """The roles, and the place where the schedule lets them live."""
        config, layout = self.config, self._layout
        actor = ActorRole(config, self.specs, self.rings, self.published, self.scoreboard)
        learners = [
            self._learner_role(
                seed=config.seed,
                specs=tuple(self.specs[i] for i in group),
                devices=tuple(layout.devices[i] for i in group),
                rings={self.specs[i].name: self.rings[self.specs[i].name] for i in group},
                published=self.published,
                scoreboard=self.scoreboard,
                wakeup=wakeup,
            )
            for group, wakeup in zip(layout.groups, self._learners, strict=True)
        ]
        if config.schedule == "sequential":
            return InlineRuntime(actor, learners)
        return ProcessRuntime(
            actor,
            learners,
            (self._actor, *self._learners),
            logs,
            nice=config.learners.nice,
            start_limit=config.run.start_limit,
            stop_limit=config.run.stop_limit,
        )

    def snapshots(self) -> dict[str, Snapshot]:
        """The newest weights of every policy."""
        return SnapshotReader(self.published).newer()


def _publish_first_weights(config: Config, specs: tuple[PolicySpec, ...]) -> PublishedWeights:
    """Draw every policy's first weights and publish them as version 1.

    So the actor has something to act with, and a learner something to begin from, the first or
    any later time.
    """
    networks = {spec.name: spec.network() for spec in specs}
    published = PublishedWeights(
        {
            spec.name: (
                layout_size(networks[spec.name].shapes),
                layout_checksum(networks[spec.name].shapes),
                spec.config.publish,
            )
            for spec in specs
        }
    )
    for spec in specs:
        network = networks[spec.name]
        stack = ParameterStack(network.shapes, 1)
        network.initialise(stack.parameters, torch_stream(config.seed, "weights", spec.name))
        publisher = Publisher(published, spec.name, layout_checksum(network.shapes))
        publisher.publish(stack.flat[0].numpy(), 0, spec.config.exploration.start)
    return published


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
        "seconds": record.seconds,
        "turns": record.turns,
        "agent_steps": record.agent_steps,
        "agent_steps_per_second": record.agent_steps_per_second,
        "waits": record.waits,
        "layout": layout,
        "version": __version__,
        "evaluation": evaluation.as_summary() if evaluation else None,
    }
