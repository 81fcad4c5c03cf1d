"""Cleanup: every rule on worlds placed by hand, and the dilemma."""

import numpy as np
import pytest

from remuda.envs.contract import VectorEnvContract
from remuda.envs.games.cleanup import (
    AGENT,
    APPLE,
    CLEAN,
    CLEAN_BEAM,
    DOWN,
    KINDS,
    LEFT,
    ORCHARD,
    POLLUTION,
    RIGHT,
    RIVER,
    SAND,
    SHIFT,
    UP,
    WALL,
    ZAP,
    ZAP_BEAM,
    Cleanup,
    _equality,
    cleaners,
    division_of_labour,
    harvesters,
    taking_turns,
)
from remuda.envs.scripted import at_random, turns
from support import play_episodes

EVERY = np.ones(1, bool)
STILL = {"pollution_probability": 0.0, "growth_probability": 0.0, "start_apples": 0}


class TestCleanup(VectorEnvContract):
    def make(self, num_envs):
        return Cleanup(num_envs)


class TestShortCleanup(VectorEnvContract):
    def make(self, num_envs):
        return Cleanup(num_envs, num_agents=3, max_turns=8, vision_radius=3)


def world(*places, **options):
    """One copy with agents at (row, column, facing), where nothing comes by itself."""
    env = Cleanup(1, num_agents=len(places), **(STILL | options))
    env.reset(np.zeros(1, np.int64), EVERY)
    env.standing[:] = 0
    for agent, (y, x, facing) in enumerate(places):
        env.positions[0, agent], env.facing[0, agent] = (y, x), facing
        env.standing[0, y, x] = agent + 1
    return env


def pollute(env, *tiles):
    for y, x in tiles:
        assert env.tiles[0, y, x] == RIVER
        env.tiles[0, y, x] = POLLUTION
        env.polluted[0] += 1


def turn(env, *actions):
    env.begin_turn()
    for agent, action in enumerate(actions):
        env.act(agent, np.array([action]))
    return env.end_turn().rewards[0].tolist()


def look(env, agent):
    """What an agent sees: the kinds of the tiles around it, its facing, its place."""
    out = np.full((1, *env.agents[0].observation_space.shape), 0.3, np.float32)
    env.observe(agent, out)
    tiles = out[0, :-6].reshape(-1, KINDS)
    assert (tiles.sum(1) == 1).all()
    side = round(len(tiles) ** 0.5)
    return tiles.argmax(1).reshape(side, side), out[0, -6:-2].tolist(), out[0, -2:]


def test_the_map():
    env = Cleanup(1)
    env.reset(np.zeros(1, np.int64), EVERY)
    tiles = env.tiles[0]
    assert tiles.shape == (21, 31)
    assert (tiles[1:7, 1:30] == RIVER).all()
    assert (tiles[7:13, 10:12] == RIVER).all()
    assert np.isin(tiles[14:20, 1:30], (ORCHARD, APPLE)).all()
    assert (tiles == RIVER).sum() == 6 * 29 + 6 * 2
    assert (tiles == APPLE).sum() == 20
    assert (tiles[7:14] == SAND).sum() == 7 * 29 - 12
    assert (tiles[env.positions[0, :, 0], env.positions[0, :, 1]] == SAND).all()
    assert len(np.unique(env.positions[0], axis=0)) == 10
    assert {WALL} == set(tiles[0]) | set(tiles[-1]) | set(tiles[:, 0]) | set(tiles[:, -1])


@pytest.mark.parametrize(
    ("action", "to"), [(UP, (9, 5)), (DOWN, (11, 5)), (LEFT, (10, 4)), (RIGHT, (10, 6))]
)
def test_an_agent_moves_and_faces_that_way(action, to):
    env = world((10, 5, (action + 1) % 4))
    assert turn(env, action) == [0]
    assert tuple(env.positions[0, 0]) == to
    assert env.facing[0, 0] == action
    assert np.argwhere(env.standing[0]).tolist() == [list(to)]


def test_who_cannot_move_still_turns():
    env = world((13, 1, UP), (13, 2, UP))
    turn(env, LEFT, LEFT)
    assert env.positions[0].tolist() == [[13, 1], [13, 2]]
    assert env.facing[0].tolist() == [LEFT, LEFT]


def test_an_apple_is_eaten_by_who_steps_on_it():
    env = world((15, 5, UP), (15, 7, UP))
    env.tiles[0, 15, 6] = APPLE
    assert turn(env, RIGHT, LEFT) == [1, 0]
    assert env.tiles[0, 15, 6] == ORCHARD
    assert env.positions[0].tolist() == [[15, 6], [15, 7]]
    assert turn(env, LEFT, LEFT) == [0, 0]


BEAM_UP = {(-1, 0), (-2, 0), (-3, 0), (0, -1), (-1, -1), (-2, -1), (0, 1), (-1, 1), (-2, 1)}


