"""Dealers, which assign the members of a population to the seats of an actor's matches.

The first actor is the lead (`lead.py`), which owns the table of members in shared memory, the
directors, ratings and sums. Other actors are followers (`follower.py`): each reads the table to
deal its environment copies, with its own matchmaker and random numbers, and writes only its shard,
a queue of results in shared memory (`members/follower_views.py` states the protocol). In
`sequential` and `lockstep` there is only the lead. Matches of actor i of N have the numbers i,
i + N, i + 2N, ... In a checkpoint each actor has a part with its matchmaker; the lead's part has
the same name for any number of actors. The lead is done when all turns are played, every follower
has finished, and all their results are counted.
`tests/population/dealing/test_follower_deaths.py` kills lead and followers at any line.
"""
