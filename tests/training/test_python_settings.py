"""Networks, algorithms, matchmakers and policies that are given as objects, from Python."""

import pickle
import subprocess
import sys

import pytest
import yaml
from torch import nn

import remuda
from refusals import refuses
from remuda.config import PolicyConfig, load_config, over_own_environment
from remuda.errors import CheckpointError, ConfigError
from remuda.policies.algorithms.dqn import DQN
from remuda.system import loading
from remuda.training.python_settings import name_objects
from remuda.ui.terminal.live import PlainView

CELL = '''
import remuda
from torch import nn

UNITS = 8

class Torso(nn.Module):
    def __init__(self, shape, units=UNITS):
        super().__init__()
        self.layer = nn.Linear(shape[0], units)

    def forward(self, x):
        return self.layer(x).tanh()

class Own(remuda.RolloutAlgorithm):
    """The plain policy gradient."""

    preset = {"ppo": {"epochs": 1, "rollout_length": 20}, "learning_rate": 5e-3}
    settings = {"push": 1.0}

    def losses(self, rows):
        losses = -rows.settings["push"] * rows.advantages * rows.log_probs
        return losses, (rows.targets - rows.values).square()
'''
MATCHMAKER = """
from remuda.population.matchmaking.matchmaker import Matchmaker

class Neighbours(Matchmaker):
    seats_differ = True

    def __init__(self, num_seats):
        super().__init__(num_seats)
        self._at = 0

    def seat(self, population, ledger, random):
        learning = [member.ref for member in population.members if member.learns]
        self._at = (self._at + 1) % len(learning)
        return [learning[(self._at + seat) % len(learning)] for seat in range(self.num_seats)]
"""
SMALL = {
    "schedule": "sequential",
    "run": {"turns": 120, "evaluate_episodes": 0},
    "checkpoint": {"evaluate_episodes": 0},
}


def typed(source=CELL):
    """What a notebook's cell defines."""
    scope = {"__name__": "__main__"}
    exec(compile(source, "<cell>", "exec"), scope)
    return scope


def given(source=CELL):
    """Settings of a policy with both, as objects."""
    cell = typed(source)
    return {"algorithm": cell["Own"], "network": {"module": cell["Torso"]}}


def train(directory, game="support:Tape", **tree):
    run = {**SMALL["run"], **tree.pop("run", {}), "directory": directory}
    return remuda.train(game, config=SMALL, view=PlainView(), run=run, **tree)


def weights_of(directory):
    return (directory / "weights" / "agent_0.safetensors").read_bytes()


@pytest.fixture
def forget(monkeypatch):
    """Know no more of pickled code than another process does."""

    def forget():
        monkeypatch.setattr(loading, "PICKLES", {})
        monkeypatch.setattr(loading, "OBJECTS", {})

    return forget


