"""Policies of other runs in a population: fixed opponents that all deal, rate and tell apart."""

import shutil

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import remuda
from refusals import refuses
from remuda.config import load_config, overlay
from remuda.envs.registry import make_env
from remuda.errors import ConfigError
from remuda.population.directors.director import Retire
from remuda.population.ledger.ledger import read_records
from remuda.population.ledger.records import FRESH, Member, PolicyRef, Population
from remuda.population.matchmaking.by_turn import SelfPlay
from remuda.population.run_spec import RunSpec
from remuda.population.specs import policy_specs
from remuda.runs.run_directory import RunDirectory
from remuda.training.run import train
from remuda.training.warm_start import find_imported
from remuda.ui.cli.main import run as command
from remuda.ui.terminal.live import PlainView
from support import Script

TREE = {
    "game": "kuhn_poker",
    "schedule": "sequential",
    "env": {"num_envs": 4},
    "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 8}},
    "run": {"turns": 300, "evaluate_episodes": 0},
    "checkpoint": {"evaluate_episodes": 0},
}
MATCHMAKERS = ("random", "round_robin", "fitness", "prioritized", "self_play")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A run without a population, whose policies are `agent_0` and `agent_1`."""
    directory = tmp_path_factory.mktemp("other") / "old.run"
    train(load_config(overlay(TREE, {"run": {"directory": directory}})), PlainView())
    return directory


def tree_of(directory, other, matchmaker, **tree):
    population = {
        "matchmaker": matchmaker,
        "policies": 2,
        "members_from": (f"{other}:agent_0", f"{other}:agent_1"),
    }
    base = overlay(TREE, {"population": population, "run": {"directory": directory}})
    return overlay(base, tree)


def names_of(other):
    loaded = remuda.load(other)
    return [f"old_run-{name}@{loaded[name].version}" for name in ("agent_0", "agent_1")]


@pytest.mark.slow
@pytest.mark.parametrize("matchmaker", MATCHMAKERS)
def test_every_matchmaker_seats_them_and_they_are_rated(matchmaker, other, tmp_path):
    result = train(load_config(tree_of(tmp_path / "run", other, matchmaker)), PlainView())
    members = result.record.members
    for name in names_of(other):
        assert members[name].games > 3  # `fitness` seats those of like strength
        assert not members[name].learns
        assert members[name].uncertainty < FRESH[3]
    names, records = read_records(tmp_path / "run" / "ledger.bin")
    assert names == ("policy_0", "policy_1", "old_run-agent_0", "old_run-agent_1")
    versions = {remuda.load(other)["agent_0"].version}
    seated = records["version"][records["policy"] == 2]
    assert set(seated.tolist()) == versions
    share = (records["policy"] >= 2).mean()
    assert 0.15 < share <= 0.5  # never both seats; half of those besides the learner's, or
    # more where the window of `fitness` leaves no other
    assert (records["policy"] < 2).any(1).all()  # and in each match one learns


@pytest.mark.slow
def test_they_play_as_they_did_in_their_run_and_never_change(other, tmp_path):
    train(load_config(tree_of(tmp_path / "run", other, "random")), PlainView())
    run, loaded = remuda.load(tmp_path / "run"), remuda.load(other)
    assert list(run) == ["policy_0", "policy_1"]
    assert sorted(run.frozen) == names_of(other)
    for name, original in zip(names_of(other), ("agent_0", "agent_1"), strict=True):
        there, here = loaded[original], run[name]
        assert here.name == name
        for key, values in there.weights().items():
            assert (here.weights()[key] == values).all()
        seen = np.eye(8, dtype=np.float32)[:3] + np.eye(8, dtype=np.float32)[7]
        mask = np.array([[0, 1, 1]] * 3, np.bool_)
        assert (there.act(seen, mask=mask) == here.act(seen, mask=mask)).all()


def test_the_actor_plays_them_with_their_own_weights(other, tmp_path):
    """Who always passes never wins or loses more than the ante."""
    source = tmp_path / "passes"
    shutil.copytree(other, source)
    for file in (source / "weights").glob("*.safetensors"):
        with safe_open(file, "np") as opened:
            metadata = opened.metadata()
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        tensors["policy.weight"][:] = tensors["policy.bias"][:] = 0.0
        tensors["policy.bias"][0, 1] = 50.0  # of waiting, passing and betting
        save_file(tensors, file, metadata)
    train(load_config(tree_of(tmp_path / "run", source, "random")), PlainView())
    _, records = read_records(tmp_path / "run" / "ledger.bin")
    with_them = (records["policy"] >= 2).any(1)
    assert with_them.sum() > 20
    assert (np.abs(records["returns"][with_them]) == 1.0).all()
    assert (np.abs(records["returns"][~with_them]) == 2.0).any()


@pytest.mark.slow
def test_a_run_with_them_is_resumed_exactly_when_their_run_is_gone(other, tmp_path):
    source = tmp_path / "old.run"
    shutil.copytree(other, source)
    tree = {"population": {"snapshots": {"every": 4, "keep": 2}}, "run": {"turns": 600}}
    whole = load_config(tree_of(tmp_path / "whole", source, "prioritized", **tree))
    train(whole, PlainView())
    parts = tree_of(tmp_path / "parts", source, "prioritized", **tree)
    train(load_config(overlay(parts, {"run": {"turns": 274}})), PlainView())
    shutil.rmtree(source)
    train(load_config(parts), PlainView(), resume=True)
    files = [(tmp_path / name / "ledger.bin").read_bytes() for name in ("whole", "parts")]
    assert files[0] == files[1]
    one, two = remuda.load(tmp_path / "whole"), remuda.load(tmp_path / "parts")
    for name in one:
        for key, values in one[name].weights().items():
            assert (two[name].weights()[key] == values).all()
    assert one.frozen == two.frozen


@pytest.mark.slow
def test_schedules_agree_with_them(other, tmp_path):
    found = []
    for schedule in ("sequential", "lockstep"):
        tree = tree_of(tmp_path / schedule, other, "self_play", schedule=schedule)
        train(load_config(tree), PlainView())
        found.append((tmp_path / schedule / "ledger.bin").read_bytes())
    assert found[0] == found[1]


@pytest.mark.slow
def test_they_take_part_in_a_run_of_several_processes(other, tmp_path):
    tree = tree_of(tmp_path / "run", other, "random", schedule="async")
    result = train(load_config(overlay(tree, {"run": {"turns": 2000}})), PlainView())
    assert all(result.record.members[name].games > 10 for name in names_of(other))


@pytest.mark.slow
def test_versions_of_one_policy_are_members_of_their_own(tmp_path):
    past = {"population": {"matchmaker": "self_play", "snapshots": {"every": 2, "keep": 3}}}
    old = overlay(overlay(TREE, past), {"run": {"directory": tmp_path / "old"}})
    train(load_config(old), PlainView())
    first, second = remuda.load(tmp_path / "old").frozen[:2]
    texts = [f"{tmp_path / 'old'}:{first}", f"{tmp_path / 'old'}:{second}"]
    population = {"matchmaker": "random", "policies": 2, "members_from": texts}
    tree = overlay(TREE, {"population": population, "run": {"directory": tmp_path / "run"}})
    result = train(load_config(tree), PlainView())
    assert {f"old-{first}", f"old-{second}"} <= set(result.record.members)
    assert read_records(tmp_path / "run" / "ledger.bin")[0][2:] == ("old-policy",)


def test_self_play_deals_them_only_seats_that_they_may_take():
    members = [
        Member(PolicyRef("policy")),
        Member(PolicyRef("old-a", 3), frozenset({1}), is_imported=True),
    ]
    population, random = Population(members), np.random.default_rng(0)
    matchmaker = SelfPlay(2, newest=0.0)
    ledger = None
    seatings = {m.seats for m in matchmaker.propose(population, ledger, 40, random)}
    learner, old = members[0].ref, members[1].ref
    assert seatings == {(learner, old), (learner, learner)}


@pytest.mark.slow
def test_their_slots_come_last(other, tmp_path):
    tree = tree_of(tmp_path / "run", other, "random")
    train(load_config(tree), PlainView())
    run = RunDirectory.open(tmp_path / "run")
    table = run.checkpoints.read(run.checkpoints.numbers()[-1], "coordinator")["population"]
    assert len(table["identity"]) == 4
    assert table["pairs"].shape == (4, 2, 4)
    assert table["identity"][:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_director_may_retire_them(other, tmp_path):
    first, second = names_of(other)
    name, _, version = first.partition("@")
    Script.commands = [Retire(PolicyRef(name, int(version)))]
    tree = tree_of(tmp_path / "run", other, "random", population={"director": "support:Script"})
    result = train(load_config(tree), PlainView())
    assert first not in result.record.members
    assert remuda.load(tmp_path / "run").frozen == (second,)


@pytest.mark.slow
def test_runs_of_one_name_are_told_apart(other, tmp_path):
    shutil.copytree(other, tmp_path / "old.run")
    texts = (f"{other}:agent_0", f"{tmp_path / 'old.run'}:agent_0")
    tree = tree_of(tmp_path / "run", other, "random", population={"members_from": texts})
    members = train(load_config(tree), PlainView()).record.members
    version = remuda.load(other)["agent_0"].version
    assert {f"old_run-agent_0@{version}", f"old_run-agent_0-2@{version}"} <= set(members)


@pytest.mark.slow
def test_a_run_whose_members_are_missing_is_not_gone_on_with(other, tmp_path):
    tree = tree_of(tmp_path / "run", other, "random")
    train(load_config(tree), PlainView())
    (tmp_path / "run" / "imported.safetensors").unlink()
    with refuses(remuda.RemudaError, "imported.safetensors"):
        train(load_config(overlay(tree, {"run": {"turns": 400}})), PlainView(), resume=True)


@pytest.mark.parametrize(
    "population",
    [
        {"matchmaker": "fixed"},
        {"members_from": ("nowhere:a",)},
        {"members_from": ("{}",)},
        {"members_from": ("{}:agent_0", "{}:agent_0")},
        {"members_from": ("{}:agent_0",), "policies": ("old_run-agent_0", "b")},
    ],
)
def test_what_cannot_be_is_refused(population, other, tmp_path):
    texts = [text.format(other) for text in population.get("members_from", ("{}:agent_0",))]
    tree = tree_of(tmp_path / "run", other, "random")
    tree = overlay(tree, {"population": population | {"members_from": texts}})
    with refuses(ConfigError):
        train(load_config(tree), PlainView())
    assert not (tmp_path / "run").exists()


def test_another_network_is_refused_from_the_command_line(other, tmp_path, capsys):
    words = ["train", "kuhn_poker", "--policy.algorithm", "ppo", "--schedule", "sequential"]
    words += ["--population.matchmaker", "random", "--run.directory", str(tmp_path / "run")]
    assert command([*words, "--population.members_from", f"{other}:agent_1"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert (
        "no policy here has the network of agent_1; compared to agent_0, network.hidden is (8,)"
        in told
    )


def test_they_explore_as_at_the_end_of_their_training(other, tmp_path):
    """Trained by PPO they draw from their distribution: at a rate of 0 they would be greedy."""
    run_spec = RunSpec.of(load_config(tree_of(None, other, "random")))
    found = find_imported(run_spec, run_spec.policies)
    assert [member.origin.epsilon for member in found] == [1.0, 1.0]
    value = {
        "game": "rock_paper_scissors",
        "schedule": "sequential",
        "policy": {"algorithm": "dqn", "exploration": {"end": 0.125}},
        "run": {"turns": 10, "directory": tmp_path / "old", "evaluate_episodes": 0},
    }
    train(load_config(value), PlainView())
    tree = {**value, "population": {"members_from": (f"{tmp_path / 'old'}:agent_0",)}}
    config = load_config(overlay(tree, {"population": {"matchmaker": "random"}}))
    run_spec = RunSpec.of(config)
    (member,) = find_imported(run_spec, run_spec.policies)
    assert member.snapshot.epsilon == 0.125


def test_a_greedy_member_takes_its_best_action(other):
    tree = {"members_from": (f"{other}:agent_0", f"{other}:agent_1+greedy")}
    config = load_config(overlay(TREE, {"population": {"matchmaker": "random", **tree}}))
    run_spec = RunSpec.of(config)
    found = [member.snapshot for member in find_imported(run_spec, run_spec.policies)]
    assert [snapshot.epsilon > 0.0 for snapshot in found] == [True, False]


def test_policies_that_draw_and_greedy_ones_share_a_stack(monkeypatch):
    """Of streams in one call some draw: each stretch of them is chosen for at once."""
    config = load_config(TREE)
    selector = policy_specs(config, make_env("kuhn_poker", 1).agents)[0].action_selector()
    outputs, masks = np.zeros((7, selector.actions.num_logits), np.float32), np.ones((7, 0), bool)
    actions, log_probs = np.zeros((7, 1), np.int64), np.zeros(7, np.float32)
    random, seen = np.random.default_rng(0), []
    monkeypatch.setattr(
        selector.actions,
        "choose_for_all",
        lambda outputs, masks, rngs, *_: seen.append((outputs.shape[1], rngs is not None)),
    )
    for rates, expected in (
        ([1, 1, 1, 1, 1, 1, 1], [(7, True)]),
        ([1, 1, 1, 0, 0, 0, 1], [(3, True), (3, False), (1, True)]),
        ([0, 0, 1, 0.5, 1, 0, 0], [(2, False), (3, True), (2, False)]),
    ):
        seen.clear()
        selector.choose(outputs, masks, random, np.array(rates), actions, log_probs)
        assert seen == expected
