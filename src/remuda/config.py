"""The one configuration tree, and the only place where a default stands.

Each field's docstring is the help text of its flag. The tree is plain validated data: it crosses to
the child processes, is written into the run directory, and is read back by `remuda evaluate`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from remuda.errors import ConfigError

Share = Annotated[float, Field(ge=0.0, le=1.0)]


def overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the leaves of `top` put over it."""
    merged = dict(base)
    for key, value in top.items():
        under = merged.get(key)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        merged[key] = overlay(under, value) if both else value  # type: ignore[arg-type]
    return merged


class Section(BaseModel):
    """A branch of the tree: unknown keys are refused, and nothing changes once it is made."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


@dataclass(frozen=True)
class Only:
    """Mark a field that has an effect only under a condition; `effects.py` tells of the others."""

    algorithms: tuple[str, ...] = ()
    """Of the policy; none: any."""
    when: Callable[[Any], bool] | None = None
    """Asked of the policy, or of the whole tree for what belongs to no policy."""
    needs: str = ""
    """That condition in words: the setting that brings it about."""
    instead: str = ""
    """Keys of a policy that do in the other algorithms what this one does."""

    def reads(self, section: Any) -> bool:
        """Whether the field has an effect there."""
        if self.algorithms and section.algorithm not in self.algorithms:
            return False
        return self.when is None or self.when(section)

    def words(self, algorithm: str, prefix: str) -> str:
        """Why the field has no effect, and which has, for keys that begin with `prefix`."""
        if self.algorithms and algorithm not in self.algorithms:
            use = " and ".join(prefix + key for key in self.instead.split())
            told = f"; use {use}" if use else ""
            return (
                f"has no effect: it is for {' and '.join(self.algorithms)}, not {algorithm}{told}"
            )
        return f"has no effect without {self.needs.format(prefix)}"


def for_values(instead: str = "") -> Only:
    """Mark what only IQN and DQN read, and what PPO has instead."""
    return Only(("iqn", "dqn"), instead=instead)


def for_ppo(instead: str = "") -> Only:
    """Mark what only PPO reads, and what IQN and DQN have instead."""
    return Only(("ppo",), instead=instead)


CHILDREN = Only(
    when=lambda config: config.schedule != "sequential", needs="schedule async or lockstep"
)
"""Marks what is about processes that play and train."""


BIRTHS = Only(
    when=lambda config: config.population.births.every is not None, needs="population.births.every"
)
"""Marks what births by rating go by."""
PLACES = Only(
    when=lambda config: (
        config.population.births.every is not None or bool(config.population.director)
    ),
    needs="population.births.every or population.director",
)
"""Marks what is for policies that are born."""
SNAPSHOTS = Only(
    when=lambda config: config.population.snapshots.on,
    needs="population.snapshots.every or population.snapshots.win_rate",
)
"""Marks what holds for frozen copies."""


class EnvConfig(Section):
    """The game and how many copies of it are played."""

    num_envs: PositiveInt = 1
    """Independent copies of the game that the actor steps together."""
    observe_together: bool = False
    """Let all agents observe at the start of the turn and choose in one batched pass, which is much
    faster with few copies; their actions still take effect in the game's order."""
    scripted: dict[str, str] = {}
    """By agent, who takes its seat without learning: `random`, one that `remuda games GAME` lists,
    or your own as `module:callable`."""
    share_rewards: Share = 0.0
    """How much of what an agent is given in training is the mean of what its team is given, or all
    agents where there are no teams; 0: each its own. Evaluations always tell each one's own."""
    workers: PositiveInt = 1
    """Processes that step an actor's copies, for slow environments in Python; 1: the actor does.
    With more, a resumed run begins new episodes."""
    check: bool = True
    """Check every value that the game hands over for presence, shape and finiteness, and end with a
    message that names the agent, the copy and the turn. It costs about nothing."""
    options: dict[str, Any] = {}
    """The game's own parameters by name; `remuda games` lists them."""


class NetworkConfig(Section):
    """The network of a policy."""

    hidden: tuple[PositiveInt, ...] = Field(default=(250, 250), min_length=1)
    """Units of each hidden layer. IQN applies its quantile embedding after the first."""
    activation: Literal["relu", "tanh"] = "relu"
    """What follows each hidden layer. PPO: tanh."""
    convolutions: tuple[tuple[PositiveInt, PositiveInt, PositiveInt], ...] = ()
    """PPO, for images: [channels,kernel,stride] of each layer before the hidden ones."""
    recurrent: NonNegativeInt = 0
    """PPO: units of a gated recurrent layer (Cho et al. 2014) after the hidden ones. 0: none."""
    shared: Annotated[bool, for_ppo()] = True
    """PPO: the policy and the value share the hidden layers; else each has its own."""
    dueling: bool = True
    """IQN and DQN: split the last layer into a state value and advantages (Wang et al. 2016)."""
    noisy: bool = False
    """Explore by noisy linear layers (Fortunato et al. 2018) after the first layer."""
    quantiles: Annotated[PositiveInt, Only(("iqn",))] = 12
    """IQN: how many quantiles are drawn for an update, and how many midpoints are used to act."""
    cosines: Annotated[PositiveInt, Only(("iqn",))] = 64
    """IQN: cosines that embed a quantile (Dabney et al. 2018, equation 4)."""


