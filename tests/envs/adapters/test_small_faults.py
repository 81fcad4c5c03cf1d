"""Small faults in what libraries hand over, each told by name."""

import numpy as np
import pytest
from gymnasium import spaces

from envs.adapters.test_tuples import Meeting
from faulty_games import Alone, AtOnce, InTurn, actor_of, play
from refusals import refuses
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.gymnasium import GymnasiumEnv, copies_of
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.adapters.spaces import action_converter, observation_converter
from remuda.envs.checks import BadValueError
from remuda.errors import ContractError


class Strangers(AtOnce):
    """Names one in rewards or `agents` that is not among the possible ones."""

    def __init__(self, where, name="__all__"):
        super().__init__("nothing")
        self.where, self.name = where, name

    def step(self, actions):
        seen, rewards, *rest = super().step(actions)
        if self.where == "rewards":
            rewards[self.name] = 1.0
        elif self.agents:
            self.agents = ["ann", "bob", self.name]
            seen[self.name] = seen["ann"]
        return seen, rewards, *rest


@pytest.mark.parametrize(
    ("where", "said"),
    [("rewards", "its rewards contain '__all__'"), ("agents", "its `agents` contain '__all__'")],
)
def test_a_name_that_is_not_among_the_possible_agents_is_told(where, said):
    """Red before: a KeyError."""
    said = rf"copy 0, turn 1 of the episode: {said}.* `possible_agents` .*ann, bob"
    with refuses(ContractError) as error:
        play(actor_of(ParallelCopies(lambda: Strangers(where))))
    assert "--env.check false" in str(error.value)
    play(actor_of(ParallelCopies(lambda: Strangers(where)), check=False))


class StrangeTurns(InTurn):
    def __init__(self, where):
        super().__init__("nothing")
        self.where = where

    def step(self, action):
        turn = self.turn
        super().step(action)
        if turn == 3:
            if self.where == "rewards":
                self.rewards["eve"] = 1.0
            else:
                self.agent_selection = "eve"
                self.terminations["eve"] = self.truncations["eve"] = False


@pytest.mark.parametrize(
    "where",
    ["rewards", "selection"],
)
def test_so_it_is_in_turn(where):
    with refuses(ContractError):
        play(actor_of(AECCopies(lambda: StrangeTurns(where))))


class Ghost(AtOnce):
    """Pays nothing to one that there is not."""

    def step(self, actions):
        sights, rewards, *rest = super().step(actions)
        return sights, rewards | {"__all__": 0.0}, *rest


def test_nothing_for_nobody_goes_by():
    """Red before: it ended a checked run."""
    play(actor_of(ParallelCopies(lambda: Ghost("nothing"))))


class NoInfos(AtOnce):
    def reset(self, seed=None, options=None):
        return super().reset()[0], None

    def step(self, actions):
        return *super().step(actions)[:-1], None


class NoInfosInTurn(InTurn):
    def reset(self, seed=None, options=None):
        super().reset()
        self.infos = None

    def _was_dead_step(self, action):
        self.agents.remove(self.agent_selection)
        self.agent_selection = self.agents[0] if self.agents else None


class NoInfo(Alone):
    def reset(self, **options):
        return super().reset(**options)[0], None

    def step(self, action):
        return *super().step(action)[:-1], None


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("adapter", "game"),
    [(ParallelCopies, NoInfos), (AECCopies, NoInfosInTurn), (GymnasiumEnv, NoInfo)],
    ids=["at once", "in turn", "alone"],
)
def test_infos_may_be_none(adapter, game, check):
    """Red before: an AttributeError."""
    play(actor_of(adapter(lambda: game("nothing")), check=check))


class TellsNone(Alone):
    def reset(self, **options):
        return super().reset(**options)[0], {"action_mask": None}

    def step(self, action):
        return *super().step(action)[:-1], {"action_mask": None}


@pytest.mark.parametrize("check", [True, False])
def test_a_mask_of_none_from_the_start_allows_everything(check):
    """Red before: masks were missed from then on."""
    play(actor_of(GymnasiumEnv(lambda: TellsNone("nothing")), check=check))

    class OfTwo(NoInfos):
        def infos(self):
            return {name: {"action_mask": None} for name in self.agents}

        def reset(self, seed=None, options=None):
            return super().reset()[0], self.infos()

        def step(self, actions):
            return *super().step(actions)[:-1], self.infos()

    play(actor_of(ParallelCopies(lambda: OfTwo("nothing")), check=check))


