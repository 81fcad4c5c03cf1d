"""Checks of which policies can share weights or experience, and notes on spaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from remuda.config import Config
from remuda.errors import ConfigError
from remuda.experience.ring import StreamShape
from remuda.policies.actions import BranchingActions, JointActions
from remuda.policies.continuous_actions import ContinuousActions
from remuda.policies.spec import PolicySpec

MIN_PIXELS = 1000  # minimum pixels for which a perceptron is probably a mistake
LAYOUTS = {"hwc": "height x width x channels", "chw": "channels x height x width"}
MAX_NAMES = 4  # maximum number of policies that a note lists


def stream_shape(spec: PolicySpec) -> StreamShape:
    """Return the shapes of a policy's steps in the ring."""
    config, actions = spec.config, spec.actions
    return StreamShape(
        spec.stored,
        spec.stored_dtype,
        config.n_frames,
        actions.size,
        actions.dtype,
        actions.mask_size if spec.masked else 0,
        spec.memory,
        keeps_last_mask=spec.masked and not config.rollout_length,
        choices=actions.sizes if isinstance(actions, BranchingActions | JointActions) else (),
        branching=isinstance(actions, BranchingActions),
        packing=spec.packing,
    )


def network_layout(spec: PolicySpec) -> tuple[object, ...]:
    """Return a key; policies with equal keys can act as one stack."""
    network = spec.network()
    return (type(network), tuple(network.shapes.items()), network.settings, spec.scale, spec.parts)


def check_births(config: Config, specs: Sequence[PolicySpec]) -> None:
    """Raise ConfigError if births by rating could start from incompatible weights."""
    if config.population.births.every is None:
        return
    for spec in specs[1:]:
        if stream_shape(spec) != stream_shape(specs[0]) or (
            network_layout(spec) != network_layout(specs[0])
        ):
            raise ConfigError(
                f"population.births.every: {specs[0].name} and {spec.name} have different "
                "networks, observations or actions, so neither can be a copy of the other; make "
                "them equal, or set your own population.director"
            )


def shares_of(specs: Sequence[PolicySpec]) -> dict[str, tuple[str, ...]]:
    """Return, by policy, the others in its `experience.group`; raise ConfigError if they differ."""
    groups: dict[str, list[PolicySpec]] = {}
    for spec in specs:
        groups.setdefault(spec.config.experience.group, []).append(spec)
    found: dict[str, tuple[str, ...]] = {}
    for group, members in groups.items():
        if group:
            check_group(group, members)
        for spec in members:
            others = tuple(other.name for other in members if other is not spec)
            found[spec.name] = others if group else ()
    return found


def check_group(group: str, members: Sequence[PolicySpec]) -> None:
    """Raise a `ConfigError` if members of an `experience.group` cannot share experience."""
    first = members[0]
    for other in members[1:]:
        if other.config.entry.takes != first.config.entry.takes:
            raise ConfigError(
                f"experience.group {group!r}: {first.name} learns by {first.config.algorithm} and "
                f"{other.name} by {other.config.algorithm}, which store different data per step; "
                "give each its own group"
            )
        if stream_shape(other) != stream_shape(first) or repr(other.actions) != repr(first.actions):
            raise ConfigError(
                f"experience.group {group!r}: {first.name} and {other.name} have different "
                "observations or actions, so neither can learn from the other; give each its own "
                "group"
            )
        lengths = [s.config.stored.segment_length for s in (first, other)]
        if lengths[0] != lengths[1]:
            raise ConfigError(
                f"experience.group {group!r}: {first.name} stores segments of {lengths[0]} steps "
                f"and {other.name} of {lengths[1]}; make experience.segment_length and, of PPO, "
                "ppo.rollout_length equal, since a rollout is made of whole segments"
            )


def space_notes(specs: Sequence[PolicySpec]) -> list[str]:
    """Return notes on spaces, each with the policies that it concerns."""
    found: dict[str, list[str]] = {}
    for spec in specs:
        for note in _notes(spec):
            found.setdefault(note, []).append(spec.name)
    return [f"{_listed(names)}: {note}" for note, names in found.items()]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def _notes(spec: PolicySpec) -> Iterator[str]:
    actions = spec.actions
    if isinstance(actions, ContinuousActions) and actions.unbounded:
        yield (
            f"{actions.unbounded} of {actions.size} continuous actions lack a finite bound. They "
            "are not scaled, and start with a standard deviation of 1 and a mean of 0, or a mean "
            "at distance 1 from their only bound; to scale them, set finite bounds in the "
            "environment's action_space"
        )
    network = spec.config.network
    if network.convolutions:
        for part in spec.parts:
            found = spec.layout_of(part) if len(part.shape) == 3 else None
            if found is not None and not found.is_sure:
                yield (
                    f"the observation {spec.described(part)} is read as {LAYOUTS[found.layout]}; "
                    "if that is wrong, set policy.network.layout"
                )
    elif not network.module:
        pixels = [p for p in spec.parts if p.is_pixels and p.size >= MIN_PIXELS]
        images = [part for part in pixels if len(part.shape) in (2, 3)]
        if images:
            inputs = spec.config.n_frames * sum(part.size for part in images)
            yield (
                f"it observes images ({', '.join(map(spec.described, images))}), and its network "
                f"has no convolutions, so {inputs:,} pixels go to its first linear layer; set "
                "policy.network.convolutions, such as [[32,8,4],[64,4,2],[64,3,1]] for 84 x 84"
            )
