"""Who meets whom while several levels train at once."""

from collections import Counter

import numpy as np
import pytest

from remuda.double_oracle import level_matchmaker
from remuda.double_oracle.level_matchmaker import LEAST, MEASURED, LevelMatchmaker
from remuda.population.ledger import Ledger
from remuda.population.records import SCRIPTED, Member, PolicyRef, Population, Result

FIXED = (("random", "a-x"), ("random", "b-x"))
LEVELS = tuple(
    (tuple(f"level_{n}_0_{i}" for i in range(2)), tuple(f"level_{n}_1_{i}" for i in range(2)))
    for n in (1, 2, 3)
)
KNOWN = np.array([[[0.0, -1.0], [1.0, 0.0]]] * 2) * np.array([1.0, -1.0])[:, None, None]


def matchmaker_of(levels=LEVELS, solver="nash"):
    return LevelMatchmaker(
        2,
        fixed=FIXED,
        levels=levels,
        payoffs=KNOWN.tolist(),
        meta_solver=solver,
        tolerance=1e-4,
    )


def population_of(levels=LEVELS):
    members = [Member(PolicyRef(name)) for both in levels for own in both for name in own]
    members += [Member(PolicyRef("random", SCRIPTED)), Member(PolicyRef("a-x", 7))]
    return Population([*members, Member(PolicyRef("b-x", 9))])


class Play:
    """Deals matches and counts their results; player 0 earns what `payoff` says of two names."""

    def __init__(self, matchmaker, payoff=lambda one, other: 0.0, levels=LEVELS):
        self.matchmaker, self.payoff = matchmaker, payoff
        self.population = population_of(levels)
        self.ledger = Ledger(self.population)
        self.random = np.random.default_rng(5)

    def play(self, count):
        dealt = []
        while len(dealt) < count:
            matches = self.matchmaker.propose(self.population, self.ledger, 50, self.random)
            for match in matches:
                earned = self.payoff(*(ref.policy for ref in match.seats))
                assert self.ledger.append(Result(match, (earned, -earned)))
            dealt += matches
        return dealt


def level_of(name):
    return int(name.split("_")[1]) if name.startswith("level") else 0


def taught(matches):
    """Of the matches in which somebody learns: who, and whom it met."""
    found = []
    for match in matches:
        for seat in match.learns:
            found.append((match.seats[seat].policy, match.seats[1 - seat], seat))
    return found


def test_learners_take_turns_and_meet_nobody_of_their_level_or_above():
    matches = Play(matchmaker_of()).play(12_000)
    lessons = taught(matches)
    counts = Counter(who for who, _, _ in lessons)
    assert set(counts) == {name for both in LEVELS for own in both for name in own}
    assert max(counts.values()) - min(counts.values()) <= 1
    for who, other, seat in lessons:
        assert int(who.split("_")[2]) == seat
        assert level_of(other.policy) < level_of(who)
        assert other.policy in ("random", "a-x", "b-x") or int(other.policy.split("_")[2]) != seat
    assert all(len(match.learns) <= 1 for match in matches)
    measured = [match for match in matches if not match.learns]
    assert len(matches) / MEASURED <= len(measured) < len(matches) / 4
    for match in measured:
        levels = [level_of(ref.policy) for ref in match.seats]
        assert 0 < max(levels) < 3  # nobody of the top is anybody's opponent


def test_all_pairs_below_the_top_become_known():
    play = Play(matchmaker_of())
    play.play(4000)
    assert play.matchmaker._sums[0][play.matchmaker._live].min() >= LEAST


def test_a_level_that_is_not_known_yet_is_not_played():
    """Level 1 would be all that is played, if it were: it beats everybody."""
    play = Play(matchmaker_of(), lambda one, other: float(level_of(one) - level_of(other)))
    early, late = taught(play.play(400)), taught(play.play(8000)[-2000:])
    assert {level_of(other.policy) for _, other, _ in early} == {0}
    assert {level_of(other.policy) for who, other, _ in late if level_of(who) == 3} == {2}
    assert {level_of(other.policy) for who, other, _ in late if level_of(who) == 2} == {1}
    assert {level_of(other.policy) for who, other, _ in late if level_of(who) == 1} == {0}


