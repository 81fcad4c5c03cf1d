"""The sections of a policy's configuration: network, exploration, experience, its algorithm."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    FiniteFloat,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from remuda.config.plain import Options
from remuda.config.sections import (
    Count,
    CountOrNone,
    Finite,
    Only,
    Section,
    Share,
    Size,
    SizeOrNone,
    Width,
    WidthOrNone,
    at_most,
)


def _pauses(ratio: float) -> float:
    if math.isinf(ratio):
        raise PydanticCustomError(
            "infinite", "give a finite number, such as 0.64, or None, which trains without pause"
        )
    return ratio


ByNetwork = Annotated[
    Size, WrapValidator(lambda value, check: None if value is None else check(value))
]
"""A number, or None until `PolicyConfig.with_network` fills it in."""


class NetworkConfig(Section):
    """The network of a policy."""

    module: str = ""
    """Your own network, as `module:Name` of a class or function that returns a torch.nn.Module. The
    module maps observations [B, *shape] to features [B, F] and replaces convolutions and hidden
    layers. With the attribute `takes_parts` it gets a dictionary of a `Dict` or `Tuple`
    observation's parts."""
    options: Annotated[Options, Only(needs="{}network.module")] = {}
    """Arguments of `module`."""
    value_module: Annotated[str, Only("rollouts")] = ""
    """PPO and MAPPO: the value network's own module, as `module`; policy and value then share
    nothing. It maps everything that the value network gets (`value.input`), in one row: [B, N]."""
    value_options: Annotated[Options, Only(needs="{}network.value_module")] = {}
    """Arguments of `value_module`."""
    hidden: tuple[Width, ...] = (250, 250)
    """Units of each hidden layer. With `module`: layers between the module and the head, none by
    default. IQN multiplies its quantile embedding with the output of the first hidden layer, or of
    the convolutions or module if there are any."""
    activation: Annotated[
        Literal["relu", "tanh"],
        Only(
            when=lambda policy: bool(policy.network.hidden or policy.network.convolutions),
            needs="{}network.hidden",
        ),
    ] = "relu"
    """Activation after each hidden layer. PPO's default is tanh."""
    convolutions: tuple[tuple[Width, Width, Width], ...] = ()
    """For images: [channels,kernel,stride] of each convolution before the hidden layers."""
    padding: Annotated[Literal["valid", "same"], Only(needs="{}network.convolutions")] = "valid"
    """Padding of convolutions: `valid` adds none; `same` adds zeros around the image, so that a
    stride of 1 keeps its height and width. Use `same` for boards of few cells."""
    layout: Annotated[Literal["auto", "hwc", "chw"], Only(needs="{}network.convolutions")] = "auto"
    """Axis order of images: `hwc` (height, width, channels) or `chw`. `auto`: as the environment
    declares it, else the two axes most similar in size are height and width; pixels may also be
    recognised by 1, 3 or 4 channels. A run reports its choice, and refuses ambiguous shapes."""
    recurrent: WidthOrNone = 0
    """Units of a gated recurrent layer (GRU, Cho et al. 2014); 0: none. PPO and DQN place it after
    the hidden layers, IQN before its quantile embedding. IQN and DQN then learn from whole segments
    (as R2D2, Kapturowski et al. 2019), and their defaults are `batch_size` 256 and
    `experience.segment_length` 32."""
    shared: Annotated[bool | None, Only("rollouts")] = None
    """PPO: policy and value share the hidden layers. False: each has separate ones. None: they
    share if the network is recurrent, has convolutions, or is a `module`."""
    dueling: bool = True
    """IQN and DQN: split the last layer into a state value and advantages (Wang et al. 2016)."""
    noisy: bool = False
    """Explore by noisy linear layers (NoisyNet, Fortunato et al. 2018) after the first layer.
    Evaluations, tournaments and `Policy.act` always use the mean weights."""

    @property
    def serves_both(self) -> bool:
        """Return whether policy and value share the network.

        Hidden layers are cheap and not shared by default: sharing failed in environments with short
        truncated episodes (docs/worlds.md). There is only one recurrent state; convolutions and
        custom modules dominate the cost of an update, and are commonly shared (Raffin et al. 2021).
        """
        if self.shared is not None:
            return self.shared
        return bool(self.recurrent or self.convolutions or self.module)


