"""A recorded policy is cloned into weights that other runs start with."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from pettingzoo import ParallelEnv

import remuda
from refusals import refuses
from remuda.errors import ConfigError, RunDirectoryError, UsageError
from short_runs import trained

PPO = {"algorithm": "ppo", "network": {"hidden": (16,)}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("imitated")


@pytest.fixture(scope="module")
def kuhn(folder):
    return trained(folder / "kuhn", "kuhn_poker")


@pytest.fixture(scope="module")
def data(kuhn, folder):
    kuhn.record(30, to=folder / "kuhn.npz")
    return folder / "kuhn.npz"


def test_a_clone_may_have_a_centralised_critic(data, tmp_path):
    mappo = {**PPO, "algorithm": "mappo"}
    clone = remuda.imitate(data, policy=mappo, directory=tmp_path / "clone", epochs=1)
    policy = {**mappo, "init_from": str(clone.path)}
    started = trained(tmp_path / "started", "kuhn_poker", policy=policy)
    assert set(started.initial) == {"agent_0", "agent_1"}


def test_a_clone_acts_as_its_model_and_others_start_from_it(kuhn, data, tmp_path):
    clone = remuda.imitate(
        data, policy=PPO, agents="agent_1", directory=tmp_path / "clone", epochs=60
    )
    assert clone.path == tmp_path / "clone"
    steps = remuda.Trajectories.load(data)["agent_1"]
    acts = clone["agent_1"].act(steps.observations, mask=steps.masks)
    assert (acts == steps.actions).mean() > 0.9
    assert clone.config.env.scripted == {"agent_0": "random"}
    assert len(clone.evaluate(4).returns) == 4
    policies = {"agent_1": {"init_from": clone["agent_1"]}}
    started = trained(tmp_path / "started", "kuhn_poker", policies=policies, policy=PPO)
    assert started.initial["agent_1"]["run"] == str(clone.path)
    assert "agent_0" not in started.initial


def test_alike_agents_share_a_clone(data, tmp_path):
    one = remuda.imitate(data, policy=PPO, directory=tmp_path / "one", epochs=1)
    weights, other = one["agent_0"].weights(), one["agent_1"].weights()
    assert all(np.array_equal(weights[name], other[name]) for name in weights)
    assert one.config.env.scripted == {}
    twice = remuda.imitate([data, data], policy=PPO, directory=tmp_path / "two", epochs=1)
    assert set(twice) == {"agent_0", "agent_1"}


def test_a_population_starts_from_a_clone(data, tmp_path):
    clone = remuda.imitate(data, policy=PPO, directory=tmp_path / "clone", epochs=1)
    population = {"matchmaker": "self_play", "policies": 1, "snapshots": {"every": 2, "keep": 3}}
    policy = PPO | {"init_from": f"{clone.path}:agent_0"}
    run = trained(tmp_path / "run", "kuhn_poker", population=population, policy=policy)
    assert run.initial["policy_0"]["policy"] == "agent_0"


class Unlike(ParallelEnv):
    """Two agents, whose parts of observations and actions differ."""

    metadata = {"name": "unlike"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def observation_space(self, agent):
        near = Box(-1, 1, (2,), np.float32)
        return Dict(near=near, state=Tuple([Discrete(3 if agent == "a" else 4)]))

    def action_space(self, agent):
        return Dict(go=Discrete(2, start=3), turn=Discrete(3)) if agent == "a" else Discrete(2)

    def reset(self, seed=None, options=None):
        self.rng, self.agents, self.turn = np.random.default_rng(seed), ["a", "b"], 0
        return self.shown(), {"a": {}, "b": {}}

    def shown(self):
        return {
            agent: {
                "near": self.rng.uniform(-1, 1, 2).astype(np.float32),
                "state": (int(self.rng.integers(3)),),
            }
            for agent in ("a", "b")
        }

    def step(self, actions):
        self.turn += 1
        over = self.turn == 5
        self.agents = [] if over else self.agents
        each = {agent: {} for agent in "ab"}
        return (
            self.shown(),
            dict.fromkeys("ab", 1.0),
            dict.fromkeys("ab", over),
            dict.fromkeys("ab", False),
            each,
        )


@pytest.mark.parametrize("policy", [PPO, {"algorithm": "dqn", "network": {"hidden": (16,)}}])
def test_parts_of_observations_and_actions_are_cloned(policy, tmp_path):
    run = trained(tmp_path / "run", Unlike)
    data = run.record(40, to=tmp_path / "data.npz")
    assert data["a"].observations["state"][0].shape == (200,)
    assert set(data["a"].actions["go"].tolist()) <= {3, 4}
    clone = remuda.imitate(
        data, policy=policy, agents=["a"], directory=tmp_path / "clone", epochs=60, batch_size=32
    )
    acts = clone["a"].act(data["a"].observations)
    same = [(acts[part] == data["a"].actions[part]).mean() for part in acts]
    assert min(same) > 0.9
    with refuses(UsageError, "a and b", "agents='a'"):
        remuda.imitate(data, policy=policy, directory=tmp_path / "both")


def test_other_data_is_refused(data, folder, tmp_path):
    to = tmp_path / "clone"
    trained(folder / "tape", "support:Tape").record(2, to=folder / "tape.npz")
    with refuses(UsageError, "kuhn_poker", "support:Tape"):
        remuda.imitate([data, folder / "tape.npz"], directory=to)
    with refuses(UsageError, "kuhn_poker", "leduc_poker"):
        remuda.imitate(data, game="leduc_poker", directory=to)
    (tmp_path / "text.npz").write_text("no trajectories")
    with refuses(UsageError, "no trajectories"):
        remuda.imitate(tmp_path / "text.npz", directory=to)
    for other in ([], [3], tmp_path / "missing.npz"):
        with pytest.raises(UsageError):
            remuda.imitate(other, directory=to)
    assert not to.exists()


def test_data_of_other_options_is_refused(folder, tmp_path):
    options = {"options": {"lengths": [2]}}
    trained(folder / "short", "support:Tape", env=options).record(2, to=folder / "short.npz")
    trained(folder / "long", "support:Tape").record(2, to=folder / "long.npz")
    with refuses(UsageError, "options or spaces"):
        remuda.imitate([folder / "short.npz", folder / "long.npz"], directory=tmp_path / "clone")


def test_data_without_steps_is_refused(data, tmp_path):
    whole = remuda.Trajectories.load(data)
    empty = {agent: next(steps.trajectories()) for agent, steps in whole.items()}
    for steps in empty.values():
        for name in ("observations", "actions", "rewards", "terminations", "truncations", "masks"):
            object.__setattr__(steps, name, getattr(steps, name)[:0])
    nothing = remuda.Trajectories(whole.env, whole.settings, empty, "run", False, 0)
    with refuses(UsageError, "no step"):
        remuda.imitate(nothing, directory=tmp_path / "clone")


def test_arguments_and_networks_that_do_not_fit_are_refused(data, tmp_path):
    to = tmp_path / "clone"
    with refuses(UsageError, "agent_7", "agent_0, agent_1"):
        remuda.imitate(data, agents="agent_7", directory=to)
    with refuses(ConfigError, "iqn", "dqn, ppo, mappo, sac"):
        remuda.imitate(data, policy={"algorithm": "iqn"}, directory=to)
    with refuses(ConfigError, "recurrent"):
        remuda.imitate(data, policy={"algorithm": "ppo", "network": {"recurrent": 8}}, directory=to)
    assert not to.exists()


@pytest.mark.parametrize("option", [{"epochs": 0}, {"batch_size": 1.5}, {"learning_rate": -1}])
def test_numbers_that_cannot_be_used_are_refused(option, data, tmp_path):
    with refuses(UsageError, *option):
        remuda.imitate(data, directory=tmp_path / "clone", **option)


def test_a_directory_that_is_taken_is_refused(kuhn, data):
    with refuses(RunDirectoryError, str(kuhn.path)):
        remuda.imitate(data, policy=PPO, directory=kuhn.path)


def test_weights_that_are_not_finite_are_refused(data, tmp_path):
    whole = remuda.Trajectories.load(data)
    whole["agent_0"].observations[:] = np.inf
    with refuses(UsageError, "not finite"):
        remuda.imitate(whole, policy=PPO, agents="agent_0", directory=tmp_path / "clone")
    assert not (tmp_path / "clone").exists()
