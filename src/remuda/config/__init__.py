"""The configuration tree, which holds all defaults.

Each field's docstring is the help text of its flag. The tree is plain validated data: child
processes receive it, the run directory stores it, and `remuda evaluate` reads it back.
"""

from remuda.config.algorithms import DQNConfig, IQNConfig, PPOConfig
from remuda.config.analysis import AnalysisConfig
from remuda.config.cluster import ClusterConfig
from remuda.config.evolution import EvolutionConfig, NumberConfig
from remuda.config.faults import explain, fields_of, unknown_key
from remuda.config.plain import plain_data, read_yaml
from remuda.config.policy import PolicyConfig
from remuda.config.policy_sections import (
    ExperienceConfig,
    ExplorationConfig,
    NetworkConfig,
    PublishConfig,
)
from remuda.config.population import (
    BirthsConfig,
    LeagueConfig,
    PopulationConfig,
    SnapshotsConfig,
    TeamConfig,
)
from remuda.config.presets import PRESETS, Preset, check_presets, over_presets, preset_tree
from remuda.config.reading import config_text, load_config, read_config, read_tree, write_config
from remuda.config.run import (
    ActorConfig,
    CheckpointConfig,
    EnvConfig,
    LearnersConfig,
    RunConfig,
    SupervisionConfig,
)
from remuda.config.sections import Each, Only, Section, by_leaf, overlay
from remuda.config.tree import Config

__all__ = [
    "PRESETS",
    "ActorConfig",
    "AnalysisConfig",
    "BirthsConfig",
    "CheckpointConfig",
    "ClusterConfig",
    "Config",
    "DQNConfig",
    "Each",
    "EnvConfig",
    "EvolutionConfig",
    "ExperienceConfig",
    "ExplorationConfig",
    "IQNConfig",
    "LeagueConfig",
    "LearnersConfig",
    "NetworkConfig",
    "NumberConfig",
    "Only",
    "PPOConfig",
    "PolicyConfig",
    "PopulationConfig",
    "Preset",
    "PublishConfig",
    "RunConfig",
    "Section",
    "SnapshotsConfig",
    "SupervisionConfig",
    "TeamConfig",
    "by_leaf",
    "check_presets",
    "config_text",
    "explain",
    "fields_of",
    "load_config",
    "over_presets",
    "overlay",
    "plain_data",
    "preset_tree",
    "read_config",
    "read_tree",
    "read_yaml",
    "unknown_key",
    "write_config",
]
