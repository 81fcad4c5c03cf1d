"""Hyperparameters that callbacks change while a run goes on."""

import json
import math
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import remuda
from callback_runs import FOR_LONG, StopsAtOnce, train
from refusals import refuses
from remuda.config import PolicyConfig, hyperparameters, load_config
from remuda.config.algorithm_registry import BUILT_IN, find_algorithm
from remuda.config.hyperparameters import (
    HYPERPARAMETERS,
    LiveHyperparameters,
    checked_values,
    values_of,
    with_values,
)
from remuda.coordinator.callback import ActiveRun
from remuda.learner.group import LearnerGroup
from remuda.population.ledger.records import Member, PolicyRef
from remuda.population.members.births import Newborn
from remuda.population.members.table import Table
from remuda.ui.terminal.live import PlainView


class SetsAtFirst(remuda.Callback):
    def __init__(self, values):
        self.values = values

    def on_start(self, run):
        run.set_hyperparameters(self.values)
        assert run.hyperparameters("agent_1").items() >= self.values.items()


CHANGES = {
    "ppo": {
        "learning_rate": 3e-3,
        "discount": 0.7,
        "reward_scale": 0.3,
        "share_rewards": 0.4,
        "ppo.clip": 0.05,
        "ppo.entropy_cost": 0.2,
        "ppo.gae_lambda": 0.5,
        "ppo.value_cost": 2.0,
    },
    "dqn": {"learning_rate": 3e-3, "discount": 0.7, "reward_scale": 0.3, "share_rewards": 0.4},
}


DQN = {
    "algorithm": "dqn",
    "batch_size": 8,
    "n_frames": 1,
    "experience": {"learning_starts": 50, "segment_length": 10},
}


AS_THEY_ARE = {"ppo": {"normalise_values": False}}
"""Units of values, which change what is said of them and not what is meant, go their own way."""


def weights(result):
    run = remuda.load(result)
    return {(n, k): w for n in run for k, w in run[n].weights().items()}


def same(one, other):
    return all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.slow_cases("dqn")
@pytest.mark.parametrize("algorithm", [pytest.param("ppo", marks=pytest.mark.slow), "dqn"])
def test_what_is_set_trains_exactly_as_what_is_configured(tmp_path, algorithm):
    base = DQN if algorithm == "dqn" else {}
    values = CHANGES[algorithm]
    tree = {name: value for name, value in values.items() if "." not in name}
    tree |= {"ppo": {n[4:]: v for n, v in values.items() if n.startswith("ppo.")}}
    plain = train(tmp_path / "plain", policy=base)
    configured = train(tmp_path / "configured", policy={**base, **tree})
    for name in values:  # each of them shows by itself
        one = train(tmp_path / name, SetsAtFirst({name: values[name]}), policy=base)
        assert not same(weights(plain), weights(one)), name
    found = train(tmp_path / "set", SetsAtFirst(values), policy=base)
    assert same(weights(configured), weights(found))


class Freezes(remuda.Callback):
    """Sets a learning rate that moves no weight, at one checkpoint; stops some checkpoints on."""

    def __init__(self):
        self.row, self.rows, self.numbers = {}, [], []

    def on_metrics(self, run, row):
        self.row = row

    def on_checkpoint(self, run, number, path):
        if "agent_0/updates" in self.row and self.row["agent_0/updates"] > 0:
            self.numbers.append(number)
            self.rows.append(self.row)
        if len(self.numbers) == 1:
            run.set_hyperparameters({"learning_rate": 1e-30}, "agent_0")
        if len(self.numbers) == 4:
            run.stop("all was seen")


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["sequential", "async", "lockstep"])
def test_a_learner_takes_a_change_while_it_trains(tmp_path, schedule):
    freezes = Freezes()
    result = train(
        tmp_path / "run",
        freezes,
        schedule=schedule,
        policy=AS_THEY_ARE,
        run={"turns": FOR_LONG},
        checkpoint={"every": 0.5, "evaluate_episodes": 0, "keep": 10},
    )
    run = remuda.load(result)
    then = {n: run.policy(n, checkpoint=freezes.numbers[1]) for n in run}
    assert freezes.rows[-1]["agent_0/updates"] > freezes.rows[1]["agent_0/updates"]
    changed = {
        name: any((w != run[name].weights()[key]).any() for key, w in then[name].weights().items())
        for name in run
    }
    assert changed == {"agent_0": False, "agent_1": True}  # it was set of one only


