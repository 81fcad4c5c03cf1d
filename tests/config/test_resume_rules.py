"""What a resumed run may change: it takes effect, is noted, and all else is refused by name."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import remuda
from equivalence.runs import assert_same, configure, outcome, run
from remuda.config import Config, PolicyConfig, fields_of, load_config, overlay
from remuda.config.hyperparameters import HYPERPARAMETERS
from remuda.config.resume_rules import ANYTHING, OF_POLICY, changes
from remuda.config.sections import conditions
from remuda.population.members.table_parts import POLICY
from remuda.runs.run_directory import RunDirectory
from remuda.training.run import train
from remuda.ui.cli.main import run as command
from remuda.ui.terminal.live import PlainView

TINY = 1e-30
"""A learning rate that changes nothing: a step is smaller than the last bit of any weight."""


def tree_of(algorithm, **tree):
    # Units of values, which change what is said of them and not what is meant, go their own way.
    ppo = {"rollout_length": 20, "normalise_values": False} if algorithm in ("ppo", "mappo") else {}
    policy = {"algorithm": algorithm, "ppo": ppo, "publish": {"every": 1}}
    return overlay({"schedule": "sequential", "policy": policy}, tree)


def lines(directory):
    return [json.loads(line) for line in (directory / "changes.jsonl").read_text().splitlines()]


def test_all_that_may_change_are_settings():
    keys = fields_of(PolicyConfig)
    assert [key for key in OF_POLICY if keys.get(key, "none") is not None] == []
    assert set(ANYTHING) <= set(fields_of(Config))


def test_the_page_lists_what_may_change():
    page = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
    text = page.read_text().split("what may be changed is listed:")[1].split("A change holds")[0]
    listed = re.findall(r"`([\w.]+)`", text.replace("- of `policy` and of each of `policies`", ""))
    assert listed == [*OF_POLICY, *ANYTHING]


def test_policies_are_compared_by_what_holds_for_each():
    def told(before, after):
        return [str(each) for each in changes(load_config(before), load_config(after))]

    plain = {"policy": {"learning_rate": 0.5}}
    assert told({}, {}) == []
    assert told(plain, overlay(plain, {"policies": {"a": {"learning_rate": 0.5}}})) == []
    assert told(plain, {"policies": {"a": {"learning_rate": 0.5}}}) == [
        "policy.learning_rate was 0.5 and is 0.0005"
    ]
    assert told({"policies": {"a": {"discount": 0.5}}}, {"policy": {"n_steps": 7}}) == [
        "policy.n_steps was 3 and is 7",
        "policies.a.discount was 0.5 and is 0.95",
    ]
    assert told({"env": {"options": {"x": 1}}}, {"seed": 3}) == [
        "seed was 0 and is 3",
        "env.options.x was 1 and is None",
    ]
    mixed = changes(load_config({}), load_config({"policies": {"a": {"n_frames": 2}}, "seed": 1}))
    assert not any(each.allowed for each in mixed)
    free = {"run": {"turns": 7}, "policies": {"a": {"exploration": {"end": 0.5}}}}
    assert all(each.allowed for each in changes(load_config({}), load_config(free)))
    assert told({}, {"run": {"directory": "x", "live": False}}) == []


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "mappo", "dqn", "iqn", "sac"])
def test_a_learning_rate_that_was_changed_is_learned_at(algorithm, tmp_path):
    directory = tmp_path / "run"
    before, _ = run(directory, **tree_of(algorithm, run={"turns": 300}))
    tree = tree_of(algorithm, policies={"agent_1": {"learning_rate": TINY}})
    after, counts = run(directory, resume=True, **tree, run={"turns": 500})
    assert counts["learn"][:, 0].min() >= 10
    assert (before["agent_1"] == after["agent_1"]).all()
    assert not (before["agent_0"] == after["agent_0"]).all()
    (line,) = lines(directory)
    assert line["turns"] == 300
    was = tree_of(algorithm)
    rate = configure(directory, **was).policy.learning_rate
    assert line["changes"]["policies.agent_1.learning_rate"] == [rate, TINY]
    assert line["changes"]["run.turns"] == [300, 500]
    again, _ = run(directory, resume=True, **tree, run={"turns": 600})
    assert (again["agent_1"] == after["agent_1"]).all()
    assert lines(directory)[1]["changes"] == {"run.turns": [500, 600]}


@pytest.mark.slow_cases("sequential")
@pytest.mark.parametrize(
    "schedule", ["sequential", pytest.param("lockstep", marks=pytest.mark.slow)]
)
def test_what_was_changed_stays_so_bit_for_bit(schedule, tmp_path):
    tree = tree_of("ppo", schedule=schedule)
    changed = overlay(tree, {"policy": {"learning_rate": 1e-4, "ppo": {"entropy_cost": 0.1}}})
    for name in ("one", "other", "unchanged"):
        run(tmp_path / name, **tree, run={"turns": 274})
    run(tmp_path / "one", resume=True, **changed)
    run(tmp_path / "other", resume=True, **changed, run={"turns": 500})
    run(tmp_path / "unchanged", resume=True, **tree)
    config = RunDirectory.open(tmp_path / "other").read_config()
    remuda.train(resume=tmp_path / "other", run={"turns": 800}, view=PlainView())
    assert config.policy.ppo.entropy_cost == 0.1
    assert_same(outcome(tmp_path / "one"), outcome(tmp_path / "other"), updates=5)
    unchanged, _ = outcome(tmp_path / "unchanged")
    changed, _ = outcome(tmp_path / "one")
    assert not (unchanged["agent_0"] == changed["agent_0"]).all()


VALUES = {
    "learning_rate": 1e-4,
    "adam_epsilon": 1e-4,
    "max_grad_norm": 1.5,
    "discount": 0.9,
    "reward_scale": 0.2,
    "share_rewards": 0.3,
    "max_nonfinite": 3,
    "priority": 2.0,
    "time_budget": None,
    "device": "cpu",
    "node": "here",
    "exploration.start": 0.9,
    "exploration.end": 0.2,
    "exploration.decay_steps": 1000,
    "publish.every": 2,
    "sac.tau": 0.01,
    "sac.target_entropy": -1.5,
    "dqn.target_every": 7,
    "iqn.target_every": 8,
    "ppo.epochs": 2,
    "ppo.minibatches": 2,
    "ppo.gae_lambda": 0.9,
    "ppo.clip": 0.3,
    "ppo.value_clip": 0.5,
    "ppo.value_cost": 0.7,
    "ppo.entropy_cost": 0.02,
    "ppo.anchor_every": 50,
    "ppo.anchor": "average",
    "ppo.target_kl": 0.5,
    "ppo.normalise_advantages": False,
    "ppo.max_staleness": 9,
    "ppo.correction": "none",
    "ppo.anneal_steps": 100_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "mappo", "dqn", "iqn", "sac"])
def test_all_that_may_change_can_be_gone_on_with(algorithm, tmp_path):
    assert set(VALUES) == set(OF_POLICY)
    policy = {}
    for key, value in VALUES.items():
        leaf = value
        for part in reversed(key.split(".")):
            leaf = {part: leaf}
        policy = overlay(policy, leaf)
    tree = tree_of(algorithm)
    run(tmp_path / "run", **tree, run={"turns": 300})
    later = {"policy": policy, "run": {"turns": 360 if algorithm == "sac" else 800}}
    result, counts = run(tmp_path / "run", resume=True, **overlay(tree, later))
    assert all(np.isfinite(weights).all() for weights in result.values())
    assert counts["learn"][:, 0].min() > 10
    after = load_config(overlay(tree, {"policy": policy})).policy
    idle = {key for key, only in conditions(PolicyConfig) if not only.reads(after)}
    idle |= set(after.entry.unused)
    noted = {f"policy.{key}" for key in OF_POLICY if key not in {"time_budget", *idle}}
    assert set(lines(tmp_path / "run")[0]["changes"]) == {*noted, "run.turns"}


@pytest.mark.slow
def test_a_population_learns_on_at_the_rates_that_were_changed(tmp_path):
    tree = {
        "schedule": "sequential",
        "env": {"num_envs": 4, "options": {"max_turns": 30}},
        "policy": {
            "algorithm": "ppo",
            "ppo": {"rollout_length": 10, "normalise_values": False},
            "publish": {"every": 1},
        },
        "population": {
            "matchmaker": "prioritized",
            "policies": 2,
            "snapshots": {"every": 4, "keep": 3},
        },
    }
    directory = tmp_path / "run"
    before, _ = run(directory, **tree, run={"turns": 400})
    changed = {"policy": {"learning_rate": TINY, "ppo": {"clip": 0.3}}}
    after, _ = run(directory, resume=True, **overlay(tree, changed))
    for name, weights in before.items():
        assert (weights == after[name]).all()
    kept = RunDirectory.open(directory).checkpoints
    table = kept.read(kept.numbers()[-1], "coordinator")["population"]
    rates = table["hyperparameters"][:, HYPERPARAMETERS.index("learning_rate")]
    clips = table["hyperparameters"][:, HYPERPARAMETERS.index("ppo.clip")]
    discounts = table["hyperparameters"][:2, HYPERPARAMETERS.index("discount")]
    assert rates[:2].tolist() == [TINY, TINY]
    assert clips[:2].tolist() == [0.3, 0.3]
    assert discounts.tolist() == [0.99, 0.99]
    copies = [i for i in range(2, len(rates)) if table["identity"][i, POLICY] >= 0]
    assert copies
    assert {rates[i] for i in copies} <= {TINY, 1e-3}


@pytest.mark.slow_cases(
    "--env.num_envs 3-env.num_envs was 2 and is 3",
    "--policies.agent_1.batch_size 8-policies.agent_1.batch_size was 16 and is 8",
    "--policy.init_from elsewhere-policy.init_from was None and is elsewhere",
    "--policy.n_steps 7-policy.n_steps was 3 and is 7; resume without",
)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--policy.n_steps 7", "policy.n_steps was 3 and is 7; resume without"),
        ("--policies.agent_1.batch_size 8", "policies.agent_1.batch_size was 16 and is 8"),
        ("--policy.init_from elsewhere", "policy.init_from was None and is elsewhere"),
        ("--env.num_envs 3", "env.num_envs was 2 and is 3"),
        ("--population.matchmaker random", "population.matchmaker was fixed and is random"),
    ],
)
def test_the_rest_is_refused_with_what_may_change(words, said, tmp_path, capsys):
    directory = tmp_path / "run"
    run(directory, **tree_of("dqn", run={"turns": 50}))
    files = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    capsys.readouterr()
    flags = [*words.split(), "--policy.learning_rate", "0.5"]
    assert command(["train", "--resume", str(directory), *flags]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert said in told
    assert "may change these keys of policy and policies.NAME: learning_rate, adam" in told
    assert "and everything in schedule, actor, learners" in told
    assert f"--policy.init_from {directory}" in told
    after = {p: p.read_bytes() for p in directory.rglob("*") if p.is_file() and p.name != "lock"}
    logs = {path for path in after if path.parent.name == "logs"}
    assert {p: after[p] for p in after if p not in logs} == {
        p: files[p] for p in files if p not in logs and p.name != "lock"
    }


@pytest.mark.slow
def test_what_the_user_writes_again_holds_for_a_population_that_has_changed_it(tmp_path):
    tree = tree_of(
        "ppo",
        env={"num_envs": 4, "options": {"max_turns": 30}},
        population={"matchmaker": "random", "policies": ["one", "other"]},
    )
    directory = tmp_path / "run"

    class Sets(remuda.Callback):
        def on_start(self, run):
            run.set_hyperparameters({"learning_rate": 0.125, "discount": 0.5}, "one")

    train(configure(directory, **tree, run={"turns": 100}), PlainView(), user_callbacks=[Sets()])
    usual = configure(directory, **tree).policy.learning_rate

    def now(name):
        kept = RunDirectory.open(directory).checkpoints
        table = kept.read(kept.numbers()[-1], "coordinator")["population"]
        return table["hyperparameters"][:2, HYPERPARAMETERS.index(name)].tolist()

    assert now("learning_rate") == [0.125, usual]
    changed = {"policy": {"learning_rate": usual}, "run": {"turns": 200}}
    remuda.train(resume=directory, view=PlainView(), **changed)
    assert now("learning_rate") == [usual, usual]
    assert now("discount")[0] == 0.5
    assert lines(directory)[0]["changes"] == {
        "run.turns": [100, 200],
        "policies.one.learning_rate": [0.125, usual],
    }


@pytest.mark.slow
def test_changes_are_said_and_noted_from_the_command_line(tmp_path, capsys):
    directory = tmp_path / "run"
    run(directory, **tree_of("dqn", run={"turns": 50}))
    capsys.readouterr()
    flags = ["--policy.learning_rate", "1e-4", "--run.turns", "100"]
    assert command(["train", "--resume", str(directory), *flags]) == 0
    assert "policy.learning_rate was 0.0005 and is 0.0001 from now on" in capsys.readouterr().out
    assert RunDirectory.open(directory).read_config().policy.learning_rate == 1e-4
    assert lines(directory)[0]["changes"] == {
        "policy.learning_rate": [0.0005, 0.0001],
        "run.turns": [50, 100],
    }
