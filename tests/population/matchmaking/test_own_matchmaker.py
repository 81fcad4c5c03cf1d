"""A user's matchmaker: what its methods return is used, or refused at once in one line."""

import sys

import numpy as np
import pytest

from refusals import refuses
from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.errors import CommandError, ConfigError
from remuda.population import Ledger, Matchmaker, Member, PolicyRef, Population
from remuda.population.own_code import state_of
from remuda.population.roster import Roster
from remuda.population.setup import check_population
from remuda.ui.cli.main import run


class Own(Matchmaker):
    """A matchmaker that seats a list of members, which is as good as a tuple."""

    def seat(self, population, ledger, rng):
        return [member.ref for member in population.learning[: self.num_seats]]


class SeatsNothing(Own):
    def seat(self, population, ledger, rng):
        return None


class SeatsMembers(Own):
    def seat(self, population, ledger, rng):
        return population.learning[: self.num_seats]


class SeatsNames(Own):
    def seat(self, population, ledger, rng):
        return ("policy_0", "policy_1")


class OneLearningSeat(Own):
    def learning_seats(self, seats):
        return 0


class LearningAgents(Own):
    def learning_seats(self, seats):
        return ["agent_0"]


class NoState(Own):
    def state(self):
        return None


class SetAsState(Own):
    def state(self):
        return {"met": {1, 2}}


class WithoutSuper(Own):
    def __init__(self, num_seats):
        self.seats = num_seats


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


def check(matchmaker):
    population = {"matchmaker": f"{__name__}:{matchmaker}", "policies": 3}
    config = load_config({"game": "rock_paper_scissors", "population": population})
    check_population(config, Roster.of(config, make_env(config.game, 1).agents))


@pytest.mark.parametrize("matchmaker", ["SeatsNothing", "SeatsMembers", "SeatsNames"])
def test_a_seating_of_a_wrong_type_is_refused(matchmaker):
    with refuses(CommandError, f"{matchmaker}: seat returned", "PolicyRef"):
        check(matchmaker)


@pytest.mark.parametrize("matchmaker", ["OneLearningSeat", "LearningAgents"])
def test_learning_seats_of_a_wrong_type_are_refused(matchmaker):
    with refuses(CommandError, f"{matchmaker}: learning_seats returned", "0 to 1"):
        check(matchmaker)


def test_a_matchmaker_that_does_not_call_its_base_class_is_refused():
    with refuses(ConfigError, "WithoutSuper", "super().__init__"):
        check("WithoutSuper")


def test_a_list_of_seats_becomes_a_tuple():
    population = Population([Member(PolicyRef(name)) for name in ("a", "b")])
    (match,) = Own(2).propose(population, Ledger(population), 1, np.random.default_rng(0))
    assert match.seats == (PolicyRef("a"), PolicyRef("b"))
    assert match.learns is None


@pytest.mark.parametrize("state", [None, {"met": {1, 2}}, {1: 2}, {"best": np.int64(3)}], ids=repr)
def test_a_state_that_no_checkpoint_can_contain_is_refused(state):
    with refuses(CommandError, "population.director mine:Mine: state returned"):
        state_of(state, "population.director mine:Mine")


def test_a_state_of_plain_data_and_arrays_is_kept():
    state = {"rounds": 3, "names": ["a"], "within": {"table": np.ones((2, 2), np.float32)}}
    assert state_of(state, "population.director mine:Mine") == state


@pytest.mark.parametrize("matchmaker", ["NoState", "SetAsState"])
def test_a_run_ends_in_one_line_that_names_class_and_method(matchmaker, tmp_path, capsys):
    words = ("rock_paper_scissors", "--schedule", "sequential", "--env.num_envs", "4")
    words += ("--policy.network.hidden", "8", "--policy.iqn.quantiles", "4")
    words += ("--population.policies", "3", "--run.turns", "40", "--run.evaluate_episodes", "0")
    words += ("--population.matchmaker", f"{__name__}:{matchmaker}")
    words += ("--checkpoint.evaluate_episodes", "0", "--run.directory", str(tmp_path / "run"))
    assert run(["train", *words]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"population.matchmaker {__name__}:{matchmaker}: state returned" in line
