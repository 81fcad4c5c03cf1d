"""A run notes at its end that it made no update, or never read an episode metric."""

import pytest

import remuda
from remuda.ui.terminal.live import PlainView

PPO = {"algorithm": "ppo", "ppo": {"rollout_length": 50}}
DQN = {"algorithm": "dqn", "batch_size": 16, "experience": {"learning_starts": 500}}


def notes_of(directory, **settings):
    result = remuda.train(
        "support:Tape",
        view=PlainView(),
        schedule="sequential",
        run={"turns": 60, "evaluate_episodes": 0, "directory": directory},
        checkpoint={"evaluate_episodes": 0},
        **{"env": {"num_envs": 2}} | settings,
    )
    return [note for note in result.notes if "no update" in note]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (PPO, ["agent_0, agent_1", "100 steps", "run.turns", "policy.ppo.rollout_length"]),
        (DQN, ["agent_0, agent_1", "500 steps", "run.turns", "policy.experience.learning_starts"]),
    ],
)
def test_too_few_turns_for_an_update_are_noted(tmp_path, policy, words):
    (note,) = notes_of(tmp_path / "run", policy=policy)
    assert not [word for word in words if word not in note], note
    assert note in remuda.load(tmp_path / "run").summary()["notes"]


def test_only_policies_without_an_update_are_noted(tmp_path):
    own = {"agent_1": {"ppo": {"rollout_length": 10}}}
    (note,) = notes_of(tmp_path / "one", policy=PPO, policies=own)
    assert note.startswith("agent_0: ")
    (note,) = notes_of(
        tmp_path / "two",
        policy=PPO | {"ppo": {"rollout_length": 10}},
        policies={"agent_1": {"ppo": {"rollout_length": 50}}},
    )
    assert note.startswith("agent_1: ")
    assert "policies.agent_1.ppo.rollout_length" in note


def test_a_trained_or_scripted_policy_has_no_such_note(tmp_path):
    short = PPO | {"ppo": {"rollout_length": 10}}
    env = {"num_envs": 2, "scripted": {"agent_1": "random"}}
    assert notes_of(tmp_path / "run", policy=short, env=env) == []


@pytest.mark.parametrize("turns", [60, 2000])
def test_episode_metrics_that_no_info_holds_are_noted(tmp_path, turns):
    """Red before: only the actor's log named them."""
    result = remuda.train(
        "telling_games:Telling",
        view="quiet",
        schedule="sequential",
        policy=PPO | {"ppo": {"rollout_length": 10}},
        env={"num_envs": 2, "episode_metrics": {"turn": "max", "sped": "mean"}},
        run={"turns": turns, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        checkpoint={"evaluate_episodes": 0},
    )
    (note,) = [note for note in result.notes if note.startswith("env.episode_metrics")]
    assert "held sped;" in note
