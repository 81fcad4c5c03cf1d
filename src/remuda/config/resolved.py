"""A configuration as it comes out: what is left open by default, as what it then is.

Whoever compares runs compares these: one that says what is the default anyway is no other run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.config.algorithms import FEWEST
from remuda.config.policy import PolicyConfig
from remuda.config.tree import Config

LEFT_OPEN = (("network", "shared"), ("ppo", "minibatches"))
"""Section and key of what comes to something else than it says, or to nothing."""


def resolved_policy(policy: PolicyConfig, config: Config) -> dict[str, Any]:
    """Plain data, in which `network.shared` and `ppo.minibatches` are what they come to.

    `shared` is None where an algorithm has no network for both policy and value, nor one for each;
    it has no minibatches then either, of which earlier versions saved a number for every algorithm.

    Args:
        policy: one of the configuration's.
        config: what it is of.
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
    if config.population.dealt or policy.experience.group or policy.replays:
        return False  # it plays any number of seats, or learns from more than it plays
    # A rollout is of whole segments.
    most = policy.rollout_length * config.env.num_envs + policy.experience.segment_length
    return policy.ppo.parts(most) == FEWEST


def resolved(config: Config) -> dict[str, Any]:
    """Plain data of all of it.

    Of one policy, what is resolved is there where it is not what it is for `policy`; one that then
    says nothing of its own is not there.
    """
    tree = config.model_dump(mode="json")
    tree["policy"] = usual = resolved_policy(config.policy, config)
    for name, own in tree["policies"].items():
        comes_to, left = resolved_policy(config.policy_of(name), config), own
        for section, key in LEFT_OPEN:
            value = comes_to[section][key]
            left = _with(left, section, key, value, value != usual[section][key])
        tree["policies"][name] = left
    tree["policies"] = {name: own for name, own in tree["policies"].items() if own}
    return tree


def _with(
    own: Mapping[str, Any], section: str, key: str, value: object, differs: bool
) -> dict[str, Any]:
    """What a policy says of its own, with this value where it differs, and else without the key."""
    there = own.get(section, {})
    if not isinstance(there, Mapping):
        return dict(own)
    rest = {name: said for name, said in there.items() if name != key}
    rest |= {key: value} if differs else {}
    left = {name: said for name, said in own.items() if name != section}
    return {**left, section: rest} if rest else left
