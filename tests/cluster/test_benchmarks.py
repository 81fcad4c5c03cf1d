"""What benchmarks of clusters make of what they saw: each of their checks can fail."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    """Import a program of the folder by name."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    before = set(sys.modules)
    yield __import__
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def looks(benchmark, turns, versions=None):
    """Looks every 0.1 s at runs of two actors and two policies; `turns`: at a time, of one."""
    runs = benchmark("cluster_runs")
    found = []
    for i in range(400):
        at = i / 10
        actor, other, policy, epoch = turns(at)
        trained = (policy, at)
        version = versions(at) if versions else i + 1
        far = (actor + 1.0, other + 1.0)
        found.append(runs.Look(at, epoch, far, trained, trained, (version, i + 1)))
    return found


def killed(benchmark):
    faults = benchmark("cluster_faults")
    return [faults.Kill(10.0, 1, (0,), (0,), 2, 1, 5)]


def test_standstills_are_those_of_others_and_restarts_those_of_the_lost(benchmark):
    faults = benchmark("cluster_faults")

    def turns(at):
        lost = at if at < 10 else 10 + max(at - 14, 0)  # four seconds
        other = at if at < 11 else 11 + max(at - 13, 0)  # two
        return lost, other, lost, 1 if at < 12 else 2

    others, calm, restarts, back = faults.standstills(looks(benchmark, turns), killed(benchmark))
    assert others[0][0] == pytest.approx(2.1, abs=0.11)
    assert others[0][1] == pytest.approx(0.1, abs=0.01)
    assert max(calm) == pytest.approx(0.1, abs=0.01)
    assert restarts[0] == pytest.approx([4.1, 4.1], abs=0.11)
    assert back == []


def test_one_that_never_goes_on_is_told(benchmark):
    faults = benchmark("cluster_faults")

    def turns(at):
        return min(at, 10.0), at, at, 1 if at < 12 else 2

    found = faults.standstills(looks(benchmark, turns), killed(benchmark))
    assert found[2][0][0] is None


def test_updates_that_are_taken_back_count_only_of_others(benchmark):
    faults = benchmark("cluster_faults")

    def turns(at):
        return at, at, at if at < 12 else at - 5, 1 if at < 12 else 2

    seen = looks(benchmark, turns)
    assert faults.standstills(seen, killed(benchmark))[3] == []
    other = [faults.Kill(10.0, 1, (0,), (1,), 2, 1, 5)]
    assert faults.standstills(seen, other)[3] == pytest.approx([4.9], abs=0.01)


def test_versions_that_go_back_are_counted(benchmark):
    faults = benchmark("cluster_faults")
    seen = looks(benchmark, lambda at: (at, at, at, 1), lambda at: 5 if 10 < at < 11 else 100)
    assert faults.backwards(seen) == 1


def test_growth_is_what_a_line_surely_rises(benchmark):
    soak, random = benchmark("cluster_soak"), np.random.default_rng(0)
    at = np.arange(1000.0)

    def line(mib):
        return soak.line_through(list(zip(at.tolist(), mib.tolist(), strict=True)), 100.0, 1000.0)

    first, last, surely = line(100.0 + at / 100.0)
    assert (first, last) == pytest.approx((101.0, 110.0))
    assert surely == pytest.approx(9.0)
    # What goes up and down does not grow, and a peak is none either.
    first, last, surely = line(20.0 + random.normal(0.0, 3.0, 1000))
    assert first == pytest.approx(last, abs=1.5)
    assert surely < 0.2
    assert line(np.where((at > 600) & (at < 640), 500.0, 100.0)) == pytest.approx((100, 100, 0))
    assert soak.line_through([(float(i), 100.0) for i in range(60)], 100.0, 1000.0) is None


def test_what_a_process_has_written_is_told(benchmark):
    soak = benchmark("cluster_soak")
    before = soak.written_by(os.getpid())
    held = np.ones(16 << 20)  # 128 MiB: so large that no memory is taken that was freed before
    assert 120.0 < soak.written_by(os.getpid()) - before < 140.0
    assert held[-1] == 1.0


def test_costs_of_the_model_are_found_again_and_never_negative(benchmark):
    model = benchmark("cluster_model")
    random = np.random.default_rng(0)
    table = random.uniform(1, 10, (12, 4))
    costs = np.array([1.0, 0.0, 0.5, 2.0])
    assert model.not_negative(table, table @ costs) == pytest.approx(costs, abs=1e-6)
    noisy = table @ np.array([1.0, -0.2, 0.5, 2.0])
    assert (model.not_negative(table, noisy) >= 0).all()


def test_what_is_used_grows_with_nodes_and_policies(benchmark):
    model = benchmark("cluster_model")
    costs = model.Costs(
        1e-6, 1e-9, 1e-4, 1e-5, 1e-5, 5e-5, 1e-9, 1e-7, 1e-3, 1e-7, 1e-7, 300, 60, 75
    )
    few, many = (model.used(model.Cluster(n, 64), costs) for n in (4, 400))
    assert all(many[name] >= few[name] for name in few if "polls" in name or "head" in name)
    some, more = (model.used(model.Cluster(64, k), costs) for k in (8, 2000))
    assert more["head's bridge"] > some["head's bridge"]
    slower = model.used(model.Cluster(64, 64, weights_every=60.0), costs)
    usual = model.used(model.Cluster(64, 64), costs)
    assert slower["a playing node's network, in"] < usual["a playing node's network, in"]
