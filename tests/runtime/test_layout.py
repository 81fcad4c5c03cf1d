"""Layout: policies are dealt to processes and devices as the machine and the user say."""

import pytest

from remuda.config import load_config
from remuda.errors import ConfigError
from remuda.runtime import layout as module
from remuda.runtime.layout import make_layout


@pytest.fixture
def machine(monkeypatch):
    def be(cores, gpus=()):
        monkeypatch.setattr(module, "_cores", lambda: cores)
        monkeypatch.setattr(module, "_gpus", lambda: gpus)
        monkeypatch.setattr(module, "_check_device", lambda device: None)

    return be


def test_one_process_per_policy_where_cores_allow(machine):
    machine(8)
    assert make_layout(load_config({}), 3).groups == ((0,), (1,), (2,))


def test_groups_otherwise(machine):
    machine(2)
    assert make_layout(load_config({}), 5).groups == ((0, 1, 2), (3, 4))


def test_as_the_user_says(machine):
    machine(2)
    config = load_config({"learners": {"processes": 3}})
    assert make_layout(config, 4).groups == ((0, 1), (2,), (3,))
    assert make_layout(config, 2).groups == ((0,), (1,))


def test_devices_go_round(machine):
    machine(4, ("cuda:0", "cuda:1"))
    assert make_layout(load_config({}), 3).devices == ("cuda:0", "cuda:1", "cuda:0")
    config = load_config({"learners": {"devices": ["cpu"]}})
    assert make_layout(config, 2).devices == ("cpu", "cpu")


def test_a_device_that_is_not_there_is_refused():
    for device in ("cuda:77", "gpu"):
        with pytest.raises(ConfigError, match=device):
            make_layout(load_config({"learners": {"devices": [device]}}), 2)
