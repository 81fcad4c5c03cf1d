"""What a role could gain is worked out from the payoffs alone, of any number of roles."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.equilibria.regret import correlated_regret, regret, values
from remuda.errors import UsageError

CHICKEN = np.array([[[6.0, 2.0], [7.0, 0.0]], [[6.0, 7.0], [2.0, 0.0]]])


def test_regret_worked_by_hand():
    # Against an even column the row earns 4 by its first strategy, 3.5 by its second, 3.625 as it
    # mixes; against this row the column earns 6/4 + 3 * 2/4 = 3 and 7/4.
    found = regret(CHICKEN, [[0.25, 0.75], [0.5, 0.5]])
    assert found == pytest.approx([4.0 - 3.625, 3.0 - (3.0 + 1.75) / 2])


def test_regret_of_three_roles_by_brute_force():
    rng = np.random.default_rng(1)
    game = rng.normal(size=(3, 2, 3, 4))
    mixtures = [rng.dirichlet(np.ones(n)) for n in (2, 3, 4)]
    earned, best = np.zeros(3), [np.zeros(n) for n in (2, 3, 4)]
    for cell in np.ndindex(2, 3, 4):
        chances = [mixtures[role][cell[role]] for role in range(3)]
        for role in range(3):
            earned[role] += np.prod(chances) * game[(role, *cell)]
            others = np.prod([chances[other] for other in range(3) if other != role])
            best[role][cell[role]] += others * game[(role, *cell)]
    assert values(game, mixtures) == pytest.approx(earned)
    assert regret(game, mixtures) == pytest.approx([best[r].max() - earned[r] for r in range(3)])


def test_regret_of_a_joint_distribution_worked_by_hand():
    joint = np.array([[0.6, 0.2], [0.2, 0.0]])
    # Told its first strategy, a role earns .6 * 6 + .2 * 2 = 4, by the second .6 * 7 = 4.2; told
    # its second, it earns 1.4 and by the first 1.2.
    assert correlated_regret(CHICKEN, joint, False) == pytest.approx([0.2, 0.2])
    assert correlated_regret(CHICKEN, joint, True) == pytest.approx([0.2, 0.2])
    only = np.array([[1.0, 0.0], [0.0, 0.0]])
    assert correlated_regret(CHICKEN, only, True) == pytest.approx([1.0, 1.0])


def test_departing_from_each_advice_gains_more_than_departing_from_all():
    # Matching pennies where both are told to play alike: who is told departs each time.
    pennies = np.array([[1.0, -1.0], [-1.0, 1.0]])
    game, joint = np.stack([pennies, -pennies]), np.eye(2) / 2.0
    assert correlated_regret(game, joint, False) == pytest.approx([0.0, 2.0])
    assert correlated_regret(game, joint, True) == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize(
    ("payoffs", "mixtures"),
    [
        (np.zeros((2, 3)), [[1.0]]),
        (np.zeros((2, 0, 3)), [[], [1.0, 0.0, 0.0]]),
        (np.full((2, 2, 2), np.nan), [[1.0, 0.0]] * 2),
        (CHICKEN, [[1.0, 0.0]]),
        (CHICKEN, [[1.0, 0.0], [0.7, 0.7]]),
        (CHICKEN, [[1.1, -0.1], [0.5, 0.5]]),
        (CHICKEN, [[np.nan, 1.0], [0.5, 0.5]]),
    ],
)
def test_refused(payoffs, mixtures):
    with refuses(UsageError):
        regret(payoffs, mixtures)


def test_a_joint_distribution_that_is_none_is_refused():
    with refuses(UsageError):
        correlated_regret(CHICKEN, np.ones((2, 2)), False)
    with refuses(UsageError):
        correlated_regret(CHICKEN, np.ones((3, 2)) / 6.0, False)
