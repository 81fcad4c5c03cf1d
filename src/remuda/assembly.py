"""How the parts of a run are put together: shared memory, recipes of roles, a runtime for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from remuda.actor.role import ActorRole, network_layout
from remuda.checkpoint.names import file_name
from remuda.checkpoint.store import Checkpoints, Manifest
from remuda.config import Config
from remuda.coordinator.checkpointing import COORDINATOR, BestKeeper, Checkpointer, Contents
from remuda.coordinator.coordinator import Coordinator, RunEvents, Runtime
from remuda.coordinator.frozen import FrozenTexts
from remuda.coordinator.ledger_writer import LedgerWriter
from remuda.coordinator.metrics import View
from remuda.coordinator.run_directory import RunDirectory
from remuda.coordinator.scoreboard_reader import ScoreboardReader
from remuda.coordinator.status import StatusFile
from remuda.envs.pickled import without_digest
from remuda.envs.worker_status import WorkerStatus
from remuda.errors import CheckpointError, ConfigError
from remuda.evaluation import Limits
from remuda.experience.experience import Experience, segments_for
from remuda.experience.ring import Block
from remuda.hyperparameters import values_of
from remuda.judge import Judge
from remuda.learner.role import LearnerRole
from remuda.live_hyperparameters import LiveHyperparameters
from remuda.memory.descriptors import check_limit
from remuda.memory.shared import Arena
from remuda.memory.waiting import Wakeup
from remuda.policies.initial import InitialWeights
from remuda.policies.sharing import shares_of, stream_shape
from remuda.policies.spec import PolicySpec, first_weights, kinds_of
from remuda.policies.stack import layout_checksum, layout_size
from remuda.population.imported import Imported
from remuda.population.setup import copies_of, expected_shares, seats_of, sits_once, unborn
from remuda.population.table import ORDERED, RECORDS, Table
from remuda.publish.snapshot import PublishedWeights, Publisher, Snapshot, SnapshotReader
from remuda.runtime.child import Place
from remuda.runtime.host import threads
from remuda.runtime.inline import InlineRuntime
from remuda.runtime.layout import Layout, niceness
from remuda.runtime.pace import FreePace, LockstepActor, LockstepLearner, Pace
from remuda.runtime.processes import ProcessRuntime
from remuda.scoreboard import Scoreboard
from remuda.streams import torch_stream
from remuda.timeline import Timeline, write_trace
from remuda.types import AgentSpec, State

AHEAD = 2
"""Rollouts that an actor plays ahead where seats are dealt: some policies play more than others for
a while, and those that play less should be trained together with them."""
PATIENCE = 0.005
"""Seconds that a stack of policies waits for those fed last in a turn; updates take longer."""


class Assembly:
    """What actors and learners share, and the recipe of each.

    Data runs round in it: from actors through experience to learners, and from learners through
    published weights to actors.
    """

    def __init__(
        self,
        config: Config,
        specs: tuple[PolicySpec, ...],
        layout: Layout,
        learner_role: type[LearnerRole] = LearnerRole,
        actor_role: type[ActorRole] = ActorRole,
        facts: tuple[str, ...] = (),
        agents: tuple[AgentSpec, ...] = (),
        initial: InitialWeights | None = None,
        imported: Sequence[Imported] = (),
    ) -> None:
        """Make what they share.

        Args:
            config: of the run.
            specs: its policies.
            layout: who lives where.
            learner_role: the recipe of learners.
            actor_role: the recipe of actors.
            facts: what the game tells of episodes.
            agents: of the game; needed where seats are dealt.
            initial: what policies begin with; None: weights drawn at random.
            imported: members of the population that are policies of other runs.
        """
        self._initial = initial
        in_one = config.schedule == "sequential"
        check_limit(0 if in_one else len(layout.copies) + len(layout.groups))
        self.config, self.specs = config, specs
        arena = Arena()
        self._learner_role, self._actor_role = learner_role, actor_role
        self._actors = tuple(Wakeup() for _ in layout.copies)
        self._workers: tuple[WorkerStatus | None, ...] = (None,) * len(layout.copies)
        if config.env.workers > 1 and not in_one:
            self._workers = WorkerStatus.of_all(len(layout.copies), config.env.workers)
        self._learners = tuple(Wakeup() for _ in layout.groups)
        names = tuple(spec.name for spec in specs)
        self._shares = shares_of(specs)
        self.scoreboard = Scoreboard(names, len(layout.copies), facts)
        self.table: Table | None = None
        self.experience: dict[str, Experience] = {}
        learners = {
            specs[i].name: wakeup
            for group, wakeup in zip(layout.groups, self._learners, strict=True)
            for i in group
        }
        if config.population.dealt:
            sizes = {spec.name: layout_size(spec.network().shapes) for spec in specs}
            self.table = Table(
                sizes,
                len(agents),
                copies_of(config.population),
                {spec.name: values_of(spec.config) for spec in specs},
                unborn(config),
                arena,
                imported,
            )
            self.experience = dealt_experience(
                config, specs, agents, learners, self._actors[0], arena
            )
        else:
            for spec in specs:
                self.experience[spec.name] = make_experience(
                    spec, layout.copies, learners[spec.name], self._actors, arena
                )
        self.changes = LiveHyperparameters({spec.name: spec.config for spec in specs}, arena)
        self.published = _published_weights(specs, arena)
        self._publish_first_weights()
        self.layout = layout
        self._timelines: dict[str, Timeline] = {}
        self._resumed = False
        self._seconds = 0.0

    def restore(
        self,
        checkpoints: Checkpoints,
        found: Manifest,
        changed: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        """Hold what was held at a checkpoint; the roles will restore their own parts.

        Args:
            checkpoints: of the run.
            found: which of them.
            changed: by policy, hyperparameters that the one in its place has from now on.

        Raises:
            CheckpointError: it does not fit these policies.
        """
        saved = checkpoints.read(found.number, COORDINATOR)
        self.scoreboard.restore(saved["scoreboard"])
        for i, spec in enumerate(self.specs):
            part = checkpoints.read(found.number, file_name(spec.name))
            contents = part["experience"] if self.config.saves_replay else None
            if (
                self.table is not None
                and part["generation"] != saved["population"]["orders"][i, ORDERED]
            ):
                contents = None  # another policy's, which had this place before
            self.experience[spec.name].restore(contents, saved["written"][spec.name])
            published = saved["published"].get(spec.name)
            if published is None:
                raise CheckpointError(f"it has no published weights of policy {spec.name}")
            self._publisher(spec).restore(published)
        if self.table is not None:
            self.table.restore(saved["population"])
            for place, spec in enumerate(self.specs):
                self.table.change(place, (changed or {}).get(spec.name, {}))
        if "hyperparameters" in saved:  # older ones have none
            self.changes.restore(saved["hyperparameters"])
        self._resumed, self._seconds = True, found.seconds

    @property
    def records(self) -> int:
        """How many records the ledger of matches has, by the table; 0: seats are not dealt."""
        return self.table.word(RECORDS) if self.table is not None else 0

    def state(self) -> State:
        """The coordinator's part of a checkpoint."""
        # The population first: the weights of a policy born meanwhile may come along too soon.
        population = self.table.state() if self.table is not None else None
        return {
            "scoreboard": self.scoreboard.state(),
            "written": {name: found.written for name, found in self.experience.items()},
            "published": {name: s.state() for name, s in self.snapshots().items()},
            "population": population,
            "hyperparameters": self.changes.state(),
        }

    def coordinator(
        self,
        run: RunDirectory,
        view: View,
        found: Manifest | None,
        stopped: Callable[[], bool] = lambda: False,
        events: RunEvents | None = None,
    ) -> Coordinator:
        """The one who runs it all.

        Args:
            run: where its files are.
            view: where it is watched.
            found: the checkpoint that it goes on from; None: it begins.
            stopped: whether a signal came, after which nothing long goes on in place of the run.
            events: who is told what happens in it, and may end it.
        """
        config = self.config
        contents = Contents(
            parts=self.parts, gather=self.state, config=lasting(config), exact=config.exact
        )
        best = None
        if config.checkpoint.evaluate_episodes:
            inline, cancelled = config.schedule == "sequential", threading.Event()

            # Beside the run, what is being measured has a little time after a signal: the keeper
            # sets `cancelled` then. Inline, the signal itself must end it.
            def interrupted() -> bool:
                return cancelled.is_set() or (inline and stopped())

            judge = Judge(config, self.specs, run, Limits(config.run.evaluate_seconds, interrupted))
            best = BestKeeper(
                run.checkpoints,
                judge.measure,
                view.say,
                inline=inline,
                challenge=judge.challenge,
                cancelled=cancelled,
                interrupted=interrupted,
            )
        frozen = FrozenTexts(self.table) if self.table is not None else None
        return Coordinator(
            self.runtime(run.logs, run.checkpoints),
            partial(ScoreboardReader, self.scoreboard, self.experience, self._seconds, self.table),
            self.playing,
            run,
            view,
            StatusFile(run.status, self.published, config.schedule, frozen),
            Checkpointer(
                run.checkpoints,
                config.checkpoint,
                contents,
                view.say,
                found.turns if found else 0,
            ),
            best,
            found.turns if found else None,
            LedgerWriter(self.table, run.ledger, view.say) if self.table is not None else None,
            frozen,
            events,
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a checkpoint that the roles save."""
        return tuple(part for role in self.roles() for part in role.parts)

    def runtime(self, logs: Path, checkpoints: Checkpoints) -> Runtime:
        """The roles, and the place where the schedule lets them live."""
        config = self.config
        roles = self.roles()
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
            Place(
                role,
                wakeup,
                pace,
                self._timeline(role.name),
                role.workers if isinstance(role, ActorRole) else None,
            )
            for role, wakeup, pace in zip(roles, wakeups, paces, strict=True)
        ]
        return ProcessRuntime(
            places,
            checkpoints,
            logs,
            config.supervision,
            num_actors=len(self._actors),
            threads=self.layout.threads,
            nice=niceness(config, self.layout),
            start_limit=config.run.start_limit,
            stop_limit=config.run.stop_limit,
            write_limit=config.checkpoint.write_limit,
            resumed=self._resumed,
        )

    def snapshots(self) -> dict[str, Snapshot]:
        """The newest weights of every policy, those whose places are empty too."""
        reader = SnapshotReader(self.published)
        return {spec.name: reader.newest(spec.name) for spec in self.specs}

    def playing(self) -> dict[str, Snapshot]:
        """The newest weights of the policies that play."""
        living = self.table.living if self.table is not None else None
        found = self.snapshots()
        return {name: s for name, s in found.items() if living is None or name in living}

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

    def roles(self) -> tuple[ActorRole | LearnerRole, ...]:
        """The recipes of the actors, then of the learners."""
        config, layout = self.config, self.layout
        actors = [
            self._actor_role(
                config,
                self.specs,
                self.experience,
                self.published,
                self.scoreboard,
                layout.copies,
                index,
                self.table,
                workers=self._workers[index],
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
        """What these policies live through, and all who share theirs with them."""
        own = [self.specs[i].name for i in group]
        names = {*own, *(other for name in own for other in self._shares[name])}
        return {name: found for name, found in self.experience.items() if name in names}

    def _timeline(self, role: str) -> Timeline | None:
        """The timeline of a role, if the user asked for a trace."""
        if self.config.trace is None:
            return None
        role = "main" if self.config.schedule == "sequential" else role
        if role not in self._timelines:
            self._timelines[role] = Timeline()
        return self._timelines[role]

    def _publish_first_weights(self) -> None:
        """Publish every policy's first weights as version 1: drawn, or from another run.

        So the actor has something to act with, and a learner something to begin from. By one
        thread, as in a child: with more, hundreds of small decompositions wait for each other.
        """
        with threads(1):
            for spec in self.specs:
                size = layout_size(spec.network().shapes)
                weights = self._initial.weights(spec.name, size) if self._initial else None
                if weights is None:
                    random = torch_stream(self.config.seed, "weights", spec.name)
                    weights = first_weights(spec, random)
                start = spec.config.first_epsilon
                self._publisher(spec).publish(weights, 0, start)

    def _publisher(self, spec: PolicySpec) -> Publisher:
        return Publisher(self.published, spec.name, layout_checksum(spec.network().shapes))


def make_experience(
    spec: PolicySpec,
    num_streams: Sequence[int],
    learner: Wakeup,
    actors: Sequence[Wakeup],
    arena: Arena | None = None,
) -> Experience:
    """The experience of a policy that plays so many copies and seats at once, by actor."""
    config = spec.config
    rollout = config.rollout_length * sum(num_streams)
    return Experience(
        stream_shape(spec),
        config.experience,
        num_streams,
        learner,
        actors,
        rollout,
        keeps=config.replays > 0,
        arena=arena,
    )


@dataclass(frozen=True)
class DealtRings:
    """The rings of policies that are alike and whose seats are dealt; they stand in one block."""

    members: tuple[PolicySpec, ...]
    streams: int
    """That a policy may play at once."""
    rollout: int
    """Steps that a learner takes at once; 0: it draws them."""
    likely: int
    """Segments of a policy that are open at a time, as a rule."""
    segments: int
    """Of each ring."""


def dealt_experience(
    config: Config,
    specs: tuple[PolicySpec, ...],
    agents: tuple[AgentSpec, ...],
    learners: Mapping[str, Wakeup],
    actor: Wakeup,
    arena: Arena | None = None,
) -> dict[str, Experience]:
    """The experience of policies whose seats are dealt, by policy."""
    found: dict[str, Experience] = {}
    for rings in dealt_rings(config, specs, agents):
        shape, experience = stream_shape(rings.members[0]), rings.members[0].config.experience
        block = Block(shape, len(rings.members), experience.segment_length, rings.segments, arena)
        for index, spec in enumerate(rings.members):
            found[spec.name] = Experience(
                shape,
                experience,
                (rings.streams,),
                learners[spec.name],
                (actor,),
                rings.rollout,
                block,
                index,
                rings.likely,
                AHEAD,
            )
    return found


def dealt_rings(
    config: Config, specs: tuple[PolicySpec, ...], agents: tuple[AgentSpec, ...]
) -> list[DealtRings]:
    """The rings of policies whose seats are dealt; those alike in one block.

    A policy is expected to play the streams that its matchmaker deals it on average while there is
    no past, which later takes from all alike; and may play any number of them.
    """
    names, copies = [spec.name for spec in specs], config.env.num_envs
    allowed = seats_of(config, agents, names)
    once = sits_once(config, agents, names)
    expected = expected_shares(config, agents, names)
    blocks: dict[tuple[Any, ...], list[PolicySpec]] = {}
    kinds = kinds_of(agents)
    for spec in specs:
        first = min(allowed.get(spec.name, {0}))
        streams = copies * kinds.count(kinds[first])
        share = max(round(copies * expected[spec.name]), 1)
        rollout = spec.config.rollout_length * share
        keeps = spec.config.replays > 0 or not rollout
        key = (
            streams,
            share,
            rollout,
            spec.config.experience,
            keeps,
            network_layout(spec),
            spec.masked,
        )
        blocks.setdefault(key, []).append(spec)
    found = []
    for (streams, share, rollout, experience, keeps, *_), members in blocks.items():
        most_open = copies if once else streams
        likely, length = min(most_open, 2 * share), experience.segment_length
        kept = experience.capacity if keeps else 0
        segments = segments_for(kept, length, most_open, likely, rollout)
        found.append(DealtRings(tuple(members), streams, rollout, likely, segments))
    return found


def check_births(config: Config, specs: Sequence[PolicySpec]) -> None:
    """Whether any policy could begin with any other's weights, where births go by rating.

    Raises:
        ConfigError: some have other networks, or see or do other things.
    """
    if config.population.births.every is None:
        return
    for spec in specs[1:]:
        if stream_shape(spec) != stream_shape(specs[0]) or (
            network_layout(spec) != network_layout(specs[0])
        ):
            raise ConfigError(
                f"population.births.every: {specs[0].name} and {spec.name} have other networks, or "
                "see or do other things, so that neither can be a copy of the other; make them "
                "alike, or let your own population.director choose"
            )


def _published_weights(specs: tuple[PolicySpec, ...], arena: Arena) -> PublishedWeights:
    layouts = {}
    for spec in specs:
        shapes = spec.network().shapes
        layouts[spec.name] = (layout_size(shapes), layout_checksum(shapes), spec.config.publish)
    return PublishedWeights(layouts, arena)


def lasting(config: Config) -> dict[str, Any]:
    """What of a configuration a resumed run must share with the run that it resumes.

    Not who steps the copies of the game, nor whether its values are checked: neither changes them.
    """
    tree = config.model_dump(
        mode="json",
        include={"game", "seed", "env", "policy", "policies", "population"},
        exclude={"env": {"workers", "check"}},
    )
    return tree | {"game": without_digest(config.game)}  # the game's code may be mended
