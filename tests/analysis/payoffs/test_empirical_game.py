"""Games with roles, against numbers worked out by hand, and games from matches."""

import itertools

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.equilibria import role_symmetric
from remuda.analysis.payoffs.empirical_game import EmpiricalGame, Role, every_profile, exact_game
from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.payoffs import KNOWN, exact
from remuda.analysis.payoffs.profile_sums import ProfileSums, game_of_matches
from remuda.analysis.payoffs.sums import payoffs_of_matches
from remuda.errors import UsageError
from role_games import public_goods, shapley, two_teams


def test_profiles_are_multisets_within_roles():
    roles = [Role("red", ("a", "b", "c"), 2), Role("blue", ("x", "y"))]
    found = [tuple(profile.tolist()) for profile in every_profile(roles)]
    assert len(found) == len(set(found)) == 6 * 2 == 12
    assert found[0] == (2, 0, 0, 1, 0)
    game = two_teams()
    assert game.num_profiles == 36
    assert not list(game.missing())
    assert game.describe(game.profiles[1]) == "red: 2 x rock against blue: rock, paper"


@pytest.mark.parametrize("x", [0.0, 0.3, 1.0])
def test_gains_of_a_public_goods_game(x):
    """Of the two others each contributes with probability x: 2 x on average."""
    gains = public_goods().deviation_payoffs([[x, 1.0 - x]])
    assert gains == pytest.approx([0.5 * (1 + 2 * x) - 1.0, 0.5 * 2 * x])
    assert public_goods().regret([[x, 1.0 - x]]) == pytest.approx([0.5 * x])


