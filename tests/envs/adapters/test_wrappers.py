"""Wrappers round environments of other libraries, and numbers of `info` as episode metrics."""

import functools
import json

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.envs.adapters.wrappers import METRICS, PATIENCE, WRAPPERS
from remuda.envs.registry import make_env
from remuda.errors import ConfigError, ContractError, UserCodeError
from remuda.ui.cli.main import run as command
from telling_games import LENGTH, Louder, Telling


def made(game, copies, wrappers=(), episode_metrics=None, **options):
    """Copies of a game, with something round each."""
    around = {WRAPPERS: wrappers, METRICS: episode_metrics or {}}
    return make_env(game, copies, **options, **around)


def played(env, turns=LENGTH, copies=2):
    """What an episode came to: the last result, and what was observed last."""
    env.reset(np.zeros(copies, np.int64), np.ones(copies, bool))
    for _ in range(turns):
        env.begin_turn()
        seen = []
        for agent in range(env.num_agents):
            seen.append(np.zeros((copies, 2), np.float32))
            env.observe(agent, seen[agent])
            env.act(agent, np.zeros(copies, np.int64))
        result = env.end_turn()
    assert not env.active.any()
    return result, seen


def test_wrappers_go_round_each_copy_in_their_order():
    wrappers = ["telling_games:Louder(3.0)", "telling_games:Louder(times=0.5)"]
    env = made("telling_games:Telling", 2, wrappers=wrappers)
    _, seen = played(env)
    np.testing.assert_array_equal(seen[0], np.full((2, 2), 0.75))
    assert [type(copy.env).__name__ for copy in env.copies] == ["Louder", "Louder"]
    assert env.copies[0].times == 0.5


def test_wrappers_of_gymnasium_by_name():
    env = made(
        "gymnasium:CartPole-v1",
        2,
        wrappers=[
            "gymnasium.wrappers:TimeLimit(max_episode_steps=2)",
            "gymnasium.wrappers:FrameStackObservation(stack_size=3)",
        ],
    )
    assert env.agents[0].observation_space.shape == (3, 4)
    env.reset(np.zeros(2, np.int64), np.ones(2, bool))
    for _ in range(2):
        env.begin_turn()
        env.act(0, np.zeros(2, np.int64))
        result = env.end_turn()
    assert result.truncated.all()


@pytest.mark.parametrize("api", ["parallel", "aec"])
def test_wrappers_of_supersuit_by_name(api):
    pytest.importorskip("supersuit")
    plain, stacked = (
        made("pettingzoo:mpe2.simple_spread_v3", 2, api=api, wrappers=wrappers)
        for wrappers in (
            [],
            ["supersuit:frame_stack_v1(stack_size=4)", "supersuit:dtype_v0('float32')"],
        )
    )
    (size,) = plain.agents[0].observation_space.shape
    assert stacked.agents[0].observation_space.shape == (4 * size,)


def test_wrappers_of_environments_that_hand_over_tuples():
    pytest.importorskip("lbforaging")
    env = made(
        "lbf:Foraging-8x8-2p-2f-coop-v3",
        2,
        wrappers=["gymnasium.wrappers:TimeLimit(max_episode_steps=2)"],
    )
    env.reset(np.zeros(2, np.int64), np.ones(2, bool))
    for _ in range(2):
        env.begin_turn()
        for agent in range(2):
            env.act(agent, np.zeros(2, np.int64))
        result = env.end_turn()
    assert result.truncated.all()
    assert not env.active.any()


@pytest.mark.parametrize(
    ("wrapper", "told"),
    [
        ("nothing", "names no module"),
        ("telling_games:", "cannot be read"),
        ("telling_games:Louder(", "cannot be read"),
        ("telling_games:Louder(times=[x for x in 'ab'])", "not literals"),
        ("telling_games:Louder(**{'times': 2})", "not literals"),
        ("telling_games:Louder({[1]: 2})", "not literals"),
        ("telling_games:Missing", "Missing"),
        ("no_such_module:Louder", "no_such_module"),
        ("telling_games:LENGTH", "is a int"),
        ("telling_games:Louder(loud=1)", "loud"),
        ("telling_games:other_kind", "makes a Pair of a Telling"),
        ("gymnasium.wrappers:TimeLimit('many')", "TimeLimit('many') refuses a Telling"),
    ],
)
def test_a_wrapper_that_cannot_be_had_is_named(wrapper, told):
    with pytest.raises(ConfigError) as caught:
        made("telling_games:Telling", 1, wrappers=[wrapper])
    assert str(caught.value).startswith("env.wrappers: ")
    assert told in str(caught.value)


@pytest.mark.parametrize("wrapper", ["Faulty", "refused"])
def test_a_wrapper_of_the_users_that_raises_is_the_users(wrapper):
    with refuses(UserCodeError):
        made("telling_games:Telling", 1, wrappers=[f"telling_games:{wrapper}"])


