"""Several runs: found, compared, trained with several seeds."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml
from PIL import Image

import remuda
from remuda.config import Config, load_config, overlay
from remuda.coordinator.metrics import PolicyRecord, Record
from remuda.loggers.common import flat
from remuda.ui.cli import run as command
from remuda.ui.comparison import MEAN, Score, compare
from remuda.ui.comparison_page import band_of, curve_of, draw_curves, page_of
from remuda.ui.found_runs import find_runs, list_runs, look_at
from remuda.ui.resuming import find_unfinished, offer_to_resume


def a_policy(i, mean_return):
    return PolicyRecord(mean_return, 10 * i, 0.5, 100 * i, 20.0, i, 1.0, 100 * i, 0.5, 0.6, 0, 0.1,
                        0.7, 0, False)  # fmt: skip


def a_run(path, seed=0, names=("agent_0", "agent_1"), level=0.0, lines=40, **settings):
    """A run directory as training leaves it; its return rises to 10 + level."""
    path.mkdir(parents=True)
    config = overlay(load_config(settings).model_dump(mode="json"), {"seed": seed})
    config["run"]["directory"] = str(path)
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    rng, records = np.random.default_rng(seed), []
    for i in range(1, lines + 1):
        earned = 10.0 * (1 - np.exp(-i / 10)) + level + rng.normal(0, 0.8)
        policies = {name: a_policy(i, float(earned + 5 * k)) for k, name in enumerate(names)}
        records.append(
            Record(5.0 * i, 1000 * i, 2000 * i, 200.0, 400.0, 0, 0.0, 0, {"env": 0.5}, policies)
        )
    (path / "metrics.jsonl").write_text("".join(r.to_json() + "\n" for r in records))
    agents = {
        name: {"mean": 10 + level + seed + 5 * k, "standard_error": 0.5}
        for k, name in enumerate(names)
    }
    summary = {
        "game": config["game"],
        "schedule": "async",
        "seed": seed,
        "ended": "all turns were played",
        "finished": True,
        "seconds": 5.0 * lines,
        "turns": 1000 * lines,
        "agent_steps": 2000 * lines,
        "agent_steps_per_second": 400.0,
        "waits": 0,
        "layout": "1 process",
        "version": "0.1.0",
        "evaluation": {"episodes": 200, "agents": agents},
    }
    (path / "summary.json").write_text(json.dumps(summary))
    return path


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
    score = found.groups[0].greedy("agent_0")
    assert (score.mean, score.standard_error) == (11.0, pytest.approx(3**-0.5))
    assert found.groups[1].greedy("agent_1").mean == 20.0
    assert found.groups[1].greedy(MEAN).mean == 17.5
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
    assert found.groups[0].greedy().mean == 10 + 5 * 2.5
    assert "mean of 6" in page_of(found)


def test_a_band_is_the_standard_error_where_all_seeds_are_known():
    turns = np.array([0.0, 10.0, 20.0])
    curves = [(turns, turns * 1.0), (turns[1:], turns[1:] * 3.0), (turns, turns * 2.0)]
    at, mean, error = band_of(curves)
    assert (at[0], at[-1]) == (10.0, 20.0)
    assert mean == pytest.approx(2.0 * at)
    assert error == pytest.approx(at / 3**0.5)  # the sample deviation of 1, 2, 3 is 1
    assert band_of([(turns[:1], turns[:1]), (turns[2:], turns[2:])])[0].size == 0


def test_a_curve_is_of_one_policy_or_of_the_mean_of_all(six):
    (group,) = compare([six / "0.001-0"]).groups
    (run,) = group.runs
    ours, theirs = curve_of(run, "agent_0")[1], curve_of(run, "agent_1")[1]
    assert theirs == pytest.approx(ours + 5.0)
    assert curve_of(run, MEAN)[1] == pytest.approx(ours + 2.5)
    assert curve_of(run, "nobody") is None


def test_the_picture_shows_groups_in_colours_of_their_own(six, tmp_path):
    (tmp_path / "picture.png").write_bytes(draw_curves(compare(sorted(six.glob("0*")))))
    with Image.open(tmp_path / "picture.png") as image:
        assert image.width > 1000
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    for colour in ((0x33, 0x66, 0xB0), (0xD9, 0x72, 0x2E)):
        assert (pixels == colour).all(1).sum() > 500


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_short_runs_can_be_compared(tmp_path, lines):
    runs = [a_run(tmp_path / str(seed), seed, lines=lines) for seed in range(2)]
    assert draw_curves(compare(runs))
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
    assert draw_curves(compare([run, other]))


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
    assert 'src="learning.png"' in html
    assert (tmp_path / "made" / "learning.png").stat().st_size > 10_000
    assert command(["compare", str(six), "--out", "made", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["groups"]
    assert [group["seeds"] for group in found] == [[0, 1, 2], [0, 1, 2]]
    assert found[1]["policies"]["agent_1"]["greedy"]["mean"] == 20.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compare", "runs is missing"),
        ("compare nowhere", "nowhere is no run directory, and there is none in it"),
        ("compare run --out run", "run is a run; name another directory for the report"),
        ("compare unfinished", "the run has not ended"),
        ("runs nowhere", "there is no directory nowhere; name the one that runs are in"),
        ("train --seeds 0", "--seeds is '0'; it is a whole number, 1 or more"),
        ("train --seeds many", "--seeds is 'many'; it is a whole number, 1 or more"),
        ("train --seeds", "--seeds needs how many seeds to train"),
        ("train --jobs 2", "--jobs is for --seeds: how many of them to train at a time"),
        ("train --resume run --jobs 2", "--jobs: run does not hold several seeds"),
        ("train --resume run --seeds 2", "--seeds is for runs that begin; --resume goes on"),
        ("train --seeds 2 --run.directory run", "run holds runs already; go on with"),
        ("train tresure_hunt --seeds 2", "Did you mean treasure_hunt?"),
        ("train --resume seeds --seed 4", "--seed and --run.directory cannot change for seeds"),
        ("train --resume damaged", "seeds.json is damaged"),
    ],
)
def test_mistakes_are_told_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    a_run(tmp_path / "run")
    (a_run(tmp_path / "unfinished") / "summary.json").unlink()
    for name, text in (("seeds", '{"seeds": [0], "config": {}}'), ("damaged", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "seeds.json").write_text(text)
    assert command(words.split()) in (1, 2)
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_runs_are_found_and_what_is_damaged_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    base = tmp_path / "runs"
    best = a_run(base / "group" / "seed_0")
    (best / "checkpoints" / "000001").mkdir(parents=True)
    (best / "checkpoints" / "best.json").write_text('{"checkpoint": 1, "mean_return": 77.5}')
    (best / "earlier" / "1").mkdir(parents=True)
    (best / "earlier" / "1" / "config.yaml").write_text("game: tag")  # superseded by a resume
    (a_run(base / "empty") / "config.yaml").write_text("")
    (a_run(base / "half") / "summary.json").write_text('{"game"')
    (a_run(base / "bare") / "config.yaml").unlink()
    (a_run(base / "begun") / "summary.json").unlink()
    (base / "notes").mkdir()
    assert {path.name for path in find_runs(base)} == {"seed_0", "empty", "half", "bare", "begun"}
    assert command(["runs", str(base), "--json"]) == 0
    found = {os.path.basename(run["path"]): run for run in json.loads(capsys.readouterr().out)}
    assert found["seed_0"]["best"] == 77.5
    assert found["seed_0"]["state"] == "all turns were played"
    assert (found["seed_0"]["turns"], found["seed_0"]["game"]) == (40000, "treasure_hunt")
    assert found["seed_0"]["damaged"] == ""
    assert found["empty"]["damaged"] == "config.yaml is damaged: it is empty"
    assert found["half"]["damaged"].startswith("summary.json is damaged")
    assert found["bare"]["damaged"] == "it has no config.yaml"
    assert found["begun"]["state"] == "did not begin"
    assert found["half"]["game"] == "treasure_hunt"  # the rest is told
    assert command(["runs", str(base)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "all turns were played" in said
    assert "half is damaged: summary.json is damaged" in said
    assert command(["runs", str(base / "notes")]) == 0
    assert "there is no run in" in capsys.readouterr().out


def test_a_single_run_or_directory_may_be_compared(six):
    """It was taken apart: into letters, or the names of its policies."""
    one = six / "0.001-0"
    opened = remuda.load(one)
    for single in (one, str(one), opened, [opened]):
        assert [run.files.path for run in compare(single).groups[0].runs] == [one]
    assert [len(group.runs) for group in compare(str(six)).groups] == [3, 3]
    assert [len(group.runs) for group in compare(path for path in [one]).groups] == [1]


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (3, "give runs in a list; this is 3"),
        (None, "give runs in a list; this is None"),
        ({"a": "run"}, "give runs in a list; this is {'a'"),
        ([3], "a run is its directory, .* this is 3"),
        ([], "name the runs"),
    ],
)
def test_what_is_no_run_is_not_compared(runs, said):
    with pytest.raises(remuda.UsageError, match=f"compare: {said}"):
        compare(runs)


def test_a_policy_that_no_run_has_is_told(six):
    """It was None, as of one that was not measured."""
    (group,) = compare([six / "0.001-0", six / "0.001-1"]).groups
    for score in (group.greedy, group.in_training):
        with pytest.raises(remuda.UsageError, match=r"'typo' in treasure_hunt; there are agent_0"):
            score("typo")
        assert score("agent_1").runs == score().runs == 2


def test_runs_of_an_earlier_version_are_of_the_group_of_equal_new_ones(tmp_path):
    new = a_run(tmp_path / "new", 1, policy={"algorithm": "dqn"})
    old = a_run(tmp_path / "old", 2, policy={"algorithm": "dqn"})
    tree = yaml.safe_load((old / "config.yaml").read_text())
    tree["policy"]["double"] = tree["policy"]["dqn"].pop("double")
    tree["policy"]["iqn"].pop("double")
    (old / "config.yaml").write_text(yaml.safe_dump(tree))
    (group,) = compare([new, old]).groups
    assert group.seeds == (1, 2)


def test_names_with_dots_set_runs_apart_as_others_do(tmp_path):
    """The key was split at each dot, and not found."""
    runs = [
        a_run(tmp_path / who, env={"scripted": {"player.0": who}, "options": {"a.b": 1}})
        for who in ("random", "greedy_walker")
    ]
    names = [group.name for group in compare(runs).groups]
    assert names == ["0 random", "0 greedy_walker"]
    tree = {"env": {"scripted": {"player.0": "random"}, "options": {}}, "seed": 3}
    assert flat(tree) == {"env.scripted.player.0": "random", "seed": 3}


def test_a_run_whose_module_is_broken_does_not_stop_others(tmp_path, monkeypatch, capsys):
    """Its exception ended `remuda train` and `remuda runs` with a traceback."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_algorithm.py").write_text("class Mine(Base):\n    pass\n")
    (tmp_path / "broken_syntax.py").write_text("class Mine(:\n")
    for name in ("broken_algorithm", "broken_syntax"):
        config = a_run(tmp_path / "runs" / name) / "config.yaml"
        tree = yaml.safe_load(config.read_text())
        tree["policy"]["algorithm"] = f"{name}:Mine"
        config.write_text(yaml.safe_dump(tree))
    a_run(tmp_path / "runs" / "whole")
    assert find_unfinished(load_config({}), tmp_path / "runs") is None
    assert command(["runs", "--json"]) == 0
    found = {os.path.basename(r["path"]): r["damaged"] for r in json.loads(capsys.readouterr().out)}
    assert found["whole"] == ""
    assert "NameError in your code (broken_algorithm.py, line 1)" in found["broken_algorithm"]
    assert "SyntaxError in your code (broken_syntax.py, line 1)" in found["broken_syntax"]
    with pytest.raises(remuda.RemudaError, match=r"NameError in your code \(broken_algorithm"):
        load_config({"policy": {"algorithm": "broken_algorithm:Mine"}})


