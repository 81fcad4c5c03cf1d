"""Settings without effect in a run: its algorithm, schedule or matchmaker does not read them.

The conditions are next to each field, as `Only` in `remuda.config`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from remuda.config import Config, Only, PolicyConfig
from remuda.config.cluster import IN_CLUSTER


def unused_settings(
    config: Config,
    explicit_keys: Collection[str] = (),
    resumed: bool = False,
    policies: Collection[str] = (),
) -> list[str]:
    """Return a sentence for each setting without effect, with the setting that has one.

    A setting counts as set if it differs from its default, in `policies` too, or is among the
    user's explicit keys.
    """

    def wrote(key: str) -> bool:
        return any(one == key or one.startswith(f"{key}.") for one in explicit_keys)

    alone = [
        f"{key} has no effect: {why}"
        for key, why in _for_nobody(config, policies)
        if not resumed or wrote(key)
    ]
    return [*_unread_by_policies(config, wrote, resumed), *alone, *_unread(config, wrote, resumed)]


def _for_nobody(config: Config, policies: Collection[str]) -> Iterator[tuple[str, str]]:
    """Find settings of policies that never play, or groups of one policy."""
    seated = {} if config.population.dealt else config.env.scripted
    for name in seated:
        if config.policies.get(name):
            yield f"policies.{name}", f"env.scripted.{name} takes that seat"
    learning = [name for name in policies if name not in seated]
    devices = [config.policy_of(name).device for name in learning]
    if config.learners.devices and not config.policy.device and devices and all(devices):
        yield "learners.devices", "every policy names its own device"
    yield from _priorities(config, learning)
    groups = {name: config.policy_of(name).experience.group for name in learning}
    for name, group in groups.items():
        if group and list(groups.values()).count(group) == 1:
            own = _value(config.policies, f"{name}.experience.group") is not MISSING
            key = f"policies.{name}" if own else "policy"
            yield f"{key}.experience.group", f"{name} is the only one of the group {group!r}"


def _priorities(config: Config, learning: Collection[str]) -> Iterator[tuple[str, str]]:
    keys = ["policy.priority"] if config.policy.priority != 1.0 else []
    keys += [f"policies.{name}.priority" for name in learning if "priority" in _own(config, name)]
    values = {config.policy_of(name).priority for name in learning}
    why = ""
    if config.exact:
        why = f"in the schedule {config.schedule} all that is due is trained after each turn"
    elif len(values) == 1:
        why = "every policy has the same"
    if why:
        yield from ((key, why) for key in keys)


def _own(config: Config, name: str) -> Mapping[str, Any]:
    return config.policies.get(name, {})


def _is_changed(policy: object, usual: object, key: str) -> bool:
    return bool(_value(policy, key) != _value(usual, key))


def _unread_by_policies(
    config: Config, wrote: Callable[[str], bool], resumed: bool
) -> Iterator[str]:
    """Find unread keys of policies; see `unused_settings`."""
    policies = [config.policy, *(config.policy_of(name) for name in config.policies)]
    defaults = {
        name: PolicyConfig.model_validate({"algorithm": name})
        for name in dict.fromkeys(policy.algorithm for policy in policies)
    }
    default = defaults[config.policy.algorithm]
    for key, only in _marked(PolicyConfig):
        changed = not resumed and _is_changed(config.policy, default, key)
        is_set = changed or wrote(f"policy.{key}")
        if is_set and not any(only.reads(policy) for policy in policies):
            yield f"policy.{key} {only.words(config.policy.algorithm, 'policy.')}"
        for name, own in config.policies.items():
            policy = config.policy_of(name)
            prefix = f"policies.{name}."
            usual = _value(defaults[policy.algorithm], key)
            # Values of `policy` that differ from its preset are among its own, too.
            common = _value(config.policy, key)
            named = not resumed and _value(own, key) not in (MISSING, usual, common)
            if (named or wrote(prefix + key)) and not only.reads(policy):
                yield f"{prefix}{key} {only.words(policy.algorithm, prefix)}"
    for prefix, policy in (("policy.", config.policy), *_of_policies(config)):
        for key in policy.entry.unused:
            changed = not resumed and _is_changed(policy, defaults[policy.algorithm], key)
            if changed or wrote(prefix + key):
                yield f"{prefix}{key} has no effect: {policy.algorithm} has no use for it"
    if not IN_CLUSTER.reads(config):  # a condition of the whole tree, though it is about policies
        nodes = {"policy.": config.policy.node if not resumed else ""}
        for name, own in config.policies.items():
            nodes[f"policies.{name}."] = own.get("node", "") if not resumed else ""
        for prefix, node in nodes.items():
            if node or wrote(f"{prefix}node"):
                yield f"{prefix}node {IN_CLUSTER.words('', '')}"


def _unread(config: Config, wrote: Callable[[str], bool], resumed: bool) -> Iterator[str]:
    plain = Config()
    for key, only in _marked(Config):
        if key.startswith("policy."):
            continue
        is_set = (not resumed and _value(config, key) != _value(plain, key)) or wrote(key)
        if is_set and not only.reads(config):
            yield f"{key} {only.words('', '')}"


def _of_policies(config: Config) -> Iterator[tuple[str, PolicyConfig]]:
    for name, own in config.policies.items():
        if "algorithm" in own:
            yield f"policies.{name}.", config.policy_of(name)


MISSING = object()


def _marked(model: type[BaseModel], prefix: str = "", outer: Only | None = None) -> Iterator[Any]:
    """Iterate over all conditional leaves under a section: key and condition."""
    for name, info in model.model_fields.items():
        own = _mark(info)
        only = own.within(outer) if own is not None else outer
        section = info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield from _marked(section, f"{prefix}{name}.", only)
        elif only is not None:
            yield f"{prefix}{name}", only


def _mark(info: FieldInfo) -> Only | None:
    return next((part for part in info.metadata if isinstance(part, Only)), None)


def _value(tree: Any, key: str) -> Any:
    for part in key.split("."):
        if isinstance(tree, Mapping):
            tree = tree.get(part, MISSING)
        else:
            tree = getattr(tree, part, MISSING)
    return tree
