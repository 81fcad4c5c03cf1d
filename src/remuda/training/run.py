"""Training: assemble a run and train it. Read this file for an overview."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from remuda.assembly.assembly import Assembly
from remuda.assembly.calibration import choose_layout
from remuda.config import Config, load_config, overlay
from remuda.coordinator.coordinator import Signals
from remuda.coordinator.guarded_view import GuardedView
from remuda.coordinator.logs import log_to
from remuda.coordinator.run_notes import end_notes
from remuda.envs.closing import listening
from remuda.errors import (
    CannotStartError,
    ConfigError,
    RemudaError,
    RoleDiedError,
    UnguardedScriptError,
    UserCodeError,
)
from remuda.population.run_spec import RunSpec
from remuda.runs.metrics import Goal, View
from remuda.runs.result import Result
from remuda.runs.rewind import rewind
from remuda.runs.run_directory import RunDirectory, can_continue, how_to_continue
from remuda.runs.saved_weights import final_weights
from remuda.runtime.layout import Layout, make_layout
from remuda.system.checkpoint.store import Manifest
from remuda.system.compiling import reporting_compiling
from remuda.system.output import unfailing
from remuda.system.processes import client as forkserver
from remuda.system.processes.child import check_guard
from remuda.system.rng import libraries_kept
from remuda.system.user_errors import naming_user_code
from remuda.training.callback_dispatch import Events, load_callbacks
from remuda.training.finish import Finish, FinishHooks
from remuda.training.prepare import Prepared, prepare
from remuda.training.resume import (
    Resumed,
    confirmed,
    find_checkpoint,
    note_changes,
    nothing_left,
    report_damage,
)
from remuda.training.warm_start import describe, describe_imported, find_beginnings, find_imported
from remuda.types import Runtime


@naming_user_code()
@libraries_kept()
def train(
    config: Config,
    view: View,
    resume: bool = False,
    hooks: FinishHooks | None = None,
    explicit_keys: Collection[str] = (),
    user_callbacks: Iterable[object] | None = (),
) -> Result:
    """Train, save and evaluate all policies; report unused settings among `explicit_keys`."""
    check_guard()
    guarded = GuardedView(view)
    say = guarded.say
    with unfailing(), listening(say):
        config = confirmed(config, explicit_keys, say) if resume else config
        if not resume and config.run.directory is not None:
            RunDirectory.refuse_taken(config.run.directory)  # before the environment is made
        if config.schedule != "sequential" or config.env.workers > 1:
            forkserver.begin()  # start the server if needed; it imports libraries in the background
        else:
            forkserver.end()
        callbacks = load_callbacks(config, user_callbacks)
        if config.trace is not None:  # user code may change the current directory
            config = config.model_copy(update={"trace": config.trace.absolute()})
        prepared = prepare(config)
        if config.run.fallback and config.schedule != "sequential":
            in_one_process(config)
        if config.cluster.used:
            from remuda.cluster.ray_connect import import_ray  # its modules load slowly

            import_ray(bool(config.cluster.local))
        beginnings = {} if resume else find_beginnings(config, prepared.specs)
        imported = () if resume else find_imported(prepared.spec, prepared.specs)
        prepared.check_memory(prepared.layout)
        if resume and config.run.directory is not None:
            run = RunDirectory.open(config.run.directory)
            run.lock()
        else:
            run = RunDirectory.create(config, prepared.spec)
        try:
            run.initial.write(beginnings)
            run.imported.write(imported)
            spec = replace(prepared.spec, imported_file=run.imported.path)
            prepared = replace(prepared, spec=spec)
            notes = prepared.notes(config, explicit_keys, resume)
            for message in (*describe(beginnings), *describe_imported(imported), *notes):
                say(message)
            log = log_to(run.logs / "coordinator.log", config.run.log_level)
            with log, reporting_compiling(say):
                hooks = hooks or FinishHooks()
                launch = _Launch(config, guarded, run, prepared, hooks, callbacks, (*notes,))
                return launch.train(resume, explicit_keys)
        finally:
            run.unlock()


@dataclass(frozen=True)
class _Launch:
    """A run whose directory exists, with the parts to train it."""

    config: Config
    view: GuardedView
    run: RunDirectory
    prepared: Prepared
    hooks: FinishHooks
    callbacks: Sequence[object]
    notes: tuple[str, ...]  # printed at the start; they belong to the result too

    def train(self, resume: bool, explicit_keys: Collection[str]) -> Result:
        """Assemble the run, from its newest checkpoint if it resumes, and train."""
        config, view, run, prepared = self.config, self.view, self.run, self.prepared
        names = [spec.name for spec in prepared.specs]
        resumed = self._resumed(names, explicit_keys) if resume else None
        layout, runtime = prepared.layout, None
        with ExitStack() as held:
            cluster = None
            if resumed is None or resumed.final is None:  # otherwise nothing is left to train
                if config.cluster.used:
                    from remuda.cluster.cluster import gathered

                    cluster = held.enter_context(gathered(config, view.say))
                layout = choose_layout(prepared.spec, cluster.cores if cluster else None)
                prepared.check_memory(layout)
            assembly = self._assemble(prepared.spec, layout, resumed)
            found = self._note_resume(assembly, resumed)
            if cluster is not None:
                runtime = cluster.runtime(
                    assembly,
                    run.imported.read(len(config.population.members_from)),
                    run.logs,
                    run.checkpoints,
                    found,
                    resumed.hyperparameters if resumed is not None else None,
                    run.initial.files(),
                )
                assembly.where = runtime.describe()
            events = Events(config, self.callbacks, run, assembly, view.say, found)
            with events.lasting():
                try:
                    return self._train(config, assembly, events, resumed, runtime)
                except CannotStartError as error:
                    if cluster is not None or not config.run.fallback:
                        raise
                    fallback = f"{error.what}; the run continues in one process (run.fallback)"
                    view.say(fallback)
                    config = _fall_back(config, len(layout.copies), view)
                    devices = [spec.config.device for spec in prepared.specs]
                    layout = make_layout(config, len(devices), own_devices=devices)
                    # config.yaml is unchanged: a resume may be able to start all processes.
                    assembly = self._assemble(prepared.spec.with_config(config), layout, resumed)
                    events.attach(assembly)
                    return self._train(config, assembly, events, resumed, notes=(fallback,))

    def _resumed(self, names: Sequence[str], explicit_keys: Collection[str]) -> Resumed:
        """Find the checkpoint; if the run is complete, also its final weights."""
        config, run, say = self.config, self.run, self.view.say
        resumed = find_checkpoint(config, run, names, say, explicit_keys)
        if not resumed.over:
            return resumed
        final = final_weights(run, self.prepared.spec)
        if final is None:
            say(
                f"{resumed.over}, but its final weights are missing or damaged: they "
                "are saved again, from this checkpoint"
            )
            return resumed
        say(nothing_left(config, resumed))
        return replace(resumed, final=final)

    def _note_resume(self, assembly: Assembly, resumed: Resumed | None) -> Manifest | None:
        """Record the checkpoint and the changes of a resume; return the checkpoint's manifest."""
        run, config = self.run, self.config
        if resumed is None:
            return None
        turns = resumed.checkpoint.turns
        report_damage(rewind(run, turns, assembly.records, resumed.final is not None), self.view)
        run.save_code(config)
        run.save_spec(self.prepared.spec)
        run.save_config(config)
        note_changes(run, resumed, self.view.say)
        return resumed.checkpoint

    def _train(
        self,
        config: Config,
        assembly: Assembly,
        events: Events,
        resumed: Resumed | None,
        runtime: Runtime | None = None,
        notes: tuple[str, ...] = (),
    ) -> Result:
        """Train, unless the run is complete, and finish the run.

        Signals are watched to the end: the first stops the current work, and no long work starts
        after it. The second ends the process at once.
        """
        view, run = self.view, self.run
        final = resumed.final if resumed is not None else None
        found = resumed.checkpoint if resumed is not None else None
        inexact = [resumed.inexact] if resumed is not None and resumed.inexact else []
        signals = Signals()
        finish = Finish(config, view, assembly, run, self.hooks, events, signals)
        if final is None:
            finish.hold_room()
        with signals.watching():
            limits = config.run.turns, config.run.seconds
            view.start(Goal(config.game, config.schedule, run.path, *limits, assembly.describe()))
            try:
                coordinator = assembly.coordinator(
                    run, view, found, signals.stopped, events, runtime
                )
                began = final is None
                try:
                    if resumed is not None and not began:
                        result = coordinator.ended_before(resumed.over)
                    else:
                        result = coordinator.run(config.run, config.checkpoint.every, signals)
                except (CannotStartError, UnguardedScriptError):
                    began = False  # nothing was trained: keep the saved weights, which are newer
                    raise
                except (RoleDiedError, UserCodeError) as error:
                    error.args = (_with_next_step(error, run),)
                    raise
                finally:
                    if began:
                        finish.save_weights()
                    run.reserve.release()
            finally:
                view.close()
            ending = end_notes(config, result, assembly.experience if final is None else {})
            result = replace(
                result,
                signal=signals.caught,
                notes=(*self.notes, *notes, *result.notes, *inexact, *ending),
                before=run.summary_so_far() if final is not None else {},
            )
            result = result.with_notes(view.failed) if view.failed else result
            snapshots = assembly.playing() if final is None else final
            return finish.finish(coordinator, result, snapshots)

    def _assemble(self, spec: RunSpec, layout: Layout, resumed: Resumed | None) -> Assembly:
        config = spec.config
        assembly = Assembly(
            spec,
            layout,
            specs=self.prepared.specs,
            initial=self.run.initial,
            imported=self.run.imported.read(len(config.population.members_from)),
            sparse=config.cluster.used,
        )
        if resumed is not None:
            checkpoints, found = self.run.checkpoints, resumed.checkpoint
            over, changed = resumed.final is not None, resumed.hyperparameters
            assembly.restore(checkpoints, found, changed, over)
        return assembly