def test_no_answer_is_no(monkeypatch, capsys):
    """Ctrl-D was a traceback."""

    def no_answer(question):
        raise EOFError

    monkeypatch.setattr("builtins.input", no_answer)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"remuda.ui.resuming.sys.{stream}.isatty", lambda: True, raising=False)
    monkeypatch.setattr("remuda.ui.resuming.find_unfinished", lambda config, base: base)
    monkeypatch.setattr("remuda.ui.resuming._progress", lambda path: "5 turns")
    assert offer_to_resume(load_config({})) is None


def test_a_run_may_be_trained_in_a_directory_of_seeds(tmp_path, monkeypatch, capsys):
    """The seeds in the current directory were taken for those to go on with."""
    (tmp_path / "seeds.json").write_text('{"seeds": [0], "config": {}}')
    monkeypatch.chdir(tmp_path)
    entered = []
    monkeypatch.setattr("remuda.ui.commands.train._train_seeds", lambda *w: entered.append(w) or 1)
    monkeypatch.setattr("remuda.ui.commands.train._train_run", lambda *w, with_report: 0)
    assert command(["train", "tag"]) == 0
    assert entered == []
    assert command(["train", "--resume", "."]) == 1
    assert command(["train", f"--resume={os.curdir}"]) == 1
    monkeypatch.setenv("HOME", str(tmp_path))
    assert command(["train", "--resume=~"]) == 1
    assert len(entered) == 3


