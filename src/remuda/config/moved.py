"""Keys that earlier versions had elsewhere: where they are now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOVED = {
    "double": ("dqn.double", "iqn.double"),
    "huber": ("dqn.huber", "iqn.huber"),
    "target_every": ("dqn.target_every", "iqn.target_every"),
    "network.quantiles": ("iqn.quantiles",),
    "network.cosines": ("iqn.cosines",),
}
"""By the former key of a policy, those that do the same now, one for each algorithm."""
OF_ENV = {"share_rewards": "share_rewards"}
"""By the former key of `env`, that of `policy` which does the same now."""


def moved_key(key: str, prefix: str = "") -> str | None:
    """One line about a key that is elsewhere now; None: it never was one."""
    of_env = OF_ENV.get(key.removeprefix("env.")) if key.startswith("env.") else None
    if of_env is not None:
        return f"{prefix}{key} has moved; use policy.{of_env}"
    former = key.removeprefix("policy.")
    if former not in MOVED:
        return None
    before = prefix + key.removesuffix(former)
    now = " or ".join(f"{before}{name}, of {name.split('.')[0]}" for name in MOVED[former])
    return f"{prefix}{key} has moved; use {now}"


def with_moved_keys(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A whole tree as an earlier version saved it, with the keys of this one."""
    found = dict(tree)
    env = found.get("env")
    if isinstance(env, Mapping):
        moved = {now: env[former] for former, now in OF_ENV.items() if former in env}
        found["env"] = {key: value for key, value in env.items() if key not in OF_ENV}
        if moved:
            found["policy"] = {**moved, **(found.get("policy") or {})}
    population = found.get("population")
    if isinstance(population, Mapping) and isinstance(population.get("evolution"), Mapping):
        evolution = population["evolution"]
        if evolution.get("every") is not None:
            # Where nothing says what newborn policies take over, they took over weights alone.
            evolution = {"inherit": "weights", **evolution}
        found["population"] = {**population, "evolution": evolution}
    if isinstance(found.get("policy"), Mapping):
        policy = _moved(found["policy"])
        if policy.get("ppo"):
            # A run that does not say so has weights without these units.
            policy["ppo"] = {"normalise_values": False, **policy["ppo"]}
        network = policy.get("network")
        if isinstance(network, Mapping):
            # In one that does not say so, policy and value shared a network.
            policy["network"] = {"shared": True, **network}
        found["policy"] = policy
    if isinstance(found.get("policies"), Mapping):
        found["policies"] = {
            name: _moved(own) if isinstance(own, Mapping) else own
            for name, own in found["policies"].items()
        }
    return found


def _moved(policy: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(policy)
    for former, now in MOVED.items():
        section, _, leaf = former.rpartition(".")
        there = found.get(section) if section else found
        if not isinstance(there, Mapping) or leaf not in there:
            continue
        rest = {name: value for name, value in there.items() if name != leaf}
        found = {**found, section: rest} if section else rest
        for key in now:
            own, _, name = key.partition(".")
            found[own] = {name: there[leaf], **found.get(own, {})}
    return found
