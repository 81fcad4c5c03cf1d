"""The units of values: moments of their targets, which change nothing of what is meant."""

import numpy as np
import pytest
import torch

from policies.made_rollouts import KINDS, fill, make_stack, room_for, some_lengths
from remuda.experience.segments import AFTER
from remuda.policies.advantages import HORIZON, generalised_advantages
from remuda.policies.algorithms.kernels.ppo import Fused
from remuda.policies.networks.value_normalisation import (
    LEAST,
    NEWEST,
    VALUE_COUNT,
    VALUE_MEAN,
    VALUE_VARIANCE,
    ValueNormalisation,
)
from remuda.policies.stack import ParameterStack

BUFFERS = VALUE_MEAN, VALUE_VARIANCE, VALUE_COUNT
SHAPES = {"value.weight": (5, 1), "value.bias": (1, 1)} | dict.fromkeys(BUFFERS, (1, 1))


def a_stack(policies, seed=0):
    stack = ParameterStack(SHAPES, policies, buffers=frozenset(BUFFERS))
    random = np.random.default_rng(seed)
    for name in ("value.weight", "value.bias"):
        shape = stack.parameters[name].shape
        stack.parameters[name].copy_(torch.from_numpy(random.normal(size=shape)))
    return stack


def said(stack, x):
    return (x @ stack.parameters["value.weight"] + stack.parameters["value.bias"])[..., 0].numpy()


def test_the_first_targets_are_the_moments_and_later_ones_draw_nearer():
    stack = a_stack(1)
    first = np.float32([[1.0, 3.0, 99.0, 5.0]])
    steps = np.array([[True, True, False, True]])
    none = ValueNormalisation.of(stack, [0])
    assert not none.real(first).any()  # what a fresh network says means nothing
    one = none.counting(first, steps)
    assert one.means.item() == 3.0
    assert one.variances.item() == pytest.approx(np.var([1.0, 3.0, 5.0]))
    two = one.counting(np.float32([[7.0, 7.0, 0.0, 7.0]]), steps)
    assert two.means.item() == 5.0  # half of each: the second of two
    assert two.variances.item() == pytest.approx((8 / 3) / 2 + 4.0)
    for _ in range(20):
        two = two.counting(np.float32([[9.0, 9.0, 0.0, 9.0]]), steps)
    assert abs(two.means.item() - 9.0) < 0.1
    assert two.counts.item() == 22.0
    three = two.counting(np.float32([[19.0, 19.0, 0.0, 19.0]]), steps)
    assert three.means.item() == pytest.approx(
        two.means.item() + NEWEST * (19.0 - two.means.item())
    )


def test_of_targets_that_are_all_alike_the_deviation_is_not_nothing():
    stack = a_stack(1)
    units = ValueNormalisation.of(stack, [0]).counting(
        np.zeros((1, 4), np.float32), np.ones((1, 4), bool)
    )
    assert units.deviations.item() == LEAST**0.5
    units.put(stack, [0], ValueNormalisation.of(stack, [0]), np.zeros((1, 4), np.float32))
    assert torch.isfinite(stack.flat).all()


@pytest.mark.parametrize("members", [[0], [2], [0, 1, 2, 3, 4], [1, 2], [0, 3, 4]])
def test_other_units_change_nothing_of_what_is_meant(members):
    stack, random = a_stack(5), np.random.default_rng(1)
    x = torch.from_numpy(random.normal(size=(5, 7, 5)).astype(np.float32))
    names = {VALUE_MEAN: 0.5, VALUE_VARIANCE: 4.0, VALUE_COUNT: 1.0}
    for name, number in names.items():
        stack.parameters[name].fill_(number)
    begun = stack.flat.clone()
    real = ValueNormalisation.of(stack, members).real(said(stack, x)[members])
    for size in (0.1, 1000.0, 3.0):
        before = ValueNormalisation.of(stack, members)
        targets = (random.normal(size=(len(members), 9)) * size + size).astype(np.float32)
        newer = before.counting(targets, np.ones(targets.shape, bool))
        says = newer.put(stack, members, before, said(stack, x)[members])
        np.testing.assert_allclose(says, said(stack, x)[members], rtol=1e-3, atol=1e-3)
        found = ValueNormalisation.of(stack, members)
        np.testing.assert_allclose(found.means, newer.means, rtol=1e-6)
        np.testing.assert_allclose(found.real(said(stack, x)[members]), real, rtol=1e-3, atol=1e-3)
        assert not np.allclose(says, real)
        np.testing.assert_allclose(
            newer.real(newer.normalised(targets)), targets, rtol=1e-4, atol=1e-4
        )
    others = [k for k in range(5) if k not in members]
    assert torch.equal(stack.flat[others], begun[others])


