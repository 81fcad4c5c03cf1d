"""Payoffs are read from ledgers of any length, whole or cut."""

from functools import partial

import numpy as np
import pytest

from ledgers import A, B, C, records, write_ledger
from refusals import refuses
from remuda.analysis.payoffs import ledger_reader
from remuda.analysis.payoffs.from_ledger import read_payoffs
from remuda.analysis.payoffs.ledger_reader import LedgerReader
from remuda.errors import RunDirectoryError, UsageError
from remuda.population.ledger.ledger import BIRTH, FREEZE, LOST, LedgerFile


@pytest.fixture
def ledger(tmp_path):
    return partial(write_ledger, tmp_path)


def test_payoffs_of_live_policies_and_copies_stand_in_order(ledger):
    path = ledger(
        [
            ((A, (1, 7)), (1.0, -1.0)),
            (((1, 7), A), (-3.0, 3.0)),
            ((A, (0, 0)), (5.0, -5.0)),
            ((B, (0, 12)), (2.0, 4.0)),
        ]
    )
    found = read_payoffs(path)
    assert found.names == ("a", "b", "a@0", "a@12", "b@7")
    assert found.matrix[0, 4] == 2.0
    assert found.counts[0, 4] == found.counts[4, 0] == 2
    assert found.matrix[1, 3] == 2.0
    assert found.matrix[3, 1] == 4.0
    assert np.isnan(found.matrix[0, 1])


def test_seats_that_are_unlike_are_two_roles(ledger):
    path = ledger([((A, B), (1.0, -1.0)), ((B, A), (7.0, 3.0))])
    found = read_payoffs(path, symmetric=False)
    assert found.means[:, 0, 1].tolist() == [1.0, -1.0]
    assert found.means[:, 1, 0].tolist() == [7.0, 3.0]


def test_those_of_one_team_do_not_meet(ledger):
    rows = [((A, B, C), (1.0, 2.0, 3.0))]
    assert read_payoffs(ledger(rows, seats=3), sides=[0, 0, 1]).counts.tolist() == [
        [0, 0, 0.5],
        [0, 0, 0.5],
        [0.5, 0.5, 0],
    ]
    with refuses(UsageError):
        read_payoffs(ledger(rows, seats=3), sides=[0, 1])


def test_wins_are_counted_where_they_are_asked_for(ledger):
    path = ledger([((A, B), (9.0, 1.0)), ((A, B), (1.0, 1.0)), ((B, A), (5.0, 4.0))])
    assert read_payoffs(path, wins=True).matrix[0, 1] == 0.5
    assert read_payoffs(path, wins=True, symmetric=False).matrix[0, 1] == 0.75


def test_only_the_members_that_are_asked_for_are_looked_at(ledger):
    rows = [((A, B), (1.0, 0.0)), ((A, C), (2.0, 0.0)), (((0, 3), (1, 5)), (3.0, 0.0))]
    assert read_payoffs(ledger(rows), keep=lambda ref: ref.policy != "b").names == ("a", "c", "a@3")
    assert read_payoffs(ledger(rows), most=4).names == ("a", "b", "c", "b@5")
    assert read_payoffs(ledger(rows), most=2).names == ("a", "b")
    with refuses(UsageError):
        read_payoffs(ledger(rows), most=0)
    with refuses(UsageError):
        read_payoffs(ledger(rows), keep=lambda ref: False)


def test_a_long_ledger_is_read_in_pieces(ledger, monkeypatch):
    rng = np.random.default_rng(5)
    rows = [
        (((int(i), -1), (int(j), int(v))), (float(r), float(-r)))
        for i, j, v, r in zip(
            rng.integers(0, 3, 500),
            rng.integers(0, 3, 500),
            rng.integers(-1, 4, 500),
            rng.integers(-5, 6, 500),
            strict=True,
        )
    ]
    whole = read_payoffs(ledger(rows))
    monkeypatch.setattr(ledger_reader, "PIECE", 7)
    pieces = read_payoffs(ledger(rows))
    assert pieces.names == whole.names
    assert (pieces.counts == whole.counts).all()
    assert np.array_equal(pieces.means, whole.means, equal_nan=True)
    assert np.allclose(pieces.covariances, whole.covariances, equal_nan=True)


def test_commands_and_lost_records_are_no_matches(ledger):
    path = ledger([((A, B), (1.0, 0.0))])
    file = LedgerFile(path, ("a", "b", "c"), 2)
    file.append(records([((A, (0, 9)), (0.0, 0.0))], kind=FREEZE))
    lost = records([(((-1, -1), (-1, -1)), (0.0, 0.0))], kind=LOST)
    file.append(lost)
    assert read_payoffs(path).names == ("a", "b")


def test_a_policy_earned_nothing_before_it_was_born(ledger, monkeypatch):
    """What is told of a name is told of who has it now; copies of the former one stay."""
    path = ledger([((A, B), (5.0, -5.0)), (((0, 3), A), (1.0, -1.0)), ((B, C), (1.0, 0.0))])
    file = LedgerFile(path, ("a", "b", "c"), 2)
    born = records([((A, A), (0.0, 0.0))], kind=BIRTH)
    file.append(born)
    file.append(records([((C, B), (2.0, 1.0)), ((B, (0, 3)), (0.0, 4.0))]))
    for piece in (1, 2, 1 << 18):
        monkeypatch.setattr(ledger_reader, "PIECE", piece)
        found = read_payoffs(path)
        assert found.names == ("b", "c", "a@3"), "nobody met the newborn yet"
        assert found.met[0].tolist() == [0, 2, 1]
        assert found.matches == 3
    file.append(born)
    file.append(records([((B, A), (-2.0, 2.0))]))
    found = read_payoffs(path)
    assert found.names == ("a", "b", "c", "a@3")
    assert found.matrix[0, 1] == 2.0
    assert found.met[0].tolist() == [0, 1, 0, 0]


def test_a_record_that_was_cut_is_left_out(ledger):
    path = ledger([((A, B), (1.0, 0.0)), ((A, C), (1.0, 0.0))])
    path.write_bytes(path.read_bytes()[:-5])
    assert read_payoffs(path).names == ("a", "b")


def test_a_ledger_that_grows_meanwhile_is_read_as_it_was(ledger):
    path = ledger([((A, B), (1.0, 0.0))])
    reader = LedgerReader.open(path)
    LedgerFile(path, ("a", "b", "c"), 2).append(records([((A, C), (1.0, 0.0))]))
    assert sum(len(piece) for piece in reader.pieces()) == 1


@pytest.mark.parametrize("contents", [b"", b"no json\n", b'{"ledger": 1}\n', b"[1, 2]\n"])
def test_what_is_no_ledger_is_refused(tmp_path, contents):
    path = tmp_path / "ledger"
    path.write_bytes(contents)
    with refuses(RunDirectoryError):
        read_payoffs(path)


def test_damaged_and_empty_ledgers_are_refused(ledger, tmp_path):
    with refuses(RunDirectoryError):
        read_payoffs(tmp_path / "none")
    with refuses(UsageError):
        read_payoffs(ledger([]))
    with refuses(RunDirectoryError):
        read_payoffs(ledger([((A, (7, -1)), (0.0, 0.0))]))
    with refuses(RunDirectoryError):
        read_payoffs(ledger([((A, B), (0.0, 0.0)), ((A, B), (np.inf, 0.0))]))
