"""The contract suite: the games keep it, and it refuses every way to break it."""

from dataclasses import replace

import numpy as np
import pytest

from refusals import refuses
from remuda.envs.contract import VectorEnvContract, check_env
from remuda.envs.games.treasure_hunt import TreasureHunt
from remuda.errors import ContractError
from remuda.types import TurnResult
from support import Tape


class TestTreasureHunt(VectorEnvContract):
    def make(self, num_envs):
        return TreasureHunt(num_envs)


class TestCrowdedTreasureHunt(VectorEnvContract):
    def make(self, num_envs):
        return TreasureHunt(
            num_envs,
            height=5,
            width=7,
            num_agents=6,
            max_turns=7,
            spawn_probability=0.2,
            vision_radius=4,
        )


class Small(TreasureHunt):
    """Treasure Hunt, small enough for every rule to be felt soon."""

    def __init__(self, num_envs):
        super().__init__(num_envs, height=6, width=6, max_turns=9, spawn_probability=0.2)


class Unseeded(Small):
    def reset(self, seeds, mask):
        super().reset(np.random.default_rng().integers(2**62, size=self.num_envs), mask)


class Leaking(Small):
    """A copy's items appear in its neighbour too."""

    def begin_turn(self):
        super().begin_turn()
        self.tiles[0] = np.where(
            self.tiles[-1] == 2, np.where(self.tiles[0] == 0, 2, self.tiles[0]), self.tiles[0]
        )


class ResetsAll(Small):
    def reset(self, seeds, mask):
        super().reset(np.abs(seeds), np.ones_like(mask))


class ForgetsToReset(Small):
    def reset(self, seeds, mask):
        super().reset(seeds, mask if mask.all() else np.zeros_like(mask))


class LeavesHoles(Small):
    def observe(self, agent, out):
        keep = out[:, 0, 0, 0].copy()
        super().observe(agent, out)
        out[:, 0, 0, 0] = keep


class ObservingMoves(Small):
    def observe(self, agent, out):
        super().observe(agent, out)
        super().begin_turn()


class BothEnds(Small):
    def end_turn(self):
        result = super().end_turn()
        return TurnResult(result.rewards, result.truncated, result.truncated)


class ActiveAtTheEnd(Small):
    def end_turn(self):
        result = super().end_turn()
        self.active[0, 0] = True
        return result


class OutsideItsSpace(Small):
    def observe(self, agent, out):
        super().observe(agent, out)
        out[0] *= 7


class DoubleRewards(Small):
    def end_turn(self):
        result = super().end_turn()
        rewards = result.rewards.astype(np.float64)
        return TurnResult(rewards, result.terminated, result.truncated)


class InfiniteRewards(Small):
    def end_turn(self):
        result = super().end_turn()
        result.rewards[0, 0] = np.inf
        return result


class NoTurnForTheLast(Small):
    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.turn_groups = self.turn_groups[:-1]


class ForgetsTheTurn(Small):
    def state(self):
        return {name: a for name, a in super().state().items() if name != "streams"}

    def restore(self, state):
        super().restore(state | {"streams": super().state()["streams"]})


class SavesAnObject(Small):
    def state(self):
        return super().state() | {"self": self}


class GreyPictures(Small):
    def render(self, env=0):
        return super().render(env)[..., 0]


class PaysTheDead(Small):
    """The last agent dies after three turns, and goes on earning."""

    def end_turn(self):
        result, turns = super().end_turn(), self.state()["turns"]
        dead = turns >= 3
        terminated = result.terminated.copy()
        terminated[:, -1] = (turns == 3) & ~result.truncated[:, -1]
        result.truncated[dead & (turns > 3), -1] = False
        self.active[dead, -1] = False
        result.rewards[dead & (turns > 3), -1] = 1.0
        return TurnResult(result.rewards, terminated, result.truncated)


class DiesTwice(PaysTheDead):
    def end_turn(self):
        result, turns = super().end_turn(), self.state()["turns"]
        result.rewards[turns > 3, -1] = 0.0
        result.terminated[turns == 5, -1] = True
        return result


