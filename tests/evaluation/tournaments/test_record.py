"""What is kept of a tournament, whatever ends the process, and whose directory it is."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import remuda
from played_tournaments import play_across
from refusals import refuses
from remuda.analysis.payoffs.from_ledger import read_payoffs
from remuda.errors import RunDirectoryError, UsageError
from remuda.evaluation.tournaments.engine import play
from remuda.evaluation.tournaments.entrants import setup_of_entrants
from remuda.population.ledger.ledger import read_records
from tournament_games import always

GAME = "rock_paper_scissors"
OF_ROCK = {"rock": always(0, GAME), "random": "random"}

KILLED = """
import os, signal, sys
from pathlib import Path
from remuda.evaluation.tournaments.entrants import setup_of_entrants
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.engine import play

def watch(done, wanted):
    if done >= 90:
        os.kill(os.getpid(), signal.SIGKILL)

setup = setup_of_entrants("tournament_games:LongLoses", {}, {"a": "random", "b": "random"}, 5)
play(setup, 40, Path(sys.argv[1]), limits=Limits(watch=watch), copies=64)
"""


def records_of(directory):
    return read_records(directory / "ledger.bin")[1]


def by_number(directory):
    return {r["number"]: r["returns"].tolist() for r in records_of(directory)}


@pytest.mark.slow
def test_what_was_written_outlives_kill_and_the_rest_is_played_once(tmp_path):
    """Of what is under way then the long matches are missing in the file, and played again."""
    tests = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), *sys.path])}
    code = f"import remuda.evaluation.tournaments.record as r; r.FLUSHED_EVERY = 0.0\n{KILLED}"
    words = [sys.executable, "-c", code, str(tmp_path / "cut")]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    before = records_of(tmp_path / "cut")
    assert 90 <= len(before) < 400
    numbers = np.sort(before["number"])
    assert (numbers != np.arange(len(numbers))).any()  # long ones are missing
    setup = setup_of_entrants("tournament_games:LongLoses", {}, {"a": "random", "b": "random"}, 5)
    found = play(setup, 40, tmp_path / "cut")
    after = records_of(tmp_path / "cut")
    assert (after[: len(before)] == before).all()
    assert sorted(after["number"].tolist()) == list(range(400))
    whole = play(setup, 40, tmp_path / "whole", copies=64)
    assert by_number(tmp_path / "cut") == by_number(tmp_path / "whole")
    assert found.means.tolist() == whole.means.tolist()
    assert found.errors.tolist() == whole.errors.tolist()


def test_the_same_call_plays_nothing_twice_and_goes_on_to_more(tmp_path):
    place = tmp_path / "a" / "t"
    few = play_across(GAME, {}, OF_ROCK, 4, directory=place)
    assert len(records_of(place)) == 16
    again = play_across(GAME, {}, OF_ROCK, 4, directory=place)
    assert len(records_of(place)) == 16
    assert again.means.tolist() == few.means.tolist()
    assert again.directory == place
    more = play_across(GAME, {}, OF_ROCK, 9, directory=place)
    assert more.means.tolist() == play_across(GAME, {}, OF_ROCK, 9).means.tolist()
    assert len(records_of(place)) == 36
    # Fewer than there are: the first of them.
    assert play_across(GAME, {}, OF_ROCK, 4, directory=place).means.tolist() == few.means.tolist()
    assert len(records_of(place)) == 36


def test_the_front_door_keeps_it_where_it_is_told(tmp_path):
    found = remuda.tournament(
        ["random", "tactician"], game="connect_four", episodes=3, directory=str(tmp_path / "t")
    )
    assert found.directory == tmp_path / "t"
    told = json.loads((tmp_path / "t" / "tournament.json").read_text())
    assert [each["name"] for each in told["entrants"]] == ["random", "tactician"]
    assert told["episodes"] == 3
    assert told["game"] == "connect_four"
    assert found.as_summary()["directory"] == str(tmp_path / "t")


def test_payoffs_are_read_from_it(tmp_path):
    entrants = {name: always(i, GAME) for i, name in enumerate(("rock", "paper", "scissors"))}
    found = play_across(GAME, {}, entrants, 3, directory=tmp_path)
    payoffs = read_payoffs(tmp_path / "ledger.bin")
    assert payoffs.names == ("rock", "paper", "scissors")
    assert payoffs.matrix.tolist() == found.means.tolist()
    assert not payoffs.missing.any()


@pytest.mark.parametrize("cut", [1, 30, 77])
def test_a_record_that_was_written_in_part_is_played_again(cut, tmp_path):
    play_across(GAME, {}, OF_ROCK, 4, directory=tmp_path)
    expected = by_number(tmp_path)
    file = tmp_path / "ledger.bin"
    file.write_bytes(file.read_bytes()[:-cut])
    assert len(records_of(tmp_path)) == 15
    play_across(GAME, {}, OF_ROCK, 4, directory=tmp_path)
    assert by_number(tmp_path) == expected
    assert len(records_of(tmp_path)) == 16


@pytest.mark.parametrize("kept", [0, 1, 20])
def test_a_first_line_that_was_written_in_part_is_written_anew(kept, tmp_path):
    play_across(GAME, {}, OF_ROCK, 2, directory=tmp_path)
    expected = by_number(tmp_path)
    file = tmp_path / "ledger.bin"
    file.write_bytes(file.read_bytes()[:kept])
    play_across(GAME, {}, OF_ROCK, 2, directory=tmp_path)
    assert by_number(tmp_path) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"sampled": True},
        {"options": {"rounds": 2}},
        {"participants": 1},
        {"weights": True},
    ],
)
def test_another_tournaments_directory_is_refused_and_left(change, tmp_path):
    setup = setup_of_entrants(GAME, {}, OF_ROCK)
    play(setup, 2, tmp_path)
    before = (tmp_path / "tournament.json").read_bytes()
    if "participants" in change:
        change = {"participants": setup.participants[:1]}
    if "weights" in change:
        other = setup_of_entrants(GAME, {}, {"rock": always(1, GAME), "random": "random"})
        change = {"participants": other.participants}
    if "options" in change:
        change = {"env": replace(setup.env, options=change["options"])}
    with refuses(UsageError):
        play(replace(setup, **change), 3, tmp_path)
    assert (tmp_path / "tournament.json").read_bytes() == before
    assert len(records_of(tmp_path)) == 8


def test_directories_that_cannot_be_used_are_told(tmp_path):
    for name in ("ledger.bin", "config.yaml"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("of a run")
        with refuses(UsageError):
            play_across(GAME, {}, OF_ROCK, 1, directory=tmp_path / name)
    (tmp_path / "file").write_text("")
    with refuses(RunDirectoryError):
        play_across(GAME, {}, OF_ROCK, 1, directory=tmp_path / "file")
    used = tmp_path / "used"
    used.mkdir()
    with (used / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with refuses(RunDirectoryError):
            play_across(GAME, {}, OF_ROCK, 1, directory=used)
    play_across(GAME, {}, OF_ROCK, 1, directory=used)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tournament.json", b"{"),
        ("tournament.json", b"[]"),
        ("ledger.bin", b"nonsense\n"),
    ],
)
def test_damage_is_told(file, content, tmp_path):
    play_across(GAME, {}, OF_ROCK, 1, directory=tmp_path)
    (tmp_path / file).write_bytes(content)
    with refuses(RunDirectoryError):
        play_across(GAME, {}, OF_ROCK, 1, directory=tmp_path)


def test_records_of_other_meetings_are_damage(tmp_path):
    play_across(GAME, {}, OF_ROCK, 2, directory=tmp_path)
    file = tmp_path / "ledger.bin"
    header, _, _ = file.read_bytes().partition(b"\n")
    records = records_of(tmp_path).copy()
    records["policy"] = records["policy"][:, ::-1].copy()
    records["policy"][0] = 1 - records["policy"][0]
    file.write_bytes(header + b"\n" + records.tobytes())
    with refuses(RunDirectoryError):
        play_across(GAME, {}, OF_ROCK, 2, directory=tmp_path)


@pytest.mark.parametrize("kept", [False, True])
def test_more_matches_than_are_kept_in_memory_are_refused_before_any_is(kept, tmp_path):
    directory = tmp_path / "kept" if kept else None
    with refuses(UsageError):
        remuda.tournament(
            {"a": "random", "b": "random"}, game=GAME, episodes=10**12, directory=directory
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        {"directory": 5},
        {"directory": ""},
        {"options": 5},
        {"options": 0},
        {"options": "ab"},
        {"sampled": "perhaps"},
    ],
)
def test_what_is_of_the_wrong_kind_is_told(words):
    with refuses(UsageError):
        remuda.tournament({"a": "random", "b": "random"}, game=GAME, episodes=2, **words)
