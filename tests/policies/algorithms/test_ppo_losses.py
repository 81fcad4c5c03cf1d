"""PPO's gradients and corrections."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.ppo_cases import bandit, make, play, watched_update
from remuda.experience.segments import AFTER
from remuda.policies.actions import DiscreteActions
from remuda.policies.algorithms.autograd import Autograd
from remuda.policies.algorithms.kernels.objective import RolloutBatch
from remuda.policies.algorithms.kernels.ppo import Fused
from remuda.policies.algorithms.kernels.ppo_heads import RowsOf, standardise
from remuda.policies.algorithms.kernels.towers import MOST_ROWS, Memory
from remuda.policies.algorithms.samples import Pick
from remuda.policies.continuous_actions import ContinuousActions
from remuda.policies.networks.actor_critic import MEAN, VARIANCE
from remuda.system.checkpoint.state import pack, unpack


@pytest.mark.slow_cases("trunk-as they are-False-tanh")
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("normalises", [False, True], ids=["as they are", "normalised"])
@pytest.mark.parametrize(
    ("shared", "sizes", "options"),
    [
        (True, (3,), {}),
        (False, (3,), {"value_clip": 0.05}),
        (True, (2, 3), {"normalise_observations": True, "value_clip": 0.1}),
    ],
    ids=["trunk", "towers", "several choices"],
)
def test_fused_gradients_are_those_of_torch(shared, sizes, options, normalises, masked, activation):
    compare(shared, sizes, options, normalises, masked, activation)


@pytest.mark.slow_cases("trunk-as they are-tanh")
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("normalises", [False, True], ids=["as they are", "normalised"])
@pytest.mark.parametrize("shared", [True, False], ids=["trunk", "towers"])
def test_fused_gradients_of_numbers_are_those_of_torch(shared, normalises, activation):
    """Of actions that are drawn from normal distributions, whose scales are learned."""
    compare(shared, None, {"value_clip": 0.1}, normalises, False, activation)


def choices(random, sizes, rows, masked):
    """What was chosen, where some of it may be forbidden otherwise."""
    chosen = np.stack(
        [
            random.integers(0, 1, (2, rows)) if masked and i == 0 else np.full((2, rows), size - 1)
            for i, size in enumerate(sizes)
        ],
        -1,
    )
    if masked and len(sizes) == 1:
        chosen[:, ::2] = sizes[0] - 1
    return chosen


def compare(shared, sizes, options, normalises, masked, activation):
    """Hold the fused gradient to torch's, and what both tell.

    For more rows than go through together, and policies that differ in every cost.
    """
    random = np.random.default_rng(0)
    own = [
        {"ppo": options | {"clip": 0.2}},
        {"ppo": options | {"clip": 0.05, "entropy_cost": 0.1, "value_cost": 1.0}},
    ]
    network = {"hidden": (16, 12), "shared": shared, "activation": activation}
    limits = np.full(2, -9.0, np.float32), np.full(2, 9.0, np.float32)
    actions = DiscreteActions(sizes) if sizes else ContinuousActions(*limits)
    own = [{"network": network, **each} for each in own]
    algorithm = make(2, actions=actions, own=own, masked=masked)
    rows = 2 * MOST_ROWS + 100
    if algorithm.network.normalised:
        with torch.no_grad():
            algorithm.online.parameters[MEAN].fill_(0.5)
            algorithm.online.parameters[VARIANCE].fill_(0.1)
    part = algorithm.online.rows(0, 2)
    masks = None
    if masked:
        masks = torch.from_numpy(random.random((2, rows, sum(sizes))) < 0.7)
        masks[..., 0] = masks[..., -1] = True
    chosen = choices(random, sizes, rows, masked) if sizes else random.normal(0, 1.5, (2, rows, 2))
    chosen = chosen.astype(actions.dtype)
    if not sizes:
        with torch.no_grad():
            algorithm.online.parameters["log_scale"].copy_(
                torch.tensor([[[0.3, -0.5]], [[0.0, 1.0]]])
            )
    observations = torch.from_numpy(random.random((2, rows, 2), np.float32))
    taken = torch.from_numpy(chosen)
    costs, both, cpu = algorithm.costs_of([0, 1]), np.arange(2), torch.device("cpu")
    engines = [
        Autograd(algorithm.network, part, costs, algorithm.losses, normalises=normalises),
        Fused(algorithm.network, part, costs, Memory(algorithm.network), normalises),
    ]
    each = np.tile(np.arange(rows), (2, 1))
    every = Pick(both, each, rows, cpu, np.array([rows, rows]))
    noise = torch.from_numpy(random.normal(0, 0.2, (3, 2, rows)).astype(np.float32))
    batches = []
    for engine in engines:
        log_prox, values = torch.zeros(2, 2, rows)
        batches.append(
            RolloutBatch(
                observations=observations,
                actions=taken,
                masks=masks,
                log_prox=log_prox,
                weights=noise[1].exp(),
                advantages=noise[2],
                values=values,
                targets=values,
            )
        )
        engine.evaluate(batches[-1], [every])
    batch, other = batches
    for name in ("log_prox", "values"):
        torch.testing.assert_close(getattr(other, name), getattr(batch, name), rtol=1e-4, atol=1e-5)
    batch = replace(
        batch,
        log_prox=batch.log_prox + noise[0],
        values=batch.values + 0.5 * noise[1],
        targets=batch.values + noise[2],
    )
    index = np.stack([random.permutation(rows)[: rows - 7] for _ in range(2)])
    for fewer in (0, 1, 500):  # one policy has so many rows less than the other
        counts = np.array([rows - 7, rows - 7 - fewer])
        valid = torch.from_numpy(np.arange(rows - 7) < counts[:, None]).float()
        pick = Pick(both, index, rows, cpu, counts, valid if fewer else None)
        found = []
        for engine in engines:
            means = engine.step(batch, pick)
            found.append((means, part.gradients.clone()))
        (theirs, gradients), (ours, fused) = found
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
        assert gradients.abs().max() > 1e-3
        torch.testing.assert_close(fused, gradients, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("values", [[5.0], [2.0, 2.0, 2.0], [1e-9, 0.0]])
def test_advantages_without_a_deviation_are_taken_as_nothing(values):
    advantages = np.float32([[7.0, *values, 9.0]])
    index = np.arange(1, 1 + len(values))[None]
    standard = np.full((1, 2), np.nan, np.float32)
    rows = RowsOf(np.array([0]), index, np.array([len(values)]))
    standardise(advantages, rows, standard)
    mean, factor = standard[0]
    assert ((advantages[0, index[0]] - mean) * factor == 0.0).all()


def test_steps_count_by_how_likely_the_policy_is_now_to_make_them():
    algorithm = make()
    rollout = play(algorithm, bandit, np.random.default_rng(0))
    rollout.log_probs[0, 0] -= 0.5  # it is likelier now than when it was made
    rollout.log_probs[0, 1] += 0.5
    rollout.log_probs[0, 2] -= 5.0
    learned, (_, batch, *_) = watched_update(algorithm, rollout)
    expected = [np.exp(0.5), np.exp(-0.5), 2.0, 1.0, 1.0]
    assert batch.weights[0, :5].tolist() == pytest.approx(expected, rel=1e-4)
    steps = int(rollout.num_steps[0])
    ratios = np.array([np.exp(0.5), np.exp(-0.5), np.exp(5.0), *[1.0] * (steps - 3)])
    assert learned.effective[0] == pytest.approx(
        ratios.sum() ** 2 / steps / (ratios**2).sum(), rel=1e-3
    )
    _, (_, plain, *_) = watched_update(make(correction="none"), rollout)
    assert plain.weights[0, :5].tolist() == [1.0] * 5
    # By V-trace a step counts at most once, and less where it is less likely now; see below.
    _, (_, traced, *_) = watched_update(make(correction="vtrace"), rollout)
    expected = [1.0, np.exp(-0.5), 1.0, 1.0, 1.0]
    assert traced.weights[0, :5].tolist() == pytest.approx(expected, rel=1e-4)


def test_what_steps_count_is_not_fetched_back_from_the_device(monkeypatch):
    """It was, in each update, which then waited for all that the device had been given to do."""
    algorithm = make()
    rollout = play(algorithm, bandit, np.random.default_rng(0))
    cpu, fetched = torch.Tensor.cpu, []
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: (fetched.append(self), cpu(self))[1])
    _, (_, batch, *_) = watched_update(algorithm, rollout)
    assert fetched, "losses are"
    assert not any(tensor is batch.weights for tensor in fetched)


def test_with_fresh_steps_every_correction_is_the_same():
    found = []
    for correction in ("decoupled", "vtrace", "none"):
        algorithm = make(correction=correction)
        rollout = play(algorithm, bandit, np.random.default_rng(0))
        learned, (_, batch, *_) = watched_update(algorithm, rollout)
        assert learned.effective[0] == pytest.approx(1.0, abs=1e-5)
        rows = rollout.streams[0] != AFTER
        rows[int(rollout.num_rows[0]) :] = False
        rows = rows[: batch.values.shape[1]]
        found.append([x[0, rows] for x in (batch.weights, batch.advantages, batch.targets)])
    for other in found[1:]:
        for one, another in zip(found[0], other, strict=True):
            torch.testing.assert_close(one, another, rtol=1e-4, atol=1e-5)


def test_a_reward_that_is_no_number_is_forgotten_with_the_update_it_spoiled():
    algorithm, random = make(normalise_rewards=True), np.random.default_rng(0)
    algorithm.update(play(algorithm, bandit, random), [0])
    good = algorithm.learned(0)
    spoiled = play(algorithm, bandit, random)
    spoiled.rewards[0, 3] = np.nan
    assert not np.isfinite(algorithm.update(spoiled, [0]).loss[0])
    algorithm.restore_learned(0, good)
    assert np.isfinite(algorithm.update(play(algorithm, bandit, random), [0]).loss[0])
    assert algorithm.is_finite(0)


def test_an_anchor_holds_a_policy_and_moves_on():
    moved = {}
    for cost in (0.0, 5.0):
        algorithm = make(anchor_cost=cost, anchor_every=3, entropy_cost=0.0)
        random = np.random.default_rng(0)
        before = algorithm.weights(0).copy()
        for _ in range(3):
            algorithm.update(play(algorithm, bandit, random), [0])
        rollout = play(algorithm, bandit, random)
        if cost:
            assert np.array_equal(algorithm.learned(0)["anchor"], before)
        other = make(anchor_cost=cost, anchor_every=3, entropy_cost=0.0)
        other.restore(0, unpack(pack(algorithm.state(0))))
        _, (_, batch, *_) = watched_update(algorithm, rollout)
        moved[cost] = float(batch.log_prox.exp().max())
        other.update(rollout, [0])
        assert np.array_equal(algorithm.weights(0), other.weights(0))
        if cost:
            assert not np.array_equal(algorithm.learned(0)["anchor"], before)
    assert moved[5.0] < moved[0.0] - 0.05


def test_an_averaged_anchor_comes_nearer_with_each_update_and_goes_on_after_a_restore():
    given = {"anchor_cost": 0.5, "anchor": "average", "anchor_every": 4}
    algorithm, random = make(**given), np.random.default_rng(0)
    wanted = None
    for _ in range(6):
        weights = algorithm.weights(0).copy()
        wanted = weights if wanted is None else wanted + (weights - wanted) / 4
        algorithm.update(play(algorithm, bandit, random), [0])
        np.testing.assert_allclose(algorithm.learned(0)["anchor"], wanted, atol=1e-6)
    assert np.abs(wanted - algorithm.weights(0)).max() > 1e-3
    other, rollout = make(**given), play(algorithm, bandit, random)
    other.restore(0, unpack(pack(algorithm.state(0))))
    for each in (algorithm, other):
        each.update(rollout, [0])
    assert np.array_equal(algorithm.learned(0)["anchor"], other.learned(0)["anchor"])
    assert np.array_equal(algorithm.weights(0), other.weights(0))


@pytest.mark.parametrize("anchor", ["copy", "average"])
def test_weights_without_the_state_of_their_training_are_their_own_anchor(anchor):
    """As where a learner goes on with what was published, of another number of updates."""
    algorithm = make(anchor_cost=0.5, anchor=anchor, anchor_every=4)
    weights = algorithm.weights(0) + 1.0
    algorithm.load(0, torch.from_numpy(weights), 7)
    algorithm.update(play(algorithm, bandit, np.random.default_rng(0)), [0])
    np.testing.assert_allclose(algorithm.learned(0)["anchor"], weights, atol=1e-6)
