"""Who is told that `--env.check false` takes a value can train on it; who is not, is told whose."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from gymnasium import spaces

from faulty_games import SEES, Alone, AtOnce, InTurn, actor_of, play
from refusals import refuses
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.gymnasium import GymnasiumEnv
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.adapters.wrappers import Wrapping
from remuda.envs.checks import BadValueError, UntakeableError, flag, number, short
from remuda.errors import ContractError

PICTURE = spaces.Box(0, 255, (2,), np.uint8)
PARTS = spaces.Dict({"hp": spaces.Discrete(3), "x": spaces.Box(-1, 1, (1,))})


class Odd(Alone):
    """Hands over one odd value in its fourth turn: as observation, reward, end, or mask."""

    def __init__(self, what, value, sees=SEES, good=None):
        super().__init__("nothing")
        self.observation_space, self.what, self.value = sees, what, value
        self.good = np.zeros(sees.shape, sees.dtype) if good is None else good
        self.info = {"action_mask": np.ones(2, np.int8)} if what == "mask" else {}

    def reset(self, **options):
        super().reset(**options)
        return self.good, self.info

    def step(self, action):
        _, reward, ends, cut, _ = super().step(action)
        found = {"seen": self.good, "reward": reward, "end": ends, "mask": self.info}
        if self.turn == 4:
            found[self.what] = {"action_mask": self.value} if self.what == "mask" else self.value
        return found["seen"], found["reward"], found["end"], cut, found["mask"]


@pytest.mark.parametrize(
    ("what", "value", "more"),
    [
        ("seen", np.zeros(3, np.float32), {}),
        ("seen", np.zeros(1, np.float32), {}),  # NumPy stretches it
        ("seen", "abc", {}),
        ("seen", None, {}),
        ("seen", None, {"sees": PICTURE}),
        ("seen", [300, 0], {"sees": PICTURE}),
        ("seen", np.array([300, 0]), {"sees": PICTURE}),
        ("seen", {"hp": 0}, {"sees": PARTS, "good": {"hp": 0, "x": [0]}}),
        ("seen", {"hp": 7, "x": [0]}, {"sees": PARTS, "good": {"hp": 0, "x": [0]}}),
        ("seen", {"hp": -1, "x": [0]}, {"sees": PARTS, "good": {"hp": 0, "x": [0]}}),
        ("mask", np.ones(3, np.int8), {}),
        ("mask", np.ones(1, np.int8), {}),
        ("mask", [1, 2], {}),
        ("mask", [[1], [1, 0]], {}),
        ("mask", {"a": 1}, {}),
        ("mask", None, {}),
        ("reward", "1", {}),
        ("reward", [1.0, 2.0], {}),
        ("reward", None, {}),
        ("reward", 10**400, {}),
        pytest.param("reward", 10**5000, {}, id="huge"),
        ("end", None, {}),
        ("end", 2, {}),
        ("end", [True, False], {}),
        ("end", np.array([True, False]), {}),
    ],
)
def test_a_message_that_names_the_way_out_is_right(what, value, more):
    """Red before: many of them ended unchecked in an error of NumPy's that named no agent."""
    with refuses(ContractError) as error:
        play(actor_of(GymnasiumEnv(lambda: Odd(what, value, **more))))
    unchecked = actor_of(GymnasiumEnv(lambda: Odd(what, value, **more)), check=False)
    if "--env.check false" in str(error.value):
        play(unchecked)
    else:
        with refuses(ContractError) as again:
            play(unchecked)
        assert "--env.check" not in str(again.value)


class OddAtOnce(AtOnce):
    """Bob's reward or end is odd in his fourth turn."""

    def __init__(self, what, value):
        super().__init__("nothing")
        self.what, self.value = what, value

    def step(self, actions):
        seen, rewards, ends, *rest = super().step(actions)
        if self.turn == 4:
            {"reward": rewards, "end": ends}[self.what]["bob"] = self.value
        return seen, rewards, ends, *rest


