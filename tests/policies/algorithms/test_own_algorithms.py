"""Algorithms of the user's own: told of, refused, and held to what is promised of every one."""

import numpy as np
import pytest
import torch

import remuda
from equivalence.runs import assert_same, outcome, run, stops
from policies.made_rollouts import KINDS
from refusals import refuses
from remuda.config import PolicyConfig, load_config
from remuda.config.algorithm_registry import BUILT_IN, find_algorithm
from remuda.config.unused_settings import unused_settings
from remuda.errors import ConfigError
from remuda.policies.actions import DiscreteActions
from remuda.policies.algorithms.transition_algorithm import Transitions
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.system.rng import torch_rng
from remuda.ui.cli.main import run as command
from remuda.ui.terminal.live import PlainView

OWN = "policies.own_algorithms"
VANILLA, SOFT = f"{OWN}:Vanilla", f"{OWN}:Soft"
FROM_ROLLOUTS = {"rollout_length": 20, "normalise_rewards": True, "anneal_steps": 2000}


def test_what_a_class_tells_of_itself():
    entry = find_algorithm(VANILLA)
    assert (entry.takes, entry.samples, entry.own) == ("rollouts", True, True)
    config = PolicyConfig.model_validate({"algorithm": VANILLA})
    assert (config.learning_rate, config.ppo.epochs) == (5e-3, 2)
    assert config.network.hidden == (64, 64), "the rest is as PPO has it"
    config = PolicyConfig.model_validate({"algorithm": VANILLA, "learning_rate": 1e-4})
    assert config.learning_rate == 1e-4
    config = PolicyConfig.model_validate({"algorithm": SOFT})
    assert (config.n_steps, config.n_frames, config.rollout_length) == (1, 5, 0)
    assert config.last_epsilon == 1.0, "it draws, as long as it trains"


def test_a_policy_may_have_an_algorithm_of_its_own():
    config = load_config({"game": "tag", "policies": {"agent_0": {"algorithm": SOFT}}})
    assert config.policy_of("agent_0").n_steps == 1
    assert config.policy_of("agent_1").n_steps == 3