class ExplorationConfig(Section):
    """Epsilon-greedy exploration; epsilon travels with the published weights."""

    start: Share = 1.0
    """Epsilon at the policy's first step."""
    end: Share = 0.05
    """Epsilon once the decay is over."""
    decay_steps: PositiveInt = 100_000
    """The policy's own steps over which epsilon falls in a straight line."""


class ExperienceConfig(Section):
    """What a policy remembers, and how much it trains on it."""

    capacity: Annotated[
        PositiveInt,
        Only(
            when=lambda policy: policy.replays > 0 or not policy.takes_rollouts,
            needs="{0}learning_mode off_policy or hybrid; a rollout has {0}ppo.rollout_length",
        ),
    ] = 100_000
    """Steps that are kept; the oldest segment makes room. In the learning mode `on_policy`: what
    rollouts need."""
    segment_length: PositiveInt = 100
    """The most steps in one segment. PPO: 32. Where episodes are much shorter, set it to their
    length, or their segments fill the ring before a rollout is complete."""
    replay_ratio: Annotated[PositiveFloat | None, for_values("ppo.epochs")] = 0.64
    """Training samples per collected step, at most. None: train without pause, however much the
    processor's scheduler happens to give."""
    learning_starts: Annotated[PositiveInt, for_values("ppo.rollout_length")] = 2_000
    """Steps that are collected before the first update."""
    on_full: Literal["overwrite", "wait"] = "overwrite"
    """`overwrite` the oldest steps and never wait, or make the actor `wait` while it is more than
    `capacity` steps ahead of what the replay ratio lets the learner train on. PPO: `wait`, while a
    whole rollout lies ready that its learner has not taken; with `overwrite` learners take the
    newest whole rollout, and those passed over are counted as lost."""
    wait_limit: Annotated[
        PositiveFloat,
        Only(
            when=lambda policy: policy.experience.on_full == "wait",
            needs="{}experience.on_full wait",
        ),
    ] = 2.0
    """`wait`: the most seconds that the actor waits for a learner which takes nothing. A learner is
    waited for as long as two of its updates usually take, at least 0.2 seconds and at most this;
    then its steps are overwritten, and counted, until it takes some again."""
    group: str = ""
    """Policies that name the same group learn from what all of them live through, not only from
    their own. Empty: each from its own. Not in the learning mode `on_policy`."""


class PublishConfig(Section):
    """How a learner hands its weights to the actor."""

    mode: Literal["snapshot", "double_buffer"] = "double_buffer"
    """`snapshot`: actors read one copy, which is overwritten in place; a second one is kept for the
    successor of a learner that dies meanwhile. `double_buffer`: two in turn, of which one is active
    while the other is written."""
    every: PositiveInt = 10
    """Updates between two publications."""


