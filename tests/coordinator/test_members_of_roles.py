"""Analyses during a run of roles whose members are fixed, new, many or named after agents."""

from dataclasses import replace

import numpy as np
import pytest

from remuda.analysis.payoffs.empirical_game import Role
from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.ledger_reader import KEY
from remuda.analysis.payoffs.ledger_seats import LedgerSeats, SeatGroup
from remuda.analysis.payoffs.payoffs import from_sums
from remuda.analysis.payoffs.sums import ROWS, add_up
from remuda.config import load_config, overlay
from remuda.coordinator import recent_payoffs
from remuda.coordinator.analysing import _members_of_roles, chosen
from remuda.coordinator.analysis_helper import gapless, measure, measure_roles, measured
from remuda.coordinator.recent_payoffs import RecentLineUps, RecentPayoffs, places_of
from remuda.population.ledger.ledger import MATCH, LedgerFile, record_type
from remuda.population.members.table import Table
from remuda.population.run_spec import RunSpec

TREE = {
    "game": "tag",
    "env": {"options": {"num_agents": 6}, "scripted": {"agent_5": "random"}},
    "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}},
}
RED, BLUE = ("agent_0", "agent_1"), ("agent_2", "agent_3", "agent_4")


def spec_of(red, blue, **population):
    teams = {"red": {"agents": RED, "policies": red}, "blue": {"agents": BLUE, "policies": blue}}
    more = {"population": {"matchmaker": "teams", "teams": teams, **population}}
    return RunSpec.of(load_config(overlay(TREE, more)))


def table_of(spec):
    population = spec.config.population
    scripted = (*population.scripted, *spec.config.seats_taken)
    return Table(dict.fromkeys(spec.roster.policies, 0), 6, 0, scripted=scripted)


@pytest.mark.parametrize("listed", [(3, 7), (7, 3)])
def test_the_equilibrium_is_that_of_the_members_whatever_their_order(listed):
    """Blue's members are two versions of one policy: version 7 earns 1, and version 3 nothing."""
    rng = np.random.default_rng(0)
    groups = tuple(SeatGroup(name, (seat,)) for seat, name in enumerate(("red", "blue", "green")))
    line_ups = RecentLineUps(
        LedgerSeats((0, 1, 2), (0, 1, 2), groups),
        [[(0, -1), (1, -1)], [(2, version) for version in listed], [(3, -1)]],
    )
    red, version = rng.integers(0, 2, 2000), rng.choice([3, 7], 2000)
    keys = np.stack([red * KEY, 2 * KEY + version + 1, np.full(2000, 3 * KEY)], 1)
    earned = 1.0 * (version == 7)
    returns = np.stack([-earned, earned, 0.0 * earned], 1) + rng.normal(0.0, 0.1, (2000, 3))
    line_ups.add(keys, returns)
    members = np.array([0, KEY, 2 * KEY + 8, 2 * KEY + 4, 3 * KEY])  # the newest version first
    sums = np.zeros((ROWS, 5, 5))
    add_up(places_of(keys, members), returns, np.array([0, 1, 2]), True, False, sums)
    payoffs = from_sums([str(key) for key in members], sums, True)
    live = np.array([True, True, False, False, True])
    _, earned, mixed = measure_roles(replace(line_ups.game(), meetings=payoffs), live)
    assert earned[2:4] == pytest.approx([1.0, 0.0], abs=0.05)
    assert mixed[2:] == pytest.approx([1.0, 0.0, 1.0], abs=1e-6)


def test_a_scripted_policy_may_have_the_name_of_an_agent(tmp_path):
    spec = spec_of(("a", "b"), ("agent_3",), scripted={"agent_3": "random"})
    seats, table = LedgerSeats.of(spec), table_of(spec)
    roles = _members_of_roles(spec, table, seats)
    assert [[table.names[policy] for policy, _ in role] for role in roles] == [
        ["a", "b"],
        ["agent_3"],
    ]
    recent = RecentPayoffs(tmp_path / "ledger.bin", seats, roles)
    recent.look_at(chosen(table, 64, tuple(spec.config.seats_taken), roles))
    append_matches(tmp_path / "ledger.bin", table)
    recent.read()
    numbers, *_ = measured(recent, np.array([True, True, False]))
    assert numbers.analysed == 3
    assert places_of(np.array([1, 2]), np.zeros(0, np.int64)).tolist() == [-1, -1]


def append_matches(path, table, count=40):
    records = np.zeros(count, record_type(6))
    records["kind"], records["version"] = MATCH, -1
    places = {name: place for place, name in enumerate(table.names)}
    fixed = {each.policy: each.version for each in table.slots.outsiders.values()}
    names = ("a", "b", "agent_3", "agent_3", "agent_3", "agent_5")
    for seat, name in enumerate(names):
        records["policy"][:, seat] = places[name]
        records["version"][:, seat] = fixed.get(name, -1)
    records["returns"] = np.random.default_rng(0).normal(size=(count, 6))
    LedgerFile(path, table.names, 6).append(records)


