"""Distributed runs over several nodes.

Each node has all of a run's shared memory, made from the same recipe, and the ordinary process
runtime for its roles. Each shared word still has one writer. On other nodes that need it, its
writer is the node's bridge (`bridge.py`), a supervised process like a role, so actors and learners
know nothing of other nodes. If a bridge dies, that is as if the remote role had died there; its
successor requests what it lacks. Words between learners and actors are sent every 20 ms, or at once
if a role on another node is rung; others ten times a second.

Each placement of roles has an epoch, and only bridges of the same epoch connect, so a node that was
given up is refused when it returns. Roles of a lost node start elsewhere from what other nodes hold
(`handover.py`). Exact schedules then end with a message, because they cannot continue elsewhere; a
checkpoint is given up if the head lacks the last words of a node. Ray lists nodes, starts agents
and carries their calls, but no weights, steps or words while roles stay in place.
"""
