"""What policies of runs do in trees: what they see there, and how likely each action is."""

import numpy as np
import pytest
import torch

from refusals import refuses
from remuda.analysis.trees.exact_play import walked_game
from remuda.analysis.trees.exploitability import measure
from remuda.analysis.trees.played_trees import KUHN, LEDUC, PLAYED, TIC_TAC_TOE, played_rules
from remuda.analysis.trees.policy_adapter import probabilities
from remuda.analysis.trees.tree_games import KuhnPoker, LeducPoker, TicTacToe
from remuda.analysis.trees.tree_walk import flatten
from remuda.config import load_config
from remuda.envs.games.kuhn_poker import BET, PASS, START
from remuda.envs.games.kuhn_poker import KuhnPoker as KuhnEnv
from remuda.envs.games.leduc_poker import CALL, SIZE, WAIT
from remuda.envs.games.leduc_poker import LeducPoker as LeducEnv
from remuda.envs.registry import make_env
from remuda.errors import UsageError
from remuda.policies.spec import first_weights
from remuda.population.specs import policy_specs


def spec_of(game, algorithm="ppo", **policy):
    config = load_config({"game": game, "policy": {"algorithm": algorithm, **policy}})
    return policy_specs(config, make_env(game, 1).agents)[0]


def weights_of(spec, seed=0):
    weights = first_weights(spec, torch.Generator().manual_seed(seed))
    drawn = np.random.default_rng(seed).normal(size=weights.shape)
    return (weights + 0.3 * drawn).astype(np.float32)


def played(game, spec, weights):
    walked = walked_game(game, make_env(game, 1))
    return [walked.play(player, spec, weights) for player in range(2)]


def test_kuhn_poker_shows_them_what_is_observed_there():
    tree, env = flatten(KuhnPoker()), KuhnEnv(1)
    ways = {(): (), (0,): (PASS,), (1,): (BET,), (0, 1): (PASS, BET)}
    for player in range(2):
        seen, allowed = PLAYED[KUHN].observations(tree, player)
        for known, observation, mask in zip(
            tree.information_sets[player], seen, allowed, strict=True
        ):
            card, done = known.key
            env.reset(np.zeros(1, np.int64), np.ones(1, np.bool_))
            env.cards[0] = (card, (card + 1) % 3) if player == 0 else ((card + 1) % 3, card)
            assert env.done[0] == START
            for number, action in enumerate(ways[done]):
                env.begin_turn()
                env.act(number % 2, np.array([action]))
                env.end_turn()
            shown, may = np.zeros((1, 8), np.float32), np.zeros((1, 3), np.bool_)
            env.observe(player, shown)
            env.mask(player, may)
            assert observation.tolist() == shown[0].tolist()
            assert mask.tolist() == may[0].tolist()


def test_leduc_poker_shows_them_what_is_observed_there():
    """All information sets are reached side by side, each in a copy of its own."""
    tree = flatten(LeducPoker())
    for player in range(2):
        seen, allowed = PLAYED[LEDUC].observations(tree, player)
        sets = tree.information_sets[player]
        assert (len(seen), len(sets)) == (468, 468)
        env, every = LeducEnv(len(sets)), np.ones(len(sets), np.bool_)
        env.reset(np.arange(len(sets)), every)
        moves = [[1 + a for done in known.state.rounds for a in done] for known in sets]
        for number, known in enumerate(sets):
            env.cards[number, : len(known.state.cards)] = known.state.cards
        shown, may = np.full((len(sets), SIZE), np.nan, np.float32), np.zeros((len(sets), 4), bool)
        for turn in range(1 + max(map(len, moves))):
            here = np.array([len(each) == turn for each in moves])
            now, may_now = np.zeros_like(shown), np.zeros_like(may)
            env.observe(player, now)
            env.mask(player, may_now)
            shown[here], may[here] = now[here], may_now[here]
            env.begin_turn()
            for agent in range(2):
                masks = np.zeros_like(may)
                env.mask(agent, masks)
                done = [each[turn] if turn < len(each) else CALL for each in moves]
                env.act(agent, np.where(masks[:, WAIT], WAIT, done))
            env.end_turn()
        assert (seen == shown).all()
        assert (allowed == may).all()


def test_a_game_is_known_by_its_name_and_by_its_class():
    for name in (KUHN, LEDUC):
        env = make_env(name, 1)
        assert played_rules(name, env) is PLAYED[name]
        assert played_rules("some_module:Poker", env) is PLAYED[name]
    assert played_rules("connect_four", make_env("connect_four", 1)) is None


