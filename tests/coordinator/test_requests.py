"""What other programs ask of a run that goes on."""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.coordinator.requests import FOLDER, ask, ask_weights
from remuda.errors import RemudaError, UsageError
from remuda.runs.run_directory import RunDirectory
from remuda.training.saved.policies import Reference

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


def test_an_environment_option_is_changed_by_request(tmp_path):
    asking = Asking(
        {"do": "set_option", "name": "length", "value": 7},
        {"do": "set_option", "name": "speed", "value": 7},
        {"do": "set_option"},
        {"do": "list_options"},
    )
    run = {**RUN["run"], "directory": str(tmp_path / "run"), "log_every": 0.05}
    policy = {"algorithm": "ppo", "network": {"hidden": (8,)}}
    result = remuda.train(
        "growing:Growing",
        **{**RUN, "run": run, "policy": policy},
        schedule="sequential",
        callbacks=[asking],
    )
    done, *refused, listed, _ = asking.answers
    assert done == "length: 7"
    assert listed == {"length": 7, "pay": 1.0}
    assert [type(each) for each in refused] == [UsageError] * 2
    assert "speed" in str(refused[0])
    assert result.record.env_options == {"length": 7}


@pytest.mark.slow
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
    assert "and stop" in stopped
    opened = remuda.load(result)
    assert opened.summary()["ended"] == "stopped by request"
    assert not opened.summary()["finished"]
    assert len(list((directory / "checkpoints").iterdir())) >= 2
    assert not (directory / FOLDER).exists()


@pytest.mark.slow
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


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 60_000])
def test_what_is_no_request(tmp_path, data):
    from remuda.config import load_config
    from remuda.coordinator.callback import ActiveRun
    from remuda.coordinator.requests import Requests

    run = ActiveRun(tmp_path, load_config({"game": "treasure_hunt"}), ("agent_0",))
    requests = Requests(tmp_path, run, print)
    requests.poll()
    (tmp_path / FOLDER / "1.request").write_bytes(data)
    (tmp_path / FOLDER / "2.part").write_bytes(b'{"do": "stop"}')
    requests.poll()
    assert "JSON object" in json.loads((tmp_path / FOLDER / "1.answer").read_bytes())["error"]
    assert not run.interrupted
    assert (tmp_path / FOLDER / "2.part").exists()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"do": "set", "values": {}, "policy": null}', "`values` is empty"),
        (b'{"do": "list", "more": "' + b"x" * 65_536 + b'"}', "65,536 bytes at most"),
    ],
)
def test_a_request_that_would_do_nothing_is_refused(tmp_path, data, said):
    requests = requests_of(tmp_path)
    requests.poll()
    (tmp_path / FOLDER / "1.request").write_bytes(data)
    requests.poll()
    assert said in json.loads((tmp_path / FOLDER / "1.answer").read_bytes())["error"]


def test_nobody_answers(tmp_path):
    with refuses(UsageError):
        ask(tmp_path, {"do": "stop"})  # and at once
    (tmp_path / FOLDER).mkdir()
    with refuses(UsageError):
        ask(tmp_path, {"do": "stop"}, seconds=0.2)
    assert list((tmp_path / FOLDER).iterdir()) == []
    begun = time.monotonic()
    with refuses(UsageError):
        ask(tmp_path, {"do": "stop"}, seconds=600)  # nobody holds the run, at a second look
    assert time.monotonic() - begun < 60
    assert list((tmp_path / FOLDER).iterdir()) == []
    with refuses(UsageError):
        ask(tmp_path / "nowhere", {"do": "stop"})
    with refuses(UsageError):
        ask_weights(tmp_path, "agent_0", 7, seconds=0.2)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / FOLDER).write_text("no directory")
    with refuses(UsageError):
        ask_weights(tmp_path / "odd", "agent_0", 7, seconds=0.2)