def test_records_count_once_although_they_could_not_be_added_up(tmp_path, monkeypatch):
    spec = spec_of(("a", "b"), ("agent_3",), scripted={"agent_3": "random"})
    seats, table = LedgerSeats.of(spec), table_of(spec)
    roles = _members_of_roles(spec, table, seats)
    append_matches(tmp_path / "ledger.bin", table)
    recent = RecentPayoffs(tmp_path / "ledger.bin", seats, roles)
    recent.look_at(chosen(table, 64, tuple(spec.config.seats_taken), roles))

    def fails(self, keys, returns):
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(RecentLineUps, "add", fails)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                recent.read()
    recent.read()
    assert recent.game().counts.tolist() == [40]
    whole = RecentPayoffs(tmp_path / "ledger.bin", seats, roles)
    whole.look_at(chosen(table, 64, tuple(spec.config.seats_taken), roles))
    whole.read()
    assert np.array_equal(recent.game().payoffs.counts, whole.game().payoffs.counts)


@pytest.mark.parametrize(
    ("red", "blue", "newborn"), [(1, 5, 1), (1, 5, 2), (2, 5, 2), (2, 5, 3), (3, 8, 4), (1, 5, 4)]
)
def test_newcomers_are_left_out_and_not_the_old_policies_of_a_small_team(red, blue, newborn):
    rng, count = np.random.default_rng(0), red + blue
    names = [str(number) for number in range(count)]
    met = np.stack([rng.integers(0, red, 5000), rng.integers(red, count - newborn, 5000)], 1)
    sums = np.zeros((ROWS, count, count))
    add_up(met, rng.normal(size=(5000, 2)), np.array([0, 1]), True, False, sums)
    roles = (Role("red", tuple(names[:red])), Role("blue", tuple(names[red:])))
    payoffs = from_sums(names, sums, True)
    numbers, _, mixed = measure_roles(game_of_meetings(payoffs, roles), np.ones(count, np.bool_))
    assert numbers.analysed == count - newborn
    assert np.isfinite(mixed).tolist() == [True] * (count - newborn) + [False] * newborn


def test_no_role_is_emptied():
    """The only red member met nobody."""
    known = np.zeros((4, 4), np.bool_)
    known[1:, 1:] = True
    live, roles = np.ones(4, np.bool_), np.array([0, 1, 1, 2])
    assert gapless(known, live, roles).tolist() == []
    known[0, 1] = known[1, 0] = known[0, 3] = known[3, 0] = True
    assert gapless(known, live, roles).tolist() == [0, 1, 3]


def test_roles_take_turns_if_there_are_too_many_members():
    spec = spec_of(
        ("a", "b", "c", "d"), ("bot", "other"), scripted={"bot": "random", "other": "random"}
    )
    table = table_of(spec)
    roles = _members_of_roles(spec, table, LedgerSeats.of(spec))
    found = chosen(table, 3, ("agent_5",), roles)
    assert [table.names[policy] for policy in found[:, 0]] == ["a", "b", "bot"]
    assert len(chosen(table, 64, ("agent_5",), roles)) == 6
    several = [*[[member] for member in roles[0]], roles[1]]
    assert len(chosen(table, 2, ("agent_5",), several)) == 5, "a member of each role"


def test_line_ups_of_many_seats_are_dropped_before_they_fill_the_memory(monkeypatch):
    """Few policies on many seats: the covariances of seats are more than those of policies."""
    monkeypatch.setattr(recent_payoffs, "LARGEST", 10_000)
    seats = tuple(range(20))
    line_ups = RecentLineUps(
        LedgerSeats(seats, seats, (SeatGroup("players", seats),)), [[(p, -1) for p in range(3)]]
    )
    rng = np.random.default_rng(0)
    line_ups.add(np.zeros((5, 20), np.int64), rng.normal(size=(5, 20)))
    assert line_ups.game().counts.tolist() == [5]
    line_ups.add(rng.integers(0, 3, (300, 20)) * KEY, rng.normal(size=(300, 20)))
    assert line_ups.game() is None


def test_the_equilibrium_of_a_single_role_is_that_of_its_members_whatever_their_order():
    """Policies 0 to 3 on three seats, of which policy 3 always earns most."""
    rng = np.random.default_rng(0)
    seats = LedgerSeats((0, 1, 2), (0, 1, 2), (SeatGroup("players", (0, 1, 2)),))
    line_ups = RecentLineUps(seats, [[(policy, -1) for policy in range(4)]])
    played = np.array([rng.permutation(4)[:3] for _ in range(2000)])
    returns = 1.0 * (played == 3) + rng.normal(0.0, 0.1, played.shape)
    line_ups.add(played * KEY, returns)

    def mixture_of(order):
        members = np.array(order) * KEY
        sums = np.zeros((ROWS, 4, 4))
        add_up(places_of(played * KEY, members), returns, np.arange(3), True, False, sums)
        payoffs = from_sums([str(key) for key in members], sums, True)
        return measure(replace(line_ups.game(), meetings=payoffs), np.ones(4, np.bool_))[2]

    found = mixture_of([3, 0, 1, 2])
    assert found.argmax() == 0
    assert found == pytest.approx(np.roll(mixture_of([0, 1, 2, 3]), 1), abs=1e-6)
