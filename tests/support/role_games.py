"""Games with roles whose equilibria are known by hand."""

import numpy as np

from remuda.analysis.payoffs.empirical_game import Role, exact_game

ROCKS = ("rock", "paper", "scissors")
BEATS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], float)
PLAYERS = Role("players", ("contribute", "keep"), 3)


def public_goods():
    """Three players: who contributes pays 1, and all share 1.5 times what was paid."""
    return exact_game([PLAYERS], lambda profile: 0.5 * profile[0] - np.array([1.0, 0.0]))


def two_teams():
    """Rock-paper-scissors of two against two: each seat meets both of the other team."""
    roles = [Role("red", ROCKS, 2), Role("blue", ROCKS, 2)]

    def payoff(profile):
        red, blue = profile[:3], profile[3:]
        return np.concatenate([BEATS @ blue / 2, BEATS @ red / 2])

    return exact_game(roles, payoff)


def shapley():
    """Three unlike players: a wants to be one ahead of b, b one ahead of c, and c to equal a.

    They cannot all win, so no pure profile is an equilibrium. If all play uniformly, each wins a
    third of the matches whatever it does.
    """
    roles = [Role(name, ROCKS) for name in "abc"]

    def payoff(profile):
        a, b, c = (int(part.argmax()) for part in np.split(profile, 3))
        return np.repeat([a == (b + 1) % 3, b == (c + 1) % 3, c == a], 3)

    return exact_game(roles, payoff)
