"""The helper that analyses a population is slow, stops, dies or fails: nothing waits for it."""

import os
import signal
import time

import numpy as np
import pytest

from crowds import crowd
from remuda.analysis.payoffs.ledger_seats import LedgerSeats
from remuda.config import AnalysisConfig
from remuda.coordinator import analysing
from remuda.coordinator.analysing import PopulationAnalyser, chosen
from remuda.population.ledger.ledger import MATCH, LedgerFile, record_type
from remuda.population.members.table_parts import NO_POLICY, POLICY

EVERY = 0.05
LOWEST = 19
"""Of the priorities that a process has, as `nice` counts them."""
LONG = 3600.0


def fill(path, table, matches=600):
    """A ledger in which all members of a table met."""
    rng = np.random.default_rng(0)
    members = np.argwhere(table.occupants.there)[:, 0]
    identity = table.occupants.identity[members]
    seats = rng.integers(0, len(members), (matches, 2))
    records = np.zeros(matches, record_type(2))
    records["kind"] = MATCH
    records["policy"], records["version"] = identity[seats, 0], identity[seats, 1]
    earned = np.sign(seats[:, 1] - seats[:, 0])
    records["returns"] = np.stack([earned, -earned], 1)
    LedgerFile(path, table.names, 2).append(records)


class Run:
    """As much of a run as an analyser needs."""

    def __init__(self, path, **options):
        self.table, self.board = crowd(3, 1)
        fill(path / "ledger.bin", self.table)
        self.said = []
        self.log = path / "analysis.log"
        options = {"patience": LONG, "every": EVERY, **options}
        self.analyser = PopulationAnalyser(
            self.table,
            path / "ledger.bin",
            self.log,
            AnalysisConfig(every=options["every"]),
            LedgerSeats((0, 1), (0, 1)),
            self.said.append,
            options["patience"],
        )

    def until(self, condition, seconds=200.0):
        limit = time.monotonic() + seconds
        while not condition():
            self.analyser.poll()
            assert time.monotonic() < limit, f"it never came; it was said: {self.said}"
            time.sleep(0.005)

    def next_analysis(self):
        """Go on until an analysis is there that is asked for from now on."""
        now = time.monotonic()
        self.until(lambda: self.analyser.newest and self.analyser.newest.requested_at >= now)
        return self.analyser.newest

    def signal(self, number):
        """Send the helper a signal."""
        self.until(lambda: self.analyser.pid)
        pid = self.analyser.pid
        os.kill(pid, number)
        return pid


@pytest.fixture
def run(tmp_path):
    made = []

    def make(**options):
        made.append(Run(tmp_path, **options))
        return made[-1]

    yield make
    while made:  # emptied: pytest keeps the fixture, and shared memory would be left with it
        made.pop().analyser.close()


@pytest.mark.slow
def test_the_population_is_analysed_again_and_again_by_one_process(run):
    """The lower its slot, the better a member is; frozen copies are the worst."""
    a = run()
    found = a.next_analysis()
    pid = a.analyser.pid
    assert (found.numbers.analysed, found.numbers.nash_support) == (6, 1)
    assert found.of_members["p0"] == (pytest.approx(1.0), pytest.approx(1.0))
    assert found.of_members["p2@0"][0] == pytest.approx(-1.0)
    assert a.next_analysis().numbers == found.numbers, "nothing is counted twice"
    assert a.analyser.pid == pid
    own = min(os.getpriority(os.PRIO_PROCESS, 0), LOWEST - 1)  # as low as it can be already
    assert os.getpriority(os.PRIO_PROCESS, pid) > own
    a.board.analysis = found
    record = a.board.between(a.board.start, a.board.read())
    assert record.population["nash_support"] == 1
    assert record.population["analysis_age"] > 0.0
    assert record.members["p0"].nash == pytest.approx(1.0)
    assert record.members["p1"].payoff == pytest.approx(0.6)
    assert [s for s in a.said if "longer" not in s] == []


@pytest.mark.slow
def test_a_helper_that_is_killed_is_replaced_and_that_is_told_once(run):
    a = run()
    first = a.next_analysis()
    pids = {a.signal(signal.SIGKILL)}
    a.until(lambda: any("died" in words for words in a.said))
    assert a.next_analysis().numbers == first.numbers, "its successor reads the whole ledger"
    pids.add(a.signal(signal.SIGKILL))
    a.next_analysis()
    assert a.analyser.pid not in pids
    assert sum("died" in words for words in a.said) == 1


