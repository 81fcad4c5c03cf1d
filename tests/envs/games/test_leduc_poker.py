"""Leduc poker: every way a game can go, against its rules as a tree and against OpenSpiel's."""

from collections import Counter

import numpy as np
import pytest

from remuda.analysis.trees.tree_games import LeducPoker as Rules
from remuda.analysis.trees.trees import CHANCE, OVER
from remuda.envs.contract import VectorEnvContract
from remuda.envs.games.leduc_poker import (
    BETS,
    CALL,
    CARDS,
    FOLD,
    PUBLIC,
    RAISE,
    SIZE,
    TO_ACT,
    WAIT,
    LeducPoker,
)

SEEDS, EVERY = np.zeros(1, np.int64), np.ones(1, bool)
JACK, QUEEN, KING = 0, 2, 4
RULES = Rules()


class TestLeducPoker(VectorEnvContract):
    def make(self, num_envs):
        return LeducPoker(num_envs)


def dealt(cards):
    env = LeducPoker()
    env.reset(SEEDS, EVERY)
    env.cards[0] = cards
    return env


def masks(env):
    out = np.zeros((2, env.num_envs, 4), bool)
    for agent in range(2):
        env.mask(agent, out[agent])
    return out


def observed(env, agent):
    out = np.full((env.num_envs, SIZE), np.nan, np.float32)
    env.observe(agent, out)
    return out


def step(env, agent, action):
    env.begin_turn()
    env.act(agent, np.array([action]))
    env.act(1 - agent, np.array([WAIT]))
    return env.end_turn()


def allowed(*actions):
    return [action in actions for action in range(4)]


CALLS, WAITS = (CALL, RAISE), (WAIT,)
ANSWERS, LAST = (FOLD, CALL, RAISE), (FOLD, CALL)


@pytest.mark.parametrize(
    ("cards", "moves", "won"),
    [
        # Who is to act, what it may do, and what it does; then what agent 0 is given.
        ((KING, JACK, QUEEN), [(0, CALLS, RAISE), (1, ANSWERS, FOLD)], 1),
        ((JACK, KING, QUEEN), [(0, CALLS, CALL), (1, CALLS, RAISE), (0, ANSWERS, FOLD)], -1),
        ((KING, JACK, QUEEN), [(0, CALLS, RAISE), (1, ANSWERS, RAISE), (0, LAST, FOLD)], -3),
        (
            (KING, JACK, QUEEN),  # the higher card
            [(0, CALLS, CALL), (1, CALLS, CALL), (0, CALLS, CALL), (1, CALLS, CALL)],
            1,
        ),
        (
            (KING, JACK, JACK + 1),  # the other's pair
            [(0, CALLS, RAISE), (1, ANSWERS, CALL), (0, CALLS, CALL), (1, CALLS, CALL)],
            -3,
        ),
        (
            (JACK, KING, JACK + 1),
            [(0, CALLS, RAISE), (1, ANSWERS, CALL), (0, CALLS, RAISE), (1, ANSWERS, CALL)],
            7,
        ),
        (
            (KING, KING + 1, JACK),  # equal ranks
            [(0, CALLS, RAISE), (1, ANSWERS, CALL), (0, CALLS, RAISE), (1, ANSWERS, CALL)],
            0,
        ),
        (
            (KING, KING + 1, JACK),  # equal ranks, but one folds
            [(0, CALLS, RAISE), (1, ANSWERS, CALL), (0, CALLS, RAISE), (1, ANSWERS, FOLD)],
            3,
        ),
        (
            (QUEEN, KING, QUEEN + 1),  # all that can be put in
            [
                *((0, CALLS, CALL), (1, CALLS, RAISE), (0, ANSWERS, RAISE), (1, LAST, CALL)),
                *((0, CALLS, CALL), (1, CALLS, RAISE), (0, ANSWERS, RAISE), (1, LAST, CALL)),
            ],
            13,
        ),
        (
            (QUEEN, KING, QUEEN + 1),
            [
                *((0, CALLS, RAISE), (1, ANSWERS, RAISE), (0, LAST, CALL)),
                *((0, CALLS, RAISE), (1, ANSWERS, RAISE), (0, LAST, FOLD)),
            ],
            -9,
        ),
    ],
)
def test_ways_a_game_ends(cards, moves, won):
    env = dealt(cards)
    for i, (agent, may, move) in enumerate(moves):
        expected = [allowed(*may), allowed(WAIT)]
        assert masks(env)[:, 0].tolist() == (expected if agent == 0 else expected[::-1])
        result = step(env, agent, move)
        last = i == len(moves) - 1
        assert result.terminated.all() == (not env.active.any()) == last
        assert not result.truncated.any()
        if not last:
            assert not result.rewards.any()
    assert result.rewards[0].tolist() == [won, -won]


