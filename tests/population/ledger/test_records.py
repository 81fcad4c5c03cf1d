"""Who is in a population, what came of their matches, and what they are rated."""

import numpy as np
import pytest

from population.results import Result, append, rate, results
from refusals import refuses
from remuda.errors import ConfigError, RunDirectoryError
from remuda.population.ledger.ledger import (
    BIRTH,
    FREEZE,
    Ledger,
    LedgerFile,
    read_records,
    record_type,
)
from remuda.population.ledger.lineage import read_lineage
from remuda.population.ledger.records import PLAYED, WELFARE, Member, PolicyRef, Population
from remuda.runs.rewind import rewind
from remuda.runs.run_directory import RunDirectory

A, B, C = PolicyRef("a"), PolicyRef("b"), PolicyRef("c")


def result(seats, returns, number=0):
    return Result(number, tuple(seats), tuple(returns))


def test_members_are_born_frozen_and_retired():
    population = Population([Member(A, hyperparameters={"learning_rate": 1e-3}), Member(B)])
    population[A].rate(30.0, 2.0)
    copy = population.freeze("a", 7, born=12)
    assert (copy.parent, copy.born, copy.rating, copy.learns) == (A, 12, 30.0, False)
    copy.hyperparameters["learning_rate"] = 5.0
    assert population[A].hyperparameters["learning_rate"] == 1e-3  # nothing is shared
    population.freeze("a", 3)
    assert [m.ref.version for m in population.past_of("a")] == [3, 7]
    assert [m.ref for m in population.learning] == [A, B]
    assert str(copy.ref) == "a@7"
    with refuses(ConfigError):
        population.freeze("a", 7)
    population.retire(PolicyRef("a", 3))
    assert PolicyRef("a", 3) not in population
    assert len(population) == 3


def test_the_ledger_counts_wins_draws_and_payoffs_between_seats():
    ledger = Ledger(Population([Member(A), Member(B), Member(C)]))
    assert append(ledger, result([A, B], [3.0, 1.0]))
    assert append(ledger, result([B, A], [2.0, 2.0]))
    assert not append(ledger, result([A, PolicyRef("gone")], [0.0, 1.0]))
    assert ledger.meetings(A, B) == ledger.meetings(B, A) == 2
    assert ledger.win_rate(A, B, prior=0.0) == 0.75
    assert ledger.win_rate(B, A, prior=0.0) == 0.25
    assert ledger.win_rate(A, B, prior=2.0) == pytest.approx(2.5 / 4)
    assert ledger.win_rate(A, C) == ledger.win_rate(A, C, prior=0.0) == 0.5
    expected = [ledger.win_rate(A, B, prior=2.0), 0.5]
    assert ledger.win_rates(A, [B, C], prior=2.0).tolist() == pytest.approx(expected)
    assert ledger.payoff(A, B) == 2.5
    assert np.isnan(ledger.payoff(A, C))
    append(ledger, result([A, A, C], [1.0, 0.0, 0.5]))  # on two seats: two meetings with c
    assert ledger.meetings(A, C) == 2
    assert ledger.win_rate(A, C, prior=0.0) == 0.5


def some_records(count, begin=0):
    records = np.zeros(count, record_type(2))
    records["number"] = np.arange(begin, begin + count)
    records["policy"], records["version"] = [0, 1], [-1, 9]
    records["returns"], records["truncated"] = [1.5, -1.5], True
    records["oldest"], records["newest"] = [3, 9], [5, 9]
    return records


def test_a_ledger_on_disk_is_appended_to_rewound_and_read(tmp_path):
    path = tmp_path / "ledger.bin"
    LedgerFile(path, ("a", "b"), 2).append(some_records(3))
    with path.open("ab") as file:
        file.write(b"half a record")  # of one that died while it wrote
    ledger = LedgerFile(path, ("a", "b"), 2)
    ledger.append(some_records(2, 3))
    assert [each.number for each in results(path)] == [0, 1, 2, 3, 4]
    found = next(results(path))
    assert found == (0, (A, PolicyRef("b", 9)), (1.5, -1.5), ((3, 5), (9, 9)), True)
    ledger.rewind(4)
    assert len(read_records(path)[1]) == 4
    ledger.rewind(100)
    assert len(read_records(path)[1]) == 4
    with refuses(RunDirectoryError):
        read_records(tmp_path / "other")


