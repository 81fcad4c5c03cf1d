"""A configuration as it comes out: what is left open by default, as what it then is.

Whoever compares runs compares these: one that says what is the default anyway is no other run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.config.policy import PolicyConfig
from remuda.config.tree import Config


def resolved_policy(policy: PolicyConfig) -> dict[str, Any]:
    """Plain data, in which `network.shared` is what it comes to.

    None: its algorithm has no network for both policy and value, nor one for each; nor has it
    `ppo.minibatches` then, of which earlier versions saved a number for every algorithm.
    """
    tree = policy.model_dump(mode="json")
    tree["network"]["shared"] = policy.shares_network
    if not policy.rollout_length:
        tree["ppo"]["minibatches"] = None
    return tree


def resolved(config: Config) -> dict[str, Any]:
    """Plain data of all of it.

    Of one policy, `network.shared` is there where it is not what it is for `policy`; one that then
    says nothing of its own is not there.
    """
    tree = config.model_dump(mode="json")
    tree["policy"] = resolved_policy(config.policy)
    usual = config.policy.shares_network
    for name, own in tree["policies"].items():
        shares, network = config.policy_of(name).shares_network, own.get("network", {})
        if isinstance(network, Mapping):
            rest = {key: value for key, value in network.items() if key != "shared"}
            network = rest if shares == usual else {**rest, "shared": shares}
        left = {key: value for key, value in own.items() if key != "network"}
        tree["policies"][name] = {**left, "network": network} if network else left
    tree["policies"] = {name: own for name, own in tree["policies"].items() if own}
    return tree
