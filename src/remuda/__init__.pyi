"""The public names and where they are defined; `__init__.py` imports each at its first use."""

from remuda.analysis.frame import Frame as Frame
from remuda.analysis.payoffs.empirical_game import EmpiricalGame as EmpiricalGame
from remuda.analysis.payoffs.payoffs import Payoffs as Payoffs
from remuda.api.focal import evaluate_among as evaluate_among
from remuda.api.imitate import imitate as imitate
from remuda.api.run import Run as Run
from remuda.api.run import evaluate as evaluate
from remuda.api.run import load as load
from remuda.api.tournament import tournament as tournament
from remuda.api.train import train as train
from remuda.coordinator.callback import ActiveRun as ActiveRun
from remuda.coordinator.callback import Callback as Callback
from remuda.coordinator.callback import EpisodeSummary as EpisodeSummary
from remuda.errors import ConfigError as ConfigError
from remuda.errors import RemudaError as RemudaError
from remuda.errors import UsageError as UsageError
from remuda.evaluation.policy import Policy as Policy
from remuda.evaluation.policy import PolicyState as PolicyState
from remuda.evaluation.results import Evaluation as Evaluation
from remuda.evaluation.tournaments.engine import Tournament as Tournament
from remuda.evaluation.tournaments.focal import FocalEvaluation as FocalEvaluation
from remuda.evaluation.trajectories import AgentTrajectories as AgentTrajectories
from remuda.evaluation.trajectories import Trajectories as Trajectories
from remuda.policies.algorithms.rollout_algorithm import RolloutAlgorithm as RolloutAlgorithm
from remuda.policies.algorithms.transition_algorithm import (
    TransitionAlgorithm as TransitionAlgorithm,
)
from remuda.runs.result import Result as Result
from remuda.solvers.exploit.bounds import LowerBound as LowerBound
from remuda.system.version import __version__ as __version__
from remuda.ui.analysis.analysing import analyse as analyse
from remuda.ui.analysis.exploiting import exploit as exploit
from remuda.ui.analysis.psro import psro as psro
from remuda.ui.reports.comparison import Comparison as Comparison
from remuda.ui.reports.comparison import compare as compare
