"""Treasure Hunt: every rule on worlds placed by hand, and the returns that are known."""

import numpy as np
import pytest

from refusals import refuses
from remuda.envs.games.array_game import DOWN, LEFT, RIGHT, UP
from remuda.envs.games.treasure_hunt import (
    AGENT,
    BONE,
    EMPTY,
    FOOD,
    GEM,
    WALL,
    TreasureHunt,
    greedy_walker,
)
from remuda.envs.scripted import at_random
from support import play_episodes

EVERY = np.ones(1, bool)


def world(positions, items=(), **options):
    """One copy with agents and items where they are put, and nothing that spawns."""
    options = {"spawn_probability": 0.0, "num_agents": len(positions)} | options
    env = TreasureHunt(1, **options)
    env.reset(np.zeros(1, np.int64), EVERY)
    env.tiles[0][env.tiles[0] == AGENT] = EMPTY
    for agent, (y, x) in enumerate(positions):
        env.positions[0, agent] = y, x
        env.tiles[0, y, x] = AGENT
    for y, x, item in items:
        env.tiles[0, y, x] = item
    return env


def turn(env, *actions):
    env.begin_turn()
    for agent, action in enumerate(actions):
        env.act(agent, np.array([action]))
    return env.end_turn().rewards[0].tolist()


@pytest.mark.parametrize(
    ("action", "to"), [(UP, (4, 5)), (DOWN, (6, 5)), (LEFT, (5, 4)), (RIGHT, (5, 6))]
)
@pytest.mark.parametrize(("item", "value"), [(EMPTY, 0), (GEM, 10), (FOOD, 5), (BONE, -10)])
def test_an_agent_moves_and_takes_what_is_there(action, to, item, value):
    env = world([(5, 5)], [(*to, item)])
    assert turn(env, action) == [value]
    assert tuple(env.positions[0, 0]) == to
    assert env.tiles[0, 5, 5] == EMPTY
    assert env.tiles[0][to] == AGENT
    assert not (env.tiles[0] == item).any() or item == EMPTY


def test_a_wall_costs_one_and_stops():
    env = world([(1, 1)])
    assert turn(env, UP) == [-1]
    assert turn(env, LEFT) == [-1]
    assert tuple(env.positions[0, 0]) == (1, 1)
    assert (env.tiles[0, 0] == WALL).all()


def test_two_agents_never_share_a_tile():
    env = world([(5, 5), (5, 7)])
    # The first moves to (5, 6) at once, so the second, which wanted it too, stays for nothing.
    assert turn(env, RIGHT, LEFT) == [0, 0]
    assert env.positions[0].tolist() == [[5, 6], [5, 7]]
    # The second follows onto the tile that the first has just left.
    assert turn(env, LEFT, LEFT) == [0, 0]
    assert env.positions[0].tolist() == [[5, 5], [5, 6]]


def test_an_item_is_taken_once():
    env = world([(5, 5), (4, 6)], [(5, 6, GEM)])
    assert turn(env, RIGHT, DOWN) == [10, 0]
    assert not (env.tiles[0] == GEM).any()


def test_an_agent_sees_its_surroundings_by_kind():
    env = world([(5, 5), (4, 5)], [(3, 3, GEM), (7, 7, BONE), (5, 6, FOOD), (8, 5, GEM)])
    out = np.full((1, 5, 5, 5), 9, np.uint8)
    env.observe(0, out)
    expected = np.zeros((5, 5, 5), np.uint8)
    expected[GEM - 1, 0, 0] = 1
    expected[BONE - 1, 4, 4] = 1
    expected[FOOD - 1, 2, 3] = 1
    expected[AGENT - 1, 2, 2] = 1  # itself
    expected[AGENT - 1, 1, 2] = 1
    assert (out[0] == expected).all()


@pytest.mark.parametrize("radius", [1, 2, 7])
def test_beyond_the_map_everything_is_wall(radius):
    env = world([(1, 1)], height=5, width=6, vision_radius=radius)
    side = 2 * radius + 1
    out = np.zeros((1, 5, side, side), np.uint8)
    env.observe(0, out)
    rows, columns = np.indices((side, side)) - radius + 1
    outside = (rows <= 0) | (rows >= 4) | (columns <= 0) | (columns >= 5)
    assert (out[0, WALL - 1].astype(bool) == outside).all()
    assert out[0].sum() == outside.sum() + 1