class OddInTurn(InTurn):
    def __init__(self, what, value):
        super().__init__("nothing")
        self.value = value

    def step(self, action):
        turn = self.turn
        super().step(action)
        if turn == 4:
            self.rewards["bob"] = self.value


@pytest.mark.parametrize(
    ("adapter", "game"),
    [(ParallelCopies, OddAtOnce), (AECCopies, OddInTurn)],
    ids=["at once", "aec"],
)
@pytest.mark.parametrize("value", [np.array([1.0, 2.0]), "1", 10**400, None])
def test_so_is_one_of_several_agents(adapter, game, value):
    with refuses(ContractError) as error:
        play(actor_of(adapter(lambda: game("reward", value))))
    unchecked = actor_of(adapter(lambda: game("reward", value)), check=False)
    if "--env.check false" in str(error.value):
        play(unchecked)
    else:
        with refuses(ContractError):
            play(unchecked)


def test_an_end_without_truth_is_told_unchecked_too():
    made = ParallelCopies(lambda: OddAtOnce("end", np.array([True, False])))
    with refuses(ContractError):
        play(actor_of(made, check=False))


NUMBERS = [
    torch.tensor(1.0),
    torch.tensor([1.0]),
    torch.tensor(1.0, requires_grad=True).detach(),
    Fraction(1),
    Decimal(1),
    np.array([1.0]),
    np.float32(1),
    np.array(1),
    np.array([1.0], object),
    [1.0],
    True,
    1,
]


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
@pytest.mark.parametrize("check", [True, False])
def test_a_number_is_one_in_any_guise(value, check):
    """Red before: torch's and fractions were refused, and an array of one was a crash unchecked."""
    assert number(value) == 1.0
    for env in (
        GymnasiumEnv(lambda: Odd("reward", value)),
        ParallelCopies(lambda: OddAtOnce("reward", value)),
        AECCopies(lambda: OddInTurn("reward", value)),
    ):
        play(actor_of(env, check=check))


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x",
        [1, 2],
        [],
        object(),
        1j,
        Decimal("sNaN"),
        10**400,
        pytest.param(10**5000, id="huge"),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_what_is_no_number_is_told(value, check):
    """Red before: an int beyond any float was an OverflowError, and sNaN a ValueError."""
    with refuses(UntakeableError):
        number(value, check)


class Weighs:
    def __float__(self):
        return 1.5


@pytest.mark.parametrize("value", ["1.5", Weighs()])
def test_what_floats_of_python_take_is_taken_unchecked(value):
    """Red before: it was refused there too, though it had trained."""
    with refuses(BadValueError) as error:
        number(value)
    assert not isinstance(error.value, UntakeableError)
    assert number(value, check=False) == 1.5
    for env in (
        GymnasiumEnv(lambda: Odd("reward", value)),
        ParallelCopies(lambda: OddAtOnce("reward", value)),
        AECCopies(lambda: OddInTurn("reward", value)),
    ):
        play(actor_of(env, check=False))


def test_an_end_is_told_by_its_truth():
    assert flag("terminated", "x", check=False) is True
    assert flag("terminated", None, check=False) is False
    with refuses(UntakeableError):
        flag("terminated", np.zeros(2), check=False)
    with refuses(BadValueError):
        flag("terminated", "x")


def test_what_cannot_be_written_down_is_named_by_its_type():
    class Shy:
        def __repr__(self):
            raise RuntimeError

    assert short(Shy()) == "a Shy"
    assert short(10**5000) == "a int"


@pytest.mark.parametrize("value", [10**400, pytest.param(10**5000, id="huge")])
def test_a_metric_beyond_any_float_is_told(value):
    """Red before: an OverflowError."""

    class Tells(Alone):
        def step(self, action):
            *rest, _ = super().step(action)
            return *rest, {"hits": value}

    wrapping = Wrapping(metrics={"hits": "sum"})
    with refuses(ContractError):
        play(actor_of(GymnasiumEnv(lambda: Tells("nothing"), 1, wrapping)))
    play(actor_of(GymnasiumEnv(lambda: Tells("nothing"), 1, wrapping), check=False))
