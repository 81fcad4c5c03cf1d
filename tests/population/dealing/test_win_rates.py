"""Win rates that forget: a live policy is judged as it is, not as it was."""

import numpy as np
import pytest

from population.results import Result, append
from remuda.population.dealing.lead import League
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import Member, PolicyRef, Population
from remuda.population.matchmaking.by_turn import Random
from remuda.population.members.table import Table
from remuda.system.checkpoint.state import pack, unpack

A, B, C = PolicyRef("a"), PolicyRef("b"), PolicyRef("c")
NAMES = ("a", "b")
COPIES = 4


def ledger_of(memory, *refs):
    return Ledger(Population([Member(ref) for ref in refs or (A, B, C)]), memory=memory)


def play(ledger, one, other, count, won):
    for i in range(count):
        returns = (float(won), float(not won))
        assert append(ledger, Result(i, (one, other), returns))


def test_after_as_many_matches_a_result_counts_half():
    ledger = ledger_of(10.0)
    play(ledger, A, B, 1, won=True)
    play(ledger, A, B, 10, won=False)
    met, won = ledger.recent[:, 0, 1]
    assert won == pytest.approx(0.5)
    assert met == pytest.approx(sum(0.5 ** (i / 10) for i in range(11)))
    assert ledger.win_rate(A, B, prior=0.0) == pytest.approx(won / met)
    assert ledger.win_rate(B, A, prior=0.0) == pytest.approx(1.0 - won / met)


def test_a_policy_that_changed_is_judged_as_it_is():
    """It won 5,000 matches, and has lost a few hundred since."""
    forgets, adds_up = ledger_of(50.0), ledger_of(None)
    for ledger in (forgets, adds_up):
        play(ledger, A, B, 5_000, won=True)
        play(ledger, A, B, 400, won=False)
    assert adds_up.win_rate(A, B) > 0.9
    # All that is left of the wins is 2^-8 of what a win rate stands on.
    assert forgets.win_rate(A, B, prior=0.0) == pytest.approx(2.0**-8, rel=1e-9)
    rates = forgets.win_rates_at(0, np.array([1]), prior=0.0)
    assert rates.tolist() == [forgets.win_rate(A, B, prior=0.0)]


@pytest.mark.parametrize("strength", [0.2, 0.5, 0.9])
def test_the_win_rate_converges_to_the_new_strength(strength):
    ledger, memory = ledger_of(200.0), 200.0
    play(ledger, A, B, 2_000, won=strength < 0.5)
    for won in np.random.default_rng(0).random(4_000) < strength:
        play(ledger, A, B, 1, won)
    # The effective number of matches of weights k^i is (1 + k) / (1 - k).
    kept = 0.5 ** (1 / memory)
    error = np.sqrt(strength * (1 - strength) * (1 - kept) / (1 + kept))
    assert abs(ledger.win_rate(A, B) - strength) < 5 * error + 0.5 / memory


def test_who_was_not_met_for_long_is_known_as_little_as_one_that_never_was():
    ledger = ledger_of(20.0)
    play(ledger, A, B, 500, won=True)
    assert ledger.win_rate(A, B) > 0.95
    play(ledger, A, C, 2_000, won=True)
    assert ledger.win_rate(A, B) == pytest.approx(0.5, abs=1e-6)
    assert ledger.recent[:, 0, 1].tolist() == [0.0, 0.0]  # no numbers too small to reckon with
    # What another policy remembers is its own: b has played no match since.
    assert ledger.win_rate(B, A) < 0.05


def test_a_match_counts_once_however_many_seats_a_policy_has_in_it():
    ledger = Ledger(Population([Member(A), Member(B)]), memory=1.0)
    play(ledger, A, B, 1, won=True)
    assert append(ledger, Result(1, (A, A, A, B), (0.0, 0.0, 0.0, 1.0)))
    assert ledger.recent[:, 0, 1].tolist() == [0.5 + 3.0, 0.5]
    assert ledger.recent[:, 1, 0].tolist() == [0.5 + 3.0, 3.0]


def test_what_frozen_copies_win_is_what_live_policies_remember():
    population = Population([Member(A), Member(B)])
    frozen = population.freeze("b", 7).ref
    ledger = Ledger(population, np.zeros((4, 2, 3)), memory=5.0)
    play(ledger, A, frozen, 50, won=True)
    play(ledger, A, frozen, 50, won=False)
    assert ledger.win_rate(A, frozen) < 0.07
    assert ledger.win_rate(frozen, A) == pytest.approx(1.0 - ledger.win_rate(A, frozen))
    assert ledger.win_rates(frozen, [A]).tolist() == [ledger.win_rate(frozen, A)]


def test_all_else_is_counted_in_full():
    forgets, adds_up = ledger_of(3.0), ledger_of(None)
    for ledger in (forgets, adds_up):
        play(ledger, A, B, 70, won=True)
        play(ledger, B, A, 30, won=True)
    assert np.array_equal(forgets.pairs, adds_up.pairs)
    assert np.array_equal(adds_up.recent, adds_up.pairs[:2])
    assert forgets.meetings(A, B) == 100
    assert forgets.payoff(A, B) == 0.7
    other = forgets.population[B]
    assert [found.tolist() for found in forgets.scores(A, [other])] == [[100.0], [70.0]]


def test_another_member_in_a_slot_begins_with_nothing():
    ledger = ledger_of(50.0)
    play(ledger, A, B, 20, won=True)
    ledger.forget(1)
    assert not ledger.recent[:, :, 1].any()
    assert not ledger.recent[:, 1].any()


class Stage:
    """A league of two policies that play at random, one actor after another."""

    def __init__(self):
        self.table = Table(dict.fromkeys(NAMES, 2), 2, 2)
        self.over = np.ones(COPIES, np.bool_)
        self.random = np.random.default_rng(5)

    def begin(self):
        random = np.random.default_rng(0)
        self.league = League(self.table, Random(2), None, random, COPIES, memory=30.0)
        self.league.deal(self.over)

    def turns(self, count):
        acted = np.ones((COPIES, 2), np.int64)
        for _ in range(count):
            returns = self.random.normal(size=(COPIES, 2))
            self.league.close(self.over, returns, acted, acted, ~self.over)
            self.league.deal(self.over)

    def rates(self):
        return self.league.ledger.win_rates(A, [B]).tolist()


def test_the_successor_of_an_actor_goes_on_with_the_same_numbers():
    stage = Stage()
    stage.begin()
    stage.turns(40)
    before = stage.rates()
    assert before != [0.5]
    stage.begin()
    assert stage.rates() == before
    assert stage.league.ledger.recent[0].sum() < 2 * 30 / np.log(2) + 2  # it forgets indeed
    assert stage.table.pairs[0].sum() == 2 * 160


def test_a_checkpoint_goes_on_with_the_same_numbers():
    stage, other = Stage(), Stage()
    stage.begin()
    stage.turns(40)
    saved = unpack(pack(stage.table.state()))
    other.table.restore(saved)
    other.begin()
    assert other.rates() == stage.rates()
    assert np.array_equal(other.table.recent, stage.table.recent)
