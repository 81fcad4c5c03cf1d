"""`run.evaluate_sampled`: the best checkpoint, the end and the picture are of exploring play."""

import io
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import remuda
from assembled import spec_of
from remuda.config import load_config
from remuda.config.unused_settings import unused_settings
from remuda.coordinator.best_checkpoint import measurement
from remuda.coordinator.checkpointing import BestKeeper
from remuda.coordinator.loggers import evaluated
from remuda.evaluation import evaluate as evaluate_module
from remuda.evaluation.results import Evaluation, Limits
from remuda.evaluation.tournaments import engine, game_schedule
from remuda.runs.result import is_reported
from remuda.runs.run_directory import RunDirectory
from remuda.ui.cli.main import run as command
from remuda.ui.cli.seeds import Seeds
from remuda.ui.reports.comparison import compare, page_of, print_comparison
from remuda.ui.reports.report import write_report
from remuda.ui.reports.results import print_results, remarks
from remuda.ui.reports.run_end import draw_picture
from remuda.ui.reports.summary import list_runs, read_run
from remuda.ui.terminal import status
from remuda.ui.terminal.live import PlainView
from tournament_games import untrained
from ui.made_runs import a_run

EPISODES = 6


def train(directory, algorithm="ppo", resume=None, **settings):
    tree = {
        "schedule": "sequential",
        "seed": 3,
        "policy": {
            "algorithm": algorithm,
            "network": {"hidden": (8,)},
            **({"ppo": {"rollout_length": 20}} if algorithm == "ppo" else {"batch_size": 16}),
        },
        "run": {"turns": 300, "evaluate_episodes": EPISODES, "directory": directory, **settings},
        "checkpoint": {"evaluate_episodes": EPISODES},
    }
    if resume:
        return remuda.train(resume=resume, view=PlainView(), run=settings)
    return remuda.train("treasure_hunt", config=tree, view=PlainView())


def means_of(told):
    return {name: each["mean"] for name, each in told["agents"].items()}


@pytest.mark.slow_cases("False-dqn", "False-ppo", "True-ppo")
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
@pytest.mark.parametrize("sampled", [False, True])
def test_the_end_and_the_best_checkpoint_are_measured_as_was_asked(tmp_path, algorithm, sampled):
    """Each number is that of the same play by hand; the other way comes to another."""
    train(tmp_path / "run", algorithm, evaluate_sampled=sampled)
    run = remuda.load(tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    best = RunDirectory.open(tmp_path / "run").checkpoints.best()
    for told, checkpoint in ((summary["evaluation"], "final"), (best, best["checkpoint"])):
        assert told["sampled"] is sampled
        by_hand, other = (
            run.evaluate(EPISODES, checkpoint=checkpoint, seed=3, sampled=way).as_summary()
            for way in (sampled, not sampled)
        )
        assert means_of(told) == means_of(by_hand)
        assert means_of(told) != means_of(other)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["sequential", "lockstep", "async"])
@pytest.mark.parametrize("sampled", [False, True])
def test_members_whose_seats_are_dealt_are_measured_likewise(tmp_path, schedule, sampled):
    """With unlike algorithms, in a game in which checkpoints play the best so far."""
    tree = {
        "schedule": schedule,
        "seed": 3,
        "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 20}},
        "population": {"policies": 3, "matchmaker": "random"},
        "policies": {"policy_1": {"algorithm": "iqn", "experience": {"learning_starts": 100}}},
        "env": {"num_envs": 4},
        "run": {"turns": 400, "evaluate_episodes": 50, "evaluate_sampled": sampled},
        "checkpoint": {"evaluate_episodes": 10},
    }
    places = {"directory": tmp_path / "run"}
    remuda.train("rock_paper_scissors", config=tree, run=places, view=PlainView())
    run = remuda.load(tmp_path / "run")
    told = json.loads((tmp_path / "run" / "summary.json").read_text())["evaluation"]
    found = {way: run.evaluate(50, seed=3, sampled=way).as_summary() for way in (False, True)}
    assert told["sampled"] is sampled
    assert told["policies"] == found[sampled]["policies"]
    assert told["policies"] != found[not sampled]["policies"]
    assert RunDirectory.open(tmp_path / "run").checkpoints.best()["sampled"] is sampled


