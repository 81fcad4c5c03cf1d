"""Environment options that change during a run: in force at each copy's next reset."""

import numpy as np
import pytest

from growing import Corridor, Corridors, Growing, InTurn
from refusals import refuses
from remuda.envs import live_options
from remuda.envs.contract import VectorEnvContract
from remuda.envs.description import EnvSpec
from remuda.envs.live_options import LiveEnvOptions, OptionSetter, in_force
from remuda.envs.registry import make_env, name_game
from remuda.envs.workers.pool import WorkerEnvs
from remuda.errors import CheckpointError, ContractError, UsageError

GAMES = [Growing, Corridor, Corridors, InTurn]


class TestGrowing(VectorEnvContract):
    option_values = {"length": 9, "pay": 0.5}  # noqa: RUF012

    def make(self, num_envs):
        return Growing(num_envs)


class TooSoon(Growing):
    def set_option(self, name, value):
        super().set_option(name, value)
        self._lengths[:] = self._length


def test_an_option_in_force_too_soon_breaks_the_contract():
    suite = TestGrowing()
    suite.make = TooSoon
    with pytest.raises(ContractError, match="15"):
        suite.test_options_wait_for_the_next_reset()


def spec_of(game=Growing):
    return EnvSpec.of(name_game(game), {})


def lengths(env):
    found = np.zeros((env.num_envs, 2), np.float32)
    env.observe(0, found)
    return found[:, 1].tolist()


def play_turn(env):
    env.begin_turn()
    for group in env.turn_groups:
        for agent in group:
            env.observe(agent, np.zeros((env.num_envs, 2), np.float32))
        for agent in group:
            env.act(agent, np.zeros(env.num_envs, np.int64))
    env.end_turn()


@pytest.mark.parametrize("game", GAMES)
def test_an_option_changes_each_copy_at_its_next_reset(game):
    env = make_env(name_game(game), 2)
    assert "length" in env.changeable_options
    seeds = np.arange(2)
    env.reset(seeds, np.ones(2, np.bool_))
    env.set_option("length", 7)
    play_turn(env)
    env.begin_turn()
    assert lengths(env) == [3, 3]
    env.reset(seeds, np.array([False, True]))
    assert lengths(env) == [3, 7]
    env.reset(seeds, np.array([True, False]))
    assert lengths(env) == [7, 7]
    env.close()


@pytest.mark.process
def test_workers_get_the_options(tmp_path):
    env = WorkerEnvs("growing:Growing", 3, 2)
    try:
        assert env.changeable_options == ("length", "pay")
        env.reset(np.arange(3), np.ones(3, np.bool_))
        env.set_option("length", 7)
        env.set_option("length", 5)
        env.begin_turn()
        assert lengths(env) == [3, 3, 3]
        env.reset(np.arange(3), np.array([True, False, True]))
        env.begin_turn()
        assert lengths(env) == [5, 3, 5]
    finally:
        env.close()


def test_a_wrapped_copy_gets_its_options():
    env = make_env(name_game(Corridor), 1, **{"env.wrappers": ("growing:Undeclared",)})
    env.set_option("length", 7)
    env.reset(np.zeros(1, np.int64), np.ones(1, np.bool_))
    assert lengths(env) == [7]
    assert env.copies[0].env.told == ["reset", ("length", 7), "reset"]


def test_a_described_environment_starts_with_what_was_changed():
    spec = spec_of()
    assert spec.changeable_options == ("length", "pay")
    plain = EnvSpec.from_plain(spec.to_plain(), spec.game, {})
    assert plain.changeable_options == ("length", "pay")


def test_a_change_is_in_force_from_its_turn():
    options, env = LiveEnvOptions(spec_of()), Growing(1)
    setter = OptionSetter(options, env)
    options.change("length", 5, 10, 0)
    options.change("length", 9, 20, 0)
    assert [options.in_force(turns) for turns in (9, 10, 20)] == [{}, {"length": 5}, {"length": 9}]
    found = []
    for turns in (0, 9, 10, 19, 20):
        setter.set_due(turns)
        found.append(env.options()["length"])
    assert found == [3, 3, 5, 5, 9]


