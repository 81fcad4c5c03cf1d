"""The analysis of teams, interchangeable seats and unlike seats, from their matches."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from ledgers import write_ledger
from refusals import refuses
from remuda.analysis.payoffs.from_ledger import read_game
from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.ledger_seats import LedgerSeats, SeatGroup
from remuda.analysis.population_report import analyse
from remuda.analysis.roles_report import analyse_roles
from remuda.analysis.several_runs import Several
from remuda.errors import UsageError
from role_games import BEATS, ROCKS

TEAMS = (SeatGroup("red", (0, 1)), SeatGroup("blue", (2, 3)))
PLAYERS = tuple(SeatGroup(name, (seat,)) for seat, name in enumerate("abc"))
THREE = LedgerSeats((0, 1, 2), (0, 1, 2), (SeatGroup("players", (0, 1, 2)),))


def matches_of(seats, returns_of, each=20, noise=0.1):
    """Rows of a ledger: each deal of unlike policies to the seats, equally often."""
    rng, rows = np.random.default_rng(0), []
    for dealt in itertools.product(*seats):
        if len(set(dealt)) == len(dealt):
            for _ in range(each):
                earned = np.asarray(returns_of(dealt), float) + rng.normal(0.0, noise, len(seats))
                rows.append(([(policy, -1) for policy in dealt], earned))
    return rows


def two_teams(tmp_path, bonus=0.0):
    """Rock-paper-scissors of two against two; red's paper earns a bonus."""
    names = [f"{team} {name}" for team in ("red", "blue") for name in ROCKS]

    def earned(dealt):
        red, blue = dealt[:2], [p - 3 for p in dealt[2:]]
        score = sum(BEATS[r, b] for r in red for b in blue) / 4.0 + bonus * (1 in red)
        return [score, score, -score, -score]

    rows = matches_of([[0, 1, 2]] * 2 + [[3, 4, 5]] * 2, earned, noise=0.01)
    for _, returns in rows:  # a zero-sum game of teams, in spite of the noise
        returns[:2], returns[2:] = returns[0], -returns[0]
    path = write_ledger(tmp_path, rows, names, 4)
    return read_game(path, LedgerSeats((0, 0, 1, 1), (0, 0, 1, 1), TEAMS))


def analysed_teams(tmp_path, bonus=0.0):
    return analyse_roles(two_teams(tmp_path, bonus), np.random.default_rng(0), 60)


def test_two_teams_of_rock_paper_scissors_mix_evenly(tmp_path):
    found = analysed_teams(tmp_path)
    assert [each.role.name for each in found.roles] == ["red", "blue"]
    assert found.equilibrium.kind == "zero-sum"
    assert found.equilibrium.answer.regret.max() <= 1e-9
    for mixture in found.equilibrium.answer.mixtures:
        assert mixture == pytest.approx([1 / 3] * 3, abs=0.1)
    assert found.equilibrium.answer.values == pytest.approx([0.0, 0.0], abs=0.05)
    # no team fields the same policy twice
    assert found.game.num_profiles == 36
    assert len(found.game.profiles) == 9
    assert len(found.next_line_ups) == 5
    assert all(each.matches == 0 and "2 x" in each.line_up for each in found.next_line_ups)
    for each in found.roles:
        assert each.alpha_rank.sum() == pytest.approx(1.0)
        low, high = each.gain.interval
        assert low < 0.03
        assert high < 0.1
    summary = found.as_summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert "9 of 36 line-ups were played" in found.in_words()["line-ups"]


def test_a_better_policy_leads_its_role(tmp_path):
    found = analysed_teams(tmp_path, bonus=1.0)
    red, blue = found.roles
    assert found.best.split(", ")[0] == "red paper"
    assert red.ranking.first[1] == 1.0
    # paper earns 1 and the others half of it, since one of the two is beside paper
    assert red.gain.corrected == pytest.approx(1.0 - 2.0 / 3.0, abs=0.05)
    low, high = red.gain.interval
    assert low < 1 / 3 < high
    assert blue.ranking.probabilities[:, 0].max() < 1.0
    words = found.in_words()
    assert words["ranking, red"].startswith("red paper has the highest mean payoff")
    assert "red gains" in words["exploitability"]


def test_roles_of_runs_are_compared(tmp_path):
    found = analysed_teams(tmp_path)
    several = Several(("a", "b"), (found, found))
    assert set(several.common) == {
        f"{what} of {team}" for what in ("value", "gain", "diversity") for team in ("red", "blue")
    }
    assert several.by_policy["red rock"].deviation == 0.0


