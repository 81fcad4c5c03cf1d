"""A user's director: every command is carried out, or refused at once, by name."""

import sys

import pytest

from remuda.errors import CommandError, RemudaError
from remuda.population.directors.director import Birth, Freeze, Retire
from remuda.population.ledger.records import PolicyRef
from remuda.ui.cli.main import run

WORDS = (
    *("rock_paper_scissors", "--env.num_envs", "4", "--policy.network.hidden", "8"),
    *("--policy.iqn.quantiles", "4", "--population.policies", "3"),
    *("--population.matchmaker", "random", "--run.turns", "300"),
    *("--run.evaluate_episodes", "0", "--checkpoint.evaluate_episodes", "0"),
)


class Once:
    """Commands `commands` once."""

    commands = ()

    def __init__(self):
        self.done = False

    def step(self, population, ledger, versions):
        if self.done or population.matches < 20:
            return []
        self.done = True
        return self.commands

    def state(self):
        return {"done": self.done}

    def restore(self, state):
        self.done = state["done"]


class FreezesAlways(Once):
    def step(self, population, ledger, versions):
        return [Freeze("policy_0")]


class ReturnsNothing(Once):
    commands = None


def train(directory, director, *words, schedule="sequential"):
    return run(
        [
            *("train", *WORDS, "--run.directory", str(directory), "--schedule", schedule),
            *("--population.director", f"{__name__}:{director}", *words),
        ]
    )


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


def test_a_freeze_is_carried_out_and_the_oldest_copy_makes_room(tmp_path, capsys):
    words = ("--population.snapshots.keep", "2")  # and no `every`: only the director freezes
    words += ("--policy.batch_size", "16", "--policy.experience.learning_starts", "64")
    words += ("--policy.publish.every", "1")
    assert train(tmp_path / "run", "FreezesAlways", *words) == 0
    assert "2 frozen copies" in capsys.readouterr().out


@pytest.mark.slow_cases(
    "Freeze-returned 'Freeze'",
    "None-returned None",
    "[Birth(policy='nobody', parent=None, hyperparameters={}, mutation=0.0, second=None, crossover=0.0, fitness=None, inherits_training=False)]-not an empty slot",  # noqa: E501
    "[Birth(policy='policy_0', parent='policy_1', hyperparameters={}, mutation=0.0, second=None, crossover=0.0, fitness=None, inherits_training=False)]-Birth.parent",  # noqa: E501
    "[Birth(policy='policy_0', parent=None, hyperparameters=['learning_rate'], mutation=0.0, second=None, crossover=0.0, fitness=None, inherits_training=False)]-Birth.hyperparameters",  # noqa: E501
    "[Birth(policy='policy_0', parent=None, hyperparameters={}, mutation=nan, second=None, crossover=0.0, fitness=None, inherits_training=False)]-Birth.mutation",  # noqa: E501
    "[Freeze(policy='nobody')]-policy_0, policy_1, policy_2",
    "[Freeze(policy=PolicyRef(policy='policy_0', version=-1))]-Freeze.policy",
    "[None]-a list with None",
    "[Retire(ref='policy_0')]-Retire.ref",
)
@pytest.mark.parametrize(
    ("commands", "key"),
    [
        (None, "returned None"),
        ("Freeze", "returned 'Freeze'"),
        ([None], "a list with None"),
        (["policy_0"], "a list with 'policy_0'"),
        ([Retire("policy_0")], "Retire.ref"),
        ([Freeze(PolicyRef("policy_0"))], "Freeze.policy"),
        ([Freeze("nobody")], "policy_0, policy_1, policy_2"),
        ([Birth("policy_0", parent="policy_1")], "Birth.parent"),
        ([Birth("policy_0", hyperparameters=["learning_rate"])], "Birth.hyperparameters"),
        ([Birth("policy_0", mutation=float("nan"))], "Birth.mutation"),
        ([Birth("nobody")], "not an empty slot"),
    ],
    ids=str,
)
def test_what_cannot_be_a_command_is_refused_by_the_directors_name(
    commands, key, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(Once, "commands", commands)
    assert train(tmp_path / "run", "Once") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "population.director" in line
    assert key in line


class SetAsState(Once):
    def state(self):
        return {"met": {1, 2}}


def test_a_state_that_no_checkpoint_can_contain_is_refused_before_the_run(tmp_path, capsys):
    assert train(tmp_path / "run", "SetAsState") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"population.director {__name__}:SetAsState: state returned" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_wrong_types_end_a_run_of_processes_without_a_restart(tmp_path, capsys):
    assert train(tmp_path / "run", "ReturnsNothing", schedule="lockstep") == 1
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert f"population.director {__name__}:ReturnsNothing: step returned None" in line
    assert "restarted" not in said.out


def test_a_refused_command_is_an_error_that_a_user_can_mend():
    assert issubclass(CommandError, RemudaError)
