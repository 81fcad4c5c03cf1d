"""Trained policies that are asked: copies, threads, batches, states, masks."""

import copy
import gc
import pickle
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import torch

import remuda
from refusals import refuses
from remuda.errors import UsageError
from remuda.policies.acting import ActingStack
from trained_policies import SETTINGS, SMALL, trained


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    """By setting, a trained policy."""
    made = {}

    def get(setting):
        if setting not in made:
            directory = tmp_path_factory.mktemp("trained") / "run"
            made[setting] = trained(directory, *SETTINGS[setting])["agent_0"]
        return made[setting]

    return get


def observations_of(policy, count, seed=0):
    policy.observation_space.seed(seed)
    return np.stack([policy.observation_space.sample() for _ in range(count)])


KINDS = ["ppo", "dqn with frames", "recurrent"]


@pytest.mark.slow_cases(
    "dqn with frames-copied", "ppo-copied", "ppo-pickled", "recurrent-copied", "recurrent-pickled"
)
@pytest.mark.parametrize("how", ["copied", "pickled"])
@pytest.mark.parametrize("setting", KINDS)
def test_a_copy_chooses_as_it_does(setting, how, policies):
    """It acted on zeros: the arrays that it and its network shared were two."""
    policy = policies(setting)
    seen = observations_of(policy, 60)
    policy.begin()
    policy.act(seen[0])
    other = copy.deepcopy(policy) if how == "copied" else pickle.loads(pickle.dumps(policy))
    for one in seen:
        assert other.act(one) == policy.act(one)
        theirs, own = other.remembered, policy.remembered
        assert (theirs.recurrent_state == own.recurrent_state).all()
        assert (theirs.frames == own.frames).all()


@pytest.mark.parametrize("setting", KINDS)
def test_what_is_refused_changes_nothing(setting, policies):
    policy = policies(setting)
    seen = observations_of(policy, 3).astype(np.float64)
    policy.begin()
    policy.act(seen)
    state = policy.initial_state(3)
    before = policy.remembered, state.copy()
    for arguments in (
        {"observation": seen * np.nan},
        {"observation": seen, "epsilon": 2.0},
        {"observation": seen, "epsilon": 2.0, "deterministic": False},
        {"observation": seen, "rng": "a"},
        {"observation": seen, "mask": [True] * 3},
        {"observation": seen[:, :1], "state": state},
        {"observation": seen[:2], "state": state},
        {"observation": seen * np.nan, "state": state},
    ):
        with pytest.raises((UsageError, TypeError)):
            policy.act(**arguments)
    for was, now in zip(before, (policy.remembered, state), strict=True):
        for field in ("frames", "starts", "recurrent_state"):
            assert (getattr(was, field) == getattr(now, field)).all()


def test_a_state_of_another_policy_is_refused(policies):
    """Compiled code wrote beyond its frames, and the process died."""
    other = policies("recurrent").initial_state(64)
    policy = policies("dqn with frames")
    with refuses(UsageError):
        policy.act_from(other, observations_of(policy, 64))


def test_only_streams_that_there_are_begin(policies):
    policy = policies("recurrent")
    policy.act(observations_of(policy, 3))
    with refuses(UsageError):
        policy.begin([True, False])


@pytest.mark.slow_cases("continuous")
@pytest.mark.parametrize("setting", [*KINDS, "masked", "continuous"])
def test_a_batch_of_none(setting, policies):
    policy = policies(setting)
    none = np.zeros((0, *policy.observation_space.shape), policy.observation_space.dtype)
    mask = np.zeros((0, policy.mask_size), bool) if policy.mask_size else None
    assert policy.act(none, mask=mask).shape == (0, *policy.action_space.shape)


def test_several_threads_may_ask(policies):
    policy = policies("ppo")
    seen = observations_of(policy, 100)
    expected = policy.act(seen).tolist()
    wrong, interval = [], sys.getswitchinterval()

    def ask():
        found = [int(policy.act(one)) for one in seen for _ in range(3)]
        wrong.extend(a != b for a, b in zip(found, np.repeat(expected, 3), strict=True))

    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(wrong) == 1200
    assert not any(wrong)


def test_batches_of_many_sizes_take_no_memory(policies, monkeypatch):
    policy, room, passes = policies("ppo"), ActingStack.padded_pass, []

    def noted(stack, *sizes):
        inputs, forward = room(stack, *sizes)
        passes.append(weakref.ref(forward))
        return inputs, forward

    monkeypatch.setattr(ActingStack, "padded_pass", noted)
    for count in range(59, 0, -1):  # with the largest first its memory is made once
        policy.act(observations_of(policy, 1).repeat(count, 0))
    gc.collect()
    assert len(passes) == 59
    assert 1 <= sum(each() is not None for each in passes) <= 16


