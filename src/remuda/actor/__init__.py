"""The actor role, which plays the environment.

The loop (`actor.py`) does not know which policy plays which agent; `Seats` does. With `FixedSeats`
each agent always has the same policy. With `MatchSeats` a dealer assigns policies to the agents of
an environment copy for one episode, a match. `MatchSeats` gathers the streams (one agent of one
copy) by policy (`batch_plan.py`), chooses their actions, and scatters the actions back. The actor
deals matches itself, because only it knows in time when a copy is free. Exact schedules can then
reproduce the matches.

Inactive agents (dead, removed, or not to move) are skipped: their frame stack and recurrent state
are frozen, nothing is written, and rewards that they receive are credited to their last action.
If an agent makes no decision in a match, the match changes no sum, rating, payoff or fitness of
its policy.
"""
