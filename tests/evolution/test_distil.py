"""Distillation: a child does on each parent's states what that parent does there."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from evolving import actor_critic, drawn, values
from remuda.errors import UsageError
from remuda.evolution.distil import Teacher, distil, divergence_of, squared_error
from remuda.evolution.layout import Layout, outputs_of
from remuda.policies.actions import ContinuousActions, DiscreteActions
from remuda.policies.networks.actor_critic import VARIANCE

CHILD = actor_critic((24,), normalised=True)
LAYOUT = Layout.of(CHILD)
KL = divergence_of(DiscreteActions((3,)))


def rng(seed=0):
    return np.random.default_rng(seed)


def teacher(network, seed, side, count=60):
    """A parent with pronounced preferences, on states of one side."""
    weights = drawn(network, seed)
    head = "policy" if "policy" in network.layers else network.layers[-1]
    tensor = Layout.of(network).tensors(weights)[f"{head}.weight"]
    tensor[...] = rng(seed).standard_normal(tensor.shape)
    states = rng(seed).standard_normal((count, 5)).astype(np.float32)
    states[:, 0] = side * (1.0 + np.abs(states[:, 0]))
    return Teacher(outputs_of(network), weights, states)


def pair():
    """Parents of unlike widths, on unlike states, and of unlike numbers of these."""
    return [
        teacher(actor_critic((8,)), 1, 1.0),
        teacher(actor_critic((6, 6), shared=False), 2, -1.0, 25),
    ]


def apart(weights, each, loss=KL, network=CHILD):
    """How far a child is from a parent on that one's states."""
    with torch.no_grad():
        states = torch.from_numpy(each.states)
        found = outputs_of(network)(torch.from_numpy(weights), states)
        return float(loss(found, each.outputs(torch.from_numpy(each.weights), states)).mean())


def learn(teachers, loss=KL, network=CHILD, seed=0, **options):
    weights = drawn(network)
    layout = Layout.of(network)
    return distil(weights, layout, outputs_of(network), teachers, loss, rng(seed), **options)


def test_a_child_does_what_each_parent_does_on_its_own_states():
    parents = pair()
    found = learn(parents, steps=600, learning_rate=1e-2)
    for each in parents:
        assert apart(drawn(CHILD), each) > 0.2
        assert apart(found.weights, each) < 0.02
    wanted = np.mean([apart(found.weights, each) for each in parents])
    assert found.after == pytest.approx(wanted, rel=1e-4)
    assert found.before == pytest.approx(
        np.mean([apart(drawn(CHILD), each) for each in parents]), rel=1e-4
    )


def test_values_are_learned_by_regression():
    network = values((24,), dueling=True)
    parents = [
        teacher(values((8,), dueling=False), 1, 1.0),
        teacher(values((6,), dueling=True), 2, -1.0),
    ]
    found = learn(parents, squared_error, network, steps=500, learning_rate=1e-2)
    for each in parents:
        start = apart(drawn(network), each, squared_error, network)
        assert apart(found.weights, each, squared_error, network) < 0.05 * start


@settings(max_examples=5, deadline=None)
@given(seed=some.integers(0, 1000))
def test_a_seed_decides_all_and_buffers_stay(seed):
    one, other = (learn(pair(), seed=seed, steps=5) for _ in range(2))
    assert one.weights.tobytes() == other.weights.tobytes()
    assert one.after < one.before
    np.testing.assert_array_equal(one.weights[~LAYOUT.learned], drawn(CHILD)[~LAYOUT.learned])
    assert (LAYOUT.tensors(one.weights)[VARIANCE] == 1.0).all()


def test_no_step_is_the_identity_bit_for_bit():
    found = learn(pair(), steps=0)
    assert found.weights.tobytes() == drawn(CHILD).tobytes()
    assert found.before == found.after


def test_a_child_of_itself_has_nothing_to_learn():
    own = Teacher(outputs_of(CHILD), drawn(CHILD), pair()[0].states)
    found = learn([own], steps=3)
    assert found.before == pytest.approx(0.0, abs=1e-6)
    assert found.after == pytest.approx(0.0, abs=1e-4)  # Adam makes steps of what is rounded


def test_parents_count_alike_however_many_states_they_bring():
    """One parent brings 400 times as many states; each is learned as well."""
    parents = [
        teacher(actor_critic((8,)), 1, 1.0, 4000),
        teacher(actor_critic((8,)), 2, -1.0, 10),
    ]
    found = learn(parents, steps=400, learning_rate=1e-2)
    assert apart(found.weights, parents[1]) < 0.05


def test_divergences_are_those_of_the_actions():
    logits = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[1.0, 1.0, 1.0]])
    p, q = (each.softmax(-1) for each in logits)
    wanted = (q * (q.log() - p.log())).sum(-1)
    torch.testing.assert_close(KL(*logits), wanted)
    low, high = np.array([-1.0], np.float32), np.array([1.0], np.float32)
    normal = divergence_of(ContinuousActions(low, high))
    same = torch.tensor([[0.3, -0.5]])
    assert normal(same, same).tolist() == pytest.approx([0.0])
    assert float(normal(same, same + 0.5)[0]) > 0.05


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (lambda: learn([]), "one parent at least"),
        (lambda: learn([Teacher(pair()[0].outputs, pair()[0].weights, np.zeros((0, 5)))]), "no st"),
        (lambda: learn(pair(), steps=-1), "0 steps or more"),
        (lambda: learn(pair(), batch_size=0), "a batch of 1"),
        (lambda: learn(pair(), learning_rate=0.0), "a learning rate above 0"),
        (lambda: learn([teacher(actor_critic(actions=4), 0, 1.0)]), "4 outputs, and the child 3"),
        (
            lambda: learn(
                [Teacher(pair()[0].outputs, pair()[0].weights * np.nan, np.ones((2, 5)))]
            ),
            "outputs of parent 0 are not finite",
        ),
        (lambda: learn(pair(), squared_error, steps=20, learning_rate=1e30), "diverged"),
    ],
)
def test_what_cannot_be_distilled_is_refused(asked, told):
    with pytest.raises(UsageError, match=told):
        asked()
