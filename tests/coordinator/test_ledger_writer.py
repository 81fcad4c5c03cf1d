"""From the table to the ledger on disk: nothing is lost without a word."""

import numpy as np

from remuda.coordinator import ledger_writer as writer_module
from remuda.coordinator.ledger_writer import LedgerWriter
from remuda.population.ledger.ledger import (
    BORN_WITH,
    FITNESS,
    LOST,
    MATCH,
    LedgerFile,
    bits_of,
    read_records,
    record_type,
)
from remuda.population.ledger.lineage import read_lineage
from remuda.population.members.table import Table
from remuda.population.members.table_parts import NEWEST, RECORDS


def table_and_writer(path):
    table, said = Table({"a": 2, "b": 2}, 2, 0), []
    return table, LedgerWriter(table, path, said.append), said


def add(table, count):
    records = table.records.empty(count)
    records["number"] = np.arange(table.word(RECORDS), table.word(RECORDS) + count)
    records["kind"], records["policy"], records["version"] = MATCH, [0, 1], -1
    table.records.add(records)


def test_records_that_came_too_fast_are_counted_and_told(tmp_path):
    """More than 16,384 between two fetches were lost silently."""
    path = tmp_path / "ledger.bin"
    table, ledger_writer, said = table_and_writer(path)
    add(table, 10)
    ledger_writer.write()
    assert said == []
    add(table, NEWEST + 500)
    ledger_writer.write()
    lost = ledger_writer.lost
    assert lost >= 500
    assert said == [
        f"{lost:,} results came faster than they could be written and are missing in the "
        "ledger of matches; sums and ratings include them"
    ]
    add(table, 10)
    ledger_writer.write()
    assert len(said) == 1
    _, records = read_records(path)
    assert len(records) == table.word(RECORDS)
    assert (records["kind"] == LOST).sum() == lost
    found = records["kind"] == MATCH
    assert np.array_equal(records["number"][found], np.flatnonzero(found))


def test_a_run_that_is_resumed_goes_back_to_the_right_record(tmp_path):
    path = tmp_path / "ledger.bin"
    table, ledger_writer, _ = table_and_writer(path)
    add(table, NEWEST + 500)
    ledger_writer.write()
    saved = table.state()
    add(table, 50)
    ledger_writer.write()
    other = Table({"a": 2, "b": 2}, 2, 0)
    other.restore(saved)
    again = LedgerWriter(other, path, print)
    again.begin()
    add(other, 7)
    again.write()
    _, records = read_records(path)
    assert len(records) == other.word(RECORDS) == NEWEST + 507


OLD = ("learning_rate", "discount", "ppo.clip")
NEW = ("learning_rate", "own", "discount", "ppo.clip")


def test_a_ledger_that_names_fewer_numbers_is_gone_on_with(tmp_path):
    """A user's algorithm that gets another hyperparameter loses no match of a run."""
    path = tmp_path / "ledger.bin"
    file = LedgerFile(path, ("a", "b"), 2, OLD)
    matches = np.zeros(3, record_type(2))
    born = np.zeros(2, record_type(2))
    born["kind"], born["version"][:, 0] = BORN_WITH, [2, FITNESS]
    born["digest"] = [bits_of(0.2), bits_of(7.0)]
    file.append(np.concatenate((matches, born)))
    again = LedgerFile(path, ("a", "b"), 2, NEW)
    again.rewind(5)
    later = np.zeros(len(NEW) + 1, record_type(2))
    later["kind"], later["policy"] = BORN_WITH, 1
    later["version"][:, 0] = [*range(len(NEW)), FITNESS]
    later["digest"] = [bits_of(value) for value in (1e-3, 0.5, 0.9, 0.3, 8.0)]
    again.append(later, 5)
    _, found = read_records(path)
    assert (found["kind"] == MATCH).sum() == 3
    assert len(found) == 10
    first, second = read_lineage(path)
    assert first.hyperparameters == {"ppo.clip": 0.2}
    assert first.fitness == 7.0
    assert second.hyperparameters == dict(zip(OLD, (1e-3, 0.9, 0.3), strict=True))
    assert second.fitness == 8.0
    third = LedgerFile(path, ("a", "b"), 2, NEW)  # once more, with nothing that is new
    size = path.stat().st_size
    third.rewind(10)
    assert path.stat().st_size == size
    LedgerFile(path, ("a", "c"), 2, NEW).rewind(10)
    assert path.stat().st_size == 0  # of other policies: no ledger of this run


def test_what_a_full_disk_cost_has_its_place_in_the_file(tmp_path, monkeypatch):
    path = tmp_path / "ledger.bin"
    table, ledger_writer, said = table_and_writer(path)
    add(table, 5)
    ledger_writer.write()
    append = writer_module.LedgerFile.append

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer_module.LedgerFile, "append", full)
    add(table, 8)
    ledger_writer.write()
    monkeypatch.setattr(writer_module.LedgerFile, "append", append)
    add(table, 3)
    ledger_writer.write()
    assert said == [
        "cannot write the ledger of matches: No space left on device; the run continues"
    ]
    _, records = read_records(path)
    assert records["kind"].tolist() == [MATCH] * 5 + [LOST] * 8 + [MATCH] * 3
    assert records["number"][-3:].tolist() == [13, 14, 15]
