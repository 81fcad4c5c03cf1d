"""Tournaments that several processes play: the same results, whichever process is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refusals import refuses
from remuda.envs.description import EnvSpec
from remuda.errors import RemudaError
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.engine import open_tournament, play
from remuda.evaluation.tournaments.entrants import setup_of_entrants
from remuda.evaluation.tournaments.until import play_until
from remuda.evaluation.tournaments.workers import Workers, useful_processes
from remuda.population.ledger.ledger import read_records
from tournament_games import always, untrained

KUHN, FOUR = "kuhn_poker", "connect_four"


def by_number(directory):
    records = read_records(directory / "ledger.bin")[1]
    assert len(set(records["number"].tolist())) == len(records)
    order = records["number"].argsort()
    return records[order].tobytes()


def four(seed=3):
    """Policies of unlike layouts that explore, and scripted ones."""
    entrants = {"a": untrained(FOUR, 1), "b": untrained(FOUR, 4, algorithm="dqn")}
    entrants |= {"c": "random", "d": "tactician"}
    return setup_of_entrants(FOUR, {}, entrants, seed, sampled=True)


def kuhn():
    entrants = {"pass": always(1, KUHN), "bet": always(2, KUHN), "random": "random"}
    return setup_of_entrants(KUHN, {}, entrants, 3)


def test_a_game_is_closed_once(monkeypatch):
    """As for any run: `close` of some games fails the second time."""
    closed = []
    made = EnvSpec.make

    def counted(*args, **options):
        env = made(*args, **options)
        monkeypatch.setattr(env, "close", lambda: closed.append(env))
        return env

    monkeypatch.setattr(EnvSpec, "make", counted)
    play(kuhn(), 2)
    assert len(closed) == len(set(map(id, closed))) > 0


@pytest.mark.process
@pytest.mark.slow
def test_results_are_the_same_whatever_the_number_of_processes(tmp_path):
    found = {}
    for count in (1, 2, 3):
        play(four(), 10, tmp_path / str(count), processes=count)
        found[count] = by_number(tmp_path / str(count))
    assert found[2] == found[1]
    assert found[3] == found[1]


@pytest.mark.slow
def test_rounds_are_the_same_whatever_the_number_of_processes(tmp_path):
    until = "rank of the top 2 is 90% sure"
    looks = [play_until(kuhn(), until, tmp_path / str(n), processes=n).until for n in (1, 2)]
    assert looks[0] == looks[1]
    assert by_number(tmp_path / "1") == by_number(tmp_path / "2")


@pytest.mark.process
@pytest.mark.slow
def test_an_interrupted_one_plays_what_was_begun_to_its_end(tmp_path):
    told = []
    limits = Limits(
        interrupted=lambda: bool(told) and told[-1] > 0, watch=lambda done, _: told.append(done)
    )
    setup = four()
    found = play(setup, 200, tmp_path / "t", limits=limits, copies=8, processes=2)
    assert found.cut == "interrupted"
    assert 0 < found.num_matches < 3200
    assert len(read_records(tmp_path / "t" / "ledger.bin")[1]) == found.num_matches


@pytest.mark.slow
def test_a_process_that_is_killed_ends_it_and_the_rest_is_played_later(tmp_path, monkeypatch):
    made = []

    class Seen(Workers):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr("remuda.evaluation.tournaments.engine.Workers", Seen)
    killed = []

    def watch(done, wanted):
        if done and made and not killed:
            killed.extend(process.pid for process in made[0].processes)
            os.kill(killed[1], signal.SIGKILL)

    limits = Limits(watch=watch)
    with refuses(RemudaError):
        play(four(), 40, tmp_path / "t", limits=limits, copies=8, processes=2)
    assert not any(is_alive(pid) for pid in killed)
    assert 0 < len(read_records(tmp_path / "t" / "ledger.bin")[1]) < 1600
    play(four(), 40, tmp_path / "t")
    play(four(), 40, tmp_path / "whole")
    assert by_number(tmp_path / "t") == by_number(tmp_path / "whole")


KILLED = """
import os, signal, sys
from pathlib import Path
import remuda.evaluation.tournaments.engine as engine
from remuda.evaluation.results import Limits
sys.path.insert(0, str(Path(sys.argv[2]) / "evaluation" / "tournaments"))
from test_workers import four

class Seen(engine.Workers):
    def __init__(self, *args):
        super().__init__(*args)
        made.append(self)

made = []
engine.Workers = Seen

def watch(done, wanted):
    if done:
        print(*(process.pid for process in made[0].processes), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    limits = Limits(watch=watch)
    engine.play(four(), 40, Path(sys.argv[1]), limits=limits, copies=8, processes=2)
"""


@pytest.mark.slow
def test_no_process_outlives_its_parent_and_what_was_written_counts(tmp_path):
    tests = Path(__file__).resolve().parents[2]
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), *sys.path])}
    words = [sys.executable, str(script), str(tmp_path / "t"), str(tests)]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    pids = [int(word) for word in ended.stdout.split()]
    assert len(pids) == 2
    limit = time.monotonic() + 30.0
    while any(map(is_alive, pids)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not any(map(is_alive, pids))
    play(four(), 40, tmp_path / "t")
    play(four(), 40, tmp_path / "whole")
    assert by_number(tmp_path / "t") == by_number(tmp_path / "whole")


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.process
def test_a_failure_in_a_process_is_told(tmp_path, capfd):
    setup = setup_of_entrants("tournament_games:Fails", {}, {"a": "random", "b": "random"})
    with refuses(RemudaError) as raised:
        play(setup, 4, tmp_path / "t", processes=2)
    assert "\n" not in str(raised.value)
    assert "Traceback" not in capfd.readouterr().err


UNGUARDED_SCRIPT = """
import remuda
remuda.tournament(["random", "tactician"], game="connect_four", episodes=4, processes=2)
"""


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_in_one_line(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(UNGUARDED_SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, str(script)]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    lines = ended.stderr.strip().splitlines()
    assert "UnguardedScriptError: own.py plays a tournament without a guard" in lines[-1]
    assert "processes=1" in lines[-1]
    assert len(lines) <= 8


@pytest.mark.process
def test_more_processes_are_started_when_there_is_more_to_play(monkeypatch):
    """The first round is the smallest one."""
    counts = iter([2, 3, 2])
    monkeypatch.setattr(
        "remuda.evaluation.tournaments.engine.useful_processes", lambda *_: next(counts)
    )
    seen, started, begin = [], [], Workers.__init__

    def noted(workers, *args, **options):
        started.append(workers)
        begin(workers, *args, **options)

    monkeypatch.setattr(Workers, "__init__", noted)
    with open_tournament(four(), 3, processes=None) as opened:
        for parts in (3, 2, 1):
            left = opened.results.unfinished()
            assert not opened.play(left[: len(left) // parts], Limits(), 48)
            seen.append(len(started[-1].processes))
        assert not len(opened.results.unfinished())
    assert seen == [2, 3, 3]


def test_few_matches_are_played_by_this_process_alone(monkeypatch):
    monkeypatch.setattr("remuda.evaluation.tournaments.workers.available_cores", lambda: 4)
    assert useful_processes(100, 1024) == 1
    assert useful_processes(10_000, 1024) == 2
    assert useful_processes(1_000_000, 1024) == 4
