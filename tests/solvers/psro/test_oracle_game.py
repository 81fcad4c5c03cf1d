"""The game of several oracles: each sits in a game of its own, against its own target."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from exploited_policies import always
from refusals import refuses
from remuda.envs.contract import VectorEnvContract
from remuda.envs.description import EnvSpec
from remuda.errors import ConfigError
from remuda.population.ledger.ratings import sides_by_agent
from remuda.solvers.exploit.game import AgainstTargets
from remuda.solvers.exploit.matches import Lineup, play_lineups
from remuda.solvers.exploit.target import Target, make_target
from remuda.solvers.psro.oracles import choose, config_of, seated_target
from remuda.solvers.psro.settings import PsroSettings
from support import play_episodes

GAME = "rock_paper_scissors"


def fixed(action):
    return lambda env, agent, observations, random: np.full(env.num_envs, action, np.int64)


def saved(path, member, game=GAME):
    make_target(EnvSpec.of(game, {}), {"one": (member,) * 2}).save(path)
    return str(path)


def test_each_oracle_plays_its_own_target_on_its_own_seat(tmp_path):
    """Paper against rock earns 1; on the other seat, against paper, scissors earn 1."""
    targets = [
        saved(tmp_path / "rock", always(0, GAME)),
        saved(tmp_path / "paper", always(1, GAME)),
    ]
    env = AgainstTargets(targets=targets, seats=[0, 1])
    assert [agent.name for agent in env.agents] == ["target_0", "target_1"]
    assert play_episodes(env, [fixed(1), fixed(2)], 3).tolist() == [[1.0, 1.0]] * 3
    assert play_episodes(env, [fixed(0), fixed(0)], 3).tolist() == [[0.0, -1.0]] * 3


def test_oracles_of_other_games_are_of_no_matter(tmp_path):
    """What one earns does not hang on what the other does, or whether it is there."""
    target = saved(tmp_path / "t", "random", "kuhn_poker")
    seeds = np.arange(50)

    def returns(targets, seats, actions):
        env = AgainstTargets(50, targets=targets, seats=seats)
        env.reset(seeds, np.ones(50, np.bool_))
        total = np.zeros(50)
        while env.active.any():
            env.begin_turn()
            for agent, action in enumerate(actions):
                env.observe(agent, np.zeros((50, 8), np.float32))
                env.act(agent, np.full(50, action))
            total += env.end_turn().rewards[:, 0]
        return total.tolist()

    alone = returns([target], [0], [2])
    assert returns([target] * 2, [0, 1], [2, 1]) == alone
    assert returns([target] * 3, [0, 1, 1], [2, 2, 1]) == alone


def test_a_copy_is_over_when_all_of_its_games_are(tmp_path):
    """In Kuhn poker who bets first is done after the answer; who passes may have to answer."""
    target = saved(tmp_path / "t", "random", "kuhn_poker")
    env = AgainstTargets(200, targets=[target] * 2, seats=[0, 0])
    env.reset(np.arange(200), np.ones(200, np.bool_))
    turns = 0
    seen = set()
    while env.active.any():
        env.begin_turn()
        for agent, action in enumerate((2, 1)):  # the first bets, the second passes
            env.observe(agent, np.zeros((200, 8), np.float32))
            env.act(agent, np.full(200, action))
        env.end_turn()
        seen |= set(map(tuple, env.active.tolist()))
        turns += 1
    assert (False, True) in seen
    assert turns == 3


def test_as_many_seats_as_targets(tmp_path):
    with refuses(ConfigError):
        AgainstTargets(targets=[saved(tmp_path / "t", "random")], seats=[0, 1])


class TestAgainstTargets(VectorEnvContract):
    """In Kuhn poker, with a mixture on the other seats."""

    def make(self, num_envs):
        with TemporaryDirectory() as place:
            path = Path(place) / "target"
            make_target(
                EnvSpec.of("kuhn_poker", {}),
                {"random": ("random",) * 2, "bets": (always(2, "kuhn_poker"),) * 2},
            ).save(path)
            return AgainstTargets(num_envs, targets=[str(path)] * 2, seats=[0, 1])


def test_all_candidates_of_all_targets_are_one_population(tmp_path):
    others = [("random", "random"), ("bets", always(2, "kuhn_poker"))]
    env, shares = EnvSpec.of("kuhn_poker", {}), np.array([0.25, 0.75])
    targets = [
        seated_target(env, player, [others] * 2, shares, tmp_path / "t", player)
        for player in (0, 1)
    ]
    assert targets[0].target.players[1] == ("random", others[1][1])
    assert targets[1].target.players[1] == (others[1][1], "random")
    assert targets[0].target.shares == (0.25, 0.75)
    settings = PsroSettings(oracle="ppo", seconds=None, turns=640, schedule="sequential")
    config = config_of(settings, targets, 5, tmp_path / "run", 0.5)
    names = ("oracle_0_0", "oracle_0_1", "oracle_1_0", "oracle_1_1")
    assert config.population.policies == names
    assert config.population.seats["oracle_1_0"] == ("target_1",)
    assert config.env.options["seats"] == [0, 1]
    costs = [config.policy_of(name).ppo.entropy_cost for name in names]
    assert costs[:2] == costs[2:]
    assert costs[0] != costs[1]
    assert {config.policy_of(name).reward_scale for name in names} == {0.5}
    assert config.run.seconds is None
    assert config.run.turns == 640


def test_policies_that_are_never_played_are_left_out(tmp_path):
    others = [("random", "random"), ("bets", always(2, "kuhn_poker"))]
    env = EnvSpec.of("kuhn_poker", {})
    found = seated_target(env, 0, [others] * 2, np.array([0.0, 1.0]), tmp_path / "t")
    assert found.target.names == ("bets",)


def test_oracles_share_no_rewards_with_those_of_other_games(tmp_path):
    """They are no team, whatever share of its team's rewards an oracle is set to learn from."""
    target = saved(tmp_path / "t", "random")
    env = AgainstTargets(targets=[target] * 3, seats=[0, 1, 1])
    sides = sides_by_agent([agent.team for agent in env.agents])
    assert len(set(sides.tolist())) == 3


