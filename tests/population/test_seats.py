"""Seats that a configuration keeps to some policies: obeyed, refused, or told to be of no use."""

import pytest

from remuda.config import load_config
from remuda.effects import without_effect
from remuda.envs.registry import make_env
from remuda.errors import ConfigError
from remuda.population.matchmaking import Matchmaker
from remuda.population.setup import check_population, policy_names, seats_of

BOTH = ("agent_0", "agent_1")


def config_of(**population):
    tree = {"game": "connect_four", "policy": {"algorithm": "ppo"}, "population": population}
    return load_config(tree)


def check(**population):
    config = config_of(**population)
    agents = make_env(config.game, 1).agents
    names = policy_names(config, agents)
    check_population(config, agents, names)
    return seats_of(config, agents, names)


class InOrder(Matchmaker):
    """A matchmaker of a user's own, that looks at nobody's seats."""

    def seat(self, population, ledger, random):
        return tuple(member.ref for member in population.members[: self.num_seats])


@pytest.mark.parametrize("matchmaker", ["fixed", "population.test_seats:InOrder"])
def test_a_seating_that_breaks_seats_is_refused(matchmaker):
    """`fixed` dealt the first policy the first seat, whatever population.seats said."""
    said = f"{matchmaker} deals a the seat of agent_0, and population.seats.a keeps it to agent_1"
    with pytest.raises(ConfigError, match=said):
        check(matchmaker=matchmaker, policies=("a", "b"), seats={"a": BOTH[1:], "b": BOTH[:1]})


@pytest.mark.parametrize("matchmaker", ["fixed", "population.test_seats:InOrder"])
def test_a_seating_that_keeps_to_seats_is_not_refused(matchmaker):
    allowed = check(
        matchmaker=matchmaker, policies=("a", "b"), seats={"a": BOTH[:1], "b": BOTH[1:]}
    )
    assert allowed == {"a": {0}, "b": {1}}


def teams(*names, **population):
    sides = {"red": {"policies": ("a",), "agents": BOTH[:1]}}
    sides["blue"] = {"policies": ("b", "d"), "agents": BOTH[1:]}
    return check(matchmaker="teams", policies=names, teams=sides, **population)


def test_a_policy_of_no_team_is_refused():
    said = "teams never deals c, .* population.teams.TEAM.policies"
    with pytest.raises(ConfigError, match=said):
        teams("a", "b", "c", "d")


@pytest.mark.parametrize("seats", [BOTH, BOTH[:1]])
def test_a_policy_of_no_team_is_refused_whatever_its_seats(seats):
    """A KeyError where they were all there are; told to leave its seats out where not."""
    with pytest.raises(ConfigError, match="teams never deals c, of no team; add to population"):
        teams("a", "b", "c", "d", seats={"c": seats})


def test_a_policy_too_many_for_fixed_is_refused_whatever_its_seats():
    """A KeyError where they were all there are."""
    with pytest.raises(ConfigError, match="fixed never deals c: it seats one policy for each"):
        check(matchmaker="fixed", policies=("a", "b", "c"), seats={"c": BOTH})


def test_a_policy_without_a_seat_in_its_team_is_refused():
    said = "teams never deals d, which population.seats.d keeps to agent_0"
    with pytest.raises(ConfigError, match=said):
        teams("a", "b", "d", seats={"d": BOTH[:1]})


def test_teams_of_which_all_are_dealt_are_not_refused():
    assert teams("a", "b", "d", seats={"d": BOTH[1:]}) == {"a": {0}, "b": {1}, "d": {1}}


def test_who_may_take_all_seats_by_name_may_take_all():
    """`self_play` refused it as never dealt."""
    assert check(matchmaker="self_play", seats={"policy": BOTH}) == {}


@pytest.mark.parametrize(
    ("population", "key"),
    [
        ({"seats": {"agent_0": BOTH[1:]}}, "seats"),
        ({"births": {"places": 2}, "matchmaker": "random"}, "births.places"),
        ({"births": {"every": 30}}, "births.every"),
        ({"matchmaker": "self_play", "newest": 0.8}, "newest"),
        (
            {"matchmaker": "self_play", "newest": 0.8, "snapshots": {"every": 5, "share": 0.3}},
            "newest",
        ),
        ({"snapshots": {"win_rate": 0.7}}, "snapshots.win_rate"),
    ],
)
def test_what_nothing_in_a_population_reads_is_told(population, key):
    """Places without births had learners that slept for ever, and nobody was told."""
    (told,) = without_effect(config_of(**population))
    assert told.startswith(f"population.{key} has no effect without ")


@pytest.mark.parametrize(
    "population",
    [
        {"seats": {"agent_0": BOTH[:1]}, "matchmaker": "random"},
        {"births": {"places": 2, "every": 30}, "matchmaker": "random"},
        {"births": {"places": 2}, "director": "mine:Mine", "matchmaker": "random"},
        {"matchmaker": "self_play", "newest": 0.8, "snapshots": {"every": 5}},
        {"snapshots": {"win_rate": 0.7}, "matchmaker": "random"},
    ],
)
def test_what_a_population_reads_is_not_told(population):
    assert without_effect(config_of(**population)) == []
