"""PPO: it learns, stacks share nothing, hyperparameters are each policy's own."""

import copy

import numpy as np
import pytest
import torch

from remuda.checkpoint.state import pack, unpack
from remuda.config import PolicyConfig
from remuda.experience.experience import Experience
from remuda.experience.ring import StreamShape
from remuda.experience.rollout_queue import AFTER, Rollout
from remuda.memory.waiting import Wakeup
from remuda.policies.actions import ContinuousActions, DiscreteActions
from remuda.policies.algorithms.autograd import Autograd, Batch
from remuda.policies.algorithms.fused import ROWS_AT_ONCE, Fused, Workspace
from remuda.policies.algorithms.samples import Pick, Rows
from remuda.policies.networks.actor_critic import COUNT, MEAN, VARIANCE
from remuda.policies.running_returns import running_sums
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.streams import stream, torch_stream

DISCRETE = DiscreteActions((3,))
CONTINUOUS = ContinuousActions(np.full(1, -2, np.float32), np.full(1, 2, np.float32))
LENGTH = 8


def make(policies=1, actions=DISCRETE, own=(), masked=False, **options):
    network = {"hidden": (16, 16), "shared": options.pop("shared", True)}
    tree = {"algorithm": "ppo", "network": network, "ppo": {"minibatches": 2} | options}
    tree["learning_rate"] = tree["ppo"].pop("learning_rate", 1e-2)
    specs = [
        PolicySpec(
            f"p{k}",
            PolicyConfig.model_validate(tree | (own[k] if own else {})),
            (2,),
            "float32",
            actions,
            masked,
        )
        for k in range(policies)
    ]
    algorithm = make_algorithm(specs, [stream(0, "test", k) for k in range(policies)])
    for k in range(policies):
        algorithm.network.initialise(algorithm.online.of(k), torch_stream(0, "weights", k))
    return algorithm


def act(algorithm, policy, observations, random, masks=None):
    """What a policy chooses, as an actor would: actions and log-probabilities."""
    weights = algorithm.network.acting(algorithm.online.of(policy), None)
    with torch.no_grad():
        seen = torch.from_numpy(observations)[None]
        outputs = algorithm.network.outputs(weights, seen)[0].numpy()
    kind = algorithm.network.actions
    chosen = np.zeros((len(observations), kind.size), kind.dtype)
    log_probs = np.zeros(len(observations), np.float32)
    masks = np.ones((len(observations), 0), bool) if masks is None else masks
    kind.choose(outputs, masks, random, chosen, log_probs)
    return chosen, log_probs


def play(algorithm, reward, random, segments=32, masks=None):
    """A rollout of bandits: what is seen is uniform, a reward depends on it and on the action."""
    kind = algorithm.network.actions
    count = len(algorithm.configs)
    shape = StreamShape((2,), np.float32, 1, kind.size, kind.dtype, 0 if masks is None else 3)
    config = algorithm.configs[0].experience.model_copy(update={"segment_length": LENGTH})
    experience = Experience(shape, config, (segments,), Wakeup(), (Wakeup(),), segments * LENGTH)
    rollout = Rollout.empty(experience, count)
    rows = segments * (LENGTH + 1)
    rollout.num_rows[:], rollout.num_steps[:] = rows, segments * LENGTH
    rollout.num_taken[:] = rollout.num_steps
    for k in range(count):
        seen = random.random((rows, 2), np.float32)
        allowed = None if masks is None else np.tile(masks, (rows, 1))
        chosen, log_probs = act(algorithm, k, seen, random, allowed)
        rollout.observations[k, :rows], rollout.actions[k, :rows] = seen, chosen
        rollout.log_probs[k, :rows] = log_probs
        rollout.rewards[k, :rows] = reward(seen, chosen)
        rollout.streams[k, :rows] = np.arange(rows) // (LENGTH + 1)
        rollout.streams[k, LENGTH : rows : LENGTH + 1] = AFTER
        if masks is not None:
            rollout.masks[k, :rows] = masks
    return rollout


