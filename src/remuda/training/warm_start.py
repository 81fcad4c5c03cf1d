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
from remuda.policies.spec import PolicySpec, kinds_of
from remuda.population.members.imported import Imported, Origin
from remuda.population.members.table_parts import ORDERED
from remuda.population.roster import LONGEST, unborn
from remuda.population.run_spec import RunSpec
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
        own = "init_from" in config.policies.get(spec.name, {})
        key = f"policies.{spec.name}.init_from" if own else "policy.init_from"
        try:
            reference = Reference.parse(text)
            run = str(reference.run)
            saved = opened[run] = opened.get(run) or reference.open()
            names = saved.names()
            unnamed = not reference.policy and spec.name not in names and len(names) > 1
            if unnamed and spec.name in unborn(config):
                continue
            found[spec.name] = _beginning(spec, saved, reference.find(saved, spec.name))
        except RemudaError as error:
            raise ConfigError(f"{key} {text}: {error}") from error
    return found


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
        known = found.policy in saved.names()  # false for a member from another run
        version = found.player.snapshot.version
        found = (saved.learning(found.policy, version) if known else None) or found
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
        slot = [spec.name for spec in saved.specs].index(name)
        if part["generation"] != population["orders"][slot, ORDERED]:
            raise UsageError(
                f"{name} of {saved.files.path} had just been born in checkpoint {number}, which "
                "holds no optimizer for it yet; name another checkpoint"
            )
    state, player = part["algorithm"], found.player
    version = published(saved.files, saved.spec, number)[name].version
    snapshot = Snapshot(state["online"], version, state["updates"], 0.0)
    return replace(found, player=replace(player, snapshot=snapshot), checkpoint=number), state


def differences(saved: PolicySpec, spec: PolicySpec) -> Iterator[str]:
    """Yield the differences that change the meaning of a weight, as text."""
    names = [without_digest(each.config.algorithm) for each in (saved, spec)]
    # The networks of different algorithms are not comparable, and a user's may be missing here.
    before, after = (
        {"algorithm": name, **_inputs(each), **(_networks(each) if names[0] == names[1] else {})}
        for name, each in zip(names, (saved, spec), strict=True)
    )
    if before == after:
        before, after = _shapes(saved), _shapes(spec)
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield f"{name} is {before.get(name)} there and {after.get(name)} here"


def _shapes(spec: PolicySpec) -> dict[str, object]:
    return {f"the shape of {name}": shape for name, shape in spec.network().shapes.items()}


def _inputs(spec: PolicySpec) -> dict[str, object]:
    return {
        "the shape of an observation": spec.observation,
        "n_frames": spec.config.n_frames,
        "the scale of observations": spec.scale,
        "actions": repr(spec.actions),
        "value.input": "observation" if spec.critic is None else spec.critic.kind,
        "the size of the critic's input": 0 if spec.critic is None else spec.critic.size,
    }


def _networks(spec: PolicySpec) -> dict[str, object]:
    config, entry = spec.config, spec.config.entry
    ppo = ("normalise_observations", "normalise_values") if entry.takes == "rollouts" else ()
    iqn = ("cosines",) if entry.quantiles else ()  # the number of quantiles does not matter
    network = {name: getattr(config.network, name) for name in NetworkConfig.model_fields}
    network["shared"] = config.shares_network  # the setting may be None
    return {
        **{f"network.{name}": without_digests(value) for name, value in network.items()},
        **{f"iqn.{name}": getattr(config.iqn, name) for name in iqn},
        **{f"ppo.{name}": getattr(config.ppo, name) for name in ppo},
    }


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


