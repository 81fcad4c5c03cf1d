"""Distributed runs over several nodes.

A role is an actor or a learner process. Each node allocates all of a run's shared memory, and hosts
its roles with the ordinary process runtime. A word is a 64-bit number in that memory. On one node
its writer is a role, on the others the bridge (`bridge.py`), a supervised process. Actors and
learners therefore need not know about other nodes. While a bridge is dead, roles on other nodes
seem dead to the roles on its node; a restarted bridge requests the missing data. Words between
learners and actors are sent every 20 ms, or at once if a role must be woken. Other words are sent
ten times a second.

Each placement of roles has a number, its epoch. Only bridges of the same epoch connect, so a node
that was given up is refused when it returns. Roles of a lost node start on other nodes, from the
data there (`handover.py`). A `lockstep` run ends with a message instead, because it would not be
reproducible. A checkpoint of such a run is abandoned if the head (the node where the run was
started) does not receive the last words of a node. Ray lists nodes, starts agents and carries calls
to them. Weights and steps pass through Ray only in checkpoints and when roles move to another node.
"""
