"""The columns of the metrics: one table, and everything that shows them agrees with it."""

import json
import re
from dataclasses import fields, replace

import numpy as np
import pytest

from metric_lines import line_of, scalars
from remuda.analysis.frame import Frame
from remuda.coordinator.scoreboard_reader import ScoreboardReader
from remuda.runs.columns import COLUMNS, Source
from remuda.runs.metrics import (
    MEMBER_COLUMNS,
    POLICY_COLUMNS,
    RUN_COLUMNS,
    PolicyRecord,
    Record,
    population_record,
    read_metrics,
    row_of,
)
from remuda.system.scoreboard import Learn, Play, Policy, Scoreboard
from remuda.ui.cli.reference import metrics_page

OLD = """{"seconds": 2.5, "turns": 40, "agent_steps": 80, "turns_per_second": 16.0,
 "agent_steps_per_second": 32.0, "waits": 0, "wait_seconds": 0.0, "overtaken": 0,
 "shares": {"env": 0.1, "infer": 0.2, "write": 0.1, "weights": 0.0, "wait": 0.0},
 "policies": {"agent_0": {"mean_return": 1.5, "episodes": 4, "loss": 0.25, "updates": 3,
 "updates_per_second": 1.2, "version": 2, "staleness": 0.0, "steps": 80, "replay_fill": 0.5,
 "replay_ratio": 1.0, "redrawn": 0, "epsilon": 0.0, "busy": 0.5, "nonfinite": 0,
 "halted": false}}}"""
"""A line as the first version wrote it."""


class RolloutQueue:
    """As much of a policy's experience as a record tells."""

    written, rollout, fill, untaken, passed = 100, 1, 0.5, 0, 0


class TransitionReplay:
    """The same of one that draws."""

    written, rollout, fill, lost = 100, 0, 0.5, 0

    class config:  # noqa: N801
        learning_starts, replay_ratio = 0, 2.0


def a_board(experience):
    scoreboard = Scoreboard(("one",))
    scoreboard.learn("one")[Learn.RESTORED] = 2.0
    return scoreboard, ScoreboardReader(scoreboard, {"one": experience})


def test_the_page_names_all_columns_of_a_record_and_no_others():
    scoreboard, board = a_board(RolloutQueue())
    scoreboard.play()[Play.SECONDS_ENV] = 1.0
    record = board.between(board.start, board.read())
    text = metrics_page().split("\n## Of each member")[0]
    told = set(re.findall(r"^### `([\w/]+)` .*\n\n(?!.*metrics\.jsonl)", text, re.MULTILINE))
    told -= {"game/NAME", "logged/NAME"}
    told = {name.replace("POLICY", "one") for name in told}
    of_population = {f"population/{name}" for name in COLUMNS["population"]}
    assert of_population < told
    assert told - of_population == set(row_of(record)), "one policy is no population"
    two = replace(record, population=population_record([1.0, 2.0], [], None, None, None))
    assert told == set(row_of(two))


def test_every_number_of_a_record_is_described():
    containers = {"shares", "policies", "episode_metrics", "members", "population"}
    assert {field.name for field in fields(Record)} - containers == set(RUN_COLUMNS)
    assert [field.name for field in fields(PolicyRecord)] == list(POLICY_COLUMNS)
    for columns in (RUN_COLUMNS, POLICY_COLUMNS, MEMBER_COLUMNS, COLUMNS["population"]):
        for name, each in columns.items():
            assert each.name == name
            assert each.meaning.endswith("."), name
            assert "|" not in each.meaning, name
            assert each.over, name


@pytest.mark.parametrize(
    "experience", [RolloutQueue(), TransitionReplay()], ids=["rollouts", "replay"]
)
def test_what_the_table_says_is_read_where_it_says(experience):
    """Every word of a learner grows by its own number; each column is worked out from its own."""
    scoreboard, board = a_board(experience)
    row = scoreboard.learn("one")
    counted = {"PPO, SAC", "SAC"}  # empty only where their own count of updates does not grow
    kinds = {"all", "PPO" if experience.rollout else "DQN, IQN, SAC"} | counted
    before = board.read()
    for word in Learn:
        if word != Learn.RESTORED:
            row[word] += 3.0 + word
    record = vars(board.between(before, board.read()).policies["one"])
    read = 0
    for name, each in POLICY_COLUMNS.items():
        if each.source is None:
            continue
        if each.source.kind == "total":
            expected = 3 + each.source.of
        elif each.kind not in kinds:
            expected = None
        elif each.source.kind == "mean":
            expected = pytest.approx((3 + each.source.of) / (3 + each.source.over))
        else:
            expected = 3 + each.source.of
        assert record[name] == expected, name
        read += 1
    assert read > 20


def test_where_no_learner_has_begun_there_is_no_learning_rate():
    scoreboard, board = a_board(RolloutQueue())
    row = scoreboard.learn("one")
    row[Learn.RESTORED] = 0.0
    sources = {name: each.source for name, each in POLICY_COLUMNS.items()}
    assert sources["learning_rate"] == Source("newest", Learn.LEARNING_RATE)
    assert board.between(board.start, board.read()).policies["one"].learning_rate is None
    row[[Learn.RESTORED, Learn.LEARNING_RATE]] = 2.0, 0.125
    assert board.between(board.start, board.read()).policies["one"].learning_rate == 0.125


def test_shares_add_up_to_the_whole_of_the_actors_time():
    """Red before: 1.48 was seen, since a turn counts in the interval in which it ends."""
    scoreboard, board = a_board(RolloutQueue())
    assert board.between(board.start, board.read()).shares == {}
    play = scoreboard.play()
    play[[Play.SECONDS_ENV, Play.SECONDS_INFER, Play.WAIT_SECONDS]] = 500.0, 250.0, 250.0
    shares = board.between(board.start, board.read()).shares
    assert shares == {"env": 0.5, "infer": 0.25, "write": 0.0, "weights": 0.0, "wait": 0.25}


def test_a_policy_that_samples_its_actions_has_no_exploration_rate():
    scoreboard = Scoreboard(("q", "ppo"))
    experience = {"q": TransitionReplay(), "ppo": RolloutQueue()}
    board = ScoreboardReader(scoreboard, experience, sampling=["ppo"])
    for name in experience:
        scoreboard.policy(name)[Policy.EPSILON] = 0.25
    policies = board.between(board.start, board.read()).policies
    assert (policies["q"].epsilon, policies["ppo"].epsilon) == (0.25, None)


def test_a_line_of_an_older_version_has_nothing_in_newer_columns(tmp_path):
    path = tmp_path / "metrics.jsonl"
    line = OLD.replace("\n", "")
    _, board = a_board(RolloutQueue())
    newest = line_of(board.between(board.start, board.read()))
    newest = newest.replace('"one"', '"agent_0"')
    path.write_text(f"{line}\n{newest}\n")
    damaged = []
    records = list(read_metrics(path, damaged))
    assert (len(records), damaged) == (2, [])
    old = records[0].policies["agent_0"]
    assert (old.mean_return, old.episodes, old.trained) == (1.5, 4, 0)
    metrics = Frame.of_rows([row_of(record) for record in records], "metrics")
    assert metrics["agent_0/mean_return"][0] == 1.5
    new = set(POLICY_COLUMNS) - set(json.loads(line)["policies"]["agent_0"])
    assert {"return_min", "gradient_norm", "explained_variance", "learning_rate"} <= new
    for name in new - {"trained", "lost", "staleness_max"}:
        assert np.isnan(metrics[f"agent_0/{name}"][0]), name
        assert f"agent_0/{name}" not in dict(scalars(records[0])), name