def test_a_distribution_explores_whatever_the_exploration_rate_is(tmp_path):
    """With `exploration.end` 0, which has no effect on PPO, it played greedily in training."""
    setting = SETTINGS["ppo"][1] | {"exploration": {"start": 0.0, "end": 0.0}}
    tree = remuda.config.overlay(SMALL, {"policy": setting})
    for name in ("experience", "batch_size"):
        tree["policy"].pop(name)
    result = remuda.train("support:Tape", config=tree, run={"directory": tmp_path / "run"})
    assert result.record.policies["agent_0"].epsilon is None
    policy = remuda.load(result)["agent_0"]
    drawn = policy.act(np.zeros((200, 5), np.float32), deterministic=False, rng=1)
    assert len(set(drawn.tolist())) > 1


@pytest.mark.parametrize("arguments", [{}, {"deterministic": False}])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_distribution_has_no_exploration_rate(rate, arguments, policies):
    """With 0.0 it was greedy, and any other rate was as 1."""
    policy = policies("ppo")
    with refuses(UsageError):
        policy.act(observations_of(policy, 2), epsilon=rate, **arguments)


def test_a_mask_must_allow_something_in_each_choice(policies):
    policy = policies("masked choices")
    seen = observations_of(policy, 2)
    both = [[True, True, True, False, True], [True, False, False, False, False]]
    with refuses(UsageError):
        policy.act(seen, mask=both)
    both[1][4] = True
    assert policy.act(seen, mask=both)[1].tolist() == [0, 2]


def test_starts_of_a_state_begin_its_memory_too(policies):
    """Frames were cleared, and the recurrent state went on."""
    policy = policies("recurrent")
    cues = observations_of(policy, 3)
    _, state = policy.act_from(policy.initial_state(3), cues)
    state.starts[:] = [True, False, True]
    begun = state.copy()
    begun.begin(state.starts)
    found, expected = (policy.act_from(each, cues)[1] for each in (state, begun))
    assert (found.recurrent_state == expected.recurrent_state).all()
    assert not (found.recurrent_state[1] == found.recurrent_state[0]).all()
    assert state.recurrent_state.any(), "the state that was given was changed"


def test_a_shallow_copy_shares_nothing_that_changes(policies):
    policy = policies("recurrent")
    cues = observations_of(policy, 2)
    policy.begin()
    policy.act(cues)
    other = copy.copy(policy)
    before = other.remembered.recurrent_state

    def chosen(policy):
        return [policy.act(cues, deterministic=False).tolist() for _ in range(60)]

    drawn = chosen(policy)
    assert len({str(each) for each in drawn}) > 1
    assert (other.remembered.recurrent_state == before).all()
    assert not (policy.remembered.recurrent_state == before).all()
    assert chosen(other) == drawn  # from random numbers of its own, which were alike


def test_a_batch_of_none_is_forgotten_and_nothing_else(policies):
    policy = policies("recurrent")
    cues = observations_of(policy, 3)
    policy.act(cues)
    before = policy.remembered
    assert policy.act(cues[:0]).shape == (0,)
    assert len(policy.remembered) == 3
    assert (policy.remembered.recurrent_state == before.recurrent_state).all()


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_policies_of_several_threads_leave_torch_as_it_was(policies, monkeypatch, three_threads):
    """The second one took the first one's single thread for what had been set, and left it so."""
    inside, asks, found = threading.Event(), threading.Event(), {}
    slow, other = copy.deepcopy(policies("ppo")), policies("dqn with frames")
    seen = observations_of(slow, 2), observations_of(other, 2)
    room = ActingStack.padded_pass

    def waits(stack, *sizes):
        if not inside.is_set():  # the first that computes
            inside.set()
            asks.wait(10.0)
            time.sleep(0.2)  # the other asks meanwhile
            found["during"] = torch.get_num_threads()
        return room(stack, *sizes)

    def ask():
        inside.wait(10.0)
        asks.set()
        other.act(seen[1])
        found["after"] = torch.get_num_threads()

    monkeypatch.setattr(ActingStack, "padded_pass", waits)
    thread = threading.Thread(target=ask)
    thread.start()
    slow.act(seen[0])
    thread.join()
    assert found == {"during": 1, "after": 3}
    assert torch.get_num_threads() == 3
