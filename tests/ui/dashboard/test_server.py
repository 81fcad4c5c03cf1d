"""What the dashboard answers, and to whom."""

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
import time

import psutil
import pytest

import remuda
from dashboard_client import OWN, Client
from dashboard_runs import fixed_run, made_run, place, population_run
from remuda.coordinator.requests import ask as ask_run
from remuda.ui.dashboard.server import ANSWERS, COOKIE, make_app, names_of


def client_of(base, host="127.0.0.1", token="", address="127.0.0.1:8700"):
    """A client of a server over a directory."""
    return Client(make_app(base, host, token), address)


@pytest.fixture
def ask():
    """Ask about the runs of a directory: `ask(base, what, **parameters)`."""
    opened = []

    def asking(base, what, expect=200, /, **parameters):
        client = client_of(base)
        opened.append(client)
        with client:
            wait_for_runs(client)
            answer = client.get(f"/api/{what}", params=parameters)
        assert answer.status_code == expect, answer.text
        return answer.json()

    return asking


def wait_for_runs(client):
    for _ in range(3000):
        if client.get("/api/runs").json().get("complete"):
            return
        time.sleep(0.01)
    raise AssertionError("the runs were not found")


def test_runs_that_lie_there(ask):
    fixed_run(), population_run()
    found = {run["id"]: run for run in ask(place(), "runs")["runs"]}
    assert set(found) == {"fixed", "population"}
    assert found["fixed"]["game"] == "treasure_hunt"
    assert found["fixed"]["turns"] >= 600
    assert found["fixed"]["damaged"] == ""
    assert ask(fixed_run(), "runs")["runs"][0]["id"] == "."


def test_one_run(ask):
    fixed_run()
    found = ask(place(), "run", run="fixed")
    assert not found["running"]
    assert set(found["status"]["policies"]) == {"agent_0", "agent_1"}
    assert found["settings"]["run.turns"] == 600
    assert "agent_0/loss" in found["columns"]
    assert not found["ledger"]
    curves = ask(place(), "curves", run="fixed", column=["agent_0/mean_return", "none"])
    assert curves["columns"]["none"]["x"] == []


@pytest.mark.process
@pytest.mark.slow
def test_a_population(ask):
    population_run()
    found = ask(place(), "population", run="population")
    names = found["payoffs"]["names"]
    assert len(names) >= 3
    assert len(found["payoffs"]["means"]) == len(names)
    assert sum(found["mixture"]) == pytest.approx(1.0, abs=1e-3)
    assert "always plays the same policy" in ask(place(), "population", run="fixed")["none"]


def test_seeds_are_one_curve(ask, tmp_path):
    for seed in range(3):
        made_run(tmp_path / f"a{seed}", seed=seed, loss=float(seed))
    made_run(tmp_path / "b", game="cleanup", loss=9.0)
    names = ["a0", "a1", "a2", "b"]
    found = ask(tmp_path, "compare", run=names, column="learner/loss")
    assert [group["runs"] for group in found["groups"]] == [["a0", "a1", "a2"], ["b"]]
    assert found["groups"][0]["curve"]["y"] == pytest.approx([1.0] * 5)
    assert found["different"] == {"game": ["treasure_hunt"] * 3 + ["cleanup"]}


HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.mark.process
@pytest.mark.slow
def test_broken_and_foreign_directories_are_shown_as_what_they_are(ask, tmp_path):
    made_run(tmp_path / "good")
    (tmp_path / "empty").mkdir()
    for name, text in (
        (
            "yaml",
            "game: [",
        ),
        ("list", "- 1"),
        ("binary", "\x00\x01"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(text)
    half = made_run(tmp_path / "half")
    (half / "status.json").write_text('{"time": 1')
    (half / "summary.json").write_text("[]")
    (half / "ledger.bin").write_bytes(b"\x00" * 100)
    (half / "metrics.jsonl").write_text('{"seconds":')
    only = tmp_path / "only"
    only.mkdir()
    (only / "metrics.jsonl").write_text("")
    made_run(tmp_path / "named", game=HOSTILE)
    found = {run["id"]: run for run in ask(tmp_path, "runs")["runs"]}
    assert set(found) == {"good", "yaml", "list", "binary", "half", "only", "named"}
    assert not found["good"]["damaged"]
    assert all(found[name]["damaged"] for name in ("yaml", "list", "binary", "half", "only"))
    assert found["named"]["game"] == HOSTILE
    for name in found:
        told = ask(tmp_path, "run", run=name)
        assert told["run"]["id"] == name
        ask(tmp_path, "population", run=name)
        ask(tmp_path, "timeline", run=name)
        ask(tmp_path, "compare", run=[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["../secret", "..", "/etc", "good/../../secret", "link", "good/link"]
)
def test_nothing_outside_the_directory_is_served(ask, tmp_path, path):
    base = tmp_path / "runs"
    made_run(base / "good")
    made_run(tmp_path / "secret", loss=42.0)
    (base / "link").symlink_to(tmp_path / "secret")
    (base / "good" / "link").symlink_to(tmp_path / "secret")
    assert [run["id"] for run in ask(base, "runs")["runs"]] == ["good"]
    for name in ("run", "population", "timeline", "curves", "log"):
        assert "there is no run" in ask(base, name, 404, run=path, name="x.log")["error"]


@pytest.mark.slow_cases("..", "../config.yaml", "/etc/passwd", "link.log")
@pytest.mark.parametrize(
    "name", ["../config.yaml", "/etc/passwd", "..", "link.log", "../logs/a.log"]
)
def test_logs_are_those_of_the_run(ask, tmp_path, name):
    run = made_run(tmp_path / "runs" / "good")
    (run / "logs").mkdir()
    (run / "logs" / "a.log").write_text("fine")
    (tmp_path / "secret.log").write_text("secret")
    (run / "logs" / "link.log").symlink_to(tmp_path / "secret.log")
    assert ask(tmp_path / "runs", "log", run="good", name="a.log")["text"] == "fine"
    assert "has no log" in ask(tmp_path / "runs", "log", 400, run="good", name=name)["error"]


@pytest.mark.slow_cases("ledger.bin", "logs", "metrics.jsonl")
@pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml", "ledger.bin", "logs"])
def test_files_that_are_elsewhere_are_not_read(ask, tmp_path, name):
    """A link in a run directory may lead anywhere."""
    run = made_run(tmp_path / "runs" / "good")
    made_run(tmp_path / "secret", loss=42.0)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(tmp_path / "secret" / name)
    (run / "status.json").symlink_to(run / "metrics.jsonl")
    assert ask(tmp_path / "runs", "runs")["runs"] == []
    ask(tmp_path / "runs", "run", 404, run="good")


def test_a_run_that_becomes_a_link_is_not_served(tmp_path):
    base = tmp_path / "runs"
    run = made_run(base / "good")
    made_run(tmp_path / "secret")
    with client_of(base) as client:
        wait_for_runs(client)
        assert client.get("/api/run", params={"run": "good"}).status_code == 200
        run.rename(tmp_path / "gone")
        (base / "good").symlink_to(tmp_path / "secret")
        assert client.get("/api/run", params={"run": "good"}).status_code == 404


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "run: Missing"),
        ({"run": "good", "axis": "colour"}, "axis: Input should be"),
        (
            {"run": "good", "column": [str(i) for i in range(99)]},
            "at most 60 items",
        ),
    ],
)
def test_questions_that_are_none(ask, tmp_path, parameters, words):
    made_run(tmp_path / "good")
    assert words in ask(tmp_path, "curves", 400, **parameters)["error"]


def test_only_names_of_this_machine_are_answered(tmp_path):
    with client_of(tmp_path) as client:
        for name in ("127.0.0.1:8700", "localhost:8700", "[::1]:8700"):
            assert client.get("/api/runs", headers={"host": name}).status_code == 200
        for name in (
            "evil.example",
            "127.0.0.1.evil.example",
            "evil.example:8700",
            "",
            "[",
            "0.0.0.0",
        ):
            assert client.get("/api/runs", headers={"host": name}).status_code == 421