def test_gains_of_two_teams():
    gains = two_teams().deviation_payoffs([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    assert gains[:3] == pytest.approx([0.0, -0.5, 0.5])  # against half paper and half scissors
    assert gains[3:] == pytest.approx([0.0, 1.0, -1.0])  # against rock
    assert two_teams().values([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]) == pytest.approx([0.0, 0.0])


def test_gains_equal_those_of_the_tensor():
    rng = np.random.default_rng(4)
    roles = [Role("a", ("1", "2", "3"), 2), Role("b", ("x", "y"), 2)]
    game = exact_game(roles, lambda profile: rng.normal(size=5))
    tensor = game.tensor()
    assert tensor.shape == (4, 3, 3, 2, 2)
    one, other = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(2))
    seats = [one, one, other, other]
    for seat, columns in ((0, slice(0, 3)), (3, slice(3, 5))):
        found = np.moveaxis(tensor[seat], seat, 0)
        for mixture in [m for s, m in reversed(list(enumerate(seats))) if s != seat]:
            found = found @ mixture
        assert game.deviation_payoffs([one, other])[columns] == pytest.approx(found)


@pytest.mark.parametrize(
    ("game", "mixtures", "values"),
    [
        (public_goods, [[0.0, 1.0]], [0.0]),
        (two_teams, [[1 / 3] * 3] * 2, [0.0, 0.0]),
    ],
)
def test_equilibria_by_hand(game, mixtures, values):
    found = role_symmetric.solve(game(), np.random.default_rng(0))
    assert found.regret.max() <= 2e-9
    assert found.values == pytest.approx(values, abs=1e-6)
    assert not found.note
    for mixture, expected in zip(found.mixtures, mixtures, strict=True):
        assert mixture == pytest.approx(expected, abs=1e-5)


def test_a_game_without_a_pure_equilibrium():
    game = shapley()
    assert game.regret([[1 / 3] * 3] * 3) == pytest.approx([0.0] * 3)
    for a, b, c in itertools.product(np.eye(3), repeat=3):
        assert game.regret([a, b, c]).max() == 1.0
    found = role_symmetric.solve(game, np.random.default_rng(0))
    assert found.regret.max() <= 2e-9
    assert all(mixture.max() < 1.0 for mixture in found.mixtures)


def test_a_mixed_equilibrium_of_four_interchangeable_seats():
    """A snowdrift game: c of 4 share a cost of 1, and all earn 2 if anybody does.

    One is as good as the other where 2 (1 - q ** 3) = 2 - E[1 / (k + 1)] with k of 3 others, and
    E[1 / (k + 1)] = (1 - q ** 4) / (4 (1 - q)), q being the share of those who do nothing.
    """

    def payoff(profile):
        working = profile[0]
        earned = 2.0 * (working > 0)
        return [earned - 1.0 / max(working, 1), earned]

    game = exact_game([Role("players", ("work", "rest"), 4)], payoff)
    found = role_symmetric.solve(game, np.random.default_rng(0))
    q = found.mixtures[0][1]
    assert 0.2 < q < 0.9
    assert 2 * (1 - q**3) == pytest.approx(2 - (1 - q**4) / (4 * (1 - q)), abs=1e-7)


@pytest.mark.parametrize("seed", range(10))
def test_random_games_of_two_roles_are_solved(seed):
    rng = np.random.default_rng(seed)
    roles = [Role("a", ("1", "2", "3"), 2), Role("b", ("x", "y", "z"), 1)]
    game = exact_game(roles, lambda profile: rng.normal(size=6))
    found = role_symmetric.solve(game, rng)
    assert found.regret.max() <= 1e-8


def matches(rng, count):
    """Two red seats and a blue one: chosen strategies, and noisy returns."""
    chosen = np.stack([rng.integers(0, n, count) for n in (3, 3, 2)], 1)
    truth = 10.0 * chosen + chosen.sum(1, keepdims=True)
    return chosen, truth + rng.normal(0.0, 1.0, (count, 3))


ROLES = [Role("red", ("a", "b", "c"), 2), Role("blue", ("x", "y"))]


def test_a_game_of_matches_has_their_means_and_covariances():
    rng = np.random.default_rng(1)
    chosen, returns = matches(rng, 5000)
    returns[7, 1] = np.nan
    game = game_of_matches(ROLES, [0, 0, 1], chosen, returns)
    assert game.counts.sum() == 4999
    assert not list(game.missing())
    for profile, means, covariances, count in zip(
        game.profiles, game.means, game.covariances, game.counts, strict=True
    ):
        red = np.flatnonzero(profile[:3]).repeat(profile[:3][profile[:3] > 0]).tolist()
        blue = int(profile[3:].argmax())
        fits = (np.sort(chosen[:, :2], 1) == red).all(1) & (chosen[:, 2] == blue)
        fits &= ~np.isnan(returns).any(1)
        assert count == fits.sum()
        of = {3 + blue: returns[fits, 2]}
        for name in set(red):
            seats = np.where(chosen[fits, :2] == name, returns[fits, :2], np.nan)
            of[name] = np.nanmean(seats, 1)
        for s, t in itertools.product(range(5), repeat=2):
            if s in of and t in of:
                assert covariances[s, t] == pytest.approx(np.cov(of[s], of[t])[0, 1])
            else:
                assert np.isnan(covariances[s, t])
        assert {s for s in range(5) if not np.isnan(means[s])} == set(of)
        assert all(means[s] == pytest.approx(numbers.mean()) for s, numbers in of.items())


def test_batches_add_up_to_the_game_of_all_matches():
    chosen, returns = matches(np.random.default_rng(2), 500)
    whole, sums = game_of_matches(ROLES, [0, 0, 1], chosen, returns), ProfileSums(ROLES, [0, 0, 1])
    for part in np.split(np.arange(500), [3, 60, 61]):
        sums.add(chosen[part], returns[part])
    sums.add(np.array([[0, -1, 0]]), np.full((1, 3), 1e6))  # a seat of another policy
    found = sums.game()
    assert (found.profiles == whole.profiles).all()
    assert (found.counts == whole.counts).all()
    for own, other in ((found.means, whole.means), (found.covariances, whole.covariances)):
        assert own == pytest.approx(other, nan_ok=True)


def test_what_was_never_played_is_named_and_not_guessed():
    chosen, returns = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1]]), np.ones((3, 3))
    game = game_of_matches(ROLES, [0, 0, 1], chosen, returns)
    assert game.counts.tolist() == [1, 2]  # two of a, then a with b
    assert np.isnan(game.deviation_payoffs([[0.5, 0.5, 0.0], [1.0, 0.0]])).any()
    with refuses(UsageError):
        role_symmetric.solve(game, np.random.default_rng(0))
    small = game.part(lambda role, name: name in "abx")
    assert [role.strategies for role in small.roles] == [("a", "b"), ("x",)]
    assert small.counts.tolist() == [2]