def test_an_action_is_seen_by_the_next_agent():
    env = world([(5, 5), (5, 8)])
    env.begin_turn()
    env.act(0, np.array([RIGHT]))
    out = np.zeros((1, 5, 5, 5), np.uint8)
    env.observe(1, out)
    assert out[0, AGENT - 1, 2, 0] == 1


def test_items_appear_with_their_probability_and_alike():
    env = TreasureHunt(400, spawn_probability=0.02, num_agents=3)
    env.reset(np.arange(400), np.ones(400, bool))
    env.begin_turn()
    inner = env.tiles[:, 1:-1, 1:-1]
    counts = np.array([(inner == item).sum() for item in (GEM, BONE, FOOD)])
    tiles = inner.size - 400 * 3
    mean, deviation = 0.02 * tiles, np.sqrt(0.02 * 0.98 * tiles)
    assert abs(counts.sum() - mean) < 4 * deviation
    assert (abs(counts - counts.sum() / 3) < 4 * np.sqrt(counts.sum() * 2 / 9)).all()
    assert (env.tiles[:, 0] == WALL).all()
    assert ((env.tiles == AGENT).sum((1, 2)) == 3).all()
    # No place is likelier than another: rows and columns are even.
    found = inner > WALL
    found &= inner < AGENT
    for axis in (1, 2):
        by_line = found.sum((0, axis))
        assert ((by_line - by_line.mean()) ** 2 / by_line.mean()).sum() < 46  # 18 degrees


def test_occupied_tiles_stay_as_they_are():
    env = world([(1, 1)], [(2, 2, GEM)], spawn_probability=0.9999)
    for _ in range(20):
        env.begin_turn()
    assert env.tiles[0, 1, 1] == AGENT
    assert env.tiles[0, 2, 2] == GEM
    assert (env.tiles[0, 1:-1, 1:-1] != EMPTY).all()


def test_agents_start_on_distinct_random_tiles():
    env = TreasureHunt(2000, height=5, width=5, num_agents=4)
    env.reset(np.arange(2000), np.ones(2000, bool))
    places = env.positions[..., 0] * 10 + env.positions[..., 1]
    assert all(len(set(row)) == 4 for row in places)
    counts = np.bincount(places[:, 0] % 10 + 3 * (places[:, 0] // 10) - 4, minlength=9)
    assert counts.min() > 150
    assert (env.tiles[:, 1:-1, 1:-1] != EMPTY).sum() == 8000


def test_an_episode_is_truncated_after_its_turns():
    env = TreasureHunt(2, max_turns=3)
    env.reset(np.arange(2), np.ones(2, bool))
    for i in range(3):
        env.begin_turn()
        result = env.end_turn()
        assert result.truncated.all() == (i == 2)
        assert not result.terminated.any()
        assert env.active.all() == (i < 2)
    env.reset(np.arange(2), np.array([True, False]))
    env.begin_turn()
    env.end_turn()
    assert env.active.tolist() == [[True, True], [False, False]]


@pytest.mark.parametrize(
    "options",
    [
        {"height": 2},
        {"num_agents": 0},
        {"height": 4, "width": 4, "num_agents": 5},
        {"spawn_probability": 1.5},
        {"max_turns": 1.5},
        {"gem": float("nan")},
    ],
)
def test_impossible_parameters_are_refused(options):
    with refuses(ValueError):
        TreasureHunt(1, **options)


@pytest.mark.parametrize(
    ("player", "known", "error_of_known"), [(at_random, 10.7, 0.4), (greedy_walker, 154.9, 0.7)]
)
def test_play_without_learning_earns_what_is_known(player, known, error_of_known):
    returns = play_episodes(TreasureHunt(3000), [player] * 2, 1)
    error = returns.std() / np.sqrt(returns.size)
    assert abs(returns.mean() - known) < 4 * np.hypot(error, error_of_known)


def test_a_picture_shows_the_world():
    env = world([(5, 5)], [(3, 3, GEM)])
    picture = env.render()
    assert picture.shape == (336, 336, 3)

    def tile(y, x):
        return picture[y * 16 : y * 16 + 16, x * 16 : x * 16 + 16].astype(int)

    floor = tile(10, 10)
    for y, x in ((5, 5), (3, 3), (0, 0)):
        assert abs(tile(y, x) - floor).sum() > 1000
