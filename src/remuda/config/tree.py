"""The whole configuration tree, and checks across its sections."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    NonNegativeInt,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from remuda.config.algorithm_registry import BUILT_IN, NO_ENTRIES, Entries
from remuda.config.differences import beyond, with_own_defaults
from remuda.config.faults import explain
from remuda.config.plain import plain_data
from remuda.config.policy import PolicyConfig, with_module
from remuda.config.population import DEALT, AnalysisConfig, PopulationConfig
from remuda.config.run import (
    CHILDREN,
    ActorConfig,
    CheckpointConfig,
    ClusterConfig,
    EnvConfig,
    LearnersConfig,
    RunConfig,
    SupervisionConfig,
)
from remuda.config.sections import Each, PathSetting, Section, overlay, without_idle

MOST_UPDATES = 1000
"""The most updates per collected step while the environment waits; with more the run appears to
hang."""


class Config(Section):
    """The configuration of a run; the validation context is that of `PolicyConfig`."""

    game: str = "treasure_hunt"
    """The environment; `remuda games` lists all environments."""
    seed: NonNegativeInt = 0
    """The seed of all random numbers of the run."""
    schedule: Literal["async", "sequential", "lockstep"] = "async"
    """`async`: actors and learners run in parallel processes, each at its own speed. `sequential`:
    one process alternates between playing and training. `lockstep`: the same order, in separate
    processes. `sequential` and `lockstep` are reproducible with a seed."""
    env: EnvConfig = EnvConfig()
    """The environment."""
    policy: PolicyConfig = PolicyConfig()
    """Settings of all policies."""
    population: PopulationConfig = PopulationConfig()
    """The policies and their opponents."""
    analysis: Annotated[AnalysisConfig, DEALT] = AnalysisConfig()
    """Analysis of the population during the run."""
    policies: Annotated[
        dict[str, dict[str, Any]], AfterValidator(plain_data), Each(PolicyConfig)
    ] = {}
    """Overrides for single policies: `--policies.agent_0.learning_rate 1e-3`."""
    actor: ActorConfig = ActorConfig()
    """The actor."""
    learners: LearnersConfig = LearnersConfig()
    """The learners."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Checkpoints."""
    supervision: Annotated[SupervisionConfig, CHILDREN] = SupervisionConfig()
    """Supervision."""
    cluster: ClusterConfig = ClusterConfig()
    """Several machines."""
    run: RunConfig = RunConfig()
    """The run."""
    trace: PathSetting | None = None
    """Write a timeline of all processes into this file, as Chrome trace events for Perfetto."""

    @model_validator(mode="before")
    @classmethod
    def _own_defaults(cls, data: Any, info: ValidationInfo) -> Any:
        """Write into `policies` each policy's defaults that differ from those of `policy`."""
        known = info.context or NO_ENTRIES
        return with_own_defaults(data, known) if isinstance(data, Mapping) else data

    @cached_property
    def entries(self) -> Entries:
        """The entries of all users' algorithms when the configuration was read.

        They are not part of `==` and dumps.
        """
        return NO_ENTRIES

    @model_validator(mode="after")
    def _ends_and_policies_fit(self, info: ValidationInfo) -> Config:
        if self.run.turns is None and self.run.seconds is None:
            raise ValueError("run.turns and run.seconds are both None: the run would never end")
        if self.cluster.used and self.schedule == "sequential":
            raise ValueError(
                "schedule is 'sequential', which is one process on one machine, and cluster."
                f"{'address' if self.cluster.address else 'local'} asks for several nodes; use "
                "async or lockstep, or leave the cluster out"
            )
        if "entries" in self.__dict__:  # pydantic calls this again for a configuration in another
            return self
        self.__dict__["entries"] = info.context or NO_ENTRIES
        policies = {f"policies.{name}": self.policy_of(name) for name in self.policies}
        entries = [policy.entry for policy in (self.policy, *policies.values())]
        self.__dict__["entries"] = {entry.name: entry for entry in entries if entry.own}
        if self.exact:
            for key, policy in {"policy": self.policy, **policies}.items():
                self._repeats_itself(key, policy)
        return self

    def _repeats_itself(self, key: str, policy: PolicyConfig) -> None:
        """Refuse settings that depend on time or scheduling in a reproducible schedule."""
        if policy.time_budget is not None:
            raise ValueError(
                f"{key}.time_budget depends on the clock, but a run with schedule "
                f"{self.schedule} is reproducible; leave it out, or use async"
            )
        if policy.experience.replay_ratio is None and not policy.rollout_length:
            raise ValueError(
                f"{key}.experience.replay_ratio is None: training would never pause, and with "
                f"schedule {self.schedule} play continues once training pauses; give a number, "
                "such as 0.64, or use async"
            )
        if policy.batch_size is not None:  # else checked once the network is made
            self.check_pauses(key, policy)

    def check_pauses(self, key: str, policy: PolicyConfig) -> None:
        """Refuse a replay ratio so high that the environment would appear to hang."""
        ratio, batch = policy.experience.replay_ratio or 0.0, policy.batch_size or 1
        if self.exact and ratio > MOST_UPDATES * batch and not policy.rollout_length:
            raise ValueError(
                f"{key}.experience.replay_ratio is {ratio:g}: with schedule {self.schedule} the "
                "environment waits for training, at most "
                f"{MOST_UPDATES:,} updates per step, so at most {MOST_UPDATES * batch} with a "
                f"batch_size of {batch}; lower it, or use async"
            )

    @property
    def exact(self) -> bool:
        """Return whether the schedule is reproducible."""
        return self.schedule != "async"

    @property
    def saves_replay(self) -> bool:
        """Return whether checkpoints hold experience."""
        return self.exact if self.checkpoint.replay is None else self.checkpoint.replay

    @property
    def seats_taken(self) -> dict[str, str]:
        """The scripted policy of each reserved seat, if a matchmaker assigns the other seats."""
        return self.env.scripted if self.population.dealt else {}

    @property
    def scripted_members(self) -> dict[str, str]:
        """Scripted members of the population; reserved seats are named after their agent."""
        return self.population.scripted | self.seats_taken

    def resolved(self) -> dict[str, Any]:
        """Return plain data for comparing runs, with settings without effect at their defaults.

        `policies` holds only differences from `policy`.
        """
        tree = without_idle(self, Config().model_dump(mode="json"))
        tree["policy"] = usual = self.policy.resolved()
        own = {name: beyond(self.policy_of(name).resolved(usual), usual) for name in self.policies}
        tree["policies"] = {name: differences for name, differences in own.items() if differences}
        return tree

    def policy_of(self, name: str) -> PolicyConfig:
        """Return the configuration of a policy: `policy`, overridden by `policies`."""
        own = self.policies.get(name)
        if not own:
            return self.policy
        try:
            base = self.policy.model_dump()
            algorithm = own.get("algorithm", base["algorithm"])
            if not isinstance(algorithm, str):
                raise ValueError(
                    f"policies.{name}.algorithm is {algorithm!r}: give the name of an algorithm, "
                    f"such as {', '.join(BUILT_IN)}, or your own as module:Class"
                )
            known = {**self.entries, self.policy.algorithm: self.policy.entry}
            return PolicyConfig.model_validate(overlay(base, with_module(own)), context=known)
        except ValidationError as error:
            raise ValueError(explain(error, PolicyConfig, f"policies.{name}.")) from None
