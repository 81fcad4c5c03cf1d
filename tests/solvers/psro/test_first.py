"""A double oracle that begins with the policies of a run, and oracles that begin with weights."""

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.errors import ConfigError, UsageError
from remuda.runs.run_directory import RunDirectory
from remuda.solvers.exploit.parse_target import find_target
from remuda.solvers.psro.iterations import NOTHING_NEW, Setup
from remuda.solvers.psro.record import read
from remuda.solvers.psro.settings import PsroSettings
from remuda.solvers.psro.trained import run_trained
from remuda.training.saved.policies import SavedPolicies
from remuda.ui.terminal.live import PlainView

GAME, GIVES = "public_goods:PublicGoods", "public_goods:gives"
NETWORK = {"network": {"hidden": [8], "activation": "tanh"}, "ppo": {"rollout_length": 4}}


@pytest.fixture(scope="module")
def learners(tmp_path_factory):
    """Three independent learners, by now somewhat keener to keep."""
    place = tmp_path_factory.mktemp("learners") / "run"
    remuda.train(
        GAME,
        env={"num_envs": 64},
        policy={"algorithm": "ppo", **NETWORK},
        schedule="sequential",
        run={"turns": 1280, "directory": str(place), "evaluate_episodes": 0},
        view="quiet",
    )
    return place


def settings_of(first, **changes):
    usual = {"oracle": "scripted", "scripted": (GIVES,), "matches": 400, "trials": 400}
    return PsroSettings(**{**usual, "first": first, "meta_solver": "nash", **changes})


@pytest.mark.parametrize("symmetric", [False, True])
def test_sets_begin_with_the_policies_of_a_run(learners, tmp_path, symmetric):
    settings = settings_of(learners, symmetric=symmetric)
    found = run_trained(Setup(GAME, {}, settings), tmp_path, PlainView())
    assert found.ended == NOTHING_NEW  # no gift is a gain
    assert found.last.policies == ((3,) if symmetric else (1, 1, 1))
    again = run_trained(Setup(GAME, {}, settings), tmp_path, PlainView(), resume=True)
    assert [each.as_line() for each in again.iterations] == [
        each.as_line() for each in found.iterations
    ]
    saved = SavedPolicies(RunDirectory.open(learners)).all()
    profile = find_target(tmp_path)
    assert sum(profile.shares) == pytest.approx(1.0)
    if not symmetric:
        (seats,) = profile.players
        for player, own in zip(seats, saved.values(), strict=True):
            assert (player.snapshot.weights == own.snapshot.weights).all()


def test_a_profile_of_a_double_oracle_is_played_as_it_is(learners, tmp_path):
    run_trained(Setup(GAME, {}, settings_of(learners)), tmp_path, PlainView())
    with refuses(UsageError):
        find_target(tmp_path, greedy=True)


def test_a_directory_without_a_profile_is_no_target(learners, tmp_path):
    """Red before: of no run, because it has no config.yaml; or the profile before the resume."""
    remuda.psro("kuhn_poker", iterations=0, directory=tmp_path / "exact")
    with refuses(UsageError):
        find_target(tmp_path / "exact")
    place, setup = tmp_path / "killed", Setup(GAME, {}, settings_of(learners))
    run_trained(setup, place, PlainView())

    def killed():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_trained(setup, place, PlainView(), resume=True, on_iteration=lambda _: killed())
    with refuses(UsageError):
        find_target(place)


def test_warm_oracles_begin_with_the_weights_of_their_role(learners, tmp_path):
    """Trained for fewer turns than a rollout has, so that nothing is learned."""
    settings = settings_of(
        learners,
        oracle="ppo",
        scripted=(),
        policy=NETWORK,
        candidates=2,
        warm=1,
        iterations=0,
        seconds=None,
        turns=64,
        num_envs=64,
        schedule="sequential",
    )
    run_trained(Setup(GAME, {}, settings), tmp_path, PlainView())
    saved = SavedPolicies(RunDirectory.open(learners)).all().values()
    oracles = SavedPolicies(RunDirectory.open(tmp_path / "iteration_0" / "oracles")).all()
    for role, own in enumerate(saved):
        warm, new = (oracles[f"oracle_{role}_{i}"].snapshot.weights for i in range(2))
        assert (warm == own.snapshot.weights).all()
        assert np.abs(new - own.snapshot.weights).max() > 0.01
    assert next(line for line in read(tmp_path) if "first_policies" in line)


def test_warm_oracles_need_the_network_of_the_first_policies(learners, tmp_path):
    """Red before: refused only after all matches of iteration 0."""
    other = {**NETWORK, "network": {"hidden": [8], "activation": "relu"}}
    settings = settings_of(learners, oracle="ppo", scripted=(), policy=other, warm=1)
    with refuses(ConfigError, "warm"):
        run_trained(Setup(GAME, {}, settings), tmp_path / "x", PlainView())
    assert not (tmp_path / "x").exists()


def test_the_run_of_the_first_policies_is_found_from_any_directory(learners, monkeypatch):
    """Red before: a resume from another directory failed."""
    monkeypatch.chdir(learners.parent)
    setup = Setup(GAME, {}, settings_of(learners.name))
    assert Setup.of(setup.description(), {}).settings.first == learners


def test_first_policies_that_remember_are_measured_in_matches(tmp_path):
    """Red before: refused, because the gains of a recurrent policy are not known exactly."""
    remuda.train(
        "kuhn_poker",
        env={"num_envs": 4},
        policy={"algorithm": "ppo", "network": {"hidden": [8], "recurrent": 4}},
        schedule="sequential",
        run={"turns": 16, "directory": str(tmp_path / "run"), "evaluate_episodes": 0},
        view="quiet",
    )
    settings = settings_of(
        tmp_path / "run",
        oracle="ppo",
        scripted=(),
        policy=NETWORK,
        seconds=None,
        turns=64,
        schedule="sequential",
        iterations=0,
        matches=50,
        trials=50,
    )
    found = run_trained(Setup("kuhn_poker", {}, settings), tmp_path / "psro", PlainView())
    assert not found.last.is_exact


def test_first_policies_are_of_the_same_game(learners, tmp_path):
    with refuses(ConfigError, "first"):
        run_trained(Setup("kuhn_poker", {}, settings_of(learners)), tmp_path / "x", PlainView())
    with refuses(UsageError, "warm"):
        remuda.psro(GAME, oracle="ppo", candidates=1, warm=2, directory=tmp_path / "y")
