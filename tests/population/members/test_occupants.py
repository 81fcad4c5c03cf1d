"""Who is in which place: what readers see while it changes, and what a dead actor leaves behind."""

import numpy as np
import pytest

from remuda.population.ledger.records import Member, PolicyRef
from remuda.population.members.births import Newborn
from remuda.population.members.table import Table
from remuda.publish.snapshot import Snapshot

SIZE = 3


def table_with_copy():
    """Two policies and a copy of `a`; returns the table and the place of the copy."""
    table = Table(dict.fromkeys("ab", SIZE), 2, 2)
    member = Member(PolicyRef("a", 5), None, PolicyRef("a"), 7)
    member.place = table.places.copies_of("a")[0]
    table.freeze(member, Snapshot(np.ones(SIZE, np.float32), 5, 4, 0.5))
    return table, member.place


def shown(table):
    """As three kinds of readers see them: members, rows, and a checkpoint."""
    saved = table.state()["identity"][:, 0]
    return (
        [str(member.ref) for member in table.population().members],
        [str(ref) for ref, *_ in table.rows()],
        np.flatnonzero(saved >= 0).tolist(),
    )


def test_a_copy_is_seen_once_it_is_whole():
    table, place = table_with_copy()
    assert shown(table) == (["a", "b", "a@5"], ["a", "b", "a@5"], [0, 1, place])
    (copy,) = table.population().frozen
    assert (copy.place, copy.parent, copy.born) == (place, PolicyRef("a"), 7)
    writing = table.occupants.begin_writing(place)
    assert shown(table) == (["a", "b"], ["a", "b"], [0, 1])
    table.occupants.end_writing(place, writing)
    assert shown(table) == (["a", "b", "a@5"], ["a", "b", "a@5"], [0, 1, place])


def test_the_successor_empties_a_place_that_was_left_half_written():
    table, place = table_with_copy()
    table.pairs[:, :, place] = 4.0
    table.occupants.begin_writing(place)
    assert table.occupants.sequence[place] % 2 == 1
    table.repair()
    assert not (table.occupants.sequence % 2).any()
    assert not table.occupants.is_there(place)
    assert not table.pairs.any()
    assert shown(table) == (["a", "b"], ["a", "b"], [0, 1])


@pytest.mark.parametrize("emptied", [False, True])
def test_a_policy_that_retired_is_shown_no_more_and_leaves_when_its_matches_are_over(emptied):
    table, place = table_with_copy()
    table.occupants.leave(place)
    assert table.occupants.leaving == [place]
    assert table.occupants.is_there(place)  # it still sits somewhere
    assert table.occupants.frozen == 0
    assert shown(table)[:2] == (["a", "b"], ["a", "b"])
    if emptied:
        table.occupants.remove(place)
    table.repair()  # an actor that died in between changes nothing
    assert table.occupants.leaving == ([] if emptied else [place])
    assert table.occupants.is_there(place) != emptied


def test_the_living_are_those_whose_places_are_not_empty():
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
