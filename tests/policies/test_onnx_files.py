"""ONNX files: what is in them, and how they are written."""

import errno
import logging
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx
import pytest
import torch

import remuda
from onnx_cases import (
    CASES,
    made,
    observations_of,
)
from refusals import refuses
from remuda.errors import UsageError


@pytest.mark.slow
def test_every_input_and_output_is_explained(tmp_path):
    policy = made(*CASES["recurrent, masks and frames"])
    graph = onnx.load(policy.to_onnx(tmp_path / "policy.onnx")).graph
    said = {value.name: value.doc_string for value in (*graph.input, *graph.output)}
    assert said.keys() == {
        *("observation", "mask", "recurrent_state", "starts"),
        *("action", "network_output", "next_recurrent_state"),
    }
    assert all(said.values())
    assert "newest 2 observations of the episode, the oldest first" in said["observation"]
    meaning = {"dqn": "values of all actions", "ppo, continuous": "means, then logarithms"}
    for case, words in meaning.items():
        graph = onnx.load(made(*CASES[case]).to_onnx(tmp_path / "policy.onnx")).graph
        assert words in graph.output[1].doc_string


@pytest.mark.slow
def test_equal_policies_have_equal_files_that_tell_nothing_of_the_machine(tmp_path):
    case = CASES["recurrent, masks and frames"]
    one = made(*case).to_onnx(tmp_path / "one.onnx").read_bytes()
    assert one == made(*case).to_onnx(str(tmp_path / "other.onnx")).read_bytes()
    for word in (b".py", b"site-packages", str(Path(remuda.__file__).parent).encode(), b"torch"):
        assert word not in one


@pytest.mark.slow
def test_it_does_not_matter_what_torch_is_set_to(tmp_path):
    policy = made(*CASES["recurrent"])
    expected = policy.to_onnx(tmp_path / "one.onnx").read_bytes()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert policy.to_onnx(tmp_path / "two.onnx").read_bytes() == expected


@pytest.mark.slow
def test_nothing_else_is_changed(tmp_path):
    policy = made(*CASES["recurrent"])
    policy.act(observations_of(policy.observation_space, 3, 0))
    state, weights = policy.remembered, policy.weights()
    random, log = torch.random.get_rng_state(), logging.getLogger("torch.onnx")
    log.setLevel(logging.INFO)
    try:
        policy.to_onnx(tmp_path / "policy.onnx")
        assert log.level == logging.INFO
    finally:
        log.setLevel(logging.NOTSET)
    assert (torch.random.get_rng_state() == random).all()
    assert (policy.remembered.recurrent_state == state.recurrent_state).all()
    assert all((weights[name] == values).all() for name, values in policy.weights().items())


@pytest.mark.slow
def test_nothing_is_said(tmp_path):
    """In a program of a user's, which pytest does not listen to."""
    (tmp_path / "policy").write_bytes(pickle.dumps(made(*CASES["recurrent"])))
    program = "import pickle; pickle.load(open('policy', 'rb')).to_onnx('policy.onnx')"
    words = [sys.executable, "-W", "default::UserWarning", "-W", "default::FutureWarning"]
    done = subprocess.run(
        [*words, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "policy.onnx").stat().st_size > 1000


@pytest.mark.slow
def test_several_threads_may_write(tmp_path):
    policies = [made(*CASES[case]) for case in ("dqn", "ppo", "recurrent")]
    with ThreadPoolExecutor(3) as pool:
        files = [f"{i}.onnx" for i in range(3)]
        paths = list(pool.map(lambda one, file: one.to_onnx(tmp_path / file), policies, files))
    for policy, path in zip(policies, paths, strict=True):
        assert path.read_bytes() == policy.to_onnx(tmp_path / "again.onnx").read_bytes()


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_package_that_is_missing_is_named_with_what_to_do(package, tmp_path, monkeypatch):
    policy = made(*CASES["dqn"])
    monkeypatch.setitem(sys.modules, package, None)
    with refuses(UsageError):
        policy.to_onnx(tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    policy = made(*CASES["dqn"])
    path = tmp_path / "policy.onnx"
    path.write_text("old")

    def full(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with refuses(UsageError):
            policy.to_onnx(path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["policy.onnx"]
    policy.to_onnx(path)
    onnx.checker.check_model(str(path))


@pytest.mark.slow
def test_a_place_that_cannot_be_written_is_told(tmp_path):
    policy = made(*CASES["dqn"])
    with refuses(UsageError):
        policy.to_onnx(tmp_path / "nowhere" / "policy.onnx")
    with refuses(UsageError):
        policy.to_onnx(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_program_of_the_page_runs_without_remuda(tmp_path):
    """As printed, in a process that cannot import Remuda or torch."""
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    (program,) = re.findall(
        r"```python\n# choose.py\n(import json\n.*?onnxruntime.*?)```", page, re.DOTALL
    )
    policy = made(*CASES["recurrent, masks and frames"])
    policy.to_onnx(tmp_path / "agent_0.onnx")
    hidden = "import sys\nsys.modules['remuda'] = sys.modules['torch'] = None\n"
    (tmp_path / "choose.py").write_text(hidden + program)
    words = [sys.executable, "choose.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 10