@pytest.mark.parametrize("sampled", [False, True])
def test_play_against_the_best_so_far_is_of_the_same_kind(sampled, monkeypatch):
    kinds, with_rates = [], game_schedule.with_rates

    def rated(participants, sampled):
        kinds.append(sampled)
        return with_rates(participants, sampled)

    monkeypatch.setattr(game_schedule, "with_rates", rated)
    player = untrained("kuhn_poker", 1)
    config = load_config({"game": "kuhn_poker", "run": {"evaluate_sampled": sampled}})
    config = config.model_copy(update={"policy": player.spec.config})
    both = {f"agent_{seat}": player.snapshot for seat in range(2)}
    assert abs(engine.margin(spec_of(config), both, both, 2, 0, Limits())) <= 4.0
    assert kinds == [sampled]


def played(mean, sampled=False, constant=False):
    returns = np.full((4, 2), mean) + np.arange(4)[:, None]
    if constant:
        returns[:, 1] = -returns[:, 0]
    return measurement(Evaluation(("a", "b"), returns, sampled=sampled))


@pytest.mark.slow_cases("False-False", "False-True", "True-False")
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_a_best_of_play_of_the_other_kind_says_nothing(tmp_path, before, constant):
    """A resumed run may judge otherwise than it did: the best is found anew from there on."""
    train(tmp_path / "run")
    store = RunDirectory.open(tmp_path / "run").checkpoints
    (number, *_) = store.numbers()
    store.mark_best({"checkpoint": number, **played(10.0, before, constant)})

    def challenge(*_):
        raise AssertionError("play of one kind was compared with that of another")

    best = BestKeeper(store, lambda *_: played(1.0, not before, constant), print, True, challenge)
    best.offer(number, {})
    assert store.best()["mean_return"] == pytest.approx(
        played(1.0, constant=constant)["mean_return"]
    )
    assert store.best()["sampled"] is not before


@pytest.mark.slow
def test_a_run_that_is_resumed_may_be_judged_otherwise(tmp_path):
    train(tmp_path / "run")
    train(None, resume=tmp_path / "run", turns=600, evaluate_sampled=True)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["evaluation"]["sampled"]
    assert RunDirectory.open(tmp_path / "run").checkpoints.best()["sampled"]


@pytest.mark.slow_cases("True")
@pytest.mark.parametrize("sampled", [False, True])
def test_the_picture_is_of_the_same_play(tmp_path, sampled, monkeypatch):
    train(tmp_path / "run", evaluate_sampled=sampled)
    asked = []

    def play(*_, sampled):
        asked.append(sampled)
        raise NotImplementedError  # as games that cannot draw

    monkeypatch.setattr(evaluate_module, "actor_for_play", play)
    run = RunDirectory.open(tmp_path / "run")
    draw_picture(run)
    assert command(["watch", str(run.path), f"--sampled={str(not sampled).lower()}"]) == 1
    assert asked == [sampled, not sampled]


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True])
def test_commands_and_scripts_measure_as_the_run_does_unless_told(tmp_path, sampled, capsys):
    train(tmp_path / "run", evaluate_sampled=sampled)
    run, words = remuda.load(tmp_path / "run"), ["evaluate", str(tmp_path / "run"), "--json"]
    found = []
    for more, asked in (([], None), (["--sampled"], True), (["--sampled", "false"], False)):
        capsys.readouterr()
        assert command([*words, "--episodes", "6", *more]) == 0
        by_command = json.loads(capsys.readouterr().out)
        assert by_command == run.evaluate(EPISODES, sampled=asked).as_summary()
        assert by_command["sampled"] is (sampled if asked is None else asked)
        found.append(means_of(by_command))
    assert found[0] == found[1 if sampled else 2]
    assert found[1] != found[2]


