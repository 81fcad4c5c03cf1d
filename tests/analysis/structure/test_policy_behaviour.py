"""Trained policies are asked on the same states, and told apart by what they would do."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, MultiDiscrete
from scipy.spatial.distance import jensenshannon

from refusals import refuses
from remuda.analysis.structure.behaviour import hellinger_of_choices
from remuda.analysis.structure.policy_behaviour import STATES, policy_behaviour
from remuda.config import load_config
from remuda.envs.recorded import ObservedStates
from remuda.envs.registry import make_env
from remuda.errors import UsageError
from remuda.policies.spec import first_weights
from remuda.population.specs import policy_specs
from remuda.types import AgentSpec


def player_of(biases, game="kuhn_poker", **policy):
    """A policy that does the same everywhere: the biases of its last layer, all else being 0."""
    config = load_config({"game": game, "policy": {"algorithm": "ppo", **policy}})
    spec = policy_specs(config, make_env(game, 1).agents)[0]
    flat, at = np.zeros_like(first_weights(spec, torch.Generator().manual_seed(0))), 0
    for name, shape in spec.network().shapes.items():
        size = int(np.prod(shape))
        if name == "policy.bias":
            flat[at : at + size] = biases
        at += size
    return spec, flat


def states(count=40, shape=(8,), masks=True):
    rng = np.random.default_rng(0)
    allowed = np.tile([False, True, True], (count, 1)) if masks else None
    seen = rng.random((count, 1, *shape)).astype(np.float32)
    return ObservedStates(seen, allowed, np.arange(count) // 4)


def test_distances_are_those_of_the_probabilities_over_what_is_allowed():
    # Pass or bet with even odds, and pass alone; what is not allowed makes no difference.
    players = {
        "even": player_of([5.0, 0.0, 0.0]),
        "even too": player_of([-5.0, 0.0, 0.0]),
        "passes": player_of([0.0, 30.0, 0.0]),
    }
    found = policy_behaviour(players, states(), np.random.default_rng(0))
    # Jensen and Shannon's divergence of (1/2, 1/2) and (1, 0) in bits, by hand: H(3/4) - 1/2.
    divergence = 2 - 0.75 * np.log2(3) - 0.5
    away = found.distances.distances
    assert away[0, 2] == pytest.approx(np.sqrt(divergence), abs=1e-5)
    assert away[0, 1] == pytest.approx(0.0, abs=1e-6)
    told = found.in_words()
    assert told.startswith("On 40 states the mean distance between the policies' actions is 0.37 (")
    assert "even and even too are closest, 0.00" in told
    json.dumps(found.as_summary(), allow_nan=False)


def test_policies_that_stack_frames_are_asked_with_those_before():
    players = {
        "stacks": player_of([0.0, 0.0, 0.0], n_frames=2),
        "newest": player_of([0.0, 30.0, 0.0]),
    }
    seen = states()
    with refuses(UsageError):
        policy_behaviour(players, seen, np.random.default_rng(0))
    seen = ObservedStates(np.repeat(seen.observations, 3, axis=1), seen.masks, seen.episodes)
    found = policy_behaviour(players, seen, np.random.default_rng(0))
    assert found.distances.mean == pytest.approx(np.sqrt(1.5 - 0.75 * np.log2(3)), abs=1e-5)


def test_few_states_are_chosen_of_many():
    players = {"a": player_of([0.0, 0.0, 1.0]), "b": player_of([0.0, 1.0, 0.0])}
    found = policy_behaviour(players, states(2400), np.random.default_rng(0))
    assert found.states == STATES == 2000


def test_who_cannot_be_asked_is_named():
    players = {"a": player_of([0.0, 0.0, 1.0]), "b": player_of([0.0, 1.0, 0.0])}
    config = load_config(
        {"game": "kuhn_poker", "policy": {"algorithm": "ppo", "network": {"recurrent": 8}}}
    )
    spec = policy_specs(config, make_env("kuhn_poker", 1).agents)[0]
    weights = first_weights(spec, torch.Generator().manual_seed(0))
    found = policy_behaviour(players | {"c": (spec, weights)}, states(), np.random.default_rng(0))
    assert found.names == ("a", "b")
    assert "earlier observations" in found.not_measured["c"]
    with refuses(UsageError):
        policy_behaviour(
            {"a": players["a"], "c": (spec, weights)}, states(), np.random.default_rng(0)
        )


def choosing(sizes, biases, algorithm="ppo"):
    """A policy of several choices that does the same everywhere."""
    policy = {"algorithm": algorithm, "n_frames": 1, "network": {"dueling": False}}
    config = load_config({"policy": policy})
    agent = AgentSpec("a", Box(0, 1, (8,), np.float32), MultiDiscrete(sizes), masked=True)
    (spec,) = policy_specs(config, [agent])
    flat, at = np.zeros_like(first_weights(spec, torch.Generator().manual_seed(0))), 0
    for name, shape in spec.network().shapes.items():
        size = int(np.prod(shape))
        if name in ("policy.bias", "head.bias"):
            flat[at : at + size] = biases
        at += size
    return spec, flat


def test_several_choices_are_compared_by_their_joint_distribution():
    allowed = np.tile([True, True, False, True, True], (40, 1))  # of two and of three
    seen = replace(states(masks=False), masks=allowed)
    log3 = np.log(3)
    players = {
        "one": choosing([2, 3], [0, log3, 9, 0, 0]),
        "two": choosing([2, 3], [0, 0, -9, 0, log3]),
        "greedy": choosing([2, 3], [9, 0, 1, 9, 5, 0], "dqn"),
    }
    found = policy_behaviour(players, seen, np.random.default_rng(0))
    first = np.outer([0.25, 0.75], [0.5, 0.5]).ravel()
    second = np.outer([0.5, 0.5], [0.25, 0.75]).ravel()
    best = np.array([0, 0, 1.0, 0])  # of the values 0, 1; 5, 0: the first of the second choice
    away = found.distances.distances
    for i, j, p, q in ((0, 1, first, second), (0, 2, first, best), (1, 2, second, best)):
        assert away[i, j] == pytest.approx(jensenshannon(p, q, 2), abs=1e-5)


def test_many_combinations_are_compared_choice_by_choice():
    """Choices among 40 and 40: of one of them both draw two options, evenly or 3 to 1."""
    log3, off = np.log(3.0), [-40.0] * 38
    players = {
        "even": choosing([40, 40], [0.0, 0.0, *off, 0.0, 0.0, *off]),
        "other": choosing([40, 40], [log3, 0.0, *off, 0.0, log3, *off]),
        "greedy": choosing([40, 40], [1.0] + [0.0] * 39 + [1.0] + [0.0] * 39, "dqn"),
    }
    seen = replace(states(masks=False), masks=np.ones((40, 80), np.bool_))
    found = policy_behaviour(players, seen, np.random.default_rng(0))
    assert found.measure == "Hellinger"
    alike = (np.sqrt(3 / 8) + np.sqrt(1 / 8)) ** 2  # both choices, each sum_a sqrt(p q)
    away = found.distances.distances
    assert away[0, 1] == pytest.approx(np.sqrt(1 - alike), abs=1e-5)
    assert away[0, 2] == pytest.approx(np.sqrt(1 - 0.5), abs=1e-5)


def test_the_distance_by_choices_is_that_of_the_joint_distribution():
    rng = np.random.default_rng(0)
    first, second = rng.dirichlet(np.ones(3), (4, 6)), rng.dirichlet(np.ones(2), (4, 6))
    found = hellinger_of_choices([first, second], rng=rng)
    joint = (first[..., :, None] * second[..., None, :]).reshape(4, 6, 6)
    for i, j in itertools.combinations(range(4), 2):
        squared = 1.0 - np.sqrt(joint[i] * joint[j]).sum(1)
        assert found.distances[i, j] == pytest.approx(np.sqrt(squared.mean()))


BOX = Box(np.array([10, -3], np.float32), np.array([20, -1], np.float32))


def acting(algorithm, means, deviations, space=BOX):
    """A policy of continuous actions that does the same everywhere."""
    policy = {"algorithm": algorithm, "n_frames": 1, "network": {"hidden": (4,)}}
    agent = AgentSpec("a", Box(0, 1, (8,), np.float32), space)
    (spec,) = policy_specs(load_config({"policy": policy}), [agent])
    flat, at = np.zeros_like(first_weights(spec, torch.Generator().manual_seed(0))), 0
    scales = np.log(deviations)
    biases = {"policy.bias": means, "log_scale": scales}
    if algorithm == "sac":
        biases = {"policy.bias": [*means, *scales]}
    for name, shape in spec.network().shapes.items():
        size = int(np.prod(shape))
        flat[at : at + size] = biases.get(name, 0.0)
        at += size
    return spec, flat


def test_squashed_actions_are_compared_with_others_as_they_are_played():
    at = np.tanh([1.0, -0.5])
    small = np.array([0.02, 0.03])
    players = {
        "squashed": acting("sac", [1.0, -0.5], small),
        "alike": acting("ppo", at, small * (1 - at**2)),  # tanh's slope, where it is so narrow
        "elsewhere": acting("ppo", [1.0, -0.5], small),
    }
    away = policy_behaviour(players, states(masks=False), np.random.default_rng(0)).distances
    assert away.distances[0, 1] < 0.02
    assert away.distances[0, 2] > 0.99
    assert away.distances[1, 2] > 0.99


def test_actions_beyond_the_bounds_are_the_bounds():
    one, two = [1e-2, 1e-2], [1e-2, 1e-3]
    players = {
        "far": acting("ppo", [5.0, 0.0], one),
        "further": acting("ppo", [7.0, 0.0], one),
        "below": acting("ppo", [-5.0, 0.0], one),
        "surer": acting("ppo", [5.0, 0.0], two),
    }
    away = policy_behaviour(players, states(masks=False), np.random.default_rng(0)).distances
    # Of equal means: 1 - sqrt(2 s t / (s^2 + t^2)).
    assert away.distances[0] == pytest.approx([0, 0, 1, np.sqrt(1 - np.sqrt(0.2 / 1.01))], abs=1e-6)


def test_a_dimension_whose_bounds_are_equal_makes_no_difference():
    space = Box(np.array([1, 0], np.float32), np.array([1, 2], np.float32))
    players = {
        name: acting("ppo", [mean, 0.0], [0.1, 0.1], space)
        for name, mean in (("one", -1.0), ("two", 1.0))
    }
    found = policy_behaviour(players, states(masks=False), np.random.default_rng(0))
    assert found.distances.mean == pytest.approx(0.0, abs=1e-6)


def test_actions_of_other_bounds_are_not_compared():
    players = {
        "one": acting("ppo", [0.0, 0.0], [0.1, 0.1]),
        "other": acting("ppo", [0.0, 0.0], [0.1, 0.1], Box(-1, 1, (2,), np.float32)),
    }
    with refuses(UsageError):
        policy_behaviour(players, states(masks=False), np.random.default_rng(0))
