"""Runs are recorded in the spaces of their environments, to a file and for Minari."""

import dataclasses
import sys
import types

import gymnasium
import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.errors import UsageError
from remuda.evaluation import recording
from remuda.evaluation.recording import dataset_names, write_minari
from remuda.ui.cli.main import run as command
from short_runs import trained


@pytest.fixture(scope="module")
def kuhn(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("recorded") / "run", "kuhn_poker")


def test_episodes_are_those_of_an_evaluation(kuhn, tmp_path):
    recorded = kuhn.record(7, to=tmp_path / "data.npz", seed=3)
    returns = kuhn.evaluate(7, seed=3).returns
    data = remuda.Trajectories.load(tmp_path / "data.npz")
    assert (data.game, data.num_episodes, data.sampled) == ("kuhn_poker", 7, False)
    assert data.run == str(kuhn.path)
    assert list(data) == ["agent_0", "agent_1"]
    for i, (agent, steps) in enumerate(data.items()):
        assert sorted(steps.returns.tolist()) == sorted(returns[:, i].tolist())
        assert steps.policies == (agent,) * 7
        assert steps.episodes.tolist() == list(range(7))
        assert steps.starts.tolist() == np.cumsum([0, *steps.lengths[:-1]]).tolist()
        assert steps.terminations.sum() == 7
        assert steps.masks[np.arange(len(steps)), steps.actions].all()
        policy = kuhn[agent]
        assert (policy.act(steps.observations, mask=steps.masks) == steps.actions).all()
        assert np.array_equal(recorded[agent].observations, steps.observations)


def test_each_trajectory_can_be_taken_alone(kuhn, tmp_path):
    steps = kuhn.record(5, to=tmp_path / "data.npz")["agent_1"]
    alone = list(steps.trajectories())
    assert [len(one) for one in alone] == steps.lengths.tolist()
    assert [float(one.returns[0]) for one in alone] == steps.returns.tolist()
    assert np.array_equal(np.concatenate([one.actions for one in alone]), steps.actions)


def test_sampled_play_differs_from_greedy_play(tmp_path):
    run = trained(tmp_path / "run", "support:Tape")
    greedy = run.record(20, to=tmp_path / "data.npz", sampled=False)
    drawn = run.record(20, to=tmp_path / "data.npz", sampled=True)
    assert drawn.sampled
    assert len(set(drawn["agent_0"].actions.tolist())) > 1
    assert not np.array_equal(greedy["agent_0"].actions, drawn["agent_0"].actions)


def test_a_population_and_scripted_agents_are_named(tmp_path):
    population = {"matchmaker": "self_play", "policies": 1, "snapshots": {"every": 2, "keep": 3}}
    run = trained(tmp_path / "run", "rock_paper_scissors", population=population)
    data = run.record(4, to=tmp_path / "data.npz", scripted={"agent_1": "random"})
    assert set(data["agent_0"].policies) == {"policy_0"}
    assert set(data["agent_1"].policies) == {"random"}


@pytest.mark.slow
def test_the_command_writes_the_same_file(kuhn, tmp_path, capsys):
    file = tmp_path / "data.npz"
    words = ["record", str(kuhn.path), "--episodes", "4", "--seed", "2", "--to", str(file)]
    assert command(words) == 0
    assert f"wrote {file}: 4 episodes" in capsys.readouterr().out
    one, other = remuda.Trajectories.load(file), kuhn.record(4, to=file, seed=2)
    assert np.array_equal(one["agent_0"].actions, other["agent_0"].actions)


def test_a_file_that_cannot_be_written_is_refused_before_play(kuhn, tmp_path):
    with refuses(UsageError, "data.csv", ".npz"):
        kuhn.record(2, to=tmp_path / "data.csv")
    with refuses(UsageError, "nowhere"):
        kuhn.record(2, to=tmp_path / "nowhere" / "data.npz")
    with refuses(UsageError, "episodes"):
        kuhn.record(0, to=tmp_path / "data.npz")
    assert list(tmp_path.iterdir()) == []


class Speaker(gymnasium.Env):
    """An environment with text in its observation."""

    observation_space = gymnasium.spaces.Dict(
        text=gymnasium.spaces.Text(3, charset="ab"), number=gymnasium.spaces.Discrete(2)
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"text": "ab", "number": 1}, {}

    def step(self, action):
        return {"text": "ab", "number": 1}, 0.0, True, False, {}


