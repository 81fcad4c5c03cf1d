"""What earlier versions saved goes on as it was: their PPO knew no units of values."""

import json

import numpy as np
import pytest
import yaml

import remuda
from exploited_policies import untrained
from remuda.checkpoint.state import pack, unpack
from remuda.exploiting.target import Target, make_target
from remuda.ui.cli import run

RUN = {"turns": 60, "evaluate_episodes": 0}


def forget(tree):
    """A saved tree as it was before."""
    for policy in (tree["policy"], *tree.get("policies", {}).values()):
        policy.get("ppo", {}).pop("normalise_values", None)
    return tree


def an_earlier_run(directory, algorithm="ppo", **more):
    """A run whose configuration, and those in its checkpoints, are without the key."""
    own = {"ppo": {"rollout_length": 8, "normalise_values": False}} if algorithm == "ppo" else {}
    remuda.train(
        "tag",
        schedule="sequential",
        env={"num_envs": 2},
        policy={"algorithm": algorithm} | own,
        run=RUN | {"directory": str(directory)},
        **more,
    )
    saved = directory / "config.yaml"
    saved.write_text(yaml.safe_dump(forget(yaml.safe_load(saved.read_text()))))
    return directory


def test_a_run_of_ppo_goes_on(tmp_path):
    directory = an_earlier_run(tmp_path / "run")
    run = remuda.load(directory)
    assert not run.config.policy.ppo.normalise_values
    assert run.evaluate(1).returns.shape[0] == 1
    assert remuda.train(resume=directory, run={"turns": 120}).finished
    later = remuda.load(directory)
    assert not later.config.policy.ppo.normalise_values
    assert later.metrics()["turns"][-1] >= 120


@pytest.mark.parametrize("algorithm", ["dqn", "iqn"])
def test_policies_that_have_no_such_values_are_begun_with(algorithm, tmp_path):
    directory = an_earlier_run(tmp_path / "first", algorithm)
    result = remuda.train(
        "tag",
        schedule="sequential",
        policy={"algorithm": algorithm, "init_from": str(directory)},
        run={"turns": 1, "evaluate_episodes": 0, "directory": str(tmp_path / "second")},
    )
    assert result.finished


def test_that_values_have_units_here_alone_is_told(tmp_path):
    directory = an_earlier_run(tmp_path / "first")
    policy = {"algorithm": "ppo", "init_from": str(directory)}
    with pytest.raises(remuda.ConfigError, match=r"ppo\.normalise_values is False there and True"):
        remuda.train("tag", policy=policy, schedule="sequential")


def test_several_seeds_go_on(tmp_path, capsys):
    base = tmp_path / "seeds"
    words = ["train", "tag", "--schedule", "sequential", "--policy.algorithm", "ppo"]
    words += ["--policy.ppo.rollout_length", "8", "--run.turns", "40"]
    words += ["--run.evaluate_episodes", "0", "--run.directory", str(base), "--seeds", "2"]
    assert run([*words, "--policy.ppo.normalise_values", "false"]) == 0
    seeds = json.loads((base / "seeds.json").read_text())
    (base / "seeds.json").write_text(json.dumps(seeds | {"config": forget(seeds["config"])}))
    for file in base.glob("seed_*/config.yaml"):
        file.write_text(yaml.safe_dump(forget(yaml.safe_load(file.read_text()))))
    assert run(["train", "--resume", str(base), "--run.turns", "80"]) == 0, capsys.readouterr()
    for seed in (0, 1):
        loaded = remuda.load(base / f"seed_{seed}")
        assert not loaded.config.policy.ppo.normalise_values
        assert loaded.metrics()["turns"][-1] >= 80


def test_a_target_is_played_against(tmp_path):
    members = {"one": (untrained("kuhn_poker", 1, ppo={"normalise_values": False}),) * 2}
    file = tmp_path / "target"
    make_target("kuhn_poker", {}, members).save(file)
    state = unpack(file.read_bytes())
    for seats in state["players"].values():
        for player in seats.values():
            del player["policy"]["ppo"]["normalise_values"]
    file.write_bytes(pack(state))
    (player, _), *_ = Target.load(file).players
    assert not player.spec.config.ppo.normalise_values
    assert np.isfinite(player.snapshot.weights).all()
    assert player.snapshot.weights.size == sum(
        int(np.prod(shape)) for shape in player.spec.network().shapes.values()
    )
