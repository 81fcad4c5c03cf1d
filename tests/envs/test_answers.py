"""What `reset` and `step` answer where it is not what their library's do."""

import warnings
from importlib import import_module

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from faulty_games import AtOnce, InTurn, actor_of, play
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.gymnasium import GymnasiumEnv
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.contract import check_env
from remuda.envs.kinds import CHECKERS
from remuda.envs.treasure_hunt import TreasureHunt
from remuda.errors import ContractError, UsageError

SEEN = np.zeros(2, np.float32)


class Sound(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return SEEN, {}

    def step(self, action):
        return SEEN, 0.0, False, False, {}


class OldStep(Sound):
    def step(self, action):
        return SEEN, 0.0, False, {}


class OneValue(Sound):
    def step(self, action):
        return SEEN


class OldReset(Sound):
    def reset(self, *, seed=None, options=None):
        return SEEN


class LaterOldReset(Sound):
    begun = False

    def reset(self, *, seed=None, options=None):
        if self.begun:
            return SEEN, {}, None
        self.begun = True
        return SEEN, {}


class NoSeed(Sound):
    def reset(self):
        return SEEN, {}


class NoSpace(Sound):
    observation_space = property()

    def __getattribute__(self, name):
        if name == "observation_space":
            raise AttributeError
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            OldStep,
            "copy 0, turn 1 .*step of an OldStep returned 4 values, and not 5 values.*`done`",
        ),
        (OneValue, "copy 0, turn 1 .*step of an OneValue returned array.*, and not 5 values"),
        (OldReset, "reset of an OldReset returned array.*, and not 2 values: observation, info"),
        (LaterOldReset, "copy 0, turn 0 .*reset of a LaterOldReset returned 3 values"),
        (NoSeed, "reset of a NoSeed cannot be called with a seed .*reset.self, seed=None"),
        (NoSpace, "a NoSpace has no observation_space"),
    ],
)
def test_a_gymnasium_environment_is_told_what_it_answers(kind, said):
    """Red before: `not enough values to unpack`, with a line of Remuda's own."""
    with pytest.raises(ContractError, match=said) as error:
        play(actor_of(GymnasiumEnv(kind)))
    assert "--env.check false" not in str(error.value)
    with pytest.raises(ContractError, match=said):
        play(actor_of(GymnasiumEnv(kind), check=False))


class FewDicts(AtOnce):
    def step(self, actions):
        return super().step(actions)[:4]


class SeedlessTogether(AtOnce):
    def reset(self):
        return super().reset(seed=0)


class SeedlessInTurn(InTurn):
    def reset(self):
        super().reset(seed=0)


def test_an_environment_of_pettingzoo_is_told_what_it_answers():
    with pytest.raises(ContractError, match=r"turn 1 .*step of a FewDicts returned 4 values"):
        play(actor_of(ParallelCopies(lambda: FewDicts("nothing"))))
    for adapter, kind in ((ParallelCopies, SeedlessTogether), (AECCopies, SeedlessInTurn)):
        with pytest.raises(ContractError, match="cannot be called with a seed"):
            adapter(lambda kind=kind: kind("nothing"))


class Raising(Sound):
    def reset(self, *, seed=None, options=None):
        raise TypeError("of its own")


def test_what_the_environment_raises_itself_goes_its_way():
    with pytest.raises(TypeError, match="of its own"):
        GymnasiumEnv(Raising)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: GymnasiumEnv(Sound), "gymnasium"),
        (lambda: ParallelCopies(lambda: AtOnce("nothing")), "parallel"),
        (lambda: AECCopies(lambda: InTurn("nothing")), "aec"),
    ],
)
def test_who_breaks_the_contract_is_told_what_tests_it(make, kind):
    env = make()
    assert env.checker == CHECKERS[kind]
    module, _, name = env.checker.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of PettingZoo, about itself
        assert callable(getattr(import_module(module), name))
    assert TreasureHunt(1).checker == "remuda.envs.contract.check_env"


@pytest.mark.parametrize("factory", [Sound, lambda num_envs: AtOnce("nothing")])
def test_the_suite_refuses_environments_of_other_libraries(factory):
    """Red before: a TypeError of the environment's own `reset`."""
    with pytest.raises(UsageError, match="check_env tests a VectorEnv"):
        check_env(factory)