def test_a_link_in_place_of_requests_is_not_followed(tmp_path):
    from remuda.config import load_config
    from remuda.coordinator.callback import ActiveRun
    from remuda.coordinator.requests import Requests

    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    elsewhere.mkdir()
    (elsewhere / "1.request").write_text('{"do": "stop"}')
    (run / FOLDER).symlink_to(elsewhere)
    with refuses(UsageError):
        ask(run, {"do": "stop"}, seconds=0.2)
    active = ActiveRun(run, load_config({"game": "treasure_hunt"}), ("agent_0",))
    requests = Requests(run, active, print)
    assert not (run / FOLDER).exists()  # what was asked before is forgotten
    (run / FOLDER).symlink_to(elsewhere)
    requests.poll()
    assert not active.interrupted
    assert (elsewhere / "1.request").exists()


def test_whatever_fails_in_a_request_the_run_goes_on(tmp_path, monkeypatch):
    from remuda.config import load_config
    from remuda.coordinator.callback import ActiveRun
    from remuda.coordinator.requests import Requests

    run = ActiveRun(tmp_path, load_config({"game": "treasure_hunt"}), ("agent_0",))
    requests = Requests(tmp_path, run, print)
    requests.poll()
    monkeypatch.setattr(run, "save", lambda: 1 / 0)
    (tmp_path / FOLDER / "1.request").write_text('{"do": "checkpoint"}')
    requests.poll()
    answer = json.loads((tmp_path / FOLDER / "1.answer").read_bytes())
    assert "ZeroDivisionError" in answer["error"]


class Looking(Asking):
    """Looks at weights from another thread until they are newer than at the first look."""

    def go(self, directory):
        try:
            until = time.monotonic() + 120
            first = Reference.parse(f"{directory}:agent_1@live").find()
            while True:
                self.answers = [first, Reference.parse(f"{directory}:agent_1@live").find()]
                versions = [each.player.snapshot.version for each in self.answers]
                if versions[1] > versions[0] or time.monotonic() > until:
                    break
        finally:
            ask(directory, {"do": "stop"})


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["sequential", "lockstep", "async"])
@pytest.mark.parametrize("mode", ["double_buffer", "snapshot"])
@pytest.mark.parametrize("algorithm", ["iqn", "dqn", "ppo", "mappo", "sac"])
def test_the_weights_that_a_run_plays_with_are_shown(tmp_path, schedule, mode, algorithm):
    directory = tmp_path / "run"
    looking = Looking()
    result = remuda.train(
        "treasure_hunt",
        **{**RUN, "run": {**RUN["run"], "directory": str(directory), "log_every": 0.1}},
        policy={
            "algorithm": algorithm,
            "publish": {"mode": mode},
            "ppo": {"rollout_length": 16},
        },
        policies={"agent_1": {"network": {"hidden": [24]}}},
        schedule=schedule,
        callbacks=[looking],
    )
    first, second = looking.answers
    assert second.player.snapshot.version > first.player.snapshot.version
    assert not np.array_equal(second.player.snapshot.weights, first.player.snapshot.weights)
    last = Reference.parse(f"{directory}:agent_1").find().player.snapshot
    assert last.version >= second.player.snapshot.version
    assert last.weights.shape == second.player.snapshot.weights.shape
    assert not list((directory).glob(f"{FOLDER}/*"))
    assert result.record.turns > 0


class LookingOnce(Asking):
    """Looks at all policies of a run once, and at what is no policy of it."""

    def go(self, directory):
        try:
            saved = Reference.parse(str(directory)).open()
            self.answers = {}
            for name in (*(spec.name for spec in saved.specs), "agent_9"):
                try:
                    self.answers[name] = saved.live(name).player.snapshot
                except UsageError as error:
                    self.answers[name] = str(error)
            try:
                ask_weights(directory, "agent_0", 7)
            except UsageError as error:
                self.answers["size"] = str(error)
            self.answers["left"] = [p.name for p in (directory / FOLDER).iterdir()]
        finally:
            ask(directory, {"do": "stop"})


