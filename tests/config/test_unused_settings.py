"""Settings without effect are told, and no others: every field is tried with each algorithm."""

import numpy as np
import pytest

from remuda.config import Config, IQNConfig, PolicyConfig, by_leaf, fields_of, load_config, overlay
from remuda.config.unused_settings import unused_settings
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.training.prepare import prepare
from remuda.training.run import train
from remuda.ui.cli.main import run
from remuda.ui.terminal.live import PlainView

ALGORITHMS = ("iqn", "dqn", "ppo")
OTHERS = {
    "learning_mode": None,  # refused where it does not fit
    "algorithm": None,
    "network.hidden": [12],
    "network.activation": {"iqn": "tanh", "dqn": "tanh", "ppo": "relu"},
    "network.convolutions": None,  # refused
    "network.recurrent": {"ppo": 4},
    "network.dueling": {"iqn": False, "dqn": False},
    "network.noisy": {"iqn": True, "dqn": True},
    "discount": 0.5,
    "on_policy_share": 0.3,
    "experience.on_full": None,  # waits or not: the same where all is in turn
    "experience.group": {"iqn": "all", "dqn": "all"},
    "experience.prioritised": 0.6,
    "publish.mode": "snapshot",
    "ppo.gae_lambda": 0.5,
    "ppo.correction": "vtrace",
    "ppo.value_clip": 0.001,
    "ppo.target_kl": 1e-5,
    "ppo.anchor_cost": 0.5,
    "ppo.anchor_every": 2,
    "ppo.anchor": "average",
    "ppo.anneal_steps": 500,
    "ppo.max_staleness": 0,
    "ppo.clip": 0.001,
    "exploration.decay_steps": 5000,
    "exploration.start": 0.5,
    "exploration.end": 0.5,
    "dqn.huber": 0.001,
    "iqn.huber": 0.001,
    "max_grad_norm": 1e-3,
    "experience.replay_ratio": 0.3,
    "experience.capacity": 200,
    "dqn.target_every": 3,
    "iqn.target_every": 3,
    "reward_scale": 0.5,
    "share_rewards": 0.5,
    "adam_epsilon": 0.1,
}
"""Another value of a field, for all or by algorithm; None, or none for it: not tried. Numbers and
switches that are not here are changed by rule."""
ELSEWHERE = {
    *("max_nonfinite", "priority", "time_budget", "publish.mode", "experience.wait_limit"),
    *("ppo.correction", "ppo.max_staleness"),  # of rollouts that are older
}
"""What shows only in runs of another kind: with faults, with want of time, or across processes."""
SMALL = {
    "game": "support:Tape",
    "schedule": "sequential",
    "env": {"num_envs": 4, "options": {"lengths": (6, 9)}},
    "policy": {
        "n_frames": 2,
        "network": {"hidden": [8]},
        "iqn": {"quantiles": 4, "cosines": 8},
        "experience": {"segment_length": 8},
        "exploration": {"decay_steps": 300},
        "publish": {"every": 2},
    },
    "run": {"turns": 600, "evaluate_episodes": 0, "log_every": 3600},
    "checkpoint": {"every": 3600, "evaluate_episodes": 0},
}
OF = {
    "ppo": {"ppo": {"rollout_length": 16, "epochs": 2, "minibatches": 2}},
    "values": {"experience": {"learning_starts": 100, "capacity": 400}, "batch_size": 32},
}
CONDITIONS = {
    "experience.capacity": {"ppo": {"learning_mode": "hybrid"}},
    "on_policy_share": {"ppo": {"learning_mode": "hybrid"}},
    "ppo.anchor_every": {"ppo": {"ppo": {"anchor_cost": 0.5}}},
    "ppo.anchor": {"ppo": {"ppo": {"anchor_cost": 0.5}}},
}
"""Where a field has an effect only with another."""


def tree_of(algorithm):
    own = OF["ppo"] if algorithm == "ppo" else OF["values"]
    return overlay(SMALL, {"policy": overlay(own, {"algorithm": algorithm})})


def nest(key, value):
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def another(key, algorithm):
    """Another value of a field; None: it is not tried."""
    if key in OTHERS:
        value = OTHERS[key]
        return value.get(algorithm) if isinstance(value, dict) else value
    value = load_config(tree_of(algorithm)).policy
    for part in key.split("."):
        value = getattr(value, part)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return 0.7 * value if isinstance(value, float) else None