class TellsLater(Alone):
    """None after a reset, and that the second action alone is allowed after each step."""

    def reset(self, **options):
        self.acts = 0
        return super().reset(**options)[0], {"action_mask": None}

    def step(self, action):
        assert action == 1 or not self.acts
        self.acts += 1
        return *super().step(action)[:-1], {"action_mask": np.array([0, 1])}


def test_a_mask_after_none_is_obeyed():
    """Red before: unchecked it was ignored, for the whole run."""
    play(actor_of(GymnasiumEnv(lambda: TellsLater("nothing")), check=False))
    with refuses(ContractError):
        play(actor_of(GymnasiumEnv(lambda: TellsLater("nothing"))))


def test_a_value_of_one_of_several_spaces_may_be_an_array():
    """Red before: checked, nothing but tuples and lists were."""
    either = spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)])
    sight = observation_converter(either)
    rows = np.zeros((2, *sight.space.shape), np.float32)
    sight.write((1, 2), rows[0])
    sight.write(np.array([1, 2]), rows[1])
    assert rows[0].tolist() == rows[1].tolist()
    for bad in (np.array([2, 0]), np.array([1, 2, 0]), np.array(1), np.array([1, 3])):
        with pytest.raises(BadValueError):
            sight.write(bad, rows[0])


@pytest.mark.parametrize("space", [spaces.Tuple(()), spaces.Dict({})], ids=str)
def test_a_space_of_nothing_to_do_is_refused_by_its_own_message(space):
    """Red before: the game was blamed for a ValueError of NumPy's."""
    with refuses(ContractError):
        action_converter(space)


def test_a_number_without_a_dimension_is_an_array_of_the_space():
    """Red before: it was a scalar of NumPy's, which Gymnasium's own `contains` warns of."""
    space = spaces.Box(0.1, 0.3, (), np.float64)
    for action in action_converter(space).unpack(np.array([0.0, 0.2, 9.0], np.float32)):
        assert isinstance(action, np.ndarray)
        assert (action.dtype, action.shape) == (np.float64, ())
        assert space.contains(action)


class Shared(Meeting):
    """Tells all agents together what each may do."""

    def __init__(self, mask, sizes=(3, 3)):
        super().__init__()
        self.action_space = spaces.Tuple([spaces.Discrete(n) for n in sizes])
        self.mask = mask

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"action_mask": self.mask}

    def step(self, actions):
        return *super().step(actions)[:-1], {"action_mask": self.mask}


ROW = np.array([1, 0, 1], np.int8)


@pytest.mark.parametrize(
    ("mask", "sizes", "expected"),
    [
        (ROW, (3, 3), [[1, 0, 1], [1, 0, 1]]),
        ((ROW, 1 - ROW), (3, 3), [[1, 0, 1], [0, 1, 0]]),
        (np.stack([ROW, 1 - ROW]), (3, 3), [[1, 0, 1], [0, 1, 0]]),
        ((ROW, None), (3, 3), [[1, 0, 1], [1, 1, 1]]),
        (np.array([1, 0]), (2, 2), [[1, 0], [1, 0]]),  # as long as there are agents
        ((ROW, ROW[:2]), (3, 2), [[1, 0, 1], [1, 0]]),
    ],
    ids=str,
)
def test_one_mask_for_all_is_everybody_s(mask, sizes, expected):
    """Red before: it was dropped without a word, and everything was allowed."""
    env = copies_of(lambda: Shared(mask, sizes), 1)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    for agent, row in enumerate(expected):
        out = np.zeros((1, len(row)), bool)
        env.mask(agent, out)
        assert out[0].astype(int).tolist() == row


@pytest.mark.parametrize("mask", [ROW, np.ones(4)])
def test_one_that_does_not_fit_is_refused(mask):
    env = copies_of(lambda: Shared(mask, (3, 2)), 1)
    with refuses(ContractError):
        env.reset(np.zeros(1, np.int64), np.ones(1, bool))
