"""What the coordinator makes of a population's table, several times a second."""

import json
from itertools import pairwise

import numpy as np
import pytest

from crowds import SIZE, Quiet, Slots, crowd
from metric_lines import line_of, plain_of
from remuda.coordinator import scoreboard_reader as reader_module
from remuda.coordinator.bounded_work import FrozenTexts
from remuda.coordinator.scoreboard_reader import FEW, ScoreboardReader
from remuda.coordinator.status import StatusFile, read_status
from remuda.population.dealing.lead import League
from remuda.population.matchmaking.by_turn import Random
from remuda.population.members.table import Table
from remuda.runs.metrics import MemberRecord, Record, with_all_members
from remuda.system.scoreboard import Scoreboard


def test_a_tick_makes_nothing_for_frozen_copies_and_reads_no_pairs(monkeypatch):
    """At 256 policies with 10 copies each a tick took 0.97 s, in all pairs of 2,816 members."""
    _, board = crowd(256, 11)
    made = []

    def counted(*values):
        made.append(1)
        return MemberRecord(*values)

    monkeypatch.setattr(reader_module, "MemberRecord", counted)
    monkeypatch.setattr(
        "remuda.population.members.table.Member", lambda *_: pytest.fail("of the actor")
    )
    monkeypatch.setattr(Table, "pairs", property(lambda self: pytest.fail("the pairs are read")))
    record = board.between(board.start, board.read())
    assert len(made) == len(record.members) == 256
    assert record.num_frozen == 2816
    assert not record.is_whole
    whole = board.between(board.start, board.read(), whole=True)
    assert len(whole.members) == 256 * 12
    assert whole.is_whole


def test_the_sums_of_pairs_are_kept_of_live_policies_only():
    """They were 253 MB in each checkpoint."""
    table, _ = crowd(256, 12)
    assert table.pairs.nbytes < 32e6
    assert table.state()["pairs"].nbytes < 32e6


def test_few_frozen_copies_stand_in_every_record():
    _, board = crowd(4, 3)
    record = board.between(board.start, board.read())
    assert record.is_whole
    assert len(record.members) == 16
    assert reader_module.FEW >= 100


def test_readers_find_all_members_where_they_stand(tmp_path):
    table, board = crowd(FEW // 10 + 1, 10)
    part, whole = (board.between(board.start, board.read(), each) for each in (False, True))
    records_ = [whole, part, part]
    assert with_all_members(records_) is whole
    assert with_all_members([part]) is None
    again = Record.from_json(line_of(part))
    assert again == part
    old = json.loads(line_of(whole))
    del old["frozen"]  # as it was written before
    assert Record.from_json(json.dumps(old)).num_frozen == whole.num_frozen
    status = StatusFile(tmp_path / "status.json", Slots, "async", frozen := FrozenTexts(table))
    frozen.poll(max_texts=10**4)
    status.write(part, [], "ended")
    told = read_status(tmp_path / "status.json")["members"]
    assert told == plain_of(whole)["members"]


def test_wins_against_others_are_counted_as_they_come():
    table = Table(dict.fromkeys("abc", SIZE), 2, 1)
    league = League(table, Random(2), None, np.random.default_rng(0), 3)
    league.seated[:] = [[0, 1], [0, 0], [2, 0]]
    over, acted = np.ones(3, np.bool_), np.ones((3, 2), np.int64)
    league.close(over, np.array([[1.0, 0.0], [1.0, 0.0], [2.0, 2.0]]), acted, acted, ~over)
    board = ScoreboardReader(Scoreboard(("a", "b", "c")), dict.fromkeys("abc", Quiet()), 0.0, table)
    members = board.between(board.start, board.read()).members
    assert {n: m.win_rate for n, m in members.items()} == {"a": 0.75, "b": 0.0, "c": 0.5}


def test_no_rate_between_nodes_is_negative_after_a_node_was_lost():
    """Red before: its counts were gone from the sum."""
    _, board = crowd(2, 1)
    readings = []
    for board.traffic in ((1000, 10), (400, 12), (700, 15)):
        readings.append(board.read())
    lost, later = (board.between(*each) for each in pairwise(readings))
    assert lost.node_bytes_per_second is None
    assert lost.node_messages_per_second is None
    assert later.node_bytes_per_second > 0.0
