"""A newborn that takes over its parent's training state goes on exactly as its parent would."""

import numpy as np
import pytest
import torch

from policies.algorithms import test_algorithms as q_learners
from policies.made_rollouts import fill, make_stack, room_for, some_lengths
from remuda.system.checkpoint.state import pack

ROLLOUTS = ["trunk", "recurrent", "annealed", "normalised", "anchor", "own algorithm", "continuous"]
PARENT, PLACE = 0, 1


def rollout_of(algorithm, seed):
    """The same rollout for both policies of a stack, whose streams no sum runs on in."""
    rollout = room_for(algorithm, 200)
    lengths = some_lengths(20, np.random.default_rng(seed))
    for row in (PARENT, PLACE):
        fill(rollout, row, lengths, algorithm, np.random.default_rng(seed))
    return rollout


def begin(algorithm, training=True):
    """Let a policy be born in the second place, of the one in the first; both draw alike then."""
    learned = algorithm.learned(PARENT)
    taken_over = algorithm.training(learned) if training else None
    weights = torch.from_numpy(learned["online"])
    algorithm.begin(PLACE, weights, algorithm.configs[PARENT], taken_over)
    return taken_over


def state_of(algorithm, policy):
    """All that was learned, without the count of updates, which belongs to the place."""
    learned = algorithm.learned(policy)
    learned.pop("updates")
    if "returns" in learned:
        learned["returns"] = learned["returns"]["moments"]
    return pack(learned)


@pytest.mark.slow_cases("anchor", "recurrent")
@pytest.mark.parametrize("kind", ROLLOUTS)
def test_a_newborn_of_rollouts_goes_on_as_its_parent_would(kind):
    algorithm = make_stack(kind, [3, 4])
    for seed in range(3):
        rollout = rollout_of(algorithm, seed)
        for k in (PARENT, PLACE):
            algorithm.update(rollout, [k])
    algorithm.update(rollout_of(algorithm, 9), [PLACE])  # another one was there before
    algorithm.updates[PLACE] = algorithm.updates[PARENT]
    begin(algorithm)
    assert state_of(algorithm, PARENT) == state_of(algorithm, PLACE)
    streams = algorithm._rngs
    streams[PLACE].bit_generator.state = streams[PARENT].bit_generator.state
    for state in ([], np.zeros(4)):  # the newborn's streams begin, and so do its parent's here
        for k in (PARENT, PLACE):
            algorithm._returns[k].sums = np.array(state)
        rollout = rollout_of(algorithm, 20 + len(state))
        for k in (PARENT, PLACE):  # one by one: how many train together decides the last bits
            algorithm.update(rollout, [k])
        assert state_of(algorithm, PARENT) == state_of(algorithm, PLACE)


@pytest.mark.parametrize("kind", ["dqn", "iqn"])
def test_a_newborn_of_transitions_goes_on_as_its_parent_would(kind):
    algorithm = q_learners.make(kind, policies=2, target_every=7)
    for seed in range(10):  # its target was renewed, and is behind
        algorithm.update(q_learners.transitions(2, seed=seed, discount=0.9))
    assert not np.array_equal(algorithm.learned(PARENT)["target"], algorithm.weights(PARENT))
    begin(algorithm)
    assert state_of(algorithm, PARENT) == state_of(algorithm, PLACE)
    algorithm._rngs[PLACE].set_state(algorithm._rngs[PARENT].get_state())
    for seed in range(20, 30):
        for k in (PARENT, PLACE):
            batch = q_learners.transitions(1, seed=seed, discount=0.9)
            state = algorithm._rngs[PARENT].get_state()
            algorithm.update(batch, k, k + 1)
            if k == PARENT and kind == "iqn":
                algorithm._rngs[PLACE].set_state(state)
    assert state_of(algorithm, PARENT) == state_of(algorithm, PLACE)


@pytest.mark.parametrize("kind", ["annealed", "normalised", "anchor", "dqn"])
def test_a_newborn_that_takes_over_weights_alone_begins_all_else_anew(kind):
    if kind == "dqn":
        algorithm = q_learners.make(kind, policies=2, target_every=7)
        for seed in range(10):
            algorithm.update(q_learners.transitions(2, seed=seed, discount=0.9))
    else:
        algorithm = make_stack(kind, [3, 4])
        for seed in range(2):
            algorithm.update(rollout_of(algorithm, seed), [PARENT, PLACE])
    begin(algorithm, training=False)
    learned = algorithm.learned(PLACE)
    assert np.array_equal(learned["online"], algorithm.weights(PARENT))
    assert learned["optimizer"]["steps"] == 0
    assert not learned["optimizer"]["mean"].any()
    for name in ("anchor", "target"):
        if learned.get(name) is not None:
            assert np.array_equal(learned[name], learned["online"])
    assert learned.get("trained", 0) == 0
    if kind != "dqn":
        assert learned["returns"]["moments"].tolist() == [0.0, 1.0, 0.0]


def test_what_fits_no_weights_begins_anew_and_schedules_go_on():
    algorithm = make_stack("anchor", [3, 4])
    algorithm.update(rollout_of(algorithm, 0), [PARENT, PLACE])
    training = algorithm.training(algorithm.learned(PARENT))
    layout = algorithm.training_layout(algorithm.configs[PARENT])
    assert training.adapted(layout, algorithm.weights(PLACE)).state() == training.state()
    weights = algorithm.weights(PLACE) + 1.0
    found = training.adapted(layout, weights, fits=False)
    assert not found.vectors["mean"].any()
    assert not found.vectors["square"].any()
    assert np.array_equal(found.vectors["anchor"], weights)
    assert found.numbers == {**training.numbers, "steps": 0.0}
    assert found.numbers["trained"] > 0
    # One whose parent has no anchor begins at its own weights, as at each renewal of it.
    del training.vectors["anchor"]
    found = training.adapted(layout, weights)
    assert np.array_equal(found.vectors["anchor"], weights)
    assert np.array_equal(found.vectors["mean"], training.vectors["mean"])


def test_what_is_published_is_laid_out_as_the_specification_has_it():
    for kind in ("trunk", "anchor", "own algorithm"):
        algorithm = make_stack(kind, [3])
        training = algorithm.training(algorithm.learned(0))
        layout = algorithm.training_layout(algorithm.configs[0])
        assert tuple(training.vectors) == layout.vectors
        assert tuple(training.numbers) == layout.numbers