def made(path, sampled, seed=0, mean=-30.0):
    """A run whose policies earn this after training, and about 10 at its end."""
    agents = {name: {"mean": mean, "standard_error": 0.5} for name in ("agent_0", "agent_1")}
    run = a_run(path, seed, run={"evaluate_sampled": sampled})
    summary = json.loads((run / "summary.json").read_text())
    summary["evaluation"] = {"episodes": 200, "sampled": sampled, "agents": agents}
    (run / "summary.json").write_text(json.dumps(summary))
    return run


def printed(show, *given):
    file = io.StringIO()
    show(*given, Console(width=200, file=file))
    return file.getvalue()


@pytest.mark.slow_cases("True")
@pytest.mark.parametrize("sampled", [False, True])
def test_what_is_shown_is_called_what_it_is(tmp_path, sampled):
    run = made(tmp_path / "run", sampled)
    way, other = ("sampled", "greedy") if sampled else ("greedy", "sampled")
    terminal, page = printed(print_results, run), write_report(run).read_text()
    assert f"{way} return" in terminal
    assert f">{way} return<" in page
    assert f"{way.capitalize()} return: mean" in page
    assert f"{other} return" not in terminal + page
    assert bool(remarks(read_run(run))) is not sampled
    one = compare([run])
    assert f"{way} return" in printed(print_comparison, one)
    assert f">{way} return<" in page_of(one)


def test_runs_of_both_kinds_are_set_apart_and_named(tmp_path):
    runs = [made(tmp_path / str(sampled), sampled) for sampled in (False, True)]
    found = compare(runs)
    assert [group.name for group in found.groups] == [
        "evaluate_sampled False",
        "evaluate_sampled True",
    ]
    assert "greedy or sampled return" in printed(print_comparison, found)


def resumed_otherwise(tmp_path, cut):
    """A greedy run of three seeds, gone on with to be sampled; of one that play was cut."""
    for seed in range(3):
        made(tmp_path / str(seed), True, seed, mean=10.0 * seed)
    file = tmp_path / "0" / "summary.json"
    summary = json.loads(file.read_text())
    summary["evaluation"]["sampled"] = not cut
    file.write_text(json.dumps(summary))
    return compare([tmp_path / str(seed) for seed in range(3)])


@pytest.mark.parametrize("cut", [False, True])
def test_a_mean_is_of_one_kind_of_play(tmp_path, cut):
    """Red before: a greedy return was in the mean of sampled ones, where that play had failed."""
    found = resumed_otherwise(tmp_path, cut)
    score = found.groups[0].evaluated("agent_0")
    assert (score.mean, score.runs) == ((15.0, 2) if cut else (10.0, 3))
    shown = printed(print_comparison, found)
    assert ("(of 2)" in shown) is cut
    assert "sampled return" in shown
    assert "greedy" not in shown
    assert (">0, greedy<" in page_of(found)) is cut
    assert found.as_summary()["groups"][0]["play"] == "sampled"


def test_each_group_says_how_it_played_where_they_differ(tmp_path):
    runs = [made(tmp_path / str(sampled), sampled) for sampled in (False, True)]
    shown = printed(print_comparison, compare(runs))
    assert "-30.0, greedy" in shown
    assert "-30.0, sampled" in shown


@pytest.mark.slow
@pytest.mark.parametrize("failed", [False, True])
def test_what_stands_of_before_says_how_it_was_played(tmp_path, failed, monkeypatch):
    """Red before: the note said that the returns are older, and not that they are greedy."""
    train(tmp_path / "run")

    def fail(*_, **__):
        raise ValueError("no")

    if failed:
        monkeypatch.setattr("remuda.training.finish.evaluate", fail)
    cut = {} if failed else {"evaluate_seconds": 1e-9}
    train(None, resume=tmp_path / "run", evaluate_sampled=True, **cut)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert not summary["evaluation"]["sampled"]
    (note,) = summary["notes"]
    assert note.startswith("sampled play ")
    assert note.endswith("; the returns are those of the earlier evaluation, greedy")
    page = write_report(tmp_path / "run").read_text()
    assert ">greedy return<" in page


