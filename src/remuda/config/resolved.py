"""A configuration as it comes out: what is left open by default, as what it then is.

Whoever compares runs compares these: one that says what is the default anyway is no other run.
"""

from __future__ import annotations

from typing import Any

from remuda.config.algorithms import FEWEST
from remuda.config.differences import beyond
from remuda.config.policy import PolicyConfig
from remuda.config.tree import Config


def resolved_policy(policy: PolicyConfig, config: Config) -> dict[str, Any]:
    """Plain data, in which `network.shared` and `ppo.minibatches` are what they come to.

    `shared` is None where an algorithm has no network for both policy and value, nor one for each;
    it has no minibatches then either, of which earlier versions saved a number for every algorithm.
    """
    tree = policy.model_dump(mode="json")
    tree["network"]["shared"] = policy.shares_network
    if not policy.rollout_length:
        tree["ppo"]["minibatches"] = None
    elif policy.ppo.minibatches is None and _is_small(policy, config):
        tree["ppo"]["minibatches"] = FEWEST
    return tree


def _is_small(policy: PolicyConfig, config: Config) -> bool:
    """Whether no update of it can have more than the fewest minibatches, as in earlier versions."""
    if config.population.dealt or policy.experience.group or policy.replays or policy.entry.own:
        return False  # it plays any number of seats, learns from more, or may read the setting
    # A rollout is of whole segments.
    most = policy.rollout_length * config.env.num_envs + policy.experience.segment_length
    return policy.ppo.parts(most) == FEWEST


def resolved(config: Config) -> dict[str, Any]:
    """Plain data of all of it.

    Of each policy, what is not as it is for `policy`, however that is written; one with nothing of
    its own is not there. What a file holds besides, so that it is read back alike, makes no
    difference.
    """
    tree = config.model_dump(mode="json")
    tree["policy"] = usual = resolved_policy(config.policy, config)
    policies = {}
    for name in config.policies:
        policy = config.policy_of(name)
        comes_to = resolved_policy(policy, config)
        if not policy.rollout_length:
            comes_to["ppo"]["minibatches"] = usual["ppo"]["minibatches"]  # it has none to differ by
        policies[name] = beyond(comes_to, usual)
    tree["policies"] = {name: own for name, own in policies.items() if own}
    return tree