FINISHED: dict[str, tuple] = {}


def outcome(tree, directory):
    """What came of a run: every weight, and how much was played."""
    key = repr(tree)
    if key not in FINISHED:
        config = load_config(overlay(tree, {"run": {"directory": directory}}))
        result = train(config, PlainView())
        weights = [s.weights for s in load_run(RunDirectory.open(result.directory))[1].values()]
        FINISHED[key] = (weights, result.record.turns)
    return FINISHED[key]


def same(one, other):
    weights, others = one[0], other[0]
    return one[1] == other[1] and all(
        a.shape == b.shape and np.array_equal(a, b) for a, b in zip(weights, others, strict=True)
    )


LEAVES = [key for key, section in fields_of(PolicyConfig).items() if section is None]
OF_IQN = {f"iqn.{name}" for name in IQNConfig.model_fields}
"""What IQN reads and DQN does not; all else they share, so it is slow with IQN."""
CASES = [
    pytest.param(
        *(algorithm, key),
        marks=pytest.mark.slow if algorithm == "iqn" and key not in OF_IQN else (),
    )
    for algorithm in ALGORITHMS
    for key in LEAVES
    if another(key, algorithm) is not None
]


@pytest.mark.slow_cases(
    "dqn-adam_epsilon",
    "dqn-batch_size",
    "dqn-discount",
    "dqn-dqn.double",
    "dqn-dqn.huber",
    "dqn-dqn.target_every",
    "dqn-experience.burn_in",
    "dqn-experience.capacity",
    "dqn-experience.group",
    "dqn-experience.learning_starts",
    "dqn-experience.prioritised",
    "dqn-experience.replay_ratio",
    "dqn-experience.segment_length",
    "dqn-experience.wait_limit",
    "dqn-exploration.decay_steps",
    "dqn-exploration.end",
    "dqn-exploration.start",
    "dqn-init_optimizer",
    "dqn-iqn.cosines",
    "dqn-iqn.double",
    "dqn-iqn.huber",
    "dqn-iqn.quantiles",
    "dqn-iqn.target_every",
    "dqn-learning_rate",
    "dqn-max_grad_norm",
    "dqn-n_frames",
    "dqn-n_steps",
    "dqn-network.activation",
    "dqn-network.dueling",
    "dqn-network.hidden",
    "dqn-network.noisy",
    "dqn-on_policy_share",
    "dqn-ppo.anchor",
    "dqn-ppo.anchor_cost",
    "dqn-ppo.anchor_every",
    "dqn-ppo.anneal_steps",
    "dqn-ppo.clip",
    "dqn-ppo.correction",
    "dqn-ppo.entropy_cost",
    "dqn-ppo.epochs",
    "dqn-ppo.gae_lambda",
    "dqn-ppo.max_staleness",
    "dqn-ppo.normalise_advantages",
    "dqn-ppo.normalise_observations",
    "dqn-ppo.normalise_rewards",
    "dqn-ppo.rollout_length",
    "dqn-ppo.target_kl",
    "dqn-ppo.value_clip",
    "dqn-ppo.value_cost",
    "dqn-priority",
    "dqn-publish.every",
    "dqn-reward_scale",
    "dqn-share_rewards",
    "iqn-iqn.cosines",
    "iqn-iqn.double",
    "iqn-iqn.huber",
    "iqn-iqn.quantiles",
    "iqn-iqn.target_every",
    "ppo-adam_epsilon",
    "ppo-batch_size",
    "ppo-discount",
    "ppo-dqn.double",
    "ppo-dqn.huber",
    "ppo-dqn.target_every",
    "ppo-experience.burn_in",
    "ppo-experience.capacity",
    "ppo-experience.learning_starts",
    "ppo-experience.prioritised",
    "ppo-experience.replay_ratio",
    "ppo-experience.segment_length",
    "ppo-exploration.decay_steps",
    "ppo-exploration.end",
    "ppo-exploration.start",
    "ppo-init_optimizer",
    "ppo-iqn.cosines",
    "ppo-iqn.double",
    "ppo-iqn.huber",
    "ppo-iqn.quantiles",
    "ppo-iqn.target_every",
    "ppo-learning_rate",
    "ppo-max_grad_norm",
    "ppo-n_frames",
    "ppo-n_steps",
    "ppo-network.activation",
    "ppo-network.hidden",
    "ppo-network.recurrent",
    "ppo-on_policy_share",
    "ppo-ppo.anchor",
    "ppo-ppo.anchor_cost",
    "ppo-ppo.anchor_every",
    "ppo-ppo.anneal_steps",
    "ppo-ppo.clip",
    "ppo-ppo.entropy_cost",
    "ppo-ppo.epochs",
    "ppo-ppo.gae_lambda",
    "ppo-ppo.minibatches",
    "ppo-ppo.normalise_advantages",
    "ppo-ppo.normalise_observations",
    "ppo-ppo.normalise_rewards",
    "ppo-ppo.normalise_values",
    "ppo-ppo.rollout_length",
    "ppo-ppo.target_kl",
    "ppo-ppo.value_clip",
    "ppo-ppo.value_cost",
    "ppo-priority",
    "ppo-publish.every",
    "ppo-reward_scale",
    "ppo-share_rewards",
)
@pytest.mark.parametrize(("algorithm", "key"), CASES)
def test_what_is_told_to_have_no_effect_has_none_and_all_else_has(algorithm, key, tmp_path):
    plain = tree_of(algorithm)
    changed = overlay(plain, {"policy": nest(key, another(key, algorithm))})
    told = [words.split()[0] for words in unused_settings(load_config(changed))]
    if f"policy.{key}" in told:
        assert same(outcome(plain, tmp_path / "plain"), outcome(changed, tmp_path / "changed"))
        condition = CONDITIONS.get(key, {}).get(algorithm)
        if condition is not None:
            plain, changed = (overlay(t, {"policy": condition}) for t in (plain, changed))
            assert f"policy.{key}" not in str(unused_settings(load_config(changed)))
            assert not same(
                outcome(plain, tmp_path / "plain+"), outcome(changed, tmp_path / "changed+")
            )
    elif key not in ELSEWHERE:
        assert not same(outcome(plain, tmp_path / "plain"), outcome(changed, tmp_path / "changed"))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_is_told_of_defaults(algorithm):
    assert unused_settings(load_config({"policy": {"algorithm": algorithm}})) == []
    whole = load_config({"policy": {"algorithm": algorithm}}).model_dump()
    assert unused_settings(load_config(whole)) == [], "as when a run's config.yaml is read"


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"policy": {"algorithm": "ppo", "batch_size": 128}},
            "policy.batch_size has no effect: it is for iqn, dqn and sac, not ppo; use "
            "policy.ppo.rollout_length and policy.ppo.minibatches",
        ),
        (
            {"policy": {"algorithm": "ppo", "exploration": {"end": 0.2}}},
            "policy.exploration.end has no effect: it is for iqn, dqn and sac, not ppo; use "
            "policy.ppo.entropy_cost",
        ),
        (
            {"policy": {"algorithm": "ppo", "n_steps": 5}},
            "policy.n_steps has no effect: it is for iqn, dqn and sac, not ppo; use "
            "policy.ppo.gae_lambda",
        ),
        (
            {"policy": {"algorithm": "ppo", "dqn": {"huber": 0.5}}},
            "policy.dqn.huber has no effect: it is for dqn, not ppo; use policy.ppo.value_clip",
        ),
        (
            {"policy": {"dqn": {"target_every": 9}}},
            "policy.dqn.target_every has no effect: it is for dqn, not iqn; use "
            "policy.iqn.target_every",
        ),
        (
            {"policy": {"algorithm": "dqn", "iqn": {"quantiles": 5}}},
            "policy.iqn.quantiles has no effect: it is for iqn, not dqn",
        ),
        (
            {"policy": {"algorithm": "dqn", "ppo": {"value_clip": 0.5}}},
            "policy.ppo.value_clip has no effect: it is for ppo and mappo, not dqn; use "
            "policy.dqn.huber",
        ),
        (
            {"policy": {"ppo": {"clip": 0.1}}},
            "policy.ppo.clip has no effect: it is for ppo and mappo, not iqn",
        ),
        (
            {"policies": {"agent_1": {"ppo": {"max_staleness": 3}}}},
            "policies.agent_1.ppo.max_staleness has no effect: it is for ppo and mappo, not iqn; "
            "use policies.agent_1.experience.capacity",
        ),
        (
            {"policy": {"algorithm": "ppo", "on_policy_share": 0.3}},
            "policy.on_policy_share has no effect without policy.learning_mode hybrid",
        ),
        (
            {"population": {"window": 2}},
            "population.window has no effect without population.matchmaker fitness",
        ),
        (
            {"schedule": "sequential", "learners": {"processes": 2}},
            "learners.processes has no effect without schedule async or lockstep",
        ),
    ],
)
def test_the_setting_that_has_an_effect_is_named(tree, said):
    assert unused_settings(load_config(tree)) == [said]


