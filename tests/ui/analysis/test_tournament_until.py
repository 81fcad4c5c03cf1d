"""`remuda tournament --until`: what it says, what it keeps, and mistakes."""

import json

import pytest

from remuda.population.ledger.ledger import read_records
from remuda.ui.cli.main import run


def matches_in(directory):
    return read_records(directory / "ledger.bin")[1]


UNTIL = "rank of the top 2 is 99% sure"


@pytest.mark.slow
def test_until_it_is_sure(capsys, tmp_path):
    where = ["--game", "connect_four", "--directory", str(tmp_path / "t")]
    words = ["tournament", "random", "tactician", *where, "--until", UNTIL]
    assert run([*words, "--json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["until"]["reached"]
    assert found["until"]["answer"] == "tactician before random"
    assert found["means"][0][0] is None
    looks = shown.err.splitlines()
    assert len(looks) > 1  # the first ends nothing
    for look in looks:
        assert " matches tactician before random: " in look
        assert "; least sure: tactician before random (" in look
    assert "% sure; least sure: " in looks[-1]
    assert found["until"]["sure"] >= 0.99
    assert run(["tournament", "--resume", str(tmp_path / "t")]) == 0
    shown = capsys.readouterr().out
    assert "tactician before random: 99% sure after " in shown
    assert len(matches_in(tmp_path / "t")) == found["until"]["matches"]
    assert run(["analyse", str(tmp_path / "t"), "--json"]) == 0
    shown = capsys.readouterr()
    assert "missing" not in shown.err


def test_until_a_limit_says_what_is_not_sure_and_goes_on(capsys, tmp_path):
    where = ["--game", "rock_paper_scissors", "--directory", str(tmp_path / "t")]
    words = ["tournament", "random", "random", "random", *where, "--matches", "60"]
    assert run([*words, "--until", "the best is 99.9% sure"]) == 0
    shown = capsys.readouterr()
    told = "not 99.9% sure after 60 matches: random"
    line = next(line for line in shown.out.splitlines() if line.startswith(told))
    assert " (undecided); least sure: random" in line  # they are one and the same
    assert line.endswith(" (undecided)")
    assert "the matches were spent after 60 of 60 matches; `remuda tournament --resume" in shown.err
    assert "--matches 120` continues" in shown.err
    assert run(["tournament", "--resume", str(tmp_path / "t"), "--matches", "120"]) == 0
    assert len(matches_in(tmp_path / "t")) == 120
    capsys.readouterr()
    assert run(["tournament", "--resume", str(tmp_path / "t"), "--matches", "10"]) == 0
    assert "--matches 240` continues" in capsys.readouterr().err
    assert run(["tournament", "--resume", str(tmp_path / "t"), "--seconds", "0.0000001"]) == 0
    assert len(matches_in(tmp_path / "t")) == 120


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--until", UNTIL, "--episodes", "3"], "--until and --episodes both limit the"),
        (["--matches", "3"], "--matches works with --until only; without it, use"),
        (["--until", "soon"], 'until: this is "soon"; it may be "rank of the top 3'),
    ],
)
def test_mistakes_of_until_are_told_in_one_line(words, said, capsys):
    assert run(["tournament", "random", "random", "--game", "kuhn_poker", *words]) in (1, 2)
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