def test_mixtures_move_with_what_live_policies_earn(monkeypatch):
    """One beats everybody, until it does not any more: then it is left, whatever it was once."""
    monkeypatch.setattr(level_matchmaker, "MEMORY", 2000)
    monkeypatch.setattr(level_matchmaker, "PER_PAIR", 0)
    best = ["level_1_0_1"]

    def payoff(one, other):
        return 3.0 if one in best else float(level_of(one) > level_of(other)) - 0.5

    def met(matches):
        return {o.policy for who, o, _ in taught(matches) if who.startswith("level_2_1")}

    play = Play(matchmaker_of(), payoff)
    assert met(play.play(16_000)[-2000:]) == {"level_1_0_1"}
    best[:] = ["level_1_0_0"]
    assert met(play.play(12_000)[-2000:]) == {"level_1_0_0"}


def test_opponents_are_drawn_by_the_meta_mixture():
    """Matching pennies among the live policies of level 1: level 2 meets both alike."""

    def payoff(one, other):
        if level_of(one) == level_of(other) == 1:
            return 1.0 if one[-1] == other[-1] else -1.0
        return (
            float(level_of(one) > level_of(other)) * 5.0
            - float(level_of(one) < level_of(other)) * 5.0
        )

    met = Counter(
        other.policy
        for who, other, _ in taught(Play(matchmaker_of(), payoff).play(20_000)[-8000:])
        if who.startswith("level_2_1")
    )
    assert set(met) == {"level_1_0_0", "level_1_0_1"}
    assert min(met.values()) / sum(met.values()) == pytest.approx(0.5, abs=0.08)


def test_the_fixed_policies_are_drawn_by_their_own_equilibrium():
    play = Play(matchmaker_of(LEVELS[:1]), levels=LEVELS[:1])
    matches = play.play(500)
    assert all(match.learns for match in matches)  # nothing is to be measured
    met = {(seat, other.policy) for _, other, seat in taught(matches)}
    assert met == {(0, "b-x"), (1, "a-x")}  # by dominance


def test_shares_are_those_that_are_dealt():
    play = Play(matchmaker_of())
    expected = play.matchmaker.expected_shares(play.population)
    lessons = Counter(who for who, _, _ in taught(play.play(16_000)[-8000:]))
    assert set(expected) == set(lessons)
    for who, share in expected.items():
        assert lessons[who] / 8000 == pytest.approx(share, rel=0.03)


@pytest.mark.parametrize("solver", ["nash", "uniform"])
def test_a_successor_deals_what_it_would_have(solver):
    def payoff(one, other):
        return float(level_of(one) - level_of(other))

    play = Play(matchmaker_of(solver=solver), payoff)
    play.play(2550)
    other = matchmaker_of(solver=solver)
    other.restore(play.matchmaker.state())
    rng = np.random.default_rng(0)
    rng.bit_generator.state = play.random.bit_generator.state
    for _ in range(20):
        one = play.matchmaker.propose(play.population, play.ledger, 500, play.random)
        assert other.propose(play.population, play.ledger, 500, rng) == one


def test_who_begins_in_the_middle_of_a_run_finds_what_the_ledger_knows():
    """As the successor of an actor that died: sums are in the table, the rest is gone."""
    play = Play(matchmaker_of(), lambda one, other: float(level_of(one) - level_of(other)))
    play.play(4000)
    play.matchmaker = matchmaker_of()
    play.matchmaker.begin_at(4000)
    late = taught(play.play(1000))
    assert {level_of(other.policy) for who, other, _ in late if level_of(who) == 3} == {2}


def test_the_mixtures_are_told():
    shares = Play(matchmaker_of(), levels=LEVELS).matchmaker.shares
    assert [len(x) for x, _ in shares] == [2, 2, 2]
    assert shares[0][0].tolist() == [0.0, 1.0]
