"""Resuming a run: find its checkpoint, and check and record the changed settings."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from remuda.config import Config, load_config
from remuda.config.hyperparameters import values_of
from remuda.config.resume_rules import Change, allowed_message, changes, lasting
from remuda.coordinator.coordinator import ALL_PLAYED, TIME_UP
from remuda.errors import CheckpointError, ConfigError, RemudaError, RunDirectoryError
from remuda.publish.snapshot import Snapshot
from remuda.runs.metrics import View
from remuda.runs.run_directory import RunDirectory, how_to_restart
from remuda.system.checkpoint.fitting import branch
from remuda.system.checkpoint.names import COORDINATOR
from remuda.system.checkpoint.opening import read_file
from remuda.system.checkpoint.state import write_whole
from remuda.system.checkpoint.store import Manifest, differences
from remuda.system.loading import with_digests_of


@dataclass(frozen=True)
class Resumed:
    """The checkpoint and settings from which a run resumes."""

    checkpoint: Manifest
    changes: tuple[Change, ...]  # changed settings, all of them allowed
    hyperparameters: dict[str, dict[str, float]]
    """Hyperparameters by policy that replace those in the checkpoint."""
    over: str = ""  # how the run ended if it is complete; empty if it continues
    final: Mapping[str, Snapshot] | None = None
    """The intact final weights of a complete run; None if it continues or they are damaged."""
    inexact: str = ""  # why an exact schedule does not continue exactly; empty if it does


def confirmed(config: Config, explicit_keys: Collection[str], say: Callable[[str], None]) -> Config:
    """Check the paths and addresses in a resumed run's config.yaml; return safe settings.

    The file may come from another user. So the run writes only inside its directory, and connects
    to no other machine, unless the user sets these keys again.
    """
    address = config.cluster.address
    if address not in ("", "auto") and "cluster.address" not in explicit_keys:
        raise ConfigError(
            f"cluster.address is {address} in the run's config.yaml: to connect to that machine "
            f"again, add --cluster.address {address}"
        )
    trace, directory = config.trace, config.run.directory
    if trace is None or directory is None or "trace" in explicit_keys:
        return config
    if trace.resolve().is_relative_to(directory.resolve()):
        return config
    inside = directory / "trace.json"
    if inside.is_symlink():
        raise ConfigError(f"{inside}, where the trace is written, is a link: give --trace again")
    say(
        f"trace is {trace} in the run's config.yaml, outside of the run: the trace is written to "
        f"{inside}; to write it to the old path again, add --trace {trace}"
    )
    return config.model_copy(update={"trace": inside})


def find_checkpoint(
    config: Config,
    run: RunDirectory,
    policies: Sequence[str],
    say: Callable[[str], None],
    explicit_keys: Collection[str] = (),
) -> Resumed:
    """Find the newest intact checkpoint; if it cannot be resumed, change nothing on disk."""
    found = run.checkpoints.newest_whole(say, lambda each: _check(config, run, each))
    if found is None:
        count = len(run.checkpoints.numbers())
        why = "none was written, or they were removed"
        if count:
            why = "the only one is damaged" if count == 1 else f"all {count} are damaged"
        raise CheckpointError(
            f"{run.path} has no checkpoint to resume from: {why}. Nothing was changed; "
            f"{how_to_restart(run)}"
        )
    say(f"resumes from checkpoint {found.number}: {found.turns:,} turns, {found.seconds:,.0f} s")
    before = _before(config, run, found)
    set_back, noted = [], _noted(run, found)
    if explicit_keys or noted:
        saved = run.checkpoints.read(found.number, COORDINATOR)
        with run.checkpoints.restoring(COORDINATOR):
            set_back = _set_back(config, saved, policies, explicit_keys, noted)
    hyperparameters: dict[str, dict[str, float]] = {}
    for policy in policies:
        old, new = (values_of(each.policy_of(policy)) for each in (before, config))
        differing = {name: value for name, value in new.items() if old.get(name) != value}
        hyperparameters[policy] = differing
    changed = list(changes(before, config))
    for policy, (name, live, value) in set_back:
        if name not in hyperparameters[policy]:
            hyperparameters[policy][name] = value
            changed.append(Change(f"policies.{policy}.{name}", live, value, allowed=True))
    over = next(iter(_reached(config, found)), "")
    inexact = "" if over else _inexact(before, config, run, found)
    if inexact:
        say(inexact)
    return Resumed(found, tuple(changed), hyperparameters, over, inexact=inexact)


def _inexact(before: Config, config: Config, run: RunDirectory, found: Manifest) -> str:
    """Return why an exact schedule starts new episodes instead of continuing the saved episodes."""
    if not config.exact:
        return ""
    if not (before.saves_replay and config.saves_replay):
        why = "the checkpoint lacks the first steps of unfinished episodes (checkpoint.replay)"
    elif not found.exact:
        why = f"the schedule was {before.schedule}"
    elif run.checkpoints.read(found.number, "actor")["world"] is None:
        why = f"environments of {config.game} cannot be saved in mid-episode"
        if before.env.workers > 1:
            why = "worker processes cannot save their environments in mid-episode (env.workers)"
    elif config.env.workers > 1:
        why = "worker processes cannot restore environments in mid-episode (env.workers)"
    else:
        return ""
    return (
        f"this run continues with new episodes, since {why}: it differs from an uninterrupted run"
    )


def _reached(config: Config, found: Manifest) -> dict[str, str]:
    """Map each limit that the run has reached to the option that would extend it."""
    turns, seconds, reached = config.run.turns, config.run.seconds, {}
    if turns is not None and found.turns >= turns:
        reached[ALL_PLAYED] = f"--run.turns above {found.turns:,}"
    if seconds is not None and found.seconds >= seconds:
        reached[TIME_UP] = f"--run.seconds above {found.seconds:,.1f}"
    return reached


def nothing_left(config: Config, resumed: Resumed) -> str:
    """Say that a run is complete, and how to extend it."""
    more = " and ".join(_reached(config, resumed.checkpoint).values())
    over = f"{resumed.over}: nothing was left to do, and nothing more is trained"
    return f"{over}; to extend it, add {more}"


def note_changes(run: RunDirectory, resumed: Resumed, say: Callable[[str], None]) -> None:
    """Append the changes to `changes.jsonl`, one line for each resume that changed anything.

    Changes are reported only once they are written, so a crash loses no reported change. Until the
    next checkpoint, no other file holds hyperparameters that the user set again.
    """
    if not resumed.changes:
        return
    found = resumed.checkpoint
    line = {
        "checkpoint": found.number,
        "turns": found.turns,
        "seconds": found.seconds,
        "changes": {each.key: [each.before, each.after] for each in resumed.changes},
    }
    try:
        before = read_file(run.changes) if run.changes.exists() else b""
        if before and not before.endswith(b"\n"):  # the writer may have been killed before it
            before += b"\n"
        write_whole(run.changes, before + json.dumps(line).encode() + b"\n")
    except OSError as error:
        raise RunDirectoryError(f"cannot write {run.changes}: {error.strerror}") from None
    for change in resumed.changes:
        if change.key.startswith("polic"):  # others, such as run.turns, are visible elsewhere
            say(f"{change} from now on")


def _noted(run: RunDirectory, found: Manifest) -> dict[str, float]:
    """Return the policy settings that earlier resumes from this checkpoint changed."""
    try:
        lines = read_file(run.changes).decode(errors="replace").splitlines()
    except OSError:
        return {}
    changed: dict[str, float] = {}
    for line in lines:
        try:
            note = json.loads(line)
            moment = (note["checkpoint"], note["turns"], note["seconds"])
            if moment == (found.number, found.turns, found.seconds):
                changed |= {key: after for key, (_, after) in note["changes"].items()}
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
            continue  # an incomplete line
    return {key: after for key, after in changed.items() if key.startswith("policies.")}


def _check(config: Config, run: RunDirectory, found: Manifest) -> None:
    """Raise a `CheckpointError` if a checkpoint cannot be resumed with these settings."""
    try:  # settings that are new in this version get their defaults
        refused = [
            str(each) for each in changes(_before(config, run, found), config) if not each.allowed
        ]
    except ConfigError:  # settings that this version does not have
        refused = list(differences(found.config, lasting(config)))
    if refused:
        raise CheckpointError(
            f"checkpoint {found.number} of {run.path} was made with another configuration: "
            f"{refused[0]}; resume without that change, or start a new run from its weights with "
            f"--policy.init_from {run.path}. {allowed_message()}"
        )


def _before(config: Config, run: RunDirectory, found: Manifest) -> Config:
    """Return the previous settings; those that a resume must keep come from the checkpoint."""
    try:
        plain = run.read_config()
    except RemudaError:  # the checkpoint has the settings that must not change
        plain = config
    tree = with_digests_of(found.config, config.model_dump(mode="json"))
    made = load_config(tree, known=config.entries)
    rest = {name: getattr(plain, name) for name in Config.model_fields if name not in found.config}
    env = made.env.model_copy(update={"workers": plain.env.workers, "check": plain.env.check})
    return made.model_copy(update={**rest, "env": env})  # not validated, only compared


def _set_back(
    config: Config,
    saved: Mapping[str, Any],
    policies: Sequence[str],
    explicit_keys: Collection[str],
    noted: Mapping[str, float],
) -> list[tuple[str, tuple[str, float, float]]]:
    """Return hyperparameters that the user set and whose live values differ."""
    found, common = [], values_of(config.policy)
    for policy, live in zip(policies, _live(saved, policies), strict=True):
        for name, value in values_of(config.policy_of(policy)).items():
            of_all = f"policy.{name}" in explicit_keys and common.get(name) == value
            key = f"policies.{policy}.{name}"
            if not (of_all or key in explicit_keys or noted.get(key) == value):
                continue
            if live.get(name, value) != value:
                found.append((policy, (name, live[name], value)))
    return found


def _live(saved: Mapping[str, Any], policies: Sequence[str]) -> list[dict[str, float]]:
    """Return each slot's live hyperparameters; without a population, only the changed ones."""
    if saved.get("population") is None:
        changed = branch(saved, "hyperparameters")
        found = [branch(changed, name) if name in changed else {} for name in policies]
        return [{name: now for name, (now, _) in each.items()} for each in found]
    population = branch(saved, "population")
    names = list(population["hyperparameter_names"])
    rows = np.asarray(population["hyperparameters"])[: len(policies)].tolist()
    return [
        {name: value for name, value in zip(names, row, strict=True) if not math.isnan(value)}
        for row in rows
    ]


def report_damage(damaged: Sequence[int], view: View) -> None:
    """Report damaged lines of the metrics, if there are any."""
    if len(damaged) == 1:
        view.say("1 line of metrics.jsonl is damaged and skipped")
    elif damaged:
        view.say(f"{len(damaged)} lines of metrics.jsonl are damaged and skipped")
