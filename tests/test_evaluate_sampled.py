"""`run.evaluate_sampled`: the best checkpoint, the end and the picture are of exploring play."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

import remuda
from remuda import crossplay
from remuda import evaluate as evaluate_module
from remuda.config import load_config
from remuda.coordinator.checkpointing import BestKeeper
from remuda.coordinator.run_directory import RunDirectory
from remuda.evaluation import Evaluation, Limits
from remuda.judge import judged
from remuda.loggers.common import evaluated
from remuda.ui import status
from remuda.ui.cli import run as command
from remuda.ui.comparison import compare, print_comparison
from remuda.ui.comparison_page import page_of
from remuda.ui.ending import draw_picture
from remuda.ui.live import PlainView
from remuda.ui.remarks import remarks
from remuda.ui.report import write_report
from remuda.ui.results import print_summary
from remuda.ui.summary import read_run
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


@pytest.mark.parametrize("sampled", [False, True])
def test_play_against_the_best_so_far_is_of_the_same_kind(sampled, monkeypatch):
    asked = []

    def meet(*given):
        asked.append(given[5])
        return [np.ones(2)]

    monkeypatch.setattr(crossplay, "_meet", meet)
    config = load_config({"game": "treasure_hunt", "run": {"evaluate_sampled": sampled}})
    assert crossplay.margin(config, {}, {}, 2, 0, Limits()) == 0.0
    assert asked == [sampled, sampled]


def played(mean, sampled=False, constant=False):
    returns = np.full((4, 2), mean) + np.arange(4)[:, None]
    if constant:
        returns[:, 1] = -returns[:, 0]
    return judged(Evaluation(("a", "b"), returns, sampled=sampled))


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

    best = BestKeeper(store, lambda _: played(1.0, not before, constant), print, True, challenge)
    best.offer(number, {})
    assert store.best()["mean_return"] == pytest.approx(
        played(1.0, constant=constant)["mean_return"]
    )
    assert store.best()["sampled"] is not before


def test_a_run_that_is_resumed_may_be_judged_otherwise(tmp_path):
    train(tmp_path / "run")
    train(None, resume=tmp_path / "run", turns=600, evaluate_sampled=True)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["evaluation"]["sampled"]
    assert RunDirectory.open(tmp_path / "run").checkpoints.best()["sampled"]


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


@pytest.mark.parametrize("sampled", [False, True])
def test_what_is_shown_is_called_what_it_is(tmp_path, sampled):
    run = made(tmp_path / "run", sampled)
    way, other = ("sampled", "greedy") if sampled else ("greedy", "sampled")
    terminal, page = printed(print_summary, run), write_report(run).read_text()
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


def test_the_status_says_what_the_best_was_found_by():
    told = {"checkpoints": [1, 2], "best": {"checkpoint": 1, "mean_return": 3.0}}
    assert status._checkpoints(told).endswith("(best: 1, greedy return 3.00)")
    told["best"]["sampled"] = True
    assert status._checkpoints(told).endswith("(best: 1, sampled return 3.00)")


@pytest.mark.parametrize("sampled", [False, True])
def test_loggers_have_a_column_by_what_it_is(sampled):
    class Ended:
        evaluation = Evaluation(("a",), np.ones((2, 1)), sampled=sampled)

    assert evaluated(Ended) == {"sampled/a" if sampled else "greedy/a": 1.0}