def trained(kind, reward, updates=4, members=(0, 1, 2), **more):
    """Some policies of unlike amounts, after updates with rewards of a size and a level."""
    algorithm = make_stack(kind, members, **more)
    random = np.random.default_rng(5)
    rollout = room_for(algorithm, 200)
    for _ in range(updates):
        for row, segments in zip(range(len(members)), (20, 3, 9), strict=True):
            fill(rollout, row, some_lengths(segments, random), algorithm, random)
        rollout.rewards[:] = reward(rollout.rewards)
        algorithm.update(rollout, list(range(len(members))))
    return algorithm


def policy_of(algorithm):
    """All that acts, of every policy of a stack."""
    return torch.cat(
        [
            values.detach().flatten()
            for name, values in algorithm.online.parameters.items()
            if not name.startswith("value")
        ]
    ).numpy()


SCALES = ["trunk", "towers", "masks", "continuous", "convolution", "recurrent", "vtrace", "anchor"]
SCALES += ["target_kl", "own module", "own module, towers", "several choices"]


@pytest.mark.slow_cases(
    "anchor",
    "continuous",
    "convolution",
    "masks",
    "own module",
    "own module, towers",
    "recurrent",
    "towers",
)
@pytest.mark.parametrize("kind", SCALES)
def test_what_is_learned_does_not_depend_on_the_size_of_rewards(kind):
    ones, many, raw, more = (
        trained(kind, reward, **settings)
        for reward, settings in (
            (lambda r: r, {}),
            (lambda r: 1024.0 * r, {}),
            (lambda r: r, {"ppo": {"normalise_values": False}}),
            (lambda r: 1024.0 * r, {"ppo": {"normalise_values": False}}),
        )
    )
    # To the last bit, since 1024 is a power of two.
    np.testing.assert_array_equal(policy_of(ones), policy_of(many))
    assert np.abs(policy_of(raw) - policy_of(more)).max() > 1e-2
    units, larger = (ValueNormalisation.of(each.online, [0, 1, 2]) for each in (ones, many))
    np.testing.assert_allclose(larger.deviations, 1024.0 * units.deviations)
    assert len(np.unique(units.means)) == 3  # each has its own


@pytest.mark.parametrize("kind", SCALES)
def test_what_a_fresh_network_says_is_in_no_target(kind):
    """Else the first units are those of its noise, in which small rewards do not count."""
    found = []
    for size in (0.0, 30.0):
        algorithm = make_stack(kind, (0, 1, 2))
        algorithm.online.parameters["value.weight"].detach().mul_(size)
        random, rollout = np.random.default_rng(5), room_for(algorithm, 200)
        for row, segments in zip(range(3), (20, 3, 9), strict=True):
            fill(rollout, row, some_lengths(segments, random), algorithm, random)
        algorithm.update(rollout, [0, 1, 2])
        found.append(ValueNormalisation.of(algorithm.online, [0, 1, 2]))
    np.testing.assert_array_equal(found[0].means, found[1].means)
    np.testing.assert_array_equal(found[0].deviations, found[1].deviations)


@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("discount", [0.9, 0.99])
def test_the_first_values_are_the_constant_that_agrees_with_what_came(kind, discount):
    """Of rewards that are ever the same it is their discounted sum, however short rollouts are."""
    algorithm = make_stack(kind, (0, 1, 2), discount=discount, reward_scale=0.5)
    random, rollout = np.random.default_rng(5), room_for(algorithm, 200)
    for row, segments in zip(range(3), (20, 3, 9), strict=True):
        fill(rollout, row, some_lengths(segments, random), algorithm, random)
    rollout.rewards[:], rollout.discounts[:] = 3.0, 1.0
    algorithm.update(rollout, [0, 1, 2])
    units = ValueNormalisation.of(algorithm.online, [0, 1, 2])
    np.testing.assert_allclose(units.means, 1.5 / (1.0 - discount), rtol=1e-3)
    np.testing.assert_allclose(units.variances, 0.0, atol=1e-3)


