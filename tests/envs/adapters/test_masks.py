"""What libraries say is allowed: where they say it, and what is refused of it."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from faulty_games import Alone, AtOnce, InTurn, actor_of, play
from refusals import refuses
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.gymnasium import GymnasiumEnv
from remuda.envs.adapters.masks import write_mask
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.checks import BadValueError
from remuda.errors import ContractError

ONE = np.array([0, 1], np.int8)
"""Allows the second of two actions alone."""


class Tells(Alone):
    """Tells in `info` what is allowed, but for some turns."""

    def __init__(self, missing=(), mask=ONE):
        super().__init__("nothing")
        self.missing, self.mask = missing, mask

    def info(self):
        return {} if self.turn in self.missing else {"action_mask": self.mask}

    def reset(self, **options):
        seen, _ = super().reset(**options)
        return seen, self.info()

    def step(self, action):
        if self.turn not in self.missing:
            assert action == 1
        return *super().step(action)[:-1], self.info()


def test_a_mask_that_is_missing_is_refused_of_an_agent_that_acts():
    """Red before: all was allowed then, and illegal actions were played."""
    with refuses(ContractError):
        play(actor_of(GymnasiumEnv(lambda: Tells({2}))))
    play(actor_of(GymnasiumEnv(lambda: Tells({2})), check=False))
    play(actor_of(GymnasiumEnv(lambda: Tells({6}))))  # nobody acts after the end


class TellsAfterSteps(Tells):
    """Not yet in the first reset of all."""

    def reset(self, **options):
        return super().reset(**options)[0], {}


def test_a_mask_that_nobody_asks_for_is_refused():
    """Red before: it was left aside, and illegal actions were played."""
    with refuses(ContractError):
        play(actor_of(GymnasiumEnv(lambda: TellsAfterSteps({0}))))
    play(actor_of(GymnasiumEnv(lambda: TellsAfterSteps(range(9)))))


@pytest.mark.parametrize(
    "mask",
    [
        np.array([-1e9, 0.0, 0.0]),
        np.array([1.0, np.nan, 0.0]),
        np.array([1, 2, 0]),
        [1, 0, -1],
    ],
)
def test_masks_hold_zeros_and_ones_alone(mask):
    """Red before: masks that are added to logits were turned round, and NaN was allowed."""
    out = np.zeros(3, bool)
    with refuses(BadValueError):
        write_mask(mask, out)
    write_mask(mask, out, check=False)
    for good in ([1, 0, 1], [True, False, True], np.array([1.0, 0.0, 1.0]), np.uint8([1, 0, 1])):
        write_mask(good, out)
        assert out.tolist() == [True, False, True]


class Selected(InTurn):
    """Tells what is allowed to the agent that is selected alone."""

    def __init__(self):
        super().__init__("nothing")

    def tell(self):
        self.infos = {name: {} for name in self.agents}
        self.infos[self.agent_selection] = {"action_mask": ONE}

    def reset(self, seed=None, options=None):
        super().reset()
        self.tell()

    def step(self, action):
        if not self.terminations[self.agent_selection]:
            assert action == 1, self.agent_selection
        super().step(action)
        if self.agents:
            self.tell()


def test_masks_of_the_selected_agent_alone_are_asked_for():
    """Red before: only whom the first reset selected was asked what it may do."""
    env = AECCopies(Selected, 2)
    assert all(spec.masked for spec in env.agents)
    play(actor_of(env))


class Late(AtOnce):
    """Bob joins in the second turn, and is told what he may do."""

    def __init__(self, tells=True, first=True):
        super().__init__("nothing")
        self.tells, self.first = tells, first

    def infos(self):
        told = {"ann": {"action_mask": ONE} if self.first else {}}
        if "bob" in self.agents:
            told["bob"] = {"action_mask": ONE} if self.tells else {}
        return told

    def reset(self, seed=None, options=None):
        seen, _ = super().reset()
        self.agents = ["ann"]
        return {"ann": seen["ann"]}, self.infos()

    def step(self, actions):
        assert not self.tells or actions.get("bob", 1) == 1
        seen, *results, _ = super().step(actions)
        if self.agents:
            self.agents = ["ann", "bob"]
        return seen, *results, self.infos()


def test_an_agent_that_joins_later_is_asked_what_it_may_do():
    """Red before: it was not in the first reset, and played illegal actions."""
    env = ParallelCopies(Late, 2)
    assert all(spec.masked for spec in env.agents)
    play(actor_of(env))
    play(actor_of(ParallelCopies(lambda: Late(tells=False), 2)))  # who tells nothing may do all


def test_a_mask_after_a_reset_without_any_is_refused():
    with refuses(ContractError):
        play(actor_of(ParallelCopies(lambda: Late(first=False))))

    class Silent(Selected):
        def reset(self, seed=None, options=None):
            super().reset()
            self.infos = {name: {} for name in self.agents}

        def step(self, action):
            InTurn.step(self, action)  # ann may do anything in its first turn
            self.tell()

    with refuses(ContractError):
        play(actor_of(AECCopies(Silent)))


class Among(gymnasium.Env):
    """Has its mask among several parts of what is seen; the second action alone is allowed."""

    action_space = spaces.Discrete(2)

    def __init__(self, parts, mask=ONE, space=None):
        self.parts, self.told = parts, mask
        space = spaces.Box(0, 1, mask.shape, np.int8) if space is None else space
        sees = {name: spaces.Box(0, 9, (2,), np.float32) for name in parts}
        self.observation_space = spaces.Dict(sees | {"action_mask": space})

    def see(self):
        return {name: np.full(2, self.turn, np.float32) for name in self.parts} | {
            "action_mask": self.told
        }

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return self.see(), {}

    def step(self, action):
        assert action == 1
        self.turn += 1
        return self.see(), 1.0, self.turn == 5, False, {}


@pytest.mark.parametrize("parts", [("obs",), ("observations",), ("speed", "place"), ()])
def test_a_mask_among_several_parts_is_a_mask(parts):
    """Red before: it was seen as numbers, and illegal actions were chosen."""
    env = GymnasiumEnv(lambda: Among(parts), 2)
    assert env.agents[0].masked
    assert env.agents[0].observation_space.shape == (2 * len(parts) or 2,)
    play(actor_of(env))


def test_a_mask_beside_a_single_picture_leaves_it_a_picture():
    class Picture(Among):
        def __init__(self):
            super().__init__(("obs",))
            self.observation_space.spaces["obs"] = spaces.Box(0, 255, (12, 12, 3), np.uint8)

        def see(self):
            return {"obs": np.full((12, 12, 3), self.turn, np.uint8), "action_mask": self.told}

    env = GymnasiumEnv(Picture)
    assert env.agents[0].observation_space.shape == (12, 12, 3)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    masks = np.zeros((1, 2), bool)
    env.mask(0, masks)
    assert masks.tolist() == [[False, True]]


def test_a_mask_of_another_length_than_there_are_actions_is_refused():
    with refuses(ContractError):
        GymnasiumEnv(lambda: Among(("obs", "more"), np.ones(3, np.int8)))


def test_a_part_that_is_left_out_is_missed():
    class Forgets(Among):
        def see(self):
            seen = super().see()
            if self.turn == 2:
                del seen["action_mask"]
            return seen

    with refuses(ContractError):
        play(actor_of(GymnasiumEnv(lambda: Forgets(("a", "b")))))


class Pushes(AtOnce):
    """Acts by numbers, and sees a mask all the same."""

    def __init__(self):
        super().__init__("nothing")

    def observation_space(self, agent):
        sees = spaces.Box(-9, 9, (5,), np.float32)
        return spaces.Dict({"observation": sees, "action_mask": spaces.Box(0, 1, (2,), np.int8)})

    def action_space(self, agent):
        return spaces.Box(-1, 1, (2,), np.float32)

    def see(self, seen):
        return {name: {"observation": own, "action_mask": ONE} for name, own in seen.items()}

    def reset(self, seed=None, options=None):
        seen, infos = super().reset()
        return self.see(seen), infos

    def step(self, actions):
        seen, *rest = super().step(actions)
        return self.see(seen), *rest


def test_numbers_are_never_masked():
    """Red before: an assertion failed as the copies were made."""
    env = ParallelCopies(Pushes, 2)
    assert not any(spec.masked for spec in env.agents)
    assert env.agents[0].observation_space.shape == (5,)
    play(actor_of(env))