@pytest.mark.parametrize(
    "roles",
    [[], [Role("a", ())], [Role("a", ("x", "x"))], [Role("a", ("x",), 0)]],
    ids=["none", "empty", "twice", "no seat"],
)
def test_roles_that_make_no_game_are_refused(roles):
    size = sum(len(role.strategies) for role in roles)
    with refuses(UsageError):
        EmpiricalGame(
            tuple(roles),
            np.zeros((0, size), int),
            np.zeros((0, size)),
            np.zeros((0, size, size)),
            np.zeros(0, int),
        )


def test_games_too_large_to_list_are_refused():
    many = Role("players", tuple(map(str, range(60))), 8)
    game = game_of_matches([many], [0] * 8, np.zeros((1, 8), int), np.zeros((1, 8)))
    with refuses(UsageError):
        next(game.missing())
    with refuses(UsageError):
        game.tensor()
    duel = [Role(name, tuple(map(str, range(60)))) for name in ("a", "b")]
    with refuses(UsageError):
        exact_game(duel, lambda _: np.zeros(120)).payoffs  # noqa: B018


ROCKS = {"players": ["rock", "paper", "scissors"]}
BEATS = [[0, -1, 1], [1, 0, -1], [-1, 1, 0]]
LARGE = {"a": [*map(str, range(400))], "b": [*map(str, range(400))]}
DUEL = {"sender": ["x", "y"], "receiver": ["x", "y", "z"]}


def test_a_game_is_made_of_one_array_for_interchangeable_seats():
    game = EmpiricalGame.from_arrays(BEATS, ROCKS)
    assert game.roles == (Role("players", ("rock", "paper", "scissors"), 2),)
    assert game.tensor()[0].tolist() == BEATS
    assert game.payoffs.matrix.tolist() == BEATS
    assert game.payoffs.is_zero_sum
    assert not game.payoffs.errors.any()
    goods = np.zeros((2, 2, 2))  # three seats: contributing pays 1, and all share 1.5 times that
    for own, *others in np.ndindex(2, 2, 2):
        goods[(own, *others)] = 0.5 * (3 - own - sum(others)) - (own == 0)
    made = EmpiricalGame.from_arrays(goods, {"players": ["contribute", "keep"]})
    wanted = public_goods()
    np.testing.assert_array_equal(made.profiles, wanted.profiles)
    np.testing.assert_array_equal(made.means, wanted.means)


def test_self_play_of_a_zero_sum_game_has_no_error():
    """Red before: an error on the diagonal made the game general-sum."""
    errors, counts = np.full((3, 3), 0.1), np.full((3, 3), 50)
    payoffs = EmpiricalGame.from_arrays(BEATS, ROCKS, errors=errors, counts=counts).payoffs
    assert payoffs.is_zero_sum
    np.testing.assert_array_equal(np.diagonal(payoffs.covariances[0, 0]), 0.0)


def test_a_game_is_made_of_an_array_for_each_role():
    means = np.arange(12.0).reshape(2, 2, 3)
    means[:, 0, 1] = np.nan
    errors, counts = np.full((2, 2, 3), 0.5), np.full((2, 3), 16)
    game = EmpiricalGame.from_arrays(means, DUEL, errors=errors, counts=counts)
    assert [role.seats for role in game.roles] == [1, 1]
    assert len(game.profiles) == 5
    np.testing.assert_array_equal(game.tensor(), means)
    payoffs = game.payoffs
    assert payoffs.names == ("sender: x", "sender: y", *(f"receiver: {n}" for n in "xyz"))
    assert payoffs.matrix[1, 4] == 5.0
    assert payoffs.matrix[4, 1] == 11.0
    assert payoffs.errors[0, 1, 4] == pytest.approx(0.5)
    assert payoffs.counts[1, 2:].tolist() == [16] * 3
    assert payoffs.counts[0, 3] == 0
    assert payoffs.counts[:2, :2].sum() == 0  # seats of a role do not meet


