"""Leduc poker (Southey et al. 2005, "Bayes' bluff"): six cards, two agents, two rounds of bets.

Rules. The deck has two jacks, two queens and two kings. Each agent is dealt one card and puts 1
chip into the pot. In each of two rounds agent 0 starts, and they take turns until a bet is called:

    fold     lose the chips put in; only if the other has put in more
    call     match the chips that the other has put in, possibly adding none
    raise    call, and put in 2 more, or 4 in the second round

A round has at most two raises, and ends when its second or a later action is a call. After the
first round a public card is dealt from the remaining four. After the second round, the agent whose
card has the public card's rank wins, or else the higher rank; equal ranks are a draw. The winner
gets the chips that the other put in.

At equilibrium agent 0 loses 0.0856 chips per game on average. In each turn the agent that is not to
act may only wait.
The rules are those of OpenSpiel's `leduc_poker`, and of `LeducPoker` in `analysis/trees/`.
"""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.envs.games.array_game import TableGame
from remuda.envs.games.randomness import below, seed_stream
from remuda.system.checkpoint.fitting import Range, Table, require
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers, State, TurnResult

WAIT, FOLD, CALL, RAISE = 0, 1, 2, 3  # actions
CARDS, RANKS = 6, 3  # cards 0 to 5; the rank of a card is card // 2: jack, queen, king
ROUNDS, MOST_ACTIONS = 2, 4
"""Rounds of bets, and the most actions of both agents in a round: call, raise, raise, call."""
RAISES = (2, 4)  # chips that a raise adds after matching the other's, in each round
MOST_RAISES = 2  # raises of both agents in a round
PUBLIC, BETS, TO_ACT = RANKS, 2 * RANKS, 2 * RANKS + 2 * ROUNDS * MOST_ACTIONS
"""Offsets in an observation: the public card, the bets, and a 1 if the agent is to act."""
SIZE = TO_ACT + 1  # numbers in an observation
NAMES = ("jack", "queen", "king")


