"""Connect four: every line in every place wins, and nothing else does."""

import numpy as np
import pytest

from remuda.envs.contract import VectorEnvContract
from remuda.envs.games.connect_four import ConnectFour, tactician
from remuda.envs.scripted import at_random
from support import play_episodes

SEEDS, EVERY = np.zeros(1, np.int64), np.ones(1, bool)
LINES = [
    [(y + i * down, x + i * right) for i in range(4)]
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1))
    for y in range(6)
    for x in range(7)
    if 0 <= y + 3 * down < 6 and 0 <= x + 3 * right < 7
]


class TestConnectFour(VectorEnvContract):
    def make(self, num_envs):
        return ConnectFour(num_envs)


class TestConnectThree(VectorEnvContract):
    def make(self, num_envs):
        return ConnectFour(num_envs, height=3, width=4, connect=3)


def begun():
    env = ConnectFour()
    env.reset(SEEDS, EVERY)
    return env


def play(env, columns):
    """Drop discs in turn; what was paid and whether it is over after the last."""
    for i, column in enumerate(columns):
        assert env.active.all()
        if i % 2 == 0:
            env.begin_turn()
        env.act(i % 2, np.array([column]))
        if i % 2 == 1 or i == len(columns) - 1:
            result = env.end_turn()
    return result.rewards[0].tolist(), bool(result.terminated.all())


def wins(cells):
    """Whose lines there are, found the slow way."""
    return {
        int(cells[line[0]]) - 1
        for line in LINES
        if cells[line[0]] and len({cells[at] for at in line}) == 1
    }


def test_there_are_69_lines():
    assert len(LINES) == 69


@pytest.mark.parametrize("agent", [0, 1])
def test_every_line_wins_from_every_disc(agent):
    for line in LINES:
        for last in line:
            env = begun()
            # What lies below the last disc makes no line: the columns are set up by hand.
            for y, x in line:
                env.cells[0, y, x] = 1 + agent
            env.cells[(0, *last)] = 0
            env.heights[0, last[1]] = 5 - last[0]
            env.begin_turn()
            env.act(agent, np.array([last[1]]))
            result = env.end_turn()
            assert result.rewards[0].tolist() == ([1, -1] if agent == 0 else [-1, 1])
            assert result.terminated.all()
            assert not env.active.any()


def test_random_games_end_where_the_first_line_is():
    random = np.random.default_rng(0)
    ends = set()
    for _ in range(300):
        env = begun()
        paid = np.zeros(2)
        while env.active.any():
            env.begin_turn()
            for agent in range(2):
                if not env.active.any():
                    break
                assert wins(env.cells[0]) == set()
                masks = np.zeros((1, 7), bool)
                env.mask(agent, masks)
                assert (masks[0] == (env.cells[0, 0] == 0)).all()
                env.act(agent, random.choice(np.flatnonzero(masks[0]), 1))
            paid = env.end_turn().rewards[0].tolist()
        winners = wins(env.cells[0])
        ends.add(tuple(winners))
        assert paid == {(): [0, 0], (0,): [1, -1], (1,): [-1, 1]}[tuple(winners)]
        assert winners or (env.cells[0] != 0).all()
    assert ends >= {(0,), (1,)}


def test_a_full_grid_is_a_draw():
    # Columns that alternate in pairs leave no line of four.
    columns = [c for pair in ((0, 1), (2, 3), (4, 5)) for c in pair * 2 + pair[::-1] * 2 + pair * 2]
    assert play(begun(), [*columns, *[6] * 6]) == ([0.0, 0.0], True)


def test_discs_fall_and_full_columns_are_closed():
    env = begun()
    paid, over = play(env, [3] * 6)
    assert (paid, over) == ([0.0, 0.0], False)
    assert env.cells[0, :, 3].tolist() == [2, 1, 2, 1, 2, 1]
    masks = np.zeros((1, 7), bool)
    env.mask(0, masks)
    assert masks[0].tolist() == [True, True, True, False, True, True, True]
    seen = np.zeros((2, 1, 2, 6, 7), np.uint8)
    for agent in range(2):
        env.observe(agent, seen[agent])
    assert (seen[0, 0] == seen[1, 0, ::-1]).all()
    assert seen[0, 0, 0, :, 3].tolist() == [0, 1, 0, 1, 0, 1]


def test_the_tactician_wins_and_blocks():
    random = np.random.default_rng(0)
    env = begun()
    play(env, [0, 6, 0, 6, 0])
    assert tactician(env, 1, None, random) == [0]
    env = begun()
    play(env, [0, 6, 0, 6, 0, 6])
    assert tactician(env, 0, None, random) == [0]
    returns = play_episodes(ConnectFour(500), [tactician, at_random], 1, seed=0)
    assert (returns[:, 0] > 0).mean() > 0.9


def test_a_picture():
    env = begun()
    play(env, [3, 4])
    picture = env.render()
    assert picture.shape == (96, 112, 3)
    assert len({tuple(picture[5 * 16 + 8, 16 * x + 8]) for x in (2, 3, 4)}) == 3
