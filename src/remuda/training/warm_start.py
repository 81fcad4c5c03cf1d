"""Warm starts: initial weights and fixed members from other runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from remuda.config import Config, NetworkConfig
from remuda.coordinator.requests import LIVE
from remuda.errors import ConfigError, RemudaError, UsageError
from remuda.policies.initial import InitialState, WeightSource
from remuda.policies.spec import PolicySpec
from remuda.population.members.imported import Imported, Origin
from remuda.population.members.table_parts import ORDERED
from remuda.population.roster import LONGEST, unborn
from remuda.publish.snapshot import Snapshot
from remuda.runs.saved_weights import published
from remuda.system.checkpoint.names import COORDINATOR, file_name
from remuda.system.loading import without_digest, without_digests
from remuda.training.saved.policies import Reference, Saved, SavedPolicies

GREEDY = "+greedy"  # suffix in `population.members_from`: the member always acts greedily
REPORTED = 4  # maximum number of policies that are reported one by one


def find_beginnings(config: Config, specs: Sequence[PolicySpec]) -> dict[str, InitialState]:
    """Return the initial weights of policies with `init_from`.

    Slots of later births get initial weights too; policies born without a parent use them. Such a
    slot keeps random weights if the run in `init_from` has several policies, none of them with the
    slot's name.
    """
    found: dict[str, InitialState] = {}
    opened: dict[str, SavedPolicies] = {}
    for spec in specs:
        text = spec.config.init_from
        if text is None:
            continue
        key = _key(config, spec.name)
        try:
            reference = Reference.parse(text)
            run = str(reference.run)
            if run not in opened:
                opened[run] = reference.open()
            saved = opened[run]
            names = saved.names()
            unnamed = not reference.policy and spec.name not in names and len(names) > 1
            if unnamed and spec.name in unborn(config):
                continue
            found[spec.name] = _beginning(spec, saved, reference.find(saved, spec.name))
        except RemudaError as error:
            raise ConfigError(f"{key} {text}: {error}") from error
    return found


def _key(config: Config, policy: str) -> str:
    own = "init_from" in config.policies.get(policy, {})
    return f"policies.{policy}.init_from" if own else "policy.init_from"


def _beginning(spec: PolicySpec, saved: SavedPolicies, taken: Saved) -> InitialState:
    different = list(differences(taken.player.spec, spec))
    if different:
        raise ConfigError(
            f"{taken.name} has another network than {spec.name} here: {'; '.join(different)}. "
            "Make these settings equal, or leave init_from out"
        )
    optimizer = None
    if spec.config.init_optimizer:
        taken, state = _learner_state(saved, taken)
        optimizer = state["optimizer"]
    snapshot = taken.player.snapshot
    source = WeightSource(
        str(saved.files.path.absolute()),
        taken.name,
        snapshot.version,
        snapshot.learner_step,
        taken.checkpoint,
        taken.is_live,
    )
    return InitialState(source, np.asarray(snapshot.weights, np.float32), optimizer)


def _learner_state(saved: SavedPolicies, found: Saved) -> tuple[Saved, dict[str, Any]]:
    """Return a policy and its learner's saved state, with the weights that belong to it.

    A run's final weights are a few updates newer than its last checkpoint, so the weights of that
    checkpoint are used. A frozen copy uses a checkpoint in which the policy has the same version.
    """
    if found.is_live:
        raise UsageError(
            f"{found.name}@{LIVE}: weights that a run plays with now come without an optimizer; "
            f"leave out init_optimizer, or @{LIVE} for its newest checkpoint"
        )
    if found.is_frozen:
        own, _, frozen_at = found.name.rpartition("@")
        known = own in saved.names()  # false for a member from another run
        live = saved.learning(own, int(frozen_at)) if known else None
        found = found if live is None else live
    name, numbers = found.name, saved.files.checkpoints.numbers()
    if found.is_frozen:
        raise UsageError(f"{name} of {saved.files.path} is a frozen copy, which has no optimizer")
    if not numbers:
        raise UsageError(
            f"{saved.files.path} has no checkpoint, and the optimizer is kept in checkpoints only"
        )
    number = numbers[-1] if found.checkpoint is None else found.checkpoint
    part = saved.files.checkpoints.read(number, file_name(name))
    population = saved.files.checkpoints.read(number, COORDINATOR)["population"]
    if population is not None:
        place = [spec.name for spec in saved.specs].index(name)
        if part["generation"] != population["orders"][place, ORDERED]:
            raise UsageError(
                f"{name} of {saved.files.path} had just been born in checkpoint {number}, which "
                "holds no optimizer for it yet; name another checkpoint"
            )
    state, player = part["algorithm"], found.player
    version = published(saved.files, saved.spec, number)[name].version
    snapshot = Snapshot(state["online"], version, state["updates"], 0.0)
    return replace(found, player=replace(player, snapshot=snapshot), checkpoint=number), state


def differences(there: PolicySpec, here: PolicySpec) -> Iterator[str]:
    """Yield the differences that change the meaning of a weight, as text.

    Algorithm, observations, actions and network settings are compared, and if all of these are
    equal, the shapes of the parameters.
    """
    equal = True

    def differ(what: str, one: object, other: object) -> Iterator[str]:
        nonlocal equal
        if one != other:
            equal = False
            yield f"{what} is {one} there and {other} here"

    algorithm, other_algorithm = (without_digest(s.config.algorithm) for s in (there, here))
    yield from differ("algorithm", algorithm, other_algorithm)
    yield from differ("the shape of an observation", there.observation, here.observation)
    yield from differ("n_frames", there.config.n_frames, here.config.n_frames)
    yield from differ("the scale of observations", there.scale, here.scale)
    yield from differ("actions", repr(there.actions), repr(here.actions))
    if algorithm == other_algorithm:
        theirs, ours = (spec.config.shares_network for spec in (there, here))
        yield from differ("network.shared", theirs, ours)
        for name in NetworkConfig.model_fields:
            if name == "shared":  # `shares_network` above resolves None
                continue
            one, other = (
                without_digests(getattr(spec.config.network, name)) for spec in (there, here)
            )
            yield from differ(f"network.{name}", one, other)
        if here.config.entry.section == "iqn":  # the number of quantiles does not matter
            one, other = (spec.config.iqn.cosines for spec in (there, here))
            yield from differ("iqn.cosines", one, other)
        if here.config.entry.takes == "rollouts":
            for name in ("normalise_observations", "normalise_values"):
                one, other = (getattr(spec.config.ppo, name) for spec in (there, here))
                yield from differ(f"ppo.{name}", one, other)
    if equal:
        shapes, others = there.network().shapes, here.network().shapes
        for name in {**shapes, **others}:
            yield from differ(f"the shape of {name}", shapes.get(name), others.get(name))


def describe(beginnings: Mapping[str, InitialState]) -> list[str]:
    """Describe warm starts to the user."""
    if len(beginnings) > REPORTED:
        runs = ", ".join(sorted({found.source.run for found in beginnings.values()}))
        return [f"{len(beginnings)} policies start with weights from {runs}"]
    lines = []
    for policy, found in beginnings.items():
        source = found.source
        moments = " and optimizer" if found.optimizer is not None else ""
        lines.append(
            f"{policy} starts with weights{moments} of {source.policy} from {source.run}: version "
            f"{source.version}, {source.learner_step:,} updates"
        )
    return lines


def find_imported(config: Config, specs: Sequence[PolicySpec]) -> tuple[Imported, ...]:
    """Return the policies of other runs that `population.members_from` lists."""
    found: list[Imported] = []
    opened: dict[str, SavedPolicies] = {}
    for text in config.population.members_from:
        try:
            reference = Reference.parse(text.removesuffix(GREEDY))
            saved = opened.setdefault(str(reference.run), reference.open())
            is_greedy = text.endswith(GREEDY)
            taken = reference.find_learned(saved)
            found.append(_imported(specs, saved, taken, _origins(found), is_greedy))
        except RemudaError as error:
            raise ConfigError(f"population.members_from {text}: {error}") from error
        this = found[-1].origin
        if any((o.name, o.version) == (this.name, this.version) for o in _origins(found[:-1])):
            raise ConfigError(f"population.members_from {text}: it appears twice")
        if this.name in [spec.name for spec in specs]:
            raise ConfigError(
                f"population.members_from {text}: it would be called {this.name}, the name of a "
                "policy here; rename that policy in population.policies"
            )
        if this.name in config.scripted_members:
            raise ConfigError(
                f"population.members_from {text}: it would be called {this.name}, the name of a "
                "scripted policy here (population.scripted or env.scripted); rename that policy or "
                "the other run"
            )
    return tuple(found)


def _origins(members: Sequence[Imported]) -> list[Origin]:
    return [member.origin for member in members]


def _imported(
    specs: Sequence[PolicySpec],
    saved: SavedPolicies,
    taken: Saved,
    before: Sequence[Origin],
    is_greedy: bool,
) -> Imported:
    theirs, snapshot = taken.player.spec, taken.player.snapshot
    different = {spec.name: list(differences(theirs, spec)) for spec in specs}
    like = next((name for name, differs in different.items() if not differs), None)
    if like is None:
        nearest = min(different, key=lambda name: len(different[name]))
        raise ConfigError(
            f"no policy here has the network of {taken.name}; compared to {nearest}, "
            f"{'; '.join(different[nearest])}"
        )
    path = saved.files.path.absolute()
    own = taken.name.rpartition("@")[0] if taken.is_frozen else taken.name
    rate = snapshot.epsilon if taken.is_frozen else theirs.config.last_epsilon
    origin = Origin(
        _name_of(path, own, before),
        snapshot.version,
        like,
        str(path),
        taken.name,
        snapshot.learner_step,
        0.0 if is_greedy else rate,
    )
    return Imported(origin, np.asarray(snapshot.weights, np.float32))


def _name_of(run: Path, policy: str, before: Sequence[Origin]) -> str:
    """Return a name for an imported policy: `RUN-POLICY`, with a number if that is in use."""
    plain = "".join("_" if letter in "/@." else letter for letter in f"{run.name}-{policy}")
    name = base = plain[-LONGEST:].lstrip("- ")
    number = 1
    while any(origin.name == name and origin.run != str(run) for origin in before):
        number += 1
        name = f"{base}-{number}"
    return name


def describe_imported(members: Sequence[Imported]) -> list[str]:
    """Describe members from other runs to the user."""
    if len(members) > REPORTED:
        return [f"{len(members)} policies of other runs are members of the population"]
    return [
        f"{origin.name}@{origin.version} is {origin.policy} of {origin.run}: a fixed opponent"
        for origin in _origins(members)
    ]
