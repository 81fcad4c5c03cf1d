"""PPO: it learns, stacks share nothing, hyperparameters are each policy's own."""

import copy

import numpy as np
import pytest
import torch

from policies.ppo_cases import DISCRETE, LENGTH, act, bandit, make, play
from remuda.experience.segments import AFTER, Rollout
from remuda.policies.advantages import running_sums
from remuda.policies.continuous_actions import ContinuousActions
from remuda.policies.networks.actor_critic import COUNT, MEAN, VARIANCE

CONTINUOUS = ContinuousActions(np.full(1, -2, np.float32), np.full(1, 2, np.float32))


def peak(seen, chosen):
    return 1.0 - (chosen[:, 0] - seen[:, 0]) ** 2


@pytest.mark.parametrize("actions", [DISCRETE, CONTINUOUS], ids=["by hand", "by torch"])
def test_the_norm_of_a_gradient_is_told_as_it_was_before_it_was_cut(actions):
    own = [{"max_grad_norm": 1e9}, {"max_grad_norm": 1e-3}]
    algorithm = make(2, actions, own, minibatches=1, epochs=1)
    algorithm.load(1, algorithm.online.flat[0].detach().clone())
    rollout = play(algorithm, bandit, np.random.default_rng(0))
    for name in ("observations", "actions", "log_probs", "rewards"):
        getattr(rollout, name)[1] = getattr(rollout, name)[0]
    learned = algorithm.update(rollout, range(2))
    left = algorithm.online.gradients.norm(dim=1)
    assert left[0] > 10 * left[1]
    assert left[1] == pytest.approx(1e-3, rel=1e-3)
    assert learned.gradient_norm[0] == pytest.approx(float(left[0]), rel=1e-6)
    # Advantages are normalised in the order of the rows, which each policy draws for itself.
    assert learned.gradient_norm[1] == pytest.approx(float(left[0]), rel=1e-3)


def test_the_norm_of_an_update_is_the_mean_over_its_minibatches(monkeypatch):
    algorithm = make(2, minibatches=3, epochs=2)
    plain, norms = algorithm.clip_gradients, []

    def clip(gradients, members):
        norms.append(plain(gradients, members))
        return norms[-1]

    monkeypatch.setattr(algorithm, "clip_gradients", clip)
    learned = algorithm.update(play(algorithm, bandit, np.random.default_rng(0)), range(2))
    assert len(norms) == 6
    expected = torch.cat(norms, 1).mean(1)
    np.testing.assert_allclose(learned.gradient_norm, expected.numpy(), rtol=1e-6)


def test_values_explain_their_targets_as_far_as_they_foresee_them():
    """Where a reward is what is seen, a value that is blind explains nothing, and one that has
    learned to see it most of it; where all is 0, there is nothing to explain.
    """
    algorithm = make(3, own=[{"discount": 0.0}] * 3)
    rollout = play(algorithm, lambda seen, _: seen[:, 0], np.random.default_rng(0))
    rollout.rewards[2] = 0.0
    for k in range(3):
        algorithm.online.of(k)["value.weight"][:] = 0.0
    for _ in range(60):
        algorithm.update(rollout, [1])
    learned = algorithm.update(rollout, range(3))
    assert learned.explained_variance[0] == pytest.approx(0.0, abs=1e-6)
    assert 0.5 < learned.explained_variance[1] < 1.0
    assert np.isnan(learned.explained_variance[2])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shared": False},
        {"value_clip": 0.2, "target_kl": 0.05},
        {"normalise_observations": True, "normalise_rewards": True},
    ],
    ids=["plain", "two towers", "clipped", "normalised"],
)
def test_it_learns_which_action_is_best(options):
    algorithm, random = make(**options), np.random.default_rng(0)
    for _ in range(40):
        learned = algorithm.update(play(algorithm, bandit, random), [0])
    seen = random.random((1000, 2), np.float32)
    chosen, _ = act(algorithm, 0, seen, random)
    assert (chosen == 1).mean() > 0.9
    assert algorithm.updates == [40]
    assert learned.entropy[0] < 0.6
    assert -1e-6 < learned.kl[0] < 0.2


def test_it_learns_where_the_best_continuous_action_lies():
    algorithm, random = make(actions=CONTINUOUS, entropy_cost=0.0), np.random.default_rng(0)
    for _ in range(50):
        algorithm.update(play(algorithm, peak, random), [0])
    seen = random.random((500, 2), np.float32)
    greedy, _ = act(algorithm, 0, seen, None)
    assert abs(greedy[:, 0] - seen[:, 0]).mean() < 0.15
    assert algorithm.online.of(0)["log_scale"].item() < -0.5


def test_it_learns_under_a_mask():
    algorithm, random = make(masked=True), np.random.default_rng(0)
    mask = np.array([True, False, True])
    for _ in range(40):
        algorithm.update(play(algorithm, bandit, random, masks=mask), [0])
    seen = random.random((1000, 2), np.float32)
    chosen, _ = act(algorithm, 0, seen, random, np.tile(mask, (1000, 1)))
    assert (chosen == 0).mean() > 0.9
    assert algorithm.is_finite(0)


