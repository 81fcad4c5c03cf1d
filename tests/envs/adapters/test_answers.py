"""What `reset` and `step` answer where it is not what their library's do."""

import warnings
from importlib import import_module

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs.adapters.test_user_envs import Both
from envs.adapters.test_user_envs import InTurn as OwnInTurn
from faulty_games import AtOnce, InTurn, actor_of, play
from refusals import refuses
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.detect import CHECKERS
from remuda.envs.adapters.gymnasium import GymnasiumEnv, copies_of
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.contract import check_env
from remuda.envs.games.treasure_hunt import TreasureHunt
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
            "copy 0, turn 1 .*step of an OldStep returned 4 values, not 5 values.*`done`",
        ),
        (OneValue, "copy 0, turn 1 .*step of an OneValue returned array.*, not 5 values"),
        (OldReset, "reset of an OldReset returned array.*, not 2 values: observation, info"),
        (LaterOldReset, "copy 0, turn 0 .*reset of a LaterOldReset returned 3 values"),
        (NoSeed, "reset of a NoSeed cannot be called with a seed .*reset.self, seed=None"),
        (NoSpace, "a NoSpace has no observation_space"),
    ],
)
def test_a_gymnasium_environment_is_told_what_it_answers(kind, said):
    """Red before: `not enough values to unpack`, with a line of Remuda's own."""
    with refuses(ContractError) as error:
        play(actor_of(GymnasiumEnv(kind)))
    assert "--env.check false" not in str(error.value)
    with refuses(ContractError):
        play(actor_of(GymnasiumEnv(kind), check=False))


@pytest.mark.parametrize("answer", ["ab", b"ab", {"a": 1, "b": 2}, {1, 2}, SEEN, None, 3], ids=str)
def test_text_mappings_sets_and_numbers_are_one_value(answer):
    class Odd(Sound):
        def reset(self, *, seed=None, options=None):
            return answer

    with refuses(ContractError):
        GymnasiumEnv(Odd)


class Two(Sound):
    """Shared by two agents."""

    observation_space = spaces.Tuple([Sound.observation_space] * 2)
    action_space = spaces.Tuple([spaces.Discrete(2)] * 2)
    n_agents = 2

    def reset(self, *, seed=None, options=None):
        return (SEEN, SEEN), {}

    def step(self, action):
        return (SEEN, SEEN), [0.0, 0.0], False, False, {}


class OldTwo(Two):
    def step(self, action):
        return super().step(action)[:4]


class ThreeOfTwo(Two):
    def reset(self, *, seed=None, options=None):
        return (SEEN, SEEN), {}, None


class SeedlessTwo(Two):
    def reset(self):
        return (SEEN, SEEN), {}


@pytest.mark.parametrize(
    "kind",
    [
        OldTwo,
        ThreeOfTwo,
        SeedlessTwo,
    ],
)
def test_so_is_one_of_tuples(kind):
    """Red before: `not enough values to unpack`, and a TypeError for which Remuda was blamed."""
    with refuses(ContractError):
        play(actor_of(copies_of(kind, 1)))


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
    with refuses(ContractError):
        play(actor_of(ParallelCopies(lambda: FewDicts("nothing"))))
    for adapter, kind in ((ParallelCopies, SeedlessTogether), (AECCopies, SeedlessInTurn)):
        with refuses(ContractError):
            adapter(lambda kind=kind: kind("nothing"))


class Raising(Sound):
    def reset(self, *, seed=None, options=None):
        raise TypeError("of its own")


def test_what_the_environment_raises_itself_goes_its_way():
    with refuses(TypeError):
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


class Unpaid(Sound):
    def step(self, action):
        return SEEN, None, False, False, {}


class Masked(Sound):
    """Its mask is nothing but wrong."""

    mask = (1, 7)

    def reset(self, *, seed=None, options=None):
        return SEEN, {"action_mask": np.array(self.mask)}

    def step(self, action):
        return SEEN, 0.0, False, False, {"action_mask": np.array(self.mask)}


class Stuck(Masked):
    mask = (0, 0)


class Once(Masked):
    mask = (1, 1)

    def step(self, action):
        return SEEN, 0.0, False, False, {}


class UnpaidTwo(Two):
    def step(self, action):
        return (SEEN, SEEN), [0.0, None], False, False, {}


@pytest.mark.parametrize(
    "make",
    [
        lambda: GymnasiumEnv(Unpaid),
        lambda: GymnasiumEnv(Masked),
        lambda: GymnasiumEnv(Stuck),
        lambda: GymnasiumEnv(Once),
        lambda: copies_of(UnpaidTwo, 1),
    ],
    ids=["a reward", "a mask", "a mask of nothing", "no mask", "a tuple"],
)
def test_a_checker_is_named_where_it_looks(make):
    """Red before: those of other libraries, which look at no mask and know no tuples of agents."""
    with refuses(ContractError) as error:
        play(actor_of(make()))
    assert "whole contract" not in str(error.value)


def test_the_suite_closes_what_it_only_looks_at():
    """Red before: the copies that it made to find out their kind were left open."""
    with pytest.raises(UsageError):
        check_env(lambda num_envs: Closing())
    assert Closing.closed == 1


class Closing(Sound):
    closed = 0

    def close(self):
        Closing.closed += 1