def walk(rules, visit, state=None):
    """Visit every state in which all cards that are dealt by then are known."""
    state = rules.root() if state is None else state
    player = rules.player(state)
    visit(state, player)
    if player == CHANCE:
        branches = [action for action, _ in rules.outcomes(state)]
    else:
        branches = rules.actions(state) if player != OVER else ()
    for action in branches:
        walk(rules, visit, rules.child(state, action))


def states(*, over):
    """All states of the tree in which the game is over, or in which a player acts."""
    found = []
    walk(
        RULES,
        lambda state, player: (
            found.append(state) if (player == OVER if over else player >= 0) else None
        ),
    )
    return found


def moves_of(state):
    return [action for done in state.rounds for action in done]


def deal_all(found):
    """A copy for each state, with its cards; a public one that is not dealt yet is any other."""
    env = LeducPoker(len(found))
    env.reset(np.arange(len(found)), np.ones(len(found), bool))
    for number, state in enumerate(found):
        left = [card for card in range(CARDS) if card not in state.cards]
        env.cards[number] = (*state.cards, *left)[:3]
    return env


def test_every_end_of_the_tree_is_an_end_here_with_the_same_returns():
    """All ends are replayed side by side, as are the masks and who acts on the way there."""
    ends = states(over=True)
    assert len(ends) == 5520
    env, now = deal_all(ends), [RULES.root()] * len(ends)
    for number, end in enumerate(ends):
        now[number] = now[number]._replace(cards=end.cards[:2])
    returns, over = np.zeros((len(ends), 2)), np.zeros(len(ends), bool)
    for turn in range(8):
        may, on = masks(env), env.active.all(1)
        assert (env.active.any(1) == on).all()
        actions = np.zeros((2, len(ends)), np.int64)
        for number, end in enumerate(ends):
            moves = moves_of(end)
            assert on[number] == (turn < len(moves))
            if not on[number]:
                continue
            player = RULES.player(now[number])
            legal = allowed(*(1 + action for action in RULES.actions(now[number])))
            assert may[player, number].tolist() == legal
            assert may[1 - player, number].tolist() == allowed(WAIT)
            actions[player, number] = 1 + moves[turn]
            after = RULES.child(now[number], moves[turn])
            if RULES.player(after) == CHANCE:
                after = RULES.child(after, end.cards[2])
            now[number] = after
        env.begin_turn()
        for agent in range(2):
            env.act(agent, actions[agent])
        result = env.end_turn()
        returns += result.rewards
        over |= result.terminated.all(1)
        assert (result.terminated.all(1) == (on & ~env.active.any(1))).all()
    assert over.all()
    assert now == ends
    assert returns.tolist() == [list(RULES.returns(end)) for end in ends]


def played_to(found):
    """A copy in each state, reached by its moves; and what both agents observe there."""
    env = deal_all(found)
    moves = [moves_of(state) for state in found]
    seen = np.zeros((2, len(found), SIZE), np.float32)
    for turn in range(9):
        here = np.array([len(each) == turn for each in moves])
        for agent in range(2):
            seen[agent, here] = observed(env, agent)[here]
        env.begin_turn()
        for agent in range(2):
            to_act = observed(env, agent)[:, TO_ACT] == 1.0
            done = [1 + each[turn] if turn < len(each) else CALL for each in moves]
            env.act(agent, np.where(to_act, done, WAIT))
        env.end_turn()
    return seen


def ranks(key):
    """What a player knows, the two cards of a rank being one."""
    card, public, done = key
    return card // 2, tuple(each // 2 for each in public), done