class ForgetsAnEnd(Small):
    def end_turn(self):
        result = super().end_turn()
        result.truncated[:, 0] = False
        return result


class KeepsActions(Small):
    """What an agent does takes effect at the end of the turn, from the caller's own array."""

    def begin_turn(self):
        self._kept = {}
        super().begin_turn()

    def act(self, agent, actions):
        self._kept[agent] = actions

    def end_turn(self):
        for agent, actions in self._kept.items():
            super().act(agent, actions % 4)
        return super().end_turn()


class SharesItsMap(Small):
    """All environments of this class have one map."""

    SHARED = np.zeros((8, 6, 6), np.int8)

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.own, self.tiles = self.tiles, self.SHARED[:num_envs]
        self.tiles[...] = self.own

    def begin_turn(self):
        super().begin_turn()
        self.own[...] = self.tiles


class ForgetsFacts(Small):
    episode_metrics = ("gems",)

    def end_turn(self):
        result = super().end_turn()
        return TurnResult(result.rewards, result.terminated, result.truncated)


class InfiniteFacts(Small):
    episode_metrics = ("gems",)

    def end_turn(self):
        result = super().end_turn()
        told = {"gems": np.full(self.num_envs, np.inf)}
        return TurnResult(result.rewards, result.terminated, result.truncated, told)


class KeepsOldRewards(Small):
    """What was given in the turn before stands there until an agent acts."""

    def begin_turn(self):
        old = self.rewards_so_far.copy()
        super().begin_turn()
        self.rewards_so_far[...] = old
        self._old = True

    def act(self, agent, actions):
        if self._old:
            self.rewards_so_far[...] = 0.0
            self._old = False
        super().act(agent, actions)


class NewRewards(Small):
    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.real = self.rewards_so_far

    def begin_turn(self):
        super().begin_turn()
        self.rewards_so_far = self.real.copy()


class OtherRewards(Small):
    def end_turn(self):
        result = super().end_turn()
        return TurnResult(2 * result.rewards, result.terminated, result.truncated)


class RewardsOfOneCopy(Small):
    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.rewards_so_far = self.rewards_so_far[0]