def test_what_one_policy_reads_is_set_for_all():
    tree = {"policy": {"algorithm": "ppo", "batch_size": 32}}
    assert len(unused_settings(load_config(tree))) == 1
    own = {"policies": {"agent_1": {"algorithm": "dqn"}}}
    assert unused_settings(load_config(tree | own)) == []


def test_a_key_that_is_named_to_help_exists():
    keys = set(fields_of(Config))
    for algorithm in ALGORITHMS:
        tree = dict.fromkeys(LEAVES, 1)
        said = [f"policy.{key}" for key in tree]
        config = load_config({"policy": {"algorithm": algorithm}})
        for words in unused_settings(config, said):
            named = [word.strip(";,") for word in words.split() if word.startswith("policy.")]
            assert set(named) <= keys


def test_a_user_is_told_once_of_what_he_wrote_even_if_it_is_the_default(tmp_path, capsys):
    words = (
        *("rock_paper_scissors", "--policy.algorithm", "ppo", "--policy.batch_size", "64"),
        *("--schedule", "sequential", "--run.turns", "50", "--run.evaluate_episodes", "0"),
        *("--run.live", "false", "--run.directory", str(tmp_path / "run")),
    )
    assert run(["train", *words]) == 0
    before, end, after = capsys.readouterr().out.partition("all turns were played")
    assert end
    for part in (before, after):  # it is among the notes at the end too
        assert " ".join(part.split()).count("policy.batch_size has no effect") == 1