@pytest.fixture(scope="module")
def of_a_cell(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cell") / "run"
    assert train(directory, policy=given() | {"settings": {"push": 2.0}}).finished
    return directory


def test_objects_are_named_where_they_may_stand():
    cell = typed()
    named = name_objects(
        {
            "policy": {"algorithm": cell["Own"], "network": {"module": cell["Torso"]}},
            "policies": {"agent_0": {"algorithm": DQN, "network": {"hidden": [8]}}},
            "population": {"matchmaker": typed(MATCHMAKER)["Neighbours"]},
            "seed": 3,
        }
    )
    assert named["policy"]["algorithm"].startswith("pickled:Own-")
    assert named["policy"]["network"]["module"].startswith("pickled:Torso-")
    assert named["policies"]["agent_0"] == {"algorithm": "dqn", "network": {"hidden": [8]}}
    assert named["population"]["matchmaker"].startswith("pickled:Neighbours-")
    assert named["seed"] == 3
    texts = {"policy": {"algorithm": "ppo", "init_from": "runs/old"}, "population": {}}
    assert name_objects(texts) == texts
    assert name_objects({"policy": 3, "population": None}) == {"policy": 3, "population": None}


def test_what_cannot_be_sent_or_is_none_is_told(tmp_path):
    import threading

    lock = threading.Lock()
    with refuses(remuda.UsageError, "policy.network.module"):
        name_objects({"policy": {"network": {"module": lambda shape: (lock, shape)}}})
    with refuses(ConfigError):
        train(tmp_path / "x", policy={"algorithm": typed()["Torso"]})
    module = typed()["Torso"]((5,))
    with refuses(ConfigError):
        train(tmp_path / "y", policy={"algorithm": "ppo", "network": {"module": module}})


@pytest.mark.slow
def test_a_run_with_code_of_a_cell_is_opened_by_another_process(of_a_cell, forget):
    tree = yaml.safe_load((of_a_cell / "config.yaml").read_text())["policy"]
    for name in (tree["algorithm"], tree["network"]["module"]):
        assert (of_a_cell / loading.file_name(name)).exists()
    forget()
    run = remuda.load(of_a_cell)
    assert run.config.policy.settings == {"push": 2.0}
    policy = run["agent_0"]
    assert next(iter(policy.weights())).startswith("hidden_module.layer")
    assert policy.act(policy.observation_space.sample()) in policy.action_space
    assert run.evaluate(episodes=2).returns.shape == (2, 2)
    again = pickle.dumps(policy)
    forget()
    assert pickle.loads(again).algorithm == policy.algorithm


def test_what_is_sent_to_a_process_holds_the_code(of_a_cell, forget):
    forget()
    sent = pickle.dumps(remuda.load(of_a_cell).config.policy)
    forget()
    assert pickle.loads(sent).entry.own


def test_a_run_whose_code_is_gone_is_told(of_a_cell, forget, tmp_path):
    forget()
    (tmp_path / "config.yaml").write_text((of_a_cell / "config.yaml").read_text())
    with refuses(ConfigError):
        remuda.load(tmp_path)


@pytest.mark.slow
def test_a_run_goes_on_with_its_code_and_with_mended_code(of_a_cell, tmp_path, forget):
    directory = tmp_path / "run"
    train(directory, policy=given())
    forget()
    on = {"resume": directory, "view": PlainView()}
    assert remuda.train(run={"turns": 160}, **on).record.turns == 160
    before = remuda.load(directory).config.policy.algorithm
    mended = given(CELL.replace("-rows.settings", "-2.0 * rows.settings"))
    assert remuda.train(policy=mended, run={"turns": 200}, **on).record.turns == 200
    after = remuda.load(directory).config.policy.algorithm
    assert before != after
    assert loading.without_digest(before) == loading.without_digest(after)
    with refuses(CheckpointError, "policy.algorithm"):
        remuda.train(policy={"algorithm": "ppo"}, run={"turns": 240}, **on)


@pytest.mark.slow
def test_a_policy_begins_with_one_that_is_given(of_a_cell, tmp_path, forget):
    forget()
    old = remuda.load(of_a_cell)
    (*_, number) = old.checkpoints
    assert old["agent_0"].reference == f"{of_a_cell}:agent_0@{old['agent_0'].version}"
    saved = old.policy("agent_1", checkpoint=number)
    assert saved.reference == f"{of_a_cell}:agent_1@checkpoint-{number}"
    policies = {"agent_0": {"init_from": old["agent_0"]}, "agent_1": {"init_from": saved}}
    train(tmp_path / "run", policy=given(), policies=policies)
    initial = remuda.load(tmp_path / "run").initial
    assert initial["agent_0"]["version"] == old["agent_0"].version
    assert initial["agent_0"]["policy"] == "agent_0"
    assert initial["agent_1"]["checkpoint"] == number
    lost = old["agent_0"]
    lost.reference = ""
    with refuses(remuda.UsageError, "policy.init_from"):
        train(tmp_path / "other", policy=given() | {"init_from": lost})


@pytest.mark.slow
def test_a_matchmaker_of_a_cell_deals_the_seats(tmp_path, forget):
    population = {"matchmaker": typed(MATCHMAKER)["Neighbours"], "policies": 3}
    train(
        tmp_path / "run", "rock_paper_scissors", policy={"algorithm": "ppo"}, population=population
    )
    forget()
    ledger = remuda.load(tmp_path / "run").ledger()
    one, other = (ledger[f"{agent}/policy"] for agent in ("agent_0", "agent_1"))
    assert {*zip(one, other, strict=True)} == {
        *(("policy_0", "policy_1"), ("policy_1", "policy_2"), ("policy_2", "policy_0"))
    }


@pytest.mark.slow
def test_processes_are_sent_the_code_and_train_as_one_does(of_a_cell, tmp_path):
    policy = given() | {"settings": {"push": 2.0}}
    train(tmp_path / "apart", schedule="lockstep", policy=policy)
    assert weights_of(tmp_path / "apart") == weights_of(of_a_cell)


SCRIPT = (
    CELL
    + """
def main():
    import sys

    result = remuda.train(
        "rock_paper_scissors",
        policy={"algorithm": Own, "network": {"module": Torso}},
        run={"turns": 200, "evaluate_episodes": 0, "directory": sys.argv[1]},
        checkpoint={"evaluate_episodes": 0},
    )
    print(remuda.load(result)["agent_0"].algorithm)


if __name__ == "__main__":
    main()
"""
)


@pytest.mark.slow
def test_a_script_trains_with_its_own_classes(tmp_path):
    (tmp_path / "mine.py").write_text(SCRIPT)
    words = [sys.executable, str(tmp_path / "mine.py"), str(tmp_path / "run")]
    out = subprocess.run(words, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines()[-1].startswith("pickled:Own-")
    code = f"import remuda; print(remuda.load({str(tmp_path / 'run')!r})['agent_0'].algorithm)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.startswith("pickled:Own-")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"policy_mapping_fn": len}, ["policy_mapping_fn", "population.sharing"]),
        ({"training": {"lr": 1e-3}}, ["training", "policy.learning_rate"]),
        ({"seeds": [1, 2]}, ["seeds", "remuda train --seeds"]),
        ({"population": {"sharing": {"all": ["agent_*"]}}}, ["{'agent_*': 'all'}"]),
    ],
)
def test_settings_of_other_libraries_are_refused_with_their_place_here(settings, words):
    with refuses(ConfigError, *words):
        remuda.train("support:Tape", **settings)


