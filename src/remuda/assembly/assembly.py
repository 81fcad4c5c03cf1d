"""The parts of a run, assembled: shared memory, roles, coordinator and runtime.

A role is a picklable description from which a process builds its actor or its learners.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from remuda.actor.role import ActorRole
from remuda.assembly.experience_layout import experience_of_all
from remuda.config.hyperparameters import LiveHyperparameters, values_of
from remuda.config.resume_rules import lasting
from remuda.coordinator.analysing import analyser_of
from remuda.coordinator.best_checkpoint import best_keeper
from remuda.coordinator.bounded_work import FrozenTexts
from remuda.coordinator.checkpointing import Checkpointer, Contents
from remuda.coordinator.coordinator import Coordinator, RunEvents
from remuda.coordinator.ledger_writer import LedgerWriter
from remuda.coordinator.scoreboard_reader import ScoreboardReader
from remuda.coordinator.status import StatusFile
from remuda.envs.live_options import LiveEnvOptions
from remuda.envs.workers.process import WorkerStatus
from remuda.experience.experience import Experience
from remuda.learner.role import LearnerRole
from remuda.policies.compatibility import shares_of
from remuda.policies.initial import InitialWeights
from remuda.policies.spec import PolicySpec, check_first_weights, first_weights, training_layout
from remuda.policies.stack import layout_checksum, layout_size
from remuda.population.members.imported import Imported
from remuda.population.members.table import Table
from remuda.population.members.table_parts import ORDERED, RECORDS
from remuda.population.roster import copies_of, unborn
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import PublishedWeights, Snapshot
from remuda.publish.weight_store import WeightPublisher, WeightStore
from remuda.runs.metrics import View
from remuda.runs.run_directory import RunDirectory
from remuda.runtime.child import RoleSetup
from remuda.runtime.control import Control
from remuda.runtime.host import (
    RoleLoop,
    run_async,
    run_lockstep_actor,
    run_lockstep_learner,
    threads,
)
from remuda.runtime.inline import InlineRuntime
from remuda.runtime.layout import Layout, niceness, parts_at_once
from remuda.runtime.processes import ProcessRuntime
from remuda.system.checkpoint.fitting import Range, branch, whole
from remuda.system.checkpoint.names import COORDINATOR, file_name
from remuda.system.checkpoint.store import Checkpoints, Manifest
from remuda.system.memory.descriptors import check_limit
from remuda.system.memory.shared import Arena
from remuda.system.memory.waiting import Wakeup
from remuda.system.rng import torch_rng
from remuda.system.scoreboard import Scoreboard
from remuda.system.timeline import TimedSpan, Timeline, write_trace
from remuda.types import Runtime, State

PATIENCE = 0.005  # seconds that policies trained together wait for those whose steps arrive late


class Assembly:
    """The shared memory of actors and learners, and the description of each role.

    Data flows from actors through experience to learners, and back through published weights.
    """

    def __init__(
        self,
        spec: RunSpec,
        layout: Layout,
        learner_role: type[LearnerRole] = LearnerRole,
        actor_role: type[ActorRole] = ActorRole,
        specs: tuple[PolicySpec, ...] = (),
        initial: InitialWeights | None = None,
        imported: Sequence[Imported] = (),
        sparse: bool = False,
    ) -> None:
        """Allocate the memory.

        `specs`: the policies if they differ from those of `spec`, for example in the initial values
        of evolving hyperparameters. `sparse`: this node of a cluster uses only a part of the
        memory.
        """
        config, specs = spec.config, specs or spec.policies
        self._initial, self.spec = initial, spec
        in_one = config.schedule == "sequential"
        check_limit(0 if in_one else len(layout.copies) + len(layout.groups))
        self.config, self.specs = config, specs
        arena = Arena(sparse)
        self._learner_role, self._actor_role = learner_role, actor_role
        self._actors = tuple(Wakeup() for _ in layout.copies)
        self._workers: tuple[WorkerStatus | None, ...] = (None,) * len(layout.copies)
        if config.env.workers > 1 and not in_one:
            self._workers = WorkerStatus.of_all(len(layout.copies), config.env.workers)
        self._learners = tuple(Wakeup() for _ in layout.groups)
        names = tuple(each.name for each in specs)
        self._shares = shares_of(specs)
        self.scoreboard = Scoreboard(names, len(layout.copies), spec.episode_metrics)
        self.table: Table | None = None
        layouts = {each.name: each.network().shapes for each in specs}
        sizes = {name: layout_size(shapes) for name, shapes in layouts.items()}
        population = config.population
        inherits = population.evolution.inherits_training
        training = {each.name: training_layout(each) for each in specs if inherits}
        if population.dealt:
            self.table = Table(
                sizes,
                len(spec.agents),
                copies_of(population),
                {each.name: values_of(each.config) for each in specs},
                unborn(config),
                arena,
                imported,
                tuple(config.scripted_members),
                population.has_stand_ins,
                len(population.evolution.episode_metrics),
                training,
                layout.copies[1:],
            )
        learners = {
            names[i]: wakeup
            for group, wakeup in zip(layout.groups, self._learners, strict=True)
            for i in group
        }
        self.experience = experience_of_all(
            spec, specs, layout.copies, learners, self._actors, arena
        )
        self.changes = LiveHyperparameters({each.name: each.config for each in specs}, arena)
        self.env_options = LiveEnvOptions(spec.env, arena)
        published = {
            each.name: (sizes[each.name], layout_checksum(layouts[each.name]), each.config.publish)
            for each in specs
        }
        self.published: WeightStore = PublishedWeights(published, arena, training)
        self._publish_first_weights()
        self.layout = layout
        self._timelines: dict[str, Timeline] = {}
        self.where = ""  # description of the placement on nodes, if there are several
        self.spans_elsewhere: dict[str, list[TimedSpan]] = {}
        """Recorded spans of roles on other nodes, for the trace."""
        self._resumed = False
        self._seconds = 0.0

    def restore(
        self,
        checkpoints: Checkpoints,
        found: Manifest,
        changed: Mapping[str, Mapping[str, float]] | None = None,
        over: bool = False,
    ) -> None:
        """Restore a checkpoint's shared memory, with `changed` hyperparameters of policies."""
        changed = changed or {}
        with checkpoints.restoring(COORDINATOR):
            saved = checkpoints.read(found.number, COORDINATOR)
            self.scoreboard.restore(branch(saved, "scoreboard"))
            published = branch(saved, "published")
            for spec in self.specs:
                self._publisher(spec).restore(branch(published, spec.name))
            if self.table is not None:
                self.table.restore(branch(saved, "population"))
                for slot, spec in enumerate(self.specs):
                    self.table.hyperparameters.change(slot, changed.get(spec.name, {}))
            self.changes.restore(branch(saved, "hyperparameters"), changed)
            self.env_options.restore(saved.get("env_options", "[]"))
        for i, spec in enumerate(self.specs):
            part = checkpoints.read(found.number, file_name(spec.name))
            with checkpoints.restoring(file_name(spec.name)):
                held = self.config.saves_replay and not over and part["experience"] is not None
                if self.table is not None:  # skip the experience of a slot's earlier policy
                    held &= whole(part, "generation") == self.table.births.all[i, ORDERED]
                contents = branch(part, "experience") if held else None
                # Each agent acts at most once in a turn; turns on other nodes are counted late.
                turns = 2 * int(self.scoreboard.turns()) + 1_000_000
                steps = Range(0, turns * max(len(self.spec.agents), 1))
                written = whole(branch(saved, "written"), spec.name, steps)
                self.experience[spec.name].restore(contents, written)
        self._resumed, self._seconds = True, found.seconds

    @property
    def spec_in_force(self) -> RunSpec:
        """The run with the environment options in force now."""
        return self.spec.with_options(self.env_options.in_force(int(self.scoreboard.turns())))

    @property
    def records(self) -> int:
        """Number of records in the ledger of matches; 0 without a population."""
        return self.rated_table.word(RECORDS) if self.rated_table is not None else 0

    @property
    def rated_table(self) -> Table | None:
        """The population's table, if its matches are recorded and rated."""
        return self.table if self.config.population.rated else None

    def state(self) -> State:
        """Return the coordinator's part of a checkpoint."""
        # Copy the population first: weights of a policy that is born in between do no harm.
        population = self.table.state() if self.table is not None else None
        return {
            "scoreboard": self.scoreboard.state(),
            "turns": int(self.scoreboard.turns()),
            "written": {name: found.written for name, found in self.experience.items()},
            "published": {name: s.state() for name, s in self.snapshots(training=True).items()},
            "population": population,
            "hyperparameters": self.changes.state(),
            "env_options": self.env_options.state(),
        }

    def coordinator(
        self,
        run: RunDirectory,
        view: View,
        found: Manifest | None,
        stopped: Callable[[], bool] = lambda: False,
        events: RunEvents | None = None,
        runtime: Runtime | None = None,
    ) -> Coordinator:
        config, table = self.config, self.rated_table
        contents = Contents(
            parts=self.parts, gather=self.state, config=lasting(config), exact=config.exact
        )
        frozen = FrozenTexts(table) if table is not None else None
        return Coordinator(
            runtime or self.runtime(run.logs, run.checkpoints),
            partial(
                ScoreboardReader,
                self.scoreboard,
                self.experience,
                self._seconds,
                table,
                self.env_options,
                [each.name for each in self.specs if each.config.entry.samples],
            ),
            self.playing,
            run,
            view,
            StatusFile(run.status, self.published, config.schedule, frozen),
            Checkpointer(
                run.checkpoints, config.checkpoint, contents, view.say, found.turns if found else 0
            ),
            best_keeper(self.spec, run, view.say, stopped),
            found.turns if found else None,
            LedgerWriter(table, run.ledger, view.say) if table is not None else None,
            frozen,
            events,
            analyser_of(self.spec, table, run.ledger, run.logs, view.say),
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a checkpoint that the roles save."""
        return tuple(part for role in self.roles() for part in role.parts)

    def runtime(self, logs: Path, checkpoints: Checkpoints) -> Runtime:
        config = self.config
        roles = self.roles()
        if config.schedule == "sequential":
            actor, *learners = roles
            timeline, resumed = self._timeline("main"), self._resumed
            return InlineRuntime(actor, learners, checkpoints, resumed=resumed, timeline=timeline)
        return self.process_runtime(logs, checkpoints)

    def process_runtime(
        self,
        logs: Path,
        checkpoints: Checkpoints,
        control: Control | None = None,
        here: Collection[int] | None = None,
        bridge: RoleSetup | None = None,
    ) -> ProcessRuntime:
        """Return a runtime that starts processes for all roles, or only for the indices `here`."""
        config, roles = self.config, self.roles()
        loops: list[RoleLoop] = [run_async for _ in roles]
        if config.schedule == "lockstep":
            loops = [run_lockstep_actor, *(run_lockstep_learner for _ in self._learners)]
        setups = [
            RoleSetup(
                role,
                wakeup,
                loop,
                self._timeline(role.name),
                role.workers if isinstance(role, ActorRole) else None,
            )
            for role, wakeup, loop in zip(roles, self.wakeups, loops, strict=True)
        ]
        return ProcessRuntime(
            setups,
            checkpoints,
            logs,
            config.supervision,
            num_actors=len(self._actors),
            threads=(self.layout.threads, parts_at_once(self.layout, here)),
            nice=niceness(config, self.layout, [s.config.priority for s in self.specs], here),
            start_limit=config.run.start_limit,
            stop_limit=config.run.stop_limit,
            write_limit=config.checkpoint.write_limit,
            resumed=self._resumed,
            control=control,
            here=here,
            bridge=bridge,
        )

    @property
    def wakeups(self) -> tuple[Wakeup, ...]:
        """Wake-ups of the actors, then of the learners."""
        return (*self._actors, *self._learners)

    def snapshots(self, training: bool = False) -> dict[str, Snapshot]:
        """Return the newest weights of every policy, including those of empty slots."""
        reader = self.published.reader()
        return {spec.name: reader.newest(spec.name, training) for spec in self.specs}

    def playing(self, only: str = "") -> dict[str, Snapshot]:
        """Return the newest weights of the policies that play, or of the policy `only`."""
        living = self.table.occupants.living if self.table is not None else None
        names = [spec.name for spec in self.specs if only in ("", spec.name)]
        reader = self.published.reader()
        return {name: reader.newest(name) for name in names if living is None or name in living}

    def write_trace(self, view: View) -> None:
        path = self.config.trace
        if path is None:
            return
        try:
            count = write_trace(path, self.spans() | self.spans_elsewhere)
        except OSError as error:
            view.say(f"cannot write the trace {path}: {error.strerror}")
        else:
            view.say(f"wrote {count:,} spans into {path}: open it in https://ui.perfetto.dev")

    def describe(self) -> str:
        names = [spec.name for spec in self.specs]
        described = self.layout.describe(self.config.schedule, names)
        return f"{described}; {self.where}" if self.where else described

    def spans(self) -> dict[str, list[TimedSpan]]:
        """Return the recorded spans of every role on this node, if a trace is requested."""
        recorded = {role: list(timeline.spans()) for role, timeline in self._timelines.items()}
        return {role: spans for role, spans in recorded.items() if spans}

    def roles(self) -> tuple[ActorRole | LearnerRole, ...]:
        """Return the roles of the actors, then of the learners."""
        config, layout = self.config, self.layout
        actors = [
            self._actor_role(
                self.spec,
                self.specs,
                self.experience,
                self.published,
                self.scoreboard,
                layout.copies,
                index,
                self.table,
                workers=self._workers[index],
                changes=self.changes,
                options=self.env_options if self.spec.env.changeable_options else None,
                initial=self._initial,
            )
            for index in range(len(layout.copies))
        ]
        learners = [
            self._learner_role(
                seed=config.seed,
                specs=tuple(self.specs[i] for i in group),
                devices=tuple(layout.devices[i] for i in group),
                experience=self._experience_of(group),
                published=self.published,
                scoreboard=self.scoreboard,
                wakeup=wakeup,
                saves_experience=config.saves_replay,
                patience=PATIENCE if config.schedule == "async" else 0.0,
                exact=config.exact,
                shares=self._shares,
                table=self.table,
                initial=self._initial,
                changes=self.changes,
            )
            for group, wakeup in zip(layout.groups, self._learners, strict=True)
        ]
        roles: tuple[ActorRole | LearnerRole, ...] = (*actors, *learners)
        return tuple(replace(role, timeline=self._timeline(role.name)) for role in roles)

    def _experience_of(self, group: Sequence[int]) -> dict[str, Experience]:
        """Return the experience of a group, and of all policies that share experience with it."""
        own = [self.specs[i].name for i in group]
        names = {*own, *(other for name in own for other in self._shares[name])}
        return {name: found for name, found in self.experience.items() if name in names}

    def _timeline(self, role: str) -> Timeline | None:
        if self.config.trace is None:
            return None
        role = "main" if self.config.schedule == "sequential" else role
        if role not in self._timelines:
            self._timelines[role] = Timeline()
        return self._timelines[role]

    def _publish_first_weights(self) -> None:
        """Publish all policies' first weights as version 1, on one thread as in child processes."""
        with threads(1):
            for spec in self.specs:
                size = layout_size(spec.network().shapes)
                weights = self._initial.weights(spec.name, size) if self._initial else None
                if weights is None:
                    random = torch_rng(self.config.seed, "weights", spec.name)
                    weights = first_weights(spec, random)
                check_first_weights(spec, weights)
                self._publisher(spec).publish(weights, 0, spec.config.first_epsilon)

    def _publisher(self, spec: PolicySpec) -> WeightPublisher:
        return self.published.publisher(spec.name, layout_checksum(spec.network().shapes))
