"""Warm starts: policies begin with the weights of another run, and their optimizers too."""

import json
import re
import shutil

import pytest

import remuda
from assembled import assemble
from equivalence.runs import assert_same, configure, outcome, run
from refusals import refuses
from remuda.config import load_config, overlay
from remuda.config.unused_settings import unused_settings
from remuda.envs.registry import make_env
from remuda.errors import ConfigError
from remuda.policies.stack import layout_size
from remuda.population.specs import policy_specs
from remuda.runs.run_directory import RunDirectory
from remuda.runtime.layout import make_layout
from remuda.training.python_settings import name_objects
from remuda.training.run import train
from remuda.training.saved.policies import Reference, SavedPolicies
from remuda.training.warm_start import find_beginnings
from remuda.ui.cli.main import run as command
from remuda.ui.terminal.live import PlainView

ALGORITHMS = ("ppo", "dqn", "iqn")
PPO = {"rollout_length": 20, "normalise_observations": True}
NOT_A_TURN = {"turns": 1}


def tree_of(algorithm, **tree):
    policy = {"algorithm": algorithm, "ppo": PPO if algorithm == "ppo" else {}}
    return overlay({"schedule": "sequential", "policy": policy}, tree)


def part(directory, policy):
    """What the newest checkpoint holds of a policy's learner."""
    kept = RunDirectory.open(directory).checkpoints
    return kept.read(kept.numbers()[-1], policy)["algorithm"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """By algorithm, a run of two policies that have learned something."""
    base = tmp_path_factory.mktemp("sources")
    for algorithm in ALGORITHMS:
        run(base / algorithm, **tree_of(algorithm, run={"turns": 300}))
    return base


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_policies_begin_with_the_weights_of_their_namesakes(algorithm, sources, tmp_path):
    tree = tree_of(algorithm, policy={"init_from": str(sources / algorithm)}, run=NOT_A_TURN)
    begun, _ = run(tmp_path / "run", **tree, seed=99)
    learned, _ = outcome(sources / algorithm)
    assert list(begun) == list(learned)
    for name, weights in begun.items():
        assert (weights == learned[name]).all()
        assert part(tmp_path / "run", name)["optimizer"]["steps"] == 0
    told = json.loads((tmp_path / "run" / "initial" / "sources.json").read_text())
    assert remuda.load(tmp_path / "run").initial == told
    assert remuda.load(sources / algorithm).initial == {}
    final = remuda.load(sources / algorithm)["agent_0"]
    assert told["agent_0"] == {
        "run": str(sources / algorithm),
        "policy": "agent_0",
        "version": final.version,
        "learner_step": final.learner_step,
        "checkpoint": None,
        "live": False,
    }
    assert final.learner_step > 5


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_optimizer_comes_along_where_that_is_asked(algorithm, sources, tmp_path):
    policy = {"init_from": str(sources / algorithm), "init_optimizer": True}
    run(tmp_path / "run", **tree_of(algorithm, policy=policy, run=NOT_A_TURN))
    for name in ("agent_0", "agent_1"):
        there, here = part(sources / algorithm, name), part(tmp_path / "run", name)
        assert here["optimizer"]["steps"] == there["optimizer"]["steps"] > 5
        for moments in ("mean", "square"):
            assert (here["optimizer"][moments] == there["optimizer"][moments]).all()
            assert here["optimizer"][moments].any()
        assert (here["online"] == there["online"]).all()
        assert here["updates"] == 0  # schedules and publishing count this run's own


@pytest.mark.slow
def test_the_first_update_steps_by_the_moments_that_were_taken(sources, tmp_path):
    found = {}
    for optimizer in (False, True):
        policy = {"init_from": str(sources / "ppo"), "init_optimizer": optimizer}
        tree = tree_of("ppo", policy=policy, run={"turns": 120})
        found[optimizer], counts = run(tmp_path / str(optimizer), **tree)
        assert counts["learn"][:, 0].min() >= 1  # an update of each
    differ = [(found[True][name] != found[False][name]).any() for name in found[True]]
    assert all(differ)


@pytest.mark.slow_cases("ppo-1")
@pytest.mark.parametrize(
    ("algorithm", "processes"), [("ppo", 1), pytest.param("iqn", 2, marks=pytest.mark.slow)]
)
def test_schedules_agree_after_a_warm_start(algorithm, processes, sources, tmp_path):
    policy = {"init_from": str(sources / algorithm), "init_optimizer": True}
    tree = tree_of(algorithm, policy=policy, learners={"processes": processes})
    one = run(tmp_path / "sequential", **tree)
    other = run(tmp_path / "lockstep", **overlay(tree, {"schedule": "lockstep"}))
    assert_same(one, other, updates=5)


@pytest.mark.slow
def test_a_run_is_resumed_when_its_source_is_gone(sources, tmp_path):
    shutil.copytree(sources / "dqn", tmp_path / "source")
    policy = {"init_from": str(tmp_path / "source"), "init_optimizer": True}
    tree = tree_of("dqn", policy=policy)
    whole = run(tmp_path / "whole", **tree)
    run(tmp_path / "parts", **tree, run={"turns": 274})
    shutil.rmtree(tmp_path / "source")
    run(tmp_path / "parts", resume=True, **tree)
    assert_same(whole, outcome(tmp_path / "parts"))


@pytest.mark.slow
def test_a_learner_that_crashes_before_a_checkpoint_begins_from_the_same(sources, tmp_path):
    policy = {"init_from": str(sources / "ppo"), "init_optimizer": True}
    tree = tree_of("ppo", policy=policy, learners={"processes": 1})
    run(tmp_path / "run", **tree, run=NOT_A_TURN)
    directory = RunDirectory.open(tmp_path / "run")
    config = configure(tmp_path / "run", **tree)
    agents = make_env(config.game, 1, **config.env.options).agents
    specs = policy_specs(config, agents)
    assembly = assemble(config, specs, make_layout(config, 2), initial=directory.initial)
    _, learner = assembly.roles()
    states = []
    for _ in range(2):  # the first one is gone before anything was saved
        group = learner.build()
        states.append([group.state(name) for name in ("agent_0", "agent_1")])
    for k, name in enumerate(("agent_0", "agent_1")):
        first, successor = (state[k]["algorithm"] for state in states)
        assert (first["online"] == part(sources / "ppo", name)["online"]).all()
        assert (first["online"] == successor["online"]).all()
        assert first["optimizer"]["steps"] == successor["optimizer"]["steps"] > 5
        assert (first["optimizer"]["mean"] == successor["optimizer"]["mean"]).all()


POPULATION = {
    "game": "kuhn_poker",
    "env": {"num_envs": 4},
    "schedule": "sequential",
    "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 8}},
    "population": {
        "matchmaker": "random",
        "policies": 2,
        "births": {"slots": 2},
        "director": "support:Script",
        "snapshots": {"every": 3, "keep": 2},
    },
    "run": {"turns": 400, "evaluate_episodes": 0},
    "checkpoint": {"every": 0.1, "evaluate_episodes": 0},
}


@pytest.fixture(scope="module")
def population(tmp_path_factory):
    directory = tmp_path_factory.mktemp("population") / "run"
    train(load_config(overlay(POPULATION, {"run": {"directory": directory}})), PlainView())
    return directory


@pytest.mark.slow
def test_policies_are_born_with_the_weights_that_their_slot_begins_with(population, tmp_path):
    policies = {
        "born_0": {"init_from": f"{population}:policy_1"},
        "policy_0": {"init_from": str(population)},
    }
    tree = overlay(POPULATION, {"policies": policies, "run": {"directory": tmp_path / "run"}})
    config = load_config(overlay(tree, {"run": {"turns": 1}}))
    train(config, PlainView())
    directory = RunDirectory.open(tmp_path / "run")
    agents = make_env("kuhn_poker", 1).agents
    specs = policy_specs(config, agents)
    layout = make_layout(config, len(specs))
    assembly = assemble(config, specs, layout, agents=agents, initial=directory.initial)
    seats = assembly.roles()[0].build().seats
    there = SavedPolicies(RunDirectory.open(population))
    assert (seats.draw("born_0", 1) == there.find("policy_1").player.snapshot.weights).all()
    assert (seats.draw("policy_0", 1) == there.find("policy_0").player.snapshot.weights).all()
    drawn = seats.draw("born_1", 1)
    assert not (drawn == seats.draw("born_1", 2)).all()


@pytest.mark.slow
def test_empty_slots_without_a_namesake_keep_random_weights(population):
    config = load_config(overlay(POPULATION, {"policy": {"init_from": str(population)}}))
    specs = policy_specs(config, make_env("kuhn_poker", 1).agents)
    assert list(find_beginnings(config, specs)) == ["policy_0", "policy_1"]


def test_versions_are_found_wherever_they_are_kept(population):
    loaded = remuda.load(population)
    frozen = loaded.frozen[0]
    copy = Reference.parse(f"{population}:{frozen}").find()
    assert copy.name == frozen
    assert copy.is_frozen
    assert (copy.player.snapshot.weights == loaded[frozen].player.snapshot.weights).all()
    final = Reference.parse(f"{population}:policy_1").find()
    assert final.checkpoint is None
    version = final.player.snapshot.version
    named = Reference.parse(f"{population}:policy_1@{version}").find()
    assert (named.player.snapshot.weights == final.player.snapshot.weights).all()
    number = loaded.checkpoints[0]
    older = Reference.parse(f"{population}:policy_1@checkpoint-{number}").find()
    assert older.checkpoint == number
    kept = older.player.snapshot.version
    same = Reference.parse(f"{population}:policy_1@{kept}").find()
    assert same.player.snapshot.version == kept
    assert Reference.parse(f"{population}:policy_1@best").find().player.snapshot.version
    for which in (
        "@99999",
        "@newest",
        "@checkpoint-999",
    ):
        with refuses(remuda.RemudaError):
            Reference.parse(f"{population}:policy_1{which}").find()


def test_a_directory_may_have_a_colon_in_its_name(population, tmp_path):
    strange = tmp_path / "run:1"
    shutil.copytree(population, strange)
    assert Reference.parse(f"{strange}:policy_0").find().name == "policy_0"
    assert Reference.parse(str(strange)).find(default="policy_1").name == "policy_1"


@pytest.mark.parametrize(
    "policy",
    [
        {"algorithm": "dqn"},
        {"network": {"hidden": [16, 8]}},
        {"network": {"activation": "relu"}},
        {"network": {"shared": True}},
        {"n_frames": 1},
        {"ppo": {"normalise_observations": False}},
    ],
)
def test_another_network_is_refused_by_what_differs(policy, sources, tmp_path):
    tree = overlay(tree_of("ppo"), {"policy": policy})
    tree = overlay(tree, {"policy": {"init_from": str(sources / "ppo")}})
    with refuses(ConfigError):
        run(tmp_path / "run", **tree)
    assert not (tmp_path / "run").exists()


def test_what_may_differ_does(sources, tmp_path):
    policy = {"learning_rate": 0.1, "iqn": {"quantiles": 7}, "init_from": str(sources / "iqn")}
    run(tmp_path / "run", **tree_of("iqn", policy=policy, run=NOT_A_TURN))


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("policy.init_from nowhere", "policy.init_from nowhere: nowhere is no run directory"),
        ("policy.init_from {ppo}:agent_7", "there is no policy 'agent_7'; there are agent_0, ag"),
        ("policies.agent_1.init_from {ppo}:agent_0@4444", "policies.agent_1.init_from .*4444 of a"),
        ("policy.init_from {kuhn}", "has no policy agent_0; name one of policy_0, policy_1, as in"),
        ("policy.init_from {kuhn}:policy_0", "the shape of an observation is"),
    ],
)
def test_mistakes_are_told_in_one_line(where, said, sources, population, tmp_path, capsys):
    flag = "--" + where.format(ppo=sources / "ppo", kuhn=population)
    words = ["train", "treasure_hunt", "--policy.algorithm", "ppo", "--schedule", "sequential"]
    assert command([*words, *flag.split(), "--run.directory", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert re.search(said, told)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_member_that_has_learned_nothing_is_refused(sources, tmp_path):
    """Red before: first weights of one whose seat another had played as a member.

    One that began with weights of another run has them, whoever had its seat then.
    """
    taken = {"env": {"scripted": {"agent_1": "random"}}, "run": NOT_A_TURN}
    run(tmp_path / "fresh", **tree_of("dqn", **taken))
    warm = {"policies": {"agent_1": {"init_from": str(sources / "dqn")}}}
    run(tmp_path / "warm", **tree_of("dqn", **taken, **warm))

    def of_member(source):
        population = {
            "policies": 2,
            "matchmaker": "random",
            "members_from": [f"{tmp_path / source}:agent_1"],
        }
        run(tmp_path / f"of_{source}", **tree_of("dqn", population=population, run=NOT_A_TURN))

    with refuses(ConfigError):
        of_member("fresh")
    of_member("warm")
    began = find_beginning(tmp_path / "fresh", tmp_path / "run")
    assert began.learner_step == 0, "as is told where a run begins with it"


def find_beginning(source, directory):
    """What agent_1 begins with where all policies begin with those of a run."""
    config = configure(directory, **tree_of("dqn", policy={"init_from": str(source)}))
    agents = make_env(config.game, 1, **config.env.made_with).agents
    return find_beginnings(config, policy_specs(config, agents))["agent_1"].source


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    """A run of a population that freezes every version, with a checkpoint in the middle."""
    directory = tmp_path_factory.mktemp("two") / "run"
    tree = {"director": "", "births": {"slots": 0}, "snapshots": {"every": 1, "keep": 2}}
    tree = overlay(POPULATION, {"population": tree, "checkpoint": {"every": 3600}})
    for turns in (200, 400):
        run = {"turns": turns, "directory": directory}
        train(load_config(overlay(tree, {"run": run})), PlainView(), resume=turns > 200)
        if turns == 200:
            shutil.copytree(directory, directory.with_name("half"))
    loaded = remuda.load(directory)
    assert len(loaded.checkpoints) == 2
    return loaded


def begins_with(policy, optimizer=False):
    """What policy_0 begins with where such a policy is given."""
    given = {"init_from": policy, "init_optimizer": optimizer}
    settings = name_objects({"policies": {"policy_0": given}})
    config = load_config(overlay(POPULATION, settings))
    specs = policy_specs(config, make_env("kuhn_poker", 1).agents)
    return find_beginnings(config, specs)["policy_0"]


@pytest.mark.slow
def test_a_frozen_copy_of_an_older_checkpoint_may_be_given(two_checkpoints):
    """It was looked for among the copies of the newest one alone."""
    run, first = two_checkpoints, two_checkpoints.checkpoints[0]
    older = SavedPolicies(RunDirectory.open(run.path)).copies(first)
    names = {f"{name}@{snapshot.version}" for name, snapshot in older} - set(run.frozen)
    assert names
    for name in names:
        policy = run.policy(name, checkpoint=first)
        begun = begins_with(policy)
        assert (begun.weights == policy.player.snapshot.weights).all()
        assert begun.source.checkpoint == first


@pytest.mark.slow
def test_a_frozen_copy_has_no_optimizer(two_checkpoints):
    run = two_checkpoints
    learned = {run.policy(name, which).version for name in run for which in ("final", 1, 2)}
    frozen = next(name for name in run.frozen if int(name.partition("@")[2]) not in learned)
    with refuses(ConfigError):
        begins_with(run[frozen], optimizer=True)


@pytest.mark.slow
def test_the_optimizer_is_the_learners_where_a_copy_is_of_the_same_version(two_checkpoints):
    """The copy was found first, and has none."""
    run = remuda.load(two_checkpoints.path.with_name("half"))
    saved = [run.policy(name, checkpoint=1) for name in run]
    live = next(p for p in saved if f"{p.name}@{p.version}" in run.frozen)
    begun = begins_with(f"{run.path}:{live.name}@{live.version}", optimizer=True)
    saved = part(run.path, live.name)
    assert (begun.optimizer["mean"] == saved["optimizer"]["mean"]).all()
    assert (begun.weights == saved["online"]).all()


@pytest.mark.parametrize("name", ["player:0", "player@x", "a:b@c"])
@pytest.mark.parametrize("which", ["", "@best", "@30"])
def test_names_of_policies_may_hold_the_signs_of_references(name, which, tmp_path):
    (tmp_path / "run:1").mkdir()
    found = Reference.parse(f"{tmp_path / 'run:1'}:{name}{which}")
    assert found.run == tmp_path / "run:1"
    read = f"{found.policy}@{found.which}" if found.which else found.policy
    assert read == name + which
    if which:
        assert f"@{found.which}" == which


def test_moments_without_weights_are_told_to_have_no_effect():
    config = load_config({"policy": {"init_optimizer": True}})
    assert unused_settings(config) == [
        "policy.init_optimizer has no effect without policy.init_from"
    ]


@pytest.mark.slow
def test_damage_to_what_a_run_begins_with_is_told(sources, tmp_path):
    tree = tree_of("dqn", policy={"init_from": sources / "dqn"}, run=NOT_A_TURN)
    run(tmp_path / "run", **tree)
    directory = RunDirectory.open(tmp_path / "run")
    spec = SavedPolicies(directory).specs[0]
    size = layout_size(spec.network().shapes)
    assert directory.initial.weights("agent_0", size).shape == (size,)
    path = tmp_path / "run" / "initial" / "agent_0.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with refuses(remuda.RemudaError, "agent_0.safetensors"):
        directory.initial.weights("agent_0", size)
