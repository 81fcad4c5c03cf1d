"""Reference policies of Bucket Brigade, from one that rests to one that works every night."""

from __future__ import annotations

import numpy as np

from remuda.envs.games.bucket_brigade import BURNING, HOUSE, WORK, BucketBrigade, distances
from remuda.envs.vector_env import VectorEnv
from remuda.types import Array, Integers

# ruff: noqa: ARG001  these policies draw no random numbers


def owners_duty(
    env: VectorEnv, agent: int, observations: Array, rng: np.random.Generator
) -> Integers:
    """Work at the lowest-numbered own house that burns, otherwise rest."""
    assert isinstance(env, BucketBrigade)
    own = np.arange(agent, env.scenario.num_houses, env.num_agents)
    return _work_at_first_fire(own, observations)


def firefighter(
    env: VectorEnv, agent: int, observations: Array, rng: np.random.Generator
) -> Integers:
    """Work at the burning house nearest to home; rest if nothing burns."""
    return _work_at_first_fire(_by_distance(env, agent), observations)


def always_work(
    env: VectorEnv, agent: int, observations: Array, rng: np.random.Generator
) -> Integers:
    """Work as `firefighter` does, and at home if nothing burns."""
    actions = firefighter(env, agent, observations, rng)
    actions[:, WORK] = 1
    return actions


def always_rest(
    env: VectorEnv, agent: int, observations: Array, rng: np.random.Generator
) -> Integers:
    """Rest at home every night, as a free rider."""
    actions = np.zeros((len(observations), 3), np.int64)
    actions[:, HOUSE] = _by_distance(env, agent)[0]
    return actions


def _by_distance(env: VectorEnv, agent: int) -> Integers:
    """Return the houses, the nearest to an agent's home first."""
    assert isinstance(env, BucketBrigade)
    return np.argsort(distances(env.scenario, env.num_agents)[agent], kind="stable")


def _work_at_first_fire(houses: Integers, observations: Array) -> Integers:
    """Return actions that work at the first of these houses that burns, or rest."""
    actions = np.zeros((len(observations), 3), np.int64)
    if houses.size:
        burning = observations[:, houses] == BURNING
        actions[:, HOUSE] = houses[burning.argmax(1)]
        actions[:, WORK] = burning.any(1)
    return actions