class ValueConfig(Section):
    """The value network of PPO and MAPPO."""

    input: Annotated[
        Literal["observation", "joint", "state", "state_or_joint"], Only("rollouts")
    ] = "observation"
    """Input of the value network, besides the agent's observation. `observation`: nothing else.
    `joint`: a centralised critic (CTDE), with the observations of the agent's team, or of all
    agents if it has no team. `state`: a centralised critic with the state of the environment, such
    as `state()` of a parallel PettingZoo environment. `state_or_joint`, MAPPO's default: `state` if
    the environment has one, else `joint`. Policies always act on their own observation alone."""


class ExplorationConfig(Section):
    """Epsilon-greedy exploration; epsilon is published with the weights."""

    start: Share = 1.0
    """Epsilon at the policy's first step."""
    end: Share = 0.05
    """Epsilon after the decay."""
    decay_steps: Count = 100_000
    """Steps of the policy over which epsilon falls linearly."""


class ExperienceConfig(Section):
    """The experience of a policy, and how often the policy trains on it."""

    capacity: Annotated[
        Count,
        Only(needs="{0}learning_mode off_policy or hybrid; a rollout has {0}ppo.rollout_length"),
    ] = 100_000
    """Maximum steps in the replay memory, however long episodes are; the oldest segment is dropped
    first. With `learning_mode on_policy`, rollouts determine the size."""
    segment_length: ByNetwork = 100
    """Consecutive steps of an agent in a segment, which may hold several short episodes; PPO's
    default is 32. Returns, GAE and recurrent states never cross an episode, and are cut at a
    segment's end. PPO uses shorter segments if a rollout is not a multiple of this length; if no
    length above half of it fits, rollouts are a few steps longer. None, the default with
    `network.module`: 32 if the module is recurrent, else 100."""
    burn_in: Annotated[
        SizeOrNone,
        Only(
            "transitions",
            when=lambda policy: bool(policy.network.recurrent or policy.network.module),
            needs="{}network.recurrent",
        ),
    ] = 0
    """IQN and DQN with a recurrent network: steps at the start of a segment that only warm up the
    recurrent state and are not trained on. Segments that start an episode need none."""
    replay_ratio: Annotated[
        Annotated[PositiveFloat, AfterValidator(_pauses)] | None,
        Only(needs="{0}learning_mode off_policy; a rollout is trained on {0}ppo.epochs times"),
    ] = 0.64
    """Maximum training samples per collected step. IQN and DQN: with None, allowed in `async` only,
    the learner trains without pause. In `sequential` and `lockstep` the environment waits for
    training, so at most 1,000 updates per step are allowed. PPO with `learning_mode off_policy`:
    None, its default, makes one update of `ppo.epochs` epochs for each rollout; a value below
    `ppo.epochs` skips updates."""
    learning_starts: Annotated[Count, Only("transitions", instead="ppo.rollout_length")] = 2_000
    """Steps collected before the first update."""
    on_full: Literal["overwrite", "wait"] = "overwrite"
    """`overwrite`: the actor overwrites the oldest steps and never waits. `wait`: it waits while
    training at the replay ratio is more than `max_lead` steps behind, or, with PPO, while the
    learner has not taken a complete rollout. PPO with `overwrite`: learners take the newest
    complete rollout, and skipped rollouts count as lost."""
    max_lead: Annotated[Count | None, Only("transitions", needs="{}experience.on_full wait")] = None
    """`wait`: maximum steps that training at the replay ratio may be behind, but not less than the
    steps collected per batch. None, or more than `capacity`: `capacity`. SAC's default is 1,000, so
    that it makes its updates in `async` too."""
    wait_limit: Annotated[PositiveFloat, Only(needs="{}experience.on_full wait")] = 2.0
    """`wait`: maximum seconds that the actor waits for a learner that takes no steps. It waits for
    the mean duration of two of that learner's updates, at least 0.2 seconds and at most this value.
    Then the actor overwrites the oldest steps until the learner takes some again."""
    prioritised: Annotated[Share, Only("transitions")] = 0.0
    """Exponent alpha of prioritised replay (Schaul et al. 2016), such as 0.6: steps with larger TD
    errors are drawn more often. Importance weights correct for this increasingly over
    `exploration.decay_steps`. 0: uniform."""
    group: str = ""
    """Policies with the same group learn from each other's experience too. Empty: each learns only
    from its own. Not with `learning_mode on_policy`."""


