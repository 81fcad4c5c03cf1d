"""A seat that took no part in a match moves nothing of its policy: sums, ratings, teams."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from rich.console import Console

import remuda
from absent_agents import RETURNS
from remuda.population.ledger.ledger import count
from remuda.population.ledger.ratings import count_metrics, count_teams, rate_all, sides_of
from remuda.population.ledger.records import (
    FRESH,
    RATING,
    UNCERTAINTY,
)
from remuda.runs.run_directory import RunDirectory
from remuda.ui.terminal.status import current_status, print_status

SLOTS = 5


def after(slots, returns, sides, numbers):
    """All that one match changes: the members' numbers, sums of pairs, and recent ones."""
    numbers = numbers.copy()
    slots, returns, over = np.array([slots]), np.array([returns]), np.ones(1, np.bool_)
    pairs, recent = np.ones((4, SLOTS, SLOTS)), np.ones((2, SLOTS, SLOTS))
    told = np.array([[3.0]], np.float32)
    count(slots, returns, over, pairs, numbers, recent, 0.5)
    rate_all(slots, returns, over, sides, numbers)
    count_teams(slots, returns, over, sides, numbers)
    count_metrics(slots, returns, told, over, numbers, len(FRESH))
    return numbers, pairs, recent


@some.composite
def matches(draw):
    seats = draw(some.integers(2, 6))
    teams = some.lists(some.sampled_from(["", "red", "blue"]), min_size=seats, max_size=seats)
    slots = some.lists(some.integers(0, SLOTS - 1), min_size=seats, max_size=seats)
    returns = some.lists(some.integers(-2, 2), min_size=seats, max_size=seats)
    there = some.lists(some.booleans(), min_size=seats, max_size=seats)
    earned = np.where(draw(there), np.array(draw(returns), np.float64), np.nan)
    return draw(slots), earned, draw(teams), draw(some.integers(0, 2**32 - 1))


@settings(max_examples=300, deadline=None)
@given(matches())
def test_a_match_counts_as_if_absent_seats_were_not_there(match):
    slots, returns, teams, seed = match
    random = np.random.default_rng(seed)
    numbers = np.tile(np.array([*FRESH, 0.0, 0.0]), (SLOTS, 1))
    numbers[:, RATING] = random.normal(25.0, 10.0, SLOTS)
    numbers[:, UNCERTAINTY] = random.uniform(0.4, 9.0, SLOTS)
    sides = sides_of(teams, len(slots))
    found = after(slots, returns, sides, numbers)
    there = np.flatnonzero(np.isfinite(returns))
    if len(there):
        order = np.unique(sides[there], return_inverse=True)[1]
        expected = after(np.array(slots)[there], returns[there], order, numbers)
    else:
        expected = (numbers, np.ones((4, SLOTS, SLOTS)), np.ones((2, SLOTS, SLOTS)))
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)
    never = sorted(set(range(SLOTS)) - {slots[seat] for seat in there})
    assert np.array_equal(found[0][never], numbers[never])


TREE = {
    "env": {"num_envs": 4},
    "policy": {"algorithm": "dqn", "network": {"hidden": [8]}, "experience": {"segment_length": 8}},
    "schedule": "sequential",
    "checkpoint": {"every": 3600, "evaluate_episodes": 0},
}


