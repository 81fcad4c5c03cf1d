"""Dealers, which assign the members of a population to the seats of an actor's matches.

The first actor is the lead (`lead.py`), which owns the table, directors, ratings and sums. Other
actors are followers (`follower.py`): each deals its copies from the table, with its own matchmaker
and random numbers, and writes only its shard (`members/follower_views.py` states the protocol).
Exact schedules have one actor. Matches of actor i of N have the numbers i, i + N, i + 2N, ... In a
checkpoint each actor has a part with its matchmaker; the lead's has the same name for any number of
actors. The lead is done when all turns are played, every follower has finished, and all results are
taken. `tests/population/dealing/test_follower_deaths.py` kills lead and followers at any line.
"""
