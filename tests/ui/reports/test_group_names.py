"""Names of groups of compared runs, and the settings that set no groups apart."""

from remuda.ui.reports.comparison import compare
from remuda.ui.reports.group_names import compared
from ui.made_runs import a_run


def test_a_policy_without_its_own_setting_is_named_by_the_common_one(tmp_path):
    """The middle group had an empty name: its learning rate equals policy.learning_rate."""
    runs = [
        a_run(
            tmp_path / f"{rate}",
            policy={"algorithm": "ppo"},  # its learning rate is 0.001
            policies={"agent_0": {"learning_rate": rate}},
        )
        for rate in (1e-4, 1e-3, 1e-2)
    ]
    names = [group.name for group in compare(runs).groups]
    assert names == ["learning_rate 0.0001", "learning_rate 0.001", "learning_rate 0.01"]


def test_a_group_without_a_setting_that_others_have_has_a_name(tmp_path):
    runs = [
        a_run(tmp_path / f"{i}", env={"scripted": scripted})
        for i, scripted in enumerate(({}, {"agent_0": "random"}))
    ]
    assert [group.name for group in compare(runs).groups] == ["no agent_0", "agent_0 random"]


def test_a_name_shows_the_settings_that_tell_groups_apart(tmp_path):
    """Two groups were `... and 1 more`, whose difference was hidden."""
    three = {"discount": 0.9, "learning_rate": 0.01, "batch_size": 8}
    runs = [
        a_run(tmp_path / f"{i}", policy=settings)
        for i, settings in enumerate(
            ({}, three, {**three, "max_grad_norm": 1.5}, {**three, "max_grad_norm": 2.5})
        )
    ]
    names = [group.name for group in compare(runs).groups]
    assert len(set(names)) == 4
    assert [name.partition("max_grad_norm ")[2].split()[0] for name in names[2:]] == ["1.5", "2.5"]
    assert not any("(" in name for name in names)


def test_defaults_of_an_algorithm_are_no_differences(tmp_path):
    runs = [a_run(tmp_path / name, policy={"algorithm": name}) for name in ("ppo", "mappo")]
    assert [g.name for g in compare(runs).groups] == ["algorithm ppo", "algorithm mappo"]
    joint = {"algorithm": "mappo", "value": {"input": "joint"}}
    runs[1] = a_run(tmp_path / "joint", policy=joint)
    names = [group.name for group in compare(runs).groups]
    assert names[1].startswith("algorithm mappo, ")
    assert "input joint" in names[1]


def test_episode_metrics_set_no_runs_apart_unless_evolution_selects_by_them(tmp_path):
    recorded = {"episode_metrics": {"speed": "mean"}}
    runs = [a_run(tmp_path / f"{i}", i, env=env) for i, env in enumerate(({}, recorded))]
    assert [len(group.runs) for group in compare(runs).groups] == [2]
    settings = {"population.evolution.fitness": "game/speed", "env.episode_metrics.speed": "mean"}
    assert compared(settings) == settings
