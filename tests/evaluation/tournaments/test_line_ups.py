"""Tournaments of line-ups, until the equilibrium of their game is known to have a small regret."""

from dataclasses import replace

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.equilibria.game_equilibrium import chance_above
from remuda.analysis.equilibria.regret import Solution
from remuda.analysis.payoffs.empirical_game import Role
from remuda.analysis.payoffs.profile_sums import game_of_matches
from remuda.analysis.ranking.next_matches import SmallRegret, parse_until
from remuda.analysis.roles_report import analyse_game
from remuda.errors import UsageError
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.entrants import setup_of_entrants
from remuda.evaluation.tournaments.game_schedule import schedule_of
from remuda.evaluation.tournaments.line_up_rounds import even, first_matches
from remuda.evaluation.tournaments.rounds import ROUNDS, filled, read_rounds
from remuda.evaluation.tournaments.until import SPENT, play_until
from remuda.ui.analysis.sources import Choice, game_of, open_sources
from tournament_games import always

DILEMMA, PENNIES = "prisoners_dilemma", "matching_pennies"
REGRET = "regret below 0.1 is 95% sure"


def dilemma():
    entrants = {"cooperates": always(0, DILEMMA), "defects": always(1, DILEMMA)}
    return setup_of_entrants(DILEMMA, {}, entrants)


def pennies(**seats):
    entrants = {f"{coin}{seat}": always(int(coin == "tails"), PENNIES, agent=seat)
                for seat in (0, 1) for coin in ("heads", "tails")}  # fmt: skip
    line_ups = {name: [f"agent_{name[-1]}"] for name in entrants} | seats
    return setup_of_entrants(PENNIES, {}, entrants, line_ups=line_ups)


def test_the_question_is_read():
    assert parse_until("regret below 0.5 is 90% sure") == (SmallRegret(0.5), 0.9)


def test_matches_go_to_the_seatings_with_the_fewest():
    assert filled(np.array([4, 0, 2]), 5).tolist() == [0, 4, 1]
    assert filled(np.array([1, 1]), 3).tolist() == [2, 1]


def test_a_dominant_strategy_is_the_answer(tmp_path):
    found = play_until(dilemma(), REGRET, tmp_path / "t")
    assert found.line_ups
    assert found.until.reached
    assert found.until.words.startswith("regret 0.00")
    assert found.until.words.endswith(" in only defects")
    # cooperates: beside itself and beside who defects; all line-ups were played
    assert np.isfinite(found.means).all()
    again = play_until(dilemma(), REGRET, tmp_path / "t")
    assert again.num_matches == found.num_matches
    assert again.until == found.until


def test_seatings_of_a_line_up_are_even():
    seatings = np.array([1, 3, 4, 5])
    assert first_matches(seatings).tolist() == [4, 6, 4, 5]
    # 2 of 3 and 4 of 5 remain: 6 matches, of which the fifth is played, and one remains
    assert even(np.array([2, 5, 4, 4]), seatings) == [2, 1, 1, 1]
    assert even(np.array([0, 2, 0, 2]), seatings) == [0, 1, 0, 0]


def earners(game):
    return setup_of_entrants(game, {}, {"a": always(0, game), "c": always(1, game)})


@pytest.mark.parametrize(("game", "several"), [("FirstSeat", False), ("Absent", True)])
def test_each_round_has_all_seatings(tmp_path, game, several):
    """c earns 1 in one of five seats, which is not among the first four matches of a line-up."""
    setup = earners(f"tournament_games:{game}")
    found = play_until(setup, "regret below 0.1 is 95% sure", tmp_path / "t", max_matches=2000)
    assert found.until.reached
    assert found.until.words.endswith(" in only c")
    line_ups = schedule_of(replace(setup, line_ups=True), 0).seatings_by_profile()
    rounds, total = read_rounds(tmp_path / "t" / ROUNDS), np.zeros(32, int)
    assert (len(rounds) > 1) == several
    for line in rounds:
        total[line.seatings] += line.matches
        for seatings in line_ups:
            assert len(set(total[seatings])) == 1
            assert total[seatings].sum() >= 4


def test_line_ups_whose_matches_do_not_count_are_played_again(tmp_path):
    looks = []
    found = play_until(
        earners("tournament_games:Absent"), "regret below 2 is 50% sure", on_look=looks.append
    )
    assert found.until.reached
    assert found.until.rounds > 1
    assert len(looks) < found.until.rounds


