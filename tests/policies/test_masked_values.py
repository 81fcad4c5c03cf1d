"""Q-learners choose, explore and estimate among what is allowed."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from scipy import stats

from masked_games import combinations
from refusals import refuses
from remuda.config import NetworkConfig, load_config
from remuda.errors import ConfigError, ContractError
from remuda.policies.actions import DiscreteActions, JointActions, valued
from remuda.policies.algorithms.dqn import Transitions
from remuda.policies.compatibility import shares_of
from remuda.policies.losses import among_allowed
from remuda.policies.networks.q_network import QNetwork
from remuda.policies.selectors import EpsilonGreedy
from remuda.policies.spec import make_algorithm
from remuda.population.specs import policy_specs
from remuda.system.rng import torch_rng
from remuda.types import AgentSpec


def choose(sizes, outputs, masks, epsilon, seed=0):
    """One action for each row, [N, choices]."""
    actions = np.zeros((len(outputs), len(sizes)), np.int64)
    rule = EpsilonGreedy(valued(DiscreteActions(sizes), "a", "dqn", True))
    rule.choose(
        np.asarray(outputs, np.float32),
        np.asarray(masks, bool).reshape(len(outputs), -1),
        np.random.default_rng(seed),
        np.full(len(outputs), epsilon),
        actions,
        np.zeros(len(outputs), np.float32),
    )
    return actions


def number_of(actions, sizes):
    return np.ravel_multi_index(tuple(actions.T), sizes)


@pytest.mark.parametrize("sizes", [(5,), (2, 3), (3, 1, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_greedy_is_the_first_of_the_best_that_is_allowed(sizes, masked):
    random = np.random.default_rng(1)
    outputs = random.integers(0, 4, (500, np.prod(sizes))).astype(np.float32)  # with equals
    masks = random.random((500, sum(sizes) if masked else 0)) < 0.6
    allowed = combinations(masks, sizes) if masked else np.ones_like(outputs, bool)
    some = allowed.any(1)
    assert some.sum() > 200
    expected = np.where(allowed, outputs, -1.0).argmax(1)
    found = number_of(choose(sizes, outputs, masks, 0.0), sizes)
    assert (found == expected)[some].all()
    assert (found[~some] == 0).all()


@pytest.mark.parametrize(
    ("sizes", "mask"),
    [
        ((5,), [0, 1, 1, 0, 1]),
        ((2, 3), [1, 1, 1, 0, 1]),
        ((2, 3), [0, 1, 0, 1, 1]),
        ((2, 3), None),
        ((4,), None),
        ((3,), [0, 0, 1]),
    ],
)
def test_what_is_explored_is_uniform_among_the_allowed(sizes, mask):
    count, total = 60_000, int(np.prod(sizes))
    outputs = np.zeros((count, total))
    masks = np.tile(np.array([] if mask is None else mask, bool), (count, 1))
    allowed = combinations(masks[:1], sizes)[0] if mask else np.ones(total, bool)
    found = number_of(choose(sizes, outputs, masks, 0.3), sizes)
    counts = np.bincount(found, minlength=total)
    assert (counts[~allowed] == 0).all()
    best = int(allowed.argmax())
    expected = count * np.where(allowed, 0.3 / allowed.sum(), 0.0)
    expected[best] += 0.7 * count
    if allowed.sum() > 1:
        assert stats.chisquare(counts[allowed], expected[allowed]).pvalue > 1e-4


def test_who_may_do_nothing_does_not_act():
    found = choose((2, 3), np.ones((50, 6)), np.tile([True, True, False, False, False], (50, 1)), 1)
    assert (found == 0).all()


def test_the_target_bootstraps_from_the_best_that_is_allowed():
    """By hand: the forbidden action would be the best by both networks."""
    r_t, discount_t = torch.tensor([[1.0, 1.0]]), torch.tensor([[0.5, 0.5]])
    select = torch.tensor([[[1.0, 9.0, 2.0], [1.0, 9.0, 2.0]]])
    q_t = torch.tensor([[[10.0, 90.0, 20.0], [10.0, 90.0, 20.0]]])
    allowed = torch.tensor([[[True, False, True], [True, True, True]]])
    network = QNetwork(2, 3, NetworkConfig())
    best = network.best_of(among_allowed(select, allowed))
    target = r_t + discount_t * network.taken(q_t, best)
    assert target.tolist() == [[1.0 + 0.5 * 20.0, 1.0 + 0.5 * 90.0]]
    assert among_allowed(select, torch.ones(0, dtype=torch.bool)) is select


@pytest.mark.slow_cases("iqn-False", "iqn-True")
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("kind", ["dqn", "iqn"])
def test_values_of_what_is_forbidden_never_enter_those_of_what_leads_there(kind, double):
    """A chain of two states: in the second only the action worth 1 is allowed, the other 10."""
    agent = AgentSpec("a", Box(0, 1, (2,), np.float32), Discrete(2), masked=True)
    policy = {
        "algorithm": kind,
        "n_frames": 1,
        "learning_rate": 3e-3,
        "dqn": {"double": double, "target_every": 20},
        "network": {"hidden": [32, 32]},
        "iqn": {"double": double, "target_every": 20, "quantiles": 8},
    }
    (spec,) = policy_specs(load_config({"policy": policy}), [agent])
    algorithm = make_algorithm([spec], [torch_rng(0, "test")])
    algorithm.network.initialise(algorithm.online.of(0), torch_rng(0, "weights"))
    algorithm.target.flat.copy_(algorithm.online.flat.detach())
    first, second = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    batch = Transitions(
        s_tm1=torch.stack([first, first, second, second])[None],
        a_tm1=torch.tensor([[0, 1, 0, 1]]),
        r_t=torch.tensor([[0.0, 0.0, 1.0, 10.0]]),
        discount_t=torch.tensor([[0.5, 0.5, 0.0, 0.0]]),
        s_t=torch.stack([second] * 4)[None],
        allowed_t=torch.tensor([[[True, False], [True, True], [True, True], [True, True]]]),
    )
    for _ in range(600):
        algorithm.update(batch)
    with torch.no_grad():
        weights = algorithm.network.acting(algorithm.online.parameters, None)
        values = algorithm.network.outputs(weights, torch.stack([first, second])[None])[0]
    expected = torch.tensor([[0.5, 5.0], [1.0, 10.0]])
    assert (values - expected).abs().max() < 0.3


def spec_for(space, algorithm="dqn", masked=False, **policies):
    agents = [
        AgentSpec(name, Box(0, 1, (2,), np.float32), space, masked=masked)
        for name in ("ann", "bob")
    ]
    config = load_config({"policy": {"algorithm": algorithm}, "policies": policies})
    return policy_specs(config, agents)


def test_a_value_for_each_combination_and_no_more_than_can_be_learned():
    for sizes in ((3,), (2, 3), (32, 32)):
        (spec, _) = spec_for(MultiDiscrete(sizes))
        assert spec.network().num_actions == np.prod(sizes)
    assert spec_for(Discrete(2000))[0].network().num_actions == 2000
    for algorithm in ("dqn", "iqn"):  # beyond, a value for each possibility of each choice
        (spec, _) = spec_for(MultiDiscrete([32, 33]), algorithm)
        assert spec.network().num_actions == 65
    soft = "policies.own_algorithms:Soft"
    with refuses(ContractError):
        spec_for(MultiDiscrete([32, 33]), soft)
    with refuses(ContractError):
        spec_for(Box(-1, 1, (2,), np.float32), "iqn")


def test_who_shares_experience_notes_the_same_things():
    group = {"experience": {"group": "us"}}
    assert shares_of(
        spec_for(Discrete(3), masked=True, ann=group, bob=group | {"algorithm": "iqn"})
    )
    other = {"algorithm": "ppo", "learning_mode": "off_policy"}
    with refuses(ConfigError):
        shares_of(spec_for(Discrete(3), masked=True, ann=group, bob=group | other))


@pytest.mark.parametrize("masked", [False, True])
def test_combined_choices_are_one_choice_among_combinations(masked):
    """Drawing and greedy graphs: as of one choice whose masks are worked out by hand."""
    sizes, random = (2, 3, 2), np.random.default_rng(0)
    actions, alone = JointActions(sizes), DiscreteActions((12,))
    outputs = random.normal(size=(4000, 12)).astype(np.float32)
    masks = random.random((4000, 7 if masked else 0)) < 0.7
    if masked:
        masks[:, [0, 2, 6]] = True
    allowed = combinations(masks, sizes) if masked else np.ones((4000, 0), bool)
    for draws in (None, 3):
        chosen, log_probs = np.zeros((4000, 3), np.int64), np.zeros(4000, np.float32)
        number, expected = np.zeros((4000, 1), np.int64), np.zeros(4000, np.float32)
        for who, which, found, likely in (
            (actions, masks, chosen, log_probs),
            (alone, allowed, number, expected),
        ):
            rngs = None if draws is None else [np.random.default_rng(draws)]
            who.choose_for_all(outputs[None], which[None], rngs, found[None], likely[None])
        assert (number_of(chosen, sizes) == number[:, 0]).all()
        assert (log_probs == expected).all()
        given = torch.from_numpy(masks) if masked else None
        if draws is None:
            assert (actions.greedy(torch.from_numpy(outputs), given).numpy() == chosen).all()


def test_one_s_own_algorithm_plays_with_masks_if_it_says_so():
    soft = "policies.own_algorithms:Soft"
    assert spec_for(Discrete(3), soft)[0].actions.num_outputs == 3
    with refuses(ContractError):
        spec_for(Discrete(3), soft, masked=True)
    assert spec_for(Discrete(3), "policies.own_algorithms:Vanilla", masked=True)