class Masked(Small):
    """Up is forbidden at the top."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.agents = tuple(replace(spec, masked=True) for spec in self.agents)

    def mask(self, agent, out):
        out[...] = True
        out[:, 0] = self.positions[:, agent, 0] > 1


class MaskLeavesHoles(Masked):
    def mask(self, agent, out):
        keep = out[:, 1].copy()
        super().mask(agent, out)
        out[:, 1] = keep


class MaskMoves(Masked):
    def mask(self, agent, out):
        super().mask(agent, out)
        self.begin_turn()


class NothingIsAllowed(Masked):
    def mask(self, agent, out):
        super().mask(agent, out)
        out[self.positions[:, agent, 0] == 1] = False


class TestMasked(VectorEnvContract):
    def make(self, num_envs):
        return Masked(num_envs)


@pytest.mark.slow_cases(
    "ActiveAtTheEnd-6. an agent whose episode ended is not active",
    "BothEnds-6. termination is not truncation",
    "DiesTwice-9. an agent whose episode has ended does not end again",
    "DoubleRewards-rewards are (3, 2) float32",
    "ForgetsAnEnd-9. when a copy has finished",
    "ForgetsFacts-13. every `end_turn` returns the episode metric",
    "ForgetsToReset-3. `reset` restarts the copies in",
    "GreyPictures-`render` gives",
    "InfiniteFacts-13. the episode metric 'gems' is finite",
    "InfiniteRewards-rewards are finite",
    "KeepsActions-11. `act` keeps no reference",
    "KeepsOldRewards-14. `rewards_so_far` starts at 0",
    "LeavesHoles-4. `observe` writes all of `out`",
    "MaskLeavesHoles-10. `mask` writes all of `out`",
    "MaskMoves-10. `mask` changes nothing",
    "NothingIsAllowed-10. agent_",
    "ObservingMoves-4. `observe` writes all of `out`, and changes nothing",
    "OutsideItsSpace-7. observations of agent_",
    "PaysTheDead-9. an agent whose episode has ended gets no reward",
    "ResetsAll-3. `reset` leaves the copies outside",
    "SharesItsMap-12. environments that are used side by side share nothing",
)
@pytest.mark.parametrize(
    ("broken", "guarantee"),
    [
        (Unseeded, "1. the same seeds"),
        (Leaking, "2. copies share nothing"),
        (ResetsAll, "3. `reset` leaves the copies outside"),
        (ForgetsToReset, "3. `reset` restarts the copies in"),
        (LeavesHoles, "4. `observe` writes all of `out`"),
        (ObservingMoves, "4. `observe` writes all of `out`, and changes nothing"),
        (BothEnds, "6. termination is not truncation"),
        (ActiveAtTheEnd, "6. an agent whose episode ended is not active"),
        (OutsideItsSpace, "7. observations of agent_"),
        (DoubleRewards, "rewards are (3, 2) float32"),
        (InfiniteRewards, "rewards are finite"),
        (NoTurnForTheLast, "every agent is in one turn group"),
        (ForgetsTheTurn, "8. `restore` continues exactly where"),
        (SavesAnObject, "8. `state` is plain data"),
        (GreyPictures, "`render` gives"),
        (PaysTheDead, "9. an agent whose episode has ended gets no reward"),
        (DiesTwice, "9. an agent whose episode has ended does not end again"),
        (ForgetsAnEnd, "9. when a copy has finished"),
        (MaskLeavesHoles, "10. `mask` writes all of `out`"),
        (MaskMoves, "10. `mask` changes nothing"),
        (NothingIsAllowed, "10. agent_"),
        (KeepsActions, "11. `act` keeps no reference"),
        (SharesItsMap, "12. environments that are used side by side share nothing"),
        (ForgetsFacts, "13. every `end_turn` returns the episode metric"),
        (InfiniteFacts, "13. the episode metric 'gems' is finite"),
        (KeepsOldRewards, "14. `rewards_so_far` starts at 0"),
        (NewRewards, "14. `rewards_so_far` is always the same array"),
        (OtherRewards, "14. `rewards_so_far` ends every turn equal to"),
        (RewardsOfOneCopy, "14. `rewards_so_far` is (3, 2) float32"),
    ],
)
def test_a_broken_environment_is_refused(broken, guarantee):
    with pytest.raises(ContractError) as error:
        check_env(broken)
    text = str(error.value)
    assert "\n" not in text
    # A fault may be found by another check first; the check that is meant for it must find it too.
    found = []
    suite = type("Suite", (VectorEnvContract,), {"make": lambda self, num_envs: broken(num_envs)})()
    for name in dir(suite):
        if name.startswith("test_"):
            try:
                getattr(suite, name)()
            except ContractError as other:
                found.append(str(other))
    assert any(guarantee in message for message in found), found


def test_a_game_with_actions_of_the_dead_is_refused():
    class ActsOfTheDead(Tape):
        """The first agent's episode ends after two turns; its acts still count."""

        def __init__(self, num_envs):
            super().__init__(num_envs, lengths=(6,))

        def act(self, agent, actions):
            super().act(agent, actions)
            self._rewards[:, 1] += actions

        def end_turn(self):
            result = super().end_turn()
            terminated = result.terminated.copy()
            early = (self._turn >= 2) & ~result.truncated[:, 0]
            terminated[:, 0] |= early
            self.active[:, 0] &= ~early
            return TurnResult(result.rewards, terminated, result.truncated)

    with refuses(ContractError):
        check_env(ActsOfTheDead)


class TestCopiesOfUnequalLength(VectorEnvContract):
    """Copies that end at different times still share nothing."""

    def make(self, num_envs):
        return StaggeredTreasureHunt(num_envs)


class StaggeredTreasureHunt(Small):
    """An episode's length depends on its seed."""

    def reset(self, seeds, mask):
        super().reset(seeds, mask)
        state = self.state()
        state["turns"][mask] = seeds[mask] % 5
        self.restore(state)