def test_a_resume_keeps_what_it_cuts_from_the_ledger(tmp_path):
    run = RunDirectory(tmp_path)
    run.config.write_text("seed: 0\n")
    ledger = LedgerFile(run.ledger, ("a", "b"), 2)
    ledger.append(some_records(5))
    for records in (3, 3, 5, 9):  # the second after a death before it was cut
        rewind(run, 0, records)
    ledger.rewind(3)
    for kept in (tmp_path / "earlier" / "1", tmp_path / "earlier" / "2"):
        assert [each.number for each in results(kept / "ledger.bin")] == [3, 4]
    assert [each.number for each in results(run.ledger)] == [0, 1, 2]
    assert not (tmp_path / "earlier" / "3" / "ledger.bin").exists()
    assert not (tmp_path / "earlier" / "4" / "ledger.bin").exists()


def test_ratings_tell_who_is_better_and_how_sure_that_is():
    population = Population([Member(A), Member(B), Member(C)])
    skill, random = {A: 1.0, B: 0.0, C: -1.0}, np.random.default_rng(0)
    for i in range(300):
        pair = [(A, B), (B, C), (C, A)][i % 3]
        rate(population, result(pair, [skill[ref] + random.normal() for ref in pair], i))
    a, b, c = (population[ref] for ref in (A, B, C))
    assert a.rating > b.rating + 2 > c.rating + 4
    assert all(member.uncertainty < 3.0 for member in (a, b, c))


def test_ratings_of_teams_and_of_many_at_once():
    population = Population([Member(PolicyRef(f"p{i}")) for i in range(4)])
    refs = [member.ref for member in population.members]
    for i in range(40):
        rate(
            population, result(refs, [1.0, 0.0, 0.0, 0.6], i), teams=["red", "blue", "blue", "red"]
        )
    red, blue = [population[refs[i]].rating for i in (0, 3)], [population[refs[1]].rating]
    assert min(red) > max(blue) + 5
    assert red[0] == pytest.approx(red[1])
    everyone = Population([Member(PolicyRef(f"p{i}")) for i in range(4)])
    for i in range(60):
        rate(everyone, result(refs, [4.0, 3.0, 2.0, 1.0], i))
    ratings = [member.rating for member in everyone.members]
    assert ratings == sorted(ratings, reverse=True)


def test_a_match_against_oneself_changes_no_rating_and_the_retired_none():
    population = Population([Member(A), Member(B)])
    ledger = Ledger(population)
    rate(population, result([A, A], [1.0, 0.0]))
    append(ledger, result([A, A], [1.0, 0.0]))
    assert population[A].rating == pytest.approx(25.0)
    assert (population[A].games, population[A].total_reward) == (2, 1.0)
    assert population[A].numbers[[PLAYED, WELFARE]].tolist() == [1.0, 1.0]  # of one match
    population.retire(B)
    rate(population, result([A, B], [1.0, 0.0], 1))
    assert population[A].rating == pytest.approx(25.0)


def test_lineage_tells_of_which_generation_a_frozen_parent_was(tmp_path):
    """Red before: of the newest in the parent's slot, whenever its copy had been frozen."""

    def record(kind, policy, version=-1, generation=0, parent=(-1, -1)):
        found = np.zeros(1, record_type(2))
        found["kind"], found["policy"][:, 0], found["version"][:, 0] = kind, policy, version
        found["returns"][:, 0] = generation
        found["oldest"][:, 0], found["newest"][:, 0] = parent
        return found

    a, b = 0, 1
    told = [
        record(BIRTH, a, generation=1),
        record(FREEZE, a, version=5),
        record(BIRTH, a, generation=2),
        record(BIRTH, b, generation=1, parent=(a, 5)),
        record(BIRTH, b, generation=2, parent=(a, 9)),
    ]
    LedgerFile(tmp_path / "ledger.bin", ("a", "b"), 2).append(np.concatenate(told))
    born = [each for each in read_lineage(tmp_path / "ledger.bin") if each.policy == "b"]
    assert [(each.parent_version, each.parent_generation) for each in born] == [(5, 1), (9, 2)]
