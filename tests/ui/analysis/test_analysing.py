"""`remuda analyse` shows one screen, writes its file and pictures, and tells what is wrong."""

import json
import shutil

import numpy as np
import pytest

import remuda
from remuda.population.ledger.ledger import LedgerFile, record_type
from remuda.ui.cli.main import run
from remuda.ui.terminal.live import PlainView


def ledger(directory, payoffs, matches=40):
    """The directory of a tournament in which the payoffs are known but for noise."""
    directory.mkdir()
    (directory / "tournament.json").write_text("{}")
    rng = np.random.default_rng(0)
    count = len(payoffs)
    one, other = (np.repeat(axis, matches) for axis in np.triu_indices(count, 1))
    records = np.zeros(len(one), record_type(2))
    records["policy"], records["version"] = np.stack([one, other], 1), -1
    returns = rng.normal(payoffs[one, other], 1.0)
    records["returns"] = np.stack([returns, -returns], 1)
    records["number"] = np.arange(len(one))
    LedgerFile(directory / "ledger.bin", [f"p{i}" for i in range(count)], 2).append(records)
    return directory


SKILL = np.array([1.0, 0.0, -1.5])


@pytest.fixture
def matches(tmp_path):
    return ledger(tmp_path / "matches", SKILL[:, None] - SKILL[None])


@pytest.mark.slow
def test_one_screen_tells_it_all(matches, capsys):
    assert run(["analyse", str(matches), "--samples", "60"]) == 0
    shown = capsys.readouterr().out
    assert "3 policies, 120 matches" in shown
    assert shown.index("p0") < shown.index("p1") < shown.index("p2")
    for part in (
        "ranking: p0 has the highest mean payoff",
        "equilibrium: ",
        "structure: ",
        "diversity: ",
    ):
        assert part in shown
    written = json.loads((matches / "analysis.json").read_text())
    assert written["ranking"]["ranking"][0]["name"] == "p0"
    assert (matches / "payoffs.png").read_bytes().startswith(b"\x89PNG")
    assert "p0" in (matches / "payoffs.svg").read_text()


@pytest.mark.slow
def test_matches_that_a_killed_tournament_lacks_are_told(matches, capsys):
    path = matches / "ledger.bin"
    assert run(["analyse", str(matches), "--samples", "60"]) == 0
    assert "missing" not in capsys.readouterr().err
    header, _, records = path.read_bytes().partition(b"\n")
    size = record_type(2).itemsize
    kept = records[: 50 * size] + records[55 * size :]
    path.write_bytes(header + b"\n" + kept)
    assert run(["analyse", str(matches), "--samples", "60"]) == 0
    told = capsys.readouterr().err.replace("\n", " ")
    assert "5 matches are missing" in told
    assert f"remuda tournament --resume {matches}" in told


@pytest.mark.slow
def test_json_is_what_is_written(matches, capsys, tmp_path):
    out = tmp_path / "other"
    command = ["analyse", str(matches), "--format", "json", "--out", str(out), "--samples", "60"]
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((out / "analysis.json").read_text())
    assert not (matches / "analysis.json").exists()


@pytest.mark.slow
def test_only_some_are_looked_at(matches, capsys):
    assert run(["analyse", str(matches), "--only", "p0", "p2", "--samples", "60"]) == 0
    assert "2 policies, 40 matches" in capsys.readouterr().out


@pytest.mark.slow
def test_a_table_of_another_program_is_analysed(tmp_path, capsys):
    path = tmp_path / "game.csv"
    path.write_text(",rock,paper,scissors\nrock,0,-1,1\npaper,1,0,-1\nscissors,-1,1,0\n")
    assert run(["analyse", str(path), "--samples", "60"]) == 0
    assert "mixes 3 of 3 policies" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.slow
def test_sixty_policies_are_drawn(tmp_path, capsys):
    skill = np.random.default_rng(1).normal(size=60)
    directory = ledger(tmp_path / "many", skill[:, None] - skill[None], matches=3)
    assert run(["analyse", str(directory), "--samples", "50"]) == 0
    assert "and 40 more, in analysis.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--only", "p9", "p0"], "there is no policy p9 in"),
        (["--only", "p0"], "there is only one policy, p0"),
        (["--samples", "3"], "samples"),
        (["--roles"], "these met only in one order of seats"),
    ],
)
def test_what_cannot_be_done_is_told(matches, capsys, flags, told):
    assert run(["analyse", str(matches), *flags]) in (1, 2)
    shown = capsys.readouterr()
    assert told in (shown.out + shown.err).replace("\n", " ")
    assert "Traceback" not in shown.err


