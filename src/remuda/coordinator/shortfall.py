"""Where policies were trained on less than was asked for, and why."""

from __future__ import annotations

from remuda.config import Config
from remuda.coordinator.metrics import Record

ENOUGH = 0.8
"""Share of the asked replay ratio that counts as reached; the first steps weigh on short runs."""
BUSY = 0.8
"""Share of its time that a learner works, from which it has none left."""


def missed_ratios(config: Config, record: Record) -> list[str]:
    """A sentence for all policies whose replay ratio was missed; none: it was reached.

    Args:
        config: of the run.
        record: the whole session as one interval.
    """
    missed: list[tuple[str, float, float]] = []
    for name, policy in record.policies.items():
        found = config.policy_of(name)
        asked, reached = found.experience.replay_ratio, policy.replay_ratio
        if found.takes_rollouts or asked is None or reached is None or policy.halted:
            continue
        if reached < ENOUGH * asked:
            missed.append((name, reached, asked))
    if not missed:
        return []
    name, reached, asked = min(missed, key=lambda one: one[1] / one[2])
    who = name if len(missed) == 1 else f"{len(missed)} policies, {name} least of all,"
    together = sum(record.policies[other].busy for other, *_ in missed)
    if together >= BUSY:
        why = (
            "their learners had no time left: the processor is taken by the game or by other "
            "programs. A lower --learners.nice, fewer copies (--env.num_envs), "
            "--policy.experience.on_full wait, or a lower --policy.experience.replay_ratio help"
        )
    else:
        why = (
            "their learners had time left, but were away or asleep for some of it: restarts, a "
            "short run, or a machine on which they get no processor (see --learners.nice)"
        )
    return [
        f"{who} trained on {reached:.2g} samples a step, where experience.replay_ratio asks for "
        f"{asked:.2g}: {why}"
    ]