def test_a_stack_trains_as_its_policies_would_alone():
    own = [
        {"learning_rate": 1e-2},
        {"learning_rate": 1e-3, "discount": 0.5, "max_grad_norm": 0.01},
        {"learning_rate": 1e-2, "ppo": {"minibatches": 2, "entropy_cost": 0.1, "clip": 0.1}},
    ]
    together = make(3, own=own)
    rollout = play(together, bandit, np.random.default_rng(0))
    together.update(rollout, range(3))
    for k in range(3):
        alone = make(1, own=own[k : k + 1], first=k)
        mine = Rollout(*(getattr(rollout, f)[k : k + 1] for f in Rollout.__dataclass_fields__))
        alone.update(mine, [0])
        torch.testing.assert_close(
            alone.online.flat[0], together.online.flat[k], rtol=1e-4, atol=1e-6
        )


def test_a_part_of_a_stack_is_trained_and_the_rest_stays():
    algorithm = make(4)
    rollout = play(algorithm, bandit, np.random.default_rng(0))
    before = algorithm.online.flat.detach().clone()
    algorithm.update(rollout, [1, 2])
    moved = (algorithm.online.flat != before).any(1).tolist()
    assert moved == [False, True, True, False]
    assert algorithm.updates == [0, 1, 1, 0]
    reference = make(4)
    reference.update(rollout, range(4))
    torch.testing.assert_close(
        algorithm.online.flat[1:3], reference.online.flat[1:3], rtol=1e-4, atol=1e-6
    )


def test_an_update_stops_at_its_target_kl_for_that_policy_alone():
    own = [{"ppo": {"minibatches": 2, "target_kl": kl}} for kl in (1e-6, None)]
    algorithm = make(2, own=own)
    rollout = play(algorithm, bandit, np.random.default_rng(0))
    algorithm.update(rollout, range(2))
    steps = [algorithm.optimizer.state(k)["steps"] for k in range(2)]
    assert steps[1] == 8
    assert steps[0] < 4


@pytest.mark.parametrize(
    "own", [{"ppo": {"target_kl": 1e-5}}, {"max_grad_norm": 1e-3}, {"adam_epsilon": 0.5}]
)
def test_a_newborn_trains_with_what_it_is_configured_with(own):
    own = own | {"ppo": {"minibatches": 2} | own.get("ppo", {})}
    made, born, plain = make(own=[own]), make(), make()
    rollout = play(plain, bandit, np.random.default_rng(0))
    born.begin(0, born.online.flat[0].detach().clone(), made.configs[0])
    for algorithm in (made, born, plain):
        algorithm.update(rollout, [0])
    assert not np.array_equal(made.weights(0), plain.weights(0))
    np.testing.assert_array_equal(born.weights(0), made.weights(0))


def test_rollouts_of_unequal_length_train_together():
    algorithm = make(2)
    rollout = play(algorithm, bandit, np.random.default_rng(0))
    rollout.num_rows[1], rollout.num_steps[1] = LENGTH + 1, LENGTH
    rollout.rewards[1, LENGTH + 1 :] = np.nan  # beyond: must not be read
    rollout.observations[1, LENGTH + 1 :] = np.nan
    algorithm.update(rollout, range(2))
    assert algorithm.is_finite(0)
    assert algorithm.is_finite(1)


def test_normalised_inputs_have_the_moments_of_what_was_seen():
    algorithm = make(normalise_observations=True)
    random = np.random.default_rng(0)
    seen = []
    for _ in range(3):
        rollout = play(algorithm, bandit, random)
        steps = rollout.streams[0, : rollout.num_rows[0]] != AFTER
        seen.append(rollout.observations[0, : rollout.num_rows[0]][steps])
        algorithm.update(rollout, [0])
    buffers, everything = algorithm.online.of(0), np.concatenate(seen)
    assert buffers[MEAN].flatten().numpy() == pytest.approx(everything.mean(0), abs=1e-5)
    assert buffers[VARIANCE].flatten().numpy() == pytest.approx(everything.var(0), abs=1e-5)
    assert buffers[COUNT].item() == len(everything)


def test_running_sums_of_rewards_go_on_in_the_next_segment():
    rewards = np.array([1, 1, 0, 2, 3, 0], np.float32)
    discounts = np.array([0.5, 0.5, 0, 0, 0.5, 0], np.float32)
    streams = np.array([0, 0, AFTER, 1, 1, AFTER])
    sums = np.array([10.0, 0.0])
    assert running_sums(rewards, discounts, streams, sums).tolist() == [11.0, 6.5, 2.0, 3.0]
    assert sums.tolist() == [3.25, 1.5]


def test_learning_rates_fall_to_nothing():
    algorithm, random = make(anneal_steps=512), np.random.default_rng(0)
    rates = []
    for _ in range(4):
        algorithm.update(play(algorithm, bandit, random), [0])
        rates.append(algorithm.optimizer.learning_rates[0])
    assert rates == pytest.approx([1e-2, 5e-3, 0.0, 0.0])


def test_a_restored_algorithm_goes_on_bit_for_bit():
    options = {"normalise_observations": True, "normalise_rewards": True, "anneal_steps": 10_000}
    first, second = make(2, **options), make(2, **options)
    rollouts = [play(first, bandit, np.random.default_rng(i)) for i in range(5)]
    for rollout in rollouts[:3]:
        first.update(rollout, range(2))
    for k in range(2):
        second.restore(k, copy.deepcopy(first.state(k)))
    for algorithm in (first, second):
        for rollout in rollouts[3:]:
            algorithm.update(rollout, range(2))
    assert torch.equal(first.online.flat, second.online.flat)
