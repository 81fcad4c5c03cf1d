"""The configuration of a policy: its algorithm, network, experience and publishing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, reduce
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import PositiveFloat, ValidationInfo, model_validator

from remuda.config.algorithm_registry import NO_ENTRIES, AlgorithmEntry, find_algorithm
from remuda.config.faults import fields_of, unknown_key
from remuda.config.plain import Options
from remuda.config.policy_sections import (
    ByNetwork,
    DQNConfig,
    ExperienceConfig,
    ExplorationConfig,
    IQNConfig,
    NetworkConfig,
    PPOConfig,
    PublishConfig,
    QLearningConfig,
    SACConfig,
    ValueConfig,
)
from remuda.config.sections import (
    Count,
    Finite,
    Only,
    Reference,
    Section,
    Share,
    Size,
    Width,
    overlay,
    without_idle,
)
from remuda.errors import ConfigError


def with_module(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the default hidden layers of a policy with a custom network."""
    network = policy.get("network")
    if isinstance(network, Mapping) and network.get("module") and "hidden" not in network:
        return {**policy, "network": {**network, "hidden": ()}}
    return dict(policy)


OF_RECURRENT_VALUES: dict[str, Any] = {"batch_size": 256, "experience": {"segment_length": 32}}
"""Defaults of algorithms that take transitions, for recurrent networks."""
OF_OTHER_VALUES: dict[str, Any] = {"batch_size": 64, "experience": {"segment_length": 100}}
"""Defaults of these algorithms for other networks."""
OF_OWN_VALUES: dict[str, Any] = {"batch_size": None, "experience": {"segment_length": None}}
"""Defaults of these algorithms for a user's module, until Remuda knows if it is recurrent."""