def test_seats_of_a_joint_distribution_draw_one_line_up_together(tmp_path):
    """Both others give, or both keep: the oracle, which keeps, is given 9 in half of its games.

    If they drew independently, it were three quarters.
    """
    game = "public_goods:PublicGoods"
    env = EnvSpec.of(game, {"volunteers": True})
    others = [("keeps", always(0, game)), ("gives", always(1, game))]
    joint = np.diag([0.5, 0.5])
    found = seated_target(env, 1, [others] * 3, joint, tmp_path / "t")
    assert found.target.names == ("keeps + keeps", "gives + gives")
    found.target.save(tmp_path / "t")
    oracle = AgainstTargets(targets=[str(tmp_path / "t")], seats=[1])
    played = play_episodes(oracle, [fixed(0)], 400)
    (matches,) = play_lineups(found.target, [Lineup(1, always(0, game))], 400, 3)
    for returns in (played.ravel(), matches[:, 1]):
        assert set(returns.tolist()) == {0.0, 9.0}
        assert 0.4 < (returns > 0).mean() < 0.6


def test_a_file_keeps_each_policy_once(tmp_path):
    game = "public_goods:PublicGoods"
    others = [("keeps", always(0, game)), ("gives", always(1, game))]
    found = seated_target(EnvSpec.of(game, {}), 0, [others] * 3, np.full((2, 2), 0.25), tmp_path)
    found.target.save(tmp_path / "t")
    again = Target.load(tmp_path / "t")
    assert again.together
    assert again.shares == (0.25,) * 4
    seconds = [players[1] for players in again.players]
    assert seconds[0] is seconds[1]
    assert seconds[0] is not seconds[2]
    for was, now in zip(found.target.players, again.players, strict=True):
        assert was[2].snapshot.weights.tolist() == now[2].snapshot.weights.tolist()


def test_a_candidate_is_compared_with_what_the_role_plays_in_the_same_matches(tmp_path):
    """Red before: random play seemed better than itself by luck, in other matches."""
    env, random = EnvSpec.of("kuhn_poker", {}), [[("random", "random")]] * 2
    target = seated_target(env, 0, random, np.ones(1), tmp_path / "t")
    settings = PsroSettings(oracle="scripted", scripted=("random",), trials=50)
    ((policy, more),) = choose([target], {}, [["random"]], [[("random", 1.0)]], settings, [7])
    assert policy == "random"
    assert more == 0.0