FOREIGN = [
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "http://[", "x-remuda": "1"},
    {"x-remuda": None},
    {"x-remuda": None, "origin": "http://127.0.0.1:8700"},
    {"x-remuda": "1", "sec-fetch-site": "cross-site"},
    {"x-remuda": "1", "sec-fetch-site": "same-site"},
    {"x-remuda": None, "sec-fetch-site": "cross-site", "sec-fetch-dest": "image"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_pages_of_others_can_neither_ask_nor_drive_it(tmp_path, headers):
    """A question may begin work, so that even a picture of another site must not ask one."""
    made_run(tmp_path / "good")
    with client_of(tmp_path) as client:
        wait_for_runs(client)
        for method, name in ANSWERS:
            path, content = f"/api/{name}", b'{"run": "good"}' if method == "POST" else None
            answer = client.request(method, path, {"run": "good"}, content, headers)
            assert answer.status_code == 403, (method, name)
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            assert client.request(method, "/api/watch", headers=headers).status_code == 403
        assert client.get("/", headers=headers).status_code == 200  # a link may lead here


def test_no_answer_allows_other_origins(tmp_path):
    with client_of(tmp_path) as client:
        for path in ("/", "/api/runs", "/assets/app.js", "/nothing"):
            answer = client.get(path, headers={"origin": "http://evil.example"})
            assert "access-control-allow-origin" not in answer.headers
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self';" in policy
            assert "default-src 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_page_loads_nothing_from_elsewhere(tmp_path):
    with client_of(tmp_path) as client:
        page = client.get("/").text
        assert "http" not in page
        names = [part.split('"')[0] for part in page.split("/assets/")[1:]]
        for name in {
            *names,
            "dom.js",
            "runs.js",
            "run.js",
            "charts.js",
            "watch.js",
            "timeline.js",
            "population.js",
        }:
            assert client.get(f"/assets/{name}").status_code == 200
        for name in ("../server.py", "echarts.LICENSE", "%2e%2e/server.py", "x.js"):
            assert client.get(f"/assets/{name}").status_code == 404


NAME = f"{COOKIE}_8700"
"""Browsers share cookies among all ports of a host."""


def test_elsewhere_the_token_must_be_known(tmp_path):
    made_run(tmp_path / "good")
    client = client_of(tmp_path, "0.0.0.0", "secret", "10.0.0.7:8700")
    with client:
        assert client.get("/api/runs").status_code == 401
        assert client.get("/?token=wrong").status_code == 401
        for cookie in (f"{NAME}=wrong", COOKIE, f"{COOKIE}=secret", "=", ";;", f"x{NAME}=secret"):
            assert client.get("/api/runs", headers={"cookie": cookie}).status_code == 401
        welcome = client.get("/?token=secret")
        assert welcome.status_code == 303
        assert welcome.headers["location"] == "/"
        for path in ("//evil.example/", "///evil.example/", "/%5Cevil.example/"):
            asked = client.get(f"{path}?token=secret")
            assert asked.headers["location"] == "/evil.example/", "no address of another host"
        assert "HttpOnly" in welcome.headers["set-cookie"]
        assert "SameSite=Strict" in welcome.headers["set-cookie"]
        assert client.get("/api/runs").status_code == 200
        for other in ('prefs={"a":1}', "a=b c", "=x", "a;b"):  # of other services of this host
            cookie = f"{other}; {NAME}=secret"
            assert client.get("/api/runs", headers={"cookie": cookie}).status_code == 200


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("127.0.0.1", {"127.0.0.1", "localhost", "::1"}),
        ("localhost", {"127.0.0.1", "localhost", "::1"}),
        ("0.0.0.0", None),
        ("::", None),
        ("10.0.0.7", {"10.0.0.7"}),
    ],
)
def test_names_of_a_server(host, names):
    assert names_of(host) == names


def test_large_requests_are_refused(tmp_path):
    with client_of(tmp_path) as client:
        answer = client.post("/api/watch", content=b" " * 10**6, headers=OWN)
        assert answer.status_code == 400
        for body in (b"[]", b"{", b"\xff", b"[" * 60_000):
            assert client.post("/api/watch", content=body, headers=OWN).status_code == 400


