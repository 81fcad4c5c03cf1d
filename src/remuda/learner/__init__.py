"""Learners, which train policies.

Policies of one process with equal specifications train as a stack. A complete rollout is copied out
of the rings before training, so that actors can continue. If a matchmaker assigns the seats, some
policies may have a rollout earlier than others. Then the learner waits until all policies of the
stack have one, unless an actor has to wait for a policy; actors may play two rollouts ahead.

Actors never wait for a policy that no longer plays, such as one that a population has retired. An
on-policy learner counts the policy's remaining steps as lost; an off-policy learner publishes that
it needs no steps until a new policy (a newborn) plays. A learner that stops after too many
non-finite updates publishes that it has taken all steps.
"""