@pytest.mark.parametrize(
    ("facing", "row", "turned"),
    [
        (UP, 4, lambda y, x: (y, x)),
        (DOWN, 3, lambda y, x: (-y, -x)),
        (LEFT, 3, lambda y, x: (-x, y)),
        (RIGHT, 3, lambda y, x: (x, -y)),
    ],
)
def test_a_beam_covers_three_lanes(facing, row, turned):
    env = world((row, 15, facing))
    pollute(env, *((y, x) for y in range(1, 7) for x in range(10, 20)))
    before = (env.tiles[0] == POLLUTION).copy()
    assert turn(env, CLEAN) == [0]
    cleaned = np.argwhere(before & (env.tiles[0] == RIVER)) - (row, 15)
    assert {tuple(at) for at in cleaned.tolist()} == {turned(y, x) for y, x in BEAM_UP}
    assert env.polluted[0] == 60 - 9


def test_walls_end_a_beam():
    env = world((2, 1, UP))
    turn(env, CLEAN)
    lit = np.argwhere(env.fired[0] >= 0).tolist()
    assert lit == [[1, 1], [1, 2], [2, 2]]
    assert (env.tiles[0, 0] == WALL).all()


def test_a_zap_costs_whom_it_hits():
    env = world((10, 15, UP), (8, 15, UP), (10, 14, UP), (11, 15, UP), (6, 15, UP))
    assert turn(env, ZAP, DOWN, UP, UP, LEFT) == [0, -1, -1, 0, 0]
    pollute(env, (5, 15))
    turn(env, ZAP, UP, UP, UP, UP)
    assert env.polluted[0] == 1


def test_everybody_sees_a_beam_once():
    env = world((10, 15, UP), (12, 15, UP), (10, 18, LEFT))

    def seen(agent):
        kinds, _, _ = look(env, agent)
        return set(kinds.ravel().tolist()) & {CLEAN_BEAM, ZAP_BEAM}

    env.begin_turn()
    assert [seen(agent) for agent in range(3)] == [set()] * 3
    env.act(0, np.array([UP]))
    assert not seen(1)
    env.act(1, np.array([CLEAN]))
    assert seen(2) == {CLEAN_BEAM}
    env.act(2, np.array([UP]))
    env.end_turn()
    env.begin_turn()
    assert seen(0) == {CLEAN_BEAM}
    env.act(0, np.array([UP]))
    assert seen(1) == {CLEAN_BEAM}
    env.act(1, np.array([UP]))
    assert not seen(2)


def test_what_an_agent_sees():
    env = world((8, 10, LEFT), (8, 12, UP))
    pollute(env, (6, 10), (7, 10))
    env.tiles[0, 14 - 1, 10] = APPLE  # on the sand, to be in view
    kinds, facing, place = look(env, 0)
    assert kinds.shape == (11, 11)
    assert kinds[5, 5] == AGENT
    assert kinds[5, 7] == AGENT
    assert kinds[3, 5] == kinds[4, 5] == POLLUTION
    assert kinds[5, 6] == RIVER
    assert kinds[5, 4] == SAND
    assert kinds[10, 5] == APPLE
    assert facing == [0, 0, 1, 0]
    assert place == pytest.approx([8 / 20, 10 / 30])
    env = world((7, 1, UP))
    kinds, _, _ = look(env, 0)
    assert (kinds[:, :5] == WALL).all()
    env.act(0, np.array([ZAP]))
    kinds, _, _ = look(env, 0)
    assert kinds[5, 5] == AGENT
    assert kinds[4, 5] == kinds[5, 6] == ZAP_BEAM
    env = world((10, 15, UP), (8, 15, UP))
    env.act(0, np.array([ZAP]))
    kinds, _, _ = look(env, 1)
    assert kinds[5, 5] == AGENT  # not the beam that it stands in
    assert kinds[4, 5] == kinds[6, 5] == ZAP_BEAM


def test_pollution_comes_and_apples_grow_as_often_as_they_should():
    env = Cleanup(400, num_agents=1, start_apples=0)
    env.reset(np.arange(400), np.ones(400, bool))
    river = 186
    polluted, grown = 0, 0.0
    expected_grown = 0.0
    clean_before = np.full(400, river)
    for _ in range(50):
        bare = (env.tiles == ORCHARD).sum((1, 2))
        env.begin_turn()
        share = env.polluted / river
        expected_grown += (0.002 * np.maximum(0, 1 - share / 0.5) * bare).sum()
        grown += (bare - (env.tiles == ORCHARD).sum((1, 2))).sum()
        polluted += clean_before.sum() - (river - env.polluted).sum()
        clean_before = river - env.polluted
        env.end_turn()
    assert grown == pytest.approx(expected_grown, rel=0.05)
    assert env.polluted.mean() / river == pytest.approx(1 - 0.991**50, rel=0.02)
    assert (env.polluted == (env.tiles == POLLUTION).sum((1, 2))).all()


