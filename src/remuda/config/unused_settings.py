"""Settings that have no effect in a run, since its algorithm, schedule or matchmaker ignores them.

The condition of each field is next to the field, as `Only` in `remuda.config`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from remuda.config import Config, PolicyConfig
from remuda.config.run import IN_CLUSTER
from remuda.config.sections import at_key, conditions

MISSING = object()
IsSet = Callable[[str, bool], bool]  # from a key, and whether its value is not the default


def unused_settings(
    config: Config,
    explicit_keys: Collection[str] = (),
    resumed: bool = False,
    policies: Collection[str] = (),
) -> list[str]:
    """Return a sentence for each setting without effect, with the setting to use instead.

    A setting counts as set if it differs from its default (also in `policies`), or is among the
    user's explicit keys.
    """

    def is_set(key: str, is_changed: bool) -> bool:
        explicit = any(each == key or each.startswith(f"{key}.") for each in explicit_keys)
        return explicit or (is_changed and not resumed)

    of_no_policy = [
        f"{key} has no effect: {why}"
        for key, why in _for_no_policy(config, policies)
        if is_set(key, True)
    ]
    return [*_unread_by_policies(config, is_set), *of_no_policy, *_unread(config, is_set)]


def _for_no_policy(config: Config, policies: Collection[str]) -> Iterator[tuple[str, str]]:
    """Find settings that affect no policy, such as an experience group with one member."""
    seated = {} if config.population.dealt else config.env.scripted
    for name in seated:
        if config.policies.get(name):
            yield f"policies.{name}", f"env.scripted.{name} takes that seat"
    learning = [name for name in policies if name not in seated]
    devices = [config.policy_of(name).device for name in learning]
    if config.learners.devices and not config.policy.device and devices and all(devices):
        yield "learners.devices", "every policy has its own device"
    yield from _priorities(config, learning)
    groups = {name: config.policy_of(name).experience.group for name in learning}
    for name, group in groups.items():
        if group and list(groups.values()).count(group) == 1:
            own = at_key(config.policies, f"{name}.experience.group", MISSING) is not MISSING
            key = f"policies.{name}" if own else "policy"
            yield f"{key}.experience.group", f"{name} is the only policy in the group {group!r}"


def _priorities(config: Config, learning: Collection[str]) -> Iterator[tuple[str, str]]:
    keys = ["policy.priority"] if config.policy.priority != 1.0 else []
    keys += [
        f"policies.{name}.priority"
        for name in learning
        if "priority" in config.policies.get(name, {})
    ]
    values = {config.policy_of(name).priority for name in learning}
    why = ""
    if config.exact:
        why = f"in the schedule {config.schedule} all due updates are made after each turn"
    elif len(values) == 1:
        why = "every policy has the same priority"
    if why:
        yield from ((key, why) for key in keys)


def _unread_by_policies(config: Config, is_set: IsSet) -> Iterator[str]:
    policies = [config.policy, *map(config.policy_of, config.policies)]
    defaults = {each.algorithm: each for each in policies}
    defaults = {algorithm: policy.usual() for algorithm, policy in defaults.items()}
    for key, only in conditions(PolicyConfig):
        common = at_key(config.policy, key)
        is_changed = common != at_key(defaults[config.policy.algorithm], key)
        if is_set(f"policy.{key}", is_changed) and not any(map(only.reads, policies)):
            yield f"policy.{key} {only.message(config.policy.entry, 'policy.')}"
        for name, policy in zip(config.policies, policies[1:], strict=True):
            prefix = f"policies.{name}."
            usual = at_key(defaults[policy.algorithm], key)
            # `with_own_defaults` also writes values there; they equal `usual` or `common`.
            own = at_key(config.policies[name], key, MISSING)
            is_changed = own not in (MISSING, usual, common)
            if is_set(prefix + key, is_changed) and not only.reads(policy):
                yield f"{prefix}{key} {only.message(policy.entry, prefix)}"
    named_algorithms = {
        f"policies.{name}.": config.policy_of(name)
        for name, own in config.policies.items()
        if "algorithm" in own
    }
    for prefix, policy in {"policy.": config.policy, **named_algorithms}.items():
        for key in policy.entry.unused:
            is_changed = at_key(policy, key) != at_key(defaults[policy.algorithm], key)
            if is_set(prefix + key, is_changed):
                yield f"{prefix}{key} has no effect: {policy.algorithm} does not use it"
    if not IN_CLUSTER.reads(config):  # a condition of the whole tree, though it is about policies
        nodes = {f"policies.{name}.": own.get("node") for name, own in config.policies.items()}
        for prefix, node in {"policy.": config.policy.node, **nodes}.items():
            if is_set(f"{prefix}node", bool(node)):
                yield f"{prefix}node {IN_CLUSTER.message()}"


def _unread(config: Config, is_set: IsSet) -> Iterator[str]:
    plain = Config()
    for key, only in conditions(Config):
        is_changed = at_key(config, key) != at_key(plain, key)
        if is_set(key, is_changed) and not only.reads(config):
            yield f"{key} {only.message()}"