def told_by(ledger, policy, agents):
    """The returns of a policy, and of how many of its seats there is none."""
    found = np.concatenate(
        [ledger[f"{agent}/return"][ledger[f"{agent}/policy"] == policy] for agent in agents]
    )
    return found[np.isfinite(found)], int(np.isnan(found).sum())


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "mappo", "dqn", "iqn", "sac"])
def test_of_dealt_seats_those_that_took_part_count(tmp_path, algorithm):
    """Ledger, members, training, payoffs, win rates and evaluation agree about who took part."""
    names = ("a", "b", "c")
    result = remuda.train(
        "absent_agents:Guests",
        **TREE | {"policy": TREE["policy"] | {"algorithm": algorithm}},
        population={"matchmaker": "random", "policies": names},
        run={"turns": 4000, "directory": str(tmp_path / "run"), "evaluate_episodes": 12},
    )
    run = remuda.load(result.directory)
    ledger, members = run.ledger(), result.record.members
    by_agent = {agent: ledger[f"{agent}/return"] for agent in RETURNS}
    for agent, expected in RETURNS.items():
        there = by_agent[agent][np.isfinite(by_agent[agent])]
        assert set(there.tolist()) == ({expected} if expected else set())
    assert np.isfinite(by_agent["host"]).all()  # episodes of nobody are no matches
    assert 0.4 < np.isfinite(by_agent["guest"]).mean() < 0.6
    for name in names:
        earned, absent = told_by(ledger, name, RETURNS)
        assert absent
        assert members[name].games == len(earned) == result.record.policies[name].episodes
        assert members[name].mean_return == pytest.approx(earned.mean())
        assert result.record.policies[name].mean_return == pytest.approx(earned.mean())
        assert min(result.evaluation.policies[name]) >= 4.0
        totals = members[name].total_reward, result.record.policies[name].total_reward
        assert totals == pytest.approx((earned.sum(), earned.sum()))
        played = [ledger[f"{agent}/policy"] == name for agent in RETURNS]
        took_part = [
            own & np.isfinite(by_agent[agent]) for own, agent in zip(played, RETURNS, strict=True)
        ]
        everyone = np.nansum([by_agent[agent] for agent in RETURNS], 0)
        welfare = everyone[np.any(took_part, 0)].mean()
        assert members[name].welfare == pytest.approx(welfare)
        assert run.metrics()[f"{name}/total_reward"][-1] == pytest.approx(earned.sum())
    status = current_status(RunDirectory.open(result.directory))
    for kind, records in (("members", members), ("policies", result.record.policies)):
        told = {name: each["total_reward"] for name, each in status[kind].items()}
        assert told == {name: record.total_reward for name, record in records.items()}
    console = Console(file=io.StringIO(), width=200)
    print_status(result.directory, status, console)
    lines = [line for line in console.file.getvalue().splitlines() if "total" in line]
    assert len(lines) == 2  # over the policies, and over the members
    meetings = sum(
        np.isfinite(by_agent[one]) & np.isfinite(by_agent[other])
        & (ledger[f"{one}/policy"] != ledger[f"{other}/policy"])
        for i, one in enumerate(RETURNS)
        for other in list(RETURNS)[:i]
    ).sum()  # fmt: skip
    payoffs = run.payoffs()
    assert payoffs.names == names
    assert np.isfinite(payoffs.means).all()
    assert payoffs.means.min() >= 4.0
    assert meetings > 0


@pytest.mark.slow
@pytest.mark.parametrize("fitness", ["return", "team_return"])
def test_evolution_judges_by_matches_in_which_a_policy_took_part(tmp_path, fitness):
    """A policy is judged by what it earned where it played, in its own and its team's games."""
    result = remuda.train(
        "absent_agents:pairs",
        **TREE,
        population={
            "matchmaker": "random",
            "policies": 3,
            "evolution": {
                "every": 20,
                "games": 4,
                "confidence": 0.0,
                "fitness": fitness,
                "numbers": {"learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}},
            },
        },
        run={"turns": 4000, "directory": str(tmp_path / "run"), "evaluate_episodes": 4},
    )
    births = remuda.load(result.directory).lineage()
    judged = np.concatenate([births["fitness"], births["parent_fitness"]])
    judged = judged[np.isfinite(judged)]
    assert len(judged)
    assert judged.min() >= 4.0  # with zeros for guests that were away it would fall below


@pytest.mark.slow
def test_ratings_of_a_policy_that_never_takes_part_stay(tmp_path):
    result = remuda.train(
        "absent_agents:Guests",
        **TREE,
        population={
            "matchmaker": "random",
            "policies": ["a", "b", "away"],
            "seats": {"away": ["ghost"], "a": ["host", "other", "guest"]},
        },
        run={"turns": 1000, "directory": str(tmp_path / "run"), "evaluate_episodes": 4},
    )
    away = result.record.members["away"]
    assert (away.games, away.mean_return, away.win_rate) == (0, None, None)
    assert (away.rating, away.uncertainty) == (FRESH[RATING], FRESH[UNCERTAINTY])
    assert result.record.policies["away"].mean_return is None
    assert result.record.members["a"].games > 0