class LeducPoker(TableGame):
    """Leduc poker for two agents; see the rules at the top of this module.

    An agent observes [23] float32 of 0 and 1: the rank of its card (three entries, one of them 1),
    the public card's rank (three entries, all 0 before it is dealt), the actions in both rounds
    (for each of four actions, an entry for a call and one for a raise), and a 1 if it is to act.
    """

    action_names = ("wait", "fold", "call", "raise")

    def __init__(self, num_envs: int = 1) -> None:
        space = Box(0.0, 1.0, (SIZE,), np.float32)
        self._allocate(num_envs, {}, space, [Discrete(4)] * 2, masked=True)
        self.cards: Integers = np.zeros((num_envs, 3), np.int64)
        """[num_envs, 3]: the card of each agent, and the public card, which is drawn at the start
        and visible in the second round."""
        self.bets: Integers = np.full((num_envs, ROUNDS, MOST_ACTIONS), WAIT, np.int64)
        """[num_envs, 2, 4]: the actions of each round: CALL or RAISE, or WAIT if not yet taken."""
        self.round: Integers = np.zeros(num_envs, np.int64)  # [num_envs]: the round of bets, 0 or 1
        self.chips: Integers = np.ones(self.active.shape, np.int64)
        """[num_envs, 2]: the chips that each agent has put in."""

    def reset(self, seeds: Integers, mask: Bools) -> None:
        _deal(self._streams, self.cards, seeds, mask)
        self.bets[mask], self.round[mask], self.chips[mask] = WAIT, 0, 1
        self.active[mask] = True

    def observe(self, agent: int, out: Array) -> None:
        _observe(self.cards, self.bets, self.round, self.active, agent, out)

    def mask(self, agent: int, out: Bools) -> None:
        """Allow legal actions to the agent that is to act, and only waiting to the other."""
        _mask(self.bets, self.round, self.active, agent, out)

    def end_turn(self) -> TurnResult:
        table = self.cards, self.bets, self.round, self.chips, self.active
        _play(*table, self._chosen, self._rewards, self._terminated)
        return self._result

    def describe(self, agent: int, env: int = 0) -> str:
        own, public = (NAMES[self.cards[env, i] // 2] for i in (agent, 2))
        words = [f"you hold the {own}"]
        if self.round[env] == 1:
            words.append(f"the public card is the {public}")
        for number, done in enumerate(self.bets[env, : self.round[env] + 1]):
            acts = [
                f"{'you' if i % 2 == agent else 'the other'} "
                f"{'raised' if action == RAISE else 'called'}"
                for i, action in enumerate(done.tolist())
                if action != WAIT
            ]
            words.append(f"round {number + 1}: {', '.join(acts) or 'nothing has been done'}")
        own_chips, others = self.chips[env, agent], self.chips[env, 1 - agent]
        words.append(f"you have put in {own_chips}, the other {others}")
        return "; ".join(words)

    def _world(self) -> Table:
        return {
            "cards": (self.cards, Range(0, CARDS - 1)),
            "bets": (self.bets, Range(WAIT, RAISE)),
            "round": (self.round, Range(0, ROUNDS - 1)),
            "chips": (self.chips, Range(1, 1 + MOST_RAISES * sum(RAISES))),
            "active": (self.active, None),
            "streams": (self._streams, None),
        }

    def _check(self, state: State) -> None:
        plays, last = state["active"].any(1), state["bets"][:, :, -1]
        first_is_over = state["round"] == 1
        has_room = (last[:, 1] == WAIT) & (first_is_over | (last[:, 0] == WAIT))
        require(state, "bets", bool((has_room | ~plays).all()), "an unfinished round is not full")


# The rules. Everything below runs compiled, over all copies.


@njit(cache=True)
def _deal(streams: Array, cards: Integers, seeds: Integers, mask: Bools) -> None:
    for env in range(mask.size):
        if mask[env]:
            seed_stream(streams, env, seeds[env])
            first = below(streams, env, CARDS)
            second = (first + 1 + below(streams, env, CARDS - 1)) % CARDS
            # The public card is drawn from the remaining four: skip the lower dealt card first,
            # then the higher.
            public = below(streams, env, CARDS - 2)
            public += public >= min(first, second)
            public += public >= max(first, second)
            cards[env, 0], cards[env, 1], cards[env, 2] = first, second, public


@njit(cache=True)
def _count(done: Integers) -> int:
    count = 0
    while count < done.size and done[count] != WAIT:
        count += 1
    return count


@njit(cache=True)
def _may_fold(done: Integers, count: int) -> bool:
    """Return whether the other has put in more: its last action was a raise."""
    return count > 0 and done[count - 1] == RAISE


@njit(cache=True)
def _may_raise(done: Integers, count: int) -> bool:
    raises = 0
    for place in range(count):
        raises += done[place] == RAISE
    return raises < MOST_RAISES


@njit(cache=True)
def _observe(
    cards: Integers, bets: Integers, rounds: Integers, active: Bools, agent: int, out: Array
) -> None:
    out[:] = 0.0
    for env in range(rounds.size):
        now = rounds[env]
        out[env, cards[env, agent] // 2] = 1.0
        if now == 1:
            out[env, PUBLIC + cards[env, 2] // 2] = 1.0
        at = BETS
        for number in range(ROUNDS):
            for turn in range(MOST_ACTIONS):
                out[env, at] = bets[env, number, turn] == CALL
                out[env, at + 1] = bets[env, number, turn] == RAISE
                at += 2
        out[env, TO_ACT] = active[env, agent] and _count(bets[env, now]) % 2 == agent


@njit(cache=True)
def _mask(bets: Integers, rounds: Integers, active: Bools, agent: int, out: Bools) -> None:
    for env in range(rounds.size):
        done = bets[env, rounds[env]]
        count = _count(done)
        to_act = active[env, agent] and count % 2 == agent
        out[env, WAIT] = not to_act
        out[env, FOLD] = to_act and _may_fold(done, count)
        out[env, CALL] = to_act
        out[env, RAISE] = to_act and _may_raise(done, count)


@njit(cache=True)
def _play(
    cards: Integers,
    bets: Integers,
    rounds: Integers,
    chips: Integers,
    active: Bools,
    actions: Integers,
    rewards: Floats,
    terminated: Bools,
) -> None:
    for env in range(rounds.size):
        if not active[env, 0]:
            continue
        now = rounds[env]
        done = bets[env, now]
        count = _count(done)
        actor = count % 2
        action = actions[env, actor]
        if action == FOLD and _may_fold(done, count):
            _pay(chips, 1 - actor, env, active, rewards, terminated)
            continue
        chips[env, actor] = chips[env, 1 - actor]
        if action == RAISE and _may_raise(done, count):
            chips[env, actor] += RAISES[now]
            done[count] = RAISE
            continue
        # An action that the rules forbid counts as a call.
        done[count] = CALL
        if count == 0:
            continue
        if now == 0:
            rounds[env] = 1
        else:
            _pay(chips, _winner(cards[env]), env, active, rewards, terminated)


@njit(cache=True)
def _winner(cards: Integers) -> int:
    """Return the agent with the public card's rank, or else the higher rank; -1 for a draw."""
    first, second, public = cards[0] // 2, cards[1] // 2, cards[2] // 2
    if first == second:
        return -1
    if first == public:
        return 0
    if second == public:
        return 1
    return 0 if first > second else 1


@njit(cache=True)
def _pay(
    chips: Integers, winner: int, env: int, active: Bools, rewards: Floats, terminated: Bools
) -> None:
    """End a game: the winner gets the other's chips; -1 is a draw."""
    if winner >= 0:
        won = chips[env, 1 - winner]
        rewards[env, winner], rewards[env, 1 - winner] = won, -won
    for agent in range(2):
        active[env, agent], terminated[env, agent] = False, True