def bandit(seen, chosen):
    return seen[:, 0] * (chosen[:, 0] == 1) - seen[:, 1] * (chosen[:, 0] == 2)


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
    before = together.online.flat.detach().clone()
    together.update(rollout, range(3))
    for k in range(3):
        alone = make(1, own=own[k : k + 1])
        alone._streams = (stream(0, "test", k),)
        alone.load(0, before[k])
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


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("shared", "sizes", "options"),
    [
        (True, (3,), {}),
        (False, (3,), {"value_clip": 0.05}),
        (True, (2, 3), {"normalise_observations": True, "value_clip": 0.1}),
    ],
    ids=["trunk", "towers", "several choices"],
)
def test_fused_gradients_are_those_of_torch(shared, sizes, options, masked, activation):
    """For more rows than go through together, and policies that differ in every cost."""
    random = np.random.default_rng(0)
    own = [
        {"ppo": options | {"clip": 0.2}},
        {"ppo": options | {"clip": 0.05, "entropy_cost": 0.1, "value_cost": 1.0}},
    ]
    network = {"hidden": (16, 12), "shared": shared, "activation": activation}
    actions = DiscreteActions(sizes)
    own = [{"network": network, **each} for each in own]
    algorithm = make(2, actions=actions, own=own, masked=masked)
    rows = ROWS_AT_ONCE + 300
    if algorithm.network.normalised:
        with torch.no_grad():
            algorithm.online.parameters[MEAN].fill_(0.5)
            algorithm.online.parameters[VARIANCE].fill_(0.1)
    part = algorithm.online.rows(0, 2)
    masks = None
    if masked:
        masks = torch.from_numpy(random.random((2, rows, sum(sizes))) < 0.7)
        masks[..., 0] = masks[..., -1] = True
    chosen = np.stack(
        [
            random.integers(0, 1, (2, rows)) if masked and i == 0 else np.full((2, rows), size - 1)
            for i, size in enumerate(sizes)
        ],
        -1,
    )
    if masked and len(sizes) == 1:
        chosen[:, ::2] = sizes[0] - 1
    observations = torch.from_numpy(random.random((2, rows, 2), np.float32))
    taken = torch.from_numpy(chosen)
    costs, both, cpu = algorithm._costs, np.arange(2), torch.device("cpu")
    engines = [
        Autograd(algorithm.network, part, costs, algorithm.losses),
        Fused(algorithm.network, part, costs, Workspace(algorithm.network)),
    ]
    each = np.tile(np.arange(rows), (2, 1))
    every = Pick(both, each, rows, cpu, np.array([rows, rows]))
    evaluated = [[torch.zeros(2, rows) for _ in range(2)] for _ in engines]
    for engine, out in zip(engines, evaluated, strict=True):
        engine.evaluate(observations, taken, masks, [every], *out)
    for theirs, ours in zip(*evaluated, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    noise = torch.from_numpy(random.normal(0, 0.2, (3, 2, rows)).astype(np.float32))
    log_prox, values = evaluated[0]
    batch = Batch(
        observations,
        taken,
        masks,
        log_prox + noise[0],
        noise[1].exp(),
        noise[2],
        values + 0.5 * noise[1],
        values + noise[2],
    )
    index = np.stack([random.permutation(rows)[: rows - 7] for _ in range(2)])
    for fewer in (0, 1, 500):  # one policy has so many rows less than the other
        counts = np.array([rows - 7, rows - 7 - fewer])
        valid = torch.from_numpy(np.arange(rows - 7) < counts[:, None]).float()
        pick = Pick(both, index, rows, cpu, counts, valid if fewer else None)
        found = []
        for engine in engines:
            means = engine.step(batch, pick, pick.of(batch.advantages))
            found.append((means, part.gradients.clone()))
        (theirs, gradients), (ours, fused) = found
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
        assert gradients.abs().max() > 1e-3
        torch.testing.assert_close(fused, gradients, rtol=1e-3, atol=2e-6)


def test_steps_count_by_how_likely_the_policy_is_now_to_make_them():
    algorithm = make()
    rollout = play(algorithm, bandit, np.random.default_rng(0))
    rollout.log_probs[0, 0] -= 0.5  # it is likelier now than when it was made
    rollout.log_probs[0, 1] += 0.5
    rollout.log_probs[0, 2] -= 5.0
    samples = Rows(rollout, [0], torch.device("cpu"))
    batch, credit = algorithm._prepare(rollout, samples, [0])
    expected = [np.exp(0.5), np.exp(-0.5), 2.0, 1.0, 1.0]
    assert batch.weights[0, :5].tolist() == pytest.approx(expected, rel=1e-4)
    steps = int(rollout.num_steps[0])
    ratios = np.array([np.exp(0.5), np.exp(-0.5), np.exp(5.0), *[1.0] * (steps - 3)])
    assert credit.effective[0] == pytest.approx(
        ratios.sum() ** 2 / steps / (ratios**2).sum(), rel=1e-3
    )
    plain, *_ = make(correction="none")._prepare(rollout, samples, [0])
    assert plain.weights[0, :5].tolist() == [1.0] * 5
    # By V-trace a step counts at most once, and less where it is less likely now; see below.
    traced, *_ = make(correction="vtrace")._prepare(rollout, samples, [0])
    expected = [1.0, np.exp(-0.5), 1.0, 1.0, 1.0]
    assert traced.weights[0, :5].tolist() == pytest.approx(expected, rel=1e-4)


def test_what_steps_count_is_not_fetched_back_from_the_device(monkeypatch):
    """It was, in each update, which then waited for all that the device had been given to do."""
    algorithm = make()
    rollout = play(algorithm, bandit, np.random.default_rng(0))
    prepare, cpu, prepared, fetched = algorithm._prepare, torch.Tensor.cpu, [], []

    def noted(*args):
        found = prepare(*args)
        prepared.append(found[0])
        return found

    monkeypatch.setattr(algorithm, "_prepare", noted)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: (fetched.append(self), cpu(self))[1])
    algorithm.update(rollout, [0])
    assert fetched, "losses are"
    assert not any(tensor is prepared[0].weights for tensor in fetched)


def test_with_fresh_steps_every_correction_is_the_same():
    found = []
    for correction in ("decoupled", "vtrace", "none"):
        algorithm = make(correction=correction)
        rollout = play(algorithm, bandit, np.random.default_rng(0))
        samples = Rows(rollout, [0], torch.device("cpu"))
        batch, credit = algorithm._prepare(rollout, samples, [0])
        assert credit.effective[0] == pytest.approx(1.0, abs=1e-5)
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
        batch, *_ = algorithm._prepare(rollout, Rows(rollout, [0], torch.device("cpu")), [0])
        moved[cost] = float(batch.log_prox.exp().max())
        if cost:
            assert np.array_equal(algorithm._anchor.flat[0].numpy(), before)
            other = make(anchor_cost=cost, anchor_every=3, entropy_cost=0.0)
            other.restore(0, unpack(pack(algorithm.state(0))))
            state = random.bit_generator.state
            algorithm.update(rollout, [0])
            random.bit_generator.state = state
            other.update(rollout, [0])
            assert np.array_equal(algorithm.weights(0), other.weights(0))
            assert not np.array_equal(algorithm._anchor.flat[0].numpy(), before)
    assert moved[5.0] < moved[0.0] - 0.05
