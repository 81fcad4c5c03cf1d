"""Descriptions of environments survive JSON, and are refused where they do not fit."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from refusals import refuses
from remuda.envs.description import EnvSpec
from remuda.envs.observation_parts import Part, PartsBox
from remuda.envs.plain_spaces import NotPlainError, from_plain, ordinary, to_plain
from remuda.envs.registry import GAMES
from remuda.errors import RunDirectoryError

BOUNDS = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
SPACES = [
    spaces.Box(0, 255, (84, 84, 4), np.uint8),
    spaces.Box(BOUNDS, BOUNDS + np.float32(0.1)),
    spaces.Box(-np.inf, np.inf, (3,), np.float64),
    spaces.Box(np.array([-np.inf, 0, 1], np.float32), np.array([0, np.inf, 1], np.float32)),
    spaces.Box(-5, 2**40, (2,), np.int64),
    spaces.Box(0, 1, (0,), np.float32),
    spaces.Discrete(4),
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([2, 3, 4]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, -1]]),
    spaces.MultiBinary(5),
    spaces.MultiBinary((2, 3)),
    spaces.Text(7, min_length=2, charset="abc "),
    spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))]),
    spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Dict({"x": spaces.MultiBinary(2)}))]),
    spaces.OneOf([spaces.Discrete(2), spaces.Discrete(5)]),
    PartsBox(np.zeros(6, np.float32), np.ones(6, np.float32), (Part("a.b", 0, (2, 3), True),)),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_space_is_the_same_after_json(space):
    found = from_plain(json.loads(json.dumps(to_plain(space))))
    assert type(found) is type(space)
    assert found == space
    assert found.dtype == space.dtype
    if isinstance(space, spaces.Dict):
        assert list(found.spaces) == list(space.spaces), "the order decides how it is flattened"


def test_a_subclass_of_a_space_is_not_plain():
    class Even(spaces.Discrete):
        def contains(self, x):
            return super().contains(x) and x % 2 == 0

    with refuses(NotPlainError):
        to_plain(spaces.Tuple([Even(4)]))


def test_long_doubles_are_not_plain():
    with refuses(NotPlainError):
        to_plain(spaces.Box(0, 1, (2,), np.longdouble))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Sphere"},
        {"low": {"dtype": "float32", "shape": [2], "runs": [[0.0, 3]]}},
        {"low": {"dtype": "float32", "shape": [2], "runs": [[0.0, -2]]}},
        {"low": {"dtype": "float32", "shape": [2**40], "runs": [[0.0, 2**40]]}},
        {"low": {"dtype": "nothing", "shape": [2], "runs": [[0.0, 2]]}},
        {"low": {"dtype": "float32", "shape": [2], "runs": [["zero", 2]]}},
        {"high": None},
    ],
)
def test_damaged_spaces_are_refused(change):
    with refuses(ValueError):
        from_plain(to_plain(spaces.Box(0, 1, (2,))) | change)


@pytest.mark.parametrize("game", sorted(GAMES))
def test_a_games_description_is_the_same_after_json(game):
    spec = EnvSpec.of(game, {})
    found = EnvSpec.from_plain(json.loads(json.dumps(spec.to_plain())), game, {})
    assert found == spec
    assert found.make(2).num_envs == 2


def test_a_description_of_other_options_is_not_used():
    plain = EnvSpec.of("treasure_hunt", {}).to_plain()
    assert EnvSpec.from_plain(plain, "treasure_hunt", {"size": 9}) is None
    assert EnvSpec.from_plain(plain, "tag", {}) is None


@pytest.mark.parametrize(
    "damage",
    [
        {"agents": [{}]},
        {"turn_groups": [[0], [0]]},
        {"spaces": []},
        {"spaces": [1]},
        {"turn_groups": [[float("inf")]]},
        {"agents": [], "turn_groups": []},
        {"episode_metrics": None},
    ],
)
def test_damaged_descriptions_are_refused(damage):
    plain = EnvSpec.of("tag", {}).to_plain() | damage
    with refuses(ValueError):
        EnvSpec.from_plain(plain, "tag", {})


def test_an_environment_that_has_changed_is_refused():
    spec = EnvSpec.of("treasure_hunt", {})
    first, *others = spec.agents
    for change in (
        {"name": "bob"},
        {"observation_space": spaces.Box(0, 1, (3,))},
        {"action_space": spaces.Discrete(99)},
        {"masked": True},
    ):
        other = replace(spec, agents=(replace(first, **change), *others))
        with refuses(RunDirectoryError):
            other.make(1)


class UsersBox(spaces.Box):
    """A class that only this module has, with something in it that cannot be pickled."""

    def __init__(self, *args):
        super().__init__(*args)
        self.secret = lambda: None


@pytest.mark.parametrize("key", [np.int64(3), (0, 1), b"a", frozenset({1}), None, 0.5])
def test_keys_that_json_changes_are_not_plain(key):
    with refuses(NotPlainError):
        to_plain(spaces.Dict([(key, spaces.Discrete(2)), ("a", spaces.Discrete(2))]))


def test_numpys_numbers_in_a_declaration_are_plain():
    spec = EnvSpec.of("tag", {})
    env = spec.make(1)
    env.turn_groups = tuple(tuple(np.array(group)) for group in env.turn_groups)
    env.agents = tuple(replace(agent, masked=np.bool_(False)) for agent in env.agents)
    found = EnvSpec.of_env("tag", {}, env)
    assert found == spec
    assert EnvSpec.from_plain(json.loads(json.dumps(found.to_plain())), "tag", {}) == spec


def test_what_crosses_to_another_process_has_no_classes_of_the_users():
    spec = EnvSpec.of("tag", {})
    first, *others = spec.agents
    low = first.observation_space.low
    own = UsersBox(low, first.observation_space.high, low.shape, low.dtype.type)
    theirs = replace(first, observation_space=own, env_observation_space=own)
    found = pickle.loads(pickle.dumps(replace(spec, agents=(theirs, *others))))
    assert type(found.agents[0].observation_space) is spaces.Box
    assert found.agents[0].observation_space == own
    assert found.agents[0].env_observation_space is None
    assert found.make(1).num_envs == 1


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_an_ordinary_space_stays_as_it_is(space):
    found = ordinary(space)
    assert found == space
    assert type(found) is type(space)


def test_an_environment_whose_parts_have_changed_is_refused():
    spec = EnvSpec.of("tag", {})
    first, *others = spec.agents
    box = first.observation_space
    size = int(np.prod(box.shape))
    low, high = box.low.astype(np.float32).ravel(), box.high.astype(np.float32).ravel()
    cut = PartsBox(low, high, (Part("a", 0, (1,), False), Part("b", 1, (size - 1,), False)))
    flat = PartsBox(low, high, (Part("a", 0, (size - 1,), False), Part("b", size - 1, (1,), False)))
    env = spec.make(1)
    env.agents = (replace(first, observation_space=flat), *others)
    same = replace(spec, agents=env.agents)
    other = replace(spec, agents=(replace(first, observation_space=cut), *others))
    assert same.difference(env) == ""
    assert "observed" in other.difference(env)
    teamed = replace(spec, agents=(replace(env.agents[0], team="red"), *others))
    assert "was in team 'red'" in teamed.difference(env)
