"""Resolved runs and their parts, from a configuration and agents."""

from remuda.assembly.assembly import Assembly
from remuda.envs.description import EnvSpec
from remuda.population.run_spec import RunSpec


def spec_of(config, agents=None, episode_metrics=()):
    """A run's resolved settings; without agents they are those of its game."""
    if agents is None:
        return RunSpec.of(config)
    groups = tuple((agent,) for agent in range(len(agents)))
    env = EnvSpec(config.game, config.env.made_with, tuple(agents), groups, tuple(episode_metrics))
    return RunSpec(config, env)


def assemble(config, specs, layout, *roles, agents=(), episode_metrics=(), **more):
    """The parts of a run with these policies; a population needs its agents."""
    return Assembly(spec_of(config, agents, episode_metrics), layout, *roles, specs=specs, **more)
