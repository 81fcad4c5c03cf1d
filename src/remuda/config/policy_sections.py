"""The sections of a policy's configuration: network, exploration, experience and publishing."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    PositiveFloat,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from remuda.config.plain import Options
from remuda.config.sections import (
    Count,
    Only,
    Section,
    Share,
    Size,
    SizeOrNone,
    Width,
    WidthOrNone,
    for_ppo,
    for_values,
)


def _or_none(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return None if value is None else check(value)


def _pauses(ratio: float) -> float:
    if math.isinf(ratio):
        raise PydanticCustomError(
            "infinite", "give a finite number, such as 0.64, or None, which trains without pause"
        )
    return ratio


ByNetwork = Annotated[Size, WrapValidator(_or_none)]
"""A number, or None until the network is made: `PolicyConfig.with_network` puts a number there."""


class NetworkConfig(Section):
    """The network of a policy."""

    module: str = ""
    """Your own, as `module:Name` of a class or function that returns a torch.nn.Module: it maps
    observations [B, *shape] to features [B, F], in place of convolutions and hidden layers."""
    options: Annotated[
        Options,
        Only(when=lambda policy: bool(policy.network.module), needs="{}network.module"),
    ] = {}
    """What your own module is made with, by name."""
    hidden: tuple[Width, ...] = (250, 250)
    """Units of each hidden layer; with `module`: none, or those between it and the head. IQN
    applies its quantile embedding after the first, or after what comes before them."""
    activation: Annotated[
        Literal["relu", "tanh"],
        Only(
            when=lambda policy: bool(policy.network.hidden or policy.network.convolutions),
            needs="{}network.hidden",
        ),
    ] = "relu"
    """What follows each hidden layer. PPO: tanh."""
    convolutions: tuple[tuple[Width, Width, Width], ...] = ()
    """For images: [channels,kernel,stride] of each layer before the hidden ones."""
    layout: Annotated[
        Literal["auto", "hwc", "chw"],
        Only(when=lambda policy: bool(policy.network.convolutions), needs="{}network.convolutions"),
    ] = "auto"
    """The axes of images: height, width, channels or channels, height, width. `auto`: as the game
    declares them, else the two axes that are most alike are height and width; a run says what it
    took, and asks where it cannot tell."""
    recurrent: WidthOrNone = 0
    """Units of a gated recurrent layer (Cho et al. 2014). 0: none. PPO and DQN: after the hidden
    ones. IQN: before its quantile embedding. IQN and DQN then learn from whole segments (as R2D2,
    Kapturowski et al. 2019), with a `batch_size` of 256 and an `experience.segment_length` of 32
    unless you say others."""
    shared: Annotated[bool | None, for_ppo()] = None
    """PPO: the policy and the value share the hidden layers; else each has its own. None: they
    share where the network is recurrent, has convolutions, or is a `module`."""
    dueling: bool = True
    """IQN and DQN: split the last layer into a state value and advantages (Wang et al. 2016)."""
    noisy: bool = False
    """Explore by noisy linear layers (Fortunato et al. 2018) after the first layer. In evaluations,
    tournaments and `Policy.act` they act on their means, sampled or not."""

    @property
    def serves_both(self) -> bool:
        """Whether policy and value share it.

        By default hidden layers, which are cheap, are not shared: that failed in worlds whose
        episodes are cut off after a few steps (docs/worlds.md). Of memories there is only one;
        convolutions and modules of the user's are most of an update, and shared elsewhere too
        (Raffin et al. 2021).
        """
        if self.shared is not None:
            return self.shared
        return bool(self.recurrent or self.convolutions or self.module)


class ExplorationConfig(Section):
    """Epsilon-greedy exploration; epsilon travels with the published weights."""

    start: Share = 1.0
    """Epsilon at the policy's first step."""
    end: Share = 0.05
    """Epsilon once the decay is over."""
    decay_steps: Count = 100_000
    """The policy's own steps over which epsilon falls in a straight line."""


class ExperienceConfig(Section):
    """What a policy remembers, and how much it trains on it."""

    capacity: Annotated[
        Count,
        Only(
            when=lambda policy: policy.keeps_experience,
            needs="{0}learning_mode off_policy or hybrid; a rollout has {0}ppo.rollout_length",
        ),
    ] = 100_000
    """The most steps that are kept; the oldest segment makes room. A segment holds one episode at
    most, so episodes shorter than `segment_length` leave room empty: with a mean of 3 steps and
    segments of 100 about 3,000 of 100,000 steps are kept. In the learning mode `on_policy`: what
    rollouts need."""
    segment_length: ByNetwork = 100
    """The most steps in one segment. PPO: 32. Where episodes are much shorter, set it to their mean
    length: else `capacity` is not reached, and PPO's rollouts end early. A run warns when less than
    half of either is reached. None: as with `batch_size`."""
    burn_in: Annotated[
        SizeOrNone,
        Only(
            "transitions",
            when=lambda policy: bool(policy.network.recurrent or policy.network.module),
            needs="{}network.recurrent",
        ),
    ] = 0
    """IQN and DQN with a recurrent network: first steps of a segment that are not trained on, but
    bring the state that older weights left up to date. None where an episode begins."""
    replay_ratio: Annotated[
        Annotated[PositiveFloat, AfterValidator(_pauses)] | None,
        Only(
            when=lambda policy: policy.learning_mode == "off_policy",
            needs="{0}learning_mode off_policy; a rollout is trained on {0}ppo.epochs times",
        ),
    ] = 0.64
    """Training samples per collected step, at most. IQN and DQN: None trains without pause, however
    much the processor's scheduler happens to give, in `async` alone. In `sequential` and `lockstep`
    the game waits for training: at most 1,000 updates for each step. PPO in the learning mode
    `off_policy`: None, its default, makes one update of `ppo.epochs` for each rollout that is
    played; below `ppo.epochs` it leaves out updates."""
    learning_starts: Annotated[Count, for_values("ppo.rollout_length")] = 2_000
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
    prioritised: Annotated[Share, for_values()] = 0.0
    """How much more often steps are drawn whose values were further off: the exponent alpha of
    prioritised replay (Schaul et al. 2016), such as 0.6. What is drawn more often counts less; that
    makes up for it the more, the further `exploration.decay_steps` is over. 0: all alike."""
    group: str = ""
    """Policies that name the same group learn from what all of them live through, not only from
    their own. Empty: each from its own. Not in the learning mode `on_policy`."""


class PublishConfig(Section):
    """How a learner hands its weights to the actor."""

    mode: Literal["snapshot", "double_buffer"] = "double_buffer"
    """Both modes keep two copies of the weights in shared memory, since one is torn while it is
    written, and for good if its learner dies then. `snapshot`: actors always read the same copy,
    which is overwritten in place; the other is written first, so a publication takes twice as long.
    `double_buffer`: each publication writes the copy that actors do not read, then they switch."""
    every: Count = 10
    """Updates between two publications."""
