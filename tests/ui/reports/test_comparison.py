"""Several runs compared: their groups, curves, page and command."""

import io
import json

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image
from rich.console import Console

import remuda
from refusals import refuses
from remuda.config import by_leaf
from remuda.errors import RunDirectoryError
from remuda.ui.cli.main import run as command
from remuda.ui.reports.comparison import MEAN, compare, notes_on, page_of, print_comparison
from remuda.ui.reports.learning_curves import POINTS, band_of, curve_of, draw_curves
from remuda.ui.reports.run_groups import Score
from ui.made_runs import a_run


def curves_of(found):
    return draw_curves([(group.name, group.runs) for group in found.groups], found.policies)


def text_of(figure):
    return [text.get_text() for text in figure.findobj(Text)]


@pytest.fixture
def six(tmp_path):
    """Two groups of three seeds."""
    for rate in (0.001, 0.01):
        for seed in range(3):
            level = 4.0 if rate == 0.01 else 0.0
            a_run(tmp_path / f"{rate}-{seed}", seed, level=level, policy={"learning_rate": rate})
    return tmp_path


def test_a_score_is_a_mean_over_runs_with_its_standard_error():
    assert Score.of([]) is None
    assert Score.of([3.0]) == Score(3.0, None, 1)
    found = Score.of([1.0, 2.0, 6.0])
    # The deviations are -2, -1 and 3: the sample variance is 14 / 2, and its error sqrt(7 / 3).
    assert found == Score(3.0, pytest.approx((7 / 3) ** 0.5), 3)
    assert found.words == "3.00 ± 1.53"


def test_runs_that_differ_by_their_seed_are_one_group(six):
    found = compare(sorted(six.iterdir()))
    assert [group.name for group in found.groups] == ["learning_rate 0.001", "learning_rate 0.01"]
    assert [group.seeds for group in found.groups] == [(0, 1, 2)] * 2
    assert found.policies == ("agent_0", "agent_1")
    score = found.groups[0].evaluated("agent_0")
    assert (score.mean, score.standard_error) == (11.0, pytest.approx(3**-0.5))
    assert found.groups[1].evaluated("agent_1").mean == 20.0
    assert found.groups[1].evaluated(MEAN).mean == 17.5
    # The last tenth of 40 lines is lines 36 to 40, weighted alike.
    lines = [r for r in found.groups[0].runs[0].records if r.turns >= 36000]
    mean = np.mean([r.policies["agent_0"].mean_return for r in lines])
    assert compare([six / "0.001-0"]).groups[0].in_training("agent_0").mean == pytest.approx(mean)


def test_a_run_that_is_named_twice_counts_once(six):
    (group,) = compare([six / "0.001-0", f"{six}/0.001-0", six / "0.001-1"]).groups
    assert group.seeds == (0, 1)
    assert group.name == "treasure_hunt"


def test_what_does_not_change_learning_sets_no_runs_apart(tmp_path):
    one = a_run(tmp_path / "a", 1, run={"live": False, "loggers": ["wandb"]})
    other = a_run(tmp_path / "b", 2)
    assert len(compare([one, other]).groups) == 1
    longer = a_run(tmp_path / "c", 3, run={"turns": 7})
    assert [g.name for g in compare([one, other, longer]).groups] == ["turns 1500000", "turns 7"]


def test_a_number_that_was_computed_is_named_as_it_was_meant(tmp_path):
    runs = [
        a_run(tmp_path / str(k), policy={"learning_rate": k * 0.001})
        for k in (3, 9)  # 9 * 0.001 is 0.009000000000000001
    ]
    assert [g.name for g in compare(runs).groups] == [
        "learning_rate 0.003",
        "learning_rate 0.009",
    ]


def test_many_policies_are_told_by_their_mean(tmp_path):
    run = a_run(tmp_path / "a", names=[f"agent_{i}" for i in range(6)])
    found = compare([run])
    assert found.policies == (MEAN,)
    assert found.groups[0].evaluated().mean == 10 + 5 * 2.5
    assert "mean of 6" in page_of(found)


