"""Games of the user's own: what makes environments becomes a game, whatever kind it is of."""

import functools
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from foreign_games import Spot
from refusals import refuses
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.gymnasium import GymnasiumEnv
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.registry import find_game, make_env, name_game
from remuda.errors import ConfigError, ContractError, UnknownGameError, UsageError, UserCodeError
from remuda.system.user_errors import naming_user_code
from support import Tape

SEES = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Single(gymnasium.Env):
    """An environment of Gymnasium's."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space, action_space = SEES, spaces.Discrete(2)

    def __init__(self, length=3, render_mode=None):
        if length < 1:
            raise ValueError(f"length is {length}")
        self.length, self.render_mode = length, render_mode

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.turn += 1
        return np.zeros(2, np.float32), 1.0, self.turn == self.length, False, {}

    def render(self):
        return np.zeros((4, 4, 3), np.uint8)


class Both(ParallelEnv):
    """An environment of PettingZoo's, whose agents act at once."""

    metadata = {"name": "both", "render_modes": []}  # noqa: RUF012

    def __init__(self, agents=2):
        self.possible_agents = [f"agent_{i}" for i in range(agents)]

    def observation_space(self, agent):
        return SEES

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return {a: np.zeros(2, np.float32) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions):
        def of_all(value):
            return dict.fromkeys(live, value)

        live, self.agents = self.agents, []
        return of_all(np.zeros(2, np.float32)), of_all(1.0), of_all(True), of_all(False), of_all({})


class InTurn(AECEnv):
    """One of PettingZoo's, whose agents act one after another."""

    metadata = {"name": "in_turn", "render_modes": []}  # noqa: RUF012
    possible_agents = ["ann", "bob"]  # noqa: RUF012

    def observation_space(self, agent):
        return SEES

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return np.zeros(2, np.float32)

    def reset(self, seed=None, options=None):
        self.agents, self.agent_selection = list(self.possible_agents), "ann"
        self.rewards = self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def step(self, action):
        if self.agent_selection == "bob":
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = "bob"


class DuckParallel:
    """As `Both`, without its base class."""

    possible_agents = ("a",)
    __init__ = object.__init__
    observation_space, action_space = Both.observation_space, Both.action_space
    reset, step = Both.reset, Both.step

    def close(self):
        pass


def make_both(agents=2):
    return Both(agents)


def env(**options):
    """As modules of PettingZoo's have it."""
    return Both(**options)


def vectors(**options):
    """Takes whatever there is, `num_envs` too."""
    return Tape(**options)


class Outer:
    """Holds another class."""

    Inner = Single


KINDS = [
    (Single, GymnasiumEnv),
    (Both, ParallelCopies),
    (InTurn, AECCopies),
    (DuckParallel, ParallelCopies),
    (make_both, ParallelCopies),
    (env, ParallelCopies),
    (vectors, Tape),
    (Tape, Tape),
    (functools.partial(Both, agents=2), ParallelCopies),
    (lambda: Single(), GymnasiumEnv),
    (lambda num_envs, **options: Tape(num_envs, **options), Tape),
    (lambda num_envs=1: GymnasiumEnv(Single, num_envs), GymnasiumEnv),
]


@pytest.mark.parametrize(("given", "kind"), KINDS, ids=range(len(KINDS)))
def test_what_makes_environments_is_a_game(given, kind):
    made = make_env(name_game(given), 3)
    assert isinstance(made, kind)
    assert made.num_envs == 3
    made.reset(np.arange(3), np.ones(3, bool))
    made.begin_turn()
    assert made.active.shape == (3, made.num_agents)
    made.close()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("envs.adapters.test_user_envs:Single", GymnasiumEnv),
        ("envs.adapters.test_user_envs:Both", ParallelCopies),
        ("envs.adapters.test_user_envs:InTurn", AECCopies),
        ("envs.adapters.test_user_envs:make_both", ParallelCopies),
        ("envs.adapters.test_user_envs:Outer.Inner", GymnasiumEnv),
        ("foreign_games:Spot", GymnasiumEnv),
    ],
)
def test_a_raw_environment_is_a_game_by_its_path(path, kind):
    made = make_env(path, 2)
    assert isinstance(made, kind)
    made.close()


def test_what_can_be_imported_is_named_by_its_path():
    assert name_game(Spot) == "foreign_games:Spot"
    assert name_game(Tape) == "support:Tape"
    assert name_game("tag") == "tag"
    assert name_game(find_game("tag").load()) == "tag"


def test_each_copy_is_another():
    made = make_env(name_game(Both), 3)
    assert len({id(copy) for copy in made.copies}) == 3


def test_options_reach_it():
    assert make_env("envs.adapters.test_user_envs:Both", 1, agents=4).num_agents == 4
    assert make_env("envs.adapters.test_user_envs:env", 2, agents=3).num_agents == 3


