"""Learning modes: what an update trains on, and from whom."""

import numpy as np
import pytest

from assembled import assemble
from refusals import refuses
from remuda.config import load_config, overlay
from remuda.config.unused_settings import unused_settings
from remuda.errors import ConfigError
from remuda.experience.ring import OTHERS
from remuda.experience.segments import AFTER
from remuda.policies.compatibility import shares_of
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.scoreboard import Learn
from support import Tape

TREE = {
    "game": "support:Tape",
    "schedule": "sequential",
    "env": {"num_envs": 8, "options": {"num_agents": 3}},
    "policy": {
        "algorithm": "ppo",
        "network": {"hidden": (8,)},
        "ppo": {"rollout_length": 16, "minibatches": 1},
        "experience": {"segment_length": 5, "capacity": 2000},
    },
    "run": {"turns": None, "seconds": 3600},
}
DQN = {
    "algorithm": "dqn",
    "n_frames": 1,
    "batch_size": 16,
    "network": {"hidden": (8,)},
    "experience": {"learning_starts": 64, "capacity": 500, "segment_length": 5},
}


def specs_of(**tree):
    config = load_config(overlay(TREE, tree))
    return config, policy_specs(config, Tape(num_agents=3).agents)


def learners_after(turns, **tree):
    """The learners of a run in one process, by policy, its board, and what was trained on last."""
    config, specs = specs_of(**tree)
    agents = Tape(num_agents=3).agents
    assembly = assemble(config, specs, make_layout(config, len(specs)), agents=agents)
    actor, *groups = (role.build() for role in assembly.roles())
    found = {name: learner for g in groups for learner in g.learners for name in learner.policies}
    trained_on = {}
    for learner in set(found.values()):
        watch(learner, trained_on)
    for _ in range(turns):
        actor.work()
        for group in groups:
            while group.work():
                pass
    return found, assembly.scoreboard, trained_on


def watch(learner, trained_on):
    """Note of each policy's newest update the versions of its steps, how many, and those taken."""
    update = learner.algorithm.update

    def watched(rollout, members):
        for k in members:
            rows = slice(0, int(rollout.num_rows[k]))
            steps = rollout.streams[k, rows] != AFTER
            trained_on[learner.policies[k]] = (
                rollout.versions[k, rows][steps],
                int(rollout.num_steps[k]),
                int(rollout.num_taken[k]),
            )
        return update(rollout, members)

    if learner.trainers[0].config.rollout_length:
        learner.algorithm.update = watched


def test_on_policy_trains_on_the_newest_rollout_alone():
    _, board, trained_on = learners_after(80)
    versions, steps, taken = trained_on["agent_0"]
    assert steps == taken == len(versions)
    # Segments that were open at the last update go on into this one.
    assert versions.min() >= board.learn("agent_0")[Learn.VERSION] - 2


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_hybrid_joins_the_newest_rollout_with_the_past(share):
    policy = {"learning_mode": "hybrid", "on_policy_share": share}
    _, board, trained_on = learners_after(80, policy=policy)
    versions, steps, taken = trained_on["agent_0"]
    assert taken / steps == pytest.approx(share, abs=0.02)
    newest = board.learn("agent_0")[Learn.VERSION] - 1
    assert versions[:taken].min() >= newest - 1
    assert len(set(versions[taken:])) > 2
    row = board.learn("agent_0")
    assert row[Learn.TRAINED] < row[Learn.SAMPLES] / 4  # epochs; what is drawn is not counted twice
    assert row[Learn.STALENESS_SUM] > 0


def test_off_policy_trains_on_draws_as_often_as_it_has_played_a_rollout():
    _, board, trained_on = learners_after(160, policy={"learning_mode": "off_policy"})
    _, expected, _ = learners_after(160)
    versions, steps, taken = trained_on["agent_1"]
    assert len(set(versions)) > 3
    assert taken <= steps < taken + 5
    assert board.learn("agent_1")[Learn.UPDATES] == expected.learn("agent_1")[Learn.UPDATES] > 3


@pytest.mark.slow_cases(
    "0.5-0.125-dealt",
    "2.0-0.5-dealt",
    "2.0-0.5-fixed",
    "9.0-1.0-dealt",
    "9.0-1.0-fixed",
    "None-1.0-dealt",
    "None-1.0-fixed",
)
@pytest.mark.parametrize("dealt", [False, True], ids=["fixed", "dealt"])
@pytest.mark.parametrize(("ratio", "updates"), [(None, 1.0), (9.0, 1.0), (2.0, 0.5), (0.5, 0.125)])
def test_off_policy_trains_no_more_than_the_replay_ratio_allows(ratio, updates, dealt):
    """By default an update has 4 epochs of as many steps as a rollout."""
    group = {"experience": {"replay_ratio": ratio, "group": "us"}}
    tree = {"population": {"policies": 2, "matchmaker": "self_play"}} if dealt else {}
    learners, board, _ = learners_after(400, policy={"learning_mode": "off_policy"} | group, **tree)
    _, usual, _ = learners_after(400, policy={"learning_mode": "off_policy"}, **tree)
    for name, learner in learners.items():
        experience = learner.rollouts[learner.policies.index(name)].experience
        row, most = board.learn(name), usual.learn(name)[Learn.UPDATES]
        assert ratio is None or row[Learn.SAMPLES] <= ratio * experience.passed
        assert abs(row[Learn.UPDATES] - updates * most) <= 1.5
        assert row[Learn.LOST] == 0
        assert row[Learn.TRAINED] == experience.passed