def test_a_band_is_the_standard_error_where_all_seeds_are_known():
    turns = np.array([0.0, 10.0, 20.0])
    curves = [(turns, turns * 1.0), (turns[1:], turns[1:] * 3.0), (turns, turns * 2.0)]
    at, mean, error = band_of(curves, POINTS)
    assert (at[0], at[-1]) == (10.0, 20.0)
    assert mean == pytest.approx(2.0 * at)
    assert error == pytest.approx(at / 3**0.5)  # the sample deviation of 1, 2, 3 is 1
    assert band_of([(turns[:1], turns[:1]), (turns[2:], turns[2:])], POINTS)[0].size == 0


def test_a_curve_is_of_one_policy_or_of_the_mean_of_all(six):
    (group,) = compare([six / "0.001-0"]).groups
    (run,) = group.runs
    ours, theirs = curve_of(run, "agent_0")[1], curve_of(run, "agent_1")[1]
    assert theirs == pytest.approx(ours + 5.0)
    assert curve_of(run, MEAN)[1] == pytest.approx(ours + 2.5)
    assert curve_of(run, "nobody") is None


def test_the_picture_shows_groups_in_colours_of_their_own(six, tmp_path):
    (tmp_path / "picture.png").write_bytes(
        curves_of(compare(sorted(six.glob("0*")))).encoded("png")
    )
    with Image.open(tmp_path / "picture.png") as image:
        assert image.width > 1000
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    for colour in ((0x33, 0x66, 0xB0), (0xD9, 0x72, 0x2E)):
        assert (pixels == colour).all(1).sum() > 500


@pytest.mark.slow_cases("2")
@pytest.mark.parametrize("lines", [0, 1, 2])
def test_short_runs_can_be_compared(tmp_path, lines):
    runs = [a_run(tmp_path / str(seed), seed, lines=lines) for seed in range(2)]
    assert curves_of(compare(runs)).encoded("png")
    assert "10.5 ± 0.50" in page_of(compare(runs))


def test_the_page_escapes_everything_that_comes_from_a_run(tmp_path):
    evil = "<script>alert('x')</script>"
    run = a_run(tmp_path / "<i>&run", names=(evil,), game=f"a:{evil}")
    facts = json.loads((run / "summary.json").read_text())
    facts |= {"ended": f"stopped by a callback: {evil}", "game": f"a:{evil}"}
    (run / "summary.json").write_text(json.dumps(facts))
    other = a_run(tmp_path / "b", 1, names=(evil,), game="<b>other</b>")
    html = page_of(compare([run, other]))
    assert evil not in html
    assert "<i>" not in html
    assert "<b>" not in html
    assert html.count("&lt;script&gt;") >= 4  # game, group, policy, how it ended
    assert curves_of(compare([run, other])).encoded("png")


