"""What a game gives before an agent acts must be told."""

import numpy as np
import pytest

from remuda.envs.contract import check_env
from remuda.errors import ContractError
from remuda.types import TurnResult
from support import Tape


class Gifts(Tape):
    """Agents act one after another, and each gives what it chose to the next; it is not told."""

    def __init__(self, num_envs, together=False):
        super().__init__(num_envs, lengths=(4,), together=together)
        self.given = self._rewards

    def reset(self, seeds, mask):
        super().reset(seeds, mask)
        self._episode[mask] = 0

    def observe(self, agent, out):
        super().observe(agent, out)
        out[:, 0] = 0  # which copy it is

    def act(self, agent, actions):
        self.given[:, (agent + 1) % self.num_agents] += actions * self.active[:, agent]

    def end_turn(self):
        result = super().end_turn()
        return TurnResult(np.array(self.given, np.float32), result.terminated, result.truncated)


class GiftsInFresh(Gifts):
    """A new array in each turn."""

    def begin_turn(self):
        super().begin_turn()
        self.given = np.zeros(self.active.shape)


class GiftsInScores(Gifts):
    """Scores that grow, by agent and copy."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.table = {"scores": np.zeros((2, num_envs), np.int64)}
        self._before = self.table["scores"].copy()

    def begin_turn(self):
        super().begin_turn()
        self._before[...] = self.table["scores"]

    def act(self, agent, actions):
        self.table["scores"][1 - agent] += actions * self.active[:, agent]

    def end_turn(self):
        result = super().end_turn()
        grown = (self.table["scores"] - self._before).T.astype(np.float32)
        return TurnResult(grown, result.terminated, result.truncated)


class GiftsInLists(Gifts):
    """Lists of Python, cleared when the turn ends."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.lists = [[0.0, 0.0] for _ in range(num_envs)]

    def act(self, agent, actions):
        for copy, gift in enumerate(actions):
            self.lists[copy][1 - agent] += float(gift) * bool(self.active[copy, agent])

    def end_turn(self):
        result, given = super().end_turn(), np.array(self.lists, np.float32)
        for row in self.lists:
            row[:] = [0.0, 0.0]
        return TurnResult(given, result.terminated, result.truncated)


@pytest.mark.slow_cases("GiftsInFresh", "GiftsInLists")
@pytest.mark.parametrize("game", [Gifts, GiftsInFresh, GiftsInScores, GiftsInLists])
def test_gifts_before_an_agent_acts_must_be_told(game):
    """They were credited to what the agent did after them."""
    with pytest.raises(ContractError) as error:
        check_env(game)
    said = str(error.value)
    assert "14. agent_1 got a reward of" in said
    assert "let `rewards_so_far` be" in said
    assert "\n" not in said


class ToldGifts(Gifts):
    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.rewards_so_far = self.given


class GiftsAtTheEnd(Gifts):
    """What was chosen is kept apart until the turn ends; then it is given."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.chosen = np.zeros((num_envs, 2), np.int64)

    def act(self, agent, actions):
        self.chosen[:, agent] = actions * self.active[:, agent]

    def end_turn(self):
        self.given[...] = self.chosen[:, ::-1]
        return super().end_turn()


class GiftsAtOnce(Gifts):
    """All act together, so nothing is given before they act."""

    def __init__(self, num_envs):
        super().__init__(num_envs, together=True)


class GiftsToEarlierAgents(Gifts):
    """Only who has acted in the turn is given anything."""

    def act(self, agent, actions):
        self.given[:, 0] += actions * self.active[:, agent]


class NothingIsGiven(Gifts):
    """A table that changes in each turn and is as before after it is no reward."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.pending = np.zeros((num_envs, 2))

    def act(self, agent, actions):
        self.pending[:, 1 - agent] = actions

    def end_turn(self):
        self.pending[...] = 0.0
        return super().end_turn()


class SurvivorsWithAClock(Gifts):
    """Each is given 1 for every turn; a clock grows by as much, early in the turn."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.clock = np.zeros((num_envs, 2), np.int64)

    def act(self, agent, actions):
        self.clock += self.active & (agent == 0)

    def end_turn(self):
        self.given[...] = self.active
        return super().end_turn()


@pytest.mark.slow_cases("GiftsAtTheEnd", "GiftsToEarlierAgents", "NothingIsGiven", "ToldGifts")
@pytest.mark.parametrize(
    "game",
    [
        ToldGifts,
        GiftsAtTheEnd,
        GiftsAtOnce,
        GiftsToEarlierAgents,
        NothingIsGiven,
        SurvivorsWithAClock,
    ],
)
def test_who_gives_nothing_early_or_tells_of_it_passes(game):
    check_env(game)