def test_a_directory_that_cannot_be_written_loses_nothing(matches, capsys, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("a file")
    assert run(["analyse", str(matches), "--samples", "60", "--out", str(taken)]) in (1, 2)
    shown = capsys.readouterr()
    assert "ranking: p0 has the highest mean payoff" in shown.out
    assert "name another directory with --out" in shown.err.replace("\n", " ")


def test_what_is_no_run_is_refused(tmp_path, capsys):
    assert run(["analyse", str(tmp_path)]) in (1, 2)
    assert str(tmp_path) in capsys.readouterr().err.replace("\n", "")
    path = tmp_path / "game.csv"
    path.write_text("policy,a,b\na,0,x\n")
    assert run(["analyse", str(path)]) in (1, 2)
    assert 'line 2: "x" is not a number' in capsys.readouterr().err.replace("\n", " ")


def tournament(directory, payoffs, game="rock_paper_scissors", options=None, matches=40):
    """A tournament's directory that tells its game."""
    ledger(directory, payoffs, matches)
    told = {"tournament": 1, "game": game, "options": options or {}, "entrants": []}
    (directory / "tournament.json").write_text(json.dumps(told))
    return directory


@pytest.mark.slow
def test_several_of_one_game_stand_side_by_side(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    skill = SKILL[:, None] - SKILL[None]
    one, two = (tournament(tmp_path / name, skill) for name in ("one", "two"))
    assert run(["analyse", str(one), str(two), "--samples", "50"]) == 0
    shown = capsys.readouterr().out
    assert "2 runs of one game" in shown
    assert "policies of different runs never met" in shown.replace("\n", " ")
    written = json.loads((tmp_path / "analysis" / "analysis.json").read_text())
    assert list(written["runs"]) == ["one", "two"]
    assert written["members"] == [f"{run}/p{i}" for run in ("one", "two") for i in range(3)]
    values = written["common"]["share of skill"]["values"]
    assert values == [written["runs"][each]["structure"]["transitive"] for each in ("one", "two")]
    assert written["by_policy"]["p0"]["mean"] > 0.0 > written["by_policy"]["p2"]["mean"]
    assert (tmp_path / "analysis" / "two" / "payoffs.png").is_file()


def test_payoffs_of_different_games_are_not_put_together(tmp_path, capsys):
    skill = SKILL[:, None] - SKILL[None]
    one = tournament(tmp_path / "one", skill)
    other = tournament(tmp_path / "other", skill, "kuhn_poker")
    longer = tournament(tmp_path / "longer", skill, options={"rounds": 3})
    table = tmp_path / "game.csv"
    table.write_text(",a,b\na,0,1\nb,-1,0\n")
    for second, told in (
        (other, f"{one} is of rock_paper_scissors, and {other} is of kuhn_poker: only runs of one"),
        (longer, "with different options: env.options.rounds is the default and 3"),
        (table, f"{table} has no game"),
    ):
        assert run(["analyse", str(one), str(second)]) in (1, 2)
        shown = capsys.readouterr()
        assert told in shown.err.replace("\n", " ")
        assert not shown.out


def trained(directory, game="kuhn_poker", **settings):
    """A short run of small networks."""
    policy = {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 20}}
    return remuda.train(
        game,
        schedule="sequential",
        policy=policy,
        run={"turns": 300, "evaluate_episodes": 0, "directory": directory},
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
        **settings,
    ).directory


@pytest.fixture(scope="module")
def league(tmp_path_factory):
    """A run in which three policies meet."""
    population = {"matchmaker": "random", "policies": 3}
    return trained(tmp_path_factory.mktemp("runs") / "league", population=population)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    """A run in which each agent has one policy for good."""
    return trained(tmp_path_factory.mktemp("runs") / "fixed", "prisoners_dilemma")


@pytest.mark.slow
def test_a_run_is_told_by_its_payoffs_and_by_its_policies(league, capsys, tmp_path):
    out = tmp_path / "out"
    command = ["analyse", str(league), "--samples", "50", "--out", str(out), "--seconds", "3"]
    assert run(command) == 0
    shown = capsys.readouterr().out.replace("\n", " ")
    assert "3 policies, " in shown
    for part in (
        "exploitability: Against policy_",
        "exact exploitability: policy_",
        "behaviour: On",
    ):
        assert part in shown
    written = json.loads((out / "analysis.json").read_text())
    exact = written["exact exploitability"]["policies"]
    assert set(exact) == {"policy_0", "policy_1", "policy_2"}
    # Of uniform play NashConv is 11/12, and of any play at most 4: each seat wins or loses 2.
    assert all(0.0 < each["nash_conv"] <= 4.0 for each in exact.values())
    assert np.array(written["behaviour"]["distances"]).shape == (3, 3)
    assert written["in_words"]["behaviour"].startswith("On ")


@pytest.mark.slow
def test_without_fresh_play_nothing_is_played(league, capsys, tmp_path):
    command = ["analyse", str(league), "--samples", "50", "--out", str(tmp_path), "--seconds", "0"]
    assert run(command) == 0
    assert "behaviour" not in capsys.readouterr().out
    assert "behaviour" not in json.loads((tmp_path / "analysis.json").read_text())


@pytest.mark.slow
def test_agents_with_a_policy_each_are_told_by_fresh_episodes(fixed, capsys, tmp_path):
    assert run(["analyse", str(fixed), "--out", str(tmp_path), "--seconds", "3"]) == 0
    shown = capsys.readouterr().out.replace("\n", " ")
    assert "2 agents, 200 greedy episodes" in shown
    for part in (
        "returns: ",
        "efficiency: ",
        "equality: ",
        "exact exploitability: ",
        "behaviour: ",
    ):
        assert part in shown
    written = json.loads((tmp_path / "analysis.json").read_text())
    assert written["episodes"] == 200
    assert set(written["agents"]) == {"agent_0", "agent_1"}
    assert list(written["exact exploitability"]["policies"]) == ["agent_0 with agent_1"]


@pytest.mark.slow
def test_runs_with_a_policy_for_each_agent_stand_side_by_side(fixed, capsys, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(fixed, copy)
    out = tmp_path / "out"
    assert run(["analyse", str(fixed), str(copy), "--out", str(out), "--seconds", "3"]) == 0
    assert "2 runs of one game" in capsys.readouterr().out
    written = json.loads((out / "analysis.json").read_text())
    assert list(written["runs"]) == ["fixed", "copy"]
    # Play is greedy and the game is certain, so that both do the same.
    assert written["common"]["efficiency"]["deviation"] == 0.0


@pytest.mark.slow
def test_policies_that_met_only_themselves_are_told_by_what_they_do(tmp_path, capsys):
    directory = trained(tmp_path / "alone", population={"matchmaker": "self_play", "policies": 2})
    assert run(["analyse", str(directory), "--seconds", "3"]) == 0
    shown = capsys.readouterr().out.replace("\n", " ")
    assert "payoffs: these never met: policy_0 and policy_1" in shown
    assert "exact exploitability: policy_" in shown
    written = json.loads((directory / "analysis.json").read_text())
    assert "exact exploitability" in written


@pytest.mark.slow
@pytest.mark.parametrize("flag", [["--wins"], ["--only", "agent_0"], ["--seconds", "0"]])
def test_what_is_about_matches_is_refused_where_there_are_none(fixed, capsys, flag):
    assert run(["analyse", str(fixed), *flag]) in (1, 2)
    told = capsys.readouterr().err.replace("\n", " ")
    assert "each of its agents has one policy" in told or "each agent has one policy" in told


@pytest.mark.slow
def test_matches_and_runs_without_any_are_not_put_together(league, fixed, tmp_path, capsys):
    other = trained(tmp_path / "other", population={"matchmaker": "fixed"})
    assert run(["analyse", str(league), str(other)]) in (1, 2)
    assert "analyse them separately" in capsys.readouterr().err.replace("\n", " ")
    assert run(["analyse", str(league), str(fixed)]) in (1, 2)
    assert "is of kuhn_poker, and" in capsys.readouterr().err.replace("\n", " ")


def _flat(capsys):
    return capsys.readouterr().out.replace("\n", " ")