def test_a_resumed_run_stays_in_its_directory(tmp_path, capsys):
    run = a_run(tmp_path / "run")
    words = ["train", "--resume", str(run), "--run.directory"]
    assert command([*words, str(tmp_path / "other")]) == 1
    assert "other, and --resume goes on in" in capsys.readouterr().err


FLAGS = [
    *("--schedule", "sequential", "--policy.algorithm", "ppo", "--policy.network.hidden", "16"),
    *("--policy.ppo.rollout_length", "20", "--run.evaluate_episodes", "4", "--run.live", "false"),
    *("--checkpoint.evaluate_episodes", "0", "--run.log_every", "0.05"),
]


@pytest.fixture
def finds_games(monkeypatch):
    """Programs that are started find the games of these tests."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def test_a_run_is_looked_at_while_it_goes_on_and_after(tmp_path):
    directory, seen = tmp_path / "run", []

    class Looks:
        def on_checkpoint(self, run, number, path):
            seen.append(look_at(run.directory))

    result = remuda.train(
        "support:Tape",
        schedule="sequential",
        policy={"algorithm": "ppo"},
        checkpoint={"every": 0.3, "evaluate_episodes": 0},
        run={"seconds": 1.5, "turns": None, "evaluate_episodes": 4, "directory": directory},
        callbacks=[Looks()],
    )
    assert {run.state for run in seen} == {"is running"}
    (found,) = list_runs(directory)
    assert found.state == "the time was up"
    assert found.turns == result.record.turns
    means = [result.evaluation.mean(i) for i in range(2)]
    assert found.best == pytest.approx(sum(means) / 2)
    assert not found.damaged


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_seeds_are_trained_into_one_directory_with_one_report(tmp_path, capfd, jobs, finds_games):
    base = tmp_path / "runs"
    words = ["train", "support:Tape", *FLAGS, "--run.turns", "300", "--seed", "5", "--seeds", "3"]
    assert command([*words, "--jobs", str(jobs), "--run.directory", str(base)]) == 0
    said = capfd.readouterr().out
    assert {path.name for path in find_runs(base)} == {"seed_5", "seed_6", "seed_7"}
    found = compare([base])
    (group,) = found.groups
    assert group.seeds == (5, 6, 7)
    assert group.greedy("agent_0").words in said
    html = (base / "report.html").read_text()
    assert group.greedy("agent_0").words in html
    assert (base / "learning.png").exists()
    assert not list(base.glob("seed_*/report.html"))  # one report was asked for
    assert not list(base.glob("seed_*/*.png")) + list(base.glob("seed_*/*.gif"))
    # Each is what that seed alone would be.
    alone = [*words[:-2], "--seed", "6", "--run.directory", str(tmp_path / "alone")]
    assert command(alone) == 0
    one, other = remuda.load(base / "seed_6"), remuda.load(tmp_path / "alone")
    for name, weights in one["agent_0"].weights().items():
        assert (weights == other["agent_0"].weights()[name]).all()


def wait_for(condition, process, seconds=300.0):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it takes too long"
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_leaves_what_is_done_and_tells_how_to_go_on(tmp_path, jobs, capfd, finds_games):
    base = tmp_path / "runs"
    words = [
        *("train", "support:Tape", *FLAGS, "--run.turns", "None", "--run.seconds", "600"),
        *("--seeds", "3", "--jobs", str(jobs), "--run.directory", str(base)),
        *("--checkpoint.every", "0.5"),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "remuda", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        begun = [base / f"seed_{seed}" / "checkpoints" for seed in range(jobs)]
        wait_for(lambda: all(list(path.glob("0*")) for path in begun), process)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=300)[0]
    assert process.returncode == 130, said
    assert f"0 of 3 seeds are done; go on with: remuda train --resume {base}" in said
    states = {path.name: look_at(path).state for path in find_runs(base)}
    assert states == {f"seed_{seed}": "stopped by SIGINT" for seed in range(jobs)}
    before = remuda.load(base / "seed_0").summary()["turns"]
    assert before > 0
    # One that is done, one that goes on, one that begins.
    go_on = ["train", "--resume", str(base), "--run.seconds", "None", "--run.turns"]
    assert command([*go_on, str(before + 200), "--jobs", str(jobs)]) == 0
    assert "done already" not in capfd.readouterr().out
    turns = {path.name: look_at(path).turns for path in find_runs(base)}
    assert turns["seed_0"] == before + 200
    assert set(turns) == {"seed_0", "seed_1", "seed_2"}
    assert (base / "report.html").exists()
    assert command(["train", "--resume", str(base)]) == 0  # nothing is left to do
    assert "done already: 3" in capfd.readouterr().out
    assert command([*go_on, str(before + 300), "--jobs", str(jobs)]) == 0  # all of them go on
    assert {look_at(path).turns for path in find_runs(base)} == {before + 300}


def test_seeds_that_were_begun_and_never_saved_begin_anew(tmp_path, capfd):
    base = tmp_path / "runs"
    config = {"game": "support:Tape", "schedule": "sequential", "policy": {"algorithm": "ppo"}}
    tree = overlay(config, {"run": {"turns": 100, "evaluate_episodes": 1, "live": False}})
    (base / "seed_0").mkdir(parents=True)
    (base / "seeds.json").write_text(json.dumps({"seeds": [0], "config": tree}))
    (base / "seed_0" / "config.yaml").write_text(yaml.safe_dump(Config().model_dump(mode="json")))
    assert command(["train", "--resume", str(base)]) == 0
    assert (base / "seed_0-given-up" / "config.yaml").exists()
    assert remuda.load(base / "seed_0").summary()["turns"] == 100
