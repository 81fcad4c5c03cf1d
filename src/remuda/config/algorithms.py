"""The sections of a policy that belong to one algorithm."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from remuda.config.sections import Count, CountOrNone, Only, Section, Share, Size, Width, at_most

MOST_PARTS = at_most(10**6, "each with a gradient step")
FEWEST, MOST = 4, 32  # the default range of minibatches per epoch; larger updates have more
LARGEST = 1_300
"""Steps per default minibatch, while there are fewer than `MOST`. It is neither a round number nor
a power of 2, since updates vary by up to a segment and must not straddle an edge."""


class QLearningConfig(Section):
    """Settings that DQN and IQN share, each with its own values."""

    double: Annotated[bool, Only(instead="dqn.double iqn.double")] = True
    """Choose the next action by the online network and value it by the target network (van Hasselt
    et al. 2016)."""
    huber: Annotated[
        PositiveFloat,
        Field(allow_inf_nan=False),
        Only(instead="dqn.huber iqn.huber ppo.value_clip"),
    ] = 1.0
    """Error beyond which the loss is linear instead of quadratic, in scaled units of reward."""
    target_every: Annotated[Count, Only(instead="dqn.target_every iqn.target_every")] = 200
    """Updates between two copies of the online network into the target network."""


class DQNConfig(QLearningConfig):
    """Settings of DQN (Mnih et al. 2015) and of custom algorithms that take transitions."""


class IQNConfig(QLearningConfig):
    """Settings of IQN (Dabney et al. 2018)."""

    quantiles: Width = 12
    """Quantiles drawn for an update, and midpoints used to act."""
    cosines: Width = 64
    """Cosines that embed a quantile (Dabney et al. 2018, equation 4)."""


class PPOConfig(Section):
    """Settings of PPO (Schulman et al. 2017)."""

    rollout_length: Annotated[Size, Only(instead="batch_size")] = 128
    """Turns per stream in a rollout; an update trains on streams x turns steps."""
    epochs: Annotated[Size, Only(instead="experience.replay_ratio")] = 4
    """Passes of an update over its rollout."""
    minibatches: Annotated[
        Annotated[PositiveInt, MOST_PARTS] | None, Only(instead="batch_size")
    ] = None
    """Minibatches per epoch, each with a gradient step. None: 4, or 8, 16 or 32 if minibatches
    would exceed 1,300 steps, counting all seats and copies that the policy plays."""
    gae_lambda: Annotated[Share, Only(instead="n_steps")] = 0.95
    """Decay of temporal-difference errors in generalised advantages (Schulman et al. 2016)."""
    clip: PositiveFloat = 0.2
    """The probability ratio is clipped this far from 1."""
    value_clip: Annotated[PositiveFloat | None, Only(instead="dqn.huber iqn.huber")] = None
    """Clip of a value's change in one update, in the units in which values are learned. None: no
    clip."""
    value_cost: NonNegativeFloat = 0.5
    """Weight of the value loss."""
    entropy_cost: Annotated[NonNegativeFloat, Only(instead="exploration.end")] = 0.01
    """Weight of the entropy bonus."""
    anchor_cost: NonNegativeFloat = 0.0
    """Weight of KL(policy, anchor), where the anchor is an earlier policy. It stabilises self-play
    (as in magnetic mirror descent, Sokota et al. 2023)."""
    anchor_every: Annotated[
        Count, Only(when=lambda policy: policy.ppo.anchor_cost > 0, needs="{}ppo.anchor_cost")
    ] = 100
    """Updates after which the anchor becomes a copy of the policy; for `average`, the time constant
    in updates."""
    anchor: Annotated[
        Literal["copy", "average"],
        Only(when=lambda policy: policy.ppo.anchor_cost > 0, needs="{}ppo.anchor_cost"),
    ] = "copy"
    """`copy`: the anchor is an earlier copy of the policy. `average`: it is a moving average of its
    weights, which moves 1 / `anchor_every` of the way with each update. Averaging removes the
    noise of single updates and comes closer to an equilibrium."""
    target_kl: PositiveFloat | None = None
    """End an update early once the policy has moved by 1.5 times this KL divergence, in nats. None:
    never."""
    normalise_advantages: bool = True
    """Normalise the advantages of each minibatch to mean 0 and standard deviation 1."""
    normalise_values: bool = True
    """Normalise value targets by their running mean and standard deviation (PopArt, van Hasselt et
    al. 2016), so the scale of rewards, and `reward_scale`, matter little."""
    normalise_observations: bool = False
    """Normalise each input by its running mean and standard deviation, clipped to 10."""
    normalise_rewards: Annotated[bool, Only(instead="reward_scale")] = False
    """Divide rewards by the standard deviation of their running discounted sum. Truncation does not
    reset the sum."""
    correction: Literal["decoupled", "vtrace", "none"] | None = None
    """Off-policy correction for steps of older weights. `decoupled`: weigh each step by its
    probability ratio to the newest weights, at most 2 (Hilton et al. 2022). `vtrace`: also weigh
    later errors in its segment, at most 1 (Espeholt et al. 2018). `none`: no correction. None:
    `decoupled` in the learning mode `on_policy`, else `vtrace`."""
    correction_limit: Annotated[
        PositiveFloat | None,
        Only(
            when=lambda policy: policy.correction != "none",
            needs="{}ppo.correction decoupled or vtrace",
        ),
    ] = None
    """The largest weight of a step in that correction. None: 2 with `decoupled`, 1 with `vtrace`.
    """
    max_staleness: Annotated[CountOrNone | None, Only(instead="experience.capacity")] = None
    """Do not train on segments whose weights are more than this many versions old. Segments that
    another policy of the group played count from that policy's newest version. None: as with
    `wait`, where the actor is at most one rollout ahead."""
    anneal_steps: Count | None = None
    """Trained steps over which the learning rate falls linearly to 0. None: it is constant."""

    def parts(self, steps: float) -> int:
        """Return the minibatches per epoch for an update of so many steps.

        Their default size is bounded: with 4 minibatches of three seats of 64 copies PPO made too
        few gradient steps (docs/worlds.md, "What PPO's defaults come to").
        """
        if self.minibatches is not None:
            return self.minibatches
        parts = FEWEST
        while parts < MOST and steps > parts * LARGEST:
            parts *= 2
        return parts

    def largest_part(self, steps: float) -> float:
        """Return the most steps of a minibatch of an update of up to so many steps."""
        if self.minibatches is not None:
            return steps / self.minibatches
        return min(steps / FEWEST, max(LARGEST, steps / MOST))