def find_imported(run_spec: RunSpec, specs: Sequence[PolicySpec]) -> tuple[Imported, ...]:
    """Return the policies of other runs that `population.members_from` lists."""
    found: list[Imported] = []
    config = run_spec.config
    opened: dict[str, SavedPolicies] = {}
    for text in config.population.members_from:
        origins = [member.origin for member in found]
        try:
            reference = Reference.parse(text.removesuffix(GREEDY))
            run = str(reference.run)
            saved = opened[run] = opened.get(run) or reference.open()
            is_greedy = text.endswith(GREEDY)
            taken = reference.find_learned(saved)
            origin = _origin(_seats_by_policy(run_spec, specs, text), saved, taken, origins)
            origin = replace(origin, epsilon=0.0) if is_greedy else origin
            found.append(Imported(origin, np.asarray(taken.player.snapshot.weights, np.float32)))
            name, version = found[-1].origin.name, found[-1].origin.version
            if any((origin.name, origin.version) == (name, version) for origin in origins):
                raise ConfigError("it appears twice")
            if name in [spec.name for spec in specs]:
                raise ConfigError(
                    f"it would be called {name}, the name of a policy here; rename that policy in "
                    "population.policies"
                )
            if name in config.scripted_members:
                raise ConfigError(
                    f"it would be called {name}, the name of a scripted policy here "
                    "(population.scripted or env.scripted); rename that policy or the other run"
                )
        except RemudaError as error:
            raise ConfigError(f"population.members_from {text}: {error}") from error
    return tuple(found)


def _seats_by_policy(
    run_spec: RunSpec, specs: Sequence[PolicySpec], text: str
) -> list[tuple[PolicySpec, list[int]]]:
    """Return the policies that an imported member may be like, and the seats it may then take.

    Seats are empty if no team lists the member. Policies of its team come first.
    """
    roster, team = run_spec.roster, run_spec.config.population.team_of(text)
    if not team:
        return [(spec, []) for spec in specs]
    kinds, found = kinds_of(run_spec.agents), list[tuple[bool, PolicySpec, list[int]]]()
    own = [seat for seat in roster.dealt_seats if roster.teams[seat] == team]
    for spec in specs:
        seats = roster.seats_of(spec.name)
        beside = [seat for seat in own if seat in seats]
        alike = [seat for seat in own if kinds[seat] == kinds[seats[0]]]
        if alike:
            found.append((not beside, spec, beside or alike))
    if not found:
        raise ConfigError(
            f"its team {team} plays agents whose observations or actions differ from those of all "
            "policies that learn"
        )
    return [(spec, seats) for _, spec, seats in sorted(found, key=lambda each: each[0])]


def _origin(
    seats_by_policy: Sequence[tuple[PolicySpec, list[int]]],
    saved: SavedPolicies,
    taken: Saved,
    before: Sequence[Origin],
) -> Origin:
    saved_spec, snapshot = taken.player.spec, taken.player.snapshot
    different = {spec.name: list(differences(saved_spec, spec)) for spec, _ in seats_by_policy}
    like = next((name for name, differs in different.items() if not differs), None)
    if like is None:
        nearest = min(different, key=lambda name: len(different[name]))
        raise ConfigError(
            f"no policy here has the network of {taken.name}; compared to {nearest}, "
            f"{'; '.join(different[nearest])}"
        )
    path = saved.files.path.absolute()
    rate = snapshot.epsilon if taken.is_frozen else saved_spec.config.last_epsilon
    seats = next(seats for spec, seats in seats_by_policy if spec.name == like)
    return Origin(
        _name_of(path, taken.policy, seats, before),
        snapshot.version,
        like,
        str(path),
        taken.name,
        snapshot.learner_step,
        rate,
        seats,
    )


def _name_of(run: Path, policy: str, seats: Sequence[int], before: Sequence[Origin]) -> str:
    """Return a name for an imported policy: `RUN-POLICY`, with a number if that is in use.

    Versions of one policy share their name, unless they take the seats of different teams.
    """
    plain = "".join("_" if letter in "/@." else letter for letter in f"{run.name}-{policy}")
    name = base = plain[-LONGEST:].lstrip("- ")
    number = 1
    own = str(run), list(seats)
    while any(o.name == name and (o.run, list(o.seats)) != own for o in before):
        number += 1
        name = f"{base}-{number}"
    return name


def describe_imported(members: Sequence[Imported]) -> list[str]:
    """Describe members from other runs to the user."""
    if len(members) > REPORTED:
        return [f"{len(members)} policies of other runs are members of the population"]
    return [
        f"{origin.name}@{origin.version} is {origin.policy} of {origin.run}: a fixed opponent"
        for origin in (member.origin for member in members)
    ]
