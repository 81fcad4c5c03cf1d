"""The actor role, which plays the environment.

The loop (`actor.py`) does not know which policy plays which seat; `Seats` does. `FixedSeats` keeps
each agent with its policy and reads views of a stack, without copies. `MatchSeats` has a dealer,
which deals a match when a copy is free; its streams (an agent of a copy) are gathered by policy
(`batch_plan.py`), evaluated and sampled in one call, and scattered back. The actor deals matches
itself, because only it knows in time when a copy is free, and so that exact schedules reproduce
them. One call writes the streams of all policies with equal spaces.

Inactive agents (dead, removed, or not to move) are skipped: their frame stack and recurrent state
are frozen, nothing is written, and rewards that they receive are credited to their last action.
A match counts as if agents without a decision were not there: it changes no sum, rating, payoff or
fitness of their policies.
"""
