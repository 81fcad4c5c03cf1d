"""Run directories as training leaves them, written without training."""

import json

import numpy as np
import yaml

from metric_lines import line_of
from remuda.config import config_text, load_config, overlay
from remuda.runs.metrics import PolicyRecord, Record
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.store import Manifest


def a_policy(i, mean_return):
    return PolicyRecord(mean_return, 10 * i, 0.5, 100 * i, 20.0, i, 1.0, 100 * i, 0.5, 0.6, 0, 0.1,
                        0.7, 0, False)  # fmt: skip


def a_run(path, seed=0, names=("agent_0", "agent_1"), level=0.0, lines=40, **settings):
    """A run directory as training leaves it; its return rises to 10 + level."""
    path.mkdir(parents=True)
    config = overlay(load_config(settings).model_dump(mode="json"), {"seed": seed})
    config["run"]["directory"] = str(path)
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    rng, records = np.random.default_rng(seed), []
    for i in range(1, lines + 1):
        earned = 10.0 * (1 - np.exp(-i / 10)) + level + rng.normal(0, 0.8)
        policies = {name: a_policy(i, float(earned + 5 * k)) for k, name in enumerate(names)}
        records.append(
            Record(5.0 * i, 1000 * i, 2000 * i, 200.0, 400.0, 0, 0.0, 0, {"env": 0.5}, policies)
        )
    (path / "metrics.jsonl").write_text("".join(line_of(r) + "\n" for r in records))
    agents = {
        name: {"mean": 10 + level + seed + 5 * k, "standard_error": 0.5}
        for k, name in enumerate(names)
    }
    summary = {
        "game": config["game"],
        "schedule": "async",
        "seed": seed,
        "ended": "all turns were played",
        "finished": True,
        "seconds": 5.0 * lines,
        "turns": 1000 * lines,
        "agent_steps": 2000 * lines,
        "agent_steps_per_second": 400.0,
        "waits": 0,
        "layout": "1 process",
        "version": "0.1.0",
        "restarts": {},
        "halted": [],
        "notes": [],
        "processors": {},
        "earlier": 0.0,
        "evaluation": {"episodes": 200, "agents": agents},
    }
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def an_unfinished_run(path, tree):
    """A run directory with its configuration and one checkpoint, which a resume can continue."""
    run = RunDirectory(path)
    number = run.checkpoints.begin()
    run.checkpoints.commit(Manifest(number, 5, 1.0, False, {}, {}))
    run.config.write_text(config_text(load_config(tree)))
    return path
