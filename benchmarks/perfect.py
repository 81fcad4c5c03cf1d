"""A player of tic-tac-toe that makes no mistake, and takes any of its best moves."""

from __future__ import annotations

from functools import cache

import numpy as np

from remuda.envs.vector_env import VectorEnv
from remuda.types import Array, Integers

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
EMPTY, NOUGHT, CROSS = range(3)
"""The meaning of OpenSpiel's planes; crosses begin."""
Board = tuple[int, ...]


def perfect(
    env: VectorEnv,  # noqa: ARG001
    agent: int,
    observations: Array,
    random: np.random.Generator,
) -> Integers:
    """A best move in each copy, all of them equally likely."""
    boards = observations.reshape(len(observations), 3, 9).argmax(1)
    mark = NOUGHT if agent else CROSS
    return np.array([random.choice(best_moves(tuple(b), mark)[1]) for b in boards.tolist()])


@cache
def best_moves(board: Board, mark: int) -> tuple[int, tuple[int, ...]]:
    """Return the best result of the player to move, 1, 0 or -1, and its moves; 0 if none."""
    other = CROSS if mark == NOUGHT else NOUGHT
    if any(all(board[at] == other for at in line) for line in LINES):
        return -1, (0,)
    free = [at for at, cell in enumerate(board) if cell == EMPTY]
    if not free:
        return 0, (0,)
    values = {at: -best_moves((*board[:at], mark, *board[at + 1 :]), other)[0] for at in free}
    best = max(values.values())
    return best, tuple(at for at, value in values.items() if value == best)
