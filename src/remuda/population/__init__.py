"""Populations: members, matchmaking, births and results.

The names in `__all__` are public, for your own matchmaker and director: subclass `Matchmaker`, or
write a class with the methods of `Director`.

To deal a seat means to assign a member to it for one match. A member's slot is its
row in all arrays of the population. Live policies have the first slots, followed by their frozen
copies, scripted members, and members of other runs.

A birth starts a new policy in an empty slot. Directors see whether a slot for a live policy is
occupied, expected (its newborn does not play yet), leaving (its policy has retired but plays its
last matches) or empty. A policy's network and its role in a league belong to the slot: a policy
that restarts keeps its name. All lasting state is in the table (`members/table.py`), in shared
memory. The coordinator reads the table for the live view and checkpoints, and appends results to
the ledger. Pairwise sums are kept only if one of the two members is live, so memory and checkpoints
grow with the number of slots, not with its square.
"""

from remuda.system.public_names import public_names

__all__, __getattr__ = public_names(__name__, __file__)