@pytest.mark.slow
def test_a_change_is_kept_by_checkpoints_and_gone_on_with(tmp_path):
    first = train(tmp_path / "run", SetsAtFirst({"learning_rate": 1e-30}), policy=AS_THEY_ARE)
    before = weights(first)
    seen = []

    class Looks:
        def on_start(self, run):
            seen.append(run.hyperparameters("agent_0")["learning_rate"])

    result = remuda.train(resume=first, run={"turns": 600}, view=PlainView(), callbacks=[Looks()])
    assert seen == [1e-30]
    assert result.record.policies["agent_0"].updates > first.record.policies["agent_0"].updates
    for key, weight in weights(result).items():
        assert weight == pytest.approx(before[key], rel=0, abs=1e-20)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["learning_rate", "ppo.entropy_cost"])
def test_what_the_user_writes_again_replaces_what_was_set(tmp_path, key):
    first = train(tmp_path / "run", SetsAtFirst({key: 0.125, "discount": 0.5}), policy=AS_THEY_ARE)
    usual = values_of(remuda.load(first).config.policy)[key]
    seen, told = {}, []

    class Looks:
        def on_start(self, run):
            seen.update({name: run.hyperparameters(name) for name in run.policies})

    view = PlainView()
    view.say = told.append
    written = usual
    for part in reversed(key.split(".")):
        written = {part: written}
    remuda.train(resume=first, policy=written, run={"turns": 600}, view=view, callbacks=[Looks()])
    assert {name: found[key] for name, found in seen.items()} == dict.fromkeys(seen, usual)
    assert {found["discount"] for found in seen.values()} == {0.5}  # nobody wrote that
    assert f"policies.agent_0.{key} was 0.125 and is {usual} from now on" in told
    line = json.loads((first.directory / "changes.jsonl").read_text().splitlines()[-1])
    assert line["changes"][f"policies.agent_1.{key}"] == [0.125, usual]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["mapping", "file"])
def test_what_python_writes_in_config_replaces_what_was_set_too(tmp_path, how):
    first = train(tmp_path / "run", SetsAtFirst({"learning_rate": 0.125}), policy=AS_THEY_ARE)
    usual, found, lines = values_of(remuda.load(first).config.policy)["learning_rate"], set(), []

    class Looks:
        def on_start(self, run):
            found.update(run.hyperparameters(name)["learning_rate"] for name in run.policies)

    view = PlainView()
    view.say = lines.append
    config = {"policy": {"learning_rate": usual, "dqn": {"target_every": 250}}}
    if how == "file":
        (tmp_path / "some.yaml").write_text(json.dumps(config))
        config = tmp_path / "some.yaml"
    run = {"turns": 400}
    remuda.train(resume=first, config=config, run=run, view=view, callbacks=[Looks()])
    assert found == {usual}
    assert [each for each in lines if each.startswith("policy.dqn.target_every has no effect")]


@pytest.mark.slow
def test_what_is_written_again_outlives_a_session_that_came_to_no_checkpoint(tmp_path):
    first = train(tmp_path / "run", SetsAtFirst({"learning_rate": 0.125}), policy=AS_THEY_ARE)
    checkpoints = first.directory / "checkpoints"
    whole = {path.name for path in checkpoints.iterdir()}
    usual, found, lines = values_of(remuda.load(first).config.policy)["learning_rate"], [], []

    class Looks:
        def on_start(self, run):
            found.append({run.hyperparameters(name)["learning_rate"] for name in run.policies})

    view = PlainView()
    view.say = lines.append

    def go_on(turns, **written):
        run = {"turns": turns}
        remuda.train(resume=first, run=run, view=view, callbacks=[Looks()], **written)

    go_on(600, policy={"learning_rate": usual})
    for path in checkpoints.iterdir():  # as if it had been killed before it wrote one
        if path.name not in whole and path.is_dir():
            shutil.rmtree(path)
    changes = first.directory / "changes.jsonl"
    changes.write_text(changes.read_text() + '{"checkpoint": 1, "tur')  # of one killed there
    lines.clear()
    go_on(650)
    assert found == [{usual}, {usual}]
    assert f"policies.agent_0.learning_rate was 0.125 and is {usual} from now on" in lines
    lines.clear()
    go_on(700)  # a checkpoint knows it now
    assert found[-1] == {usual}
    assert not [each for each in lines if "learning_rate" in each]


@pytest.mark.slow
def test_what_is_written_of_one_policy_replaces_what_was_set_of_that_alone(tmp_path):
    first = train(tmp_path / "run", SetsAtFirst({"discount": 0.5}), policy=AS_THEY_ARE)
    usual = remuda.load(first).config.policy.discount
    seen = {}

    class Looks:
        def on_start(self, run):
            seen.update({name: run.hyperparameters(name)["discount"] for name in run.policies})

    remuda.train(
        resume=first,
        policies={"agent_1": {"discount": usual}},
        run={"turns": 400},
        view=PlainView(),
        callbacks=[Looks()],
    )
    assert seen == {"agent_0": 0.5, "agent_1": usual}


