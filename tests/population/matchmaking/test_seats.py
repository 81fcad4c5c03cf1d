"""Seats that a configuration keeps to some policies: obeyed, refused, or told to be of no use."""

import numpy as np
import pytest

from refusals import refuses
from remuda.config import load_config
from remuda.config.unused_settings import unused_settings
from remuda.envs.registry import make_env
from remuda.errors import ConfigError
from remuda.population.dealing.lead import League
from remuda.population.ledger.records import PolicyRef
from remuda.population.matchmaking.matchmaker import Matchmaker
from remuda.population.members.table import Table
from remuda.population.roster import Roster
from remuda.population.setup import check_population, sits_once
from remuda.ui.cli.main import run

BOTH = ("agent_0", "agent_1")


def config_of(**population):
    tree = {"game": "connect_four", "policy": {"algorithm": "ppo"}, "population": population}
    return load_config(tree)


def check(**population):
    config = config_of(**population)
    roster = Roster.of(config, make_env(config.game, 1).agents)
    check_population(config, roster)
    return roster.seats


class InOrder(Matchmaker):
    """A matchmaker of a user's own, that does not look at who may take which seat."""

    def seat(self, population, ledger, random):
        return tuple(member.ref for member in population.members[: self.num_seats])


@pytest.mark.parametrize("matchmaker", ["fixed", "population.matchmaking.test_seats:InOrder"])
def test_a_seating_that_breaks_seats_is_refused(matchmaker):
    """`fixed` dealt the first policy the first seat, whatever population.seats said."""
    with refuses(ConfigError):
        check(matchmaker=matchmaker, policies=("a", "b"), seats={"a": BOTH[1:], "b": BOTH[:1]})


@pytest.mark.parametrize("matchmaker", ["fixed", "population.matchmaking.test_seats:InOrder"])
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
    with refuses(ConfigError):
        teams("a", "b", "c", "d")


@pytest.mark.parametrize("seats", [BOTH, BOTH[:1]])
def test_a_policy_of_no_team_is_refused_whatever_its_seats(seats):
    """A KeyError where they were all there are; told to leave its seats out where not."""
    with refuses(ConfigError):
        teams("a", "b", "c", "d", seats={"c": seats})


def test_a_policy_too_many_for_fixed_is_refused_whatever_its_seats():
    """A KeyError where they were all there are."""
    with refuses(ConfigError):
        check(matchmaker="fixed", policies=("a", "b", "c"), seats={"c": BOTH})


def test_a_policy_without_a_seat_in_its_team_is_refused():
    with refuses(ConfigError):
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
        ({"births": {"slots": 2}, "matchmaker": "random"}, "births.slots"),
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
    """Slots without births had learners that slept for ever, and no message said so."""
    (told,) = unused_settings(config_of(**population))
    assert told.startswith(f"population.{key} has no effect without ")


@pytest.mark.parametrize(
    "population",
    [
        {"seats": {"agent_0": BOTH[:1]}, "matchmaker": "random"},
        {"births": {"slots": 2, "every": 30}, "matchmaker": "random"},
        {"births": {"slots": 2}, "director": "mine:Mine", "matchmaker": "random"},
        {"matchmaker": "self_play", "newest": 0.8, "snapshots": {"every": 5}},
        {"snapshots": {"win_rate": 0.7}, "matchmaker": "random"},
    ],
)
def test_what_a_population_reads_is_not_told(population):
    assert unused_settings(config_of(**population)) == []


class Turncoat(Matchmaker):
    """Another, that keeps to the seats in its first match only."""

    def seat(self, population, ledger, random):
        refs = [member.ref for member in population.members]
        return tuple(refs) if self.proposed < 3 else tuple(reversed(refs))


class Stranger(Turncoat):
    """And one that seats a policy that is not in the population."""

    def seat(self, population, ledger, random):
        refs = [member.ref for member in population.members]
        return tuple(refs) if self.proposed < 3 else (refs[0], PolicyRef("a", 7))


class Short(Turncoat):
    """And one that leaves a seat empty."""

    def seat(self, population, ledger, random):
        return super().seat(population, ledger, random)[: 2 if self.proposed < 3 else 1]


@pytest.mark.slow_cases("Stranger-said1", "Turncoat-said0")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "Turncoat",
            "the matchmaker population.matchmaking.test_seats:Turncoat deals b the seat of "
            "agent_0, but population.seats.b restricts it to agent_1; let its `seat` call "
            "Member.may_sit",
        ),
        (
            "Stranger",
            "the matchmaker population.matchmaking.test_seats:Stranger deals agent_1 to a@7, which "
            "is not in the population; there are a, b",
        ),
        ("Short", "population.matchmaking.test_seats:Short deals 1 seats, but the game has 2"),
    ],
)
def test_every_match_that_is_dealt_is_checked(name, said, tmp_path, capsys):
    """Only the first was: the others were played, by policies on seats that were not theirs."""
    words = ("--population.matchmaker", f"population.matchmaking.test_seats:{name}")
    words += ("--population.policies", "[a,b]", "--population.seats.b", "[agent_1]")
    words += ("--policy.algorithm", "ppo", "--schedule", "sequential", "--run.turns", "200")
    words += ("--env.num_envs", "2", "--run.directory", str(tmp_path / "run"))
    assert run(["train", "connect_four", *words, "--run.live", "false"]) == 2
    told = capsys.readouterr()
    assert said in " ".join((told.out + told.err).split())
    assert "Traceback" not in told.out + told.err


def test_a_league_seats_no_policy_where_it_may_not_sit():
    table = Table({"a": 0, "b": 0}, 2, 0)
    league = League(
        table,
        Turncoat(2),
        None,
        np.random.default_rng(0),
        2,
        Roster(BOTH, seats={"a": frozenset({0})}),
    )
    both = np.ones(2, np.bool_)
    league.deal(both)
    seated = league.seated.copy()
    with refuses(ConfigError):
        league.deal(both)  # matches 2 and 3
    assert np.array_equal(league.seated[1], seated[1])


class Twin(Matchmaker):
    """Says that no policy sits twice, and seats one twice."""

    seats_differ = True

    def seat(self, population, ledger, random):
        return [population.members[0].ref] * self.num_seats


def test_whether_policies_sit_once_is_asked_of_the_matchmaker_s_class():
    for name, once in (("random", True), ("self_play", False), (f"{__name__}:Twin", True)):
        tree = {"matchmaker": name, "policies": ["a", "b"]}
        config = load_config({"game": "connect_four", "population": tree})
        roster = Roster.of(config, make_env("connect_four", 1).agents)
        assert sits_once(config.population, roster) is once


def test_a_class_that_says_so_and_seats_one_twice_is_told():
    table = Table({"a": 0, "b": 0}, 2, 0)
    league = League(table, Twin(2), None, np.random.default_rng(0), 1, Roster(BOTH), once=True)
    with refuses(ConfigError):
        league.deal(np.ones(1, np.bool_))