@pytest.mark.parametrize(
    "name",
    [
        "sarsa",
        f"{OWN}:Absent",
        "no_such_module:A2C",
        f"{OWN}:Stranger",
        f"{OWN}:Unfinished",
        f"{OWN}:Headless",
    ],
)
def test_what_is_no_algorithm_is_refused_in_one_line(name, tmp_path, capsys):
    words = ["train", "tag", "--policy.algorithm", name, "--run.directory", str(tmp_path / "run")]
    assert command([*words, "--run.turns", "100"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "Traceback" not in shown
    with refuses(AssertionError):  # so that the pattern may be one
        raise AssertionError(shown)
    assert not (tmp_path / "run").exists()


def test_settings_that_it_does_not_read_are_told():
    tree = {"algorithm": VANILLA, "ppo": {"clip": 0.1}, "batch_size": 32}
    assert unused_settings(load_config({"game": "tag", "policy": tree})) == [
        f"policy.batch_size has no effect: it is for iqn, dqn and sac, not {VANILLA}; use "
        "policy.ppo.rollout_length and policy.ppo.minibatches",
        f"policy.ppo.clip has no effect: {VANILLA} does not use it",
    ]
    tree = {"policies": {"agent_0": {"algorithm": SOFT, "dqn": {"double": False}}}}
    assert unused_settings(load_config({"game": "tag"} | tree)) == [
        f"policies.agent_0.dqn.double has no effect: {SOFT} does not use it"
    ]


def test_an_unknown_key_among_those_it_does_not_use_is_refused():
    with refuses(ConfigError):
        load_config({"game": "tag", "policy": {"algorithm": f"{OWN}:Former"}})


def test_one_made_from_iqn_has_the_settings_of_iqn():
    config = PolicyConfig.model_validate({"algorithm": f"{OWN}:Finer", "iqn": {"huber": 0.5}})
    assert (config.quantiles, config.q_learning.huber) == (7, 0.5)
    tree = {"algorithm": f"{OWN}:Finer", "dqn": {"huber": 0.5}}
    (said,) = unused_settings(load_config({"game": "tag", "policy": tree}))
    assert said.endswith("use policy.iqn.huber")


def test_settings_of_its_own_are_known_by_name():
    config = PolicyConfig.model_validate({"algorithm": SOFT, "settings": {"tau": 0.5}})
    assert config.settings == {"tau": 0.5}
    with refuses(ConfigError):
        load_config({"game": "tag", "policy": {"algorithm": SOFT, "settings": {"tao": 0.5}}})
    with refuses(ConfigError):
        load_config({"game": "tag", "policy": {"algorithm": SOFT, "settings": {"tau": "slow"}}})
    with refuses(ConfigError):
        load_config({"game": "tag", "policy": {"algorithm": "ppo", "settings": {"tau": 0.5}}})


def transition_stack(algorithm, policies, settings=()):
    specs = []
    for k in range(policies):
        own = {"settings": settings[k]} if settings else {}
        tree = {"algorithm": algorithm, "n_frames": 1, "network": {"hidden": (16,)}} | own
        config = PolicyConfig.model_validate(tree)
        specs.append(PolicySpec("a", config, (2,), "float32", DiscreteActions((3,))))
    made = make_algorithm(specs, [torch_rng(0, "test", k) for k in range(policies)])
    for k in range(policies):
        made.network.initialise(made.online.of(k), torch_rng(0, "weights", k))
    made.target.flat.copy_(made.online.flat.detach())
    return made


def batch(policies, seed):
    g = torch.Generator().manual_seed(seed)
    s = torch.rand(policies, 16, 2, generator=g)
    a = torch.randint(3, (policies, 16), generator=g)
    reward = s[..., 0] * (a == 1) - s[..., 1] * (a == 2)
    return Transitions(s, a, reward, torch.full_like(reward, 0.5), s.clone())


@pytest.mark.parametrize("algorithm", ["dqn", "iqn", SOFT])
def test_a_stack_learns_as_its_policies_would_alone(algorithm):
    settings = [{"tau": 0.1}, {"temperature": 0.5}, {}] if algorithm == SOFT else ()
    together = transition_stack(algorithm, 3, settings)
    singles = [transition_stack(algorithm, 3, settings) for _ in range(3)]
    for seed in range(5):
        whole = batch(3, seed)
        together.update(whole)
        for k in range(3):
            fields = (getattr(whole, name)[k : k + 1] for name in Transitions.__annotations__)
            singles[k].update(Transitions(*fields), k, k + 1)
    for k in range(3):
        for name in ("online", "target"):
            torch.testing.assert_close(
                getattr(together, name).flat[k], getattr(singles[k], name).flat[k]
            )
    assert not torch.equal(together.target.flat, together.online.flat)


def test_the_rollout_stacks_are_tested_with_one_too():
    """`test_any_rollout` goes over these kinds."""
    assert any(kind.get("algorithm", "").endswith(":Vanilla") for kind in KINDS.values())


@pytest.mark.slow_cases(
    "policies.own_algorithms:Soft-sequential", "policies.own_algorithms:Vanilla-sequential"
)
@pytest.mark.parametrize(
    "schedule", ["sequential", pytest.param("lockstep", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("algorithm", [VANILLA, SOFT])
def test_a_resumed_run_equals_an_uninterrupted_one(algorithm, schedule, tmp_path):
    tree = {
        "schedule": schedule,
        "policy": {"algorithm": algorithm, "ppo": FROM_ROLLOUTS},
        "learners": {"processes": 2},
    }
    whole = run(tmp_path / "whole", **tree)
    run(tmp_path / "parts", **tree, run={"turns": stops(algorithm, schedule)[0]})
    run(tmp_path / "parts", resume=True, **tree, run={"turns": 800})
    assert_same(whole, outcome(tmp_path / "parts"))


LEARNS = {
    "ppo": {"ppo": {"rollout_length": 32}},
    "dqn": {"n_frames": 1, "n_steps": 1, "learning_rate": 3e-3},
    "iqn": {"n_frames": 1, "n_steps": 1, "learning_rate": 3e-3},
    VANILLA: {"ppo": {"rollout_length": 32}},
    SOFT: {"n_frames": 1},
}
OF_TRANSITIONS = {
    "exploration": {"decay_steps": 1500},
    "experience": {"learning_starts": 100},
    "network": {"hidden": (32,)},
    "iqn": {"quantiles": 4, "cosines": 8, "target_every": 50},
    "dqn": {"target_every": 50},
    "discount": 0.9,
    "reward_scale": 1.0,
}


@pytest.mark.slow
@pytest.mark.parametrize("game", ["Bandit", "Corridor"])
@pytest.mark.parametrize("algorithm", LEARNS)
def test_every_algorithm_learns_a_bandit_and_a_corridor(algorithm, game, tmp_path):
    policy = {"algorithm": algorithm, **LEARNS[algorithm]}
    if find_algorithm(algorithm).takes == "transitions":
        policy = remuda.config.overlay(OF_TRANSITIONS, policy)
    result = remuda.train(
        f"policies.tiny_games:{game}",
        schedule="sequential",
        seed=1,
        policy=policy,
        env={"num_envs": 8},
        run={"turns": 12_000, "evaluate_episodes": 32, "directory": tmp_path / "run"},
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
    )
    assert result.evaluation.mean(0) == pytest.approx(1.0), "the best there is"
    assert not result.halted


def test_built_in_entries_tell_what_their_classes_do():
    for name, entry in BUILT_IN.items():
        kind = entry.load()
        assert (kind.takes, kind.samples) == (entry.takes, entry.samples), name
        assert np.all([hasattr(PolicyConfig(), k.split(".")[0]) for k in entry.hyperparameters])
