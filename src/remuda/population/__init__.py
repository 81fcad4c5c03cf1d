"""Populations: members, matchmaking, births and results.

To deal a seat means to assign a member to it for one match. A member's slot (`place` in code) is
its row in all arrays of the population. Slots are numbered: live policies first, then their frozen
copies, scripted members, and members of other runs.

The slot of a live policy is occupied, expected (ordered, not playing yet), leaving (retired, in its
last matches) or empty; directors count all four. A policy's network and its role in a league belong
to the slot: a policy that restarts keeps its name. All lasting state is in the table
(`members/table.py`), in shared memory; the coordinator reads it for the live view and checkpoints,
and appends results to the ledger. Sums between two members are kept only if one of them is live, so
memory and checkpoints grow with the slots, not with their square.
"""