def test_a_tournament_without_a_whole_match_ends_at_its_limit(tmp_path):
    setup = earners("tournament_games:NeverWhole")
    found = play_until(setup, REGRET, tmp_path / "t", max_matches=150)
    assert found.cut == SPENT
    assert found.until is None
    assert 120 <= found.num_matches <= 150
    again = play_until(setup, REGRET, tmp_path / "t", max_matches=300)
    assert 270 <= again.num_matches <= 300


def test_few_matches_are_refused_before_anything_is_written(tmp_path):
    with refuses(UsageError):
        play_until(dilemma(), REGRET, tmp_path / "t", max_matches=10)
    assert not (tmp_path / "t").exists()


def test_it_stops_at_a_wrong_answer_as_rarely_as_allowed():
    """Of two seats, the second gains 1.01 X by deviating from a, and X is 1.5 standard errors."""
    rng, matches, allowed = np.random.default_rng(0), 40, 0.01
    error = np.sqrt(2.0 / matches)
    limit, wrong, tried = 1.5 * error, 0, 1000
    role = Role("players", ("a", "b"), 2)
    chosen = np.repeat([[0, 0], [0, 1], [1, 1]], matches, 0)
    answer = Solution((np.array([1.0, 0.0]),), np.zeros(1), np.zeros(1), "")
    for _ in range(tried):
        own = rng.standard_normal(len(chosen))
        returns = np.stack([own, own], 1) + 1.01 * limit * (chosen == 1)
        game = game_of_matches([role], [0, 0], chosen, returns)
        wrong += chance_above(game, answer, limit, allowed, rng)[1] <= allowed
    assert wrong <= allowed * tried + 3.0 * np.sqrt(allowed * tried)


def test_roles_are_the_seats_of_their_entrants(tmp_path):
    found = play_until(pennies(), REGRET, tmp_path / "t")
    assert found.until.reached
    assert found.until.words.startswith("regret 0.0")
    assert "heads0 50%" in found.until.words
    (source,) = open_sources([tmp_path / "t"])
    game = game_of(source, Choice())
    assert [role.strategies for role in game.roles] == [
        ("heads0", "tails0"),
        ("heads1", "tails1"),
    ]
    analysis = analyse_game(game, np.random.default_rng(0), 60)
    assert analysis.equilibrium.kind == "zero-sum"
    for mixture in analysis.equilibrium.answer.mixtures:
        assert mixture == pytest.approx([0.5, 0.5], abs=1e-6)


def test_what_makes_no_line_ups_is_refused(tmp_path):
    for setup, options in (
        (pennies(heads0=["agent_0", "agent_1"]), {}),
        (pennies(heads1=["agent_0"], tails1=["agent_0"]), {}),
        (pennies(), {"max_matches": 10}),
    ):
        with refuses(UsageError):
            play_until(setup, REGRET, tmp_path / "t", **options)


def test_a_look_ends_at_its_limit():
    """Draws end at `stop`, and fewer draws are less sure."""
    role = Role("players", ("a", "b"), 2)
    chosen = np.repeat([[0, 0], [0, 1], [1, 1]], 40, 0)
    returns = np.random.default_rng(0).standard_normal(chosen.shape) - (chosen == 1)
    game = game_of_matches([role], [0, 0], chosen, returns)
    answer = Solution((np.array([1.0, 0.0]),), np.zeros(1), np.zeros(1), "")
    doubts = [
        chance_above(game, answer, 1.0, 1e-3, np.random.default_rng(0), stop)[1]
        for stop in (lambda: False, lambda: True)
    ]
    assert doubts[0] < 1e-3 < doubts[1]


def test_an_end_within_a_round_keeps_the_last_equilibrium():
    """Red before: the search was stopped at its first candidate, and the answer was that one."""
    seen = {}

    def interrupted():
        return "first" in seen and seen["done"] > seen["first"].matches

    limits = Limits(interrupted=interrupted, watch=lambda done, _: seen.__setitem__("done", done))
    question = "regret below 0.0001 is 95% sure"
    found = play_until(
        pennies(), question, limits=limits, on_look=lambda look: seen.setdefault("first", look)
    )
    assert found.cut
    assert found.num_matches > seen["first"].matches
    assert "heads0 50%" in found.until.words


def test_games_of_too_many_line_ups_are_refused_before_anything_is_written(tmp_path):
    entrants = {f"p{i}": always(i % 2, PENNIES, agent=i % 2) for i in range(96)}
    line_ups = {name: [f"agent_{int(name[1:]) % 2}"] for name in entrants}
    setup = setup_of_entrants(PENNIES, {}, entrants, line_ups=line_ups)
    with refuses(UsageError):
        play_until(setup, REGRET, tmp_path / "t")
    assert not (tmp_path / "t").exists()