def test_what_is_configured_anew_replaces_what_was_set():
    config = PolicyConfig.model_validate({"algorithm": "ppo"})
    changes = LiveHyperparameters({"a": config, "b": config})
    changes.change("a", {"learning_rate": 1e-5, "discount": 0.5})
    state = changes.state()
    anew = config.model_copy(update={"learning_rate": 0.25})
    resumed = LiveHyperparameters({"a": anew, "b": anew})
    resumed.restore(state)
    assert resumed.changes("a") == {"discount": 0.5}
    assert resumed.changes("b") == {}


class Learner:
    """Notes what changes, and trains for as long as it is asked."""

    priority, unfinished = 1.0, False

    def __init__(self, *policies):
        self.policies, self.told = policies, []

    def ready(self):
        return True

    def update(self):
        self.told.append("update")

    def change(self, policy, values):
        self.told.append((policy, values))


def test_a_successor_takes_what_was_set_before_its_first_update():
    config = PolicyConfig()
    changes = LiveHyperparameters({"a": config, "b": config})
    changes.change("a", {"learning_rate": 1e-5})
    first = Learner("a", "b")
    group = LearnerGroup([first], SimpleNamespace(), changes=changes)
    group.work()
    group.work()
    changes.change("b", {"discount": 0.5})
    changes.change("a", {"discount": 0.25})
    group.work()
    took = [("a", {"learning_rate": 1e-5}), "update", "update"]
    now = [("a", {"learning_rate": 1e-5, "discount": 0.25}), ("b", {"discount": 0.5}), "update"]
    assert first.told == took + now
    successor = Learner("a", "b")
    LearnerGroup([successor], SimpleNamespace(), changes=changes).work()
    assert successor.told == now


def test_a_change_that_is_being_written_is_not_seen_by_half(monkeypatch):
    changes = LiveHyperparameters({"a": PolicyConfig()})
    changes.change("a", {"discount": 0.5})
    store, seen = hyperparameters.store, []

    def watched(*word):
        """Look right before and after every word that frames a change."""
        for write in (lambda: None, lambda: store(*word)):
            write()
            seen.append(changes.read(0))

    monkeypatch.setattr(hyperparameters, "store", watched)
    changes.change("a", {"learning_rate": 1.0})
    before = (2, {"a": {"discount": 0.5}})
    after = (4, {"a": {"learning_rate": 1.0, "discount": 0.5}})
    assert seen == [before, None, None, after]
    assert changes.read(4) is None


@pytest.mark.slow_cases(
    "values0-None", "values1-None", "values3-None", "values4-None", "values5-agent_7"
)
@pytest.mark.parametrize(
    ("values", "policy"),
    [
        ({"n_steps": 3}, None),
        ({"learning_rate": -1.0}, None),
        ({"discount": 1.5}, "agent_1"),
        ({"ppo.clip": "much"}, None),
        ({"ppo.clip": math.nan}, None),
        ({"discount": 0.5}, "agent_7"),
    ],
)  # fmt: skip
def test_what_learners_cannot_take_is_refused_and_nothing_is_changed(tmp_path, values, policy):
    class Tries:
        def on_start(self, run):
            before = run.hyperparameters("agent_0")
            with refuses(remuda.UsageError):
                run.set_hyperparameters({"learning_rate": 0.5, **values}, policy)
            assert run.hyperparameters("agent_0") == before
            self.tried = True

    tries = Tries()
    train(tmp_path / "run", tries, run={"turns": 10})
    assert tries.tried


@pytest.mark.parametrize(
    "population",
    [
        {"matchmaker": "random", "policies": 2, "births": {"slots": 1, "every": 100}},
        {"matchmaker": "random", "policies": 2, "evolution": {"every": 100}},
        {"matchmaker": "league"},
    ],
    ids=["births", "evolution", "league"],
)
def test_hyperparameters_of_policies_that_are_born_are_left_alone(population, tmp_path):
    class Tries:
        def on_start(self, run):
            run.set_hyperparameters({"discount": 0.5})

    with refuses(remuda.RemudaError):
        train(tmp_path / "run", Tries(), population=population)