@pytest.mark.process
@pytest.mark.slow
def test_a_helper_that_is_stopped_is_killed_and_replaced(run):
    a = run(patience=1.0)
    a.next_analysis()
    pid = a.signal(signal.SIGSTOP)
    a.until(lambda: a.analyser.pid != pid)
    a.next_analysis()
    assert sum("did not end" in words for words in a.said) == 1
    assert a.analyser.pid != pid


@pytest.mark.slow
def test_what_a_slow_helper_is_late_with_is_left_out_and_it_goes_on(run):
    a = run()
    a.next_analysis()
    pid = a.signal(signal.SIGSTOP)
    a.until(lambda: any("are skipped" in words for words in a.said))
    until = time.monotonic() + 5 * EVERY
    a.until(lambda: time.monotonic() > until)
    os.kill(pid, signal.SIGCONT)
    a.next_analysis()
    assert a.analyser.pid == pid
    assert sum("are skipped" in words for words in a.said) == 1


@pytest.mark.slow
def test_an_analysis_that_raises_is_told_once_and_the_next_one_works(run, monkeypatch):
    a = run()
    a.next_analysis()
    pid = a.analyser.pid
    with monkeypatch.context() as broken:
        broken.setattr(analysing, "chosen", lambda *_: np.zeros(3, np.int64))
        a.until(lambda: any("failed" in words for words in a.said))
        until = time.monotonic() + 5 * EVERY
        a.until(lambda: time.monotonic() > until)
    a.next_analysis()
    assert a.analyser.pid == pid
    assert sum("IndexError" in words for words in a.said) == 1
    assert "Traceback" in a.log.read_text()


@pytest.mark.process
def test_where_no_process_can_be_started_the_run_goes_on_and_it_is_tried_again(run, monkeypatch):
    a = run()

    def refused(*_, **__):
        raise OSError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as refusing:
        refusing.setattr(analysing.forkserver, "start", refused)
        a.until(lambda: a.said)
        until = time.monotonic() + 3 * EVERY
        a.until(lambda: time.monotonic() > until)
    assert a.next_analysis().numbers.analysed == 6
    assert sum("Resource temporarily unavailable" in words for words in a.said) == 1


@pytest.mark.process
def test_a_coordinator_that_was_stopped_itself_does_not_blame_its_helper(run, monkeypatch):
    """After Ctrl-Z and `fg` an hour later both go on: that hour was nobody's silence."""
    a = run(patience=60.0)
    a.next_analysis()
    pid = a.signal(signal.SIGSTOP)
    a.until(lambda: a.analyser.busy)
    now = time.monotonic
    monkeypatch.setattr(analysing.time, "monotonic", lambda: now() + 3600.0)
    a.analyser.poll()
    assert a.analyser.pid == pid
    os.kill(pid, signal.SIGCONT)
    a.next_analysis()
    assert a.analyser.pid == pid


@pytest.fixture
def started(monkeypatch):
    """The helpers that were started."""
    found, start = [], analysing.forkserver.start

    def noted(*words, **how):
        found.append(start(*words, **how))
        return found[-1]

    monkeypatch.setattr(analysing.forkserver, "start", noted)
    return found


@pytest.mark.slow_cases("None")
@pytest.mark.parametrize("every", [None, 0.0])
def test_where_it_is_switched_off_there_is_no_helper(every, run, started):
    a = run(every=every)
    for _ in range(3):
        a.analyser.poll()
    assert a.analyser.pid is None
    assert not started


@pytest.mark.process
def test_one_member_alone_is_not_analysed(run, started):
    a = run()
    pair = a.table.occupants.identity[1:].copy()
    a.table.occupants.identity[1:, POLICY] = NO_POLICY
    until = time.monotonic() + 3 * EVERY
    a.until(lambda: time.monotonic() > until)
    assert not started
    a.table.occupants.identity[1:] = pair
    a.next_analysis()
    assert len(started) == 1


def test_those_who_learn_are_looked_at_first_then_the_newest_copies():
    table, _ = crowd(3, 4)
    found = chosen(table, 8)
    assert found.tolist() == [[0, -1], [1, -1], [2, -1], [0, 3], [1, 3], [2, 3], [0, 2], [1, 2]]
    table.occupants.begin_writing(table.slots.copies_of("p0")[3])
    assert chosen(table, 5).tolist()[3:] == [[0, 2], [1, 3]], "one is just being frozen"
    assert len(chosen(table, 100)) == 14