class PublishConfig(Section):
    """Publication of a learner's weights to the actors."""

    mode: Literal["snapshot", "double_buffer"] = "double_buffer"
    """`double_buffer`: the learner writes the copy that actors do not read, then actors switch to
    it. `snapshot`: actors always read the same copy; the learner writes the other one first, so
    publishing takes twice as long. Both keep two copies in shared memory, because a learner that
    dies while writing leaves one incomplete."""
    every: Count = 10
    """Updates between two publications."""


MOST_PARTS = at_most(10**6, "since each needs a gradient step")
FEWEST, MOST = 4, 32  # the default range of minibatches per epoch; larger updates have more
LARGEST = 1_300
"""Maximum steps of a default minibatch, if there are fewer than 32 minibatches. The steps of an
update vary by up to a segment around numbers that are usually round or powers of 2. This maximum is
neither, so that updates of a run have the same number of minibatches."""


class QLearningConfig(Section):
    """Settings that both DQN and IQN have, each in its own section."""

    double: Annotated[bool, Only(instead="dqn.double iqn.double")] = True
    """Choose the next action with the online network and value it with the target network (van
    Hasselt et al. 2016)."""
    huber: Annotated[
        PositiveFloat,
        Field(allow_inf_nan=False),
        Only(instead="dqn.huber iqn.huber ppo.value_clip"),
    ] = 1.0
    """Error beyond which the loss is linear instead of quadratic, in units of the scaled reward."""
    target_every: Annotated[Count, Only(instead="dqn.target_every iqn.target_every")] = 200
    """Updates between two copies of the online network into the target network."""


class DQNConfig(QLearningConfig):
    """Settings of DQN (Mnih et al. 2015) and of custom algorithms that take transitions."""


class IQNConfig(QLearningConfig):
    """Settings of IQN (Dabney et al. 2018)."""

    quantiles: Width = 12
    """Quantiles drawn per sample in an update, and number of midpoints used to act."""
    cosines: Width = 64
    """Cosines that embed a quantile (Dabney et al. 2018, equation 4)."""


class SACConfig(Section):
    """Settings of SAC (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications")."""

    learn_temperature: bool = True
    """Learn the temperature, so that the policy's entropy approaches `target_entropy`."""
    temperature: Finite = 1.0
    """Weight of the entropy, in units of the scaled reward. With `learn_temperature`, the initial
    weight; policies with `init_from` continue with the temperature of those weights."""
    target_entropy: Annotated[FiniteFloat | None, Only(needs="{}sac.learn_temperature")] = None
    """Target of the policy's entropy, in nats. None: minus the number of action dimensions; for
    discrete actions, half of the logarithm of the number of allowed actions."""
    tau: Annotated[
        float, Field(gt=0.0, le=1.0), Only(instead="dqn.target_every iqn.target_every")
    ] = 0.005
    """Share of the way that target critics move to the critics in each update."""


