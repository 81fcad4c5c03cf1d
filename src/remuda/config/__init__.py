"""The configuration tree, which holds all defaults.

Each field's docstring is the help text of its flag. The tree is plain validated data: child
processes receive it, the run directory stores it, and `remuda evaluate` reads it back.
"""

from remuda.config.evolution import EvolutionConfig
from remuda.config.faults import explain, fields_of, unknown_key
from remuda.config.plain import read_yaml
from remuda.config.policy import PolicyConfig
from remuda.config.policy_sections import (
    ExperienceConfig,
    IQNConfig,
    NetworkConfig,
    PPOConfig,
    PublishConfig,
)
from remuda.config.population import (
    AnalysisConfig,
    BirthsConfig,
    LeagueConfig,
    PopulationConfig,
    SnapshotsConfig,
)
from remuda.config.presets import (
    all_presets,
    check_presets,
    over_own_environment,
    over_presets,
    preset_tree,
)
from remuda.config.reading import config_text, load_config, read_config, read_tree, write_config
from remuda.config.run import CheckpointConfig, ClusterConfig, RunConfig, SupervisionConfig
from remuda.config.sections import Each, Section, by_leaf, describe_fields, overlay
from remuda.config.tree import Config