@pytest.mark.slow
def test_an_episode_is_watched():
    fixed_run()
    with client_of(place()) as client:
        wait_for_runs(client)
        asked = {"run": "fixed", "seed": 3, "seats": {"agent_1": "random"}}
        name = client.post("/api/watch", content=json.dumps(asked), headers=OWN).json()["watch"]
        found = client.get("/api/watched", params={"watch": name, "count": 4}).json()
        about, *turns = found["lines"]
        assert about["seats"] == {"agent_0": "agent_0", "agent_1": "random"}
        assert [turn["turn"] for turn in turns] == [0, 1, 2]
        assert turns[0]["picture"]
        chose = turns[1]["chose_by"]
        assert set(chose) == {"agent_0"}
        values = chose["agent_0"]["values"]
        assert "expects" not in chose["agent_0"], "a Q-learner values actions alone"
        assert (
            turns[1]["actions"]["agent_0"] == chose["agent_0"]["names"][values.index(max(values))]
        )
        later = client.get("/api/watched", params={"watch": name, "first": 4, "count": 2}).json()
        assert [turn["turn"] for turn in later["lines"]] == [3, 4]
        asked = {"run": "fixed", "seats": {"agent_9": "random"}}
        name = client.post("/api/watch", content=json.dumps(asked), headers=OWN).json()["watch"]
        found = client.get("/api/watched", params={"watch": name}).json()
        assert "has no agent agent_9" in found["lines"][0]["error"]
        assert found["over"]
        for seats in ({"agent_0": "os:system"}, {"agent_0": "../x:policy"}, [1], {"agent_0": 3}):
            asked = {"run": "fixed", "seats": seats}
            assert (
                client.post("/api/watch", content=json.dumps(asked), headers=OWN).status_code == 400
            )
        assert client.get("/api/watched", params={"watch": "none"}).status_code == 400


@pytest.mark.slow
def test_probabilities_of_a_policy_that_draws():
    population_run()
    with client_of(place()) as client:
        wait_for_runs(client)
        asked = {"run": "population"}
        name = client.post("/api/watch", content=json.dumps(asked), headers=OWN).json()["watch"]
        _, *turns = client.get("/api/watched", params={"watch": name, "count": 3}).json()["lines"]
        for told in turns[1]["chose_by"].values():
            assert sum(told["probabilities"]) == pytest.approx(1.0, abs=1e-3)
            assert abs(told["expects"]) < 5.0  # a game of one turn, that pays 1 or takes it


@pytest.mark.slow
def test_a_person_plays_and_leaves():
    fixed_run()
    with client_of(place()) as client:
        wait_for_runs(client)
        before = children()

        def post(what, **asked):
            return client.post(f"/api/{what}", content=json.dumps(asked), headers=OWN)

        watch = post("watch", run="fixed", seats={"agent_1": "me"}).json()["watch"]
        found = client.get("/api/watched", params={"watch": watch, "count": 9}).json()
        about, start, asked = found["lines"]
        assert about["seats"] == {"agent_0": "agent_0", "agent_1": "me"}
        assert about["playable"] == ["agent_0", "agent_1"]
        assert start["turn"] == 0
        assert asked["question"]["agent"] == "agent_1"
        assert asked["question"]["names"] == ["up", "down", "left", "right"]
        assert asked["question"]["picture"]
        assert post("act", watch=watch, action=4).status_code == 400
        for turn, action in enumerate([2, 0], 1):
            found = post("act", watch=watch, action=action, first=1 + 2 * turn).json()
            played, asked = found["lines"]
            assert played["turn"] == turn
            assert played["actions"]["agent_1"] == asked["question"]["names"][action]
            assert set(played["chose_by"]) == {"agent_0"}
            assert not found["over"]
        assert len(children() - before) == 1
        assert post("act", watch=watch, action=None).json()["over"]
        assert not children() - before
        assert "was ended" in post("act", watch=watch, action=0).json()["error"]


@pytest.mark.slow
def test_a_game_without_a_person_waits_for_no_action():
    fixed_run()
    with client_of(place()) as client:
        wait_for_runs(client)
        asked = json.dumps({"run": "fixed"})
        watch = client.post("/api/watch", content=asked, headers=OWN).json()["watch"]
        asked = json.dumps({"watch": watch, "action": 0})
        answer = client.post("/api/act", content=asked, headers=OWN)
        assert "waits for no action" in answer.json()["error"]