class TakesOneRow(nn.Module):
    """A user's module for observations without stacked frames."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 8)

    def forward(self, observations):
        batch, _size = observations.shape
        return self.layer(observations).reshape(batch, 8)


def test_a_module_that_cannot_take_stacked_frames_is_refused_with_n_frames():
    own = {"agent_1": {"network": {"module": TakesOneRow}, "n_frames": 2}}
    key = f"policies.agent_1.network.module {__name__}:TakesOneRow"
    with refuses(remuda.RemudaError, key, "policy.n_frames", "[5]"):
        remuda.train("support:Tape", policies=own)


def test_a_module_that_is_missing_is_named_by_its_own_key():
    own = {"agent_1": {"network": {"module": f"{__name__}:TakesOneRwo"}}}
    with refuses(ConfigError, "policies.agent_1.network.module"):
        remuda.train("support:Tape", policies=own)
    with refuses(ConfigError, "policy.network.module"):
        remuda.train("support:Tape", policy=own["agent_1"])


def test_a_section_sets_no_defaults_of_an_algorithm_that_it_does_not_choose():
    """Red before: PPO of a user's environment learned off-policy, as IQN does."""
    own = PolicyConfig(learning_rate=1e-4, network={"recurrent": 8, "hidden": (8,)})
    found = {"learning_rate": 1e-4, "network": {"recurrent": 8, "hidden": (8,)}}
    assert name_objects({"policy": own})["policy"] == found
    tree, _ = over_own_environment(
        {"game": "gymnasium:CartPole-v1", **name_objects({"policy": own})}
    )
    assert load_config(tree).policy.learning_mode == "on_policy"
    chosen = name_objects({"policy": PolicyConfig(algorithm="dqn")})["policy"]
    assert chosen == {"algorithm": "dqn", "learning_mode": "off_policy"}
