"""Which runs the dashboard knows, while they come, change and go."""

import json
import shutil
import sys
import threading

import pytest
import yaml

from dashboard_runs import made_run
from refusals import refuses
from remuda.ui.dashboard.catalogue import Catalogue, UnknownRunError
from remuda.ui.dashboard.pages import differences, table_of


@pytest.mark.parametrize(
    ("config", "metrics", "shown"),
    [
        ({}, ["a", "b"], "iqn"),
        ({"policies": {"a": {"algorithm": "dqn"}}}, ["a", "b"], "dqn, iqn"),
        ({"policies": {n: {"algorithm": "dqn"} for n in "ab"}}, ["a", "b"], "dqn"),
        (
            {"policies": {"a": {"algorithm": "dqn"}}, "env": {"scripted": {"b": "random"}}},
            "ab",
            "dqn",
        ),
        ({"policies": {"a": {"algorithm": "dqn"}}}, [], "dqn, iqn"),
    ],
)
def test_the_algorithms_are_those_of_the_policies(tmp_path, config, metrics, shown):
    """Red before: the default was shown, even if no policy had it."""
    path = made_run(tmp_path / "run")
    (path / "config.yaml").write_text(json.dumps({"game": "treasure_hunt", **config}))
    line = json.loads((path / "metrics.jsonl").read_text().splitlines()[0])
    (own,) = line["policies"].values()
    line["policies"] = dict.fromkeys(metrics, own)
    (path / "metrics.jsonl").write_text(f"{json.dumps(line)}\n" if metrics else "")
    catalogue = Catalogue(tmp_path)
    catalogue.scan()
    assert catalogue.find("run").row()["algorithm"] == shown


def test_runs_come_change_and_go(tmp_path):
    made_run(tmp_path / "one")
    catalogue = Catalogue(tmp_path)
    assert catalogue.runs() == []
    assert not catalogue.complete
    catalogue.scan()
    assert [run.id for run in catalogue.runs()] == ["one"]
    assert catalogue.complete
    before = catalogue.changes
    catalogue.scan()
    assert catalogue.changes == before
    made_run(tmp_path / "group" / "two", seed=3)
    catalogue.scan()
    assert {run.id for run in catalogue.runs()} == {"one", "group/two"}
    assert catalogue.find("group/two").row()["seed"] == 3
    assert catalogue.changes > before
    before = catalogue.changes
    (tmp_path / "one" / "config.yaml").write_text("game: cleanup\n")
    catalogue.scan()
    assert catalogue.find("one").found.game == "cleanup"
    assert catalogue.changes > before
    shutil.rmtree(tmp_path / "group")
    catalogue.scan()
    assert [run.id for run in catalogue.runs()] == ["one"]
    with refuses(UnknownRunError):
        catalogue.files("group/two")


def test_runs_that_differ_by_their_seed_are_one_group(tmp_path):
    for name, game, seed in (("a", "cleanup", 1), ("b", "cleanup", 2), ("c", "tag", 1)):
        made_run(tmp_path / name, game=game, seed=seed)
    catalogue = Catalogue(tmp_path)
    catalogue.scan()
    groups = {run.id: run.group for run in catalogue.runs()}
    assert groups["a"] == groups["b"] != groups["c"]


