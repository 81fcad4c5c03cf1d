"""What other programs ask of a run that goes on."""

import json
import threading

import pytest

import remuda
from remuda.errors import UsageError
from remuda.requests import FOLDER, ask

RUN = {
    "env": {"num_envs": 4},
    "run": {"turns": None, "seconds": 600, "evaluate_episodes": 0, "live": False},
    "checkpoint": {"every": 3600, "evaluate_episodes": 0},
}


class Asking(remuda.Callback):
    """Asks from another thread, as another program would, once the run has begun."""

    def __init__(self, *requests):
        self.requests, self.answers, self.thread = requests, [], None

    def on_metrics(self, run, row):
        if self.thread is None:
            self.thread = threading.Thread(target=self.go, args=(run.directory,))
            self.thread.start()

    def go(self, directory):
        for request in (*self.requests, {"do": "stop"}):
            try:
                self.answers.append(ask(directory, request))
            except UsageError as error:
                self.answers.append(error)

    def on_end(self, run, result):
        self.thread.join()


@pytest.mark.parametrize("schedule", ["sequential", "async"])
def test_a_run_is_told_what_to_do(tmp_path, schedule):
    directory = tmp_path / "run"
    asking = Asking(
        {"do": "list"},
        {"do": "checkpoint"},
        {"do": "set", "values": {"learning_rate": 1e-5}, "policy": "agent_0"},
        {"do": "list"},
        {"do": "set", "values": {"learning_rate": -1}, "policy": None},
        {"do": "set", "values": {"learning_rate": 10**400}, "policy": None},
        {"do": "set", "values": {"learning_rate": [1]}, "policy": None},
        {"do": "set", "values": {"colour": 1}, "policy": None},
        {"do": "set", "values": {"learning_rate": 1e-5}, "policy": "agent_9"},
        {"do": "set", "values": 3},
        {"do": "dance"},
    )
    run = {**RUN["run"], "directory": str(directory), "log_every": 0.1}
    result = remuda.train(
        "treasure_hunt", **{**RUN, "run": run}, schedule=schedule, callbacks=[asking]
    )
    first, saved, changed, second, *refused, stopped = asking.answers
    assert set(first) == {"agent_0", "agent_1"}
    assert "checkpoint" in saved
    assert "agent_0: learning_rate 1e-05" in changed
    assert second["agent_0"]["learning_rate"] == 1e-5
    assert second["agent_1"] == first["agent_1"]
    assert [type(each) for each in refused] == [UsageError] * 7
    for words, error in zip(
        ("learning_rate", "learning_rate", "learning_rate", "colour", "agent_9", "values", "dance"),
        refused,
        strict=True,
    ):
        assert words in str(error)
    assert "it stops" in stopped
    opened = remuda.load(result)
    assert opened.summary()["ended"] == "stopped by request"
    assert not opened.summary()["finished"]
    assert len(list((directory / "checkpoints").iterdir())) >= 2
    assert not (directory / FOLDER).exists()


def test_it_can_be_gone_on_with(tmp_path):
    directory = tmp_path / "run"
    run = {**RUN["run"], "directory": str(directory), "log_every": 0.1}
    remuda.train(
        "treasure_hunt", **{**RUN, "run": run}, schedule="sequential", callbacks=[Asking()]
    )
    before = remuda.load(directory).summary()["turns"]
    # Nothing that was asked of the session before is done in this one.
    folder = directory / FOLDER
    folder.mkdir()
    (folder / "1.request").write_text(json.dumps({"do": "stop"}))
    remuda.train(resume=directory, run={"turns": before + 200, "seconds": None})
    assert remuda.load(directory).summary()["turns"] >= before + 200
    assert not folder.exists()


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 70_000])
def test_what_is_no_request(tmp_path, data):
    from remuda.callbacks import ActiveRun
    from remuda.config import load_config
    from remuda.requests import Requests

    run = ActiveRun(tmp_path, load_config({"game": "treasure_hunt"}), ("agent_0",))
    requests = Requests(tmp_path, run, print)
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "1.request").write_bytes(data)
    (tmp_path / FOLDER / "2.part").write_bytes(b'{"do": "stop"}')
    requests.look()
    assert "object of JSON" in json.loads((tmp_path / FOLDER / "1.answer").read_bytes())["error"]
    assert not run.interrupted
    assert (tmp_path / FOLDER / "2.part").exists()


def test_nobody_answers(tmp_path):
    with pytest.raises(UsageError, match="did not answer in 0 s"):
        ask(tmp_path, {"do": "stop"}, seconds=0.2)
    assert list((tmp_path / FOLDER).iterdir()) == []
    with pytest.raises(UsageError, match="cannot write into"):
        ask(tmp_path / "nowhere", {"do": "stop"}, seconds=0.2)


def test_a_link_in_place_of_requests_is_not_followed(tmp_path):
    from remuda.callbacks import ActiveRun
    from remuda.config import load_config
    from remuda.requests import Requests

    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    elsewhere.mkdir()
    (elsewhere / "1.request").write_text('{"do": "stop"}')
    (run / FOLDER).symlink_to(elsewhere)
    with pytest.raises(UsageError, match="is a link"):
        ask(run, {"do": "stop"}, seconds=0.2)
    active = ActiveRun(run, load_config({"game": "treasure_hunt"}), ("agent_0",))
    requests = Requests(run, active, print)
    assert not (run / FOLDER).exists()  # what was asked before is forgotten
    (run / FOLDER).symlink_to(elsewhere)
    requests.look()
    assert not active.interrupted
    assert (elsewhere / "1.request").exists()


def test_whatever_fails_in_a_request_the_run_goes_on(tmp_path, monkeypatch):
    from remuda.callbacks import ActiveRun
    from remuda.config import load_config
    from remuda.requests import Requests

    run = ActiveRun(tmp_path, load_config({"game": "treasure_hunt"}), ("agent_0",))
    requests = Requests(tmp_path, run, print)
    monkeypatch.setattr(run, "save", lambda: 1 / 0)
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "1.request").write_text('{"do": "checkpoint"}')
    requests.look()
    answer = json.loads((tmp_path / FOLDER / "1.answer").read_bytes())
    assert "ZeroDivisionError" in answer["error"]
