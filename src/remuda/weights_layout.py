"""Shared memory of weights: the published ones, and those of a population."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remuda.config import Config
from remuda.hyperparameters import values_of
from remuda.memory.shared import Arena
from remuda.policies.spec import PolicySpec, training_layout
from remuda.policies.stack import layout_checksum, layout_size
from remuda.population.imported import Imported
from remuda.population.roster import copies_of, unborn
from remuda.population.table import Table
from remuda.publish.snapshot import PublishedWeights
from remuda.publish.training_state import TrainingLayout


def population_table(
    config: Config,
    specs: Sequence[PolicySpec],
    num_seats: int,
    imported: Sequence[Imported],
    copies: Sequence[int],
    arena: Arena,
    training: Mapping[str, TrainingLayout],
) -> Table:
    """Allocate the table of a population whose seats are dealt."""
    return Table(
        {spec.name: layout_size(spec.network().shapes) for spec in specs},
        num_seats,
        copies_of(config.population),
        {spec.name: values_of(spec.config) for spec in specs},
        unborn(config),
        arena,
        imported,
        tuple(config.scripted_members),
        config.population.has_stand_ins,
        len(config.population.evolution.episode_metrics),
        training,
        copies[1:],
    )


def training_layouts(config: Config, specs: Sequence[PolicySpec]) -> dict[str, TrainingLayout]:
    """Return the layouts of training state that newborn policies inherit, by policy, if any."""
    inherits = config.population.evolution.inherits_training
    return {spec.name: training_layout(spec) for spec in specs} if inherits else {}


def published_weights(
    specs: tuple[PolicySpec, ...], arena: Arena, training: Mapping[str, TrainingLayout]
) -> PublishedWeights:
    """Allocate the newest weights of all policies; `training` is from `training_layouts`."""
    layouts = {}
    for spec in specs:
        shapes = spec.network().shapes
        layouts[spec.name] = (layout_size(shapes), layout_checksum(shapes), spec.config.publish)
    return PublishedWeights(layouts, arena, training)