@pytest.mark.parametrize(
    ("means", "roles", "options"),
    [
        (BEATS, {}, {}),
        (BEATS, {"players": []}, {}),
        (BEATS, {"players": ["rock", "paper"]}, {}),
        (BEATS, DUEL, {}),
        ([[0, 1], [2]], ROCKS, {}),
        (BEATS, ["rock", "paper", "scissors"], {}),
        (np.full((3, 3), np.nan), ROCKS, {}),
        (np.full((3, 3), np.inf), ROCKS, {}),
        (BEATS, ROCKS, {"errors": np.ones((3, 3))}),
        (BEATS, ROCKS, {"errors": np.ones((3, 3)), "counts": np.ones((3, 3), int)}),
        (np.zeros((2, 400, 400)), LARGE, {}),
        (BEATS, {"players": 3}, {}),
        (BEATS, {"players": [1, 2, 3]}, {}),
        (np.full((3, 3), 1j), ROCKS, {}),
        (BEATS, ROCKS, {"errors": np.ones((3, 3)), "counts": np.full((3, 3), np.nan)}),
        (BEATS, ROCKS, {"errors": np.ones((3, 3)), "counts": np.full((3, 3), 2.5)}),
        (BEATS, ROCKS, {"errors": np.full((3, 3), np.inf), "counts": np.full((3, 3), 9)}),
        (BEATS, ROCKS, {"errors": np.ones((3, 3)), "counts": np.arange(9).reshape(3, 3)}),
        (np.arange(27.0).reshape(3, 3, 3), ROCKS, {}),
    ],
    ids=[
        "none",
        "empty",
        "names",
        "roles",
        "ragged",
        "list",
        "nan",
        "infinite",
        "no counts",
        "once",
        "large",
        "no names",
        "numbers as names",
        "complex",
        "nan counts",
        "half a match",
        "infinite error",
        "unequal counts",
        "order of seats",
    ],
)
def test_arrays_that_make_no_game_are_refused(means, roles, options):
    with refuses(UsageError):
        EmpiricalGame.from_arrays(means, roles, **options)


def dealt(rng, seats, count=500, strategies=3):
    chosen = rng.integers(0, strategies, (count, seats))
    return chosen, rng.normal(0.0, 1.0, (count, seats)) + chosen * rng.normal(size=(count, 1))


def test_payoffs_by_meeting_are_those_of_the_matches():
    """Two seats alike, or of two roles: payoffs from profiles and from pairs are equal."""
    chosen, returns = dealt(np.random.default_rng(6), 2)
    alike = game_of_matches([Role("players", ("a", "b", "c"), 2)], [0, 0], chosen, returns)
    pairs = payoffs_of_matches("abc", chosen, returns, np.arange(2))
    off = ~np.eye(3, dtype=bool)
    for name in ("counts", "units", "met", "own_freedom"):
        assert getattr(alike.payoffs, name) == pytest.approx(getattr(pairs, name))
    assert alike.payoffs.means == pytest.approx(pairs.means)
    assert alike.payoffs.covariances[..., off] == pytest.approx(pairs.covariances[..., off])
    assert alike.payoffs.matches == 500
    roles = [Role("red", ("a", "b", "c")), Role("blue", ("x", "y", "z"))]
    unlike = game_of_matches(roles, [0, 1], chosen, returns).payoffs
    pairs = payoffs_of_matches("abcxyz", chosen + np.array([0, 3]), returns, np.arange(2))
    assert unlike.means == pytest.approx(pairs.means, nan_ok=True)
    assert unlike.covariances == pytest.approx(pairs.covariances, nan_ok=True)


def test_several_opponents_share_a_match():
    """Three seats of one role, and two seats against one: as the matches add up."""
    rng = np.random.default_rng(7)
    chosen, returns = dealt(rng, 3)
    alike = game_of_matches([Role("players", ("a", "b", "c"), 3)], [0] * 3, chosen, returns).payoffs
    pairs = payoffs_of_matches("abc", chosen, returns, np.arange(3))
    assert alike.counts == pytest.approx(pairs.counts)
    assert alike.units == pytest.approx(pairs.units)
    roles = [Role("red", ("a", "b", "c"), 2), Role("blue", ("x", "y", "z"))]
    teams = game_of_matches(roles, [0, 0, 1], chosen, returns).payoffs
    pairs = payoffs_of_matches("abcxyz", chosen + np.array([0, 0, 3]), returns, np.array([0, 0, 1]))
    for name in ("counts", "units", "means"):
        assert getattr(teams, name) == pytest.approx(getattr(pairs, name), nan_ok=True)


def test_a_table_of_two_roles_is_a_game():
    table = exact([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], names=(("a", "b", "c"), ("x", "y")))
    game = game_of_meetings(table)
    assert [role.strategies for role in game.roles] == [("a", "b", "c"), ("x", "y")]
    assert game.payoffs.between([0, 1, 2], [3, 4]).means.tolist() == table.means.tolist()
    assert (game.counts == KNOWN).all()
    with refuses(UsageError):
        game_of_meetings(exact([[1.0, 2.0]], names=(("a",), ("a", "x"))))