@pytest.mark.slow
def test_fewer_episodes_of_what_is_asked_for_are_told(tmp_path):
    """Red before: more greedy ones stood for it."""
    train(tmp_path / "run")
    before = json.loads((tmp_path / "run" / "summary.json").read_text())
    first = remuda.load(tmp_path / "run").evaluate(2, sampled=True)
    cut = replace(first, cut="the time was up", asked=EPISODES)
    assert is_reported(SimpleNamespace(before=before), cut)
    assert not is_reported(SimpleNamespace(before=before), replace(cut, sampled=False))


@pytest.fixture
def two_seeds(tmp_path):
    """Two seeds that are over, each measured by two greedy episodes, and what tells of them."""
    runs = tmp_path / "runs"
    words = (
        "--schedule",
        "sequential",
        "--policy.algorithm",
        "ppo",
        "--policy.network.hidden",
        "8",
    )
    small = (*words, "--run.turns", "200", "--policy.ppo.rollout_length", "20", "--seeds", "2")
    where = ("--run.directory", str(runs), "--run.evaluate_episodes", "2")
    assert command(["train", "treasure_hunt", *small, *where]) == 0

    def resume(*words, run=runs):
        return command(["train", "--resume", str(run), *words])

    def measured():
        files = [runs / f"seed_{seed}" / "summary.json" for seed in (0, 1)]
        found = [json.loads(file.read_text())["evaluation"] for file in files]
        return [(each["sampled"], each["episodes"]) for each in found]

    return SimpleNamespace(runs=runs, resume=resume, measured=measured)


JOBS = pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])


@pytest.mark.slow
@JOBS
def test_seeds_are_measured_anew_where_that_changes(two_seeds, jobs):
    """Red before: they were done already, and what was asked for was dropped without a word."""
    assert two_seeds.resume("--run.evaluate_sampled", "true", "--jobs", jobs) == 0
    assert two_seeds.measured() == [(True, 2)] * 2
    assert two_seeds.resume("--run.evaluate_episodes", "3", "--jobs", jobs) == 0
    assert two_seeds.measured() == [(True, 3)] * 2


@pytest.mark.slow
@JOBS
def test_what_is_known_better_of_a_seed_stays(two_seeds, jobs, capfd):
    """More episodes of one seed were played by itself."""
    assert two_seeds.resume("--run.evaluate_episodes", "5", run=two_seeds.runs / "seed_0") == 0
    capfd.readouterr()
    assert two_seeds.resume("--jobs", jobs) == 0
    assert "already done: 2" in capfd.readouterr().out
    assert two_seeds.measured() == [(False, 5), (False, 2)]


@pytest.mark.slow
@JOBS
def test_seeds_that_were_not_measured_in_time_are_measured_later(two_seeds, jobs, capfd):
    """Red before: what the configuration says counted as measured."""
    short = ("--run.evaluate_sampled", "true", "--run.evaluate_seconds", "1e-9")
    assert two_seeds.resume(*short, "--jobs", jobs) == 0
    assert two_seeds.measured() == [(False, 2)] * 2
    assert two_seeds.resume("--run.evaluate_seconds", "null", "--jobs", jobs) == 0
    assert two_seeds.measured() == [(True, 2)] * 2
    capfd.readouterr()
    assert two_seeds.resume("--jobs", jobs) == 0
    assert "already done: 2" in capfd.readouterr().out


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("key", ["turns", "evaluate_sampled"])
def test_what_was_asked_of_seeds_holds_in_later_sessions_beside_each_other(two_seeds, key):
    """Red before: children went on with their own settings, and were never done."""
    wanted = {"turns": 300, "evaluate_sampled": True}[key]
    Seeds.open(two_seeds.runs, {"run": {key: wanted}})  # as where it is stopped at once
    assert two_seeds.resume("--jobs", "2") == 0
    for seed in (0, 1):
        run = RunDirectory.open(two_seeds.runs / f"seed_{seed}")
        assert getattr(run.read_config().run, key) == wanted
        assert run.is_finished()


