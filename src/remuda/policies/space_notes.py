"""Notes on spaces that policies can learn in, but that the user should know about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from remuda.policies.actions import ContinuousActions
from remuda.policies.spec import PolicySpec

NAMED = 4
"""The most policies that a note names."""


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
            "bound, and used as they are; bounds in the environment's action_space let them be "
            "scaled"
        )
