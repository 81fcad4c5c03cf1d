"""Worlds of JaxMARL as games of Remuda."""

import pytest

pytest.importorskip("jax")
pytest.importorskip("jaxmarl")

from remuda.envs.contract import VectorEnvContract
from remuda.envs.registry import make_env


class TestSpread(VectorEnvContract):
    def make(self, num_envs):
        return make_env("jaxmarl:MPE_simple_spread_v3", num_envs)


@pytest.mark.slow
class TestCooked(VectorEnvContract):
    def make(self, num_envs):
        return make_env("jaxmarl:overcooked", num_envs, layout="cramped_room", max_steps=30)


@pytest.mark.slow
class TestBattle(VectorEnvContract):
    def make(self, num_envs):
        return make_env("jaxmarl:HeuristicEnemySMAX", num_envs, scenario="3m")


@pytest.mark.slow
class TestCoins(VectorEnvContract):
    def make(self, num_envs):
        return make_env("jaxmarl:coin_game", num_envs)


@pytest.mark.slow
class TestContinuousTag(VectorEnvContract):
    def make(self, num_envs):
        return make_env("jaxmarl:MPE_simple_tag_v3", num_envs, action_type="Continuous")