@pytest.mark.parametrize(
    ("tree", "read"),
    [
        ({"population": {"matchmaker": "random", "snapshots": {"share": 0.3}}}, False),
        ({"population": {"snapshots": {"share": 0.3, "every": 5}}}, False),
        ({"population": {"matchmaker": "random", "snapshots": {"share": 0.3, "every": 5}}}, True),
        ({"population": {"matchmaker": "random", "options": {"share": 1}}}, False),
        ({"population": {"matchmaker": "mine:Mine", "options": {"share": 1}}}, True),
        (
            {
                "run": {"evaluate_episodes": 0, "evaluate_seconds": 9.0},
                "checkpoint": {"evaluate_episodes": 0},
            },
            False,
        ),
        ({"run": {"evaluate_episodes": 0, "evaluate_seconds": 9.0}}, True),
    ],
)
def test_what_a_population_or_an_evaluation_does_not_read_is_told(tree, read):
    assert len(unused_settings(load_config(tree))) == (0 if read else 1)


def test_a_resume_tells_of_what_the_user_wrote_and_not_of_what_the_program_wrote():
    tree = {
        "schedule": "sequential",
        "learners": {"nice": 5},
        "policies": {"agent_0": {"ppo": {"clip": 0.1}}},
        "population": {"options": {"a": 1}},
    }
    config = load_config(tree)
    assert len(unused_settings(config)) == 3
    assert unused_settings(config, (), resumed=True) == []
    for said in ("learners.nice", "policies.agent_0.ppo.clip", "population.options.a"):
        (words,) = unused_settings(config, (said,), resumed=True)
        assert said.startswith(words.split()[0])


def test_leaves_are_dotted():
    tree = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    assert list(by_leaf(tree).items()) == [("a.b", 1), ("a.c.d", 2), ("e", 3)]


EVOLVES = {"population": {"policies": 4, "evolution": {"every": 10}}}
NUMBERS = {"population": {"evolution": {"numbers": {"discount": {"low": 0.5, "high": 0.9}}}}}
LEAGUE = {"population": {"matchmaker": "league", "league": {"reset": 0.5}}}