def test_runs_without_a_configuration_are_groups_of_their_own(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
    catalogue = Catalogue(tmp_path)
    catalogue.scan()
    assert [run.group for run in catalogue.runs()] == ["", ""]
    assert all(run.found.damaged for run in catalogue.runs())


def wait_for_runs(catalogue):
    """Until its thread has found any."""
    for _ in range(3000):
        if catalogue.runs():
            break
        catalogue.stopping.wait(0.01)


def test_a_thread_looks_again(tmp_path):
    catalogue = Catalogue(tmp_path)
    catalogue.start()
    try:
        made_run(tmp_path / "one")
        wait_for_runs(catalogue)
        assert [run.id for run in catalogue.runs()] == ["one"]
    finally:
        catalogue.stop()


OPEN, SAID = {"network": {"shared": None}}, {"network": {"shared": True}}


@pytest.mark.parametrize(
    ("algorithm", "copies", "groups"),
    [("iqn", 1, 1), ("dqn", 64, 1), ("ppo", 1, 2), ("of_a_user:Own", 1, 2)],
)
def test_runs_are_one_group_by_what_they_come_to(tmp_path, algorithm, copies, groups, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "of_a_user.py").write_text(
        "from remuda.policies.algorithms.ppo import PPO as Own\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "code")
    for name, own in (("before", SAID), ("now", OPEN)):
        tree = {"policy": {"algorithm": algorithm, **own}, "env": {"num_envs": copies}}
        (made_run(tmp_path / name) / "config.yaml").write_text(yaml.safe_dump(tree))
    catalogue = Catalogue(tmp_path)
    catalogue.scan()
    runs = catalogue.runs()
    assert "of_a_user" not in sys.modules  # a page of runs runs nobody's code
    assert len({run.group for run in runs}) == groups
    assert set(differences(runs)) == ({"policy.network.shared"} if groups == 2 else set())


def test_the_table_has_settings_that_differ_between_runs_of_one_game(tmp_path):
    for name, game, rest in (
        ("a", "tag", "policy: {learning_rate: 0.1}"),
        ("b", "tag", "policy: {learning_rate: 0.2}\nrun: {turns: 9}"),
        ("c", "cleanup", "policy: {learning_rate: 0.1}\nenv: {num_envs: 3}"),
    ):
        run = made_run(tmp_path / name, game=game)
        (run / "config.yaml").write_text(f"game: {game}\nseed: {len(rest)}\n{rest}\n")
    catalogue = Catalogue(tmp_path)
    catalogue.scan()
    table = table_of(catalogue.runs())
    assert table["columns"] == ["policy.learning_rate"]
    values = {run["id"]: run["settings"]["policy.learning_rate"] for run in table["runs"]}
    assert values == {"a": 0.1, "b": 0.2, "c": 0.1}


def test_settings_of_any_kind_are_plain(tmp_path):
    run = made_run(tmp_path / "a")
    long = "x" * 1000
    (run / "config.yaml").write_text(
        f"game: a\nenv: {{options: {{list: [1, 2], word: {long}, 3: 4}}}}\n"
    )
    catalogue = Catalogue(tmp_path)
    catalogue.scan()
    settings = catalogue.find("a").settings
    assert settings["env.options.list"] == "[1, 2]"
    assert settings["env.options.3"] == 4
    assert len(settings["env.options.word"]) < 300


DEEP = "[" * 100_000
ODD = {
    "config.yaml": [
        "x: !!timestamp foo",
        "x: !!int foo",
        "x: !!float foo",
        "x: !!bool foo",
        "x: 0x" + "f" * 6000,
        DEEP,
    ],
    "status.json": [DEEP],
    "summary.json": [DEEP],
    "checkpoints/best.json": [DEEP],
}


@pytest.mark.slow_cases("config.yaml-text5")
@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in ODD.items() for text in texts]
)
def test_one_odd_file_costs_no_other_run(tmp_path, name, text):
    made_run(tmp_path / "a_good")
    odd = made_run(tmp_path / "b_odd")
    (odd / name).parent.mkdir(exist_ok=True)
    (odd / name).write_text(text)
    made_run(tmp_path / "c_good")
    catalogue = Catalogue(tmp_path)
    catalogue.scan()
    assert {run.id for run in catalogue.runs()} == {"a_good", "b_odd", "c_good"}
    assert catalogue.complete
    made_run(tmp_path / "d_good")
    catalogue.scan()
    assert len(catalogue.runs()) == 4


@pytest.mark.slow_cases("3600.0")
@pytest.mark.parametrize("longest", [3600.0, 0.1])
def test_after_a_look_that_took_long_all_goes_on(tmp_path, monkeypatch, longest):
    """The first look at many runs takes long; what nobody watches is ended all the same."""
    monkeypatch.setattr("remuda.ui.dashboard.catalogue.SHARE", 1e-9)
    monkeypatch.setattr("remuda.ui.dashboard.catalogue.REST", longest)
    called = threading.Semaphore(0)
    catalogue = Catalogue(tmp_path, called.release)
    looked = threading.Semaphore(0)
    monkeypatch.setattr(catalogue, "scan", looked.release)
    catalogue.start()
    assert all(called.acquire(timeout=60) for _ in range(3))
    assert looked.acquire(timeout=60)
    assert looked.acquire(timeout=60 if longest < 1 else 0.5) == (longest < 1)
    catalogue.stop()


def test_a_look_that_fails_is_not_the_last(tmp_path, monkeypatch):
    catalogue = Catalogue(tmp_path)
    failures = []

    def failing(base):
        failures.append(base)
        monkeypatch.undo()
        raise OSError("for a moment")

    monkeypatch.setattr("remuda.ui.dashboard.catalogue.find_runs", failing)
    catalogue.start()
    try:
        made_run(tmp_path / "one")
        wait_for_runs(catalogue)
        assert failures
        assert [run.id for run in catalogue.runs()] == ["one"]
    finally:
        catalogue.stop()


@pytest.mark.parametrize("name", ["requests", "weights", "checkpoints/best.json"])
def test_runs_of_which_a_part_is_elsewhere_are_not_served(tmp_path, name):
    run = made_run(tmp_path / "runs" / "one")
    (tmp_path / "elsewhere").mkdir()
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(tmp_path / "elsewhere")
    catalogue = Catalogue(tmp_path / "runs")
    catalogue.scan()
    assert catalogue.runs() == []