def test_the_command_compares(six, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runs = [str(path) for path in sorted(six.glob("0*"))]
    assert command(["compare", *runs, "--out", "made"]) == 0
    said = capsys.readouterr().out
    assert "learning_rate 0.001" in said
    assert "11.0 ± 0.58" in said
    assert "wrote made/report.html" in said
    html = (tmp_path / "made" / "report.html").read_text()
    assert "15.0 ± 0.58" in html
    assert 'data-from="learning.png"' in html
    assert (tmp_path / "made" / "learning.png").stat().st_size > 10_000
    assert command(["compare", str(six), "--out", "made", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["groups"]
    assert [group["seeds"] for group in found] == [[0, 1, 2], [0, 1, 2]]
    assert found[1]["policies"]["agent_1"]["evaluated"]["mean"] == 20.0


def test_a_single_run_or_directory_may_be_compared(six):
    """It was taken apart: into letters, or the names of its policies."""
    one = six / "0.001-0"
    opened = remuda.load(one)
    for single in (one, str(one), opened, [opened]):
        assert [run.files.path for run in compare(single).groups[0].runs] == [one]
    assert [len(group.runs) for group in compare(str(six)).groups] == [3, 3]
    assert [len(group.runs) for group in compare(path for path in [one]).groups] == [1]


@pytest.mark.parametrize(
    "runs",
    [
        3,
        None,
        {"a": 3},
        {"a": {"b": "run"}},
        {3: "run"},
        [3],
        [],
    ],
)
def test_what_is_no_run_is_not_compared(runs):
    with refuses(remuda.UsageError):
        compare(runs)


def test_a_policy_that_no_run_has_is_told(six):
    """It was None, as of one that was not measured."""
    (group,) = compare([six / "0.001-0", six / "0.001-1"]).groups
    for score in (group.evaluated, group.in_training):
        with refuses(remuda.UsageError):
            score("typo")
        assert score("agent_1").runs == score().runs == 2


def test_names_with_dots_set_runs_apart_as_others_do(tmp_path):
    """The key was split at each dot, and not found."""
    runs = [
        a_run(tmp_path / who, env={"scripted": {"player.0": who}, "options": {"a.b": 1}})
        for who in ("random", "greedy_walker")
    ]
    names = [group.name for group in compare(runs).groups]
    assert names == ["0 random", "0 greedy_walker"]
    tree = {"env": {"scripted": {"player.0": "random"}, "options": {}}, "seed": 3}
    assert by_leaf(tree) == {"env.scripted.player.0": "random", "seed": 3}


@pytest.mark.parametrize("others", [("x", "y"), ("agent_0", "y")])
@pytest.mark.parametrize("rate", [0.001, 0.01])
def test_runs_without_a_common_policy_are_compared_by_their_means(others, rate, tmp_path, capsys):
    a_run(tmp_path / "one", 0, policy={"learning_rate": 0.001})
    a_run(tmp_path / "two", 1, names=others, policy={"learning_rate": rate})
    runs = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert command(["compare", *runs, "--out", str(tmp_path / "page")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ("share no policy names" in said) == (others == ("x", "y"))
    assert (tmp_path / "page" / "report.html").exists()


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1" + "0" * 30, "1e308", "NaN", "Infinity"])
@pytest.mark.parametrize("key", ["turns", "seconds"])
def test_impossible_numbers_in_a_run_are_told_in_one_line(key, number, tmp_path, capsys):
    runs = [a_run(tmp_path / name, lines=3) for name in "ab"]
    for file in ("metrics.jsonl", "summary.json"):
        text = (runs[1] / file).read_text()
        found = json.loads(text.splitlines()[0] if file == "metrics.jsonl" else text)
        (runs[1] / file).write_text(text.replace(f'"{key}": {found[key]}', f'"{key}": {number}'))
    code = command(["compare", *map(str, runs), "--out", str(tmp_path / "page")])
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    assert code == 0 or len(said.err.splitlines()) == 1
    assert command(["report", str(runs[1])]) in (0, 1)


def test_scores_have_intervals_and_an_interquartile_mean():
    found = Score.of([0.0, 1.0, 2.0, 3.0, 100.0])
    assert found.iqm == 2.0
    low, high = found.interval(iqm=True)
    assert 0.0 <= low < 2.0 < high <= 100.0
    assert found.interval() == found.interval()  # seeded
    assert Score.of([3.0]).interval() is None


def test_the_command_prints_intervals(six, tmp_path, capsys):
    assert command(["compare", str(six), "--out", str(tmp_path / "made")]) == 0
    text = capsys.readouterr().out
    assert "IQM" in text
    assert "10.0 to 12.0" in text  # of the returns 10, 11 and 12
    assert command(["compare", str(six), "--out", str(tmp_path / "made"), "--json"]) == 0
    (group, _) = json.loads(capsys.readouterr().out)["groups"]
    found = group["policies"]["agent_0"]["evaluated"]
    assert (found["interval"], found["iqm"]) == ([10.0, 12.0], 11.0)


def test_different_games_have_tables_apart(tmp_path, capsys):
    runs = [a_run(tmp_path / game, game=game) for game in ("tag", "treasure_hunt")]
    out = tmp_path / "page"
    assert command(["compare", *map(str, runs), "--out", str(out)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "these runs are of 2 games" in text
    assert text.count("policy seeds greedy return") == 2
    html = (out / "report.html").read_text()
    assert "<h3>tag</h3>" in html
    assert "these runs are of 2 games" in html


def test_a_comparison_is_printed_as_a_short_table(six):
    found = compare(six)
    lines = str(found).splitlines()
    assert lines[0] == "Comparison: 6 runs of treasure_hunt, greedy return"
    assert lines[2].split() == [
        "learning_rate",
        "0.001",
        "agent_0",
        "3",
        "11",
        "10.0",
        "to",
        "12.0",
    ]
    assert len(lines) == 7
    assert "fewer than 5 seeds" in lines[6]
    assert "<td>agent_1</td>" in found._repr_html_()


def test_an_earlier_comparison_is_kept(six, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "comparison").mkdir()
    (tmp_path / "comparison/report.html").write_text("earlier")
    assert command(["compare", "0.001-0"]) == 0
    assert "wrote comparison-2/report.html" in capsys.readouterr().out
    assert (tmp_path / "comparison/report.html").read_text() == "earlier"


def test_long_names_and_large_returns_fit_a_terminal(tmp_path):
    name = "an_agent_with_a_name_of_forty_characters"
    runs = [a_run(tmp_path / str(seed), seed, level=1.5e30, names=(name, "b")) for seed in range(2)]
    console = Console(width=80, file=io.StringIO(), color_system=None)
    print_comparison(compare(runs), console)
    shown = console.file.getvalue()
    assert "…" not in shown
    assert "1.5e+30 ± 0" in shown
    assert shown.count(name[:12]) == 2


def test_a_mapping_names_the_groups(six):
    runs = {"IPPO": sorted(six.glob("0.001-*")), "MAPPO": six / "0.01-0"}
    found = compare(runs)
    assert [(g.name, g.seeds) for g in found.groups] == [("IPPO", (0, 1, 2)), ("MAPPO", (0,))]
    assert set(found.scores()["group"]) == {"IPPO", "MAPPO"}
    assert "IPPO" in page_of(found)
    assert str(found).splitlines()[2].startswith("IPPO ")
    even = compare({"IPPO": six / "0.001-0", "MAPPO": six / "0.01-0"})
    assert list(even.to_rliable()) == ["IPPO", "MAPPO"]
    assert [*even.to_marl_eval()["remuda"]["treasure_hunt"]] == ["IPPO", "MAPPO"]


def test_runs_of_one_name_that_differ_by_more_than_their_seed_stay_groups(six):
    found = compare({"IPPO": six, "": []})
    names = ["IPPO, learning_rate 0.001", "IPPO, learning_rate 0.01"]
    assert [group.name for group in found.groups] == names
    assert list(found.to_rliable()) == names


def test_a_run_has_one_name(six):
    assert len(compare({"a": [six / "0.01-0", six / "0.01-0"]}).groups) == 1
    with refuses(remuda.UsageError):
        compare({"a": six / "0.01-0", "b": six / "0.01-0"})
    twins = compare({"a": six / "0.01-0", "b": six / "0.01-1"})
    assert [group.name for group in twins.groups] == ["a", "b"]  # their settings are equal


def test_the_command_names_groups(six, tmp_path, capsys):
    (six / "0.01-2").rename(six / "rate=1")  # a path that exists is no name
    runs = [f"IPPO={six}/0.001-0", f"IPPO={six}/0.001-1", f"{six}/rate=1"]
    assert command(["compare", *runs, "--out", str(tmp_path / "page"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["groups"]
    assert [group["name"] for group in found] == ["IPPO", "learning_rate 0.01"]
    assert found[0]["seeds"] == [0, 1]


def test_a_report_of_a_picture_s_name_is_the_figure_alone(six, tmp_path, capsys):
    """It was a directory of that name."""
    begins = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    for kind, begin in begins.items():
        path = tmp_path / "paper" / f"figure.{kind}"
        assert command(["compare", str(six), "--out", str(path)]) == 0
        assert path.read_bytes().startswith(begin)
        assert f"wrote {path}" in capsys.readouterr().out.replace("\n", "")
    assert len([*(tmp_path / "paper").iterdir()]) == 3
    assert compare(six).report(tmp_path / "page") == tmp_path / "page" / "report.html"
    assert (tmp_path / "page" / "learning.pdf").read_bytes().startswith(b"%PDF")


def test_a_picture_shows_one_game(tmp_path):
    runs = [a_run(tmp_path / game, game=game) for game in ("tag", "treasure_hunt")]
    with refuses(remuda.UsageError):
        compare(runs).report(tmp_path / "figure.pdf")
    (tmp_path / "made.pdf").mkdir()
    with refuses(RunDirectoryError):
        compare(runs[:1]).report(tmp_path / "made.pdf")


def test_few_seeds_are_noted(six, tmp_path, capsys):
    assert command(["compare", str(six), "--out", str(tmp_path / "page")]) == 0
    assert "train at least 5" in " ".join(capsys.readouterr().out.split())
    assert "train at least 5" in (tmp_path / "page" / "report.html").read_text()
    one = compare(six / "0.001-0")  # it has no interval
    five = compare([a_run(tmp_path / f"{seed}", seed) for seed in range(5)])
    assert not any("seeds" in note for found in (one, five) for note in notes_on(found))


def test_the_figure_says_what_its_band_is(six):
    assert any("± 1 standard error" in text for text in text_of(curves_of(compare(six)).figure))
    (one,) = compare(six / "0.001-0").groups
    single = draw_curves([(one.name, one.runs)], ("agent_0",)).figure
    assert not any("standard error" in text for text in text_of(single))


def a_shared_run(path, seed):
    """A run of one policy for two agents, whose returns rise to 11 and 16."""
    run = a_run(path, seed, names=("shared",), population={"sharing": {"agent_*": "shared"}})
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        earned = line["policies"]["shared"]["mean_return"]
        line["episode_metrics"] = {"agent_0/return": earned + 1, "agent_1/return": earned + 6}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = json.loads((run / "summary.json").read_text())
    evaluation = summary["evaluation"]
    evaluation["policies"] = evaluation["agents"]
    evaluation["agents"] = {
        f"agent_{i}": {"mean": 11.0 + 5 * i + seed, "standard_error": 0.5} for i in range(2)
    }
    (run / "summary.json").write_text(json.dumps(summary))
    return run


def test_agents_of_shared_and_independent_runs_are_compared(tmp_path):
    """Only the mean over the policies of each run was shown."""
    shared = [a_shared_run(tmp_path / f"s{seed}", seed) for seed in range(2)]
    own = [a_run(tmp_path / f"o{seed}", seed) for seed in range(2)]
    found = compare({"shared": shared, "independent": own})
    assert found.policies == ("agent_0", "agent_1")
    assert not any("share no policy" in note for note in notes_on(found))
    means = [[group.evaluated(name).mean for name in found.policies] for group in found.groups]
    assert means == [[11.5, 16.5], [10.5, 15.5]]
    trained = [group.in_training("agent_1").mean for group in found.groups]
    assert trained == pytest.approx([trained[1] + 1, trained[1]])
    assert found.groups[0].evaluated().mean == 10.5  # of the one policy, as before
    (run, _), (other, _) = (group.runs for group in found.groups)
    turns, values = curve_of(run, "agent_1")
    assert values == pytest.approx(curve_of(other, "agent_1")[1] + 1, abs=0.5)
    assert len(turns) == 40
    assert found.to_rliable("agent_0")["shared"].tolist() == [[11.0], [12.0]]
    assert curves_of(found).encoded("svg").count(b"agent_1") >= 1
    assert compare(shared).policies == ("shared",)
