"""Places of a population: live policies, each one's frozen copies, members from other runs."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.population.imported import Origin


class Places:
    """Which place is whose.

    A place for a frozen copy belongs to one policy for good, next to its others, so that networks
    of one kind are neighbours. The place of a live policy may be empty, and be taken by another
    that is born there, under the same name. A policy of another run has its place from the
    beginning, which stays empty once it has retired.
    """

    def __init__(
        self,
        policies: Sequence[str],
        copies: int,
        origins: Sequence[Origin] = (),
        stand_ins: bool = False,
    ) -> None:
        """Number the places.

        Args:
            policies: live ones, and those that may be born.
            copies: places for frozen copies of each policy.
            origins: of the members from other runs.
            stand_ins: whether the last of these is for a stand-in: the copy that takes a policy's
                seats while another is born in its place.
        """
        self.policies, self.copies = tuple(policies), copies
        self._stand_ins = stand_ins
        self.origins = tuple(origins)
        """Of the members from other runs, by place."""
        self.names = (*self.policies, *dict.fromkeys(origin.name for origin in origins))
        """By number, what members are called: those of policies first."""

    def __len__(self) -> int:
        return self.imported.stop

    @property
    def imported(self) -> range:
        """The places of the members from other runs."""
        first = len(self.policies) * (1 + self.copies)
        return range(first, first + len(self.origins))

    def copies_of(self, policy: str) -> range:
        """The places of a policy's frozen copies."""
        first = len(self.policies) + self.policies.index(policy) * self.copies
        return range(first, first + self.copies)

    def stand_in_of(self, policy: str) -> int | None:
        """The place of the copy that takes a policy's seats while another is born in its place."""
        return self.copies_of(policy)[-1] if self._stand_ins else None

    def of(self, name: str) -> int:
        """The place of a live policy, or the first of an imported member of this name."""
        if name in self.policies:
            return self.policies.index(name)
        found = (origin.name == name for origin in self.origins)
        return self.imported[list(found).index(True)]

    def row_of(self, place: int) -> tuple[str, int]:
        """Whose frozen copy a place is for, and which of its copies."""
        policy, row = divmod(place - len(self.policies), self.copies)
        return self.policies[policy], row
