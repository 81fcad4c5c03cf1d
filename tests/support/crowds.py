"""A population of any size as the coordinator sees it, without an actor that plays."""

import numpy as np

from remuda.coordinator.scoreboard_reader import ScoreboardReader
from remuda.population.ledger.records import Member, PolicyRef
from remuda.population.members.table import Table
from remuda.publish.snapshot import Snapshot
from remuda.system.scoreboard import Scoreboard

SIZE = 2


class Quiet:
    """As much of a policy's experience as a record tells."""

    written, rollout, fill, held, untaken, passed = 0, 1, 0.0, None, 0, 0


def crowd(policies, copies, seats=2):
    """A table with so many policies and frozen copies, and who reads its counters."""
    return counted_crowd(policies, copies, seats)[:2]


def counted_crowd(policies, copies, seats=2):
    """The same, and the counters."""
    names = tuple(f"p{i}" for i in range(policies))
    table = Table(dict.fromkeys(names, SIZE), seats, copies)
    frozen = Snapshot(np.zeros(SIZE, np.float32), 1, 1, 0.0)
    for name in names:
        for version, slot in enumerate(table.slots.copies_of(name)):
            member = Member(PolicyRef(name, version), None, PolicyRef(name))
            member.slot = slot
            table.freeze(member, frozen)
            table.numbers[slot] = member.numbers
    counters, experience = Scoreboard(names), dict.fromkeys(names, Quiet())
    return table, ScoreboardReader(counters, experience, 0.0, table), counters


class Slots:
    """As much of published weights as a status tells."""

    @staticmethod
    def active(name):
        return 0
