"""Learners, which train policies.

Policies of one specification in one process train as a stack. Ready rollouts are taken at once, so
that actors can continue. If a matchmaker deals the seats, some policies play more than others for a
while: the learner waits until all policies of the stack have a rollout, unless an actor has to wait
for one of them, and actors may play up to two ahead. Nothing waits for an empty slot of a
population: an on-policy learner counts what its last matches left as lost, and an off-policy
learner declares that it needs nothing until a newborn plays. A learner that stops after too many
non-finite updates declares that it has taken everything, so no actor waits for it.
"""
