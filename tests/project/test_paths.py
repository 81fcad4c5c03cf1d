"""The benchmark of paths: what it counts as work, and the game that it plays."""

import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from remuda.config import load_config
from remuda.envs.contract import check_env
from remuda.envs.registry import make_env
from remuda.population.specs import policy_specs

BENCHMARKS = str(Path(__file__).resolve().parents[2] / "benchmarks")


@pytest.fixture
def paths(monkeypatch):
    """The program, and nothing of it afterwards."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    before, found = set(sys.modules), list(sys.path)
    import paths

    yield paths
    sys.path[:] = found
    for name in set(sys.modules) - before:
        if BENCHMARKS in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_every_path_is_a_configuration_that_holds(paths):
    for path in paths.PATHS.values():
        for policies, dealt in ((1, False), (8, True)):
            config = load_config(path.tree(policies, dealt))
            env = make_env(config.game, 2, **config.env.options)
            assert len(policy_specs(config, env.agents)) == policies


@pytest.mark.parametrize(
    "layers",
    [
        {"hidden": (64, 64)},
        {"hidden": (32,), "seen": "grid", "convolutions": ((16, 3, 1), (32, 3, 1))},
        {"hidden": (64,), "seen": "screen", "convolutions": ((32, 8, 4), (64, 4, 2))},
    ],
)
def test_operations_are_those_that_torch_counts(paths, layers):
    path = paths.PathOfTraining(**layers)
    space = __import__("path_game").seen_of(path.seen)
    modules, width = [], space.shape[0]
    for out, kernel, stride in path.convolutions:
        modules.append(torch.nn.Conv2d(width, out, kernel, stride))
        width = out
    modules.append(torch.nn.Flatten())
    width = torch.nn.Sequential(*modules)(torch.zeros(1, *space.shape)).shape[1]
    for units in (*path.hidden, 5):
        modules.append(torch.nn.Linear(width, units))
        width = units
    network, seen = torch.nn.Sequential(*modules), torch.zeros(1, *space.shape)
    with FlopCounterMode(display=False) as once:
        network(seen)
    with FlopCounterMode(display=False) as both:
        network(seen).sum().backward()
    operations, _ = path.work()
    forward, passes = once.get_total_flops(), paths.EPOCHS
    assert operations == 2 * forward + passes * both.get_total_flops()


@pytest.mark.slow_cases("continuous")
@pytest.mark.parametrize("does", ["discrete", "masked", "several", "continuous"])
def test_its_game_keeps_the_contract(paths, does):
    from path_game import PathGame

    check_env(lambda copies: PathGame(copies, 3, "flat", does))
