"""Scripted policies on reserved seats."""

import numpy as np
import pytest

from assembled import spec_of
from refusals import refuses
from remuda.actor.scripted_seats import ScriptedSeats, reserved_members
from remuda.config import load_config
from remuda.envs.registry import find_game, make_env
from remuda.errors import ConfigError
from remuda.evaluation.evaluate import evaluate
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.system.checkpoint.state import pack, unpack
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView


def seats_of(scripted, seed=0, copies=3):
    game, env = find_game("treasure_hunt"), make_env("treasure_hunt", copies)
    rng = np.random.default_rng(seed)
    env.reset(np.arange(copies), np.ones(copies, bool))
    return ScriptedSeats(env, reserved_members(game, env, scripted, rng))


def test_a_reserved_seat_has_its_policy_in_all_copies_and_other_seats_keep_their_actions():
    seats = seats_of({"agent_0": "hand_written:three"})
    observations, zeros = np.zeros((3, 5, 5, 5), np.uint8), np.zeros(3, np.int64)
    assert seats.chosen(0, observations, zeros).tolist() == [3, 3, 3]
    assert seats.chosen(1, observations, zeros) is zeros


def test_what_scripted_policies_draw_goes_on_from_a_saved_state():
    one, twin = (seats_of({"agent_0": "random", "agent_1": "random"}, seed) for seed in (1, 2))

    def chosen(seats):
        observations, zeros = np.zeros((3, 5, 5, 5), np.uint8), np.zeros(3, np.int64)
        return [seats.chosen(i % 2, observations, zeros).tolist() for i in range(40)]

    assert chosen(one) != chosen(twin)
    twin.restore(unpack(pack(one.state())))
    assert chosen(one) == chosen(twin)


@pytest.mark.slow_cases("none_there_is")
@pytest.mark.parametrize("who", ["none_there_is", "too_few"])
def test_what_is_no_action_is_told(who, tmp_path):
    env = {"num_envs": 4, "scripted": {"agent_1": f"hand_written:{who}"}}
    run = {"turns": 20, "directory": tmp_path / "run"}
    config = load_config({"schedule": "sequential", "env": env, "run": run})
    with refuses(ConfigError):
        train(config, PlainView())


def test_a_run_may_leave_seats_to_scripted_policies(tmp_path):
    config = load_config(
        {
            "schedule": "sequential",
            "env": {"num_envs": 8, "scripted": {"agent_1": "greedy_walker"}},
            "policy": {"algorithm": "ppo"},
            "run": {"turns": 4000, "directory": tmp_path / "run", "evaluate_episodes": 40},
        }
    )
    result = train(config, PlainView())
    learns, scripted = (result.record.policies[f"agent_{i}"] for i in range(2))
    assert learns.updates > 0
    assert scripted.updates == scripted.steps == 0
    assert scripted.mean_return > 100
    assert result.evaluation.mean(1) > 100
    _, snapshots = load_run(RunDirectory.open(tmp_path / "run"))
    against_nobody = evaluate(spec_of(config), snapshots, 40, scripted={"agent_1": "random"})
    assert against_nobody.mean(1) < 40


@pytest.mark.parametrize(
    "scripted",
    [
        {"bob": "random"},
        {"agent_1": "bob"},
        {"agent_1": "support:bob"},
    ],
)
def test_wrong_seats_are_told_before_anything_begins(scripted, tmp_path):
    run = {"directory": tmp_path / "run"}
    with refuses(ConfigError):
        train(load_config({"env": {"scripted": scripted}, "run": run}), PlainView())
    assert not (tmp_path / "run").exists()
