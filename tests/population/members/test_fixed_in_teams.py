"""Scripted policies and policies of other runs as members of teams: they play, and never learn."""

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.config import load_config, overlay
from remuda.errors import ConfigError, RemudaError
from remuda.population.ledger.ledger import read_records
from remuda.population.ledger.records import FRESH, SCRIPTED
from remuda.population.run_spec import RunSpec
from remuda.population.setup import expected_shares
from remuda.training.run import train
from remuda.ui.analysis.tournament_setup import set_up
from remuda.ui.cli.main import run as command
from remuda.ui.reports.report import write_report
from remuda.ui.terminal.live import PlainView
from support import assert_equal, files_of

TREE = {
    "game": "tag",
    "schedule": "sequential",
    "env": {"num_envs": 8, "options": {"num_agents": 6}, "scripted": {"agent_5": "random"}},
    "policy": {
        "algorithm": "ppo",
        "share_rewards": 1.0,
        "network": {"hidden": (8,)},
        "ppo": {"rollout_length": 8},
    },
    "run": {"turns": 400, "evaluate_episodes": 2},
    "checkpoint": {"evaluate_episodes": 0},
}
RED, BLUE = ("agent_0", "agent_1"), ("agent_2", "agent_3", "agent_4")
MIXED = {"matchmaker": "mixed", "shares": {"prioritized": 0.5, "random": 0.5}}


def teams_of(red, blue, **population):
    """Two against three; agent_5 is a fixed scripted seat."""
    teams = {"red": {"agents": RED, "policies": red}, "blue": {"agents": BLUE, "policies": blue}}
    return {"population": {"matchmaker": "teams", "teams": teams, **population}}


