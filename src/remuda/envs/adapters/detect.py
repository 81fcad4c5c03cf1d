"""Recognise the kind of an environment without importing its library."""

from __future__ import annotations

COPIES, GYMNASIUM, PARALLEL, AEC = "copies", "gymnasium", "parallel", "aec"
VECTOR, OLD_GYM = "vector", "gym"
JAXMARL, GYMNAX = "jaxmarl", "gymnax"  # kinds of pure functions, which step all copies at once
JAX_WRAPPER = "jax wrapper"
SINGLE = (GYMNASIUM, PARALLEL, AEC)  # kinds of a single copy; an adapter combines many
CHECKERS = {
    GYMNASIUM: "gymnasium.utils.env_checker.check_env",
    PARALLEL: "pettingzoo.test.parallel_api_test",
    AEC: "pettingzoo.test.api_test",
}
"""The library's own test of each kind; the test covers much of the contract, but not masks."""
_BASES = {
    ("remuda", "VectorEnv"): COPIES,
    ("gymnasium", "VectorEnv"): VECTOR,
    ("gymnasium", "Env"): GYMNASIUM,
    ("gym", "Env"): OLD_GYM,
    ("jaxmarl", "MultiAgentEnv"): JAXMARL,
    ("gymnax", "Environment"): GYMNAX,
    ("pettingzoo", "ParallelEnv"): PARALLEL,
    ("pettingzoo", "AECEnv"): AEC,
}
"""Kinds of environments by the package and the name of their base class."""


def kind_of(thing: object) -> str:
    """Return the kind of an environment or of its class, or an empty text if it is unknown.

    An object without a known base class is recognised by its methods.
    """
    for base in (thing if isinstance(thing, type) else type(thing)).__mro__:
        kind = _BASES.get((base.__module__.partition(".")[0], base.__name__))
        if kind:
            return kind
    if isinstance(thing, type):
        return ""
    if _has(thing, "turn_groups", "begin_turn", "observe", "act", "end_turn"):
        return COPIES
    if not _has(thing, "reset", "step"):
        return ""
    if _has(thing, "step_env"):
        return JAX_WRAPPER
    if _has(thing, "possible_agents", "observation_space", "action_space"):
        return AEC if _has(thing, "agent_iter", "last") else PARALLEL
    return GYMNASIUM if _has(thing, "observation_space", "action_space") else ""


def _has(thing: object, *names: str) -> bool:
    return all(hasattr(thing, name) for name in names)


def article(thing: object) -> str:
    """Return the name of an object's class with its article: `a Tag`."""
    name = type(thing).__name__
    return "nothing" if thing is None else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
