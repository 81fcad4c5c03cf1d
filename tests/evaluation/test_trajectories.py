"""Files of trajectories are read back whole, or refused."""

import json

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.envs.description import EnvSpec
from remuda.errors import UsageError
from remuda.evaluation.trajectories import ABOUT, AgentTrajectories, Trajectories


def made():
    """Two trajectories of CartPole, of two and of three steps."""
    env = EnvSpec.of("gymnasium:CartPole-v1", {})
    ends = np.array([0, 1, 0, 0, 0], np.bool_), np.array([0, 0, 0, 0, 1], np.bool_)
    steps = AgentTrajectories(
        observations=np.arange(20, dtype=np.float32).reshape(5, 4),
        actions=np.array([0, 1, 1, 0, 1]),
        rewards=np.array([1, 2, 4, 8, 16], np.float32),
        terminations=ends[0],
        truncations=ends[1],
        masks=None,
        final_observations=np.ones((2, 4), np.float32),
        episodes=np.array([0, 1]),
        policies=("agent_0", "agent_0"),
    )
    return Trajectories(env, {"options": {}}, {"agent_0": steps}, "runs/x", True, 2)


@pytest.fixture
def file(tmp_path):
    return made().save(tmp_path / "data.npz")


def test_what_is_saved_is_read_back(file):
    data, steps = remuda.Trajectories.load(file), made()["agent_0"]
    assert (data.game, data.run, data.sampled) == ("gymnasium:CartPole-v1", "runs/x", True)
    assert dict(data.settings) == {"options": {}}
    assert "CartPole" in repr(data)
    found = data["agent_0"]
    assert found.policies == steps.policies
    for name in ("observations", "actions", "rewards", "truncations", "final_observations"):
        assert np.array_equal(getattr(found, name), getattr(steps, name))
        assert getattr(found, name).dtype == getattr(steps, name).dtype
    assert found.starts.tolist() == [0, 2]
    assert found.lengths.tolist() == [2, 3]
    assert found.returns.tolist() == [3, 28]


def test_a_file_is_replaced_whole_or_not_at_all(file, monkeypatch):
    before = file.read_bytes()

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("remuda.evaluation.trajectories.write_whole", fails)
    with refuses(UsageError, "No space left"):
        made().save(file)
    assert file.read_bytes() == before
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def rewritten(file, **changes):
    """Write the file again with other arrays; None removes one."""
    arrays = dict(np.load(file)) | {name.replace("__", "/"): a for name, a in changes.items()}
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    return file


def about(file, **changes):
    return np.array(json.dumps(json.loads(str(np.load(file)[ABOUT])) | changes))


def test_other_files_are_refused(tmp_path):
    with refuses(UsageError, "missing.npz"):
        Trajectories.load(tmp_path / "missing.npz")
    other = tmp_path / "other.npz"
    other.write_bytes(b"")
    with refuses(UsageError, "empty"):
        Trajectories.load(other)
    other.write_bytes(b"not a zip")
    with refuses(UsageError, "no trajectories"):
        Trajectories.load(other)
    np.savez(other, x=np.zeros(3))
    with refuses(UsageError, "no trajectories"):
        Trajectories.load(other)
    np.save(tmp_path / "array.npy", np.zeros(3))
    with refuses(UsageError, "no trajectories"):
        Trajectories.load(tmp_path / "array.npy")


def test_damage_is_refused(file):
    whole = file.read_bytes()
    for size in (1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(UsageError):
            Trajectories.load(file)
    file.write_bytes(whole)
    with refuses(UsageError, "damaged", "rewards"):
        Trajectories.load(rewritten(file, agent_0__rewards=None))


def test_arrays_that_do_not_fit_together_are_refused(file):
    with refuses(UsageError, "agent_0/actions"):
        Trajectories.load(rewritten(file, agent_0__actions=np.zeros(4, np.int64)))
    rewritten(file, agent_0__actions=np.zeros(5, np.int64), agent_0__policies=np.array(["a"]))
    with refuses(UsageError, "agent_0/policies"):
        Trajectories.load(file)


def test_another_format_is_refused(file):
    rewritten(file, about=about(file, format="remuda trajectories 9"))
    with refuses(UsageError, "format"):
        Trajectories.load(file)
    rewritten(file, about=about(file, format="remuda trajectories 1", game="tag"))
    with refuses(UsageError, "another game"):
        Trajectories.load(file)