@pytest.mark.parametrize("mode", ["on_policy", "hybrid"])
def test_a_replay_ratio_that_a_mode_does_not_read_is_told(mode):
    policy = {"learning_mode": mode, "experience": {"replay_ratio": 0.5}}
    assert [words for words in unused_settings(specs_of(policy=policy)[0]) if "ratio" in words] == [
        "policy.experience.replay_ratio has no effect without policy.learning_mode off_policy; "
        "a rollout is trained on policy.ppo.epochs times"
    ]
    read = {"learning_mode": "off_policy", "experience": {"replay_ratio": 0.5}}
    assert not [words for words in unused_settings(specs_of(policy=read)[0]) if "ratio" in words]


@pytest.mark.parametrize("mode", ["hybrid", "off_policy"])
def test_a_group_learns_from_what_all_of_it_lived_through(mode):
    policy = {"learning_mode": mode, "experience": {"group": "us"}}
    policies = {"agent_2": {"experience": {"group": ""}}}
    _, _, trained_on = learners_after(200, policy=policy, policies=policies)
    for name, group in (("agent_0", True), ("agent_1", True), ("agent_2", False)):
        versions, _, taken = trained_on[name]
        drawn = versions[taken if mode == "hybrid" else 0 :]
        assert (
            ((drawn == OTHERS).mean() == pytest.approx(0.5, abs=0.15))
            if group
            else (OTHERS not in drawn)
        )


def test_q_learners_of_a_group_draw_from_each_other():
    policy = overlay(DQN, {"experience": {"group": "us"}})
    learners, _, _ = learners_after(200, policy=policy)
    replay = learners["agent_0"].replays[0]
    batch, versions = replay.empty(1, 16), []
    for _ in range(40):
        replay.sample(batch, 0, 16)
        versions.append(batch.versions[0].copy())
    assert (np.array(versions) == OTHERS).mean() == pytest.approx(2 / 3, abs=0.1)


def test_policies_of_one_stack_may_play_unlike_shares():
    """The first may take one seat of three, for which the others stand in as often."""
    population = {
        "matchmaker": "random",
        "policies": ["a", "b", "c", "d"],
        "seats": {"a": ["agent_0"]},
    }
    one = {"processes": 1}
    learners, board, _ = learners_after(300, population=population, learners=one)
    assert learners["a"] is learners["b"] is learners["c"] is learners["d"]
    experience = {name: learners["a"].rollouts[k].experience for k, name in enumerate("abcd")}
    shares = {name: found.rollout for name, found in experience.items()}
    # Of 12 seatings in which none sits twice the first is in 6, and each of the others in 10. So
    # it plays 4 of 24 streams, and they 6 2/3 each; a rollout is of as many as are nearest.
    assert shares["b"] == shares["c"] == shares["d"]
    played = {name: found.written for name, found in experience.items()}
    for name, streams in {"a": 8 * 6 / 12, "b": 80 / 12, "c": 80 / 12, "d": 80 / 12}.items():
        assert shares[name] == 16 * round(streams)
        assert 24 * played[name] / sum(played.values()) == pytest.approx(streams, rel=0.1)
    for name in "abcd":
        row = board.learn(name)
        assert row[Learn.UPDATES] > 3
        assert row[Learn.TRAINED] >= row[Learn.UPDATES] * shares[name]


def test_lag_is_told_of_own_steps_alone():
    learners, board, _ = learners_after(40)
    trainer, row = learners["agent_0"].trainers[0], board.learn("agent_0")
    before = row.copy()
    trainer.count_staleness(np.zeros(0, np.int64))
    assert (row == before).all()


def test_v_trace_corrects_what_others_chose_unless_told_otherwise():
    def correction(**policy):
        return specs_of(policy=policy)[1][0].config.correction

    assert correction() == "decoupled"
    assert correction(learning_mode="hybrid") == "vtrace"
    assert correction(learning_mode="off_policy") == "vtrace"
    assert correction(learning_mode="hybrid", ppo={"correction": "none"}) == "none"


@pytest.mark.parametrize(
    "policy",
    [
        DQN | {"learning_mode": "on_policy"},
        {"experience": {"group": "us"}},
        {"learning_mode": "hybrid", "on_policy_share": 1.0},
        {"learning_mode": "hybrid", "ppo": {"normalise_rewards": True}},
        {
            "learning_mode": "hybrid",
            "experience": {"group": "us"},
            "network": {"recurrent": 4},
        },
    ],
)
def test_modes_that_cannot_be_are_told(policy):
    with refuses(ConfigError):
        load_config({"game": "support:Tape", "policy": {"algorithm": "ppo"} | policy})


@pytest.mark.parametrize(
    "own",
    [
        {"n_frames": 2},
        DQN | {"learning_mode": "off_policy"} | {"experience": DQN["experience"] | {"group": "us"}},
        {"experience": {"segment_length": 8, "group": "us"}},
    ],
)
def test_who_cannot_learn_from_each_other_is_told(own):
    policy = {"learning_mode": "hybrid", "experience": {"group": "us"}}
    _, specs = specs_of(policy=policy, policies={"agent_1": own})
    with refuses(ConfigError):
        shares_of(specs)
