"""The roster: policies, seats, teams and empty slots, as the configuration and the game say."""

import pytest

from refusals import refuses
from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.errors import ConfigError
from remuda.population.members.imported import Origin
from remuda.population.members.table_parts import Slots
from remuda.population.roster import Roster

AGENTS = tuple(f"agent_{i}" for i in range(4))


def roster_of(**population):
    config = load_config({"game": "bucket_brigade", "population": population})
    return Roster.of(config, make_env("bucket_brigade", 1).agents)


def origin(name, like):
    return Origin(name, 3, like, "/runs/other", "policy_9", 7, 0.0)


def test_where_seats_are_not_dealt_every_agent_has_a_policy_of_its_name():
    roster = roster_of()
    assert roster.agents == roster.first == roster.policies == AGENTS
    assert roster.unborn == ()
    assert roster.seats == {}
    assert [roster.seats_of(name) for name in AGENTS] == [[0, 1, 2, 3]] * 4
    assert roster_of(seats={"agent_0": AGENTS[:1]}).seats == {}  # it has no effect there


def test_empty_slots_come_after_the_policies_that_there_are():
    births = {"slots": 2}
    roster = roster_of(
        matchmaker="random", policies=3, births=births, seats={"born_1": AGENTS[1:3]}
    )
    assert roster.first == ("policy_0", "policy_1", "policy_2")
    assert roster.unborn == ("born_0", "born_1")
    assert roster.policies == roster.first + roster.unborn
    assert roster.seats == {"born_1": frozenset({1, 2})}
    assert roster.seats_of("born_1") == [1, 2]
    assert roster.seats_of("born_0") == [0, 1, 2, 3]


def test_who_may_take_all_seats_by_name_is_kept_to_none():
    roster = roster_of(matchmaker="random", policies=["a", "b"], seats={"a": AGENTS})
    assert roster.seats == {}


def test_teams_say_who_may_sit_where():
    teams = {
        "red": {"policies": ["a", "b"], "agents": AGENTS[:1]},
        "blue": {"policies": ["c"], "agents": AGENTS[1:]},
    }
    roster = roster_of(matchmaker="teams", teams=teams)
    assert roster.teams == ("red", "blue", "blue", "blue")
    assert roster.policies == ("a", "b", "c")
    assert roster.seats_of("b") == [0]
    assert roster.seats_of("c") == [1, 2, 3]


def test_among_some_policies_the_seats_stay_what_they_are():
    births = {"slots": 1}
    roster = roster_of(matchmaker="random", policies=3, births=births, seats={"born_0": AGENTS[:1]})
    some = roster.among(["policy_2", "born_0"])
    assert some.policies == some.first == ("policy_2", "born_0")
    assert some.unborn == ()
    assert some.seats_of("born_0") == [0]
    assert roster.policies == ("policy_0", "policy_1", "policy_2", "born_0")


def test_a_member_of_another_run_takes_the_seats_of_the_policy_that_it_is_like():
    roster = roster_of(matchmaker="random", policies=["a", "b"], seats={"a": AGENTS[:2]})
    members = [origin("x", "a"), origin("y", "b")]
    found = roster.with_imported(members)
    assert found.seats_of("x") == [0, 1]
    assert found.seats_of("y") == [0, 1, 2, 3]
    assert found.policies == ("a", "b")
    assert "x" not in roster.seats


@pytest.mark.parametrize(
    "population",
    [
        {"policies": ["a", "a"]},
        {"policies": ["a", "b"], "seats": {"c": AGENTS[:1]}},
        {"policies": ["a", "b"], "seats": {"a": ["judge"]}},
        {"policies": ["a", "b"], "seats": {"a": []}},
    ],
)
def test_a_name_that_there_is_not_is_refused(population):
    with refuses(ConfigError):
        roster_of(matchmaker="random", **population)


@pytest.mark.parametrize(("blue", "key"), [(["a", "b"], "policy a"), ([], "teams.blue")])
def test_impossible_teams_are_refused(blue, key):
    teams = {
        "red": {"policies": ["a"], "agents": AGENTS[:1]},
        "blue": {"policies": blue, "agents": AGENTS[1:]},
    }
    with refuses(ConfigError, key):
        roster_of(matchmaker="teams", policies=["a", "b"], teams=teams)


def test_each_slot_is_somewhere_once():
    slots = Slots(["a", "b"], 2, [origin("x", "a"), origin("x", "b"), origin("y", "b")])
    assert slots.names == ("a", "b", "x", "y")
    copies = {name: list(slots.copies_of(name)) for name in "ab"}
    assert [0, 1, *copies["a"], *copies["b"], *slots.imported] == list(range(len(slots)))
    for name, own in copies.items():
        assert [slots.row_of(slot) for slot in own] == [(name, 0), (name, 1)]
    assert [slots.of(name) for name in ("a", "b", "x", "y")] == [0, 1, 6, 8]