@pytest.mark.slow
def test_each_policy_is_shown_with_its_own_weights(tmp_path):
    looking = LookingOnce()
    directory = tmp_path / "run"
    remuda.train(
        "treasure_hunt",
        **{**RUN, "run": {**RUN["run"], "directory": str(directory), "log_every": 0.1}},
        policy={"experience": {"learning_starts": 10**6, "capacity": 10**6}},
        schedule="async",
        callbacks=[looking],
    )
    for name in ("agent_0", "agent_1"):
        saved = Reference.parse(f"{directory}:{name}").find().player.snapshot
        assert np.array_equal(saved.weights, looking.answers[name].weights)
        assert saved.learner_step == looking.answers[name].learner_step == 0
    assert "no policy 'agent_9'" in looking.answers["agent_9"]
    assert "do not fit its network" in looking.answers["size"]
    assert looking.answers["left"] == []
    with refuses(UsageError):
        Reference.parse(f"{directory}:agent_0@live").find()


@pytest.mark.process
@pytest.mark.slow
def test_slots_that_nobody_has_show_nothing(tmp_path):
    looking = LookingOnce()
    remuda.train(
        "treasure_hunt",
        **{**RUN, "run": {**RUN["run"], "directory": str(tmp_path / "run"), "log_every": 0.1}},
        population={
            "policies": 2,
            "matchmaker": "random",
            "births": {"slots": 1, "every": 10**9},
        },
        callbacks=[looking],
    )
    shown = {name for name, found in looking.answers.items() if not isinstance(found, str | list)}
    assert shown == {"policy_0", "policy_1"}
    assert any("plays in this run now" in str(found) for found in looking.answers.values())


def test_what_nobody_took_is_removed(tmp_path):
    from remuda.config import load_config
    from remuda.coordinator.callback import ActiveRun
    from remuda.coordinator.requests import PATIENCE, Requests

    run = ActiveRun(tmp_path, load_config({"game": "treasure_hunt"}), ("agent_0",))
    requests = Requests(tmp_path, run, print)
    requests.poll()
    folder = tmp_path / FOLDER
    for name in ("1.weights", "1.answer", "2.weights", "3.part"):
        (folder / name).write_bytes(b"")
    old = time.time() - 3 * PATIENCE
    for name in ("1.weights", "1.answer", "3.part"):
        os.utime(folder / name, (old, old))
    (folder / "4.request").write_text('{"do": "weights", "policy": "agent_0"}')
    requests.poll()
    assert sorted(p.name for p in folder.iterdir()) == ["2.weights", "3.part", "4.answer"]
    assert "plays in this run now" in (folder / "4.answer").read_text()


def requests_of(path):
    from remuda.config import load_config
    from remuda.coordinator.callback import ActiveRun
    from remuda.coordinator.requests import Requests

    run = ActiveRun(path, load_config({"game": "treasure_hunt"}), ("agent_0",))
    return Requests(path, run, print)


def asked_meanwhile(path, act, request=None):
    """What an asker gets that waits while this is done."""
    found = []

    def go():
        try:
            found.append(ask(path, request or {"do": "checkpoint"}, seconds=60))
        except UsageError as error:
            found.append(str(error))

    thread = threading.Thread(target=go)
    thread.start()
    until = time.monotonic() + 60
    while not list((path / FOLDER).glob("*.request")) and time.monotonic() < until:
        time.sleep(0.001)
    act()
    thread.join()
    return found[0]


def test_what_was_done_before_the_end_is_told(tmp_path):
    requests = requests_of(tmp_path)
    requests.poll()

    def act():
        requests.poll()
        requests.close()
        requests.poll()

    assert asked_meanwhile(tmp_path, act) == "a checkpoint will be written"
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["closed"]
    with refuses(UsageError):
        ask(tmp_path, {"do": "checkpoint"})
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["closed"]
    requests.end()
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_done_before_the_end_is_told_at_once(tmp_path):
    requests = requests_of(tmp_path)
    requests.poll()
    begun = time.monotonic()
    assert "takes no requests" in asked_meanwhile(tmp_path, requests.close)
    assert time.monotonic() - begun < 50, "it waited for nobody"
    requests.end()
    assert list(tmp_path.iterdir()) == []