def test_options_are_set_again_after_an_environment_was_restored():
    options, env = LiveEnvOptions(spec_of()), Growing(1)
    options.change("length", 5, 0, 0)
    setter = OptionSetter(options, env)
    setter.set_due(0)
    env.set_option("length", 3)  # as a restored state may
    setter.set_due(0)
    assert env.options()["length"] == 3
    setter.restart()
    setter.set_due(0)
    assert env.options()["length"] == 5


def test_changes_that_are_over_are_forgotten():
    options = LiveEnvOptions(spec_of())
    for turn in range(2_000):
        options.change("length", turn, turn, turn)
    options.change("length", 7, 5_000, 2_000)
    options.change("length", 8, 5_000, 2_000)
    assert options.changes() == [(1_999, "length", 1_999), (5_000, "length", 8)]


def test_what_is_being_written_is_not_read(monkeypatch):
    options = LiveEnvOptions(spec_of())
    options.change("length", 5, 0, 0)
    monkeypatch.setattr(live_options, "PAUSE", 0.0)
    store, seen = live_options.store, []

    def watched(*word):
        for write in (lambda: None, lambda: store(*word)):
            write()
            seen.append(options.read(0))

    monkeypatch.setattr(live_options, "store", watched)
    options.change("length", 6, 0, 0)
    before, after = (2, [(0, "length", 5)]), (4, [(0, "length", 6)])
    assert seen == [before, None, None, after]


def test_half_a_text_is_not_read(monkeypatch):
    """A node's bridge copies the words without marking the revision as odd."""
    options = LiveEnvOptions(spec_of())
    options.change("length", 5, 0, 0)
    monkeypatch.setattr(live_options, "PAUSE", 0.0)
    options.words["text"].view(np.uint8)[3] ^= 1
    assert options.read(0) is None


def test_changes_are_restored():
    options = LiveEnvOptions(spec_of())
    options.change("pay", 2.5, 4, 0)
    other = LiveEnvOptions(spec_of())
    other.restore(options.state())
    assert other.changes() == [(4, "pay", 2.5)]
    assert in_force(options.state(), 3) == {}
    assert in_force(options.state(), 4) == {"pay": 2.5}


def test_damaged_changes_are_refused():
    for state in ("[", "[[1]]", '[["a", "length", 1]]', 3, None):
        with pytest.raises(CheckpointError):
            LiveEnvOptions(spec_of()).restore(state)
    with refuses(CheckpointError, "gone", "length"):
        LiveEnvOptions(spec_of()).restore('[[0, "gone", 1]]')


@pytest.mark.parametrize("game", GAMES)
def test_a_value_that_the_environment_refuses_is_one_line(game):
    options = LiveEnvOptions(spec_of(game))
    with refuses(UsageError, "length", "-1"):
        options.check("length", -1, 0)
    assert options.check("length", np.int64(4), 0) == 4


@pytest.mark.parametrize("value", [float("nan"), (1, 2), {1: 2}, object(), np.zeros(2)])
def test_only_plain_data_is_taken(value):
    with pytest.raises(UsageError, match="plain data"):
        LiveEnvOptions(spec_of()).check("pay", value, 0)


def test_an_option_that_is_not_declared_is_refused():
    with refuses(UsageError, "speed", "length, pay"):
        LiveEnvOptions(spec_of()).check("speed", 1, 0)


class Text(Growing):
    changeable_options = "length"


class NoMethod(Corridor):
    set_option = None


def test_wrong_declarations_are_refused():
    for game in (Text, NoMethod):
        with refuses(ContractError, "changeable_options"):
            spec_of(game)


def test_too_many_changes_are_refused():
    options = LiveEnvOptions(spec_of())
    with refuses(UsageError, "bytes"):
        options.change("length", "x" * 9_000, 0, 0)
    assert options.changes() == []
