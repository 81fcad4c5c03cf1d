"""Places of a population: live policies, their frozen copies, scripted and imported members."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.population.imported import Origin
from remuda.population.records import SCRIPTED, PolicyRef


class Places:
    """The assignment of places.

    A place for a frozen copy always belongs to the same policy and is next to its other copies, so
    that networks of one kind are neighbours. The place of a live policy may be empty, and another
    policy may be born there with the same name. Scripted and imported members have places from the
    start, which stay empty once they retire.
    """

    def __init__(
        self,
        policies: Sequence[str],
        copies: int,
        origins: Sequence[Origin] = (),
        scripted: Sequence[str] = (),
        stand_ins: bool = False,
    ) -> None:
        """Number the places."""
        self.policies, self.copies = tuple(policies), copies
        self._stand_ins = stand_ins
        self.origins = tuple(origins)
        self.scripted_names = tuple(scripted)
        self.names = (
            *self.policies,
            *self.scripted_names,
            *dict.fromkeys(origin.name for origin in origins),
        )
        """Names of members by number, policies first."""

    def __len__(self) -> int:
        return self.imported.stop

    @property
    def scripted(self) -> range:
        """The places of the scripted members."""
        first = len(self.policies) * (1 + self.copies)
        return range(first, first + len(self.scripted_names))

    @property
    def imported(self) -> range:
        """The places of the members from other runs."""
        first = self.scripted.stop
        return range(first, first + len(self.origins))

    @property
    def outsiders(self) -> dict[int, PolicyRef]:
        """Members that are there from the beginning and never change, by place."""
        scripted = (PolicyRef(name, SCRIPTED) for name in self.scripted_names)
        imported = (PolicyRef(origin.name, origin.version) for origin in self.origins)
        return {
            **dict(zip(self.scripted, scripted, strict=True)),
            **dict(zip(self.imported, imported, strict=True)),
        }

    def may_hold_copy(self, place: int) -> bool:
        """Return whether a place is for a frozen copy."""
        return len(self.policies) <= place < self.scripted.start

    def copies_of(self, policy: str) -> range:
        """Return the places of a policy's frozen copies."""
        first = len(self.policies) + self.policies.index(policy) * self.copies
        return range(first, first + self.copies)

    def stand_in_of(self, policy: str) -> int | None:
        """Return the place of the copy that plays while a policy's successor is born."""
        return self.copies_of(policy)[-1] if self._stand_ins else None

    def of(self, name: str) -> int:
        """Return the place of a live or scripted policy, or the first of an imported member."""
        if name in self.policies:
            return self.policies.index(name)
        if name in self.scripted_names:
            return self.scripted[self.scripted_names.index(name)]
        found = (origin.name == name for origin in self.origins)
        return self.imported[list(found).index(True)]

    def row_of(self, place: int) -> tuple[str, int]:
        """Return the policy of a frozen copy's place, and its number among the copies."""
        policy, row = divmod(place - len(self.policies), self.copies)
        return self.policies[policy], row