def test_who_knows_the_same_observes_the_same_and_the_other_way_round():
    found = states(over=False)
    players = np.array([RULES.player(state) for state in found])
    seen = played_to(found)
    every = np.arange(len(found))
    assert (seen[players, every, TO_ACT] == 1.0).all()
    assert (seen[1 - players, every, TO_ACT] == 0.0).all()
    known = [(int(p), ranks(RULES.information(s))) for p, s in zip(players, found, strict=True)]
    shown = [tuple(row) for row in seen[players, every].tolist()]
    pairs = set(zip(known, shown, strict=True))
    assert len(pairs) == len(set(known)) == len(set(shown)) == 288


def test_what_is_observed_has_its_places():
    env = dealt((QUEEN, KING, JACK))
    for agent, action in ((0, CALL), (1, RAISE), (0, CALL), (0, RAISE)):
        before = observed(env, 1)[0]
        assert not before[PUBLIC:BETS].any() or env.round[0] == 1
        step(env, agent, action)
    row = np.zeros(SIZE)
    row[[2, PUBLIC + 0]] = 1.0
    row[[BETS + 0, BETS + 2 + 1, BETS + 4 + 0, BETS + 8 + 1]] = 1.0
    row[TO_ACT] = 1.0
    assert observed(env, 1)[0].tolist() == row.tolist()
    row[[2, 1, TO_ACT]] = 0.0, 1.0, 0.0
    assert observed(env, 0)[0].tolist() == row.tolist()


def test_an_agent_is_told_nothing_that_it_cannot_know():
    env = dealt((QUEEN, KING, JACK))
    assert env.describe(0) == (
        "you hold the queen; round 1: nothing has been done; you have put in 1, the other 1"
    )
    for agent, action in ((0, CALL), (1, RAISE), (0, CALL)):
        step(env, agent, action)
    assert env.describe(1) == (
        "you hold the king; the public card is the jack; round 1: the other called, you raised, "
        "the other called; round 2: nothing has been done; you have put in 3, the other 3"
    )


def test_every_deal_is_as_likely():
    """All 120 orders of three cards of six, within five standard errors."""
    count = 240_000
    env = LeducPoker(count)
    env.reset(np.arange(count), np.ones(count, bool))
    counts = np.array(list(Counter(map(tuple, env.cards.tolist())).values()))
    assert len(counts) == 120
    mean = count / 120
    assert abs(counts - mean).max() < 5.0 * np.sqrt(mean * (1.0 - 1.0 / 120))
    assert 80.0 < ((counts - mean) ** 2 / mean).sum() < 200.0  # of 119 degrees of freedom


def test_what_the_rules_do_not_allow_is_a_call():
    env = dealt((QUEEN, KING, JACK))
    step(env, 0, FOLD)
    assert env.bets[0, 0].tolist() == [CALL, WAIT, WAIT, WAIT]
    for agent, action in ((1, RAISE), (0, RAISE), (1, RAISE)):
        step(env, agent, action)
    assert env.bets[0, 0].tolist() == [CALL, RAISE, RAISE, CALL]
    assert env.chips[0].tolist() == [5, 5]
    assert env.round[0] == 1


def test_observations_say_what_those_of_open_spiel_do():
    """OpenSpiel's tensor of an information state also tells the seat; here who acts does."""
    pyspiel = pytest.importorskip("pyspiel")
    game = pyspiel.load_game("leduc_poker")
    found = states(over=False)
    seen, pairs = played_to(found), set()
    for number, state in enumerate(found):
        theirs, dealt_cards, moves = game.new_initial_state(), list(state.cards), moves_of(state)
        while dealt_cards or moves:
            theirs.apply_action((dealt_cards if theirs.is_chance_node() else moves).pop(0))
        player = theirs.current_player()
        assert player == RULES.player(state)
        tensor = np.array(theirs.information_state_tensor(player))
        # Two cards of a rank are told apart there.
        cards = tensor[2:8].reshape(3, 2).sum(1), tensor[8:14].reshape(3, 2).sum(1)
        bets = np.concatenate([*cards, tensor[14:]])
        assert bets.tolist() == seen[player, number, :TO_ACT].tolist()
        pairs.add((player, *bets))
    assert len(pairs) == 288
