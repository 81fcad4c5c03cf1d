"""Names of policies go into names of files: whatever they are, each has a file of its own."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from assembled import spec_of
from refusals import refuses
from remuda.actor.role import ActorRole
from remuda.config import load_config
from remuda.errors import ConfigError
from remuda.population.specs import policy_specs
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.system.checkpoint.names import COORDINATOR, file_name
from remuda.system.checkpoint.state import pack, unpack
from remuda.training.run import train
from remuda.ui.cli.main import run
from remuda.ui.terminal.live import PlainView
from support import Tape

ODD = (
    *("actor", "actor-0", "actor-1", "coordinator", "../x", "/etc/passwd", "", ".", "..", "a/b"),
    *("a%2Fb", "a b", "a\0b", "a\nb", "A", "a", "Ünïcødé", "x" * 300, "x" * 301, "learner-a..b"),
    *("%61ctor", "manifest.json", "lock", "con", "-rf", "~", "\udc80", "policy@3"),
)


def test_file_names_are_plain_and_differ():
    found = [file_name(name) for name in ODD]
    assert len(set(found)) == len(ODD)
    for name in found:
        assert 0 < len(name) <= 120
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-%")
        assert not name.startswith("-")
    for plain in ("agent_0", "policy_3", "born_0", "red-team"):
        assert file_name(plain) == plain


def test_no_policy_shares_a_part_with_a_role():
    """Of the roles, every part that there can be."""
    config = load_config({"schedule": "lockstep"})
    roles = [COORDINATOR]
    for actors in (1, 3):
        for index in range(actors):
            role = ActorRole(spec_of(config, ()), (), {}, None, None, (1,) * actors, index, None)
            roles += role.parts
    assert {"actor", "actor-1", "actor-2", "coordinator"} <= set(roles)
    assert not {file_name(name) for name in (*ODD, *roles)} & set(roles)


def test_a_state_has_names_of_any_kind():
    state = {name: {"weights": np.full(3, i)} for i, name in enumerate(["a/b", "a", "a%2Fb", "%"])}
    found = unpack(pack(state))
    for name, branch in state.items():
        assert (found[name]["weights"] == branch["weights"]).all()


class Odd(Tape):
    """Its agents are called what no file can be called."""

    def __init__(self, num_envs=1, names=("actor", "../x")):
        super().__init__(num_envs, len(names))
        self.agents = tuple(
            type(agent)(name, agent.observation_space, agent.action_space)
            for name, agent in zip(names, self.agents, strict=True)
        )


@pytest.mark.process
@pytest.mark.slow_cases("sequential-lockstep")
@pytest.mark.parametrize(
    "schedules",
    [
        ("sequential", "lockstep"),
        *(
            pytest.param((s, s), marks=pytest.mark.slow)
            for s in ("sequential", "lockstep", "async")
        ),
    ],
    ids="-".join,
)
def test_agents_of_any_name_are_trained_saved_and_resumed(schedules, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    directory = tmp_path / "deep" / "run"
    names = ["actor", "../x", "coordinator", "a/b"]
    tree = {
        "game": "system.checkpoint.test_names:Odd",
        "schedule": schedules[0],
        "env": {"options": {"names": names}},
        "policy": {
            "network": {"hidden": (8,)},
            "iqn": {"quantiles": 4},
            "batch_size": 16,
            "experience": {"learning_starts": 64, "capacity": 500, "replay_ratio": 0.2},
        },
        "learners": {"processes": 1},
        "run": {"turns": 200, "evaluate_episodes": 2, "directory": directory},
    }
    train(load_config(tree), PlainView())
    tree["run"] |= {"turns": 300}
    train(load_config(tree | {"schedule": schedules[1]}), PlainView(), resume=True)
    run_directory = RunDirectory.open(directory)
    snapshots = load_run(run_directory)[1]
    assert list(snapshots) == names
    ends = {snapshot.weights.tobytes() for snapshot in snapshots.values()}
    assert len(ends) == len(names)
    number = run_directory.checkpoints.numbers()[-1]
    assert set(load_run(run_directory, number)[1]) == set(names)
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"run"}
    manifest = run_directory.checkpoints.verify(number)
    parts = {file_name(name) for name in names} | {"coordinator"}
    parts |= {"actor"} if "async" not in schedules else set()
    assert set(manifest.files) == {f"{part}.safetensors" for part in parts}


@pytest.mark.parametrize(
    "name", ["", " ", "a/b", "a@3", "a.b", "../x", "x" * 65, "a\nb", "a\0", " a", "a ", "--x"]
)
def test_names_of_policies_are_checked(name):
    tree = {"population": {"matchmaker": "random", "policies": ["good", name]}}
    config = load_config(tree)
    with refuses(ConfigError, "population.policies") as error:
        policy_specs(config, Tape().agents)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("name", ["actor", "actor-0", "coordinator", "learner-a", "Ünïcødé"])
def test_a_policy_may_be_called_what_a_role_is_called(name):
    tree = {"population": {"matchmaker": "random", "policies": ["good", name]}}
    assert policy_specs(load_config(tree), Tape().agents)[1].name == name


@pytest.mark.slow
def test_a_population_with_the_names_of_roles_is_resumed(tmp_path, capsys):
    directory = tmp_path / "run"
    words = (
        *("rock_paper_scissors", "--schedule", "sequential", "--env.num_envs", "16"),
        *("--policy.algorithm", "ppo", "--policy.ppo.rollout_length", "8"),
        *("--policy.experience.segment_length", "1", "--population.matchmaker", "random"),
        *("--population.policies", "[actor,coordinator]", "--run.directory", str(directory)),
        *("--run.evaluate_episodes", "4", "--checkpoint.evaluate_episodes", "0"),
    )
    assert run(["train", *words, "--run.turns", "400"]) == 0
    assert run(["train", "--resume", str(directory), "--run.turns", "800"]) == 0
    capsys.readouterr()
    assert run(["evaluate", str(directory), "--episodes", "4", "--format", "json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["policies"]) == {"actor", "coordinator"}


def test_no_two_names_are_one_in_a_role(tmp_path):
    """A learner's log is named after its first and last policy."""
    pairs = itertools.permutations(["a", "b", "a..b", "b..a", "a/../b"], 2)
    names = [f"{file_name(a)}..{file_name(b)}" for a, b in pairs]
    names += [file_name(name) for name in ODD]
    assert len(set(names)) == len(names)
