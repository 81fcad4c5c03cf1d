"""Remuda trains many reinforcement-learning policies at once, in multi-agent environments.

    result = remuda.train("tag", policy={"algorithm": "ppo"}, run={"seconds": 60})
    run = remuda.load(result)
    action = run["agent_0"].act(observation)

The names in `__all__` and the modules in docs/api.md are public; all others are private. Names are
imported at first use, so that `import remuda` takes milliseconds.
"""

from typing import TYPE_CHECKING, Any

from remuda.system.version import __version__

if TYPE_CHECKING:
    from remuda.analysis.frame import Frame
    from remuda.analysis.payoffs.payoffs import Payoffs
    from remuda.api.run import Run, load, tournament, train
    from remuda.coordinator.callback import ActiveRun, Callback, EpisodeSummary
    from remuda.errors import ConfigError, RemudaError, UsageError
    from remuda.evaluation.crossplay import Tournament
    from remuda.evaluation.policy import Policy, PolicyState
    from remuda.evaluation.results import Evaluation
    from remuda.policies.algorithms.rollout_algorithm import RolloutAlgorithm
    from remuda.policies.algorithms.transition_algorithm import TransitionAlgorithm
    from remuda.runs.result import Result
    from remuda.solvers.exploit.bounds import LowerBound
    from remuda.ui.analysis.exploiting import exploit
    from remuda.ui.analysis.psro import psro
    from remuda.ui.reports.comparison import Comparison, compare

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
    "analysis.payoffs.payoffs": "Payoffs",
    "api.run": "Run load tournament train",
    "coordinator.callback": "ActiveRun Callback EpisodeSummary",
    "evaluation.crossplay": "Tournament",
    "errors": "ConfigError RemudaError UsageError",
    "evaluation.results": "Evaluation",
    "solvers.exploit.bounds": "LowerBound",
    "analysis.frame": "Frame",
    "policies.algorithms.rollout_algorithm": "RolloutAlgorithm",
    "policies.algorithms.transition_algorithm": "TransitionAlgorithm",
    "runs.result": "Result",
    "evaluation.policy": "Policy PolicyState",
    "ui.reports.comparison": "Comparison compare",
    "ui.analysis.exploiting": "exploit",
    "ui.analysis.psro": "psro",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a public name (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'remuda' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"remuda.{_HOME_OF[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
