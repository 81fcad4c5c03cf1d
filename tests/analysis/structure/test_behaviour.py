"""Distances between policies are 0 for alike, 1 for disjoint, and known by the states they need."""

import numpy as np
import pytest
from scipy import integrate
from scipy.spatial.distance import jensenshannon
from scipy.stats import norm

from refusals import refuses
from remuda.analysis.structure.behaviour import hellinger, jensen_shannon
from remuda.errors import UsageError


def rng(seed=0):
    return np.random.default_rng(seed)


def test_equal_policies_are_at_0_and_policies_without_a_common_action_at_1():
    one, other = [[1.0, 0.0]] * 3, [[0.0, 1.0]] * 3
    found = jensen_shannon([one, one, other], rng=rng())
    assert found.distances.tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    assert found.mean == pytest.approx(2 / 3)


def test_a_sure_policy_and_a_coin_are_at_the_value_worked_out_by_hand():
    found = jensen_shannon([[[1.0, 0.0]], [[0.5, 0.5]]], rng=rng())
    # The mixture is (3/4, 1/4): its entropy, less half a bit.
    entropy = -0.75 * np.log2(0.75) - 0.25 * np.log2(0.25)
    assert found.distances[0, 1] == pytest.approx(np.sqrt(entropy - 0.5))
    assert np.isnan(found.intervals[:, 0, 1]).all()  # one state tells nothing of others


def test_states_count_by_the_mean_of_divergences_as_scipy_has_them():
    p = rng(1).dirichlet(np.ones(4), (3, 20))
    found = jensen_shannon(p, rng=rng()).distances
    by_scipy = [jensenshannon(p[0, s], p[2, s], 2) ** 2 for s in range(20)]
    assert found[0, 2] == pytest.approx(np.sqrt(np.mean(by_scipy)))
    assert found[2, 0] == found[0, 2]


def test_intervals_cover_the_distance_over_all_states():
    inside = 0
    for seed in range(100):
        drawn = rng(seed)
        # In each state a pair acts alike or not at all: the squared distance is 0.3 on average.
        differ = drawn.random(200) < 0.3
        p = np.zeros((2, 200, 2))
        p[0, :, 0] = 1.0
        p[1, np.arange(200), differ.astype(int)] = 1.0
        low, high = jensen_shannon(p, rng=drawn).intervals[:, 0, 1]
        inside += low <= np.sqrt(0.3) <= high
    assert 88 <= inside <= 99


def test_states_of_one_episode_do_not_count_as_many():
    differ = np.repeat(rng(2).random(20) < 0.5, 50)
    p = np.zeros((2, 1000, 2))
    p[0, :, 0] = 1.0
    p[1, np.arange(1000), differ.astype(int)] = 1.0
    alone = jensen_shannon(p, rng=rng()).intervals[:, 0, 1]
    whole = jensen_shannon(p, rng=rng(), episodes=np.repeat(np.arange(20), 50)).intervals[:, 0, 1]
    assert np.ptp(whole) > 4 * np.ptp(alone)


def density(x, mean, deviation):
    return np.exp(-(((x - mean) / deviation) ** 2) / 2) / (deviation * np.sqrt(2 * np.pi))


def test_hellinger_is_what_integration_finds():
    found = hellinger([[[0.3]], [[-0.5]]], [[[1.2]], [[0.4]]], rng=rng()).distances[0, 1]
    overlap = integrate.quad(lambda x: np.sqrt(density(x, 0.3, 1.2) * density(x, -0.5, 0.4)), -9, 9)
    assert found == pytest.approx(np.sqrt(1 - overlap[0]), abs=1e-7)


@pytest.mark.parametrize(
    ("m", "s", "n", "t"),
    [
        (0.3, 1.2, -0.5, 0.4),  # much of the first is clipped
        (0.3, 0.05, 0.3, 1.5),  # one is much narrower than the other
        (0.9, 0.3, 2.5, 0.7),  # near a limit
    ],
)
def test_hellinger_of_clipped_and_squashed_actions_is_what_integration_finds(m, s, n, t):
    limits = {"limits": (-1.0, 1.0), "squashed": (False, True)}
    found = hellinger([[[m]], [[n]]], [[[s]], [[t]]], rng=rng(), **limits)

    def overlap(x):  # in the space before tanh, whose slope is 1 - tanh^2
        clipped = density(np.tanh(x), m, s) * (1 - np.tanh(x) ** 2)
        return np.sqrt(clipped * density(x, n, t))

    total = integrate.quad(overlap, n - 12 * t, n + 12 * t, points=[np.arctanh(m)], limit=200)[0]
    assert found.distances[0, 1] == pytest.approx(np.sqrt(1 - total), abs=2e-3)


def test_hellinger_of_clipped_actions_counts_what_is_beyond_a_limit_as_the_limit():
    both = {"limits": (-1.0, np.inf), "rng": rng()}
    found = hellinger([[[0.3]], [[-1.5]]], [[[1.2]], [[0.4]]], **both).distances[0, 1]
    total, _ = integrate.quad(
        lambda x: np.sqrt(density(x, 0.3, 1.2) * density(x, -1.5, 0.4)), -1, 9
    )
    below = [norm.cdf(-1.0, 0.3, 1.2), norm.cdf(-1.0, -1.5, 0.4)]
    assert found == pytest.approx(np.sqrt(1 - total - np.sqrt(np.prod(below))), abs=1e-7)
    squashed = hellinger([[[0.3]], [[-1.5]]], [[[1.2]], [[0.4]]], squashed=(True, True), **both)
    free = hellinger([[[0.3]], [[-1.5]]], [[[1.2]], [[0.4]]], rng=rng())
    assert squashed.distances[0, 1] == free.distances[0, 1]


def test_hellinger_of_two_dimensions_multiplies_their_overlaps():
    m, s = np.zeros((2, 1, 2)), np.ones((2, 1, 2))
    m[1] = 1.0
    one = hellinger(m[..., :1], s[..., :1], rng=rng()).distances[0, 1]
    both = hellinger(m, s, rng=rng()).distances[0, 1]
    assert 1 - both**2 == pytest.approx((1 - one**2) ** 2)
    assert hellinger(m + 1e3 * m, s, rng=rng()).distances[0, 1] == 1.0


@pytest.mark.parametrize(
    ("p", "more"),
    [
        (np.ones((2, 3)), {}),
        (np.ones((2, 3, 4)), {}),
        (np.full((2, 3, 2), np.nan), {}),
        (np.full((2, 3, 2), 0.5), {"episodes": [0, 1]}),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(p, more):
    with refuses(UsageError):
        jensen_shannon(p, rng=rng(), **more)


def test_one_policy_alone_has_no_pairs():
    found = jensen_shannon(np.full((1, 3, 2), 0.5), rng=rng())
    assert found.distances.tolist() == [[0.0]]
    assert np.isnan(found.mean)
    assert found.as_summary()["mean_interval"] == [None, None]


def test_gaussians_need_a_deviation():
    with refuses(UsageError):
        hellinger(np.zeros((2, 1, 1)), np.zeros((2, 1, 1)), rng=rng())
    with refuses(UsageError):
        hellinger(np.zeros((2, 1, 1)), np.ones((2, 1, 2)), rng=rng())
