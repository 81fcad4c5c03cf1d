"""Losses of one's own that are not of each row are told, and nothing is learned from them."""

import numpy as np
import pytest
import torch

from policies import ppo_cases
from policies.algorithms.test_own_algorithms import SOFT, VANILLA, batch, transition_stack
from policies.own_algorithms import Soft, Vanilla
from refusals import refuses
from remuda.errors import ContractError
from remuda.ui.cli.main import run as command

OF_ROWS = {
    "a mean": lambda policy, value: (policy.mean(), value),
    "of policies": lambda policy, value: (policy.mean(1), value.mean(1)),
    "a column": lambda policy, value: (policy.unsqueeze(-1), value),
    "their sum": lambda policy, value: policy + value,
    "three": lambda policy, value: (policy, value, value),
    "nothing": lambda policy, value: None,
}
OF_SAMPLES = {
    "a mean": lambda loss, value: (loss.mean(), value),
    "of policies": lambda loss, value: (loss.mean(1), value),
    "alone": lambda loss, value: loss,
    "no values": lambda loss, value: (loss, None),
    "errors of policies": lambda loss, value: (loss, value, loss.mean(1)),
    "four": lambda loss, value: (loss, value, None, None),
    "of no weight": lambda loss, value: (loss.detach(), value),
}


@pytest.mark.parametrize("kind", OF_ROWS)
def test_losses_that_are_not_of_each_row_are_refused(kind, monkeypatch):
    made = OF_ROWS[kind]
    right = Vanilla.losses
    algorithm = ppo_cases.make(2, own=[{"algorithm": VANILLA}] * 2)
    rollout = ppo_cases.play(algorithm, ppo_cases.bandit, np.random.default_rng(0))
    monkeypatch.setattr(Vanilla, "losses", lambda self, rows: made(*right(self, rows)))
    with refuses(ContractError):
        algorithm.update(rollout, [0, 1])
    monkeypatch.undo()
    before = algorithm.online.flat.detach().clone()
    algorithm.update(rollout, [0, 1])
    assert not torch.equal(algorithm.online.flat, before)


@pytest.mark.parametrize("kind", OF_SAMPLES)
def test_a_loss_that_is_not_of_each_sample_is_refused(kind, monkeypatch):
    made = OF_SAMPLES[kind]
    right = Soft.loss
    algorithm = transition_stack(SOFT, 2)
    before = algorithm.online.flat.detach().clone()
    monkeypatch.setattr(Soft, "loss", lambda self, batch, part: made(*right(self, batch, part)))
    with refuses(ContractError):
        algorithm.update(batch(2, 0))
    assert torch.equal(algorithm.online.flat, before)
    monkeypatch.undo()
    algorithm.update(batch(2, 0))
    assert not torch.equal(algorithm.online.flat, before)


@pytest.mark.process
@pytest.mark.slow_cases("Averaged-async", "Averaged-sequential", "Summed-async")
@pytest.mark.parametrize("schedule", ["async", "sequential"])
@pytest.mark.parametrize("name", ["Summed", "Averaged"])
def test_a_run_says_whose_losses_are_wrong(name, schedule, tmp_path, capsys):
    words = ["train", "tag", "--policy.algorithm", f"policies.own_algorithms:{name}"]
    words += ["--run.directory", str(tmp_path / "run"), "--schedule", schedule]
    words += ["--policy.experience.learning_starts", "100"] if name == "Averaged" else []
    assert command([*words, "--run.turns", "5000", "--run.evaluate-episodes", "0"]) != 0
    shown = " ".join("".join(capsys.readouterr()).split())
    assert f"policy.algorithm policies.own_algorithms:{name}: loss" in shown
    assert "Traceback" not in shown
