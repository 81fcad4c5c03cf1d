"""The sections of a policy that belong to one algorithm each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from remuda.config.sections import Count, CountOrNone, Only, Section, Share, Size, Width, at_most

MOST_PARTS = at_most(10**6, "each with a gradient step of its own")
FEWEST, MOST = 4, 32
"""Minibatches of an epoch, where nobody says how many: the more, the more steps it has."""
LARGEST = 1_300
"""Steps of such a minibatch, as long as there are fewer than `MOST`. Round amounts and powers of 2
are no edges by it: an update has up to a segment more than it asks for, so that on an edge one
would have twice the minibatches of another."""


class QLearningConfig(Section):
    """What DQN and IQN have alike, each with values of its own."""

    double: Annotated[bool, Only(instead="dqn.double iqn.double")] = True
    """Choose the next action by the online network and value it by the target network (van Hasselt
    et al. 2016)."""
    huber: Annotated[
        PositiveFloat,
        Field(allow_inf_nan=False),
        Only(instead="dqn.huber iqn.huber ppo.value_clip"),
    ] = 1.0
    """Where the loss turns from quadratic to linear, in scaled units of reward."""
    target_every: Annotated[Count, Only(instead="dqn.target_every iqn.target_every")] = 200
    """Updates between two copies of the online network into the target network."""


class DQNConfig(QLearningConfig):
    """What only DQN has (Mnih et al. 2015), and algorithms of your own that take transitions."""


class IQNConfig(QLearningConfig):
    """What only IQN has (Dabney et al. 2018)."""

    quantiles: Width = 12
    """How many quantiles are drawn for an update, and how many midpoints are used to act."""
    cosines: Width = 64
    """Cosines that embed a quantile (Dabney et al. 2018, equation 4)."""


class PPOConfig(Section):
    """What only PPO has (Schulman et al. 2017)."""

    rollout_length: Annotated[Size, Only(instead="batch_size")] = 128
    """Turns that each stream plays for one update; an update trains on streams x turns steps."""
    epochs: Annotated[Size, Only(instead="experience.replay_ratio")] = 4
    """Times that an update goes through its steps."""
    minibatches: Annotated[
        Annotated[PositiveInt, MOST_PARTS] | None, Only(instead="batch_size")
    ] = None
    """Parts of an epoch, with a gradient step each. None: 4, or 8, 16 or 32 where parts would have
    more than 1,300 steps: by what an update has of all seats and copies that the policy plays."""
    gae_lambda: Annotated[Share, Only(instead="n_steps")] = 0.95
    """Decay of temporal-difference errors in advantages (Schulman et al. 2016)."""
    clip: PositiveFloat = 0.2
    """How far the probability ratio counts from 1."""
    value_clip: Annotated[PositiveFloat | None, Only(instead="dqn.huber iqn.huber")] = None
    """How far a value counts from what it was before the update, in the units in which values are
    learned. None: any distance."""
    value_cost: NonNegativeFloat = 0.5
    """Weight of the value loss."""
    entropy_cost: Annotated[NonNegativeFloat, Only(instead="exploration.end")] = 0.01
    """Weight of the entropy that is kept up."""
    anchor_cost: NonNegativeFloat = 0.0
    """Weight of the divergence KL(policy, anchor), where the anchor is the policy as it was: it
    holds play against oneself together (as in magnetic mirror descent, Sokota et al. 2023)."""
    anchor_every: Annotated[
        Count,
        Only(when=lambda policy: policy.ppo.anchor_cost > 0, needs="{}ppo.anchor_cost"),
    ] = 100
    """Updates after which the policy becomes its own anchor; of an average, over how many it goes
    back."""
    anchor: Annotated[
        Literal["copy", "average"],
        Only(when=lambda policy: policy.ppo.anchor_cost > 0, needs="{}ppo.anchor_cost"),
    ] = "copy"
    """What the anchor is: a `copy` of the policy as it was, or the moving `average` of its weights,
    which comes 1 / `anchor_every` of the way nearer with each update: the noise of single updates
    is averaged out of it, and the policy that is held by it comes nearer to an equilibrium."""
    target_kl: PositiveFloat | None = None
    """An update ends early once the policy has moved by 1.5 times this, in nats. None: never."""
    normalise_advantages: bool = True
    """Give the advantages of each minibatch mean 0 and standard deviation 1."""
    normalise_values: bool = True
    """Learn values less the mean of their targets, by their standard deviation (PopArt, van Hasselt
    et al. 2016): so the size of rewards, and `reward_scale`, matter little."""
    normalise_observations: bool = False
    """Give each input mean 0 and standard deviation 1 over all that was seen, within 10."""
    normalise_rewards: Annotated[bool, Only(instead="reward_scale")] = False
    """Divide rewards by the standard deviation of their running discounted sum, which an episode
    that is cut off does not end."""
    correction: Literal["decoupled", "vtrace", "none"] | None = None
    """How steps that other weights chose are corrected for. `decoupled`: each counts by how likely
    the newest weights were to choose it, at most 2 (Hilton et al. 2022). `vtrace`: so do the errors
    that follow it in its segment, at most 1 (Espeholt et al. 2018). `none`: as if they were new.
    None: `decoupled` in the learning mode `on_policy`, else `vtrace`."""
    correction_limit: Annotated[
        PositiveFloat | None,
        Only(
            when=lambda policy: policy.correction != "none",
            needs="{}ppo.correction decoupled or vtrace",
        ),
    ] = None
    """The most that a step counts by this, however much likelier it is now than when it was made.
    None: 2 with `decoupled`, 1 with `vtrace`."""
    max_staleness: Annotated[CountOrNone | None, Only(instead="experience.capacity")] = None
    """Segments begun by weights that are more versions old than this are not trained on; those that
    another policy of its group played are dated by that policy's newest. None: as `wait` has it,
    where the actor is at most one rollout ahead."""
    anneal_steps: Count | None = None
    """Trained steps over which the learning rate falls in a straight line to 0. None: it stays."""

    def parts(self, steps: float) -> int:
        """Minibatches of an epoch over so many steps of one policy.

        By default their size is bounded: a fourth of all that a policy plays in three seats of 64
        copies made so few gradient steps that it learned less from as much (docs/worlds.md, "What
        PPO's defaults come to").
        """
        if self.minibatches is not None:
            return self.minibatches
        parts = FEWEST
        while parts < MOST and steps > parts * LARGEST:
            parts *= 2
        return parts

    def largest_part(self, steps: float) -> float:
        """The most steps that a minibatch has of an update of up to so many."""
        if self.minibatches is not None:
            return steps / self.minibatches
        return min(steps / FEWEST, max(LARGEST, steps / MOST))