@pytest.mark.parametrize("ends", [0, 1, 5])
@pytest.mark.parametrize("correction", ["decoupled", "vtrace"])
@pytest.mark.parametrize("trace_decay", [0.5, 1.0])
def test_where_nothing_is_discounted_the_first_values_have_a_bound(ends, correction, trace_decay):
    """However few episodes ended: one more or less does not decide of their size."""
    ppo = {"gae_lambda": trace_decay, "correction": correction}
    algorithm = make_stack("towers", (0,), discount=1.0, reward_scale=0.5, ppo=ppo)
    random, rollout = np.random.default_rng(5), room_for(algorithm, 200)
    fill(rollout, 0, some_lengths(20, random), algorithm, random)
    rollout.rewards[:], rollout.discounts[:] = 3.0, 1.0
    rollout.discounts[0, np.flatnonzero(rollout.streams[0] != AFTER)[:ends]] = 0.0
    algorithm.update(rollout, [0])
    assert torch.isfinite(algorithm.online.flat).all()
    mean = ValueNormalisation.of(algorithm.online, [0]).means.item()
    assert 5.0 < mean < 1.5 * 1.2 * HORIZON


@pytest.mark.parametrize("trace_decay", [0.0, 0.95])
def test_the_first_values_agree_with_ends_and_unequal_rewards_too(trace_decay):
    """The mean of what they are to be is what they are."""
    ppo = {"gae_lambda": trace_decay}
    algorithm = make_stack("towers", (0,), discount=0.98, reward_scale=0.5, ppo=ppo)
    random, rollout = np.random.default_rng(5), room_for(algorithm, 200)
    fill(rollout, 0, some_lengths(20, random), algorithm, random)
    rollout.discounts[0] = random.random(rollout.discounts[0].shape) > 0.1
    algorithm.update(rollout, [0])
    mean = ValueNormalisation.of(algorithm.online, [0]).means.item()
    used = int(rollout.num_rows[0])
    after, found = rollout.streams[0, :used] == AFTER, np.zeros(used, np.float32)
    generalised_advantages(
        rollout.rewards[0, :used] * np.float32(0.5),
        rollout.discounts[0, :used] * np.float32(0.98),
        np.full(used, mean, np.float32),
        after,
        trace_decay,
        found,
    )
    assert abs(found[~after].mean()) < 1e-4
    assert abs(mean) > 1e-2


@pytest.mark.parametrize("kind", ["towers", "vtrace"])
def test_only_fresh_policies_begin_so(kind):
    """A policy that knows something keeps it beside one that is fresh."""
    found = []
    for updates in (0, 3):
        algorithm = trained(kind, lambda r: r + 2.0, updates=updates)
        random, rollout = np.random.default_rng(6), room_for(algorithm, 200)
        for row, segments in zip(range(3), (20, 3, 9), strict=True):
            fill(rollout, row, some_lengths(segments, random), algorithm, random)
        if updates:
            algorithm.forget(1)
            algorithm.load(1, torch.from_numpy(make_stack(kind, (0, 1, 2)).weights(1).copy()))
        algorithm.update(rollout, [0, 1, 2])
        found.append(ValueNormalisation.of(algorithm.online, [0, 1, 2]))
    fresh, other = found
    assert other.counts.ravel().tolist() == [4.0, 1.0, 4.0]
    np.testing.assert_allclose(other.means[1], fresh.means[1], rtol=1e-5)
    assert np.abs(other.means[[0, 2]] - fresh.means[[0, 2]]).min() > 1e-3


def test_fresh_networks_begin_with_the_mean():
    stack, x = a_stack(2), torch.rand(2, 7, 5)
    stack.flat[1] *= 0.01
    before, says = ValueNormalisation.of(stack, [1]), said(stack, x)[[1]]
    newer = before.counting(np.float32([[500.0, 502.0]]), np.ones((1, 2), bool))
    assert newer.put(stack, [1], before, says).tolist() == says.tolist()
    np.testing.assert_array_equal(said(stack, x)[[1]], says)
    assert np.abs(newer.real(says) - 501.0).max() < 1.0


