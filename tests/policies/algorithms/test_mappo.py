"""MAPPO is PPO with a centralised critic; policies act on their own observation alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from torch import nn

import remuda
from equivalence.runs import assert_same, outcome, run, stops
from lucky_pair import LuckyPair
from policies.ppo_cases import bandit, make, play
from refusals import refuses
from remuda.config import load_config
from remuda.config.policy import PolicyConfig
from remuda.envs.observation_parts import Part
from remuda.errors import ConfigError, RemudaError, UsageError
from remuda.policies.algorithms.kernels.ppo import Fused
from remuda.policies.algorithms.ppo import PPO
from remuda.policies.networks.actor_critic import CriticInput
from remuda.policies.spec import Critic, PolicySpec
from remuda.population.specs import policy_specs
from remuda.system.rng import make_rng, torch_rng

MAPPO = {"algorithm": "mappo", "ppo": {"rollout_length": 20}, "n_frames": 1}
SHORT_EPISODES = {"options": {"max_turns": 40}}
PAIR = {"game": "lucky_pair:LuckyPair", "policy": MAPPO}
STATE = {**PAIR, "env": {"options": {"has_state": True}}}
TWO_FRAMES = {**PAIR, "policy": {**MAPPO, "n_frames": 2}}
SETTINGS = {
    "joint": PAIR,
    "one by one": {
        "game": "treasure_hunt",
        "env": SHORT_EPISODES,
        "policy": {**MAPPO, "n_frames": 2},
    },
    "state": STATE,
    "frames": TWO_FRAMES,
    "recurrent": {**PAIR, "policy": {**MAPPO, "network": {"recurrent": 8}}},
    "normalised": {**PAIR, "policy": {**MAPPO, "ppo": {"normalise_observations": True}}},
    "dealt": {**PAIR, "population": {"policies": 2, "matchmaker": "round_robin"}},
    "self-play": {**STATE, "population": {"matchmaker": "self_play"}},
    "module": {**PAIR, "policy": {**MAPPO, "network": {"value_module": f"{__name__}:Wide"}}},
}


class Wide(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(*shape, 12)

    def forward(self, rows):
        return self.layer(rows).tanh()


class Remembering(Wide):
    state_size = 4

    def forward(self, rows, state):
        return super().forward(rows), state


SHORT = {"run": {"turns": 400}}


def specs_of(**tree):
    config = load_config({**STATE, **tree})
    return policy_specs(config, LuckyPair(1, **config.env.options).agents)


def critic_of(added=3, policies=2, normalised=False):
    config = PolicyConfig.model_validate(
        {
            **MAPPO,
            "learning_rate": 1e-2,
            "network": {"hidden": [16, 16]},
            "ppo": {"minibatches": 2, "normalise_observations": normalised},
        }
    )
    others = (Part("", 0, (added,), is_pixels=False),)
    critic = Critic("joint", others, "float32", ((2 + added, 1.0),))
    actions = make().network.actions
    specs = [
        PolicySpec(f"p{k}", config, (2,), "float32", actions, critic=critic)
        for k in range(policies)
    ]
    rngs = [make_rng(0, "test", k) for k in range(policies)]
    algorithm = PPO([spec.config for spec in specs], specs[0].network(), rngs)
    for k in range(policies):
        algorithm.network.initialise(algorithm.online.of(k), torch_rng(0, "weights", k))
    return algorithm


def test_with_the_observation_alone_weights_are_ppo_s(tmp_path):
    both = [
        run(
            tmp_path / algorithm,
            schedule="sequential",
            env=SHORT_EPISODES,
            policy={**MAPPO, "algorithm": algorithm, "value": {"input": "observation"}},
            **SHORT,
        )
        for algorithm in ("ppo", "mappo")
    ]
    assert_same(*both, updates=1)


def test_a_policy_s_outputs_do_not_depend_on_the_critic_s_input():
    network = critic_of().network
    parameters = critic_of().online.parameters
    rows = torch.randn(2, 5, 5)
    others = rows.clone()
    others[..., 2:] += 1.0
    logits, values = network.policy_and_value(parameters, rows)
    other_logits, other_values = network.policy_and_value(parameters, others)
    assert torch.equal(logits, other_logits)
    assert not torch.allclose(values, other_values)
    acting = network.acting(parameters, None)
    torch.testing.assert_close(network.outputs(acting, rows[..., :2]), logits)


def test_stacked_frames_are_split():
    critic = CriticInput(2, 3, 2)
    own, added = critic.split(torch.arange(10.0)[None])
    assert own.tolist() == [[0, 1, 5, 6]]
    assert added.tolist() == [[2, 3, 4, 7, 8, 9]]


@pytest.mark.parametrize("normalised", [False, True])
def test_kernels_train_as_torch_does(normalised, monkeypatch):
    def trained(by_kernels):
        if not by_kernels:
            monkeypatch.setattr(Fused, "suits", staticmethod(lambda *_: False))
        algorithm = critic_of(normalised=normalised)
        assert (algorithm._memory is not None) == by_kernels
        random = np.random.default_rng(0)
        for _ in range(2):
            algorithm.update(play(algorithm, bandit, random, added=3), [0, 1])
        return algorithm.online.flat.clone()

    torch.testing.assert_close(trained(True), trained(False), rtol=1e-3, atol=1e-4)


@pytest.mark.process
@pytest.mark.slow_cases(
    "joint", "state", "frames", "recurrent", "normalised", "self-play", "module"
)
@pytest.mark.parametrize("setting", SETTINGS)
def test_lockstep_equals_sequential(setting, tmp_path):
    both = [
        run(tmp_path / schedule, schedule=schedule, **SETTINGS[setting], **SHORT)
        for schedule in ("sequential", "lockstep")
    ]
    assert_same(*both, updates=2)


@pytest.mark.slow_cases(
    "one by one", "state", "frames", "recurrent", "normalised", "self-play", "module"
)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_resumed_run_equals_an_uninterrupted_one(setting, tmp_path):
    tree = SETTINGS[setting] | {"schedule": "sequential"}
    whole = run(tmp_path / "whole", **tree, **SHORT)
    run(tmp_path / "parts", **tree, run={"turns": stops(setting, last=360)[0]})
    run(tmp_path / "parts", resume=True, **tree, **SHORT)
    assert_same(whole, outcome(tmp_path / "parts"), updates=2)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("setting", ["joint", "state"])
def test_worker_processes_change_nothing(setting, tmp_path):
    tree = {**SETTINGS[setting], "schedule": "sequential"}
    alone = run(tmp_path / "alone", **tree)
    env = {**tree.get("env", {}), "workers": 2}
    assert_same(alone, run(tmp_path / "workers", **{**tree, "env": env}), updates=2)


def test_a_saved_policy_acts_on_its_own_observation(tmp_path):
    run(tmp_path / "run", schedule="sequential", **STATE, run={"turns": 200})
    policy = remuda.load(tmp_path / "run")["agent_0"]
    assert policy.observation_space.shape == (2,)
    assert policy.act(np.zeros(2, np.float32)) in (0, 1)
    with refuses(UsageError, "value.input"):
        policy.module().state_values(torch.zeros(1, 2))


def test_other_algorithms_play_beside_it(tmp_path):
    others = {"agent_0": {"algorithm": "dqn"}}
    weights, counts = run(tmp_path / "run", schedule="sequential", **PAIR, **SHORT, policies=others)
    assert set(weights) == {"agent_0", "agent_1"}
    assert (counts["learn"][:, 0] > 1).all()


@pytest.mark.parametrize(
    ("given", "kind"),
    [("state_or_joint", "state"), ("joint", "joint"), ("state", "state"), ("observation", None)],
)
def test_the_state_is_taken_where_there_is_one(given, kind):
    policy = {"algorithm": "mappo", "value": {"input": given}}
    for spec in specs_of(policy=policy):
        assert (spec.critic and spec.critic.kind) == kind
    if given == "state_or_joint":
        (joint, _) = specs_of(policy=policy, env={})
        assert joint.critic.kind == "joint"


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"policy": {"value": {"input": "state"}}, "env": {}}, "state_space"),
        ({"policies": {"agent_0": {"value": {"input": "joint"}}}}, "agent_0"),
        ({"policy": {"network": {"shared": True}}}, "network.shared"),
        ({"policy": {"network": {"value_module": f"{__name__}:Remembering"}}}, "state_size"),
        ({"policy": {"network": {"module": f"{__name__}:Remembering"}}}, "value_module"),
    ],
    ids=["no state", "two kinds", "shared", "recurrent value", "recurrent module"],
)
def test_what_cannot_be_is_refused(tree, key):
    tree = {**tree, "policy": {"algorithm": "mappo", **tree.get("policy", {})}}
    with refuses(ConfigError, key):
        for spec in specs_of(**tree):
            spec.network()


def test_a_state_that_is_no_box_is_refused():
    config = load_config({**STATE, "policy": {"algorithm": "mappo"}})
    agents = [replace(each, state_space=Discrete(3)) for each in LuckyPair(1).agents]
    with refuses(ConfigError, "state_space"):
        policy_specs(config, agents)


def test_weights_of_another_kind_of_critic_are_refused(tmp_path):
    run(tmp_path / "run", schedule="sequential", **PAIR, run={"turns": 100})
    policy = {**MAPPO, "value": {"input": "state"}, "init_from": str(tmp_path / "run")}
    with refuses(RemudaError, "value.input"):
        run(tmp_path / "other", schedule="sequential", **{**STATE, "policy": policy})


@pytest.mark.process
@pytest.mark.slow
def test_a_run_is_exploited(tmp_path):
    run(tmp_path / "run", schedule="sequential", **PAIR, run={"turns": 100})
    found = remuda.exploit(tmp_path / "run", turns=200, exploiters=1, directory=tmp_path / "found")
    assert found