def defaults_of(
    entry: AlgorithmEntry,
    policy: Mapping[str, Any],
    plain: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the defaults of an algorithm with the network of `policy`, overriding `plain`."""
    found = reduce(overlay, entry.presets, dict(plain))
    network = overlay(found, policy).get("network", {})
    if entry.takes != "transitions" or not isinstance(network, Mapping):
        return found
    if network.get("module"):
        found = reduce(overlay, (OF_OWN_VALUES, *entry.presets), dict(plain))
    return overlay(found, OF_RECURRENT_VALUES) if network.get("recurrent") else found


class PolicyConfig(Section):
    """One policy: its algorithm, network, hyperparameters, experience and publishing.

    The validation context is the known entries of users' algorithms; the classes of others are
    imported.
    """

    algorithm: str = "iqn"
    """`iqn`: implicit quantile networks (Dabney et al. 2018). `dqn`: double DQN (van Hasselt et al.
    2016). `ppo`: proximal policy optimisation (Schulman et al. 2017). `mappo`: PPO with a
    centralised critic (Yu et al. 2022). `sac`: soft actor-critic (Haarnoja et al. 2018), for
    continuous and discrete actions. `ppo`, `mappo` and `sac` have their own defaults for some
    settings. Or your own, as `module:Class`. For an environment that is not one of Remuda's own
    games, the default is `ppo`."""
    settings: Options = {}
    """Additional settings of a custom algorithm."""
    learning_mode: Literal["on_policy", "off_policy", "hybrid"] = "off_policy"
    """Data that an update trains on. `on_policy`, for PPO: the newest rollout, which is not used
    again. `off_policy`: steps drawn from the replay memory; PPO draws whole segments, with as many
    steps as the newest rollout has. `hybrid`, for PPO: the newest rollout and replayed segments."""
    on_policy_share: Annotated[Share, Only("rollouts", needs="{}learning_mode hybrid")] = 0.5
    """`hybrid`: the share of an update's steps that come from the newest rollout."""
    network: NetworkConfig = NetworkConfig()
    """The network."""
    value: ValueConfig = ValueConfig()
    """The value network."""
    n_frames: Width = 5
    """Observations stacked into one input, the newest last; never across episodes."""
    n_steps: Annotated[Size, Only("transitions", instead="ppo.gae_lambda")] = 3
    """Rewards summed before bootstrapping (n-step returns)."""
    discount: Share = 0.95
    """Discount per step."""
    batch_size: Annotated[
        ByNetwork, Only("transitions", instead="ppo.rollout_length ppo.minibatches")
    ] = 64
    """Samples in an update; with a recurrent network, steps in whole segments (at least one
    segment). None, the default with `network.module`: 256 if the module is recurrent, else 64."""
    learning_rate: Finite = 5e-4
    """Learning rate of Adam."""
    adam_epsilon: Finite = 1e-5
    """Epsilon in Adam's denominator."""
    max_grad_norm: PositiveFloat = 10.0
    """Clip the gradient's norm to this value."""
    reward_scale: Finite = 0.1
    """Multiply rewards by this before training; reported returns are unscaled."""
    share_rewards: Share = 0.0
    """Weight of the team's mean reward (of all agents if there are no teams) in the rewards that
    the policy learns from; 0: only its own rewards. Reported returns are always individual."""
    max_nonfinite: Count = 10
    """Consecutive updates with a non-finite loss or weights after which the policy stops learning.
    Each such update is undone and never published."""
    priority: PositiveFloat = 1.0
    """Training priority in `async` when compute is short: the number of updates per update of a
    policy with priority 1 in the same learner process. Learner processes that compete for cores get
    CPU time in proportion to the mean priority of their policies (`nice`). GPUs and idle cores are
    not limited."""
    time_budget: PositiveFloat | None = None
    """Seconds that an update may take, in `async`. IQN and DQN halve the batch while updates take
    longer, and double it again up to `batch_size`. PPO skips epochs; policies that train as
    one stack on similar amounts of data are timed together. None: no limit."""
    device: str = ""
    """Training device, such as `cuda:1`; only policies on the same device are trained as one stack.
    Empty: the next of `learners.devices`. Acting uses `actor.device`."""
    node: str = ""
    """In a cluster: the node that trains the policy, by its name or a label (`name` or
    `name=value`). Empty: any node."""
    exploration: Annotated[ExplorationConfig, Only("transitions", instead="ppo.entropy_cost")] = (
        ExplorationConfig()
    )
    """Exploration."""
    init_from: Reference | None = None
    """Initial weights from a policy of another run, as `RUN:policy`; `RUN` alone: that run's policy
    of the same name, or its only policy. Append `@VERSION`, `@best` or `@checkpoint-N` for weights
    other than the newest. The networks must be equal. None: random weights."""
    init_optimizer: Annotated[bool, Only(needs="{}init_from")] = False
    """`init_from`: load Adam's moments too, and the weights that belong to them, from the newest
    or the named checkpoint of that run. Policies born later start without moments."""
    experience: ExperienceConfig = ExperienceConfig()
    """Experience."""
    publish: PublishConfig = PublishConfig()
    """Publishing."""
    dqn: Annotated[DQNConfig, Only(section="dqn")] = DQNConfig()
    """Settings of DQN."""
    iqn: Annotated[IQNConfig, Only(section="iqn")] = IQNConfig()
    """Settings of IQN."""
    ppo: Annotated[PPOConfig, Only(section="ppo")] = PPOConfig()
    """Settings of PPO."""
    sac: Annotated[SACConfig, Only(section="sac")] = SACConfig()
    """Settings of SAC."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, data: Any, info: ValidationInfo) -> Any:
        """Fill in the algorithm's defaults for keys that the user does not set."""
        if not isinstance(data, Mapping):
            return data
        plain = with_module(
            {k: v.model_dump() if isinstance(v, Section) else v for k, v in data.items()}
        )
        try:
            entry = find_algorithm(str(data.get("algorithm", "iqn")), info.context or NO_ENTRIES)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return overlay(defaults_of(entry, plain), plain)

    @model_validator(mode="after")
    def _keep_entry(self, info: ValidationInfo) -> PolicyConfig:
        """Keep the entry that the policy is checked with; an edited class does not change it."""
        if "entry" not in self.__dict__:  # pydantic calls this again for a section in a section
            self.__dict__["entry"] = find_algorithm(self.algorithm, info.context or NO_ENTRIES)
        return self

    @cached_property
    def entry(self) -> AlgorithmEntry:
        """The properties of the algorithm when the policy was read; not part of `==` and dumps."""
        return find_algorithm(self.algorithm)

    def validated(self, plain: Mapping[str, Any]) -> PolicyConfig:
        """Validate other settings of this algorithm, with the same entry."""
        return PolicyConfig.model_validate(plain, context={self.algorithm: self.entry})

    def with_newest_code(self) -> PolicyConfig:
        """Return the policy with the present properties of its algorithm; imports a class."""
        if find_algorithm(self.algorithm) == self.entry:
            return self
        return PolicyConfig.model_validate(self.model_dump())

    def usual(self) -> PolicyConfig:
        """Return the default policy of the algorithm."""
        return self.validated({"algorithm": self.algorithm})

    def resolved(self, usual: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return plain data for comparing policies.

        Settings without effect get their values from `usual`, or else the algorithm's defaults.
        """
        usual = usual or self.usual().model_dump(mode="json")
        tree = without_idle(self, usual, self.entry.unused)
        tree["network"]["shared"] = self.shares_network
        return tree

    @property
    def shares_network(self) -> bool | None:
        """Return whether policy and value share a network; None if there is only one of them."""
        if self.entry.takes != "rollouts":
            return None
        return self.network.serves_both and not self.has_own_value

    @property
    def has_own_value(self) -> bool:
        """Return whether the value network needs separate layers."""
        return self.value.input != "observation" or bool(self.network.value_module)

    @property
    def first_epsilon(self) -> float:
        """The exploration rate at the first step; 1 for a stochastic policy."""
        return 1.0 if self.entry.samples else self.exploration.start

    @property
    def last_epsilon(self) -> float:
        """The exploration rate after its decay; 1 for a stochastic policy."""
        return 1.0 if self.entry.samples else self.exploration.end

    @property
    def rollout_length(self) -> int:
        """Turns per stream in a rollout; 0 if updates do not use rollouts."""
        return self.ppo.rollout_length if self.entry.takes == "rollouts" else 0

    @property
    def stored(self) -> ExperienceConfig:
        """`experience`, with segments that make up a rollout without a rest.

        Rollouts consist of whole segments, so longer ones would make rollouts longer. If only
        segments below half of `segment_length` leave no rest, a rollout is a few steps longer.
        """
        length, rollout = self.experience.segment_length, self.rollout_length
        fewest = -(-rollout // length) or 1
        fits = (n for n in range(fewest, 2 * rollout // length + 1) if rollout % n == 0)
        fitting = -(-rollout // next(fits, fewest)) or length
        if fitting == length:
            return self.experience
        return self.experience.model_copy(update={"segment_length": fitting})

    @property
    def keeps_experience(self) -> bool:
        """Return whether experience is kept for replay, beyond the newest rollouts."""
        return self.replays > 0 or not self.rollout_length

    @property
    def quantiles(self) -> int:
        """Passes through the hidden layers for each sample: 1, or IQN's quantiles."""
        return self.iqn.quantiles if self.entry.quantiles else 1

    @property
    def q_learning(self) -> QLearningConfig:
        """The section of the algorithm's Q-learning settings: `iqn` or `dqn`."""
        return self.iqn if self.entry.quantiles else self.dqn

    @property
    def replays(self) -> float:
        """PPO: replayed steps per step of a rollout."""
        if not self.rollout_length or self.learning_mode == "on_policy":
            return 0.0
        if self.learning_mode == "off_policy":
            return 1.0
        return (1.0 - self.on_policy_share) / self.on_policy_share

    @property
    def correction(self) -> Literal["decoupled", "vtrace", "none"]:
        usual: Literal["decoupled", "vtrace"] = "vtrace" if self.replays else "decoupled"
        return self.ppo.correction or usual

    @property
    def correction_limit(self) -> float:
        """The largest weight of a step in the off-policy correction."""
        own = self.ppo.correction_limit
        return {"decoupled": 2.0}.get(self.correction, 1.0) if own is None else own

    @model_validator(mode="after")
    def _fits(self) -> PolicyConfig:
        for name in self.settings:
            if name not in self.entry.settings:
                known = ", ".join(self.entry.settings) or "none"
                raise ValueError(
                    f"settings.{name}: {self.algorithm} has no such setting; it has {known}"
                )
            value, key = self.settings[name], f"settings.{name}"
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if key in self.entry.hyperparameters and not number:
                raise ValueError(f"{key} is {value!r}: it must be a number in {self.algorithm}")
        for key in self.entry.unused:
            if key not in fields_of(PolicyConfig):
                problem = unknown_key(key, PolicyConfig)
                raise ValueError(
                    f"algorithm {self.algorithm} has an unknown key in `unused`: {problem}"
                )
        network = self.network
        if not (network.module and self.entry.takes == "transitions"):
            sizes: dict[str, int | None] = {
                "batch_size": self.batch_size,
                "experience.segment_length": self.experience.segment_length,
            }
            for key, value in sizes.items():
                if value is None:
                    raise ValueError(
                        f"{key} is None, which needs a network.module and an algorithm that learns "
                        "from transitions; give a number"
                    )
        if network.module and network.convolutions:
            raise ValueError(
                f"network.module is {network.module!r}, which replaces "
                "network.convolutions; set one of them"
            )
        if not (network.module or network.convolutions or network.hidden):
            raise ValueError("network.hidden is empty; a network needs at least one layer")
        if network.recurrent:
            self.check_recurrent(f"network.recurrent is {network.recurrent}")
        if network.noisy and self.entry.samples:
            raise ValueError(
                f"network.noisy is for iqn and dqn; {self.algorithm} explores by sampling actions"
            )
        if network.shared and self.has_own_value:
            key = "network.value_module" if network.value_module else "value.input"
            raise ValueError(
                f"network.shared is true, but with {key} policy and value have different inputs or "
                "layers, and cannot share; leave network.shared out"
            )
        if self.rollout_length:
            return self._fits_ppo()
        if self.learning_mode != "off_policy":
            raise ValueError(
                f"learning_mode is {self.learning_mode!r}, which is for ppo; {self.algorithm} "
                "learns off_policy"
            )
        return self._fits_values()

    def _fits_values(self) -> PolicyConfig:
        experience, network = self.experience, self.network
        if self.waits_for_network:
            return self  # `with_network` checks it
        if experience.burn_in >= experience.segment_length:
            raise ValueError(
                f"experience.burn_in is {experience.burn_in}, but a segment has "
                f"{experience.segment_length} steps (experience.segment_length), and some of them "
                "must be left to train on; lower burn_in"
            )
        if experience.learning_starts > experience.capacity:
            raise ValueError(
                f"experience.learning_starts is {experience.learning_starts}, more than the "
                f"{experience.capacity} steps of experience.capacity; lower learning_starts"
            )
        if experience.learning_starts < self.batch_size:
            raise ValueError(
                f"experience.learning_starts is {experience.learning_starts}, less than one batch "
                f"of {self.batch_size}; raise it"
            )
        if experience.on_full == "wait" and experience.replay_ratio is None:
            raise ValueError(
                "experience.on_full is 'wait', which needs an experience.replay_ratio to wait for"
            )
        self.check_waiting(bool(network.recurrent))
        return self

    @property
    def waits_for_network(self) -> bool:
        """Return whether the batch or segment size depends on the network."""
        sizes: tuple[int | None, ...] = (self.batch_size, self.experience.segment_length)
        return None in sizes

    def with_network(self, recurrent: bool) -> PolicyConfig:
        """Fill in sizes that depend on whether a custom network is recurrent.

        Unset `batch_size` and `experience.segment_length` become those of a built-in network.
        """
        if not self.waits_for_network:
            return self
        usual = OF_RECURRENT_VALUES if recurrent else OF_OTHER_VALUES
        settings = self.model_dump()
        for section, defaults in ((settings, usual), (settings["experience"], usual["experience"])):
            for key in ("batch_size", "segment_length"):
                if section.get(key, 0) is None:
                    section[key] = defaults[key]
        return self.validated(settings)

    def check_recurrent(self, source: str) -> None:
        """Refuse settings that exclude a recurrent network; `source` says what makes it one."""
        if self.experience.group:
            raise ValueError(
                f"{source}, and experience.group is for policies without a memory: a policy cannot "
                "use the recurrent states of other policies"
            )
        if self.shares_network is False and not self.has_own_value:
            raise ValueError(
                f"{source}, which needs network.shared true: both heads use one recurrent state"
            )
        if self.rollout_length and self.ppo.anchor_cost:
            raise ValueError(
                f"{source}, and ppo.anchor_cost is for policies without a memory; set one of them "
                "to 0"
            )

    def steps_per_batch(self, recurrent: bool) -> float:
        """Return the steps that an actor collects for each batch of a learner that replays."""
        largest = max(self.batch_size, self.experience.segment_length if recurrent else 0)
        return largest / (self.experience.replay_ratio or 1.0)

    def lead(self, recurrent: bool) -> int:
        """Return the steps that an actor which waits may be ahead of training.

        It is at least the steps of a batch, so that the actor and the learner do not wait for each
        other.
        """
        capacity, most = self.experience.capacity, self.experience.max_lead
        if most is None:
            return capacity
        return min(capacity, max(most, math.ceil(self.steps_per_batch(recurrent))))

    def check_waiting(self, recurrent: bool) -> None:
        """Refuse a capacity with which actor and learner would wait for each other."""
        experience = self.experience
        if experience.on_full != "wait" or self.rollout_length:
            return
        share = self.steps_per_batch(recurrent)
        if experience.capacity < share:
            raise ValueError(
                f"experience.capacity is {experience.capacity}, less than the {share:.0f} steps "
                "collected per batch; with experience.on_full 'wait' the actor and "
                "the learner would wait for each other"
            )

    def _fits_ppo(self) -> PolicyConfig:
        if self.learning_mode == "on_policy" and self.experience.group:
            raise ValueError(
                f"experience.group is {self.experience.group!r}, but in the learning_mode "
                "on_policy no policy learns from others; set learning_mode to off_policy or hybrid"
            )
        if self.learning_mode == "hybrid" and not 0.0 < self.on_policy_share < 1.0:
            raise ValueError(
                f"on_policy_share is {self.on_policy_share}, but hybrid needs a share between 0 "
                "and 1; instead of 0 use the learning_mode off_policy, instead of 1 on_policy"
            )
        if self.replays and self.ppo.normalise_rewards:
            raise ValueError(
                "ppo.normalise_rewards needs the learning_mode on_policy: it needs each agent's "
                "rewards in the order in which they were collected"
            )
        if self.network.dueling:
            raise ValueError("network.dueling is for iqn and dqn; ppo learns a separate value")
        return self