@pytest.mark.parametrize("game", ["treasure_hunt", "open_spiel:kuhn_poker", "support:Tape"])
@pytest.mark.parametrize("around", [{"wrappers": ["a:b"]}, {"episode_metrics": {"speed": "sum"}}])
def test_games_that_hold_their_copies_take_none(game, around):
    if game.startswith("open_spiel"):
        pytest.importorskip("pyspiel")
    with refuses(ConfigError, "env.wrappers", "env.episode_metrics"):
        made(game, 1, **around)


def test_numbers_of_info_over_an_episode():
    asked = {"turn": "sum", "deep/turn": "mean", "is_success": "last"}
    env = made("telling_games:Telling", 2, episode_metrics=asked)
    assert env.episode_metrics == ("turn", "deep/turn", "is_success")
    for _ in range(2):  # nothing is left of the episode before
        result, _ = played(env)
        told = {name: values.tolist() for name, values in result.info.items()}
        assert told == {"turn": [6.0] * 2, "deep/turn": [2.0] * 2, "is_success": [1.0] * 2}


@pytest.mark.parametrize(
    ("how", "value"), [("last", 3), ("sum", 6), ("mean", 2), ("min", 1), ("max", 3)]
)
def test_what_is_made_of_the_numbers(how, value):
    env = made("telling_games:Telling", 1, episode_metrics={"turn": how})
    result, _ = played(env, copies=1)
    assert result.info["turn"].tolist() == [value]


def test_numbers_by_agent():
    asked = {"speed": "mean", "*/speed": "sum", "b/share": "last", "share": "max"}
    env = made("telling_games:Pair", 2, episode_metrics=asked)
    result, _ = played(env)
    told = {name: values[0] for name, values in result.info.items()}
    assert told == {"speed": 11.0, "a/speed": 6.0, "b/speed": 60.0, "b/share": 3.0, "share": 3.0}


def test_numbers_of_agents_that_act_in_turn_are_of_their_own_steps():
    env = made("telling_games:Turns", 2, episode_metrics={"*/acts": "sum", "acts": "min"})
    for _ in range(2):
        result, _ = played(env)
        told = {name: values.tolist() for name, values in result.info.items()}
        assert told == {"a/acts": [9.0] * 2, "b/acts": [12.0] * 2, "acts": [1.5] * 2}