@pytest.mark.slow
def test_the_processes_that_play_end_with_the_server():
    fixed_run()
    with client_of(place()) as client:
        wait_for_runs(client)
        before = children()
        for seed in range(5):
            asked = json.dumps({"run": "fixed", "seed": seed})
            name = client.post("/api/watch", content=asked, headers=OWN).json()["watch"]
        client.get("/api/watched", params={"watch": name, "count": 2})
        assert 1 <= len(children() - before) <= 3
    assert not children() - before


def children(what="player"):
    """The processes of this one that do so."""
    found = set()
    for child in psutil.Process(os.getpid()).children():
        with contextlib.suppress(psutil.Error):
            if f"remuda.ui.dashboard.{what}" in " ".join(child.cmdline()):
                found.add(child.pid)
    return found


def test_runs_are_told_nothing_unless_that_was_asked_for(tmp_path):
    made_run(tmp_path / "good")
    asked = json.dumps({"run": "good", "do": "stop"})
    for control, words in ((False, "read-only"), (True, "is not running")):
        with Client(make_app(tmp_path, control=control)) as client:
            wait_for_runs(client)
            assert client.get("/api/run", params={"run": "good"}).json()["control"] is control
            answer = client.post("/api/control", content=asked, headers=OWN)
            assert answer.status_code == 400
            assert words in answer.json()["error"]


@pytest.mark.slow
def test_no_page_but_watching_runs_code_of_a_run(ask, tmp_path):
    """What a stranger's run names or holds is not imported and not unpickled."""
    harmed = tmp_path / "harmed"
    run = made_run(tmp_path / "runs" / "foreign", game="pickled:Game-1a2b3c4d")
    evil = f"cposix\nsystem\n(S'touch {harmed}'\ntR."
    (run / "code-1a2b3c4d.pkl").write_text(evil)
    (tmp_path / "runs" / "evil_module.py").write_text(f"open({str(harmed)!r}, 'w').close()\n")
    with (run / "config.yaml").open("a") as file:
        file.write("policy: {algorithm: 'evil_module:Thing'}\n")
    for name in ("runs", "run", "population", "timeline", "compare", "curves"):
        ask(tmp_path / "runs", name, run="foreign")
    assert not harmed.exists()
    # It would be by whoever opens it.
    with (run / "code-1a2b3c4d.pkl").open("rb") as file:
        pickle.load(file)
    assert harmed.exists()


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("who", ["other", "..", "~", "other@best", "agent_0/../other"])
def test_seats_are_not_taken_from_elsewhere(tmp_path, monkeypatch, who):
    """A name that is none of the run's might be that of a directory where the server stands."""
    fixed_run()
    (tmp_path / "other").symlink_to(fixed_run())
    monkeypatch.chdir(tmp_path)
    with client_of(place()) as client:
        wait_for_runs(client)
        asked = json.dumps({"run": "fixed", "seats": {"agent_0": who}})
        answer = client.post("/api/watch", content=asked, headers=OWN)
        if "/" in who:
            assert answer.status_code == 400
            return
        found = client.get("/api/watched", params={"watch": answer.json()["watch"]}).json()
        assert "cannot play here" in found["lines"][0]["error"]


class Watching(remuda.Callback):
    """Watches the run that it is called by as a page does, and then ends it."""

    def __init__(self, base):
        self.base, self.thread, self.found = base, None, {}

    def on_metrics(self, run, row):
        if self.thread is None:
            self.thread = threading.Thread(target=self.go, args=(run.directory,))
            self.thread.start()

    def go(self, directory):
        try:
            for control in (False, True):
                with Client(make_app(self.base, control=control)) as client:
                    wait_for_runs(client)
                    for seats in ({}, {"agent_0": "agent_0@live", "agent_1": "random"}):
                        asked = {"run": "run", "live": not seats, "seats": seats}
                        answer = client.post("/api/watch", content=json.dumps(asked), headers=OWN)
                        found = answer.json()
                        if answer.status_code == 200:
                            asked = {"watch": found["watch"], "count": 2}
                            found = client.get("/api/watched", params=asked).json()
                        self.found[control, bool(seats)] = found
            self.found["configured"] = self.watched_as_configured(directory)
            with Client(make_app(self.base, control=True)) as client:
                wait_for_runs(client)
                asked = json.dumps({"run": "run", "do": "weights", "policy": "agent_0"})
                answer = client.post("/api/control", content=asked, headers=OWN)
                self.found["weights"] = answer.json()
        finally:
            ask_run(directory, {"do": "stop"})

    def watched_as_configured(self, directory):
        """Without control, where the run's own configuration names a live seat."""
        config = directory / "config.yaml"
        text = config.read_text()
        config.write_text(text.replace("scripted: {}", "scripted: {agent_0: agent_1@live}", 1))
        assert config.read_text() != text
        try:
            with Client(make_app(self.base)) as client:
                wait_for_runs(client)
                asked = json.dumps({"run": "run", "seats": {}})
                name = client.post("/api/watch", content=asked, headers=OWN).json()["watch"]
                return client.get("/api/watched", params={"watch": name, "count": 2}).json()
        finally:
            config.write_text(text)

    def on_end(self, run, result):
        self.thread.join()


