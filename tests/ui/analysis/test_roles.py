"""`remuda analyse` shows teams, unlike seats and groups of interchangeable seats by role."""

import json

import numpy as np
import pytest

import remuda
from ledgers import write_ledger
from refusals import refuses
from remuda.analysis.payoffs.ledger_seats import LedgerSeats, SeatGroup
from remuda.errors import UsageError
from remuda.runs.run_directory import RunDirectory
from remuda.ui.analysis.sources import AnalysisSource, Choice, game_of, open_sources
from remuda.ui.cli.main import run
from remuda.ui.reports.analysis_page import write_section
from ui.made_runs import a_run

TAG = {"game": "tag", "env": {"options": {"num_agents": 4}}}
TEAMS = {
    "matchmaker": "teams",
    "teams": {
        "red": {"agents": ["agent_0", "agent_1"], "policies": ["r0", "r1", "r2"]},
        "blue": {"agents": ["agent_2", "agent_3"], "policies": ["b0", "b1", "b2"]},
    },
}


def dealt(path, names, pairs, seats=4, best=0):
    """Write the ledger of a run: all deals of unlike policies, in which `best` earns 1 more."""
    rng, rows = np.random.default_rng(0), []
    for policies in pairs:
        earned = (np.array(policies) == best) + rng.normal(0.0, 0.3, seats)
        rows.append(([(policy, -1) for policy in policies], earned))
    write_ledger(path, rows, names, seats).rename(path / "ledger.bin")


@pytest.fixture
def teams(tmp_path):
    path = a_run(
        tmp_path / "teams",
        names=("r0", "r1", "r2", "b0", "b1", "b2"),
        **TAG,
        policy={"share_rewards": 1.0},
        population=TEAMS,
    )
    sides = [(a, b) for a in range(3) for b in range(3) if a != b]
    pairs = [(a, b, c + 3, d + 3) for a, b in sides for c, d in sides] * 12
    dealt(path, ("r0", "r1", "r2", "b0", "b1", "b2"), pairs)
    return path


def test_two_teams_are_analysed_by_role(teams):
    found = remuda.analyse(teams, seconds=0, samples=60)
    (analysis,) = found.analyses
    assert [each.role.name for each in analysis.roles] == ["red", "blue"]
    red, blue = analysis.roles
    assert red.ranking.names == ("r0", "r1", "r2")
    assert red.ranking.first[0] == 1.0
    # with shared rewards both of a team with r0 earn 0.5, and the others 0
    assert red.ranking.scores == pytest.approx([0.5, 0.25, 0.25], abs=0.05)
    assert blue.ranking.scores == pytest.approx([0.0] * 3, abs=0.05)
    shown = repr(found)
    assert "red: 3 policies, 2 seats, 432 matches" in shown
    assert "blue: 3 policies, 2 seats" in shown
    assert "alpha" in shown
    # blue gains nothing by knowing its opponents, and red's r0 earns more against each of blue's
    assert max(each.interval[0] for each in red.exploitability.gains) < 0.0
    assert blue.exploitability.best_responses == ("r0",) * 3
    assert blue.exploitability.gains[0].corrected == pytest.approx(1 / 6, abs=0.03)
    assert "reply" in shown
    assert "Against b0, the least exploitable, r0 gains 0.1" in " ".join(shown.split())
    written = found.as_summary()["roles"][1]["exploitability"]["policies"]
    assert [each["best_response"] for each in written] == ["r0"] * 3
    # four blocks: what team-mates earn together, and what each earns against the other team
    blocks = analysis.payoffs.matrix
    assert np.isfinite(blocks[~np.eye(6, dtype=bool)]).all()
    assert blocks[0, 1] == pytest.approx(0.5, abs=0.1)
    assert blocks[1, 2] == pytest.approx(0.0, abs=0.1)


@pytest.mark.slow
def test_the_command_writes_the_analysis_of_teams(teams, capsys):
    assert run(["analyse", str(teams), "--seconds", "0", "--samples", "60"]) == 0
    assert "ranking, red: r0 has the highest mean payoff" in capsys.readouterr().out
    written = json.loads((teams / "analysis.json").read_text())
    assert written["line_ups"] == {**written["line_ups"], "played": 9, "possible": 36}
    assert (teams / "ranking_red.png").exists()


def test_teams_with_wins_or_some_policies(teams):
    (wins,) = remuda.analyse(teams, seconds=0, samples=60, wins=True).analyses
    red, blue = (each.ranking.scores for each in wins.roles)
    assert red[0] > 0.8
    assert red.mean() + blue.mean() == pytest.approx(1.0)
    assert wins.equilibrium.kind == "zero-sum"
    (few,) = remuda.analyse(teams, seconds=0, samples=60, only=["r0", "r1", "b0", "b1"]).analyses
    assert few.roles[0].ranking.names == ("r0", "r1")
    with refuses(UsageError):
        remuda.analyse(teams, seconds=0, only=["r0", "r1"])


@pytest.mark.slow
def test_the_report_of_teams_has_a_section_by_role(teams):
    section = str(write_section(RunDirectory.open(teams)))
    assert "ranking, red" in section
    assert "report_ranking_blue.png" in section


