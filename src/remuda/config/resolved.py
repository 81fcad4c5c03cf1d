"""Configurations with their open defaults filled in, so that runs can be compared."""

from __future__ import annotations

from typing import Any

from remuda.config.differences import beyond
from remuda.config.policy import PolicyConfig
from remuda.config.tree import Config


def resolved_policy(policy: PolicyConfig) -> dict[str, Any]:
    """Return a policy as plain data in which `network.shared` is what it comes to.

    It is None for algorithms without both a policy and a value network.
    """
    tree = policy.model_dump(mode="json")
    tree["network"]["shared"] = policy.shares_network
    return tree


def resolved(config: Config) -> dict[str, Any]:
    """Return a configuration as plain data; `policies` holds only what differs from `policy`."""
    tree = config.model_dump(mode="json")
    tree["policy"] = usual = resolved_policy(config.policy)
    own = {name: beyond(resolved_policy(config.policy_of(name)), usual) for name in config.policies}
    tree["policies"] = {name: differences for name, differences in own.items() if differences}
    return tree
