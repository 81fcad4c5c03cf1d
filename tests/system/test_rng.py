"""Random streams: named, repeatable, and none equal to another."""

import os
import random
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import remuda
from remuda.system.rng import libraries_kept, make_rng, seed_libraries, torch_rng


def test_a_name_gives_the_same_stream_again():
    assert make_rng(3, "actor", "agent_0").random() == make_rng(3, "actor", "agent_0").random()
    first, second = (torch.rand(3, generator=torch_rng(3, "learner", 1)) for _ in range(2))
    assert torch.equal(first, second)


def test_no_two_streams_are_equal():
    names = [(0, "a"), (1, "a"), (0, "b"), (0, "a", "b"), (0, "a", 0), (0, "a", 1)]
    assert len({make_rng(*name).integers(2**62) for name in names}) == len(names)
    assert len({torch_rng(*name).initial_seed() for name in names}) == len(names)


def drawn():
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_the_global_generators_of_each_process_are_its_own_and_repeat():
    found = []
    for name in ("actor-0", "actor-1", "actor-0"):
        with libraries_kept():
            seed_libraries(3, name)
            found.append(drawn())
    assert found[0] == found[2]
    assert not set(found[0]) & set(found[1])


def test_what_a_run_seeds_is_put_back():
    seed_libraries(5)
    expected = drawn()
    seed_libraries(5)
    with libraries_kept():
        seed_libraries(6)
        drawn()
    assert drawn() == expected


class Draws(gymnasium.Env):
    """Writes what it draws from a global generator, and is paid it."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, folder=""):
        np.random.seed(0)  # as a module may do; every process runs it
        random.seed(0)
        torch.manual_seed(0)
        self.folder = folder

    def reset(self, seed=None, options=None):
        self.turn, self.paid = 0, drawn()
        if self.folder:
            with Path(self.folder, str(os.getpid())).open("a") as file:
                file.write(f"{self.paid}\n")
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.turn += 1
        return np.zeros(1, np.float32), sum(self.paid), self.turn == 3, False, {}


QUICK = {"algorithm": "dqn", "network": {"hidden": [8]}}


@pytest.mark.process
@pytest.mark.slow_cases("spread0")
@pytest.mark.parametrize("spread", [{"actor": {"processes": 2}}, {"env": {"workers": 2}}])
def test_processes_that_play_draw_other_numbers(tmp_path, spread):
    """Red before: 199 of 199 numbers that torch drew were the same in two actors."""
    (tmp_path / "drawn").mkdir()
    own = {"num_envs": 4, "options": {"folder": str(tmp_path / "drawn")}}
    settings = {**spread, "env": {**spread.get("env", {}), **own}}
    remuda.train(
        Draws,
        policy=QUICK,
        schedule="async",
        run={"turns": 200, "directory": tmp_path / "run", "evaluate_episodes": 0},
        checkpoint={"evaluate_episodes": 0},
        **settings,
    )
    lines = [file.read_text().splitlines() for file in (tmp_path / "drawn").iterdir()]
    # Whoever only looks at the game seeds it as its constructor does.
    numbers = [set(eval("[" + ",".join(each[2:]) + "]")) for each in lines if len(each) > 20]
    assert len(numbers) == 2
    for i in range(3):
        assert not {n[i] for n in numbers[0]} & {n[i] for n in numbers[1]}


def test_a_seeded_run_repeats_itself_whatever_was_drawn_before(tmp_path):
    """Red before: episodes that are drawn from a global generator were others each time."""
    found = []
    for i in range(2):
        drawn()
        before = torch.get_rng_state()
        found.append(
            remuda.train(
                Draws,
                policy=QUICK,
                schedule="sequential",
                run={"turns": 60, "directory": tmp_path / str(i), "evaluate_episodes": 6},
                checkpoint={"evaluate_episodes": 0},
            )
        )
        assert torch.equal(before, torch.get_rng_state())
    assert (found[0].evaluation.returns == found[1].evaluation.returns).all()
    assert found[0].evaluation.returns.std() > 0