class PPOConfig(Section):
    """What only PPO has (Schulman et al. 2017)."""

    rollout_length: Annotated[PositiveInt, for_ppo("batch_size")] = 128
    """Turns that each stream plays for one update; an update trains on streams x turns steps."""
    epochs: Annotated[PositiveInt, for_ppo("experience.replay_ratio")] = 4
    """Times that an update goes through its steps."""
    minibatches: Annotated[PositiveInt, for_ppo("batch_size")] = 4
    """Parts of an epoch, with a gradient step each."""
    gae_lambda: Annotated[Share, for_ppo("n_steps")] = 0.95
    """Decay of temporal-difference errors in advantages (Schulman et al. 2016)."""
    clip: PositiveFloat = 0.2
    """How far the probability ratio counts from 1."""
    value_clip: Annotated[PositiveFloat | None, for_ppo("huber")] = None
    """How far a value counts from what it was before the update. None: any distance."""
    value_cost: NonNegativeFloat = 0.5
    """Weight of the value loss."""
    entropy_cost: Annotated[NonNegativeFloat, for_ppo("exploration.end")] = 0.01
    """Weight of the entropy that is kept up."""
    anchor_cost: NonNegativeFloat = 0.0
    """Weight of the divergence KL(policy, anchor), where the anchor is the policy as it was: it
    holds play against oneself together (as in magnetic mirror descent, Sokota et al. 2023)."""
    anchor_every: Annotated[
        PositiveInt,
        Only(("ppo",), when=lambda policy: policy.ppo.anchor_cost > 0, needs="{}ppo.anchor_cost"),
    ] = 100
    """Updates after which the policy becomes its own anchor."""
    target_kl: PositiveFloat | None = None
    """An update ends early once the policy has moved by 1.5 times this, in nats. None: never."""
    normalise_advantages: bool = True
    """Give the advantages of each minibatch mean 0 and standard deviation 1."""
    normalise_observations: bool = False
    """Give each input mean 0 and standard deviation 1 over all that was seen, within 10."""
    normalise_rewards: Annotated[bool, for_ppo("reward_scale")] = False
    """Divide rewards by the standard deviation of their running discounted sum."""
    correction: Literal["decoupled", "vtrace", "none"] | None = None
    """How steps that other weights chose are corrected for. `decoupled`: each counts by how likely
    the newest weights were to choose it, at most 2 (Hilton et al. 2022). `vtrace`: so do the errors
    that follow it in its segment, at most 1 (Espeholt et al. 2018). `none`: as if they were new.
    None: `decoupled` in the learning mode `on_policy`, else `vtrace`."""
    max_staleness: Annotated[NonNegativeInt | None, for_ppo("experience.capacity")] = None
    """Segments begun by weights that are more versions old than this are not trained on; those that
    another policy of its group played are dated by that policy's newest. None: as `wait` has it,
    where the actor is at most one rollout ahead."""
    anneal_steps: PositiveInt | None = None
    """Trained steps over which the learning rate falls in a straight line to 0. None: it stays."""


PRESETS: dict[str, dict[str, Any]] = {
    "ppo": {
        "network": {"hidden": (64, 64), "activation": "tanh", "dueling": False},
        "learning_mode": "on_policy",
        "n_frames": 1,
        "n_steps": 1,
        "discount": 0.99,
        "learning_rate": 1e-3,
        "max_grad_norm": 0.5,
        "exploration": {"start": 1.0, "end": 1.0},
        "experience": {"segment_length": 32, "on_full": "wait"},
        "publish": {"every": 1},
    },
    "iqn": {"learning_mode": "off_policy"},
    "dqn": {"learning_mode": "off_policy"},
}
"""By algorithm, the defaults that differ from those of the fields."""


