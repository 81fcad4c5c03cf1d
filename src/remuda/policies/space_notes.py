"""Notes on spaces that policies can learn in, but that the user should know about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from remuda.policies.actions import ContinuousActions
from remuda.policies.spec import PolicySpec

MANY = 1000  # pixels from which a perceptron is seldom the intended network
WAYS = {"hwc": "height x width x channels", "chw": "channels x height x width"}
NAMED = 4  # policies that a note names at most


def space_notes(specs: Sequence[PolicySpec]) -> list[str]:
    """Return a sentence for each thing to know, with the policies that it concerns."""
    found: dict[str, list[str]] = {}
    for spec in specs:
        for note in _notes(spec):
            found.setdefault(note, []).append(spec.name)
    return [f"{_listed(names)}: {note}" for note, names in found.items()]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _notes(spec: PolicySpec) -> Iterator[str]:
    actions = spec.actions
    if isinstance(actions, ContinuousActions) and actions.unbounded:
        yield (
            f"{actions.unbounded} of {actions.size} continuous actions lack a finite bound. They "
            "are drawn with a standard deviation of 1 at first, around 0 or 1 from their only "
            "bound, and used unscaled; bounds in the environment's action_space let them be "
            "scaled"
        )
    network = spec.config.network
    if network.convolutions:
        for part in spec.parts:
            found = spec.layout_of(part) if len(part.shape) == 3 else None
            if found is not None and not found.is_sure:
                yield (
                    f"the observation {spec.described(part)} is taken as {WAYS[found.layout]}; if "
                    "that is wrong, set policy.network.layout"
                )
    elif not network.module:
        many = [p for p in spec.parts if p.is_pixels and len(p.shape) in (2, 3) and p.size >= MANY]
        if many:
            inputs = spec.config.n_frames * sum(part.size for part in many)
            yield (
                f"it observes pictures ({', '.join(map(spec.described, many))}), and its network "
                f"has no convolutions, so that {inputs:,} pixels go to its first linear layer; set "
                "policy.network.convolutions, as in [[32,8,4],[64,4,2],[64,3,1]] for 84 x 84"
            )
