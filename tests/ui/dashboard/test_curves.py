"""Curves of the dashboard: what is read of metrics files while they grow."""

import json
import math
import os

import numpy as np
import pytest

import remuda
from dashboard_runs import fixed_run, lines_of, population_run
from remuda.ui.dashboard import curves as module
from remuda.ui.dashboard.curves import MEAN_RETURN, Curves, RunCurves, band, thinned


@pytest.mark.parametrize("made", [fixed_run, population_run])
def test_columns_are_those_of_the_front_door(made):
    path = made()
    wanted = remuda.load(path).metrics()
    found = Curves().of(path / "metrics.jsonl")
    assert found.complete
    assert not found.damaged
    own = {name for name in found.names() if "/hyperparameters/" not in name}
    known = {name for name in wanted if np.isfinite(wanted[name]).any()}
    assert known - {"seconds", "turns", "steps"} <= own
    for name in own:
        np.testing.assert_allclose(found.column(name), wanted[name], err_msg=name)


def write(path, lines, mode="w"):
    with path.open(mode) as file:
        file.write("".join(lines))


def test_a_file_is_read_on_where_it_was_left(tmp_path):
    path = tmp_path / "metrics.jsonl"
    first, second, third = lines_of(3, loss=lambda i: i)
    write(path, [first, second[:40]])
    found = RunCurves(path)
    found.read_on()
    assert found.column("learner/loss").tolist() == [1]
    write(path, [second[40:], third], "a")
    found.read_on()
    assert found.column("learner/loss").tolist() == [1, 2, 3]
    assert found.damaged == 0


def test_a_run_that_went_back_is_read_anew(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, lines_of(9, loss=1.0))
    found = RunCurves(path)
    found.read_on()
    other = tmp_path / "other"
    write(other, lines_of(4, loss=2.0))
    os.replace(other, path)  # as a resume does, which may leave it longer than it was
    found.read_on()
    assert found.column("learner/loss").tolist() == [2.0] * 4
    write(path, lines_of(2, loss=3.0))
    found.read_on()
    assert found.column("learner/loss").tolist() == [3.0] * 2
    path.unlink()
    found.read_on()
    assert found.names() == []


