"""Runtimes, which run actors and learners: all in one process, or each in a separate process.

A child process receives a role (configuration, shared memory and wake-ups), never a live
environment or network. It has one torch thread unless the layout sets more. It ignores SIGINT,
SIGTERM and SIGHUP, which the coordinator handles. It is ready once all code that it needs is
compiled. Learners run at a lower priority (`learners.nice`), so on few cores they slow actors less.

After a death:

- A restarted learner restores its policies from the newest undamaged checkpoint part, or else from
  the published snapshot. Rings, snapshots and scoreboard rows are in shared memory and survive.
  Versions continue from the highest that was published.
- A restarted actor starts new episodes, with random generators seeded by the turn at which it
  starts. Until it is ready, the other actors fill the rollouts alone.
- If the system refuses to start a process, that counts as a death of the process.
"""