class PolicyConfig(Section):
    """One policy: its algorithm, network, hyperparameters, experience and publishing."""

    algorithm: Literal["iqn", "dqn", "ppo"] = "iqn"
    """`iqn`: implicit quantile networks (Dabney et al. 2018). `dqn`: double DQN (van Hasselt et
    al. 2016). `ppo`: proximal policy optimisation (Schulman et al. 2017); it has some defaults of
    its own."""
    learning_mode: Literal["on_policy", "off_policy", "hybrid"] = "off_policy"
    """What an update trains on. `on_policy`, for PPO: the newest rollout, once. `off_policy`: steps
    drawn from all that is kept; PPO draws whole segments, as many steps as a rollout has, for each
    rollout that is played. `hybrid`, for PPO: the newest rollout, joined by segments so drawn."""
    on_policy_share: Annotated[
        Share,
        Only(
            ("ppo",),
            when=lambda policy: policy.learning_mode == "hybrid",
            needs="{}learning_mode hybrid",
        ),
    ] = 0.5
    """`hybrid`: the share of an update's steps that are its newest rollout."""
    network: NetworkConfig = NetworkConfig()
    """The network."""
    n_frames: PositiveInt = 5
    """Observations stacked into one input, the newest last; never across an episode's start."""
    n_steps: Annotated[PositiveInt, for_values("ppo.gae_lambda")] = 3
    """Rewards summed before bootstrapping."""
    discount: Share = 0.95
    """Discount per step."""
    batch_size: Annotated[PositiveInt, for_values("ppo.rollout_length ppo.minibatches")] = 64
    """Samples in an update."""
    learning_rate: PositiveFloat = 5e-4
    """Step size of Adam."""
    adam_epsilon: PositiveFloat = 1e-5
    """Adam's denominator offset."""
    max_grad_norm: PositiveFloat = 10.0
    """The gradient's norm is clipped to this."""
    double: Annotated[bool, for_values()] = True
    """Choose the next action by the online network and value it by the target network."""
    huber: Annotated[PositiveFloat, for_values("ppo.value_clip")] = 1.0
    """Where the loss turns from quadratic to linear, in scaled units of reward."""
    reward_scale: PositiveFloat = 0.1
    """Rewards are multiplied by this before training; reported returns are not."""
    max_nonfinite: PositiveInt = 10
    """Updates in a row with a loss or weights that are not finite, after which the policy stops
    learning. Each such update is undone, and never published."""
    priority: PositiveFloat = 1.0
    """How often it is trained where the learner's process has not time for all it could do: so many
    updates to each update of a policy of priority 1 there. Between processes it does nothing."""
    time_budget: PositiveFloat | None = None
    """Seconds that an update may take, in `async`. IQN and DQN halve the batch while updates take
    longer, and double it again up to `batch_size`; PPO leaves out epochs that would take longer,
    by a clock for each group of a stack's policies that bring like amounts. None: no limit."""
    target_every: Annotated[PositiveInt, for_values()] = 200
    """Updates between two copies of the online network into the target network."""
    exploration: Annotated[ExplorationConfig, for_values("ppo.entropy_cost")] = ExplorationConfig()
    """Exploration."""
    experience: ExperienceConfig = ExperienceConfig()
    """Experience."""
    publish: PublishConfig = PublishConfig()
    """Publishing."""
    ppo: Annotated[PPOConfig, for_ppo()] = PPOConfig()
    """What only PPO has."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, data: Any) -> Any:
        """Put the algorithm's own defaults under what the user says."""
        if not isinstance(data, Mapping):
            return data
        preset = PRESETS.get(str(data.get("algorithm")), {})
        plain = {k: v.model_dump() if isinstance(v, Section) else v for k, v in data.items()}
        return overlay(preset, plain)

    @property
    def first_epsilon(self) -> float:
        """The exploration rate at its first step; 1 where a distribution explores by itself."""
        return 1.0 if self.takes_rollouts else self.exploration.start

    @property
    def last_epsilon(self) -> float:
        """The same once its decay is over."""
        return 1.0 if self.takes_rollouts else self.exploration.end

    @property
    def takes_rollouts(self) -> bool:
        """Whether it learns from whole segments, an update for each rollout that it has played."""
        return self.algorithm == "ppo"

    @property
    def replays(self) -> float:
        """PPO: steps drawn from what is kept, to each step of a rollout; 0: none are."""
        if not self.takes_rollouts or self.learning_mode == "on_policy":
            return 0.0
        if self.learning_mode == "off_policy":
            return 1.0
        return (1.0 - self.on_policy_share) / self.on_policy_share

    @property
    def correction(self) -> Literal["decoupled", "vtrace", "none"]:
        """How PPO corrects for steps that other weights chose."""
        usual: Literal["decoupled", "vtrace"] = "vtrace" if self.replays else "decoupled"
        return self.ppo.correction or usual

    @model_validator(mode="after")
    def _fits(self) -> PolicyConfig:
        if self.takes_rollouts:
            return self._fits_ppo()
        if self.learning_mode != "off_policy":
            raise ValueError(
                f"learning_mode is {self.learning_mode!r}, which is for ppo; {self.algorithm} "
                "learns off_policy"
            )
        for name in ("convolutions", "recurrent"):
            if getattr(self.network, name):
                raise ValueError(f"network.{name} is for ppo; {self.algorithm} has none")
        experience = self.experience
        if experience.learning_starts > experience.capacity:
            raise ValueError(
                f"experience.learning_starts is {experience.learning_starts}, more than the "
                f"{experience.capacity} steps of experience.capacity; lower the first"
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
        share = self.batch_size / (experience.replay_ratio or 1.0)
        if experience.on_full == "wait" and experience.capacity < share:
            raise ValueError(
                f"experience.capacity is {experience.capacity}, less than the {share:.0f} steps "
                "that pay for one batch; with experience.on_full 'wait' nobody would move"
            )
        return self

    def _fits_ppo(self) -> PolicyConfig:
        if self.learning_mode == "on_policy" and self.experience.group:
            raise ValueError(
                f"experience.group is {self.experience.group!r}, and in the learning_mode "
                "on_policy nobody learns from others; set learning_mode to off_policy or hybrid"
            )
        if self.learning_mode == "hybrid" and not 0.0 < self.on_policy_share < 1.0:
            raise ValueError(
                f"on_policy_share is {self.on_policy_share}, and hybrid needs a share between 0 "
                "and 1; the learning_modes off_policy and on_policy stand for 0 and 1"
            )
        if self.replays and self.ppo.normalise_rewards:
            raise ValueError(
                "ppo.normalise_rewards needs the learning_mode on_policy: it follows each stream's "
                "rewards in the order in which they came"
            )
        if self.experience.group and self.network.recurrent:
            raise ValueError(
                "experience.group is for policies without a memory: what another kept in mind is "
                f"of no use; network.recurrent is {self.network.recurrent}"
            )
        if self.network.noisy:
            raise ValueError("network.noisy is for iqn and dqn; ppo explores by its own entropy")
        if self.network.dueling:
            raise ValueError("network.dueling is for iqn and dqn; ppo has a value of its own")
        if self.network.recurrent and not self.network.shared:
            raise ValueError("network.recurrent needs network.shared: there is one memory")
        if self.network.recurrent and self.ppo.anchor_cost:
            raise ValueError(
                "ppo.anchor_cost is for policies without a memory, and network.recurrent is "
                f"{self.network.recurrent}; set one of them to 0"
            )
        return self


class TeamConfig(Section):
    """A team of a population."""

    policies: tuple[str, ...]
    """The policies that play for it."""
    agents: tuple[str, ...] = ()
    """The agents whose seats are its own. None: those that the game puts into a team of this
    name."""


class SnapshotsConfig(Section):
    """Frozen copies of what policies were, which play on and do not learn."""

    every: PositiveInt | None = None
    """Versions between two copies of a policy. None: not by versions."""
    win_rate: Annotated[
        Share | None,
        Only(
            when=lambda config: config.population.matchmaker != "fixed",
            needs="a population.matchmaker other than fixed",
        ),
    ] = None
    """A policy is copied once it wins this share of its matches against its copies, draws halved.
    None: not by wins."""
    games: Annotated[
        PositiveInt,
        Only(
            when=lambda config: config.population.snapshots.win_rate is not None,
            needs="population.snapshots.win_rate",
        ),
    ] = 100
    """Matches against its copies that a win rate must stand on."""
    keep: Annotated[
        PositiveInt,
        SNAPSHOTS,
    ] = 10
    """The most copies of a policy that play at a time."""
    share: Annotated[
        Share | None,
        Only(
            when=lambda config: (
                config.population.snapshots.on and config.population.matchmaker != "fixed"
            ),
            needs="population.snapshots.every or population.snapshots.win_rate, and a "
            "population.matchmaker other than fixed",
        ),
    ] = None
    """The share of seats that frozen copies take in a match, besides one that is always a live
    policy's. None: 0.5, or with `self_play` what `population.newest` leaves."""
    drop: Annotated[
        Literal["oldest", "weakest", "crowded"],
        SNAPSHOTS,
    ] = "oldest"
    """Which of them makes room for a new one: the `oldest`, the `weakest` by rating, or the most
    `crowded`: whose neighbours in time are closest, so that the rest spans the whole past."""

    @property
    def on(self) -> bool:
        """Whether there are any."""
        return self.every is not None or self.win_rate is not None


class BirthsConfig(Section):
    """Policies that are born, and retire, while the run goes on."""

    places: Annotated[NonNegativeInt, PLACES] = 0
    """Places for policies that are born later, `born_0`, `born_1` and so on. Each has a learner,
    asleep while it is empty, and the memory of its experience. The place of a policy that has
    retired is empty too."""
    every: Annotated[
        PositiveInt | None,
        Only(
            when=lambda config: config.population.births.places > 0,
            needs="population.births.places",
        ),
    ] = None
    """Matches between two births: a copy of the highest-rated policy begins in an empty place, and
    the lowest-rated one retires once that plays; both of those that may take every seat. None:
    births are for your own director."""
    games: Annotated[NonNegativeInt, BIRTHS] = 200
    """Games that a policy has played before it is judged."""
    confidence: Annotated[float, Field(ge=0.0, lt=1.0), BIRTHS] = 0.95
    """How probable it must be, by their ratings, that the highest-rated policy is better than the
    lowest-rated one, before that is replaced; allowing for their being picked out of many. Looked
    at anew every `every` matches."""


class PopulationConfig(Section):
    """Who plays whom. Without it, every agent of the game has a policy of its own."""

    matchmaker: str = "fixed"
    """`fixed`: the same seats for good. `random`: all seatings are equally likely. `round_robin`:
    every combination on every seat, in turn. `fitness`: equals by rating. `self_play`: against
    itself and its frozen copies. `prioritized`: against those one loses to. `teams`: the policies
    of one team against another's. Or your own, as `module:Class`."""
    policies: PositiveInt | tuple[str, ...] | None = None
    """How many policies there are, or their names. None: one for each agent, of its name; with
    `self_play`: one. `fixed`: agents take them in turn, so that with 1 all share one."""
    seats: Annotated[
        dict[str, tuple[str, ...]],
        Only(
            when=lambda config: config.population.dealt,
            needs="population.policies or another population.matchmaker",
        ),
    ] = {}
    """By policy, the agents whose seats it may take, where it may not take all. A matchmaker that
    seats it elsewhere, such as `fixed`, is refused."""
    teams: dict[str, TeamConfig] = {}
    """By team: `policies`, and the `agents` whose seats are its own."""
    newest: Annotated[
        Share,
        Only(
            when=lambda config: (
                config.population.matchmaker == "self_play"
                and config.population.snapshots.on
                and config.population.snapshots.share is None
            ),
            needs="population.matchmaker self_play, population.snapshots.every or "
            "population.snapshots.win_rate, and population.snapshots.share None",
        ),
    ] = 0.5
    """`self_play`: the share of the other seats that the live weights take; frozen copies take the
    rest, unless `population.snapshots.share` says how many."""
    window: Annotated[
        PositiveFloat,
        Only(
            when=lambda config: config.population.matchmaker == "fitness",
            needs="population.matchmaker fitness",
        ),
    ] = 4.0
    """`fitness`: the most that two ratings in a match may differ by; ratings begin at 25."""
    weighting: Annotated[
        Literal["hard", "even"],
        Only(
            when=lambda config: config.population.matchmaker == "prioritized",
            needs="population.matchmaker prioritized",
        ),
    ] = "hard"
    """`prioritized`: by the chance to lose to them, squared, or `even`: by the chance to lose times
    the chance to win."""
    options: Annotated[
        dict[str, Any],
        Only(
            when=lambda config: ":" in config.population.matchmaker,
            needs="a population.matchmaker of your own, as module:Class",
        ),
    ] = {}
    """Parameters of your own matchmaker by name."""
    snapshots: SnapshotsConfig = SnapshotsConfig()
    """Frozen copies."""
    births: BirthsConfig = BirthsConfig()
    """Births and retirements."""
    director: str = ""
    """Your own, as `module:Class`, which commands who is frozen, is born and retires, besides what
    `snapshots` and `births` do."""

    @property
    def dealt(self) -> bool:
        """Whether seats are dealt anew for each match, instead of every agent keeping its own."""
        return (
            self.matchmaker != "fixed"
            or self.policies is not None
            or self.snapshots.on
            or bool(self.teams)
            or self.births.places > 0
            or bool(self.director)
        )


class LearnersConfig(Section):
    """Where policies are trained."""

    processes: Annotated[PositiveInt | Literal["auto"], CHILDREN] = "auto"
    """Learner processes. `auto`: as few as keep up with the actors, as far as cores and memory
    allow; policies share a process in groups."""
    threads: PositiveInt | Literal["auto"] = "auto"
    """Threads of each learner process. `auto`: 1, or more where cores are left over and updates are
    much faster with them."""
    devices: tuple[str, ...] = ()
    """Devices dealt to the policies in turn, such as `cuda:0 cuda:1`. None named: every GPU there
    is, or else the CPU."""
    nice: Annotated[Annotated[int, Field(ge=0, le=19)] | Literal["auto"], CHILDREN] = "auto"
    """How far a learner process steps back in the scheduler's queue, so that the game goes on.
    `auto`: not at all where every process has a core, else 3, half the share of an actor: with
    more, other programs on a busy machine leave it next to nothing."""


class ActorConfig(Section):
    """Where the game is played."""

    processes: PositiveInt | Literal["auto"] = "auto"
    """Actor processes, each with its share of the copies; more than one only in `async`. `auto`: as
    many as keep the learners busy, as far as cores allow."""
    device: str = "cpu"
    """Device of the acting networks."""


class CheckpointConfig(Section):
    """What a run can go on from after it was stopped or killed, and a role after it died."""

    every: PositiveFloat = 60.0
    """Seconds between two checkpoints; a last one is written when the run ends."""
    keep: PositiveInt = 3
    """The newest checkpoints that are kept, besides the best."""
    replay: bool | None = None
    """Save experience too. None: in `sequential` and `lockstep`, where a resumed run then equals
    an uninterrupted one bit for bit, and not in `async`, where a learner collects afresh."""
    evaluate_episodes: NonNegativeInt = 20
    """Greedy episodes played on each checkpoint, to find the best. 0: keep no best."""
    write_limit: Annotated[PositiveFloat, CHILDREN] = 10.0
    """Seconds that a role has to write its part; the part before stands in for a later one."""


class SupervisionConfig(Section):
    """What happens to an actor or a learner that dies or hangs."""

    restarts: NonNegativeInt = 5
    """Restarts of one role within `window` that are granted; one more ends the run."""
    window: PositiveFloat = 600.0
    """Seconds over which restarts are counted."""
    backoff: PositiveFloat = 0.25
    """Seconds before the first restart; doubled for each further one within the window."""
    max_backoff: PositiveFloat = 30.0
    """The most seconds before a restart."""
    silence_limit: PositiveFloat = 30.0
    """Seconds without a sign of life after which a role is taken to hang, and is killed. Longer
    than the longest turn of the game and the longest update. Time does not count in which the
    coordinator was itself stopped, or in which the role computes and gets no processor."""


class RunConfig(Section):
    """The run as a whole: its end, its directory, what it writes."""

    turns: PositiveInt | None = 1_500_000
    """Turns to play, over all copies together. None: no such end."""
    seconds: PositiveFloat | None = None
    """Seconds to train. None: no such end."""
    directory: Path | None = None
    """The run directory. None: a new one under `runs/`, named by game and time."""
    log_every: PositiveFloat | Literal["auto"] = "auto"
    """Seconds between two lines of metrics. `auto`: a tenth of the time so far, from 0.25 to 5, so
    that a short run has curves too."""
    evaluate_episodes: NonNegativeInt = 200
    """Greedy episodes played after training."""
    evaluate_seconds: Annotated[
        PositiveFloat | None,
        Only(
            when=lambda config: (
                config.run.evaluate_episodes > 0 or config.checkpoint.evaluate_episodes > 0
            ),
            needs="run.evaluate_episodes or checkpoint.evaluate_episodes",
        ),
    ] = 60.0
    """Seconds that they may take; those that are over by then count. None: as long as it takes."""
    live: bool = True
    """Show the live view where the output is a terminal; else plain lines."""
    calibrate: NonNegativeFloat = 0.5
    """Seconds of a trial at the start, to choose processes and threads by what playing and training
    cost here; only where there is a choice, and for runs of more than 10,000 agent-steps. 0: they
    are chosen by the cores and the memory."""
    start_limit: Annotated[PositiveFloat, CHILDREN] = 120.0
    """Seconds that a process has to start, and that it may take to compile a function."""
    stop_limit: Annotated[PositiveFloat, CHILDREN] = 20.0
    """Seconds that a process has to stop before it is killed."""
    fallback: Annotated[bool, CHILDREN] = False
    """Where the system lets no process be started (no memory, no permission), play and train in
    this one, as with the schedule `sequential`, instead of ending."""


class Config(Section):
    """Everything about a run."""

    game: str = "treasure_hunt"
    """The game; `remuda games` lists them."""
    seed: NonNegativeInt = 0
    """The seed of every random stream of the run."""
    schedule: Literal["async", "sequential", "lockstep"] = "async"
    """`async`: the actor and the learners run side by side and nobody waits. `sequential`: one
    process plays, then trains, and repeats. `lockstep`: the same order across processes."""
    env: EnvConfig = EnvConfig()
    """The game."""
    policy: PolicyConfig = PolicyConfig()
    """What holds for every policy."""
    population: PopulationConfig = PopulationConfig()
    """Who plays whom."""
    policies: dict[str, dict[str, Any]] = {}
    """What differs for one policy, by its name: `--policies.agent_0.learning_rate 1e-3`."""
    actor: ActorConfig = ActorConfig()
    """The actor."""
    learners: LearnersConfig = LearnersConfig()
    """The learners."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Checkpoints."""
    supervision: Annotated[SupervisionConfig, CHILDREN] = SupervisionConfig()
    """Supervision."""
    run: RunConfig = RunConfig()
    """The run."""
    trace: Path | None = None
    """Write what each process did when into this file, as Chrome trace events for Perfetto."""

    @model_validator(mode="after")
    def _ends_and_policies_fit(self) -> Config:
        if self.run.turns is None and self.run.seconds is None:
            raise ValueError("run.turns and run.seconds are both None: the run would never end")
        policies = {f"policies.{name}": self.policy_of(name) for name in self.policies}
        if self.exact:
            for key, policy in {"policy": self.policy, **policies}.items():
                self._repeats_itself(key, policy)
        return self

    def _repeats_itself(self, key: str, policy: PolicyConfig) -> None:
        """Refuse what lets the clock or the scheduler decide in a run that repeats itself."""
        if policy.time_budget is not None:
            raise ValueError(
                f"{key}.time_budget goes by the clock, and a run with schedule "
                f"{self.schedule} repeats itself exactly; leave it out, or use async"
            )
        if policy.experience.replay_ratio is None and not policy.takes_rollouts:
            raise ValueError(
                f"{key}.experience.replay_ratio is None: training would never pause, and with "
                f"schedule {self.schedule} the game goes on once training pauses; give a number, "
                "such as 0.64, or use async"
            )

    @property
    def exact(self) -> bool:
        """Whether the schedule fixes the order of everything, so that a run repeats itself."""
        return self.schedule != "async"

    @property
    def saves_replay(self) -> bool:
        """Whether checkpoints hold experience."""
        return self.exact if self.checkpoint.replay is None else self.checkpoint.replay

    def policy_of(self, name: str) -> PolicyConfig:
        """The configuration of the policy `name`: `policy`, overlaid with its own differences."""
        own = self.policies.get(name)
        if not own:
            return self.policy
        try:
            base = self.policy.model_dump()
            algorithm = own.get("algorithm", base["algorithm"])
            if algorithm != base["algorithm"]:
                base = overlay(base, PRESETS.get(algorithm, {}))
            return PolicyConfig.model_validate(overlay(base, own))
        except ValidationError as error:
            raise ValueError(explain(error, PolicyConfig, f"policies.{name}.")) from None


def fields_of(model: type[BaseModel], prefix: str = "") -> dict[str, type[BaseModel] | None]:
    """Every dotted key under `model`, and the section that a key opens (None: it is a leaf)."""
    keys: dict[str, type[BaseModel] | None] = {}
    for name, info in model.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            keys[prefix + name] = section
            keys |= fields_of(section, f"{prefix}{name}.")
        else:
            keys[prefix + name] = None
    return keys


def unknown_key(key: str, model: type[BaseModel], prefix: str = "") -> str:
    """One line about a key that does not exist: the nearest one, or those of its section."""
    keys = fields_of(model)
    parent = key.rpartition(".")[0]
    siblings = [k for k in keys if k.rpartition(".")[0] == parent]
    leaf = {k.rpartition(".")[2]: k for k in keys}
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.8)
    near = near or [
        leaf[name] for name in difflib.get_close_matches(key.rpartition(".")[2], leaf, n=1)
    ]
    if near:
        return f"{prefix}{key} is no key of the configuration; did you mean {prefix}{near[0]}?"
    allowed = ", ".join(prefix + k for k in siblings or [k for k in keys if "." not in k])
    return f"{prefix}{key} is no key of the configuration; there are {allowed}"


