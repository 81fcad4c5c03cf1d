"""A user's director, whose commands are checked before any is carried out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from remuda.config import SnapshotsConfig
from remuda.errors import CommandError
from remuda.population.director import Birth, Command, Director, Freeze, Retire, Vacate, freeze
from remuda.population.ledger import Ledger
from remuda.population.records import PolicyRef, Population
from remuda.types import State

KINDS = "Freeze, Retire, Birth and Vacate of remuda.population.director"

Check = tuple[str, Callable[[Any], bool]]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


NAME: Check = ("the name of a policy", lambda value: isinstance(value, str))
REF: Check = ("a PolicyRef", lambda value: isinstance(value, PolicyRef))
REF_OR_NONE: Check = ("a PolicyRef or None", lambda v: v is None or isinstance(v, PolicyRef))
SHARE: Check = ("a number from 0 to 1", lambda value: _is_number(value) and 0.0 <= value <= 1.0)
FIELDS: Mapping[type, Mapping[str, Check]] = {
    Freeze: {"policy": NAME},
    Retire: {"ref": REF},
    Vacate: {"policy": NAME},
    Birth: {
        "policy": NAME,
        "parent": REF_OR_NONE,
        "second": REF_OR_NONE,
        "hyperparameters": ("named numbers", lambda value: isinstance(value, Mapping)),
        "mutation": ("a number, 0 or more", lambda value: _is_number(value) and value >= 0.0),
        "crossover": SHARE,
        "inherits_training": ("True or False", lambda value: isinstance(value, bool)),
    },
}


class OwnDirector:
    """Wraps the director that `population.director` names."""

    def __init__(self, name: str, director: Director, snapshots: SnapshotsConfig, room: bool):
        """Wrap a director."""
        self._key, self._director = f"population.director {name}", director
        self._snapshots, self._room = snapshots, room

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        """Return what the director commands, with the retirement that makes room for each copy."""
        found: Any = self._director.step(population, ledger, versions)
        if not isinstance(found, Sequence) or isinstance(found, str | bytes):
            raise self._refused(f"step returned {_shown(found)}; it returns a list of {KINDS}")
        for command in found:
            self._check(command)
        return list(self._with_room(found, population, versions))

    def _check(self, command: Any) -> None:
        fields = FIELDS.get(type(command))
        if fields is None:
            raise self._refused(
                f"step returned a list with {_shown(command)}; it returns a list of {KINDS}"
            )
        for name, (allowed, is_allowed) in fields.items():
            value = getattr(command, name)
            if not is_allowed(value):
                kind = type(command).__name__
                raise self._refused(f"{kind}.{name} is {_shown(value)}; it is {allowed}")

    def _with_room(
        self, commands: Sequence[Command], population: Population, versions: Mapping[str, int]
    ) -> Iterator[Command]:
        for command in commands:
            if not isinstance(command, Freeze):
                yield command
                continue
            if not self._room:
                raise self._refused(
                    f"step commands Freeze({command.policy!r}), and there is no room for copies: "
                    "set population.snapshots.every, to more versions than the run will have if "
                    "only the director is to freeze; population.snapshots.keep copies of each "
                    "policy are kept"
                )
            live = PolicyRef(command.policy)
            if live not in population or not population[live].learns:
                names = ", ".join(member.ref.policy for member in population.learning)
                raise self._refused(
                    f"step commands Freeze({command.policy!r}), which is no policy that learns "
                    f"now; there are {names}"
                )
            if PolicyRef(command.policy, versions[command.policy]) in population:
                continue  # this version has its copy
            past = population.past_of(command.policy)
            leaving = {each.ref for each in commands if isinstance(each, Retire)}
            yield from freeze(
                command.policy, [each for each in past if each.ref not in leaving], self._snapshots
            )

    def _refused(self, why: str) -> CommandError:
        return CommandError(f"{self._key}: {why}")

    def state(self) -> State:
        """Return what the director needs to continue."""
        found: Any = self._director.state()
        if not isinstance(found, Mapping):
            raise self._refused(
                f"state returned {_shown(found)}; it returns a dictionary of plain data and arrays"
            )
        return dict(found)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        self._director.restore(state)


def _shown(value: object) -> str:
    words = " ".join(repr(value).split())
    return words if len(words) <= 80 else f"{words[:80]}..."
