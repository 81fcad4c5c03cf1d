"""The pictures of an analysis say what the numbers say, and can be read at 3 and at 60 policies."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.payoffs import Payoffs, exact, from_sums
from remuda.analysis.population_report import Analysis, analyse
from remuda.analysis.society.pareto import uncertain_front
from remuda.analysis.structure.transitivity import split
from remuda.config import load_config, write_config
from remuda.population.ledger.ledger import FREEZE, LedgerFile, record_type
from remuda.runs.run_directory import RunDirectory
from remuda.ui.plots.drawing import FORMATS, Picture, shorten, write_pictures
from remuda.ui.plots.over_time import ratings_picture, read_ratings
from remuda.ui.plots.points import Objectives, cyclic_planes, objectives_of, pareto_picture
from remuda.ui.plots.rows import draw_row, only_row
from remuda.ui.reports.analysis_page import draw_into, draw_pictures
from remuda.ui.reports.report import write_report

LONG = "population_of_the_north/policy_{}@{}000"


def sampled(
    count: int, cyclic: float, scale: float = 1.0, matches: int = 60, noise: float = 1.0
) -> Payoffs:
    """Payoffs of skill and a cycle, of matches with noise; every seventh name is long."""
    rng = np.random.default_rng(count)
    skill, turn = np.linspace(0.5, -0.5, count), np.arange(count) * 2.0 * np.pi / count
    truth = (1.0 - cyclic) * np.subtract.outer(skill, skill)
    truth = truth + cyclic * np.sin(np.subtract.outer(turn, turn))
    sums = np.zeros((6, count, count))
    for one, other in combinations(range(count), 2):
        returns = scale * rng.normal(truth[one, other], noise, matches)
        square = float(returns @ returns)
        total = float(returns.sum())
        sums[:, one, other] = matches, total, -total, square, square, -square
        sums[:, other, one] = matches, -total, total, square, square, -square
    names = [LONG.format(i, i) if i % 7 == 3 else f"policy_{i}" for i in range(count)]
    return from_sums(names, sums, True)


@functools.cache
def analysed(count: int, cyclic: float = 0.8, scale: float = 1.0) -> Analysis:
    return analyse(game_of_meetings(sampled(count, cyclic, scale)), np.random.default_rng(0), 50)


@functools.cache
def drawn(count: int, cyclic: float = 0.8, scale: float = 1.0) -> dict[str, Picture]:
    return {each.name: each for each in draw_pictures(analysed(count, cyclic, scale))}


def figure_of(picture: Picture) -> Figure:
    assert picture.figure is not None, picture.caption
    return picture.figure


def texts_of(figure: Figure) -> list[Text]:
    """All that is written in a figure; ticks beyond the limits of their axis are not."""
    figure.draw_without_rendering()
    found = []
    for axes in figure.axes:
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            low, high = min(low, high), max(low, high)
            room = 1e-9 * (high - low)
            for tick in axis.get_major_ticks():
                if low - room <= tick.get_loc() <= high + room:
                    found += [tick.label1, tick.label2]
            found += [axis.label, axis.offsetText]
        found += [axes.title, axes._left_title, axes._right_title, *axes.texts]
        legend = axes.get_legend()
        found += legend.get_texts() if legend else []
    return [each for each in found if each.get_visible() and each.get_text().strip()]


def words_of(picture: Picture) -> list[str]:
    return [each.get_text() for each in texts_of(figure_of(picture))]


SIZES = [(3, 1.0), (8, 1.0), (8, 1e-4), (8, 2e4), (60, 1.0)]


@pytest.mark.slow_cases("60-1.0", "8-0.0001", "8-1.0", "8-20000.0")
@pytest.mark.parametrize(("count", "scale"), SIZES)
def test_nothing_that_is_written_is_cut_and_rows_do_not_cover_others(
    count: int, scale: float
) -> None:
    seen = 0
    for picture in drawn(count, scale=scale).values():
        if picture.figure is None:
            continue
        texts = texts_of(picture.figure)
        boxes = np.array([each.get_window_extent().extents for each in texts])
        wide, high = picture.figure.get_size_inches() * picture.figure.dpi
        for text, (x0, y0, x1, y1) in zip(texts, boxes, strict=True):
            inside = x0 >= 0 and y0 >= 0 and x1 <= wide and y1 <= high
            assert inside, f"{picture.name}: {text.get_text()} is cut"
        seen += 1
        if picture.name not in ("payoffs", "ranking", "equilibrium"):
            continue  # names of points that are near each other may overlap
        for one, other in combinations(range(len(texts)), 2):
            a, b = boxes[one], boxes[other]
            across = min(a[2], b[2]) - max(a[0], b[0])
            down = min(a[3], b[3]) - max(a[1], b[1])
            # Boxes have room above and below their letters, of which a little may be shared.
            told = f"{picture.name}: {texts[one].get_text()!r}, {texts[other].get_text()!r}"
            assert across <= 1.0 or down <= 0.25 * min(a[3] - a[1], b[3] - b[1]), told
    assert seen >= 5


def test_payoffs_of_self_play_are_a_row_and_no_map() -> None:
    sums = np.zeros((6, 4, 4))
    sums[:, 0, 1:3] = np.array([[10.0, 5.0, -5.0, 9.0, 9.0, -9.0]]).T
    sums[:, 1:3, 0] = np.array([[10.0, -5.0, 5.0, 9.0, 9.0, -9.0]]).T
    names = ["new", "old", "older", "oldest"]
    payoffs = from_sums(names, sums, True)
    assert only_row(payoffs) == 0
    figure = draw_row(payoffs, 0)
    assert {"old", "older"} <= set(words_of(Picture("", "", "", figure)))
    assert figure.axes[0].lines[0].get_xdata().tolist() == [0.5, 0.5]
    sums[:, 1, 2] = sums[:, 2, 1] = sums[:, 0, 1]
    assert only_row(from_sums(names, sums, True)) is None
    assert only_row(from_sums(names, np.zeros((6, 4, 4)), True)) is None


@pytest.mark.slow_cases("60", "8")
@pytest.mark.parametrize("count", [3, 8, 60])
def test_every_policy_is_named_once_in_rows_and_at_most_once_in_maps(count: int) -> None:
    pictures = drawn(count)
    names = shorten(analysed(count).payoffs.names)
    assert len(set(names)) == count
    told = [words.rsplit("  ", 1)[0] for words in words_of(pictures["payoffs"])]
    assert all(told.count(name) == 1 for name in names)
    told = words_of(pictures["ranking"])
    assert all(told.count(name) == 1 for name in names)
    for name in ("structure", "diversity", "pareto", "equilibrium"):
        picture = pictures[name]
        if picture.figure is None:
            continue
        told = words_of(picture)
        counts = [told.count(each) for each in names]
        assert max(counts) == 1, name
        named = re.search(r"(\d+) of \d+ are named", picture.caption)
        if name != "equilibrium":
            assert sum(counts) == (int(named[1]) if named else count)


@pytest.mark.slow_cases("60")
@pytest.mark.parametrize("count", [8, 60])
def test_rows_hold_the_numbers_in_the_order_of_ranks(count: int) -> None:
    found, pictures = analysed(count), drawn(count)
    order = np.argsort(found.ranking.ranks, kind="stable")
    heat = figure_of(pictures["payoffs"]).axes[0].images[0].get_array()
    assert np.array_equal(heat, found.payoffs.matrix[np.ix_(order, order)])
    axes = figure_of(pictures["ranking"]).axes[0]
    assert np.array_equal(axes.lines[0].get_xdata(), found.ranking.scores[order])
    ends = [segment[:, 0] for segment in axes.collections[0].get_segments()]
    assert np.array_equal(np.array(ends).T, found.ranking.score_intervals[:, order])
    assert found.equilibrium is not None
    mass = found.equilibrium.answer.mixtures[0]
    bars = [bar.get_width() for bar in figure_of(pictures["equilibrium"]).axes[0].patches]
    assert bars == sorted(bars, reverse=True)
    assert sum(bars) == pytest.approx(mass.sum(), abs=0.005 * count)
    assert max(bars) == mass.max()


@pytest.mark.slow
def test_numbers_stand_in_the_cells_with_standard_errors_of_as_many_digits() -> None:
    found = analysed(8)
    best, second = np.argsort(found.ranking.ranks, kind="stable")[:2]
    value, error = found.payoffs.matrix[best, second], found.payoffs.errors[0][best, second]
    words = f"{value:.2f}\n±{error:.2f}".replace("-", "−")
    assert words in words_of(drawn(8)["payoffs"])
    assert "± standard errors. Based on 1,680 matches" in drawn(8)["payoffs"].caption
    many = drawn(60)["payoffs"]
    assert "Standard errors" in words_of(many)
    errors = analysed(60).payoffs.errors[0][~np.eye(60, dtype=bool)]
    assert f"standard errors {errors.min():.2g} to {errors.max():.2g}" in many.caption
    assert "on 106,200 matches" in many.caption


def test_planes_tell_the_cycles_and_who_beats_whom() -> None:
    payoffs = analysed(8).payoffs
    planes = cyclic_planes(payoffs, np.random.default_rng(0), 20)
    curl = split(payoffs.matrix).curl
    x, y = np.moveaxis(planes.found.coordinates, -1, 0)
    margins = x.T @ y - y.T @ x
    left = ((margins - curl) ** 2).sum() / (curl**2).sum()
    assert left == pytest.approx(1.0 - planes.found.explained.sum(), abs=1e-9)
    assert left < 0.15
    x, y = planes.found.coordinates[0].T
    beats = np.outer(x, y) - np.outer(y, x)  # up to half a turn counterclockwise
    large = np.abs(curl) > 0.5 * np.abs(curl).max()
    assert (np.sign(beats) == np.sign(curl))[large].all()
    assert (planes.errors > 0.0).all()


def test_places_are_less_sure_the_fewer_matches_there_are() -> None:
    rng = np.random.default_rng(0)
    few, many = (cyclic_planes(sampled(6, 0.8, matches=m).completed(), rng) for m in (20, 2000))
    assert few.errors.mean() > 5.0 * many.errors.mean()


def test_what_says_nothing_is_not_drawn_and_says_why() -> None:
    pictures = {each.name: each for each in draw_pictures(analysed(2, 0.0))}
    assert pictures["structure"].caption == "Two policies cannot form a cycle."
    assert pictures["diversity"].caption.startswith("A map needs at least three policies")
    assert pictures["pareto"].caption.startswith("The front needs at least three")
    skill = drawn(8, 0.0)
    assert skill["structure"].figure is None
    assert "No cycle is certain" in skill["structure"].caption
    best = exact(np.subtract.outer([3.0, 1.0, 0.0], [3.0, 1.0, 0.0]), symmetric=True)
    found = {
        p.name: p
        for p in draw_pictures(analyse(game_of_meetings(best), np.random.default_rng(0), 50))
    }
    assert found["pareto"].caption == "0 is the best in all objectives, so there is no trade-off."
    assert found["equilibrium"].caption.startswith("The equilibrium plays only 0")
    equal = analyse(game_of_meetings(sampled(5, 0.0, noise=50.0)), np.random.default_rng(0), 200)
    assert {p.name: p for p in draw_pictures(equal)}["diversity"].figure is None
    for picture in (*pictures.values(), *skill.values(), *found.values()):
        assert picture.caption.endswith(".")


def test_policies_that_never_met_themselves_have_no_equilibrium_and_no_map() -> None:
    payoffs = sampled(3, 0.5)
    shared = np.add.outer([0.0, 1.0, 3.0], [0.0, 1.0, 3.0])  # the sum of a match is not the same
    payoffs = replace(payoffs, means=payoffs.means + shared)
    assert payoffs.missing.any()
    found = analyse(game_of_meetings(payoffs), np.random.default_rng(0), 50)
    pictures = {each.name: each for each in draw_pictures(found)}
    assert pictures["payoffs"].figure is not None
    for name in ("equilibrium", "diversity"):
        assert "self-play is missing for some policies" in pictures[name].caption


@pytest.mark.slow
def test_files_have_text_as_text_and_their_caption(tmp_path: Path) -> None:
    pictures = [drawn(3)[name] for name in ("ranking", "structure", "pareto")]
    written = write_pictures(pictures, tmp_path)
    shown = [each for each in pictures if each.figure is not None]
    assert {path.name for path in written} == {f"{p.name}.{k}" for p in shown for k in FORMATS}
    svg = (tmp_path / "ranking.svg").read_text()
    assert re.search(r"<text[^>]*>policy_1</text>", svg)
    assert "on 180 matches" in svg
    assert (tmp_path / "ranking.png").read_bytes().startswith(b"\x89PNG")
    pdf = (tmp_path / "ranking.pdf").read_bytes()
    assert b"/FontFile2" in pdf, "letters are TrueType, embedded"
    before = {path: path.read_bytes() for path in written}
    write_pictures(pictures, tmp_path)
    assert {path: path.read_bytes() for path in written} == before


def test_a_picture_of_an_earlier_analysis_does_not_stay(tmp_path: Path) -> None:
    write_pictures([drawn(8)["structure"], drawn(8)["ranking"]], tmp_path)
    assert (tmp_path / "structure.pdf").exists()
    write_pictures([drawn(8, 0.0)["structure"]], tmp_path)
    assert not list(tmp_path.glob("structure.*"))
    assert (tmp_path / "ranking.pdf").exists()


@pytest.mark.slow
def test_a_page_shows_them_all_with_captions_and_sentences(tmp_path: Path) -> None:
    page = draw_into(tmp_path, analysed(8, 0.0)).read_text()
    for words in analysed(8, 0.0).in_words().values():
        assert words.replace("'", "&#39;") in page
    assert 'data-from="payoffs.png"' in page
    assert "on 1,680 matches" in page
    assert "Not drawn:<br>Cycles: No cycle is certain" in page
    assert 'data-from="structure.png"' not in page


OBJECTIVES = Objectives(
    ("a", "b", "c", "d"),
    ("first", "second", "third"),
    np.array([[0.0, 2.0, 0.0], [2.0, 0.0, 0.0], [-1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]]),
    np.zeros((4, 3, 3)),
)


def of_two(objectives: Objectives) -> Objectives:
    points, covariances = objectives.points[:, :2], objectives.covariances[:, :2, :2]
    return Objectives(objectives.names, objectives.titles[:2], points, covariances)


def test_the_front_of_two_objectives_bounds_what_it_dominates() -> None:
    two = of_two(OBJECTIVES)
    front = uncertain_front(
        two.points, two.covariances, np.random.default_rng(0), maximise=True, draws=50
    )
    picture = pareto_picture(two, front, "Based on 9 matches")
    assert "2 of 4 policies are on the Pareto front" in picture.caption
    axes = figure_of(picture).axes
    assert len(axes) == 1
    stairs = axes[0].lines[0].get_xydata()
    assert stairs.tolist() == [[0.0, 2.0], [2.0, 0.0]]


def test_three_objectives_have_a_panel_for_each_pair() -> None:
    points = OBJECTIVES.points
    front = uncertain_front(points, OBJECTIVES.covariances, np.random.default_rng(0), maximise=True)
    picture = pareto_picture(OBJECTIVES, front, "Based on 9 matches")
    assert "3 of 4 policies are on the Pareto front" in picture.caption
    panels = figure_of(picture).axes
    told = [(axes.get_xlabel(), axes.get_ylabel()) for axes in panels]
    assert told == [
        ("first (per match)", "second (per match)"),
        ("first (per match)", "third (per match)"),
        ("second (per match)", "third (per match)"),
    ]


def test_objectives_are_the_mean_the_worst_and_what_is_left_to_others() -> None:
    first = np.array([[9.0, 1.0, 2.0], [5.0, 9.0, 0.0], [3.0, 4.0, 9.0]])
    found = analyse(
        game_of_meetings(exact(first, first.T, symmetric=True)), np.random.default_rng(0), 50
    )
    objectives = objectives_of(found, np.random.default_rng(0), 10)
    assert objectives.points.tolist() == [[1.5, 1.0, 4.0], [2.5, 0.0, 2.5], [3.5, 3.0, 1.0]]
    assert not objectives.covariances.any()
    assert objectives_of(analysed(3), np.random.default_rng(0), 10).points.shape == (3, 2)


def a_ledger(path: Path, names: list[str], matches: int, frozen_at: int | None = None) -> None:
    """Matches of two seats in which a lower number earns more; a copy of the first is the worst."""
    rng = np.random.default_rng(0)
    records = np.zeros(matches, record_type(2))
    records["version"] = -1
    records["number"] = np.arange(matches)
    records["policy"] = np.arange(matches)[:, None] % len(names)
    records["policy"][:, 1] += 1 + rng.integers(max(len(names) - 1, 1), size=matches)
    records["policy"] %= len(names)
    skill = -records["policy"].astype(float)
    if frozen_at is not None:
        records["version"][frozen_at:, 1] = 7
        records["policy"][frozen_at:, 1] = 0
        records["kind"][frozen_at - 1] = FREEZE
        records["number"][frozen_at - 1] = frozen_at
        records["policy"][frozen_at - 1], records["version"][frozen_at - 1] = 0, 7
        skill[frozen_at:, 1] = -9.0
    won = rng.normal(skill[:, 0] - skill[:, 1], 1.0)
    records["returns"] = np.stack([won, -won], 1)
    LedgerFile(path, names, 2).append(records)


def test_ratings_are_lines_and_copies_points_where_they_were_frozen(tmp_path: Path) -> None:
    a_ledger(tmp_path / "ledger.bin", ["a", "b"], 400, frozen_at=150)
    found = read_ratings(tmp_path / "ledger.bin")
    assert not isinstance(found, str)
    assert found.frozen == {"a@7": 150}
    picture = ratings_picture(found)
    axes = figure_of(picture).axes[0]
    place = found.history.names.index("a@7")
    points = [line.get_xydata() for line in axes.lines if line.get_marker() == "o"]
    assert len(points) == 1
    assert points[0].tolist() == [[150.0, found.history.ratings[-1, place]]]
    line = next(each for each in axes.lines if len(each.get_xdata()) == len(found.history.matches))
    best = found.history.names.index("a")
    assert np.array_equal(line.get_ydata()[5:], found.history.ratings[5:, best])
    assert {"a", "b"} <= set(words_of(picture))
    assert picture.caption.endswith("Based on 399 matches.")


def test_ratings_of_a_policy_that_met_itself_alone_are_not_drawn(tmp_path: Path) -> None:
    a_ledger(tmp_path / "ledger.bin", ["a"], 50)
    picture = ratings_picture(read_ratings(tmp_path / "ledger.bin"))
    assert picture.figure is None
    assert "No two policies met often enough" in picture.caption


def test_names_are_cut_in_the_middle_and_stay_apart() -> None:
    assert shorten(["short", "a" * 30 + "b" * 30], 11) == ["short", "aaaaa…bbbbb"]
    cut = shorten([f"{'x' * 30}_{i}_{'y' * 6}" for i in range(3)], 11)
    assert cut == [f"xxxxxxxxx…_{i}_yyyyyy" for i in range(3)]


def a_run(path: Path, **population: object) -> Path:
    """A run directory without records, as training leaves it."""
    path.mkdir()
    write_config(
        load_config({"game": "connect_four", "population": population}), path / "config.yaml"
    )
    (path / "metrics.jsonl").write_text("")
    summary = {
        "game": "connect_four",
        "schedule": "async",
        "seed": 3,
        "ended": "all turns were played",
        "seconds": 5.0,
        "turns": 1000,
        "agent_steps": 1000,
        "agent_steps_per_second": 200.0,
        "waits": 0,
        "layout": "1 process",
        "version": "0.1.0",
        "restarts": {},
        "halted": [],
        "notes": [],
        "processors": {},
        "earlier": 0.0,
        "evaluation": None,
    }
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def a_population(path: Path, policies: int, matches: int = 300) -> Path:
    names = [f"policy_{i}" for i in range(policies)]
    matchmaker = "random" if policies > 1 else "self_play"
    run = a_run(path, matchmaker=matchmaker, policies=policies)
    a_ledger(run / "ledger.bin", names, matches, frozen_at=matches // 2 if policies == 1 else None)
    return run


HEADING = "Strengths and exploitation"


def test_a_report_without_a_population_has_no_such_section(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    assert HEADING not in write_report(run).read_text()
    assert not list(run.glob("*ranking.png"))


def test_the_report_of_a_population_has_sentences_and_pictures(tmp_path: Path) -> None:
    run = a_population(tmp_path / "run", 4)
    html = write_report(run).read_text()
    assert HEADING in html
    assert "policy_0 has the highest mean payoff" in html
    for name in ("payoffs", "ranking", "ratings"):
        assert f'data-from="report_{name}.png"' in html
        assert (run / f"report_{name}.png").stat().st_size > 5000
    assert not [*run.glob("*.svg"), *run.glob("payoffs.*")], "those are for remuda analyse"
    assert "on 300 matches" in html


def test_the_report_of_self_play_has_its_learning_curve_and_says_what_is_missing(
    tmp_path: Path,
) -> None:
    run = a_population(tmp_path / "run", 1)
    html = write_report(run).read_text()
    assert "Policies are not compared: there is only one policy, policy_0" in html
    assert 'data-from="report_ratings.png"' in html
    assert "ranking.png" not in html


def test_policies_that_never_met_are_named_in_the_report(tmp_path: Path) -> None:
    run = a_population(tmp_path / "run", 4, matches=3)
    html = write_report(run).read_text()
    assert "Policies are not compared: these never met" in html


def test_a_game_that_cannot_be_made_any_more_costs_the_section_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_population(tmp_path / "run", 3)

    def broken(*_: object, **__: object) -> None:
        raise ValueError("its data\nis gone")

    monkeypatch.setattr(RunDirectory, "spec", broken)
    html = write_report(run).read_text()
    assert "not compared: cannot create the game: ValueError: its data is gone." in html
    assert "<h2>Throughput</h2>" in html