class PPOConfig(Section):
    """Settings of PPO (Schulman et al. 2017)."""

    rollout_length: Annotated[Size, Only(instead="batch_size")] = 128
    """Turns in a rollout for each stream (a seat in one environment copy); an update trains on
    streams x turns steps."""
    epochs: Annotated[Size, Only(instead="experience.replay_ratio")] = 4
    """Passes of an update over its rollout."""
    minibatches: Annotated[
        Annotated[PositiveInt, MOST_PARTS] | None, Only(instead="batch_size")
    ] = None
    """Minibatches per epoch, each with a gradient step. None: 4, or 8, 16 or 32 if minibatches
    would exceed 1,300 steps, counting all seats and copies that the policy plays."""
    gae_lambda: Annotated[Share, Only(instead="n_steps")] = 0.95
    """Lambda of generalised advantage estimation (GAE, Schulman et al. 2016)."""
    clip: PositiveFloat = 0.2
    """Clip range of the probability ratio around 1."""
    value_clip: Annotated[PositiveFloat | None, Only(instead="dqn.huber iqn.huber")] = None
    """Clip range of a value's change in one update, in the units in which values are learned. None:
    no clip."""
    value_cost: NonNegativeFloat = 0.5
    """Weight of the value loss."""
    entropy_cost: Annotated[NonNegativeFloat, Only(instead="exploration.end")] = 0.01
    """Weight of the entropy bonus."""
    anchor_cost: NonNegativeFloat = 0.0
    """Weight of KL(policy, anchor), where the anchor is an earlier policy. It stabilises self-play
    (as in magnetic mirror descent, Sokota et al. 2023)."""
    anchor_every: Annotated[Count, Only(needs="{}ppo.anchor_cost")] = 100
    """Updates between two copies of the policy into the anchor; for `average`, the time constant in
    updates."""
    anchor: Annotated[Literal["copy", "average"], Only(needs="{}ppo.anchor_cost")] = "copy"
    """`copy`: the anchor is an earlier copy of the policy. `average`: it is a moving average of the
    policy's weights, which moves 1 / `anchor_every` of the way to them with each update. Averaging
    removes the noise of single updates and comes closer to an equilibrium."""
    target_kl: PositiveFloat | None = None
    """End an update early once the policy has moved by 1.5 times this KL divergence, in nats. None:
    never."""
    normalise_advantages: bool = True
    """Normalise the advantages of each minibatch to mean 0 and standard deviation 1."""
    normalise_values: bool = True
    """Normalise value targets by their running mean and standard deviation (PopArt, van Hasselt et
    al. 2016), so the scale of rewards, and `reward_scale`, matter little."""
    normalise_observations: bool = False
    """Normalise each input by its running mean and standard deviation, clipped to [-10, 10]."""
    normalise_rewards: Annotated[bool, Only(instead="reward_scale")] = False
    """Divide rewards by the standard deviation of their running discounted sum. Truncation does not
    reset the sum."""
    correction: Literal["decoupled", "vtrace", "none"] | None = None
    """Off-policy correction for steps of older weights. `decoupled`: weight each step by its
    probability ratio to the newest weights, at most 2 (Hilton et al. 2022). `vtrace`: also weight
    later errors in the step's segment, at most 1 (Espeholt et al. 2018). `none`: no correction.
    None: `decoupled` with `learning_mode on_policy`, else `vtrace`."""
    correction_limit: Annotated[
        PositiveFloat | None,
        Only(
            when=lambda policy: policy.correction != "none",
            needs="{}ppo.correction decoupled or vtrace",
        ),
    ] = None
    """The largest weight of a step in `correction`. None: 2 with `decoupled`, 1 with `vtrace`.
    """
    max_staleness: Annotated[CountOrNone | None, Only(instead="experience.capacity")] = None
    """Do not train on segments played by weights that are more than this many versions old. If
    another policy of `experience.group` played them, that policy's newest version counts. None: no
    limit; with `on_full wait` the actor is at most one rollout ahead, in a population two."""
    anneal_steps: Count | None = None
    """Trained steps over which the learning rate falls linearly to 0. None: it is constant."""

    def parts(self, steps: float) -> int:
        """Return the minibatches per epoch for an update of `steps` steps.

        The default size of minibatches is bounded: with 4 minibatches for three seats of 64 copies,
        PPO made too few gradient steps (docs/worlds.md, "What PPO's defaults come to").
        """
        if self.minibatches is not None:
            return self.minibatches
        parts = FEWEST
        while parts < MOST and steps > parts * LARGEST:
            parts *= 2
        return parts

    def largest_part(self, steps: float) -> float:
        """Return the maximum steps of a minibatch, for updates of at most `steps` steps."""
        if self.minibatches is not None:
            return steps / self.minibatches
        return min(steps / FEWEST, max(LARGEST, steps / MOST))