def test_three_unlike_players_have_a_correlated_equilibrium(tmp_path):
    """The Shapley-like game of `role_games.shapley`: each wins a third of the matches."""
    names = [f"{player} {name}" for player in "abc" for name in ROCKS]

    def earned(dealt):
        a, b, c = (policy % 3 for policy in dealt)
        return [a == (b + 1) % 3, b == (c + 1) % 3, c == a]

    rows = matches_of([[0, 1, 2], [3, 4, 5], [6, 7, 8]], earned)
    path = write_ledger(tmp_path, rows, names, 3)
    game = read_game(path, LedgerSeats((0, 1, 2), (0, 1, 2), PLAYERS))
    found = analyse_roles(game, np.random.default_rng(0), 20)
    assert found.game.is_whole
    assert found.equilibrium.kind == "correlated"
    assert found.equilibrium.answer.regret.max() <= 1e-9
    assert found.equilibrium.answer.values == pytest.approx([1 / 3] * 3, abs=0.05)
    assert [each.alpha_rank.shape for each in found.roles] == [(3,)] * 3


def robin(tmp_path, skills):
    """A round robin on three seats: a policy earns its skill, less half of its rivals' mean."""

    def earned(dealt):
        own = np.array([skills[policy] for policy in dealt])
        return own - 0.25 * (own.sum() - own)

    names = [f"p{number}" for number in range(len(skills))]
    rows = matches_of([range(len(skills))] * 3, earned)
    path = write_ledger(tmp_path, rows, names, 3)
    return read_game(path, THREE)


def test_a_round_robin_has_an_equilibrium_and_a_diversity(tmp_path):
    found = analyse(robin(tmp_path, [2.0, 1.5, 1.0, 0.5, 0.0]), np.random.default_rng(0), 60)
    assert len(found.game.profiles) == 10
    assert found.equilibrium.kind == "correlated"
    # only the line-up of the three best is stable
    assert found.equilibrium.answer.mixtures[0] == pytest.approx([1 / 3] * 3 + [0, 0], abs=1e-6)
    assert found.equilibrium.answer.regret.max() <= 1e-9
    assert found.exploitability is None
    low, high = found.gain.interval
    # a policy of skill s earns s - 0.5 (5 - s) / 4 on average: 1.125 for each unit of skill
    assert low < 1.125 < high
    assert found.diversity.null_share < 0.05
    words = found.in_words()
    assert "the line-ups that were played mixes 3 of 5 policies" in words["equilibrium"]
    assert "a seat gains 1.1" in words["exploitability"]
    assert words["line-ups"].startswith("10 of 35 line-ups were played; of the others these")
    summary = found.as_summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_a_whole_game_of_three_seats_is_solved_itself(tmp_path):
    """The public goods game: who contributes pays 1, and all share 1.5 times what was paid."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(400):
        dealt = rng.integers(0, 2, 3)
        earned = 0.5 * (dealt == 0).sum() - (dealt == 0)
        rows.append(([(int(p), -1) for p in dealt], earned + rng.normal(0.0, 0.1, 3)))
    path = write_ledger(tmp_path, rows, ("contribute", "keep"), 3)
    found = analyse(read_game(path, THREE), np.random.default_rng(0), 60)
    assert found.equilibrium.kind == "role-symmetric"
    assert found.equilibrium.answer.mixtures[0] == pytest.approx([0.0, 1.0], abs=1e-6)
    assert found.equilibrium.answer.regret.max() <= 1e-8
    assert found.next_line_ups[0].matches > 0


def test_a_role_without_policies_is_refused(tmp_path):
    with refuses(UsageError):
        two_teams(tmp_path).part(lambda role, _: role.name == "red")


def test_an_unknown_equilibrium_has_its_reason(tmp_path):
    """Policies of a round robin that never met alone, line-ups that were played once, and a game
    of too many line-ups."""
    rng = np.random.default_rng(0)

    def words(game):
        return analyse(game, rng, 20).in_words()["equilibrium"]

    game = robin(tmp_path, [2.0, 1.5, 1.0, 0.5])
    alone = game.part(lambda _, name: name in ("p0", "p1"))
    assert "no match was among these policies only" in words(alone)
    assert "too many line-ups" in words(game_of_meetings(game.payoffs, game.roles))
    rows = [
        ([(policy, -1) for policy in dealt], np.arange(3.0))
        for dealt in itertools.combinations(range(4), 3)
    ]
    path = write_ledger(tmp_path, rows, [f"p{number}" for number in range(4)], 3)
    once = read_game(path, THREE)
    assert once.counts.max() == 1
    assert "no line-up was played twice" in words(replace(once, meetings=game.payoffs))


def test_a_large_game_of_roles_says_so(tmp_path):
    names = [f"{player} {name}" for player in "abc" for name in ROCKS]
    rows = matches_of([[0, 1, 2], [3, 4, 5], [6, 7, 8]], lambda _: np.zeros(3), each=2)
    path = write_ledger(tmp_path, rows, names, 3)
    game = read_game(path, LedgerSeats((0, 1, 2), (0, 1, 2), PLAYERS))
    game = game_of_meetings(game.payoffs, game.roles)
    found = analyse_roles(game, np.random.default_rng(0), 20)
    assert "too many line-ups" in found.in_words()["equilibrium"]
