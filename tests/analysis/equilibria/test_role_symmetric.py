"""Limits of the search for role-symmetric equilibria."""

import numpy as np

from remuda.analysis.equilibria import role_symmetric
from remuda.analysis.payoffs.empirical_game import EmpiricalGame, Role, exact_game


def test_a_search_stops_amid_the_dynamics(monkeypatch):
    """No pure or uniform mixture is an equilibrium of this game of two seats."""
    payoffs = np.array([[0.0, -1.0, 3.0], [1.0, 0.0, -2.0], [-1.0, 1.0, 0.0]])
    others = lambda profile: profile - np.eye(3)  # noqa: E731
    role = Role("players", ("a", "b", "c"), 2)
    game = exact_game([role], lambda profile: (payoffs * others(profile)).sum(1))
    calls, evaluate = 0, EmpiricalGame.deviation_payoffs

    def counted(self, mixtures):
        nonlocal calls
        calls += 1
        return evaluate(self, mixtures)

    monkeypatch.setattr(EmpiricalGame, "deviation_payoffs", counted)
    exact = role_symmetric.solve(game, np.random.default_rng(0))
    assert exact.regret.max() < 1e-8
    assert calls > 100
    calls = 0
    found = role_symmetric.solve(game, np.random.default_rng(0), stop=lambda: calls > 50)
    assert calls < 60
    assert found.regret.max() > 1e-3
    assert found.note
