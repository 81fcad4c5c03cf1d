"""Policies that are written by hand take seats in leagues, and where matchmakers have shares."""

import pytest

from population.members.test_scripted import trained
from remuda.population.ledger.ledger import read_records
from remuda.population.ledger.records import SCRIPTED


@pytest.mark.slow
def test_a_league_and_matchmakers_in_shares_seat_them(tmp_path):
    names = {"matchmaker": "league", "policies": None, "league": {"main": 1, "main_exploiters": 1}}
    shares = {"self_play": 0.4, "prioritized": 0.3, "verification": 0.3}
    for kind, population in (
        ("league", names),
        ("mixed", {"matchmaker": "mixed", "shares": shares}),
    ):
        members = trained(tmp_path / kind, population=population).record.members
        assert members["bot"].games > 10
        assert not members["bot"].learns
        _, records = read_records(tmp_path / kind / "ledger.bin")
        matches = records[records["kind"] == 0]
        theirs = matches["version"] == SCRIPTED
        assert theirs.any(0).all()
        assert (~theirs).any(1).all()