def test_pictures_are_asked_for_where_there_are_some():
    one, two = (make_env("envs.adapters.test_user_envs:Single", n) for n in (1, 2))
    one.reset(np.arange(1), np.ones(1, bool))
    assert one.render().shape == (4, 4, 3)
    assert one.copies[0].render_mode == "rgb_array"
    assert two.copies[0].render_mode is None


def raises_type_error(agents=2):
    return len(agents)


def needs_size(size):
    return Both(size)


def makes_nothing():
    return None


def makes_copies_unasked():
    return Tape(1)


def makes_one_though_asked(num_envs):
    return Both()


def makes_vectors():
    return gymnasium.make_vec("CartPole-v1", num_envs=2)


class OldReset(Single):
    """As environments were before they took seeds."""

    def reset(self):
        return np.zeros(2, np.float32)


class NoCopies(Tape):
    """Holds copies, and cannot be told how many."""

    def __init__(self):
        super().__init__(1)


SHARED = Single()


def the_same():
    return SHARED


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("Single", {"length": 0}, UserCodeError),
        ("raises_type_error", {}, UserCodeError),
        ("Single", {"width": 1}, ConfigError),
        ("makes_nothing", {"x": 1}, ConfigError),
        ("needs_size", {}, ConfigError),
        ("makes_nothing", {}, ConfigError),
        ("makes_copies_unasked", {}, ConfigError),
        ("NoCopies", {}, ConfigError),
        ("makes_one_though_asked", {}, ConfigError),
        ("makes_vectors", {}, ConfigError),
        ("the_same", {}, ConfigError),
        ("OldReset", {}, ContractError),
        ("SHARED", {}, ConfigError),
        ("np", {}, ConfigError),
        ("Sngle", {}, UnknownGameError),
    ],
)  # fmt: skip
def test_faults_are_told(name, options, error):
    with refuses(error) as found:
        make_env(f"envs.adapters.test_user_envs:{name}", 2, **options)
    assert isinstance(found.value, UserCodeError) or error is not UserCodeError
    assert "\n" not in str(found.value)


class ListOfRewards(Both):
    """Tells rewards in the order of its agents, and not by agent."""

    def step(self, actions):
        seen, rewards, *others = super().step(actions)
        return seen, list(rewards.values()), *others


def test_an_answer_of_another_kind_is_told_as_the_environments():
    made = make_env("envs.adapters.test_user_envs:ListOfRewards", 1)
    made.check = False  # checked, it is told by its name: tests/envs/adapters/test_answers.py
    made.reset(np.arange(1), np.ones(1, bool))
    made.begin_turn()
    for agent in range(made.num_agents):
        made.act(agent, np.zeros(1, np.int64))
    # Called by Remuda: a test's own line would be told as the user's.
    end_turn = naming_user_code()(made.end_turn)
    with refuses(UserCodeError):
        end_turn()


def test_an_option_that_is_refused_is_no_fault_of_the_code():
    """And the other way round: what the code raises is not told as a refused option."""
    for name, options in (("Single", {"length": 0}), ("raises_type_error", {})):
        with pytest.raises(UserCodeError) as found:
            make_env(f"envs.adapters.test_user_envs:{name}", 1, **options)
        assert "env.options" not in str(found.value)
        assert found.value.__cause__ is not None


@pytest.mark.parametrize("path", ["half_a_game:Game", "gymnasium:half_a_game:Game-v0"])
def test_a_module_that_raises_is_told_with_its_line(path, tmp_path, monkeypatch):
    (tmp_path / "half_a_game.py").write_text("import os\nimport no_such_thing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with refuses(UserCodeError):
        make_env(path, 1)


def test_a_module_that_is_not_there_is_told():
    with refuses(UnknownGameError):
        make_env("nowhere:Game", 1)


@pytest.mark.parametrize("given", [SHARED, Tape(1), Both(), 3, None])
def test_what_is_no_class_and_no_function_is_refused(given):
    with refuses(UsageError):
        name_game(given)


def test_what_cannot_be_sent_is_refused():
    lock = threading.Lock()
    with refuses(UsageError):
        name_game(lambda: (lock, Both())[1])


def registers(tmp_path, monkeypatch, name):
    (tmp_path / f"{name}.py").write_text(
        "import gymnasium\n"
        "from envs.adapters.test_user_envs import Single\n"
        f"gymnasium.register('{name}-v0', entry_point=Single, disable_env_checker=True)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def test_a_module_that_registers_with_gymnasium_is_imported(tmp_path, monkeypatch):
    registers(tmp_path, monkeypatch, "registers_one")
    with refuses(ConfigError):
        make_env("gymnasium:registers_one-v0", 2)
    made = make_env("gymnasium:registers_one:registers_one-v0", 2, length=5)
    assert isinstance(made, GymnasiumEnv)
    with refuses(ConfigError):
        make_env("gymnasium:registers_one:registers_no-v0", 2)
    with refuses(UserCodeError):
        make_env("gymnasium:registers_one:registers_one-v0", 2, length=0)