@pytest.mark.slow_cases("2.0-nan-2.0", "None-5.0-5.0", "nan-5.0-5.0")
@pytest.mark.parametrize(
    ("mean", "best", "listed"),
    [(None, None, None), (None, 5.0, 5.0), (float("nan"), 5.0, 5.0), (2.0, float("nan"), 2.0)],
)
def test_a_list_of_runs_leaves_out_what_is_no_number(tmp_path, mean, best, listed):
    """Red before: one such run was a traceback in place of the whole list."""
    train(tmp_path / "run")
    file = tmp_path / "run" / "summary.json"
    summary = json.loads(file.read_text())
    summary["evaluation"]["agents"]["agent_1"]["mean"] = mean
    summary["evaluation"]["agents"]["agent_0"]["mean"] = 2.0
    file.write_text(json.dumps(summary))
    store = RunDirectory.open(tmp_path / "run").checkpoints
    (store.path / "best.json").unlink()
    if best is not None:
        store.mark_best({"checkpoint": store.numbers()[0], "mean_return": best})
    (found,) = list_runs(tmp_path)
    assert found.best == listed


@pytest.mark.slow_cases("False-False", "False-True", "True-False")
@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_a_list_of_runs_compares_play_of_one_kind(tmp_path, best, last):
    """Red before: the larger of a greedy and a sampled return was the best."""
    train(tmp_path / "run", evaluate_sampled=last)
    store = RunDirectory.open(tmp_path / "run").checkpoints
    store.mark_best({"checkpoint": store.numbers()[0], "mean_return": 5000.0, "sampled": best})
    (found,) = list_runs(tmp_path)
    assert not found.damaged
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    mean = np.mean(list(means_of(summary["evaluation"]).values()))
    assert found.best == pytest.approx(5000.0 if best is last else mean)


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True])
def test_an_analysis_plays_as_the_run_is_measured(tmp_path, sampled, capsys):
    train(tmp_path / "run", evaluate_sampled=sampled)
    words = ["analyse", str(tmp_path / "run"), "--out", str(tmp_path / "found")]
    assert command([*words, "--seconds", "60"]) == 0
    way = "sampled" if sampled else "greedy"
    assert f"2 agents, 200 {way} episodes" in capsys.readouterr().out
    told = json.loads((tmp_path / "found" / "analysis.json").read_text())
    assert told["play"] == way
    by_hand = remuda.load(tmp_path / "run").evaluate(200, sampled=sampled)
    earned = [each["value"] for each in told["agents"].values()]
    assert earned == pytest.approx([by_hand.mean(0), by_hand.mean(1)], rel=1e-5)


def test_where_nobody_explores_it_is_told_to_do_nothing():
    """Red before: greedy play of noisy networks without exploration was called sampled."""
    tree = {"run": {"evaluate_sampled": True}}
    noisy = {"policy": {"network": {"noisy": True}, "exploration": {"end": 0.0}}}
    told = "run.evaluate_sampled has no effect without a policy that draws its actions"
    assert any(each.startswith(told) for each in unused_settings(load_config(tree | noisy)))
    assert not unused_settings(load_config(tree))
    own = {"policies": {"agent_0": {"exploration": {"end": 0.1}}}}
    assert not any(told in each for each in unused_settings(load_config(tree | noisy | own)))


def test_the_status_says_what_the_best_was_found_by():
    told = {"checkpoints": [1, 2], "best": {"checkpoint": 1, "mean_return": 3.0}}
    assert status.checkpoint_words(told).endswith("(best: 1, greedy return 3.00)")
    told["best"]["sampled"] = True
    assert status.checkpoint_words(told).endswith("(best: 1, sampled return 3.00)")


@pytest.mark.parametrize("sampled", [False, True])
def test_loggers_have_a_column_by_what_it_is(sampled):
    class Ended:
        evaluation = Evaluation(("a",), np.ones((2, 1)), sampled=sampled)

    assert evaluated(Ended) == {"sampled/a" if sampled else "greedy/a": 1.0}