@pytest.mark.parametrize("factory", [Sound, lambda num_envs: AtOnce("nothing")])
def test_the_suite_refuses_environments_of_other_libraries(factory):
    """Red before: a TypeError of the environment's own `reset`."""
    with refuses(UsageError):
        check_env(factory)


class InfoOf(Sound):
    def __init__(self, first, later):
        self.first, self.later = first, later

    def reset(self, *, seed=None, options=None):
        return SEEN, self.first

    def step(self, action):
        return SEEN, 0.0, False, False, self.later


@pytest.mark.parametrize("info", [["a"], np.zeros(2), 1.0], ids=["list", "array", "number"])
@pytest.mark.parametrize("check", [True, False])
def test_info_that_is_no_mapping_is_told_as_the_games(info, check):
    """Red before: an AttributeError, or a ValueError of an array, in lines of this library."""
    with refuses(ContractError):
        GymnasiumEnv(lambda: InfoOf(info, {}), 1)
    env = GymnasiumEnv(lambda: InfoOf(None, info), 1)
    env.check = check
    env.reset(np.zeros(1, np.int64), np.ones(1, np.bool_))
    env.begin_turn()
    with refuses(ContractError):
        env.act(0, np.zeros(1, np.int64))


@pytest.mark.parametrize("info", [[], (), np.zeros(0)], ids=["list", "tuple", "array"])
def test_an_empty_info_is_no_info(info):
    class Empty(Both):
        def reset(self, seed=None, options=None):
            return super().reset(seed, options)[0], info

        def step(self, actions):
            return *super().step(actions)[:4], dict.fromkeys(self.possible_agents, info)

    for env in GymnasiumEnv(lambda: InfoOf(info, info), 1), ParallelCopies(Empty):
        env.reset(np.zeros(1, np.int64), np.ones(1, np.bool_))
        env.begin_turn()
        for agent in range(env.num_agents):
            env.act(agent, np.zeros(1, np.int64))
        env.end_turn()


@pytest.mark.parametrize("name", ["observation", "reward", "terminated", "truncated"])
def test_what_is_told_in_a_list_and_not_by_agent_is_told_by_its_name(name):
    """Red before: an AttributeError, or "the reward is missing"."""
    place = ["observation", "reward", "terminated", "truncated", "info"].index(name)

    class InAList(Both):
        def step(self, actions):
            answer = list(super().step(actions))
            answer[place] = list(answer[place].values())
            return tuple(answer)

    env = ParallelCopies(InAList)
    env.reset(np.zeros(1, np.int64), np.ones(1, np.bool_))
    env.begin_turn()
    for agent in range(env.num_agents):
        env.act(agent, np.zeros(1, np.int64))
    with refuses(ContractError):
        env.end_turn()


def test_a_reset_that_tells_in_a_list_is_told_by_its_name():
    class SeesInAList(Both):
        def reset(self, seed=None, options=None):
            observations, infos = super().reset(seed, options)
            return list(observations.values()), infos

    env = ParallelCopies(SeesInAList)
    with refuses(ContractError):
        env.reset(np.zeros(1, np.int64), np.ones(1, np.bool_))


OF_ONE = [["x"], "x", np.zeros(2)]


@pytest.mark.parametrize("of_one", OF_ONE, ids=["list", "text", "array"])
@pytest.mark.parametrize("check", [True, False])
def test_info_of_one_agent_that_is_no_mapping_is_told_with_its_name(of_one, check):
    """Red before: an AttributeError or a ValueError in lines of this library."""

    class First(Both):
        def reset(self, seed=None, options=None):
            return super().reset(seed, options)[0], {"agent_0": {}, "agent_1": of_one}

    class Later(Both):
        def step(self, actions):
            return *super().step(actions)[:4], {"agent_0": {}, "agent_1": of_one}

    with refuses(ContractError):
        ParallelCopies(First)
    env = ParallelCopies(Later)
    env.check = check
    env.reset(np.zeros(1, np.int64), np.ones(1, np.bool_))
    env.begin_turn()
    for agent in range(2):
        env.act(agent, np.zeros(1, np.int64))
    with refuses(ContractError):
        env.end_turn()


@pytest.mark.parametrize("infos", [["x"], {"ann": ["x"]}, {"ann": np.zeros(2)}], ids=repr)
def test_infos_of_an_aec_environment_that_are_no_mappings_are_told(infos):
    """Red before: an AttributeError or a ValueError in lines of this library."""

    class Told(OwnInTurn):
        def reset(self, seed=None, options=None):
            super().reset(seed, options)
            self.infos = infos

    with refuses(ContractError):
        AECCopies(Told)


class ByAgent(Two):
    def infos(self):
        return [{"action_mask": [1, 0]}, {"action_mask": [0, 1]}]

    def reset(self, *, seed=None, options=None):
        return (SEEN, SEEN), self.infos()

    def step(self, action):
        return (SEEN, SEEN), [0.0, 1.0], False, False, tuple(self.infos())


def test_tuples_may_tell_info_by_agent():
    """Red before: refused, as no mapping."""
    env = copies_of(ByAgent, 1)
    env.reset(np.zeros(1, np.int64), np.ones(1, np.bool_))
    env.begin_turn()
    for _ in range(2):
        allowed = np.zeros((2, 1, 2), bool)
        for agent in range(2):
            env.mask(agent, allowed[agent])
            env.act(agent, np.zeros(1, np.int64))
        assert allowed[:, 0].astype(int).tolist() == [[1, 0], [0, 1]]
        env.end_turn()
