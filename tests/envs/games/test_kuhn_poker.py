"""Kuhn poker: every way a game can go, and the value of play that is known exactly."""

import itertools

import numpy as np
import pytest

from remuda.envs.contract import VectorEnvContract
from remuda.envs.games.kuhn_poker import BET, DEALS, PASS, WAIT, KuhnPoker

SEEDS, EVERY = np.zeros(1, np.int64), np.ones(1, bool)


class TestKuhnPoker(VectorEnvContract):
    def make(self, num_envs):
        return KuhnPoker(num_envs)


def dealt(cards):
    env = KuhnPoker()
    env.reset(SEEDS, EVERY)
    env.cards[0] = cards
    return env


def masks(env):
    out = np.zeros((2, 1, 3), bool)
    for agent in range(2):
        env.mask(agent, out[agent])
    return out[:, 0].tolist()


def step(env, agent, action):
    env.begin_turn()
    env.act(agent, np.array([action]))
    env.act(1 - agent, np.array([WAIT]))
    return env.end_turn()


@pytest.mark.parametrize("cards", DEALS.tolist())
@pytest.mark.parametrize(
    ("moves", "won"),
    [
        ((PASS, PASS), {"higher": 1}),
        ((PASS, BET, PASS), {1: 1}),
        ((PASS, BET, BET), {"higher": 2}),
        ((BET, PASS), {0: 1}),
        ((BET, BET), {"higher": 2}),
    ],
)
def test_every_way_a_game_goes(cards, moves, won):
    env = dealt(cards)
    for i, move in enumerate(moves):
        agent = i % 2
        acts = [False, True, True]
        expected = [acts, [True, False, False]]
        assert masks(env) == (expected if agent == 0 else expected[::-1])
        result = step(env, agent, move)
        last = i == len(moves) - 1
        assert result.terminated.all() == (not env.active.any()) == last
        if not last:
            assert not result.rewards.any()
    ((winner, stake),) = won.items()
    winner = int(cards[1] > cards[0]) if winner == "higher" else winner
    assert result.rewards[0, winner] == stake
    assert result.rewards.sum() == 0


def value(first, second):
    """What agent 0 wins on average, by the chance of a bet given card and what has been done."""

    def walk(cards, moves, chance):
        agent = len(moves) % 2
        bet = (first if agent == 0 else second)(cards[agent], moves)
        total = 0.0
        for move, share in ((PASS, 1 - bet), (BET, bet)):
            env = dealt(cards)
            for i, before in enumerate((*moves, move)):
                result = step(env, i % 2, before)
            if result.terminated.all():
                total += chance * share * float(result.rewards[0, 0])
            elif share > 0:
                total += walk(cards, (*moves, move), chance * share)
        return total

    return sum(walk(cards, (), 1 / 6) for cards in DEALS.tolist())


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1 / 3])
def test_the_equilibria_lose_an_eighteenth(alpha):
    """The family of Kuhn 1950: agent 0 bets a jack with alpha, a king with three times that."""

    def first(card, moves):
        if moves == ():
            return (alpha, 0.0, 3 * alpha)[card]
        return (0.0, alpha + 1 / 3, 1.0)[card]

    def second(card, moves):
        return (1 / 3, 0.0, 1.0)[card] if moves == (PASS,) else (0.0, 1 / 3, 1.0)[card]

    assert value(first, second) == pytest.approx(-1 / 18)


def test_there_are_twelve_information_sets():
    seen = set()
    for cards, moves in itertools.product(DEALS.tolist(), [(), (PASS,), (BET,), (PASS, BET)]):
        env = dealt(cards)
        for i, move in enumerate(moves):
            step(env, i % 2, move)
        out = np.zeros((1, 8), np.float32)
        env.observe(len(moves) % 2, out)
        assert out[0, 7] == 1
        seen.add((len(moves) % 2, *out[0].tolist()))
    assert len(seen) == 12


def test_every_deal_is_as_likely():
    env = KuhnPoker(60_000)
    env.reset(np.arange(60_000), np.ones(60_000, bool))
    _, counts = np.unique(env.cards, axis=0, return_counts=True)
    assert len(counts) == 6
    assert abs(counts / 10_000 - 1).max() < 0.05