def explain(error: ValidationError, model: type[BaseModel], prefix: str = "") -> str:
    """The first fault of a validation as one line: the key, what was found, what is allowed."""
    fault = error.errors(include_url=False)[0]
    # Pydantic adds the branch of a union that it tried; a user knows only the keys.
    keys = fields_of(model)
    key = ""
    for part in fault["loc"]:
        longer = f"{key}.{part}" if key else str(part)
        if fault["type"] != "extra_forbidden" and longer not in keys:
            break
        key = longer
    if fault["type"] == "extra_forbidden":
        return unknown_key(key, model, prefix)
    if fault["type"] == "value_error":
        message = str(fault["ctx"]["error"])
        branch = f"{key}." if key else ""
        return message if message.startswith("policies.") else f"{prefix}{branch}{message}"
    if fault["type"] == "missing":
        return f"{prefix}{key} is missing"
    said = fault["msg"]
    return f"{prefix}{key} is {fault['input']!r}: {said[0].lower()}{said[1:]}"


def load_config(data: Mapping[str, Any], source: str = "") -> Config:
    """Validate a tree of plain data, for example the content of a YAML file.

    Raises:
        ConfigError: the first unknown key or impossible value, in one line.
    """
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        where = f"{source}: " if source else ""
        raise ConfigError(where + explain(error, Config)) from None


