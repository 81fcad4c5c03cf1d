"""Whole runs on two nodes of Ray's on this machine, as a user begins them."""

import numpy as np
import pytest
from safetensors.numpy import load_file

import remuda

pytestmark = pytest.mark.cluster

pytest.importorskip("ray")


def weights(path):
    found = {
        file.stem: load_file(file) for file in sorted((path / "weights").glob("*.safetensors"))
    }
    return {name: {k: v.tobytes() for k, v in arrays.items()} for name, arrays in found.items()}


@pytest.mark.slow
def test_a_run_on_two_nodes_in_turns_has_the_bits_of_one_in_one_process(tmp_path):
    settings = {
        "policy": {"algorithm": "ppo", "ppo": {"rollout_length": 32}},
        "env": {"num_envs": 4},
        "checkpoint": {"evaluate_episodes": 0},
        "seed": 3,
    }
    found = {}
    for name, where in (
        ("alone", {"schedule": "sequential"}),
        (
            "nodes",
            {"schedule": "lockstep", "cluster": {"local": 2}, "actor": {"nodes": ("local-1",)}},
        ),
    ):
        run = {"turns": 600, "directory": tmp_path / name, "evaluate_episodes": 0}
        result = remuda.train("treasure_hunt", **settings, **where, run=run)
        assert result.record.turns == 600
        found[name] = weights(tmp_path / name)
    assert found["nodes"] == found["alone"]
    log = (tmp_path / "nodes" / "logs" / "actor@local-1.log").read_text()
    assert "finished" in log
    lines = (tmp_path / "nodes" / "metrics.jsonl").read_text().splitlines()
    assert any("node_bytes_per_second" in line for line in lines)
    assert np.isfinite(result.record.node_bytes_per_second)
