"""What was learned, put back into the models of a Sorrel environment."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import remuda.api.sorrel
from refusals import refuses
from remuda.envs.adapters.sorrel import SorrelCopies
from remuda.envs.registry import find_game, make_env
from remuda.errors import ConfigError, UsageError
from sorrel_double import Berries, Grass, Gridworld, Picker, RandomModel


class NoisyLinear(nn.Linear):
    """As Sorrel's: noise while it trains, means in evaluation."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.sigma_weight = nn.Parameter(torch.full((outputs, inputs), 0.017))
        self.sigma_bias = nn.Parameter(torch.full((outputs,), 0.017))

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        weight = self.weight + self.sigma_weight * torch.randn_like(self.weight)
        return nn.functional.linear(x, weight, self.bias + self.sigma_bias * torch.randn(1))


class IQN(nn.Module):
    """The network of Sorrel's PyTorchIQN, at given quantiles."""

    def __init__(self, inputs, actions, units, cosines=64):
        super().__init__()
        self.head1, self.cos_embedding = nn.Linear(inputs, units), nn.Linear(cosines, units)
        self.ff_1 = NoisyLinear(units, units)
        self.advantage, self.value = NoisyLinear(units, actions), NoisyLinear(units, 1)

    def forward(self, x, taus):
        pis = torch.pi * torch.arange(1, self.cos_embedding.weight.shape[1] + 1)
        embedded = torch.relu(self.cos_embedding(torch.cos(taus[:, None] * pis)))
        x = torch.relu(self.head1(x))[:, None] * embedded
        x = torch.relu(self.ff_1(x))
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(-1, keepdim=True)


class PyTorchIQN(RandomModel):
    """The model around it."""

    def __init__(self, size, actions, units=12):
        super().__init__(size, actions)
        self.n_frames, self.layer_size, self.n_quantiles = 5, units, 4
        self.qnetwork_local = IQN(5 * size, actions, units)
        self.qnetwork_target = IQN(5 * size, actions, units)

    def take_action(self, state):
        taus = (torch.arange(self.n_quantiles) + 0.5) / self.n_quantiles
        with torch.no_grad():
            said = self.qnetwork_local(torch.as_tensor(state, dtype=torch.float32), taus)
        return int(said.mean(1)[0].argmax())


class Learners(Berries):
    model = PyTorchIQN

    def setup_agents(self):
        size = 3 * self.world.width
        self.agents = [Picker(self.model(size, 2), 2) for _ in range(2)]


class Sharers(Learners):
    def setup_agents(self):
        super().setup_agents()
        self.agents[1].model = self.agents[0].model


def environment(kind=Learners):
    config = SimpleNamespace(experiment=SimpleNamespace(max_turns=12))
    return kind(Gridworld(1, 9, Grass), config)


@pytest.mark.slow
@pytest.mark.parametrize("dueling", [True, False])
def test_models_play_what_was_learned(tmp_path, dueling):
    """In their own loop: their networks say of every state what the policies' say."""
    env = environment()
    before = [agent.model.qnetwork_local.head1.weight.clone() for agent in env.agents]
    result = remuda.api.sorrel.train(
        env,
        schedule="sequential",
        policy={"network": {"dueling": dueling}},
        run={"turns": 300, "directory": str(tmp_path / "run"), "evaluate_episodes": 0},
    )
    run = remuda.load(result)
    taus = (torch.arange(4) + 0.5) / 4
    x = torch.rand(30, 5 * 27)
    for i, agent in enumerate(env.agents):
        model, policy = agent.model, run[f"agent_{i}"]
        assert not torch.equal(model.qnetwork_local.head1.weight, before[i])
        assert model.epsilon == 0.0
        assert policy.player.spec.config.network.hidden == (12, 12)
        ours = policy.module()(x.view(30, 5, 27))
        for network in (model.qnetwork_local, model.qnetwork_target):
            for mode in (True, False):
                said = network.train(mode)(x, taus).mean(1)
                torch.testing.assert_close(said * 0.1, ours, rtol=1e-4, atol=1e-5)


def test_other_models_stay_as_they_are(tmp_path, caplog):
    env = environment(Berries)
    remuda.api.sorrel.train(
        env,
        schedule="sequential",
        policy={"algorithm": "ppo", "network": {"hidden": [8]}},
        run={"turns": 50, "directory": str(tmp_path / "run"), "evaluate_episodes": 0},
    )
    assert "RandomModel is not a PyTorchIQN and is unchanged" in caplog.text


