"""Check what the methods of a user's matchmaker and director return."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from remuda.errors import CommandError
from remuda.population.ledger.records import PolicyRef
from remuda.system.checkpoint.state import pieces
from remuda.types import State


def shown(value: object) -> str:
    """Return a value for a message, in at most 80 characters."""
    words = " ".join(repr(value).split())
    return words if len(words) <= 80 else f"{words[:80]}..."


def seating_of(found: Any, matchmaker: str) -> tuple[PolicyRef, ...]:
    """Return what `Matchmaker.seat` returned as a tuple; raise CommandError if it is no seating."""
    if not isinstance(found, Sequence) or not all(isinstance(ref, PolicyRef) for ref in found):
        raise CommandError(
            f"population.matchmaker {matchmaker}: seat returned {shown(found)}; it must return a "
            "tuple with the PolicyRef of each seat, such as Member.ref"
        )
    return tuple(found)


def learning_seats_of(found: Any, num_seats: int, matchmaker: str) -> frozenset[int] | None:
    """Return what `Matchmaker.learning_seats` returned; raise CommandError if it is not seats."""
    if found is None:
        return None
    if not isinstance(found, Collection) or not all(seat in range(num_seats) for seat in found):
        raise CommandError(
            f"population.matchmaker {matchmaker}: learning_seats returned {shown(found)}; it must "
            f"return a set of seats, each from 0 to {num_seats - 1}, or None for all seats"
        )
    return frozenset(found)


def state_of(found: Any, key: str) -> State:
    """Return what `state` returned; raise CommandError if a checkpoint cannot contain it."""
    why = ""
    try:
        if isinstance(found, Mapping):
            deque(pieces(found), maxlen=0)
            return dict(found)
    except TypeError as error:
        why = f" ({error})"
    except (AttributeError, KeyError, RecursionError, ValueError):
        pass
    raise CommandError(
        f"{key}: state returned {shown(found)}{why}; it must return a dictionary of "
        "Python's numbers, texts, lists and arrays, or of such dictionaries, with texts as keys"
    )
