"""Who is in which slot: what readers see while it changes, and what a dead actor leaves behind."""

import numpy as np
import pytest

from remuda.population.ledger.records import Member, PolicyRef
from remuda.population.members.births import Newborn
from remuda.population.members.table import Table
from remuda.publish.snapshot import Snapshot

SIZE = 3


def table_with_copy():
    """Two policies and a copy of `a`; returns the table and the slot of the copy."""
    table = Table(dict.fromkeys("ab", SIZE), 2, 2)
    member = Member(PolicyRef("a", 5), None, PolicyRef("a"), 7)
    member.slot = table.slots.copies_of("a")[0]
    table.freeze(member, Snapshot(np.ones(SIZE, np.float32), 5, 4, 0.5))
    return table, member.slot


def shown(table):
    """As three kinds of readers see them: members, rows, and a checkpoint."""
    saved = table.state()["identity"][:, 0]
    return (
        [str(member.ref) for member in table.population().members],
        [str(ref) for ref, *_ in table.rows()],
        np.flatnonzero(saved >= 0).tolist(),
    )


def test_a_copy_is_seen_once_it_is_whole():
    table, slot = table_with_copy()
    assert shown(table) == (["a", "b", "a@5"], ["a", "b", "a@5"], [0, 1, slot])
    (copy,) = table.population().frozen
    assert (copy.slot, copy.parent, copy.born) == (slot, PolicyRef("a"), 7)
    writing = table.occupants.begin_writing(slot)
    assert shown(table) == (["a", "b"], ["a", "b"], [0, 1])
    table.occupants.end_writing(slot, writing)
    assert shown(table) == (["a", "b", "a@5"], ["a", "b", "a@5"], [0, 1, slot])


def test_the_successor_empties_a_slot_that_was_left_half_written():
    table, slot = table_with_copy()
    table.pairs[:, :, slot] = 4.0
    table.occupants.begin_writing(slot)
    assert table.occupants.sequence[slot] % 2 == 1
    table.repair()
    assert not (table.occupants.sequence % 2).any()
    assert not table.occupants.is_there(slot)
    assert not table.pairs.any()
    assert shown(table) == (["a", "b"], ["a", "b"], [0, 1])


@pytest.mark.parametrize("emptied", [False, True])
def test_a_policy_that_retired_is_shown_no_more_and_leaves_when_its_matches_are_over(emptied):
    table, slot = table_with_copy()
    table.occupants.leave(slot)
    assert table.occupants.leaving == [slot]
    assert table.occupants.is_there(slot)  # it still sits somewhere
    assert table.occupants.frozen == 0
    assert shown(table)[:2] == (["a", "b"], ["a", "b"])
    if emptied:
        table.occupants.remove(slot)
    table.repair()  # an actor that died in between changes nothing
    assert table.occupants.leaving == ([] if emptied else [slot])
    assert table.occupants.is_there(slot) != emptied


def test_the_living_are_those_whose_slots_are_not_empty():
    table = Table(dict.fromkeys("abc", SIZE), 2, 0, {}, ["b"])
    assert table.occupants.living == ("a", "c")
    newborn = Member(PolicyRef("b"), None, PolicyRef("a", 3), 9)
    table.prepare(1, newborn, Newborn(np.zeros(SIZE, np.float32)))
    table.births.count(1)
    assert table.occupants.living == ("a", "c")
    admitted = table.admit(1)
    assert (admitted.ref, admitted.parent, admitted.born) == (PolicyRef("b"), PolicyRef("a", 3), 9)
    assert table.occupants.living == ("a", "b", "c")


def test_hyperparameters_are_gone_on_with_by_name():
    """The user's class may have its settings in another order by then, and others."""
    before = Table({"a": SIZE}, 2, 0, {"a": {"settings.x": 1.0, "settings.y": 2.0}})
    after = Table({"a": SIZE}, 2, 0, {"a": {"settings.z": 5.0, "settings.y": 7.0}})
    after.restore(before.state())
    assert after.hyperparameters.of(0) == {"settings.z": 5.0, "settings.y": 2.0}