def test_a_policy_of_other_layers_leaves_the_model_alone(tmp_path, caplog):
    """Red before: it was a KeyError, after all of the training."""
    env = environment()
    before = [agent.model.qnetwork_local.head1.weight.clone() for agent in env.agents]
    remuda.api.sorrel.train(
        env,
        {"policies": {f"agent_{i}": {"algorithm": "ppo"} for i in range(2)}},
        schedule="sequential",
        run={"turns": 50, "directory": str(tmp_path / "run"), "evaluate_episodes": 0},
    )
    assert "agent_1 does not have the layers of a PyTorchIQN" in caplog.text
    for agent, weight in zip(env.agents, before, strict=True):
        assert torch.equal(agent.model.qnetwork_local.head1.weight, weight)


def test_a_model_of_two_agents_is_refused():
    with refuses(UsageError):
        remuda.api.sorrel.train(environment(Sharers))


def test_a_missing_package_is_told(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "sorrel", None)
    with refuses(ConfigError):
        find_game("sorrel:treasurehunt").make(1)
    with refuses(ConfigError):
        make_env("sorrel:chess", 1)


def test_agents_that_are_scripted_keep_their_models(tmp_path, caplog):
    """Red before: theirs got the first weights of a policy that was never trained."""
    env = environment()
    before = [agent.model.qnetwork_local.head1.weight.clone() for agent in env.agents]
    caplog.set_level("INFO", "remuda.api.sorrel")
    remuda.api.sorrel.train(
        env,
        schedule="sequential",
        env={"scripted": {"agent_1": "random"}},
        run={"turns": 300, "directory": str(tmp_path / "run"), "evaluate_episodes": 0},
    )
    stays = [
        torch.equal(agent.model.qnetwork_local.head1.weight, weight)
        for agent, weight in zip(env.agents, before, strict=True)
    ]
    assert stays == [False, True]
    assert [agent.model.epsilon for agent in env.agents] == [0.0, 0.5]
    assert "agent_1 is scripted (env.scripted), and its model is unchanged" in caplog.text


@pytest.mark.slow_cases("resume")
@pytest.mark.parametrize("where", ["settings", "config", "resume"])
def test_a_population_whose_seats_are_dealt_is_refused(tmp_path, where):
    """Red before: it was, by another message, after all of the training."""
    dealt = {"policies": 1, "matchmaker": "self_play"}
    run = {"turns": 100, "directory": str(tmp_path / "run"), "evaluate_episodes": 0}
    given = {"settings": {"population": dealt}, "config": {"config": {"population": dealt}}}
    if where == "resume":
        tree = {"schedule": "sequential", "population": dealt, "run": run, "policy": SMALL}
        remuda.train(environment_s_game, **tree)
    else:
        given[where] |= {"run": run}
    with refuses(UsageError):
        remuda.api.sorrel.train(
            environment(), **given.get(where, {"resume": str(tmp_path / "run")})
        )
    assert where == "resume" or not (tmp_path / "run").exists()


SMALL = {"algorithm": "ppo", "network": {"hidden": [4]}}


def environment_s_game(num_envs):
    return SorrelCopies(environment, num_envs)


def test_sorrel_s_defaults_are_for_new_runs_only(tmp_path):
    """Red before: a resume set the algorithm and the copies of the run back to Sorrel's."""
    own = {"policy": SMALL, "env": {"num_envs": 2}}
    quick = {"directory": str(tmp_path / "run"), "evaluate_episodes": 0}
    first = remuda.api.sorrel.train(
        environment(Berries), schedule="sequential", run={"turns": 50} | quick, **own
    )
    remuda.api.sorrel.train(environment(Berries), resume=first, run={"turns": 100})
    config = remuda.load(first).config
    assert (config.policy.algorithm, config.env.num_envs) == ("ppo", 2)


def test_a_preset_goes_over_sorrel_s_defaults(tmp_path):
    """Red before: the preset's algorithm and copies were Sorrel's, or its keys had no effect."""
    result = remuda.api.sorrel.train(
        environment(Berries),
        preset="mpe",
        schedule="sequential",
        policy={"network": {"hidden": [4]}},
        run={"turns": 70, "directory": str(tmp_path / "run"), "evaluate_episodes": 0},
    )
    config = remuda.load(result).config
    assert (config.policy.algorithm, config.env.num_envs) == ("ppo", 64)
