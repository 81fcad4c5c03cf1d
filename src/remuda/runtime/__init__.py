"""Runtimes, which run actors and learners: all in this process, or each in a separate one.

A child receives a role: configuration, shared memory and wake-ups, never a live environment or
network. It has one torch thread unless the layout sets more, ignores SIGINT, SIGTERM and SIGHUP
(the coordinator decides), and is ready once everything that it needs is compiled. Learners run at a
lower priority (`learners.nice`): on few cores the environment continues, and training takes the
rest.

After a death:

- A learner's successor restores the newest undamaged part of its policies, or else their published
  snapshot. Rings, snapshot and scoreboard rows are in shared memory and were never gone. Versions
  continue from the highest that was published.
- An actor's successor starts new episodes, with random generators named by the turn at which it
  starts. Meanwhile the other actors fill the rollouts alone.
- A start that the system refuses counts as a death.
"""
