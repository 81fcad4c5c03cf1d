"""`remuda dashboard` as a user begins it."""

import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from dashboard_runs import made_run


def begun(*words):
    command = [sys.executable, "-m", "remuda", "dashboard", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.process
@pytest.mark.slow_cases("15")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_address_that_is_printed_can_be_opened_at_once(tmp_path, number):
    made_run(tmp_path / "one")
    process = begun(str(tmp_path), "--port", "0")
    address = process.stdout.readline().split(" at ")[1].split()[0]
    with urllib.request.urlopen(address, timeout=120) as answer:
        assert b"<title>Remuda</title>" in answer.read()
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors


@pytest.mark.slow
def test_what_cannot_be_served_is_told_in_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words, said in (
            ((str(tmp_path / "nowhere"),), "there is no directory"),
            ((str(tmp_path), "--port", port), "Address already in use"),
            ((str(tmp_path), "--port", "70000"), "port"),
            ((str(tmp_path), "--host", "256.1.1.1", "--port", "0"), "cannot listen on 256.1.1.1"),
        ):
            process = begun(*words)
            _, errors = process.communicate(timeout=120)
            assert process.returncode in (1, 2)
            assert said in errors
            assert errors.count("\n") == 1


@pytest.mark.process
def test_elsewhere_there_is_a_token(tmp_path):
    process = begun(str(tmp_path), "--host", "0.0.0.0", "--port", "0")
    line = process.stdout.readline()
    process.terminate()
    process.communicate(timeout=120)
    assert "/?token=" in line
    assert len(line.split("token=")[1].split()[0]) >= 20
