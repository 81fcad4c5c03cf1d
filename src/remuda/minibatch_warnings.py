"""Warnings about more minibatches than an update has steps."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.config import Config
from remuda.policies.spec import PolicySpec


def minibatch_warnings(config: Config, specs: Sequence[PolicySpec], seats: int) -> list[str]:
    """Return a warning for each `ppo.minibatches` larger than its updates.

    A minibatch has at least one step, or one sequence if the network is recurrent.
    """
    found: dict[str, str] = {}
    for spec in specs:
        policy, asked = spec.config, spec.config.ppo.minibatches
        if not policy.rollout_length or asked is None:
            continue
        length = policy.experience.segment_length
        steps = policy.rollout_length
        each = -(-steps // length) if spec.memory else steps
        streams = config.env.num_envs * (seats if config.population.dealt else 1)
        if policy.experience.group:  # what others of the group live through joins its own
            streams *= sum(s.config.experience.group == policy.experience.group for s in specs)
        played = 0.0 if policy.learning_mode == "off_policy" else 1.0
        most = int(each * streams * (played + policy.replays))
        if policy.replays:  # segments are drawn whole, so the last one may go beyond
            most += 1 if spec.memory else length
        if asked <= most:
            continue
        own = config.policies.get(spec.name, {}).get("ppo", {})
        whose = f"policies.{spec.name}" if "minibatches" in own else "policy"
        what = (
            f"{most:,} sequences of {min(steps, length):,} steps"
            if spec.memory
            else (f"{most:,} steps")
        )
        unless = ", unless episodes are shorter" if spec.memory else ""
        found[whose] = (
            f"{whose}.ppo.minibatches is {asked:,}, and an update has {what} at most{unless}: an "
            f"epoch has no more parts; lower it, or raise {whose}.ppo.rollout_length or "
            "env.num_envs"
        )
    return list(found.values())
