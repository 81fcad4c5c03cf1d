"""Gymnasium environments as `VectorEnv`."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from foreign_games import spots
from refusals import refuses
from remuda.envs.adapters.gymnasium import GymnasiumEnv, make_gymnasium
from remuda.envs.contract import VectorEnvContract
from remuda.envs.registry import make_env
from remuda.envs.scripted import sample_actions
from remuda.errors import ConfigError, ContractError


class Corridor(gymnasium.Env):
    """Walk to the right end of five places; what is seen is no Box; the left end is forbidden."""

    observation_space = spaces.Dict({"at": spaces.Discrete(5), "speed": spaces.Box(-1, 1, (1,))})
    action_space = spaces.Discrete(3)

    def __init__(self, limit=6):
        self.limit = limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = int(self.np_random.integers(0, 3)), 0
        return self._see(), self._info()

    def step(self, action):
        assert self._info()["action_mask"][action]
        self.at += int(action) - 1
        self.steps += 1
        done = self.at == 4
        return self._see(), float(done), done, self.steps >= self.limit, self._info()

    def _see(self):
        return {"at": self.at, "speed": np.array([self.steps / 10], np.float32)}

    def _info(self):
        return {"action_mask": np.array([self.at > 0, True, True])}


class TestCartPole(VectorEnvContract):
    def make(self, num_envs):
        return make_env("gymnasium:CartPole-v1", num_envs)


class TestPendulum(VectorEnvContract):
    def make(self, num_envs):
        return make_env("gymnasium:Pendulum-v1", num_envs)


class TestPictures(VectorEnvContract):
    def make(self, num_envs):
        return spots(num_envs)


class TestForbiddenMoves(VectorEnvContract):
    def make(self, num_envs):
        return GymnasiumEnv(Corridor, num_envs)


class Called(Corridor):
    """One that takes an option of the name that its maker has for it."""

    def __init__(self, name="nobody", limit=6):
        super().__init__(limit)
        if name != "corridor":
            raise ValueError(f"it is {name}")


def test_an_option_may_be_called_name():
    """Red before: `multiple values for argument 'name'`."""
    gymnasium.register("Called-v0", Called)
    try:
        make_env("gymnasium:Called-v0", 2, name="corridor").close()
    finally:
        del gymnasium.registry["Called-v0"]


def test_actions_are_handed_on_as_the_library_takes_them():
    class Odd(Corridor):
        """Acts in a space of its own, and notes what it was given."""

        def __init__(self, space):
            super().__init__()
            self.action_space, self.given = space, []

        def _info(self):
            return {}

        def step(self, action):
            assert self.action_space.contains(action), (action, self.action_space)
            self.given.append(np.asarray(action).tolist())
            return self._see(), 0.0, False, False, self._info()

    for space, ours, theirs in (
        (spaces.Discrete(3, start=4), [0, 2], [4, 6]),
        (spaces.MultiDiscrete([2, 3]), [[1, 2], [0, 1]], [[1, 2], [0, 1]]),
        (spaces.MultiDiscrete([2, 3], start=[5, 1]), [[1, 2], [0, 1]], [[6, 3], [5, 2]]),
        (spaces.MultiBinary(3), [[1, 0, 1], [0, 0, 1]], [[1, 0, 1], [0, 0, 1]]),
        (spaces.Box(-1, 1, (2,)), [[0.5, -1.0], [0.0, 1.0]], [[0.5, -1.0], [0.0, 1.0]]),
    ):
        env = GymnasiumEnv(lambda s=space: Odd(s), 2)
        env.reset(np.array([1, 2]), np.ones(2, bool))
        env.act(0, np.array(ours, env.agents[0].action_space.dtype))
        assert [copy.given[0] for copy in env.copies] == theirs
        chosen = sample_actions(env.agents[0].action_space, 5, np.random.default_rng(0))
        assert all(env.agents[0].action_space.contains(action) for action in chosen)


def test_the_last_observation_is_kept_and_a_win_at_the_limit_is_a_win():
    env = GymnasiumEnv(lambda: Corridor(limit=4), 3)
    seen, mask = np.zeros((3, 6), np.float32), np.zeros((3, 3), bool)
    env.reset(np.array([1, 2, 3]), np.ones(3, bool))
    start = [copy.at for copy in env.copies]
    ended = np.zeros(3, bool)
    for turn in range(4):
        env.begin_turn()
        env.observe(0, seen)
        env.mask(0, mask)
        assert (mask[:, 0] == (seen[:, 0] == 0)).all()
        env.act(0, np.full(3, 2))
        result = env.end_turn()
        env.observe(0, seen)
        for i, first in enumerate(start):
            steps = min(turn + 1, 4 - first)
            assert seen[i, :5].argmax() == first + steps
            assert result.terminated[i, 0] == (first + turn + 1 == 4)
            assert not result.truncated[i, 0]  # it wins before, or at, its limit
            ended[i] |= result.terminated[i, 0]
            assert env.active[i, 0] == (not ended[i])
    env.reset(np.array([1, 2, 3]), np.array([True, False, False]))
    env.begin_turn()
    env.act(0, np.ones(3, np.int64))
    env.end_turn()
    assert env.active[:, 0].tolist() == [True, False, False]


def test_truncation_is_told_apart():
    env = GymnasiumEnv(lambda: Corridor(limit=2), 1)
    env.reset(np.array([1]), np.ones(1, bool))
    for _ in range(2):
        env.begin_turn()
        env.act(0, np.ones(1, np.int64))
        result = env.end_turn()
    assert result.truncated[0, 0]
    assert not result.terminated[0, 0]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Nope-v0", {}),
        ("CartPole-v1", {"nope": 1}),
    ],
)
def test_what_gymnasium_refuses_is_told_in_one_line(name, options):
    with refuses(ConfigError):
        make_gymnasium(name, 1, **options)


def test_what_cannot_be_numbers_is_refused():
    class Words(Corridor):
        observation_space = spaces.Sequence(spaces.Discrete(3))

        def reset(self, *, seed=None, options=None):
            return (), {}

    with refuses(ContractError):
        GymnasiumEnv(Words)


def test_a_game_without_a_picture_says_so():
    with pytest.raises(NotImplementedError):
        GymnasiumEnv(Corridor).render()


class FewRenderers(Corridor):
    """A game whose machine has room for one renderer at a time."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    open_now = 0

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode
        if render_mode:
            if FewRenderers.open_now:
                raise RuntimeError("no more renderers")
            FewRenderers.open_now += 1

    def close(self):
        FewRenderers.open_now -= bool(self.render_mode)


