"""What cannot be analysed is told in one clear line, as a user sees it."""

import json

import numpy as np
import pytest

from remuda.population.ledger.ledger import header_of, record_type
from remuda.ui.cli.main import run


def told(capsys, *words):
    """The one line on standard error."""
    assert run(["analyse", *map(str, words)]) in (1, 2)
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert len(shown.err.strip().splitlines()) == 1
    assert not shown.out
    return shown.err


def ledger(directory, pairs, returns=1.0, names=("a", "b", "c")):
    """The directory of a tournament in which these met once each, in this order."""
    directory.mkdir(exist_ok=True)
    (directory / "tournament.json").write_text("{}")
    records = np.zeros(len(pairs), record_type(2))
    records["number"], records["version"] = np.arange(len(pairs)), -1
    if pairs:
        records["policy"] = pairs
        records["returns"] = returns
    (directory / "ledger.bin").write_bytes(header_of(names, 2) + records.tobytes())
    return directory


def test_policies_that_never_met(tmp_path, capsys):
    directory = ledger(tmp_path / "x", [(0, 1), (0, 1), (1, 2), (1, 2)])
    line = told(capsys, directory)
    assert "these never met: a and c; let them play (`remuda tournament`), or leave out" in line


def test_one_policy(tmp_path, capsys):
    line = told(capsys, ledger(tmp_path / "x", [(0, 0), (0, 0)]))
    assert "there is only one policy, a; an analysis compares at least two" in line


def test_a_ledger_without_matches(tmp_path, capsys):
    assert "has no finished match" in told(capsys, ledger(tmp_path / "x", []))


@pytest.mark.slow
def test_a_ledger_that_was_cut_is_read_up_to_its_last_whole_match(tmp_path, capsys):
    directory = ledger(tmp_path / "x", [(0, 1)] * 10 + [(0, 2)] * 10 + [(1, 2)] * 10)
    path = directory / "ledger.bin"
    path.write_bytes(path.read_bytes()[:-7])
    assert run(["analyse", str(directory), "--samples", "50"]) == 0
    assert "3 policies, 29 matches" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"{", b"other\n", b'{"policies": 3, "seats": 2}\n'])
def test_what_is_no_ledger(tmp_path, capsys, content):
    directory = ledger(tmp_path / "x", [(0, 1)])
    (directory / "ledger.bin").write_bytes(content)
    assert "is missing, or is not a ledger of matches" in told(capsys, directory)


def test_returns_that_are_infinite(tmp_path, capsys):
    directory = ledger(tmp_path / "x", [(0, 1), (0, 1)], [[1.0, 0.0], [np.inf, 0.0]])
    assert "is damaged: a return of match 1 is infinite" in told(capsys, directory)


def test_policies_that_do_not_exist(tmp_path, capsys):
    directory = ledger(tmp_path / "x", [(0, 1), (0, 9)])
    assert "is damaged: it refers to policies that do not exist" in told(capsys, directory)


def test_a_directory_without_anything(tmp_path, capsys):
    assert "is no run directory: it has no config.yaml" in told(capsys, tmp_path)


def test_a_path_that_is_not_there(tmp_path, capsys):
    assert "does not exist" in told(capsys, tmp_path / "none")
    assert "there is no such file" in told(capsys, tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("policy,a,b\na,0,1\n", "the roles have different policies, a and a, b; an analysis"),
        (
            "policy,a,b\na,0,nan\nb,1,0\n",
            "the payoff in row 1, column 2 is missing or not a number",
        ),
        ("policy,a,b\na,0,\nb,1,0\n", "the payoff in row 1, column 2 is missing or not a number"),
        (
            "who,whom,x,y\na,b,1,-1\n",
            'line 2: "b" is not a number; the file must be a table of payoffs',
        ),
        ("row,column,row_return\na,b,1\n", "its first line lacks column_return"),
        ("row,column,row_return,column_return\na,b,1,inf\n", "line 2: a return is not a number"),
        ("policy,a,b\na,0,1,2\n", "line 2: 3 numbers for 2 columns"),
        ("", "has no line of numbers; it must be a table of payoffs"),
    ],
)
def test_tables_with_faults(tmp_path, capsys, text, line):
    path = tmp_path / "game.csv"
    path.write_text(text)
    found = told(capsys, path)
    assert line in found
    assert str(path) in found or "roles" in found


def test_a_tournament_that_does_not_tell_its_game_rightly(tmp_path, capsys):
    directory = ledger(tmp_path / "x", [(0, 1)])
    (directory / "tournament.json").write_text("[1]")
    assert "tournament.json is damaged" in told(capsys, directory)
    (directory / "tournament.json").write_text(json.dumps({"game": "no_such_game"}))
    assert "no_such_game" in told(capsys, directory)
