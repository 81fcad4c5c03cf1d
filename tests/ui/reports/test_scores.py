"""The table of scores, and the formats of rliable and marl-eval."""

import json

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.errors import UsageError
from ui.made_runs import a_run


@pytest.fixture
def four(tmp_path):
    """Two algorithms in two games, with two seeds each."""
    for level, algorithm in enumerate(("ppo", "dqn")):
        for game in ("tag", "treasure_hunt"):
            for seed in range(2):
                path = tmp_path / f"{algorithm}-{game}-{seed}"
                a_run(path, seed, level=level, game=game, policy={"algorithm": algorithm})
    return tmp_path


def test_the_table_has_a_row_for_each_score(four):
    comparison = remuda.compare(four / "ppo-tag-1")
    rows = comparison.scores().to_rows()
    assert [*rows[0]] == ["run", "game", "group", "seed", "policy", "kind", "step", "return"]
    final = [row for row in rows if row["kind"] == "greedy"]
    assert [(row["policy"], row["step"], row["return"]) for row in final] == [
        ("agent_0", 40_000, 11.0),
        ("agent_1", 40_000, 16.0),
    ]
    training = [row for row in rows if row["kind"] == "training" and row["policy"] == "agent_0"]
    assert [row["step"] for row in training] == [1000 * i for i in range(1, 41)]
    assert rows[0]["run"] == str(four / "ppo-tag-1")
    assert (rows[0]["game"], rows[0]["seed"]) == ("tag", 1)


def test_scores_for_rliable_are_runs_by_tasks(four):
    comparison = remuda.compare(four)
    found = comparison.to_rliable("agent_0")
    assert comparison.tasks == ("tag", "treasure_hunt")
    # The made returns are 10 + level + seed.
    assert {name.rpartition("algorithm ")[2].partition(",")[0] for name in found} == {"ppo", "dqn"}
    ppo, dqn = (next(v for k, v in found.items() if name in k) for name in ("ppo", "dqn"))
    np.testing.assert_array_equal(ppo, [[10.0, 10.0], [11.0, 11.0]])
    np.testing.assert_array_equal(dqn, [[11.0, 11.0], [12.0, 12.0]])
    assert next(iter(comparison.to_rliable().values())).shape == (2, 2)


def test_equal_seeds_are_refused_where_they_count(four, tmp_path):
    """Red before: `tasks` raised, too, and no message named the runs."""
    a_run(four / "again", 0, game="tag", policy={"algorithm": "ppo"})
    comparison = remuda.compare(four)
    assert comparison.tasks == ("tag", "treasure_hunt")
    for scores in (comparison.to_rliable, comparison.to_marl_eval):
        with refuses(UsageError, str(four / "again"), str(four / "ppo-tag-0"), "remuda.compare"):
            scores()


def test_a_report_has_a_picture_for_each_game(four):
    """Red before: returns of all games were in one picture."""
    page = remuda.compare(four).report(four / "report").read_text()
    names = ["learning-1.png", "learning-2.png"]
    assert sorted(path.name for path in (four / "report").glob("*.png")) == names
    assert [f'data-from="{name}"' in page for name in names] == [True, True]
    alone = remuda.compare([four / "ppo-tag-0", four / "dqn-tag-0"]).report(four / "alone")
    assert 'data-from="learning.png"' in alone.read_text()


def test_scores_for_marl_eval_have_common_steps(four):
    a_run(four / "short", 7, game="tag", policy={"algorithm": "ppo"}, lines=20)
    found = json.loads(json.dumps(remuda.compare(four).to_marl_eval("agent_0", points=4)))
    assert [*found] == ["remuda"]
    assert [*found["remuda"]] == ["tag", "treasure_hunt"]
    by_method = found["remuda"]["tag"]
    seeds = next(each for method, each in by_method.items() if "ppo" in method)
    assert [*seeds] == ["seed_0", "seed_1", "seed_7"]
    for seed in (each for method in by_method.values() for each in method.values()):
        assert [*seed] == ["step_0", "step_1", "step_2", "step_3", "absolute_metrics"]
        counts = [seed[f"step_{i}"]["step_count"] for i in range(4)]
        assert counts == [5000, 10_000, 15_000, 20_000]  # as the shortest run
    assert seeds["seed_1"]["absolute_metrics"] == {"return": [11.0]}
    run = remuda.load(four / "ppo-tag-0").metrics()
    at = int(np.flatnonzero(run["turns"] == 5000)[0])
    assert seeds["seed_0"]["step_0"]["return"] == [pytest.approx(run["agent_0/mean_return"][at])]


def test_a_library_is_the_environment_of_marl_eval(tmp_path):
    a_run(tmp_path / "run", game="gymnasium:CartPole-v1")
    found = remuda.compare(tmp_path / "run").to_marl_eval(points=1)
    assert [*found] == ["gymnasium"]
    assert [*found["gymnasium"]] == ["CartPole-v1"]
    assert [*found["gymnasium"]["CartPole-v1"]] == ["iqn"]


def test_incomplete_scores_are_refused(four, tmp_path):
    runs = sorted(four.iterdir())
    with refuses(UsageError, "to_rliable", "tag"):
        remuda.compare([run for run in runs if not run.name.startswith("dqn-tag")]).to_rliable()
    with refuses(UsageError, "to_rliable", "different numbers of runs"):
        remuda.compare([run for run in runs if run.name != "ppo-tag-0"]).to_rliable()
    with refuses(UsageError, "to_rliable", "no policy 'typo'"):
        remuda.compare(runs).to_rliable("typo")


def test_what_marl_eval_cannot_hold_is_refused(four):
    comparison = remuda.compare(four)
    with refuses(UsageError, "to_marl_eval", "points"):
        comparison.to_marl_eval(points=0)
    with refuses(UsageError, "to_marl_eval", "typo"):
        comparison.to_marl_eval("typo")
    a_run(four / "again", 1, game="tag", policy={"algorithm": "ppo"}, run={"turns": 999})
    with refuses(UsageError, "the seed 1"):
        remuda.compare(four).to_marl_eval()


def test_a_run_without_evaluation_is_refused(tmp_path):
    run = a_run(tmp_path / "run")
    summary = json.loads((run / "summary.json").read_text()) | {"evaluation": None}
    (run / "summary.json").write_text(json.dumps(summary))
    with refuses(UsageError, "run.evaluate_episodes"):
        remuda.compare(run).to_rliable()
