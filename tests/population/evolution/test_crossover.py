"""Crossover: what a child has of each parent, and what a policy of another width begins with."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from evolving import actor_critic, alien, drawn, outputs_of, values
from refusals import refuses
from remuda.errors import UsageError
from remuda.policies.networks.actor_critic import MEAN
from remuda.population.evolution.weights import (
    WeightLayout,
    cross_hyperparameters,
    cross_layers,
    warm_start,
)

NETWORK = actor_critic(normalised=True)
LAYOUT = WeightLayout.of(NETWORK)
ONE, OTHER = drawn(NETWORK), alien(NETWORK)

names = some.sampled_from("abcdef")
hyperparameters = some.dictionaries(names, some.floats(allow_nan=False))


def rng(seed=0):
    return np.random.default_rng(seed)


def comes_from_other(child, names):
    """Whether the tensors of a layer come from the second parent; no weight is in both parents."""
    mine, other = LAYOUT.tensors(child), LAYOUT.tensors(OTHER)
    return all((mine[name] == other[name]).all() for name in names)


@given(one=hyperparameters, other=hyperparameters, seed=some.integers(0, 1000))
def test_each_hyperparameter_is_one_of_the_parents(one, other, seed):
    found = cross_hyperparameters(one, other, rng(seed))
    assert found == cross_hyperparameters(one, other, rng(seed))
    assert list(found) == list(one)
    assert all(value in (one[name], other.get(name, one[name])) for name, value in found.items())
    assert cross_hyperparameters(one, other, rng(seed), share=0.0) == one
    whole = cross_hyperparameters(one, other, rng(seed), share=1.0)
    assert whole == {name: other.get(name, value) for name, value in one.items()}


def test_hyperparameters_of_both_are_as_likely_as_was_asked():
    random, count = rng(), 4000
    one, other = {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 1.0}
    found = np.array(
        [list(cross_hyperparameters(one, other, random, share=0.3).values()) for _ in range(count)]
    )
    assert (abs(found.mean(0) - 0.3) < 5 * math.sqrt(0.21 / count)).all()
    both = found.prod(1).mean()
    assert abs(both - 0.09) < 5 * math.sqrt(0.09 * 0.91 / count)


@given(seed=some.integers(0, 10_000), share=some.floats(0.0, 1.0))
def test_each_layer_is_whole_of_one_parent(seed, share):
    found = cross_layers(ONE, OTHER, LAYOUT, rng(seed), share=share)
    again = cross_layers(ONE, OTHER, LAYOUT, rng(seed), share=share)
    assert found.tobytes() == again.tobytes()
    tensors = LAYOUT.tensors(found)
    for own in LAYOUT.layers.values():
        parent = LAYOUT.tensors(OTHER if comes_from_other(found, own) else ONE)
        for name in own:
            np.testing.assert_array_equal(tensors[name], parent[name])


def test_share_0_is_the_first_parent_bit_for_bit():
    found = cross_layers(ONE, OTHER, LAYOUT, rng(), share=0.0)
    assert found.tobytes() == ONE.tobytes()
    assert cross_layers(ONE, OTHER, LAYOUT, rng(), share=1.0).tobytes() == OTHER.tobytes()


def test_moments_of_observations_come_with_the_layer_that_they_feed():
    for seed in range(20):
        found = cross_layers(ONE, OTHER, LAYOUT, rng(seed))
        parent = OTHER if comes_from_other(found, ["hidden0.weight"]) else ONE
        np.testing.assert_array_equal(LAYOUT.tensors(found)[MEAN], LAYOUT.tensors(parent)[MEAN])


def test_layers_are_as_likely_as_was_asked():
    random, count = rng(), 2000
    children = [cross_layers(ONE, OTHER, LAYOUT, random, share=0.25) for _ in range(count)]
    for own in LAYOUT.layers.values():
        share = sum(comes_from_other(child, own) for child in children) / count
        assert abs(share - 0.25) < 5 * math.sqrt(0.1875 / count)


@settings(deadline=None, max_examples=40)
@given(
    widths=some.tuples(some.integers(1, 9), some.integers(1, 9)),
    others=some.tuples(some.integers(1, 9), some.integers(1, 9)),
    recurrent=some.tuples(some.integers(1, 4), some.integers(1, 4)) | some.just((0, 0)),
)
def test_a_policy_of_another_width_has_what_fits(widths, others, recurrent):
    old = actor_critic(widths, recurrent=recurrent[0], normalised=True)
    new = actor_critic(others, recurrent=recurrent[1], normalised=True)
    before, after = WeightLayout.of(old), WeightLayout.of(new)
    fresh = alien(new)
    found = warm_start(drawn(old), before, fresh, after)
    theirs, mine, drawn_new = (
        before.tensors(drawn(old)),
        after.tensors(found),
        after.tensors(fresh),
    )
    for name, tensor in mine.items():
        was_fresh = tensor == drawn_new[name]  # no fresh number is among the old ones
        if tensor.shape == theirs[name].shape:
            np.testing.assert_array_equal(tensor, theirs[name])
        assert np.isin(tensor[~was_fresh], theirs[name]).all()
        size = int(np.prod(np.minimum(tensor.shape, theirs[name].shape)))
        assert (~was_fresh).sum() == size


def test_overlaps_worked_out_by_hand():
    old, new = (
        WeightLayout({"a.weight": (2, 3)}),
        WeightLayout({"a.weight": (3, 2), "b.bias": (1, 2)}),
    )
    found = warm_start(np.arange(1.0, 7.0), old, -np.arange(1.0, 9.0), new)
    tensors = new.tensors(found)
    assert tensors["a.weight"].tolist() == [[1.0, 2.0], [4.0, 5.0], [-5.0, -6.0]]
    assert tensors["b.bias"].tolist() == [[-7.0, -8.0]]


def test_gates_of_a_recurrent_layer_meet_their_own():
    old, new = (
        WeightLayout({"gates_memory.weight": (1, 3)}),
        WeightLayout({"gates_memory.weight": (2, 6)}),
    )
    found = warm_start(np.array([1.0, 2.0, 3.0]), old, np.zeros(12), new)
    assert new.tensors(found)["gates_memory.weight"].tolist() == [
        [1.0, 0.0, 2.0, 0.0, 3.0, 0.0],
        [0.0] * 6,
    ]


def test_between_equal_layouts_all_is_copied():
    found = warm_start(ONE, LAYOUT, OTHER, LAYOUT)
    assert found.tobytes() == ONE.tobytes()


def test_a_wider_policy_whose_new_units_say_nothing_plays_as_before():
    """Where fresh weights are 0, the overlapping block computes what the old network did."""
    old, new = values((6, 4), recurrent=3), values((9, 8), recurrent=5)
    found = warm_start(
        drawn(old), WeightLayout.of(old), np.zeros(WeightLayout.of(new).size), WeightLayout.of(new)
    )
    states = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(
            outputs_of(new)(torch.from_numpy(found), states),
            outputs_of(old)(torch.from_numpy(drawn(old)), states),
        )


def test_tensors_with_other_axes_stay_fresh():
    old, new = WeightLayout({"a.weight": (4,), "b": (1, 1)}), WeightLayout({"a.weight": (2, 2)})
    found = warm_start(np.ones(5), old, np.zeros(4), new)
    assert not found.any()


@pytest.mark.parametrize(
    "asked",
    [
        lambda: cross_layers(ONE[:-1], OTHER, LAYOUT, rng()),
        lambda: cross_layers(ONE, OTHER[:-1], LAYOUT, rng()),
        lambda: warm_start(ONE[:-1], LAYOUT, OTHER, LAYOUT),
        lambda: warm_start(ONE, LAYOUT, OTHER[:-1], LAYOUT),
    ],
)
def test_what_does_not_fit_is_refused(asked):
    with refuses(UsageError):
        asked()