def trained(directory, *trees, resume=False):
    tree = overlay(TREE, {"run": {"directory": directory}})
    for each in trees:
        tree = overlay(tree, each)
    return train(load_config(tree), PlainView(), resume=resume)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A run of four agents, whose observations are those of tag with six."""
    directory = tmp_path_factory.mktemp("other") / "old"
    population = {"matchmaker": "random", "policies": ("x", "y")}
    trained(directory, {"population": population, "run": {"turns": 200, "evaluate_episodes": 0}})
    return directory


def mixed(other):
    """Two that learn and a scripted one against one that learns and one of another run."""
    imported = f"{other}:y"
    known = {"scripted": {"bot": "random"}, "members_from": (imported,)}
    return teams_of(("a", "b", "bot"), ("c", imported), **known)


def matches_of(directory):
    names, records = read_records(directory / "ledger.bin")
    return names, records[records["kind"] == 0]


def test_they_play_for_their_team_alone_and_never_learn(other, tmp_path):
    result = trained(tmp_path / "run", mixed(other))
    names, matches = matches_of(tmp_path / "run")
    assert names == ("a", "b", "c", "bot", "agent_5", "old-y")
    on_red, on_blue = matches["policy"][:, :2], matches["policy"][:, 2:5]
    assert set(np.unique(on_red)) == {0, 1, 3}
    assert set(np.unique(on_blue)) == {2, 5}
    # two of the five seats belong to frozen members, besides one for a live policy
    fixed = np.isin(matches["policy"][:, :5], (3, 5))
    assert 0.25 < fixed.mean() < 0.55
    assert not fixed.all(1).any()
    assert (matches["version"][:, :2][on_red == 3] == SCRIPTED).all()
    members = result.record.members
    version = remuda.load(other)["y"].version
    assert set(members) == {"a", "b", "c", "bot", "agent_5", f"old-y@{version}"}
    for name in ("bot", f"old-y@{version}"):
        assert not members[name].learns
        assert members[name].games > 10
        assert members[name].uncertainty < FRESH[3]
    run = remuda.load(tmp_path / "run")
    assert list(run) == ["a", "b", "c"]
    assert run.frozen == (f"old-y@{version}",)
    there, here = remuda.load(other)["y"].weights(), run[f"old-y@{version}"].weights()
    assert all((here[key] == values).all() for key, values in there.items())
    assert all(policy.updates > 0 for policy in result.record.policies.values())


@pytest.fixture(scope="module", params=["scripted", "imported"])
def whole(request, other, tmp_path_factory):
    """A run with a team in which no policy learns, and the names of its members."""
    directory = tmp_path_factory.mktemp("whole") / request.param
    if request.param == "scripted":
        names = ("bot", "still")
        tree = teams_of(("a", "b"), names, scripted=dict.fromkeys(names, "random"))
    else:
        texts = (f"{other}:x", f"{other}:y")
        tree = teams_of(("a", "b"), texts, members_from=texts)
        names = tuple(f"old-{name}@{remuda.load(other)[name].version}" for name in "xy")
    check = {"checkpoint": {"evaluate_episodes": 2, "every": 0.2}, "run": {"turns": 2000}}
    return trained(directory, tree, check), directory, names


def test_a_whole_team_of_them_is_evaluated_and_analysed(whole):
    """The evaluation too had no policy for their seats, and the analysis none for their role."""
    result, directory, names = whole
    _, matches = matches_of(directory)
    assert (matches["policy"][:, :2] < 2).all()
    assert (matches["policy"][:, 2:5] > 1).all()
    assert set(result.evaluation.policies) == {"a", "b"}
    assert np.isfinite(result.evaluation.returns).all()
    found = remuda.analyse(directory, seconds=0, samples=50)
    (analysis,) = found.analyses
    assert [role.role.name for role in analysis.roles] == ["red", "blue"]
    assert set(analysis.roles[1].ranking.names) == set(names)
    assert "Strengths and exploitation" in write_report(directory).read_text()
    assert "no policy is left" not in write_report(directory).read_text()


@pytest.mark.slow
def test_checkpoints_and_members_play_tournaments_on_the_seats_of_their_team(whole, capsys):
    _, directory, names = whole
    assert command(["tournament", str(directory), "--episodes", "2"]) == 0
    found = set_up([f"{directory}:{name}" for name in ("a", *names)], "", {})
    assert set(found.seats["a"]) == set(RED)
    assert all(set(found.seats[name]) == set(BLUE) for name in names)
    capsys.readouterr()


def test_an_analysis_may_leave_them_out_or_take_them(other, tmp_path):
    trained(tmp_path / "run", mixed(other), {"run": {"turns": 1200}})
    without = remuda.analyse(tmp_path / "run", seconds=0, samples=50).analyses[0]
    (name,) = remuda.load(tmp_path / "run").frozen
    assert [each.role.strategies for each in without.roles] == [("a", "b"), ("c",)]
    both = remuda.analyse(tmp_path / "run", seconds=0, samples=50, frozen=True).analyses[0]
    assert [each.role.strategies for each in both.roles] == [("a", "b", "bot"), ("c", name)]


def test_a_team_whose_members_are_fixed_takes_no_share_of_the_others():
    """With two against two of which one is scripted, expected shares tell how many steps come."""
    tree = overlay(TREE, teams_of(("a", "b"), ("bot",), scripted={"bot": "random"}))
    spec = RunSpec.of(load_config(tree))
    shares = expected_shares(spec.config.population, spec.roster)
    assert shares == pytest.approx({"a": 1.0, "b": 1.0})
    beside = overlay(TREE, teams_of(("a",), ("c", "bot"), scripted={"bot": "random"}))
    spec = RunSpec.of(load_config(beside))
    found = expected_shares(spec.config.population, spec.roster)
    assert found["a"] == pytest.approx(2.0)  # nobody else may take the seats of red
    assert found["c"] < 2.6


def test_versions_of_one_policy_may_play_for_two_teams(tmp_path):
    past = {"population": {"matchmaker": "random", "policies": 1, "snapshots": {"every": 2}}}
    trained(tmp_path / "old", past, {"run": {"turns": 800, "evaluate_episodes": 0}})
    one, two, *_ = (f"{tmp_path}/old:{name}" for name in remuda.load(tmp_path / "old").frozen)
    tree = teams_of(("a", one), ("b", two), members_from=(one, two))
    trained(tmp_path / "run", tree)
    names, matches = matches_of(tmp_path / "run")
    assert names[3:] == ("old-policy_0", "old-policy_0-2")
    assert not (matches["policy"][:, 2:5] == 3).any()
    assert not (matches["policy"][:, :2] == 4).any()
    assert (matches["policy"][:, 2:5] == 4).any()


def test_slots_of_a_team_that_learns_leave_the_other_team_fixed():
    slots = {"scripted": {"bot": "random"}, "births": {"slots": 1}, "seats": {"born_0": RED}}
    spec = RunSpec.of(load_config(overlay(TREE, teams_of(("a",), ("bot",), **slots, **MIXED))))
    assert [spec.roster.fixed_on(seat) for seat in range(5)] == [[], [], *[["bot"]] * 3]


@pytest.mark.slow
def test_a_run_with_them_is_resumed_exactly(other, tmp_path):
    tree = mixed(other)
    trained(tmp_path / "whole", tree, {"run": {"turns": 800}})
    trained(tmp_path / "parts", tree)
    trained(tmp_path / "parts", tree, {"run": {"turns": 800}}, resume=True)
    assert_equal(files_of(tmp_path / "whole"), files_of(tmp_path / "parts"))


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("actors", [1, 2])
def test_they_take_part_in_a_run_of_several_processes(actors, other, tmp_path):
    more = {"schedule": "async", "actor": {"processes": actors}, "run": {"turns": 3000}}
    result = trained(tmp_path / "run", mixed(other), more)
    members = result.record.members
    assert all(members[name].games > 10 for name in members)
    _, matches = matches_of(tmp_path / "run")
    assert set(np.unique(matches["policy"][:, 2:5])) == {2, 5}


@pytest.mark.parametrize(
    ("red", "blue", "more"),
    [
        (("a", "bot"), ("c",), {"scripted": {"bot": "nobody"}}),
        (("a", "bot"), ("c", "bot"), {"scripted": {"bot": "random"}}),
        (("a",), ("c",), {"scripted": {"bot": "random"}}),
        (("bot",), ("other",), {"scripted": {"bot": "random", "other": "random"}}),
        (("a", "random"), ("c",), {}),
        (("a", "old:y"), ("c",), {}),
        (("a",), ("c",), {"members_from": ("{}:y",)}),
        (("a", "{}:z"), ("c",), {"members_from": ("{}:z",)}),
        (("a", "{}:y"), ("c", "{}:y"), {"members_from": ("{}:y",)}),
        (("a", "bot"), ("c",), {"scripted": {"bot": "random"}, "policies": ("a", "bot", "c")}),
        (("a", "bot"), ("c",), {"scripted": {"bot": "random"}, "snapshots": {"share": 0.0}}),
        (("a",), ("c",), {"scripted": {"bot": "random"}, **MIXED}),
        (("a",), ("c",), {"members_from": ("{}:y",), **MIXED}),
        (("a",), ("bot",), {"scripted": {"bot": "random"}, "births": {"slots": 2}, **MIXED}),
        (("a",), ("c",), {"matchmaker": "self_play"}),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(red, blue, more, other, tmp_path):
    def named(texts):
        return tuple(text.format(other) for text in texts)

    if "members_from" in more:
        more = {**more, "members_from": named(more["members_from"])}
    with refuses(ConfigError) as told:
        trained(tmp_path / "run", teams_of(named(red), named(blue), **more))
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()


def test_a_policy_of_another_game_is_refused(tmp_path):
    tree = {"game": "kuhn_poker", "env": {"scripted": {}, "options": {}}}
    old = load_config({**TREE, **tree, "env": {"num_envs": 4}, "run": {"turns": 40}})
    old = old.model_copy(
        update={"run": old.run.model_copy(update={"directory": tmp_path / "poker"})}
    )
    train(old, PlainView())
    text = f"{tmp_path / 'poker'}:agent_0"
    with refuses(RemudaError) as told:
        trained(tmp_path / "run", teams_of(("a", text), ("c",), members_from=(text,)))
    assert "\n" not in str(told.value)