def test_tic_tac_toe_shows_them_what_is_observed_there():
    pytest.importorskip("pettingzoo")
    tree, env, game = flatten(TicTacToe()), make_env(TIC_TAC_TOE, 1), TicTacToe()
    places = [{s.key: k for k, s in enumerate(sets)} for sets in tree.information_sets]
    shown = [PLAYED[TIC_TAC_TOE].observations(tree, player) for player in range(2)]
    rng = np.random.default_rng(0)
    for episode in range(20):
        env.reset(np.array([episode]), np.ones(1, np.bool_))
        state, rewards, over = game.root(), np.zeros(2), False
        while not over:
            env.begin_turn()
            for player in range(2):
                if game.player(state) == player:
                    space = env.agents[player].observation_space
                    seen = np.zeros((1, *space.shape), space.dtype)
                    may = np.zeros((1, 9), np.bool_)
                    env.observe(player, seen)
                    env.mask(player, may)
                    observations, allowed = shown[player]
                    place = places[player][state]
                    assert observations.dtype == seen.dtype
                    assert (observations[place] == seen[0]).all()
                    assert (allowed[place] == may[0]).all()
                    action = int(rng.choice(np.flatnonzero(may[0])))
                    state = game.child(state, action)
                    env.act(player, np.array([action]))
                else:
                    env.act(player, np.zeros(1, np.int64))
            result = env.end_turn()
            rewards += result.rewards[0]
            over = bool(result.terminated[0].all())
        assert game.player(state) < 0
        assert rewards.tolist() == list(game.returns(state))


@pytest.mark.parametrize("game", [KUHN, LEDUC, TIC_TAC_TOE])
def test_they_are_as_likely_as_actors_draw_them(game):
    """What the actor's selector draws, it says the log-probability of."""
    if game == TIC_TAC_TOE:
        pytest.importorskip("pettingzoo")
    known = PLAYED[game]
    observations, allowed = known.observations(flatten(known.rules()), 1)
    spec = spec_of(game)
    weights = weights_of(spec)
    found = probabilities(spec, weights, observations, allowed)
    assert found.sum(1) == pytest.approx(1.0)
    assert not found[~allowed].any()
    network = spec.network()
    with torch.inference_mode():
        parameters, start = {}, 0
        for name, shape in network.shapes.items():
            size = int(np.prod(shape))
            parameters[name] = torch.from_numpy(weights[start : start + size]).view(1, *shape)
            start += size
        inputs = torch.from_numpy(observations.reshape(1, len(observations), -1).astype(np.float32))
        outputs = network.outputs(network.acting(parameters, None), inputs)[0].numpy()
    actions, log_probs = np.zeros((len(outputs), 1), np.int64), np.zeros(len(outputs), np.float32)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rates = np.ones(len(outputs))
        spec.action_selector().choose(outputs, allowed, rng, rates, actions, log_probs)
        chosen = found[np.arange(len(found)), actions[:, 0]]
        assert np.log(chosen) == pytest.approx(log_probs, abs=1e-4)


def test_q_learners_take_the_best_that_is_allowed():
    spec = spec_of("kuhn_poker", "dqn", n_frames=1)
    tree, weights = flatten(KuhnPoker()), weights_of(spec)
    policies = played(KUHN, spec, weights)
    assert set(np.unique(policies[0])) <= {0.0, 1.0}
    found = measure(tree, policies)
    assert (found.gains >= 0.0).all()
    assert found.nash_conv > 0.0


def test_a_policy_in_tic_tac_toe():
    pytest.importorskip("pettingzoo")
    tree, spec = flatten(TicTacToe()), spec_of(TIC_TAC_TOE)
    policies = played(TIC_TAC_TOE, spec, weights_of(spec))
    for player in range(2):
        tree.check_policy(player, policies[player])
    found = measure(tree, policies)
    assert found.returns.sum() == pytest.approx(0.0)
    assert 0.0 < found.nash_conv <= 4.0


@pytest.mark.parametrize(
    "policy",
    [
        {"n_frames": 2},
        {"network": {"recurrent": 4}},
    ],
)
def test_policies_that_remember_are_refused(policy):
    spec = spec_of("kuhn_poker", **policy)
    with refuses(UsageError):
        played(KUHN, spec, np.zeros(1, np.float32))


def test_policies_of_other_games_are_refused():
    tree, spec = flatten(KuhnPoker()), spec_of("connect_four")
    with refuses(UsageError):
        played(KUHN, spec, np.zeros(1, np.float32))
    own = spec_of("kuhn_poker")
    observations, allowed = PLAYED[KUHN].observations(tree, 0)
    with refuses(UsageError):
        probabilities(own, weights_of(own), observations[:, 1:], allowed)