@pytest.mark.slow_cases("own module, recurrent")
@pytest.mark.parametrize("kind", KINDS)
def test_what_values_stand_for_is_what_they_are_to_be(kind):
    """The values after many updates are about the mean of rewards, wherever that lies."""
    if not make_stack(kind, [0]).network.value_normalisation:
        pytest.skip("its values are what they are")
    level = 500.0
    more = {"discount": 0.0, "learning_rate": 1e-3, "reward_scale": 0.1}
    algorithm = trained(kind, lambda r: r + level, updates=3, **more)
    units = ValueNormalisation.of(algorithm.online, [0, 1, 2])
    if kind not in ("normalised", "vtrace"):  # whose rewards, or targets, are others
        np.testing.assert_allclose(units.means, level * 0.1, rtol=0.02)
        weights = algorithm.online.parameters
        if not algorithm.network.memory and "module" not in kind:
            seen = np.random.default_rng(2).random(
                (3, 40, algorithm.network.num_inputs), np.float32
            )
            inputs = algorithm.network.prepare(weights, torch.from_numpy(seen))
            with torch.no_grad():
                _, values = algorithm.network.policy_and_value(weights, inputs)
            np.testing.assert_allclose(units.real(values.numpy()), level * 0.1, atol=1.0)
    assert (units.counts == 3).all()


def test_units_go_with_the_weights_and_are_not_learned():
    algorithm = trained("trunk", lambda r: 10.0 * r)
    names = [name for name in algorithm.online.shapes if name in BUFFERS]
    assert names == list(BUFFERS)
    assert algorithm.network.buffers >= set(BUFFERS)
    other = make_stack("trunk", (0, 1, 2))
    for k in range(3):
        other.load(k, algorithm.online.flat[k].clone())
    for one, two in zip(
        vars(ValueNormalisation.of(algorithm.online, [0, 1, 2])).values(),
        vars(ValueNormalisation.of(other.online, [0, 1, 2])).values(),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)


def test_units_are_not_learned_by_gradients():
    algorithm = make_stack("trunk", (0, 1, 2))
    random, told = np.random.default_rng(5), []
    put = ValueNormalisation.put

    def noted(units, *given):
        told.append(units)
        return put(units, *given)

    rollout = room_for(algorithm, 200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ValueNormalisation, "put", noted)
        for _ in range(3):
            for row, segments in zip(range(3), (20, 3, 9), strict=True):
                fill(rollout, row, some_lengths(segments, random), algorithm, random)
            algorithm.update(rollout, [0, 1, 2])
            found = ValueNormalisation.of(algorithm.online, [0, 1, 2])
            np.testing.assert_array_equal(found.means, told[-1].means.astype(np.float32))
            np.testing.assert_array_equal(found.variances, told[-1].variances.astype(np.float32))
    assert len(told) == 3


def test_a_fresh_policy_values_all_states_about_alike():
    algorithm = make_stack("towers", [0])
    seen = torch.rand(1, 100, 5) * 2
    with torch.no_grad():
        weights = algorithm.online.parameters
        _, values = algorithm.network.policy_and_value(weights, seen)
    assert values.abs().max() < 0.1


@pytest.mark.parametrize("kind", ["trunk", "towers", "continuous"])
def test_old_values_are_told_in_the_units_of_the_update(kind, monkeypatch):
    """Those that `value_clip` clips by: what the network says as the update begins."""
    algorithm = make_stack(kind, [0])
    random, told = np.random.default_rng(5), []

    def first(engine, batch, pick, step=Fused.step):
        if not told or told[-1][0] != algorithm.updates[0]:
            weights = algorithm.online.parameters
            used = batch.observations[:, : batch.values.shape[1]]
            inputs = algorithm.network.prepare(weights, used)
            with torch.no_grad():
                values = algorithm.network.policy_and_value(weights, inputs)[1]
            told.append((algorithm.updates[0], batch.values.clone(), values))
        return step(engine, batch, pick)

    monkeypatch.setattr(Fused, "step", first)
    rollout = room_for(algorithm, 200)
    for size in (1.0, 300.0, 3.0):
        fill(rollout, 0, some_lengths(9, random), algorithm, random)
        rollout.rewards[:] *= size
        algorithm.update(rollout, [0])
    assert len(told) == 3
    for _, noted, values in told:
        np.testing.assert_allclose(noted, values, rtol=1e-3, atol=1e-4)