def test_an_answer_that_nobody_took_outlives_the_run(tmp_path):
    requests = requests_of(tmp_path)
    requests.poll()
    (tmp_path / FOLDER / "1.request").write_text('{"do": "checkpoint"}')
    requests.poll()
    requests.end()
    assert {path.name for path in (tmp_path / FOLDER).iterdir()} == {"1.answer", "closed"}
    requests_of(tmp_path)  # it goes on
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_about_to_be_read_outlive_the_run(tmp_path):
    requests = requests_of(tmp_path)
    requests.poll()
    (tmp_path / FOLDER / "1.weights").write_bytes(b"")
    requests.end()
    assert (tmp_path / FOLDER / "1.weights").exists()


def test_a_directory_that_somebody_removes_is_made_again(tmp_path):
    requests = requests_of(tmp_path)
    requests.poll()
    (tmp_path / FOLDER).rmdir()
    requests.poll()
    assert asked_meanwhile(tmp_path, requests.poll) == "a checkpoint will be written"


def asking(directory):
    """Ask in a thread; what it says, once it is asked."""
    said = []

    def wait():
        try:
            said.append(ask(directory, {"do": "checkpoint"}, seconds=600))
        except UsageError as error:
            said.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    until = time.monotonic() + 60
    while not list((directory / FOLDER).glob("*.request")) and time.monotonic() < until:
        time.sleep(0.01)
    return thread, said


def test_who_asks_a_run_that_is_begun_anew_meanwhile_is_told_at_once(tmp_path):
    requests = requests_of(tmp_path)
    requests.poll()
    thread, said = asking(tmp_path)
    requests_of(tmp_path).poll()  # the next session, after the first was killed
    thread.join(60)
    assert "or has restarted" in said[0]


@pytest.mark.slow
def test_who_asks_a_run_whose_coordinator_is_killed_is_told_soon(tmp_path):
    requests_of(tmp_path).poll()
    words = f"""
import time
from pathlib import Path
from remuda.runs.run_directory import RunDirectory
run = RunDirectory(Path({str(tmp_path)!r}))
run.lock()
print("locked", flush=True)
time.sleep(600)
"""
    holder = subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "locked\n"
        thread, said = asking(tmp_path)
        holder.kill()
        thread.join(60)
    finally:
        holder.kill()
        holder.wait()
    assert "takes no requests" in said[0]


LOOKS = """
import sys, time
from pathlib import Path
from remuda.runs.run_directory import RunDirectory
run, looks, until = RunDirectory(Path(sys.argv[1])), [], time.monotonic() + 600
print("begun", flush=True)
while not (run.path / "enough").exists() and time.monotonic() < until:
    looks.append(run.is_running())
print(any(looks), flush=True)
"""


@pytest.mark.slow
def test_who_looks_whether_a_run_goes_on_disturbs_nobody(tmp_path):
    """Neither others that look, nor who begins it meanwhile; and its owner is noticed."""
    (tmp_path / "lock").touch()
    words = [sys.executable, "-c", LOOKS, str(tmp_path)]
    lookers = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        assert [each.stdout.readline() for each in lookers] == ["begun\n"] * 2
        time.sleep(0.5)
        (tmp_path / "enough").touch()
        assert [each.stdout.readline() for each in lookers] == ["False\n"] * 2
    finally:
        for each in lookers:
            each.kill()
            each.wait()
    (tmp_path / "enough").unlink()
    lookers = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        assert [each.stdout.readline() for each in lookers] == ["begun\n"] * 3
        for _ in range(20):
            run = RunDirectory(tmp_path)
            run.lock()
            assert RunDirectory(tmp_path).is_running()
            with refuses(RemudaError):
                RunDirectory(tmp_path).lock()
            run.unlock()
    finally:
        for each in lookers:
            each.kill()
            each.wait()