def test_what_nobody_tells_in_an_episode_is_not_counted_in_it():
    env = made("telling_games:Telling", 2, episode_metrics={"speed": "last", "turn": "sum"})
    for _ in range(PATIENCE // 2):
        assert not env.notes
        result, _ = played(env)
    assert np.isnan(result.info["speed"]).all()
    assert result.info["turn"].tolist() == [6.0, 6.0]
    env.reset(np.zeros(2, np.int64), np.ones(2, bool))
    (note,) = env.notes.values()
    assert "in the first 100 episodes no `info` of a step held speed;" in note
    result, _ = played(made("telling_games:Telling", 2, episode_metrics={"speed": "sum"}))
    assert result.info["speed"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("says", ["loud", float("nan"), [1, 2]])
def test_what_is_no_number_is_the_worlds_fault(says):
    env = made("telling_games:Telling", 1, says=says, episode_metrics={"says": "last"})
    with refuses(ContractError):
        played(env, copies=1)


@pytest.mark.parametrize("says", ["loud", float("nan"), [1, 2]])
@pytest.mark.parametrize("game", ["Telling", "Pair"])
def test_what_is_no_number_is_left_out_unchecked(game, says, monkeypatch):
    """Red before: the message says that `env.check false` lets it pass, and it did not."""
    options = {"says": says} if game == "Telling" else {}
    metric = "says" if game == "Telling" else "speed"
    env = made(f"telling_games:{game}", 1, episode_metrics={metric: "sum"}, **options)
    if game == "Pair":
        own = env.copies[0].step

        def step(actions):
            *rest, infos = own(actions)
            return *rest, infos | {"a": {"speed": says}}

        monkeypatch.setattr(env.copies[0], "step", step)
    env.check = False
    result, _ = played(env, copies=1)
    assert result.info[metric].tolist() == [0.0 if game == "Telling" else 60.0]


def test_a_metric_is_asked_for_once():
    with refuses(ConfigError):
        made("telling_games:Pair", 2, episode_metrics={"a/speed": "sum", "*/speed": "last"})


def test_what_is_told_of_an_agent_that_ends_early_is_there_then():
    env = made("telling_games:Early", 1, episode_metrics={"speed": "sum"})
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    seen = []
    for _ in range(LENGTH):
        env.begin_turn()
        for agent in range(2):
            env.act(agent, np.zeros(1, np.int64))
        result = env.end_turn()
        seen.append(result.info["speed"].tolist())
    # The first ends in turn 1, the second in turn 3, with 10, 20 and 30 of its own.
    assert seen == [[5.5], [5.5], [30.5]]


def test_agents_that_end_early_end_no_episode():
    env = made("telling_games:Early", PATIENCE, episode_metrics={"b/late": "last"})
    env.reset(np.zeros(PATIENCE, np.int64), np.ones(PATIENCE, bool))
    for _ in range(LENGTH):
        env.begin_turn()
        for agent in range(2):
            env.act(agent, np.zeros(PATIENCE, np.int64))
        result = env.end_turn()
    env.reset(np.zeros(PATIENCE, np.int64), np.ones(PATIENCE, bool))
    assert (result.info["b/late"] == 8.0).all()
    assert not env.notes


def test_options_of_a_game_may_have_these_names():
    env = make_env("telling_games:Named", 1, wrappers=3, episode_metrics=4)
    assert (env.copies[0].wrappers, env.copies[0].episode_metrics) == (3, 4)


def test_numbers_of_all_agents_where_they_hand_over_tuples():
    asked = {"score": "last", "own": "sum", "deep/score": "max", "deep/own": "max", "none": "sum"}
    env = made("telling_games:Tuples", 2, episode_metrics=asked)
    result, _ = played(env)
    told = {name: values.tolist() for name, values in result.info.items()}
    assert told == {
        "score": [3.0] * 2,
        "own": [9.0] * 2,
        "deep/score": [3.0] * 2,
        "deep/own": [4.5] * 2,
        "none": [9.0] * 2,
    }


def test_a_wrapper_that_leaves_no_tuple_by_agent_is_named():
    wrappers = ["gymnasium.wrappers:FlattenObservation"]
    with refuses(ConfigError, "env.wrappers"):
        made("telling_games:Tuples", 2, wrappers=wrappers)
    pytest.importorskip("lbforaging")
    with refuses(ConfigError, "env.wrappers"):
        made("lbf:Foraging-8x8-2p-2f-coop-v3", 1, wrappers=wrappers)


@pytest.mark.process
def test_a_wrapper_of_a_script_goes_to_the_processes_that_step_copies(tmp_path):
    class Quiet(Louder):
        """Of no module: found by no other process."""

        def __init__(self, env):
            super().__init__(env, 0.0)

    result = remuda.train(
        "telling_games:Telling",
        env={"num_envs": 4, "workers": 2, "wrappers": [Quiet], "episode_metrics": {"turn": "sum"}},
        policy={"algorithm": "ppo", "ppo": {"rollout_length": 8, "minibatches": 1}},
        schedule="sequential",
        run={"turns": 400, "evaluate_episodes": 4, "directory": str(tmp_path / "run")},
    )
    assert result.finished
    assert np.nanmax(remuda.load(result).metrics()["game/turn"]) == 6.0


def test_metrics_that_only_some_episodes_tell_are_means_of_these(tmp_path, capsys):
    result = remuda.train(
        "telling_games:Telling",
        env={
            "num_envs": 2,
            "options": {"every": 2},
            "episode_metrics": {"rare": "last", "never": "mean"},
        },
        policy={"algorithm": "ppo", "ppo": {"rollout_length": 8, "minibatches": 1}},
        run={"turns": 400, "evaluate_episodes": 8, "directory": str(tmp_path / "run")},
        schedule="sequential",
    )
    run = remuda.load(result)
    rare = run.metrics()["game/rare"]
    assert np.nanmin(rare) == np.nanmax(rare) == 7.0  # and not half of it
    told = result.evaluation.episode_metrics["rare"]
    assert np.isnan(told).any()
    assert np.nanmax(told) == 7.0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["evaluation"]["episode_metrics"]["rare"]["mean"] == 7.0
    assert summary["evaluation"]["episode_metrics"]["never"]["mean"] is None
    capsys.readouterr()
    assert command(["evaluate", str(tmp_path / "run"), "--episodes", "8"]) == 0
    shown = capsys.readouterr().out
    assert "rare: 7 ± 0" in shown
    assert "never: in no episode" in shown


def test_metrics_and_wrappers_in_a_run(tmp_path):
    result = remuda.train(
        Telling,
        env={
            "num_envs": 2,
            "wrappers": [functools.partial(Louder, times=0.5)],
            "episode_metrics": {"turn": "sum"},
        },
        policy={"algorithm": "ppo", "ppo": {"rollout_length": 8, "minibatches": 1}},
        run={"turns": 200, "evaluate_episodes": 4, "directory": str(tmp_path / "run")},
        schedule="sequential",
    )
    run = remuda.load(result)
    assert np.nanmax(run.metrics()["game/turn"]) == 6.0
    assert result.evaluation.episode_metrics["turn"].tolist() == [6.0] * 4
    assert run.evaluate(2).episode_metrics["turn"].tolist() == [6.0] * 2
