"""What the coordinator knows of a role's processes."""

import pytest

from remuda.runtime import child
from remuda.runtime.child import ProcessorTime
from remuda.system.processes.activity import Activity


def test_processor_time_is_added_up_over_the_processes_of_a_role(monkeypatch):
    now, cpu = [100.0], {}
    monkeypatch.setattr(child.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        child.Activity, "of", lambda pid, _: Activity(cpu[pid], True) if pid in cpu else None
    )
    time = ProcessorTime()
    time.measure(None)
    assert time.share is None

    def let_pass(pid, seconds, had):
        now[0] += seconds
        cpu[pid] = cpu.get(pid, 7.0) + had
        time.measure(pid)

    let_pass(1, 0.0, 0.0)
    assert time.share is None, "what it had before it was ready does not count"
    let_pass(1, 0.5, 0.5)  # too soon
    assert time.share is None
    let_pass(1, 3.5, 1.5)
    assert time.share == pytest.approx(0.5)
    del cpu[1]
    time.measure(1)  # it died
    let_pass(2, 10.0, 0.0)  # its successor; the time between counts for neither
    let_pass(2, 4.0, 0.0)
    assert time.share == pytest.approx(0.25)


def test_the_workers_of_an_actor_count_to_its_processor_time(monkeypatch):
    """An actor with `env.workers` sleeps while they play: it was told to have had next to none."""
    now, cpu = [100.0], {1: 0.0, 2: 9.0, 3: 9.0}
    monkeypatch.setattr(child.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        child.Activity, "of", lambda pid, _: Activity(cpu[pid], True) if pid in cpu else None
    )
    time, workers = ProcessorTime(), [(2, 70), (3, 80)]
    time.measure(1, workers)
    now[0] += 10.0
    cpu |= {1: 1.0, 2: 17.0, 3: 15.0}
    time.measure(1, workers)
    assert time.share == pytest.approx((1.0 + 8.0 + 6.0) / 10.0)
    now[0] += 10.0
    del cpu[3]  # it died, and another has its place; what it had before it was seen is not counted
    cpu |= {1: 1.0, 2: 27.0, 4: 3.0}
    time.measure(1, [(2, 70), (4, 90)])
    assert time.share == pytest.approx((15.0 + 10.0) / 20.0)
    now[0] += 5.0
    cpu[4] = 8.0
    time.measure(1, [(2, 70), (4, 90)])
    assert time.share == pytest.approx((25.0 + 5.0) / 25.0)


def test_the_last_line_of_a_log_is_found_without_reading_the_rest(tmp_path):
    """Red before: a log of more than 256 MiB was said to be one that cannot be read."""
    path = tmp_path / "actor.log"
    with path.open("wb") as file:
        file.truncate(300 * 2**20)
        file.seek(0, 2)
        file.write(b"\n2026-11-29 05:10:48,123 ERROR remuda.actor: no fuel left\n\n")
    assert child.last_line(path) == "no fuel left"