def test_a_column_that_comes_later_is_unknown_before(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [*lines_of(2, loss=1.0), *lines_of(2, loss=1.0, entropy=0.5)])
    found = RunCurves(path)
    found.read_on()
    assert np.isnan(found.column("learner/entropy")).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "7",
        "null",
        '"x"',
        "{}",
        '{"policies": 3}',
        '{"policies": {"a": 1}}',
        "\x00",
        "[" * 5000,
    ],
)
def test_damaged_lines_are_left_out_and_counted(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    good = list(lines_of(2, loss=1.0))
    write(path, [good[0], line + "\n", good[1]])
    found = RunCurves(path)
    found.read_on()
    assert found.column("learner/loss").tolist() == [1.0, 1.0]
    assert found.damaged == 1


@pytest.mark.parametrize("value", ["<b>", None, [], {}, "1.5"])
def test_what_is_no_number_is_passed_over(tmp_path, value):
    path = tmp_path / "metrics.jsonl"
    write(path, lines_of(2, loss=1.0, entropy=value))
    found = RunCurves(path)
    found.read_on()
    assert "learner/entropy" not in found.names()


def test_numbers_that_no_browser_reads(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, lines_of(3, loss=lambda i: [math.nan, math.inf, 10**400][i - 1], entropy=1.0))
    found = RunCurves(path)
    found.read_on()
    assert np.isnan(found.column("learner/loss")).all()
    assert found.both("turns", "learner/loss")[0].size == 0


def test_long_runs_are_thinned_and_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST", 9000)
    path = tmp_path / "metrics.jsonl"
    write(path, lines_of(8000, loss=lambda i: i))
    found = RunCurves(path)
    found.read_on(60)
    assert found.size <= 9000
    assert found.every > 1
    kept = found.column("learner/loss")
    assert (np.diff(kept) == found.every).all()
    before = len(kept)
    write(path, lines_of(4 * found.every, loss=7.0), "a")
    found.read_on(60)
    assert len(found.column("learner/loss")) == before + 4


def test_what_was_not_asked_for_longest_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_OF_ALL", 2000)
    curves = Curves()
    for i in range(6):
        path = tmp_path / f"{i}.jsonl"
        write(path, lines_of(100, loss=1.0))
        assert curves.of(path).size == 800
    assert sum(run.size for run in curves.runs.values()) <= 2000
    assert curves.of(tmp_path / "0.jsonl").column("learner/loss").size == 100


def test_the_mean_over_policies(tmp_path):
    path = tmp_path / "metrics.jsonl"
    records = [json.loads(line) for line in lines_of(3, mean_return=lambda i: i)]
    for record in records[1:]:
        record["policies"]["other"] = {"mean_return": 10.0}
    write(path, [json.dumps(record) + "\n" for record in records])
    found = RunCurves(path)
    found.read_on()
    assert found.column(MEAN_RETURN).tolist() == [1.0, 6.0, 6.5]


def test_thinned_curves_keep_the_mean_and_the_extremes():
    rng = np.random.default_rng(0)
    x, y = np.arange(10_007.0), rng.normal(size=10_007)
    y[5000] = 50.0
    found = thinned(x, y, 100)
    assert len(found["x"]) == 100
    assert found["x"][-1] == pytest.approx(10_006, rel=1e-4)
    assert max(found["high"]) == 50.0
    widths = np.diff(np.linspace(0, len(x), 101).astype(int))
    assert np.average(found["y"], weights=widths) == pytest.approx(y.mean(), abs=1e-5)
    assert all(
        low <= mean <= high
        for low, mean, high in zip(found["low"], found["y"], found["high"], strict=True)
    )


def test_a_band_is_the_mean_and_its_standard_error():
    x = np.array([0.0, 1.0, 2.0])
    found = band(
        [(x, np.array([0.0, 1.0, 2.0])), (x, np.array([2.0, 3.0, 4.0])), (x + 0.5, np.zeros(3))]
    )
    assert found["x"][0] == 0.5
    assert found["x"][-1] == 2.0
    at_end = np.array([2.0, 4.0, 0.0])
    error = at_end.std(ddof=1) / math.sqrt(3)
    assert found["y"][-1] == pytest.approx(2.0)
    assert found["high"][-1] - found["y"][-1] == pytest.approx(error, rel=1e-4)


def test_bands_of_curves_that_do_not_overlap_are_empty():
    assert (
        band([(np.arange(3.0), np.arange(3.0)), (np.arange(5.0, 8.0), np.arange(3.0))])["x"] == []
    )
    assert band([])["x"] == []
    assert "low" not in band([(np.arange(3.0), np.arange(3.0)), (np.zeros(0), np.zeros(0))])


@pytest.mark.parametrize("records", [3, 9, 50])
def test_a_file_that_was_written_anew_in_its_place_is_read_anew(tmp_path, records):
    """A file's number is given to another once it is gone, so it does not tell them apart."""
    path = tmp_path / "metrics.jsonl"
    write(path, lines_of(9, loss=1.0))
    found = RunCurves(path)
    found.read_on()
    write(path, lines_of(records, loss=2.0))  # the same number
    found.read_on()
    assert found.column("learner/loss").tolist() == [2.0] * records


def test_what_a_game_calls_mean_return_is_no_return(tmp_path):
    path = tmp_path / "metrics.jsonl"
    (record,) = (json.loads(line) for line in lines_of(1, mean_return=3.0))
    record |= {"episode_metrics": {"mean_return": 100.0}, "population": {"mean_return": 100.0}}
    write(path, [json.dumps(record) + "\n"])
    found = RunCurves(path)
    found.read_on()
    assert found.column(MEAN_RETURN).tolist() == [3.0]
