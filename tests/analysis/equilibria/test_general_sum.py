"""Games of two roles: all equilibria of the textbook's, verified ones of large and odd games."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.equilibria import general_sum, lemke_howson
from remuda.analysis.equilibria.extreme_equilibria import vertices
from remuda.analysis.equilibria.general_sum import all_equilibria, solve
from remuda.analysis.equilibria.lemke_howson import complementary
from remuda.analysis.equilibria.regret import regret
from remuda.errors import UsageError

GAMES = {
    "prisoner's dilemma": ([[3, 0], [5, 1]], [[3, 5], [0, 1]], [([0, 1], [0, 1])]),
    "stag hunt": (
        [[4, 0], [3, 2]],
        [[4, 3], [0, 2]],
        [([1, 0], [1, 0]), ([2 / 3, 1 / 3], [2 / 3, 1 / 3]), ([0, 1], [0, 1])],
    ),
    "Bach or Stravinsky": (
        [[3, 0], [0, 2]],
        [[2, 0], [0, 3]],
        [([1, 0], [1, 0]), ([3 / 5, 2 / 5], [2 / 5, 3 / 5]), ([0, 1], [0, 1])],
    ),
    "chicken": (
        [[6, 2], [7, 0]],
        [[6, 7], [2, 0]],
        [([1, 0], [0, 1]), ([2 / 3, 1 / 3], [2 / 3, 1 / 3]), ([0, 1], [1, 0])],
    ),
    "hawk-dove": (
        # The prize is 2, the fight costs 4: hawks are V / C = 1/2 of all.
        [[-1, 2], [0, 1]],
        [[-1, 0], [2, 1]],
        [([1, 0], [0, 1]), ([1 / 2, 1 / 2], [1 / 2, 1 / 2]), ([0, 1], [1, 0])],
    ),
    "matching pennies": ([[1, -1], [-1, 1]], [[-1, 1], [1, -1]], [([0.5, 0.5], [0.5, 0.5])]),
    "of unequal sizes": (
        # von Stengel 2002, game 2.2, with three equilibria.
        [[3, 3], [2, 5], [0, 6]],
        [[3, 2], [2, 6], [3, 1]],
        [
            ([1, 0, 0], [1, 0]),
            ([4 / 5, 1 / 5, 0], [2 / 3, 1 / 3]),
            ([0, 1 / 3, 2 / 3], [1 / 3, 2 / 3]),
        ],
    ),
}


def degenerate_games():
    rng = np.random.default_rng(3)
    for size in (2, 3, 5, 8):
        for shape in ((size, size), (size, 2 * size), (1, size), (size, 1)):
            yield "integers", *rng.integers(0, 3, (2, *shape))
            yield "two values", *rng.integers(0, 2, (2, *shape))
            yield "constant", np.full(shape, 3.0), np.full(shape, -1.0)
            yield "one indifferent", np.zeros(shape), rng.normal(size=shape)
            rows, columns = rng.integers(0, 2, shape[0]), rng.integers(0, 2, shape[1])
            twice = rng.normal(size=(2, 2, 2))[np.ix_([0, 1], rows, columns)]
            yield "rows and columns many times", *twice


def same(found, expected):
    """Whether two lists of equilibria are the same, in any order."""
    flat = sorted(np.round(np.hstack(pair), 8).tolist() for pair in found)
    wanted = sorted(np.round(np.hstack(pair), 8).tolist() for pair in expected)
    return np.shape(flat) == np.shape(wanted) and np.allclose(flat, wanted, atol=1e-7)


@pytest.mark.parametrize("name", GAMES)
def test_all_equilibria_of_the_textbook(name):
    a, b, expected = GAMES[name]
    found = all_equilibria(a, b)
    assert same(zip(found.rows, found.columns, strict=True), expected)
    assert not found.infinite
    assert found.regrets.max() <= 1e-12
    assert len(set(found.components.tolist())) == len(expected)
    assert f"{len(expected)} equilibria; there are no others" in found.note


def test_values_of_all_equilibria():
    found = all_equilibria(*GAMES["chicken"][:2])
    mixed = [values for values, row in zip(found.values, found.rows, strict=True) if 0 < row[0] < 1]
    assert mixed[0] == pytest.approx([14 / 3, 14 / 3])


def test_a_degenerate_game_has_infinitely_many():
    # von Stengel 2002, game 2.5: the first row is a best reply to a whole edge of the column's.
    found = all_equilibria([[3, 3], [2, 5], [0, 6]], [[3, 3], [2, 6], [3, 1]])
    expected = [
        ([1, 0, 0], [1, 0]),
        ([1, 0, 0], [2 / 3, 1 / 3]),
        ([0, 1 / 3, 2 / 3], [1 / 3, 2 / 3]),
    ]
    assert same(zip(found.rows, found.columns, strict=True), expected)
    assert found.infinite
    assert "infinitely many" in found.note
    assert "2 components" in found.note
    row, column = [1.0, 0.0, 0.0], [5 / 6, 1 / 6]  # between the first two
    game = np.array([[[3, 3], [2, 5], [0, 6]], [[3, 3], [2, 6], [3, 1]]], np.float64)
    assert regret(game, [row, column]).max() <= 1e-12


def test_a_row_twice_makes_infinitely_many():
    found = all_equilibria([[6, 2], [7, 0], [7, 0]], [[6, 7], [2, 0], [2, 0]])
    assert found.infinite
    assert len(found) == 5
    assert len(set(found.components.tolist())) == 3


def test_a_game_without_differences_has_all_mixtures():
    found = all_equilibria(np.zeros((2, 3)), np.ones((2, 3)))
    assert len(found) == 6  # all pairs of pure strategies
    assert set(found.components.tolist()) == {0}


def test_unequal_supports():
    # Only the column's first is a best reply, the row is indifferent where it plays that.
    found = all_equilibria([[1, 0], [1, 0]], [[1, 0], [1, 0]])
    assert same(zip(found.rows, found.columns, strict=True), [([1, 0], [1, 0]), ([0, 1], [1, 0])])
    assert found.infinite


def test_every_equilibrium_is_listed():
    """Small games of integers: every mixture on a grid that is an equilibrium is one listed, or
    between some of one component."""
    rng = np.random.default_rng(9)
    grid = np.arange(13) / 12.0
    for _ in range(30):
        a, b = rng.integers(0, 3, (2, 2, 2)).astype(np.float64)
        found = all_equilibria(a, b)
        ends = list(zip(found.rows, found.columns, strict=True))
        for p in grid:
            for q in grid:
                row, column = np.array([p, 1 - p]), np.array([q, 1 - q])
                if regret(np.stack([a, b]), [row, column]).max() > 1e-9:
                    continue
                near = [
                    (x, y)
                    for x, y in ends
                    if ((x > 1e-9) <= (row > 1e-9)).all() and ((y > 1e-9) <= (column > 1e-9)).all()
                ]
                rows = [x[0] for x, _ in near]
                columns = [y[0] for _, y in near]
                assert near
                assert min(rows) - 1e-9 <= p <= max(rows) + 1e-9
                assert min(columns) - 1e-9 <= q <= max(columns) + 1e-9


def test_degenerate_games_have_an_equilibrium_and_all_are_verified():
    for kind, a, b in degenerate_games():
        game = np.stack([a, b]).astype(np.float64)
        found = solve(a, b, 5.0)
        assert found is not None, (kind, a, b)
        assert np.array_equal(found.regret, regret(game, found.mixtures))
        assert found.regret.max() <= 1e-9
        if general_sum.can_enumerate(*a.shape, 3_000):
            listed = all_equilibria(a, b)
            assert len(listed) > 0
            assert listed.regrets.max() <= 1e-9


def test_the_found_one_is_among_all():
    rng = np.random.default_rng(12)
    for _ in range(20):
        a, b = rng.normal(size=(2, 4, 5))
        found, listed = solve(a, b), all_equilibria(a, b)
        assert len(listed) % 2 == 1  # Wilson 1971: an odd number, unless degenerate
        apart = np.abs(listed.rows - found.mixtures[0]).max(1)
        apart += np.abs(listed.columns - found.mixtures[1]).max(1)
        assert apart.min() <= 1e-9


@pytest.mark.parametrize("kind", ["normal", "integers", "duplicates"])
def test_random_games_of_30(kind):
    rng = np.random.default_rng(30)
    for _ in range(15):
        if kind == "integers":
            a, b = rng.integers(0, 3, (2, 30, 30))
        else:
            a, b = rng.normal(size=(2, 30, 30))
        if kind == "duplicates":
            places = np.arange(30) // 2
            a, b = a[np.ix_(places, places)], b[np.ix_(places, places)]
        found = solve(a, b)
        assert found is not None
        assert regret(np.stack([a, b]).astype(np.float64), found.mixtures).max() <= 1e-9


def test_symmetric_games_have_symmetric_answers():
    rng = np.random.default_rng(6)
    for size in (2, 7, 20):
        a = rng.normal(size=(size, size))
        found = solve(a, a.T, symmetric=True)
        assert np.array_equal(*found.mixtures)
        assert found.regret.max() <= 1e-9
    a = np.array([[6.0, 2.0], [7.0, 0.0]])
    assert solve(a, a.T, symmetric=True).mixtures[0] == pytest.approx([2 / 3, 1 / 3])


def test_paths_from_every_label_end_at_an_equilibrium():
    a, b = (np.array(part, np.float64) for part in GAMES["of unequal sizes"][:2])
    matrix = np.zeros((5, 5))
    matrix[:3, 3:] = a / 6.0 + 1.0
    matrix[3:, :3] = b.T / 6.0 + 1.0
    ends = set()
    for label in range(5):
        found = complementary(matrix, label, 100, np.inf)
        row, column = found[:3] / found[:3].sum(), found[3:] / found[3:].sum()
        assert regret(np.stack([a, b]), [row, column]).max() <= 1e-12
        ends.add(tuple(np.round(row, 6).tolist()))
    assert len(ends) > 1


@pytest.mark.parametrize("seed", [67, 95, 165, 210])
def test_no_path_runs_in_a_circle(seed):
    """Degenerate games in which some path does, where ties are broken by the first row."""
    rng = np.random.default_rng(seed)
    size = [3, 4, 5, 6][seed % 4]
    a, b = rng.integers(0, 2 if seed % 3 else 3, (2, size, size)).astype(np.float64)
    matrix = np.zeros((2 * size, 2 * size))
    matrix[:size, size:] = a / np.ptp(a) + 1.0
    matrix[size:, :size] = b.T / np.ptp(b) + 1.0
    for label in range(2 * size):
        found = complementary(matrix, label, 1_000, np.inf)
        assert found is not None
        row, column = found[:size] / found[:size].sum(), found[size:] / found[size:].sum()
        assert regret(np.stack([a, b]), [row, column]).max() <= 1e-12


def test_a_path_is_given_up():
    rng = np.random.default_rng(0)
    a = rng.uniform(1.0, 2.0, (30, 30))
    matrix = np.block([[np.zeros((30, 30)), a], [a[::-1].T, np.zeros((30, 30))]])
    assert complementary(matrix, 0, 1, np.inf) is None


def test_what_pivots_fail_at_is_mended(monkeypatch):
    """Where no path of the game as it is ends, games nearby tell the supports."""
    a = np.array([[0.0, -0.25, 0.5], [0.25, 0.0, -0.05], [-0.5, 0.05, 0.0]])  # only mixed ones
    b = -2.0 * a
    true = lemke_howson.complementary
    exact = []

    def fails(matrix, label, most, deadline):
        if len(matrix) == 6 and (not exact or (matrix == exact[0]).all()):
            exact.append(matrix)
            return None
        return true(matrix, label, most, deadline)

    monkeypatch.setattr(lemke_howson, "complementary", fails)
    found = solve(a, b)
    assert "linear program" in found.note
    assert regret(np.stack([a, b]), found.mixtures).max() <= 1e-9


def test_no_answer_is_said_plainly(monkeypatch):
    monkeypatch.setattr(lemke_howson, "complementary", lambda *_: None)
    assert solve(np.eye(3), np.eye(3), 5.0) is None

    def late(matrix, label, most, deadline):
        time.sleep(max(0.0, deadline - time.monotonic() + 0.01))

    monkeypatch.setattr(lemke_howson, "complementary", late)
    assert solve(np.eye(3), np.eye(3), 0.02) is None


def test_a_wrong_answer_is_no_answer(monkeypatch):
    monkeypatch.setattr(lemke_howson, "complementary", lambda m, *_: np.ones(len(m)))
    monkeypatch.setattr(general_sum, "linprog", lambda *_, **__: SimpleNamespace(status=4))
    a, b = np.random.default_rng(1).normal(size=(2, 3, 3))
    assert solve(a, b) is None


def test_vertices_of_a_square():
    points, labels = vertices(np.array([[1.0, 1e-300], [1e-300, 1.0]]))
    assert sorted(points.tolist()) == [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]
    # Bits: p_0 = 0, p_1 = 0, first limit, second limit.
    assert sorted(labels.tolist()) == [0b0110, 0b1001, 0b1100]


@pytest.mark.parametrize(
    "call",
    [
        lambda: solve([[1.0]], [[1.0, 2.0]]),
        lambda: solve([[np.nan]], [[1.0]]),
        lambda: solve([[1.0]], [[1.0]], 0.0),
        lambda: all_equilibria(np.zeros((20, 20)), np.zeros((20, 20))),
    ],
)
def test_refused(call):
    with refuses(UsageError):
        call()