def test_likely_things_happen_to_each_tile_by_itself():
    options = {"num_agents": 1, "start_apples": 0, "barren_share": 1.0}
    env = Cleanup(100, pollution_probability=0.5, growth_probability=1.0, **options)
    env.reset(np.arange(100), np.ones(100, bool))
    env.begin_turn()
    polluted = env.tiles == POLLUTION
    assert polluted.sum() / (100 * 186) == pytest.approx(0.5, abs=0.02)
    grown = (env.tiles[:, 14:20, 1:30] == APPLE).mean()
    assert grown == pytest.approx(0.5, abs=0.02)  # 1 - the polluted share
    beside = polluted[:, 1:7, 2:30] == polluted[:, 1:7, 1:29]
    assert beside.mean() == pytest.approx(0.5, abs=0.03)  # neighbours know nothing of each other


def test_nothing_grows_where_half_of_the_river_is_polluted():
    env = world((10, 5, UP), growth_probability=1.0)
    pollute(env, *((y, x) for y in range(1, 7) for x in range(1, 17)))
    assert env.polluted[0] >= 93
    turn(env, UP)
    assert not (env.tiles == APPLE).any()
    env = world((10, 5, UP), growth_probability=1.0)
    turn(env, UP)
    assert (env.tiles[0, 14:20, 1:30] == APPLE).all()


@pytest.mark.parametrize(
    ("returns", "equality"),
    [([1, 1, 1], 1), ([0, 0, 0], 1), ([3, 0, 0], 1 / 3), ([2, 1], 5 / 6), ([-1, 4], 0.5)],
)
def test_equality_is_one_minus_the_gini_coefficient(returns, equality):
    assert _equality(np.array(returns, np.float64)) == pytest.approx(equality)


def test_facts_of_an_episode():
    env = world((4, 5, UP), (15, 5, RIGHT), max_turns=3)
    pollute(env, *((y, x) for y in range(1, 4) for x in range(20, 27)), (3, 5), (6, 6))
    env.tiles[0, 15, 6] = APPLE
    turn(env, CLEAN, RIGHT)
    turn(env, ZAP, RIGHT)
    env.begin_turn()
    env.act(0, np.array([CLEAN]))
    env.act(1, np.array([UP]))
    told = {name: float(told[0]) for name, told in env.end_turn().info.items()}
    assert told == {
        "polluted_share": pytest.approx(22 / 186),
        "cleaning_actions": 2,
        "apples_eaten": 1,
        "equality": 0.5,
    }
    assert set(told) == set(env.episode_metrics)


def chosen(policy, env, agent=0):
    return int(policy(env, agent, np.zeros((1, 3), np.float32), np.random.default_rng(0))[0])


def test_cleaners_seek_pollution_and_harvesters_apples():
    env = world((9, 5, UP))
    pollute(env, (6, 5))
    env.tiles[0, 15, 5] = APPLE
    assert chosen(cleaners, env) == CLEAN  # three tiles ahead
    assert chosen(harvesters, env) == DOWN
    env.facing[0, 0] = LEFT
    assert chosen(cleaners, env) == UP
    turn(env, UP)
    turn(env, CLEAN)
    assert env.polluted[0] == 0
    assert chosen(cleaners, env) in (UP, DOWN, LEFT, RIGHT)  # nothing is left to clean


def test_agents_take_turns_in_cleaning():
    env = world((9, 5, UP), (9, 8, UP), max_turns=3 * SHIFT)
    pollute(env, (6, 5), (6, 8))
    env.tiles[0, 15, [5, 8]] = APPLE
    for cleans in (0, 1, 0):
        assert chosen(taking_turns, env, cleans) == CLEAN
        assert chosen(taking_turns, env, 1 - cleans) == DOWN
        for _ in range(SHIFT):
            turn(env, ZAP, ZAP)


@pytest.mark.slow
def test_the_dilemma():
    """Some must clean for all to eat; who cleans gets less; and random play gets little."""
    together = play_episodes(Cleanup(40), [division_of_labour] * 10, 1)
    apart = play_episodes(Cleanup(40), [harvesters] * 10, 1)
    lost = play_episodes(Cleanup(40), [at_random] * 10, 1)
    assert together.sum(1).mean() > 1.2 * apart.sum(1).mean()
    assert together[:, :3].mean() < 0.5 * together[:, 3:].mean()
    assert lost.mean() < 0
    result = next(
        result
        for result, over, _ in turns(
            Cleanup(20), [division_of_labour] * 10, np.random.default_rng(0)
        )
        if over.all()
    )
    assert result.info["polluted_share"].mean() < 0.2


@pytest.mark.slow
def test_taking_turns_is_a_social_dilemma():
    """Harvesting pays more whatever the others do, and all earn more if all take turns."""

    def returns(cooperators):
        policies = [taking_turns] * cooperators + [harvesters] * (10 - cooperators)
        return play_episodes(Cleanup(20), policies, 1)

    nobody, everybody = returns(0), returns(10)
    assert everybody.mean() > 1.2 * nobody.mean()
    for others, defects in ((0, nobody), (5, returns(5)), (9, returns(9))):
        cooperates = everybody if others == 9 else returns(others + 1)
        assert defects[:, others:].mean() > 1.1 * cooperates[:, : others + 1].mean()
