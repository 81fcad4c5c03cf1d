"""What a user can get wrong about policies that are written by hand, each told in one line."""

import pytest

import hand_written
import remuda
from refusals import refuses
from remuda.config import load_config, overlay
from remuda.errors import ConfigError, RemudaError, UsageError, UserCodeError
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

TREE = {
    "game": "kuhn_poker",
    "schedule": "sequential",
    "env": {"num_envs": 4},
    "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 8}},
    "run": {"turns": 300, "evaluate_episodes": 0},
    "checkpoint": {"evaluate_episodes": 0},
    "population": {"matchmaker": "random", "policies": 2, "scripted": {"bot": "random"}},
}


def trained(directory, *, resume=False, **tree):
    whole = overlay(overlay(TREE, {"run": {"directory": directory}}), tree)
    return train(load_config(whole), PlainView(), resume=resume)


@pytest.mark.parametrize(
    "tree",
    [
        {"population": {"scripted": {"bot": "nobody"}}},
        {"population": {"scripted": {"bot": "hand_written:Nobody"}}},
        {"population": {"scripted": {"bot": "hand_written:NOT_A_POLICY"}}},
        {"population": {"scripted": {"bot": "hand_written:Demanding"}}},
        {"population": {"scripted": {"policy_1": "random"}}},
        {"population": {"scripted": {"born_0": "random"}, "births": {"slots": 1}}},
        {"population": {"scripted": {"a@3": "random"}}},
        {"population": {"matchmaker": "fixed"}},
        {
            "population": {
                "matchmaker": "teams",
                "teams": {
                    "red": {"policies": ["policy_0"], "agents": ["agent_0"]},
                    "blue": {"policies": ["policy_1"], "agents": ["agent_1"]},
                },
            }
        },
        {"population": {"matchmaker": "self_play", "newest": 1.0}},
        {"population": {"matchmaker": "self_play", "snapshots": {"share": 0.0}}},
        {"population": {"snapshots": {"share": 0.0}}},
        {"population": {"seats": {"policy_0": ["agent_0"], "policy_1": ["agent_0"]}}},
        {"population": {"seats": {"bto": ["agent_0"]}}},
        {"env": {"scripted": {"agent_1": "random"}}},
        {"game": "support:Recall"},
        {
            "game": "connect_four",
            "env": {"workers": 2},
            "population": {"scripted": {"bot": "tactician"}},
        },
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tree, tmp_path):
    with refuses(ConfigError) as told:
        trained(tmp_path / "run", **tree)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()


def test_what_returns_no_action_for_each_copy_is_told(tmp_path):
    population = {"scripted": {"bot": "hand_written:too_few"}}
    with refuses(ConfigError):
        trained(tmp_path / "run", population=population)


@pytest.mark.slow_cases(
    "kuhn_poker-none_there_is-1000000",
    "kuhn_poker-not_a_number-nan",
    "treasure_hunt-none_there_is-1000000",
)
@pytest.mark.parametrize(("who", "chosen"), [("none_there_is", "1000000"), ("not_a_number", "nan")])
@pytest.mark.parametrize("game", ["kuhn_poker", "treasure_hunt"])
def test_what_is_no_action_is_told(game, who, chosen, tmp_path):
    """Red before: compiled games looked it up in memory that is not theirs."""
    population = {"scripted": {"bot": f"hand_written:{who}"}}
    with refuses(ConfigError) as told:
        trained(tmp_path / "run", game=game, population=population)
    assert "\n" not in str(told.value)


def test_what_raises_is_told_with_its_line(tmp_path):
    population = {"scripted": {"bot": "hand_written:fails"}}
    with refuses(UserCodeError):
        trained(tmp_path / "run", population=population)


def test_who_gives_no_mapping_is_told():
    with refuses(UsageError):
        remuda.train("kuhn_poker", population={"scripted": hand_written.three})


@pytest.mark.slow
def test_a_resumed_run_has_the_same_members(tmp_path):
    trained(tmp_path / "run")
    with refuses(RemudaError, "population.scripted.other"):
        trained(
            tmp_path / "run",
            resume=True,
            population={"scripted": {"other": "random"}},
            run={"turns": 400},
        )
