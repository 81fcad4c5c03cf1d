"""Runs that earlier versions saved go on, and their policies play."""

import yaml

import remuda

SMALL = {
    "schedule": "sequential",
    "env": {"num_envs": 2},
    "policy": {"algorithm": "ppo", "ppo": {"rollout_length": 8, "normalise_values": False}},
}


def test_a_run_of_ppo_from_before_values_had_units(tmp_path):
    directory = tmp_path / "run"
    turns = {"turns": 60, "evaluate_episodes": 0, "directory": str(directory)}
    remuda.train("tag", **SMALL, run=turns)
    saved = directory / "config.yaml"
    tree = yaml.safe_load(saved.read_text())
    del tree["policy"]["ppo"]["normalise_values"]  # it did not know of them
    saved.write_text(yaml.safe_dump(tree))

    run = remuda.load(directory)
    assert not run.config.policy.ppo.normalise_values
    assert run.evaluate(1).returns.shape[0] == 1
    result = remuda.train(resume=directory, run={"turns": 120})
    assert result.finished
    later = remuda.load(directory)
    assert not later.config.policy.ppo.normalise_values
    assert later.metrics()["turns"][-1] >= 120