def test_a_round_robin_of_four_seats_has_an_equilibrium(tmp_path):
    names = tuple(f"policy_{i}" for i in range(6))
    population = {"matchmaker": "round_robin", "policies": 6}
    path = a_run(tmp_path / "robin", names=names, **TAG, population=population)
    rng = np.random.default_rng(1)
    dealt(path, names, [rng.permutation(6)[:4].tolist() for _ in range(900)])
    (found,) = remuda.analyse(path, seconds=0, samples=60).analyses
    assert found.game.roles[0].seats == 4
    # the others differ by noise, and cycle: no line-ups are stable, but some nearly are
    assert found.equilibrium.answer.regret.max() < 0.02
    assert "its regret is 0.0" in found.in_words()["equilibrium"]
    assert found.equilibrium.answer.mixtures[0][0] == pytest.approx(0.25, abs=0.01)
    assert found.diversity is not None
    assert "15 of 126 line-ups were played" in found.in_words()["line-ups"]
    assert "CE" in repr(remuda.analyse(path, seconds=0, samples=60))
    # wins are zero-sum: self-play need not be known, and line-ups are named all the same
    (wins,) = remuda.analyse(path, seconds=0, samples=60, wins=True).analyses
    assert wins.equilibrium.kind == "zero-sum"
    assert wins.next_line_ups


@pytest.mark.slow
def test_unlike_seats_are_roles(tmp_path):
    seats = {"hunter": ["agent_0"], "other": ["agent_0"]}
    for name in ("x", "y"):
        seats[name] = ["agent_1", "agent_2", "agent_3"]
    population = {"matchmaker": "random", "policies": ["hunter", "other", "x", "y"], "seats": seats}
    path = a_run(tmp_path / "hunt", names=tuple(seats), **TAG, population=population)
    pairs = [(a, *b) for a in (0, 1) for b in np.ndindex(2, 2, 2)] * 10
    dealt(path, tuple(seats), [(a, b + 2, c + 2, d + 2) for a, b, c, d in pairs])
    (found,) = remuda.analyse(path, seconds=0, samples=60).analyses
    assert [(each.role.name, each.role.seats) for each in found.roles] == [
        ("agent_0", 1),
        ("agent_1 and agent_2 and agent_3", 3),
    ]
    # all line-ups were played, so the game of four seats is solved itself
    assert found.equilibrium.kind == "role-symmetric"
    assert found.equilibrium.answer.mixtures[0] == pytest.approx([1.0, 0.0], abs=1e-6)


def source_of(tmp_path, returns, **fields):
    """A source of three equal matches of four policies on two teams of two seats."""
    names = ("r0", "r1", "b0", "b1")
    rows = [([(policy, -1) for policy in range(4)], returns)] * 3
    ledger = write_ledger(tmp_path, rows, names, 4)
    teams = (0, 0, 1, 1)
    seats = LedgerSeats(**{"sides": teams, "rated": teams, **fields})
    return AnalysisSource(ledger, "x", tmp_path, "tag", ledger=ledger, seats=seats)


ALONE = tuple(SeatGroup(f"agent_{seat}", (seat,)) for seat in range(4))


def test_team_mates_of_other_roles_are_no_opponents(tmp_path):
    source = source_of(tmp_path, (3.0, 1.0, 2.0, 0.0), groups=ALONE)
    found = game_of(source, Choice(wins=True))
    # agent_1 beats one of two opponents; its team-mate, which earns more, is none
    assert found.means[0].tolist() == [1.0, 0.5, 0.5, 0.0]
    cells = found.payoffs.matrix
    assert cells[1, 2:].tolist() == [0.0, 1.0]
    # beside a team-mate: the share of the opponents that it beats
    assert cells[0, 1] == 1.0
    assert cells[1, 0] == 0.5


def test_each_policy_has_its_share_of_the_whole_team(tmp_path):
    """r1 is scripted; r0 learns from the team, b0 half, and b1 from its own returns."""
    shares = {"r0": 1.0, "b0": 0.5}
    groups = (ALONE[0], *ALONE[2:])
    fields = {"sides": (0, -1, 1, 1), "groups": groups, "shares": shares}
    source = source_of(tmp_path, (4.0, 0.0, 1.0, 5.0), **fields)
    assert game_of(source, Choice(only=("r0", "b0", "b1"))).means.tolist() == [[2, 2, 5]]
    pooled = game_of(source_of(tmp_path, (4.0, 0.0, 1.0, 5.0), shares=shares), Choice())
    assert pooled.payoffs.matrix[0, 2] == 2.0
    assert pooled.payoffs.matrix[2, 0] == 2.0
    assert pooled.payoffs.matrix[3, 0] == 5.0


def test_shares_are_those_of_each_policy(tmp_path):
    names = ("r0", "r1", "r2", "b0", "b1", "b2")
    more = {"policies": {"r0": {"share_rewards": 0.5}}, "population": TEAMS}
    path = a_run(tmp_path / "shares", names=names, **TAG, policy={"share_rewards": 1.0}, **more)
    dealt(path, names, [(0, 1, 3, 4)])
    (source,) = open_sources([path])
    assert source.seats.shares == {**dict.fromkeys(names, 1.0), "r0": 0.5}