def test_observations_that_are_no_arrays_are_refused(tmp_path):
    run = trained(tmp_path / "run", Speaker)
    with refuses(UsageError, "agent_0", "Text"):
        run.record(2, to=tmp_path / "data.npz")


def test_minari_is_refused_where_it_is_missing_or_misnamed(kuhn, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with refuses(UsageError, ".[minari]"):
        kuhn.record(2, to="minari:kuhn-v0")
    with refuses(UsageError, "minari:NAME-v0"):
        kuhn.record(2, to="minari:kuhn")


@dataclasses.dataclass
class Buffer:
    """Minari's `EpisodeBuffer`, with the fields that all its versions have."""

    id: int
    observations: object
    actions: object
    rewards: list
    terminations: list
    truncations: list


@pytest.fixture
def minari(monkeypatch):
    """A double of Minari that holds the arguments of `create_dataset_from_buffers`, by name."""
    made = {}
    module = types.ModuleType("minari")
    module.list_local_datasets = lambda: dict(made)
    module.create_dataset_from_buffers = lambda dataset_id, **rest: made.update({dataset_id: rest})
    collector = types.ModuleType("minari.data_collector")
    collector.EpisodeBuffer = Buffer
    monkeypatch.setitem(sys.modules, "minari", module)
    monkeypatch.setitem(sys.modules, "minari.data_collector", collector)
    return made


def test_minari_gets_a_data_set_for_each_agent(kuhn, minari):
    data = kuhn.record(3, to="minari:poker/kuhn-v1")
    assert list(minari) == ["poker/kuhn-agent_0-v1", "poker/kuhn-agent_1-v1"]
    made, steps = minari["poker/kuhn-agent_1-v1"], data["agent_1"]
    assert made["observation_space"] == kuhn["agent_1"].observation_space
    assert made["action_space"] == kuhn["agent_1"].action_space
    assert "kuhn_poker" in made["description"]
    assert [each.id for each in made["buffer"]] == [0, 1, 2]
    first = made["buffer"][0]
    length = int(steps.lengths[0])
    assert len(first.observations) == length + 1
    assert np.array_equal(first.observations[-1], steps.final_observations[0])
    assert len(first.actions) == len(first.rewards) == len(first.truncations) == length
    assert first.terminations == [False] * (length - 1) + [True]


def test_agents_whose_names_differ_in_special_characters_have_data_sets_of_their_own():
    names = dataset_names("poker-v1", ("a b", "a_b_2", "a_b", "a.b"))
    assert list(names.values()) == [
        "poker-a_b-v1",
        "poker-a_b_2-v1",
        "poker-a_b_3-v1",
        "poker-a_b_4-v1",
    ]


def test_a_game_of_one_agent_has_one_data_set(tmp_path, minari):
    run = trained(tmp_path / "run", "gymnasium:CartPole-v1")
    run.record(2, to="minari:cartpole-v0")
    assert list(minari) == ["cartpole-v0"]


def test_data_sets_that_exist_are_refused_before_play(kuhn, minari, monkeypatch):
    """Red before: with several agents it was refused after the play, with a part written."""
    minari["kuhn-agent_1-v0"] = {}
    monkeypatch.setattr(recording, "play_recorded", None)
    with refuses(UsageError, "kuhn-agent_1-v0"):
        kuhn.record(2, to="minari:kuhn-v0")
    assert list(minari) == ["kuhn-agent_1-v0"]


def test_an_error_of_minari_is_one_line(kuhn, minari, monkeypatch, tmp_path):
    def taken(**_):
        raise ValueError("A Minari dataset with ID kuhn-agent_0-v0 already exists")

    monkeypatch.setattr(sys.modules["minari"], "create_dataset_from_buffers", taken)
    data = kuhn.record(2, to=tmp_path / "data.npz")
    with refuses(UsageError, "kuhn-agent_0-v0"):
        write_minari(data, "kuhn-v0")


def test_an_agent_that_never_acts_has_no_steps(tmp_path):
    run = trained(tmp_path / "run", "absent_agents:Guests")
    run.record(4, to=tmp_path / "data.npz")
    data = remuda.Trajectories.load(tmp_path / "data.npz")
    assert len(data["ghost"]) == 0
    assert data["ghost"].observations.shape == (0, 3)
    assert len(data["host"]) > 0
    clone = remuda.imitate(data, agents=["host", "ghost"], directory=tmp_path / "clone", epochs=1)
    assert "host" in clone