def read_config(path: Path) -> dict[str, Any]:
    """The tree in a YAML file, not yet validated.

    Raises:
        ConfigError: the file is missing, no YAML, or no tree of keys.
    """
    import yaml

    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = " ".join(str(error).split())
        raise ConfigError(f"the configuration {path} is not YAML: {line}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"the configuration {path} must hold keys and values, as in `seed: 1`")
    return data


def write_config(config: Config, path: Path) -> None:
    """Write the whole tree as YAML.

    Raises:
        ConfigError: it holds something from Python that no file can hold.
    """
    path.write_text(config_text(config))


def config_text(config: Config) -> str:
    """The whole tree as YAML.

    Raises:
        ConfigError: it holds something from Python that no file can hold.
    """
    import yaml
    from pydantic_core import PydanticSerializationError

    try:
        return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    except PydanticSerializationError:
        for key, value in _strange(config.model_dump()):
            raise ConfigError(
                f"{key}: a {type(value).__module__}.{type(value).__qualname__} cannot be written "
                "into the run's configuration; give plain numbers, texts, lists and mappings"
            ) from None
        raise


def _strange(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """What of a tree is not plain, by its key."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _strange(part, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from _strange(part, key)
    elif not isinstance(value, str | int | float | bool | Path | None):
        yield key, value
