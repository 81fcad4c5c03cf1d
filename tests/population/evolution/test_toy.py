"""The toy problem of the paper, by the operators of evolution, as the benchmark plays it."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(BENCHMARKS)
    import evolution as benchmark
    import recording


def test_each_worker_alone_ends_where_the_paper_says():
    course = benchmark.play(False, False, 0)
    assert course.q[-1] == pytest.approx([0.39, 0.39], abs=1e-4)
    assert course.q[0] == pytest.approx([1.2 - 2 * 0.81] * 2)
    assert (course.copied == -1).all()


@pytest.mark.parametrize("seed", range(5))
def test_exploit_and_explore_reach_the_top(seed):
    course = benchmark.play(True, True, seed)
    assert course.q[-1].max() >= 1.199
    assert (course.copied >= 0).any()


@pytest.mark.slow_cases("flags1")
@pytest.mark.parametrize("flags", [(False, True), (True, False)])
def test_half_of_it_lies_between(flags):
    def mean(*kinds):
        return np.mean([benchmark.play(*kinds, seed).q.mean() for seed in range(20)])

    assert mean(False, False) < mean(*flags) < mean(True, True)


def test_a_seed_decides_the_course():
    one, other = (benchmark.play(True, True, 3) for _ in range(2))
    np.testing.assert_array_equal(one.theta, other.theta)


def test_the_benchmark_holds_all_to_bars_and_draws(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["evolution.py", "toy"])
    results = recording.Results("evolution.toy")
    benchmark.toy(results, 2, tmp_path / "toy.png")
    assert [row["variant"] for row in results.rows] == list(benchmark.VARIANTS)
    assert len(results.bars) == 6
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG")
