"""Remuda trains many reinforcement-learning policies at once, in multi-agent environments.

    result = remuda.train("tag", policy={"algorithm": "ppo"}, run={"seconds": 60})
    run = remuda.load(result)
    action = run["agent_0"].act(observation)

The names in `__all__` and the modules in docs/api.md are public; all others are private. Names are
imported at first use, so that `import remuda` takes milliseconds.
"""

from typing import TYPE_CHECKING, Any

from remuda.version import __version__

if TYPE_CHECKING:
    from remuda.analysis.payoff import Payoffs
    from remuda.api import Run, load, tournament, train
    from remuda.callbacks import ActiveRun, Callback, EpisodeSummary
    from remuda.crossplay import Tournament
    from remuda.errors import ConfigError, RemudaError, UsageError
    from remuda.evaluation import Evaluation
    from remuda.exploiting.bounds import LowerBound
    from remuda.frame import Frame
    from remuda.policies.algorithms.rollout_algorithm import RolloutAlgorithm
    from remuda.policies.algorithms.transition_algorithm import TransitionAlgorithm
    from remuda.result import Result
    from remuda.trained import Policy, PolicyState
    from remuda.ui.comparison import compare
    from remuda.ui.comparison_groups import Comparison
    from remuda.ui.exploiting import exploit
    from remuda.ui.psro import psro

__all__ = [
    "ActiveRun",
    "Callback",
    "Comparison",
    "ConfigError",
    "EpisodeSummary",
    "Evaluation",
    "Frame",
    "LowerBound",
    "Payoffs",
    "Policy",
    "PolicyState",
    "RemudaError",
    "Result",
    "RolloutAlgorithm",
    "Run",
    "Tournament",
    "TransitionAlgorithm",
    "UsageError",
    "__version__",
    "compare",
    "exploit",
    "load",
    "psro",
    "tournament",
    "train",
]

_HOMES = {
    "ActiveRun": "callbacks",
    "Callback": "callbacks",
    "Comparison": "ui.comparison_groups",
    "ConfigError": "errors",
    "EpisodeSummary": "callbacks",
    "Evaluation": "evaluation",
    "Frame": "frame",
    "LowerBound": "exploiting.bounds",
    "Payoffs": "analysis.payoff",
    "Policy": "trained",
    "PolicyState": "trained",
    "RemudaError": "errors",
    "Result": "result",
    "RolloutAlgorithm": "policies.algorithms.rollout_algorithm",
    "Run": "api",
    "Tournament": "crossplay",
    "TransitionAlgorithm": "policies.algorithms.transition_algorithm",
    "UsageError": "errors",
    "compare": "ui.comparison",
    "exploit": "ui.exploiting",
    "load": "api",
    "psro": "ui.psro",
    "tournament": "api",
    "train": "api",
}


def __getattr__(name: str) -> Any:
    """Import a public name (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'remuda' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"remuda.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