OWN = {
    "policies.own_algorithms:Vanilla": ("settings.push", {"ppo": {"rollout_length": 20}}),
    "policies.own_algorithms:Soft": (
        "settings.tau",
        {"batch_size": 16, "experience": {"learning_starts": 64, "capacity": 500}},
    ),
}
"""Algorithms of one's own, each with a setting of its own, and what else it is trained with."""


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", OWN)
def test_settings_of_an_own_algorithm_are_set_while_it_goes_on(tmp_path, algorithm):
    name, tree = OWN[algorithm]
    seen, weights = {}, {}

    class Sets:
        def on_start(self, run):
            seen["before"] = run.hyperparameters("agent_0")[name]
            run.set_hyperparameters({name: 0.75}, "agent_0")
            seen["after"] = [run.hyperparameters(f"agent_{i}")[name] for i in range(2)]

    whole = {"algorithm": algorithm, "network": {"hidden": (8,), "dueling": False}} | tree
    quick = {"turns": 120, "evaluate_episodes": 0}
    for which, callbacks, own in (
        ("set", [Sets()], {}),
        ("configured", [], {"agent_0": {"settings": {name.split(".")[1]: 0.75}}}),
        ("plain", [], {}),
    ):
        result = remuda.train(
            "support:Tape",
            schedule="sequential",
            policy=whole,
            policies=own,
            run=quick | {"directory": tmp_path / which},
            checkpoint={"evaluate_episodes": 0},
            view=PlainView(),
            callbacks=callbacks,
        )
        assert result.record.policies["agent_0"].updates > 2
        run = remuda.load(tmp_path / which)
        weights[which] = [
            {n: p.detach().numpy() for n, p in run[f"agent_{i}"].module().named_parameters()}
            for i in range(2)
        ]
    default = find_algorithm(algorithm).settings[name.split(".")[1]]
    assert seen == {"before": default, "after": [0.75, default]}
    for i in range(2):
        for key, value in weights["set"][i].items():
            np.testing.assert_array_equal(value, weights["configured"][i][key])
    for i, equal in enumerate([False, True]):
        plain = weights["plain"][i]
        assert equal == all((plain[k] == v).all() for k, v in weights["set"][i].items())


class Wordy(remuda.TransitionAlgorithm):
    """Has settings of several kinds."""

    heads = ("q",)
    settings = {"rate": 0.1, "tries": 3, "scale": 3.0, "way": "a", "firm": True}  # noqa: RUF012

    def loss(self, batch, part):
        raise NotImplementedError


def test_settings_that_are_no_numbers_stay_as_they_are():
    kind = {"algorithm": f"{__name__}:Wordy", "settings": {"rate": 0.5, "way": "b"}}
    config = PolicyConfig.model_validate(kind)
    found = {name: x for name, x in values_of(config).items() if name.startswith("settings.")}
    assert found == {"settings.rate": 0.5, "settings.scale": 3.0}  # one that counts may shape it
    with refuses(remuda.UsageError):
        checked_values(config, {"settings.way": 1.0}, "a.")
    changed = with_values(config, {"settings.rate": 0.25, "learning_rate": 0.5})
    assert changed.settings == {"rate": 0.25, "way": "b"}
    assert config.settings["rate"] == 0.5
    assert with_values(PolicyConfig(), {"settings.rate": 0.25}) == PolicyConfig()
    both = LiveHyperparameters({"a": config, "b": PolicyConfig()})
    both.change("a", {"settings.scale": 4.0})
    both.change("b", {"discount": 0.5})
    assert both.read(0) == (4, {"a": {"settings.scale": 4.0}, "b": {"discount": 0.5}})


def test_a_change_shows_in_the_population(tmp_path):
    seen = []

    class Sets(StopsAtOnce):
        def on_start(self, run):
            run.set_hyperparameters({"discount": 0.5}, "policy")

        def on_end(self, run, result):
            seen.append(result.record.members["policy"].hyperparameters["discount"])

    train(tmp_path / "run", Sets(), population={"matchmaker": "self_play"})
    assert seen == [0.5]


def test_every_hyperparameter_is_one_that_can_be_checked():
    found = set()
    for algorithm in BUILT_IN:
        config = PolicyConfig.model_validate({"algorithm": algorithm})
        values = values_of(config)
        assert checked_values(config, values, "") == values
        found |= set(values)
    assert found == set(HYPERPARAMETERS)


def test_callbacks_read_what_the_policy_in_a_slot_has_that_was_born_there(tmp_path):
    """Red before: they were told what was configured, whatever had been born meanwhile."""
    config = load_config({"policy": {"share_rewards": 0.25}, "population": {"policies": 2}})
    names = ("a", "b")
    specified = dict.fromkeys(names, values_of(config.policy))
    table = Table(dict.fromkeys(names, 3), 2, 1, specified)
    run = ActiveRun(tmp_path, config, names)
    assert run.hyperparameters("a")["share_rewards"] == 0.25
    run.attach(LiveHyperparameters(dict.fromkeys(names, config.policy)), table)
    assert run.hyperparameters("a") == specified["a"]
    born = Member(PolicyRef("a"), hyperparameters=specified["a"] | {"share_rewards": 0.75})
    table.prepare(0, born, Newborn(np.zeros(3, np.float32)))
    assert run.hyperparameters("a") == specified["a"] | {"share_rewards": 0.75}
    assert run.hyperparameters("b") == specified["b"]
