"""Tag: every rule on worlds placed by hand."""

import numpy as np
import pytest

from remuda.envs.contract import VectorEnvContract
from remuda.envs.games.array_game import DOWN, LEFT, RIGHT, UP
from remuda.envs.games.tag import AGENT, EMPTY, Tag, chase_and_flee
from support import play_episodes


class TestTag(VectorEnvContract):
    def make(self, num_envs):
        return Tag(num_envs)


class TestCrowdedTag(VectorEnvContract):
    def make(self, num_envs):
        return Tag(num_envs, height=5, width=6, num_agents=7, max_turns=6, vision_radius=2)


def world(*positions, it=0, **options):
    """One copy with agents where they are put."""
    env = Tag(1, num_agents=len(positions), **options)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    env.tiles[0, 1:-1, 1:-1] = EMPTY
    for agent, (y, x) in enumerate(positions):
        env.positions[0, agent] = y, x
        env.tiles[0, y, x] = AGENT + agent
    env.it[0] = it
    return env


def turn(env, *actions):
    env.begin_turn()
    for agent, action in enumerate(actions):
        env.act(agent, np.array([action]))
    return env.end_turn().rewards[0].tolist()


@pytest.mark.parametrize(
    ("action", "to"), [(UP, (4, 5)), (DOWN, (6, 5)), (LEFT, (5, 4)), (RIGHT, (5, 6))]
)
def test_an_agent_moves(action, to):
    env = world((5, 5), (1, 1), it=1)
    assert turn(env, action, UP) == [10, 0]
    assert tuple(env.positions[0, 0]) == to
    assert env.tiles[0][to] == AGENT
    assert env.tiles[0, 5, 5] == EMPTY


def test_walls_and_agents_are_in_the_way():
    env = world((1, 1), (1, 2), (9, 9), it=2)
    turn(env, RIGHT, UP, UP)
    assert env.positions[0, :2].tolist() == [[1, 1], [1, 2]]


def test_it_tags_after_its_move_and_is_paid_for_being_rid_of_it():
    env = world((5, 5), (5, 8), (1, 1))
    # It comes within reach of the second, who is tagged before its own move and runs to (5, 9):
    # no agent is beside it there, so that it stays "it".
    assert turn(env, RIGHT, UP, UP) == [0, 10, 10]
    env = world((5, 5), (5, 7), (1, 1))
    assert turn(env, RIGHT, RIGHT, UP) == [10, 0, 10]
    assert env.it[0] == 1


def test_it_is_tagged_back_in_the_same_turn():
    env = world((5, 5), (5, 7), (1, 1))
    # The second is tagged, tries to go where the first stands, cannot, and tags it from there.
    assert turn(env, RIGHT, LEFT, UP) == [10, 10, 10]
    assert env.it[0] == 0


def test_who_has_moved_cannot_tag_back_in_this_turn():
    env = world((5, 7), (5, 5), (1, 1), it=1)
    assert turn(env, UP, RIGHT, UP) == [10, 0, 10]  # the first is out of reach by then
    env = world((5, 7), (5, 5), (1, 1), it=1)
    env.positions[0, 0] = 9, 9  # where a wall keeps it from moving away
    env.tiles[0, 5, 7], env.tiles[0, 9, 9] = EMPTY, AGENT
    env.positions[0, 1] = 9, 7
    env.tiles[0, 5, 5], env.tiles[0, 9, 7] = EMPTY, AGENT + 1
    assert turn(env, DOWN, RIGHT, UP) == [10, 10, 10]
    assert env.it[0] == 0


def test_it_looks_up_down_left_and_right_in_this_order():
    around = [(4, 5), (6, 5), (5, 4), (5, 6)]
    for first in range(4):
        env = world((5, 5), *around[first:], (9, 9))
        env.act(0, np.array([UP if first == 0 else LEFT if first < 3 else RIGHT]))
        assert env.it[0] == 1, first
    # Each of them was the first of those that were there, whatever its number.
    env = world((5, 5), *around[::-1])
    env.act(0, np.array([UP]))
    assert env.it[0] == 4


def test_what_an_agent_sees():
    env = world((1, 1), (1, 3), (2, 1), it=1)
    out = np.zeros((1, 244), np.uint8)
    env.observe(0, out)
    wall, agent, chaser = out[0, :-1].reshape(3, 9, 9)
    assert out[0, -1] == 0
    assert np.argwhere(agent).tolist() == [[4, 4], [5, 4]]
    assert np.argwhere(chaser).tolist() == [[4, 6]]
    assert wall[:4].all()
    assert wall[:, :4].all()
    assert not wall[4:, 4:].any()
    env.observe(1, out)
    assert out[0, -1] == 1
    assert out[0, :-1].reshape(3, 9, 9)[2, 4, 4] == 1


def test_starts_are_spread_and_an_episode_is_cut_off():
    env = Tag(4000)
    env.reset(np.arange(4000), np.ones(4000, bool))
    assert np.allclose(np.bincount(env.it, minlength=5) / 4000, 0.2, atol=0.03)
    places = env.positions.reshape(4000, 5, 2)
    assert places.min() == 1
    assert places.max() == 9
    assert np.allclose(places.mean((0, 1)), 5.0, atol=0.15)
    for turn_number in range(20):
        env.begin_turn()
        result = env.end_turn()
        assert result.truncated.all() == (turn_number == 19)
        assert not result.terminated.any()
    assert not env.active.any()


def test_a_chaser_catches_those_who_walk_at_random_more_often_than_those_who_flee():
    def tags(fleeing):
        env = Tag(200)
        chasing = [chase_and_flee] * 5

        def either(env, agent, seen, random):
            chosen = chase_and_flee(env, agent, seen, random)
            drawn = random.integers(0, 4, len(chosen))
            return chosen if fleeing else np.where(seen[:, -1] == 1, chosen, drawn)

        chasing = [either] * 5
        play_episodes(env, chasing, 1)
        return env.state()["tags"].mean()

    assert tags(fleeing=False) > 2 * tags(fleeing=True)
