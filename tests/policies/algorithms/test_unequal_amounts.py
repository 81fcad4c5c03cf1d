"""What a policy learns depends on its own data alone, whatever amounts its neighbours bring."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from policies.made_rollouts import KINDS, LENGTH, fill, make_stack, room_for, some_lengths
from policies.ppo_cases import watched_update
from remuda.policies.algorithms import rollout_algorithm
from remuda.policies.algorithms.kernels.ppo import Fused
from remuda.policies.algorithms.samples import Pick

AMOUNTS = {
    "one to sixty-four": ((64, 1, 8, 3, 64), (2, 40, 1, 1, 64)),
    "nearly alike": ((20, 21, 20, 19, 22), (20, 20, 22, 21, 20)),
    "much and little in turn": ((400, 20, 400, 20), (400, 20, 400, 20)),
}
"""By update, the segments of each policy."""


def train_together_and_alone(kind, updates, **more):
    """The algorithm of a stack, those of its policies alone, and what all of them said."""
    members = range(len(updates[0]))
    together = make_stack(kind, members, **more)
    alone = [make_stack(kind, [k], **more) for k in members]
    rooms = [room_for(a, LENGTH * np.max(updates)) for a in (together, *alone)]
    said = []
    for i, segments in enumerate(updates):
        for k in members:
            lengths = some_lengths(segments[k], np.random.default_rng((i, k)))
            fill(rooms[0], k, lengths, together, np.random.default_rng((i, k, 1)))
            fill(rooms[k + 1], 0, lengths, together, np.random.default_rng((i, k, 1)))
        learned = together.update(rooms[0], members)
        each = [a.update(room, [0]) for a, room in zip(alone, rooms[1:], strict=True)]
        said.append((learned, each))
    return together, alone, said


METRICS = ("loss", "policy_loss", "value_loss", "entropy", "kl", "clipped", "gradient_norm")
METRICS += ("explained_variance", "effective")
"""What an update tells of each policy."""

QUICK = {
    "one to sixty-four": {"trunk", "continuous", "recurrent, masks", "vtrace", "normalised"},
    "nearly alike": {
        "recurrent",
        "masks",
        "convolution",
        "towers",
        "target_kl",
        "anchor",
        "averaged anchor",
    },
    "much and little in turn": {"trunk", "several choices", "annealed", "value clip"},
}
"""Each kind with some amounts; kinds that are not here are two of these at once."""


@pytest.mark.slow_cases(
    "much and little in turn-trunk",
    "nearly alike-anchor",
    "nearly alike-averaged anchor",
    "nearly alike-convolution",
    "nearly alike-recurrent",
    "one to sixty-four-normalised",
    "one to sixty-four-recurrent, masks",
)
@pytest.mark.parametrize(
    ("amounts", "kind"),
    [
        pytest.param(a, k, marks=() if k in QUICK[a] else pytest.mark.slow)
        for a in AMOUNTS
        for k in KINDS
    ],
)
def test_beside_others_with_other_amounts_it_learns_as_it_would_alone(kind, amounts):
    together, alone, said = train_together_and_alone(kind, AMOUNTS[amounts])
    for k, one in enumerate(alone):
        torch.testing.assert_close(
            together.online.flat[k], one.online.flat[0], rtol=1e-3, atol=3e-5
        )
        assert together.optimizer.state(k)["steps"] == one.optimizer.state(0)["steps"]
        mine, its = together.state(k)["stream"], one.state(0)["stream"]
        assert mine == its  # it drew as many random numbers
        for learned, each in said:
            assert learned.samples[k] == each[k].samples[0]
            assert learned.steps[k] == each[k].steps[0]
            for name in METRICS:
                np.testing.assert_allclose(
                    getattr(learned, name)[k], getattr(each[k], name)[0], rtol=1e-3, atol=1e-4
                )


@pytest.mark.slow_cases("recurrent")
@pytest.mark.parametrize("kind", ["trunk", "recurrent"])
def test_every_step_is_trained_on_in_every_epoch_and_counted(kind):
    together, _, said = train_together_and_alone(kind, AMOUNTS["one to sixty-four"])
    epochs = together.configs[0].ppo.epochs
    for i, segments in enumerate(AMOUNTS["one to sixty-four"]):
        for k, count in enumerate(segments):
            steps = sum(some_lengths(count, np.random.default_rng((i, k))))
            assert said[i][0].samples[k] == steps * epochs
            assert said[i][0].steps[k] == steps


@pytest.mark.slow_cases("3-continuous", "3-trunk")
@pytest.mark.parametrize("kind", ["trunk", "towers", "recurrent", "masks", "continuous"])
@pytest.mark.parametrize("asked", [None, 3])
def test_gradient_steps_go_by_how_much_each_brings_unless_their_number_is_given(kind, asked):
    """Red before: a fourth of an epoch was one step, however large it was."""
    own = {"epochs": 2} | ({"minibatches": asked} if asked else {})
    stack, steps = make_stack(kind, range(3), ppo=own), (LENGTH, 5_100, 5_300)
    room = room_for(stack, max(steps))
    for k, count in enumerate(steps):
        lengths = [LENGTH] * (count // LENGTH)
        fill(room, k, lengths, stack, np.random.default_rng(k))
    stack.update(room, range(3))
    parts = [min(asked or most, count) for count, most in zip(steps, (4, 4, 8), strict=True)]
    if kind == "recurrent":  # its sequences are not parted, and the first has one
        parts[0] = 1
    assert [int(stack.optimizer.state(k)["steps"]) for k in range(3)] == [2 * n for n in parts]


@pytest.mark.parametrize("kind", ["target_kl", "recurrent, target_kl"])
def test_what_a_policy_trained_on_before_it_stopped_is_what_counts(kind):
    segments = AMOUNTS["nearly alike"][0]
    together, _, said = train_together_and_alone(kind, [segments], learning_rate=2e-2)
    learned = said[0][0]
    whole = [sum(some_lengths(n, np.random.default_rng((0, k)))) for k, n in enumerate(segments)]
    passes = [int(together.optimizer.state(k)["steps"]) for k in range(5)]
    assert len(set(passes)) > 1  # they stop at different times
    for k in range(5):
        per_epoch = together.configs[0].ppo.parts(whole[k])
        assert passes[k] < per_epoch * together.configs[0].ppo.epochs
        assert learned.samples[k] == pytest.approx(whole[k] * passes[k] / per_epoch, rel=0.2)
        assert learned.steps[k] == min(learned.samples[k], whole[k])


@pytest.mark.parametrize("kind", ["trunk", "recurrent", "continuous"])
def test_any_of_a_stack_are_trained_and_the_rest_stays(kind):
    whole, some = make_stack(kind, range(6)), make_stack(kind, range(6))
    room = room_for(whole, LENGTH * 64)
    for k, segments in enumerate((9, 1, 40, 9, 64, 10)):
        fill(
            room,
            k,
            some_lengths(segments, np.random.default_rng(k)),
            whole,
            np.random.default_rng(k),
        )
    before = whole.online.flat.detach().clone()
    whole.update(room, range(6))
    some.update(room, [0, 2, 3, 5])
    assert some.updates == [1, 0, 1, 1, 0, 1]
    for k in (0, 2, 3, 5):
        torch.testing.assert_close(some.online.flat[k], whole.online.flat[k], rtol=1e-3, atol=3e-5)
    for k in (1, 4):
        assert torch.equal(some.online.flat[k], before[k])


def test_a_newborn_trains_with_its_own_costs_on_a_device_that_copies(monkeypatch):
    """As on a GPU: what was moved there once does not change with what it was made from."""
    from_numpy, final = torch.from_numpy, {}
    for copies in (False, True):
        if copies:
            monkeypatch.setattr(torch, "from_numpy", lambda array: from_numpy(array).clone())
        final[copies] = []
        algorithm = make_stack("convolution", range(2))
        room = room_for(algorithm, LENGTH * 4)
        for k in range(2):
            fill(room, k, [LENGTH] * 4, algorithm, np.random.default_rng(k))
        for cost in range(10):
            config = algorithm.configs[0]
            own = config.ppo.model_copy(update={"entropy_cost": float(cost % 3)})
            newborn = config.model_copy(update={"ppo": own})
            algorithm.begin(0, algorithm.online.flat[1].detach().clone(), newborn)
            algorithm.update(room, range(2))
            final[copies].append(algorithm.weights(0).copy())
    np.testing.assert_allclose(final[True], final[False], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["continuous", "convolution", "recurrent", "anchor", "trunk"])
def test_no_minibatch_copies_the_whole_batch(kind, monkeypatch):
    of, looked_at = Pick.of, []

    def watched(self, x):
        looked_at.append(x.flatten(0, 1).data_ptr() == x.data_ptr())
        return of(self, x)

    monkeypatch.setattr(Pick, "of", watched)
    segments = (12, 40, 3)
    algorithm = make_stack(kind, range(3))
    room = room_for(algorithm, LENGTH * 64)
    for k, count in enumerate(segments):
        fill(room, k, [LENGTH] * count, algorithm, np.random.default_rng(k))
    algorithm.update(room, range(3))
    fused = kind in ("trunk", "continuous")  # whose kernels look rows up where they are
    assert bool(looked_at) != fused
    assert all(looked_at)


def test_little_goes_through_its_epochs_however_much_time_a_neighbour_takes(monkeypatch):
    """A clock that goes on by a second for each segment that is trained on."""
    segments, now = (400, 20, 400, 20), [0.0]
    algorithm = make_stack("trunk", range(4), time_budget=850.0)
    room = room_for(algorithm, LENGTH * 400)
    for k, count in enumerate(segments):
        fill(room, k, [LENGTH] * count, algorithm, np.random.default_rng(k))
    step = Fused.step

    def slow(engine, batch, pick):
        now[0] += pick.counts.sum() / LENGTH
        return step(engine, batch, pick)

    monkeypatch.setattr(Fused, "step", slow)
    monkeypatch.setattr(rollout_algorithm, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    learned = algorithm.update(room, range(4))
    epochs = algorithm.configs[0].ppo.epochs
    assert epochs > 1
    assert (learned.samples // learned.steps).tolist() == [1, epochs, 1, epochs]


@pytest.mark.parametrize("kind", ["recurrent", "recurrent, masks", "recurrent, continuous"])
def test_rows_that_only_fill_up_change_nothing_even_if_their_ratio_overflows(kind, monkeypatch):
    algorithm = make_stack(kind, range(2), ppo={"minibatches": 1})
    room = room_for(algorithm, LENGTH * 4)
    for k, lengths in enumerate(([LENGTH, 1, 3], [2, 1])):
        fill(room, k, lengths, algorithm, np.random.default_rng(k))
    _, (engine, batch, pick) = watched_update(algorithm, room, [0, 1])
    assert pick.valid.sum(1).tolist() == [LENGTH + 1 + 3, 2 + 1]
    actions = algorithm.network.actions
    plain, found = actions.log_probs_and_entropy, []

    def overflowing(*args):
        log_probs, entropies = plain(*args)
        return log_probs * (1.0 + 1e4 * (1.0 - pick.valid)) + 1e6 * (1.0 - pick.valid), entropies

    for log_probs in (plain, overflowing):
        monkeypatch.setattr(actions, "log_probs_and_entropy", log_probs)
        means = engine.step(batch, pick)
        found.append((means.clone(), algorithm.online.gradients.clone()))
    assert torch.isfinite(found[0][1]).all()
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