def test_many_copies_are_made_though_few_can_draw():
    gymnasium.register("FewRenderers-v0", FewRenderers)
    for count in (5, 1):
        env = make_env("gymnasium:FewRenderers-v0", count)
        assert env.num_envs == count
        env.close()


class DrawsText(Corridor):
    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012
    made: ClassVar = []

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode
        self.made.append(render_mode)


class DrawsBoth(DrawsText):
    metadata = {"render_modes": ["ansi", "rgb_array"]}  # noqa: RUF012


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("kind", "kwargs", "num_envs", "made"),
    [
        (DrawsBoth, {}, 1, [None, "rgb_array", "rgb_array"]),
        (DrawsBoth, {}, 2, [None, None, None]),
        (DrawsBoth, {"render_mode": "ansi"}, 1, ["ansi", "ansi"]),
        (DrawsText, {}, 1, [None, None]),
    ],
    ids=["drawable", "several", "registered", "text_only"],
)
def test_only_a_drawable_copy_is_made_to_draw(kind, kwargs, num_envs, made):
    """Red before: an unsupported mode was tried, with a warning, and a registered one replaced."""
    gymnasium.register("Drawn-v0", kind, kwargs=kwargs)
    DrawsText.made.clear()
    try:
        make_gymnasium("Drawn-v0", num_envs).close()
    finally:
        del gymnasium.registry["Drawn-v0"]
    assert DrawsText.made == made