@pytest.mark.process
@pytest.mark.slow
def test_a_run_is_watched_as_it_plays_now(tmp_path):
    watching = Watching(tmp_path)
    remuda.train(
        "treasure_hunt",
        env={"num_envs": 2},
        run={"directory": str(tmp_path / "run"), "turns": None, "seconds": 600, "log_every": 0.1}
        | {"evaluate_episodes": 0, "live": False},
        checkpoint={"every": 3600, "evaluate_episodes": 0},
        callbacks=[watching],
        schedule="sequential",
    )
    assert "read-only" in watching.found[False, False]["error"]
    assert "read-only" in watching.found[False, True]["lines"][0]["error"]
    assert "read-only" in watching.found["configured"]["lines"][0]["error"]
    assert "do: Input should be 'stop'" in watching.found["weights"]["error"]
    about, turn = watching.found[True, False]["lines"]
    assert about["seats"] == {"agent_0": "agent_0", "agent_1": "agent_1"}
    assert min(about["versions"].values()) >= 1
    assert turn["turn"] == 0
    about, turn = watching.found[True, True]["lines"]
    assert about["seats"] == {"agent_0": "agent_0", "agent_1": "random"}
    assert set(about["versions"]) == {"agent_0"}


@pytest.mark.process
@pytest.mark.slow
def test_episodes_that_nobody_watches_end(monkeypatch):
    fixed_run()
    monkeypatch.setattr("remuda.ui.dashboard.watching.IDLE", 0.0)
    with client_of(place()) as client:
        wait_for_runs(client)
        before = children()
        client.post("/api/watch", content=json.dumps({"run": "fixed"}), headers=OWN)
        until = time.monotonic() + 120
        while children() - before and time.monotonic() < until:
            time.sleep(0.1)
        assert not children() - before


@pytest.mark.process
def test_it_ends_while_something_is_worked_out(tmp_path):
    """A ledger that never comes to its end holds the process that reads it."""
    run = made_run(tmp_path / "good")
    os.mkfifo(run / "ledger.bin")
    with client_of(tmp_path) as client:
        wait_for_runs(client)
        found = []
        asking = threading.Thread(
            target=lambda: found.append(client.get("/api/population", params={"run": "good"}))
        )
        asking.start()
        until = time.monotonic() + 120
        while not children("population") and time.monotonic() < until:
            time.sleep(0.05)
        assert children("population")
    asking.join(60)
    assert not asking.is_alive()
    assert not children("population")
    assert "none" in found[0].json()


@pytest.mark.slow
def test_what_works_something_out_ends_with_the_server(tmp_path):
    """However the server goes."""
    run = made_run(tmp_path / "good")
    os.mkfifo(run / "ledger.bin")
    script = (
        "import sys; from pathlib import Path; "
        "from remuda.runs.run_directory import RunDirectory; "
        "from remuda.ui.dashboard.population import PopulationPages; "
        "PopulationPages().of(RunDirectory(Path(sys.argv[1])))"
    )
    server = subprocess.Popen([sys.executable, "-c", script, str(run)])
    until = time.monotonic() + 120
    while time.monotonic() < until:
        there = psutil.Process(server.pid).children()
        if any("population" in " ".join(child.cmdline()) for child in there):
            break
        time.sleep(0.05)
    server.kill()
    server.wait()
    _, alive = psutil.wait_procs(there, timeout=60)
    assert there
    assert not alive