@pytest.mark.parametrize(
    ("key", "tree", "more"),
    [
        *(
            (f"population.evolution.{name}", nest(f"population.evolution.{name}", value), NUMBERS)
            for name, value in {
                "factors": [0.5, 2.0],
                "resample": 0.5,
                "explore": "resample",
                "draw_first": True,
            }.items()
        ),
        ("run.calibrate", {"schedule": "sequential", "run": {"calibrate": 2.0}}, None),
        ("run.calibrate", {"schedule": "lockstep", "run": {"calibrate": 2.0}}, None),
        (
            "analysis.members",
            {"analysis": {"every": None, "members": 9}, "population": {"policies": 2}},
            {"analysis": {"every": 5.0}},
        ),
        (
            "analysis.members",
            {"analysis": {"every": 0, "members": 9}, "population": {"policies": 2}},
            {"analysis": {"every": 5.0}},
        ),
        (
            "population.league.reset",
            overlay(LEAGUE, {"population": {"league": {"league_exploiters": 0}}}),
            {"population": {"league": {"league_exploiters": 1}}},
        ),
        (
            "learners.devices",
            {"learners": {"devices": ["cpu"]}, "policy": {"device": "cpu"}},
            {"policies": {"agent_0": {"device": ""}}},
        ),
        (
            "supervision.backoff",
            {"supervision": {"backoff": 60.0}},
            {"supervision": {"backoff": 9}},
        ),
        (
            "supervision.backoff",
            {"supervision": {"backoff": 9.0, "restarts": 0}},
            {"supervision": {"restarts": 1}},
        ),
        (
            "supervision.silence_limit",
            {"supervision": {"silence_limit": 9, "actor_silence": 8, "learner_silence": 7}},
            {"supervision": {"actor_silence": None}},
        ),
    ],
)
def test_what_another_setting_leaves_nothing_to_say_is_told(key, tree, more):
    if key.startswith("population.evolution"):
        tree = overlay(EVOLVES, tree)
        if not key.endswith(("explore", "draw_first")):
            needs = "population.evolution.numbers, and population.evolution.explore perturb"
            assert needs in unused_settings(load_config(tree))[0]
    (words,) = unused_settings(load_config(tree))
    assert words.startswith(f"{key} has no effect without ")
    more = {"schedule": "async"} if more is None else more
    assert unused_settings(load_config(overlay(tree, more))) == []


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"population": {"policies": 1}, "policy": {"experience": {"group": "all"}}},
            "policy.experience.group has no effect: policy_0 is the only policy in the group 'all'",
        ),
        (
            {
                "policy": {"experience": {"group": "all"}},
                "policies": {"agent_1": {"experience": {"group": ""}}},
            },
            "policy.experience.group has no effect: agent_0 is the only policy in the group 'all'",
        ),
        (
            {"policies": {"agent_1": {"experience": {"group": "mine"}}}},
            "policies.agent_1.experience.group has no effect: agent_1 is the only policy in the "
            "group 'mine'",
        ),
        ({"policy": {"experience": {"group": "all"}}}, None),
        (
            {
                "env": {"scripted": {"agent_1": "random"}},
                "policies": {"agent_1": {"discount": 0.5, "experience": {"segment_length": 9}}},
            },
            "policies.agent_1 has no effect: env.scripted.agent_1 takes that seat",
        ),
        (
            {
                "env": {"scripted": {"agent_1": "random"}},
                "policies": {"agent_0": {"discount": 0.5}},
            },
            None,
        ),
    ],
)
def test_what_policies_leave_nothing_to_say_is_told(tree, said):
    tree = overlay({"game": "rock_paper_scissors", "policy": {"algorithm": "dqn"}}, tree)
    config = load_config(tree)
    names = [spec.name for spec in prepare(config).specs]
    found = unused_settings(config, policies=names)
    assert found == [said] * (said is not None)
    assert unused_settings(config, resumed=True, policies=names) == []
    written = [f"policies.{names[-1]}.discount"]
    again = unused_settings(config, written, resumed=True, policies=names)
    assert again == [words for words in found if "takes that seat" in words]
