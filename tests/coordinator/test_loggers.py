"""Loggers, with the services' own offline modes: what they wrote is read back by their packages."""

import json
import sys
import time
import warnings

import pytest

import remuda
from refusals import refuses
from remuda.coordinator.loggers import MLflowLogger, WandbLogger
from remuda.ui.cli.main import run as command
from remuda.ui.terminal.live import PlainView
from system.processes.children import wait_for

pytestmark = pytest.mark.filterwarnings("ignore")  # of the packages, which change as they like
SMALL = {
    "schedule": "sequential",
    "policy": {"algorithm": "ppo", "network": {"hidden": (16,)}, "ppo": {"rollout_length": 20}},
    "run": {"turns": 300, "evaluate_episodes": 2, "log_every": 0.05},
    "checkpoint": {"evaluate_episodes": 0},
}


def train(directory, *callbacks, resume=None, **run):
    return remuda.train(
        None if resume else "support:Tape",
        config=None if resume else SMALL,
        resume=resume,
        run=run | ({} if resume else {"directory": directory}),
        view=PlainView(),
        callbacks=callbacks,
    )


@pytest.fixture
def wandb(monkeypatch, tmp_path):
    found = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / "home"))
    return found


def entries(data):
    """The entries of a file in the log format of LevelDB, after W&B's own header of seven bytes.

    Blocks of 32 KiB; in each, parts with a checksum, a length and whether they are a whole entry
    (1), its beginning (2), its middle (3) or its end (4).
    """
    at, entry = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        if at + 7 + length > len(data):
            return  # W&B's own process is still writing it
        entry += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield entry
            entry = b""


def records(directory):
    """What was written for W&B, session by session."""
    from wandb.proto import wandb_internal_pb2

    for path in sorted((directory / "wandb").glob("offline-run-*/*.wandb")):
        for entry in entries(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(entry)
            yield record


def history(directory):
    rows = []
    for record in records(directory):
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items})
    return rows


@pytest.mark.slow
def test_metrics_go_to_weights_and_biases(wandb, tmp_path):
    result = train(tmp_path / "run", WandbLogger(project="tapes", tags=["mine"]))
    metrics = remuda.load(result).metrics()
    rows = history(tmp_path / "run")
    assert [row["turns"] for row in rows] == metrics["turns"].tolist()
    assert rows[-1]["agent_0/updates"] == metrics["agent_0/updates"][-1]
    assert not any(isinstance(value, str) for row in rows for value in row.values())  # "NaN"
    (run,) = [r.run for r in records(tmp_path / "run") if r.WhichOneof("record_type") == "run"][:1]
    assert (run.project, run.display_name, list(run.tags)) == ("tapes", "run", ["mine"])
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["policy"]["algorithm"] == "ppo"
    told = [
        json.loads(item.value_json)
        for record in records(tmp_path / "run")
        for item in record.summary.update
        if item.key == "greedy/agent_0"
    ]
    assert told == [pytest.approx(result.evaluation.mean(0))]


@pytest.mark.slow
def test_a_resumed_run_goes_on_under_the_same_id(wandb, tmp_path):
    first = train(tmp_path / "run", WandbLogger())
    # W&B names the files of a session by its id and the second in which it began.
    second = int(time.time())
    while int(time.time()) == second:
        time.sleep(0.05)
    train(None, WandbLogger(), resume=first, turns=500)
    runs = [r.run for r in records(tmp_path / "run") if r.WhichOneof("record_type") == "run"]
    assert len({run.run_id for run in runs}) == 1
    ids = json.loads((tmp_path / "run" / "loggers.json").read_text())
    assert ids == {"wandb": runs[0].run_id}
    # W&B's own process may still be writing on a machine that does much else.
    wait_for(lambda: max(row["turns"] for row in history(tmp_path / "run")) == 500)


@pytest.fixture
def mlflow(monkeypatch, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    return found


@pytest.mark.slow
def test_metrics_go_to_mlflow(mlflow, tmp_path):
    result = train(tmp_path / "run", MLflowLogger(experiment="tapes"))
    metrics = remuda.load(result).metrics()
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    (experiment,) = [e for e in client.search_experiments() if e.name == "tapes"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "run"
    assert run.info.status == "FINISHED"
    assert run.data.params["policy.algorithm"] == "ppo"
    assert run.data.tags["ended"] == "all turns were played"
    assert run.data.metrics["greedy/agent_0"] == pytest.approx(result.evaluation.mean(0))
    told = client.get_metric_history(run.info.run_id, "agent_0/updates")
    assert {m.step: m.value for m in told} == dict(
        zip(metrics["turns"], metrics["agent_0/updates"], strict=True)
    )


@pytest.mark.slow
def test_a_resumed_run_goes_on_in_the_same_mlflow_run(mlflow, tmp_path):
    first = train(tmp_path / "run", MLflowLogger())
    train(None, MLflowLogger(), resume=first, turns=500)
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("remuda")
    (run,) = client.search_runs([experiment.experiment_id])
    assert client.get_metric_history(run.info.run_id, "turns")[-1].step == 500
    assert run.info.status == "FINISHED"


@pytest.mark.slow
def test_a_name_that_mlflow_refuses_is_changed(mlflow, tmp_path):
    train_of = {"population": {"matchmaker": "random", "policies": ["Ærø[1]", "b"]}}
    remuda.train(
        "support:Tape",
        config=SMALL,
        run={"directory": tmp_path / "run"},
        view=PlainView(),
        callbacks=[MLflowLogger()],
        **train_of,
    )
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("remuda").experiment_id])
    assert "_r__1_/updates" in run.data.metrics


def test_a_logger_that_fails_later_does_not_end_the_run(mlflow, tmp_path, monkeypatch, capsys):
    log_batch = mlflow.MlflowClient.log_batch

    def fail(client, run, **entities):
        if "metrics" in entities:
            raise ConnectionError("the server is gone")
        return log_batch(client, run, **entities)

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", fail)
    assert train(tmp_path / "run", MLflowLogger()).finished
    said = capsys.readouterr().out
    assert said.count("MLflowLogger.on_metrics failed") == 1
    assert "the server is gone; the run continues without it" in said


def test_a_place_that_mlflow_cannot_use_is_told_in_one_line(mlflow, tmp_path):
    with refuses(remuda.RemudaError):
        train(tmp_path / "run", MLflowLogger(tracking_uri="nowhere://x"))


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_told_in_one_line(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.chdir(tmp_path)
    words = ["train", "support:Tape", "--run.loggers", name, "--run.directory", "run"]
    assert command(words) == 2
    said = capsys.readouterr().err
    assert said == (
        f"remuda: {name} is not installed, and a logger needs it: pip install -e '.[{name}]'\n"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_both_are_named_on_the_command_line(wandb, mlflow, tmp_path):
    words = [
        *("train", "support:Tape", "--schedule", "sequential", "--run.turns", "50"),
        *("--policy.algorithm", "ppo", "--run.loggers", "wandb", "mlflow"),
        *("--run.evaluate_episodes", "1", "--checkpoint.evaluate_episodes", "0"),
        *("--run.directory", str(tmp_path / "run"), "--run.live", "false"),
    ]
    assert command(words) == 0
    assert history(tmp_path / "run")[-1]["turns"] == 50
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("remuda").experiment_id])
    assert run.data.metrics["turns"] == 50