def in_one_process(config: Config) -> Config:
    """Return the same run in the schedule `sequential`."""
    sequential: dict[str, object] = {"schedule": "sequential", "env": {"workers": 1}}
    sequential |= {
        "actor": {"processes": "auto"},
        "learners": {"processes": "auto", "threads": "auto"},
    }
    try:
        return load_config(overlay(config.model_dump(), sequential), known=config.entries)
    except ConfigError as error:
        raise ConfigError(
            f"run.fallback is true, but this run could not continue in one process: {error}"
        ) from error


def _fall_back(config: Config, actors: int, view: View) -> Config:
    """Return the same run in one process, after several actors could not be started.

    One actor cannot use the experience of several, so experience is neither restored nor saved. The
    next resume may be able to start all actors again.
    """
    sequential = in_one_process(config)
    if actors == 1 or not config.saves_replay:
        return sequential
    view.say(
        "for now, experience is neither restored nor saved (checkpoint.replay): one actor cannot "
        f"use the experience of {actors} actors"
    )
    checkpoint = sequential.checkpoint.model_copy(update={"replay": False})
    return sequential.model_copy(update={"checkpoint": checkpoint})


def _with_next_step(error: RemudaError, run: RunDirectory) -> str:
    """Return an error's message with the file of its traceback and how to continue the run."""
    message = str(error)
    if isinstance(error, UserCodeError) and error.__cause__ is not None:
        message += f". Its traceback is in {run.logs / 'coordinator.log'}"
    return f"{message}. Fix it, and {how_to_continue(run)}" if can_continue(run) else message
