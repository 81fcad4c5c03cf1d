"""Matchmakers, which choose the policies of each match.

The size of a policy's rollouts follows from `Matchmaker.expected_shares`, so that policies that
train together complete their rollouts at the same time. Seats that a policy does not learn from
(`Matchmaker.learning_seats`) are not recorded, and shares ignore them.
"""