def test_a_run_begins_although_somebody_asks_whether_it_goes_on(tmp_path):
    """Whoever asks that holds the lock for a moment."""
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lets_go = threading.Timer(0.05, fcntl.flock, (file, fcntl.LOCK_UN))
        lets_go.start()
        run = RunDirectory(tmp_path)
        run.lock()
        run.unlock()
        lets_go.join()


@pytest.mark.slow
def test_many_askers_do_not_keep_an_ended_run_from_refusing(tmp_path):
    """The directory goes at once, whoever writes into it."""
    stop = threading.Event()

    def write():
        while not stop.is_set():
            with contextlib.suppress(OSError):
                (tmp_path / FOLDER / f"{threading.get_ident()}.part").write_bytes(b"")

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            requests = requests_of(tmp_path)
            requests.poll()
            requests.end()
            assert not (tmp_path / FOLDER).exists()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


class AskingAtTheEnd(Asking):
    """Goes on asking, from another thread, until the run takes nothing any more."""

    def go(self, directory):
        try:
            until = time.monotonic() + 300
            while time.monotonic() < until:
                ask(directory, {"do": "list"})
        except UsageError as error:
            self.answers.append(str(error))
            files = RunDirectory.open(directory)
            there = files.summary.exists()  # it is written at about that time
            self.measured = files.read_summary()["evaluation"] if there else None


@pytest.mark.slow
def test_a_run_that_has_trained_to_its_end_says_so_at_once(tmp_path):
    asking = AskingAtTheEnd()
    run = {"directory": str(tmp_path / "run"), "turns": 4000, "log_every": 0.1, "live": False}
    remuda.train(
        "treasure_hunt",
        **{**RUN, "run": {**run, "evaluate_episodes": 400}},
        schedule="sequential",
        callbacks=[asking],
    )
    assert "takes no requests" in asking.answers[0]
    assert asking.measured is None, "it was told before greedy play was over"
    assert remuda.load(tmp_path / "run").summary()["evaluation"] is not None
    assert not (tmp_path / "run" / FOLDER).exists()


class BeginningOthers(Asking):
    """Begins other runs with the weights that this one plays with now."""

    def go(self, directory):
        try:
            other = directory.parent / "other"
            flags = ["--run.turns", "50", "--run.evaluate_episodes", "0", "--run.live", "false"]
            flags += ["--run.directory", str(other), "--schedule", "sequential"]
            flags += ["--policy.init_from", f"{directory}:agent_0@live"]
            for more in ([], ["--policy.init_optimizer", "true"]):
                command = [sys.executable, "-m", "remuda", "train", "treasure_hunt", *flags, *more]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                self.answers.append((done.returncode, done.stderr))
                flags[flags.index(str(other))] = str(directory.parent / "refused")
                other = directory.parent / "refused"
        finally:
            ask(directory, {"do": "stop"})


@pytest.mark.slow
def test_another_run_begins_with_live_weights_and_says_so(tmp_path):
    beginning = BeginningOthers()
    remuda.train(
        "treasure_hunt",
        **{**RUN, "run": {**RUN["run"], "directory": str(tmp_path / "run"), "log_every": 0.1}},
        schedule="sequential",
        callbacks=[beginning],
    )
    (code, errors), (refused, why) = beginning.answers
    assert code == 0, errors
    sources = json.loads((tmp_path / "other" / "initial" / "sources.json").read_text())
    assert {source["live"] for source in sources.values()} == {True}
    assert len({source["version"] for source in sources.values()}) == 1  # asked for once
    assert refused == 2
    assert "come without an optimizer" in " ".join(why.split())
