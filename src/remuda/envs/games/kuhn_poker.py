"""Kuhn poker (Kuhn 1950): three cards, two agents, one bet. The smallest game with bluffing.

Rules. Each agent is dealt one of the cards jack, queen and king, and puts 1 into the pot. Agent 0
passes or bets 1. After a bet the other agent passes and loses its stake, or bets too, and the
higher card takes the pot. After a pass agent 1 passes or bets. If it passes, the higher card takes
the pot. If it bets, agent 0 passes or bets. At the end each agent's reward is the amount won or
lost.

    pass pass          the higher card wins 1
    pass bet pass      agent 1 wins 1
    pass bet bet       the higher card wins 2
    bet pass           agent 0 wins 1
    bet bet            the higher card wins 2

At equilibrium agent 0 loses 1/18 per game on average. In each turn the agent that is not to act may
only wait.
"""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.envs.games.array_game import TableGame
from remuda.envs.games.randomness import below, seed_stream
from remuda.system.checkpoint.fitting import Range, Table, require
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Integers, State, TurnResult

WAIT, PASS, BET = 0, 1, 2  # actions
JACK, QUEEN, KING = 0, 1, 2
START, PASSED, BETS, PASSED_BETS, OVER = 0, 1, 2, 3, 4
"""The actions so far; agent 1 is to act after `PASSED` and `BETS`, otherwise agent 0."""
TO_ACT = np.array([0, 1, 1, 0])
NEXT = np.array([[PASSED, BETS], [OVER, PASSED_BETS], [OVER, OVER], [OVER, OVER]])
"""[actions so far, PASS or BET]: the actions so far after that action."""
WORDS = (
    "nothing has been done",
    "the first passed",
    "the first bet",
    "the first passed, the second bet",
    "it is over",
)
"""Descriptions of the actions so far."""
DEALS = np.array([[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]])


@njit(cache=True)
def _deal(streams: Array, cards: Integers, seeds: Integers, mask: Bools) -> None:
    for env in range(mask.size):
        if mask[env]:
            seed_stream(streams, env, seeds[env])
            cards[env] = DEALS[below(streams, env, len(DEALS))]


class KuhnPoker(TableGame):
    """Kuhn poker for two agents.

    An agent observes its card (three entries, one of them 1), the actions so far (four entries:
    nothing, passed, bet, passed and bet), and a 1 if it is to act.
    """

    action_names = ("wait", "pass", "bet")

    def __init__(self, num_envs: int = 1) -> None:
        space = Box(0.0, 1.0, (8,), np.float32)
        self._allocate(num_envs, {}, space, [Discrete(3)] * 2, masked=True)
        self.cards: Integers = np.zeros(self.active.shape, np.int64)
        """[num_envs, 2]: the card of each agent."""
        self.done: Integers = np.full(num_envs, OVER, np.int64)  # [num_envs]: the actions so far

    def reset(self, seeds: Integers, mask: Bools) -> None:
        _deal(self._streams, self.cards, seeds, mask)
        self.done[mask] = START
        self.active[mask] = True

    def observe(self, agent: int, out: Array) -> None:
        out[...] = 0.0
        every = np.arange(self.num_envs)
        out[every, self.cards[:, agent]] = 1.0
        on = np.flatnonzero(self.done != OVER)
        out[on, 3 + self.done[on]] = 1.0
        out[:, 7] = self._to_act(agent)

    def mask(self, agent: int, out: Bools) -> None:
        """Allow the agent that is to act to pass or bet, and the other only to wait."""
        to_act = self._to_act(agent)
        out[:, WAIT] = ~to_act
        out[:, PASS] = out[:, BET] = to_act

    def end_turn(self) -> TurnResult:
        on = np.flatnonzero(self.done != OVER)
        before = self.done[on]
        actor = TO_ACT[before]
        # Any other action counts as a pass.
        bets = (self._chosen[on, actor] == BET).astype(np.int64)
        self.done[on] = NEXT[before, bets]
        over = self.done[on] == OVER
        # Either the bet was not called, or the cards are compared.
        folds = over & (before != PASSED) & (bets == 0)
        stake = np.where(over & (before != PASSED) & (bets == 1), 2.0, 1.0)
        higher = np.where(self.cards[on, 0] > self.cards[on, 1], 0, 1)
        winner = np.where(folds, 1 - actor, higher)
        won = np.where(winner == 0, stake, -stake) * over
        self._rewards[on, 0], self._rewards[on, 1] = won, -won
        self._terminated[on[over]] = True
        self.active[...] = (self.done != OVER)[:, None]
        return self._result

    def describe(self, agent: int, env: int = 0) -> str:
        card = ("jack", "queen", "king")[self.cards[env, agent]]
        return f"you hold the {card}; {WORDS[self.done[env]]}"

    def _world(self) -> Table:
        return {
            "cards": (self.cards, Range(0, 2)),
            "done": (self.done, Range(START, OVER)),
            "streams": (self._streams, None),
            "active": (self.active, None),
        }

    def _check(self, state: State) -> None:
        fits = bool((state["active"] == (state["done"] != OVER)[:, None]).all())
        require(state, "active", fits, "both agents play until the game is over")

    def _to_act(self, agent: int) -> Bools:
        on = self.done != OVER
        to_act: Bools = on & (TO_ACT[np.where(on, self.done, START)] == agent)
        return to_act
