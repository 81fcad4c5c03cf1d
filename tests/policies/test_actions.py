"""Kinds of actions: acting and learning mean the same distribution."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Text
from scipy import stats

from refusals import refuses
from remuda.errors import ContractError
from remuda.policies.action_spaces import actions_of
from remuda.policies.actions import DiscreteActions
from remuda.policies.continuous_actions import ContinuousActions
from remuda.policies.selectors import EpsilonGreedy, Sampled

NO_MASKS = np.ones((1, 0), bool)


def draw(actions, outputs, count, masks=None, random=None):
    outputs = np.tile(np.array(outputs, np.float32), (count, 1))
    masks = np.ones((count, 0), bool) if masks is None else np.tile(np.array(masks), (count, 1))
    chosen = np.zeros((count, actions.size), actions.dtype)
    log_probs = np.zeros(count, np.float32)
    random = np.random.default_rng(0) if random is None else random
    Sampled(actions).choose(outputs, masks, random, np.ones(len(outputs)), chosen, log_probs)
    learned = actions.log_probs_and_entropy(
        torch.from_numpy(outputs)[None],
        torch.from_numpy(chosen)[None],
        torch.from_numpy(masks)[None] if masks.shape[1] else None,
    )
    np.testing.assert_allclose(learned[0][0].numpy(), log_probs, atol=1e-5)
    return chosen, learned


def test_discrete_choices_are_as_frequent_as_the_network_says():
    logits = np.log([0.1, 0.6, 0.3])
    chosen, (_, entropy) = draw(DiscreteActions((3,)), logits, 100_000)
    counts = np.bincount(chosen[:, 0])
    assert stats.chisquare(counts, [10_000, 60_000, 30_000]).pvalue > 1e-4
    assert entropy[0, 0].item() == pytest.approx(stats.entropy([0.1, 0.6, 0.3]))


def test_what_a_mask_forbids_is_never_chosen_and_the_rest_is_scaled_up():
    mask = [True, False, True]
    chosen, (log_probs, entropy) = draw(
        DiscreteActions((3,)), np.log([0.1, 0.6, 0.3]), 20_000, mask
    )
    counts = np.bincount(chosen[:, 0], minlength=3)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2]], [5_000, 15_000]).pvalue > 1e-4
    assert sorted({round(x, 4) for x in log_probs[0].exp().tolist()}) == [0.25, 0.75]
    assert entropy[0, 0].item() == pytest.approx(stats.entropy([0.25, 0.75]), abs=1e-5)


def test_several_choices_at_once_are_independent():
    logits = np.log([0.2, 0.8, 0.5, 0.25, 0.25])
    chosen, (_, entropy) = draw(DiscreteActions((2, 3)), logits, 60_000)
    table = np.histogram2d(chosen[:, 0], chosen[:, 1], bins=(2, 3))[0]
    expected = 60_000 * np.outer([0.2, 0.8], [0.5, 0.25, 0.25])
    assert stats.chisquare(table.ravel(), expected.ravel()).pvalue > 1e-4
    assert entropy[0, 0].item() == pytest.approx(
        stats.entropy([0.2, 0.8]) + stats.entropy([0.5, 0.25, 0.25])
    )


def test_continuous_actions_are_normal_and_the_game_sees_them_within_bounds():
    actions = ContinuousActions(np.array([-1, -1], np.float32), np.array([1, 1], np.float32))
    chosen, (log_probs, entropy) = draw(actions, [0.5, -0.5, 0.0, np.log(0.5)], 50_000)
    for column, mean, scale in ((0, 0.5, 1.0), (1, -0.5, 0.5)):
        assert stats.kstest(chosen[:, column], stats.norm(mean, scale).cdf).pvalue > 1e-4
    by_scipy = stats.norm([0.5, -0.5], [1.0, 0.5]).logpdf(chosen).sum(1)
    np.testing.assert_allclose(log_probs[0].numpy(), by_scipy, atol=1e-4)
    entropies = stats.norm([0.5, -0.5], [1.0, 0.5]).entropy().sum()
    assert entropy.flatten()[0].item() == pytest.approx(entropies, abs=1e-5)
    assert abs(actions.within_bounds(chosen)).max() == 1.0
    assert abs(chosen).max() > 1.0


def test_greedy_is_the_most_likely_and_draws_nothing():
    random = np.random.default_rng(3)
    before = random.bit_generator.state
    chosen, log_probs = np.zeros((2, 1), np.int64), np.zeros(2, np.float32)
    outputs = np.log(np.array([[0.2, 0.5, 0.3], [0.9, 0.05, 0.05]], np.float32))
    masks = np.array([[True, False, True], [True, True, True]])
    for rule in (Sampled(DiscreteActions((3,))), EpsilonGreedy(DiscreteActions((3,)))):
        rule.choose(outputs, masks, random, np.zeros(2), chosen, log_probs)
        assert chosen[:, 0].tolist() == [2, 0]
    assert random.bit_generator.state == before


def test_spaces():
    assert actions_of(Discrete(3), "a").size == 1
    assert actions_of(MultiDiscrete([2, 3]), "a").mask_size == 5
    assert actions_of(Box(-1, 1, (2, 2), np.float32), "a").num_outputs == 8
    for space in (Discrete(3, start=1), Text(3), Box(0, 9, (2,), np.uint8)):
        with refuses(ContractError):
            actions_of(space, "a")


def test_divergence_by_hand():
    actions = DiscreteActions((2, 3))
    outputs = torch.tensor([[[0.0, math.log(3.0), 0.0, 0.0, 5.0]]])
    others = torch.tensor([[[0.0, 0.0, 0.0, math.log(2.0), -5.0]]])
    masks = torch.tensor([[[True, True, True, True, False]]])
    # 1/4, 3/4 from 1/2, 1/2; and 1/2, 1/2 from 1/3, 2/3
    first = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    second = 0.5 * math.log(1.5) + 0.5 * math.log(0.75)
    assert actions.divergence(outputs, others, masks).item() == pytest.approx(first + second)
    assert actions.divergence(outputs, outputs, masks).item() == 0.0
    box = ContinuousActions(np.zeros(2, "f4"), np.ones(2, "f4"))
    one = torch.tensor([[[1.0, 2.0, 0.0, 0.0]]])
    other = torch.tensor([[[0.0, 2.0, math.log(2.0), 0.0]]])
    # log 2 + (1 + 1) / (2 * 4) - 1/2, and nothing for the second
    assert box.divergence(one, other, None).item() == pytest.approx(math.log(2.0) + 0.25 - 0.5)
