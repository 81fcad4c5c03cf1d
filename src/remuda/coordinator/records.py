"""The columns of the metrics, from which everything that shows them is made.

Each field of `Record`, `PolicyRecord`, `MemberRecord` and `PopulationRecord` is a `column`: its
name, kind of number, meaning, unit and source. The lines of `metrics.jsonl`, the tags of
TensorBoard, the columns of `remuda.Run.metrics` and docs/metrics.md (`metrics_page.py`) are all
made from these fields; `scoreboard_reader.py` computes them. So a new number of a learner is one
entry of `remuda.scoreboard.Learn`, and one field here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeVar

from remuda.checkpoint.plain import Kinds, checked, checked_all, kinds_of
from remuda.coordinator.columns import (
    EPISODES,
    INTERVAL,
    NEWEST,
    ON_POLICY,
    REPLAY,
    TOTAL,
    Mean,
    Newest,
    Total,
    column,
    columns_of,
    part,
)
from remuda.coordinator.member_record import MemberRecord
from remuda.coordinator.population_record import PopulationRecord
from remuda.scoreboard import Learn, Play

R = TypeVar("R")


@dataclass
class PolicyRecord:
    """One policy in one interval; not changed once made.

    It is not declared frozen, since hundreds are made four times a second, and frozen ones are
    slower. A learner that was restarted in the interval has no earlier values to compare with: all
    its numbers of the interval are None then.
    """

    mean_return: float | None = column(
        "Mean of one agent's undiscounted return, over the episodes in which it took part; none "
        "ended: empty.",
        "return",
        EPISODES,
    )
    episodes: int = column("Episodes that ended, in which it took part.", "episodes", TOTAL)
    loss: float | None = column(
        "The loss that is minimised: the mean over a batch.", "loss", source=Mean(Learn.LOSS_SUM)
    )
    updates: int = column("Updates behind the weights.", "updates", source=Total(Learn.UPDATES))
    updates_per_second: float | None = column("Updates.", "1/s", INTERVAL)
    version: int = column("The newest published version.", "version", source=Total(Learn.VERSION))
    staleness: float | None = column(
        "The version trained minus the versions that acted in the batch.",
        "versions",
        source=Mean(Learn.STALENESS_SUM),
    )
    steps: int = column("Steps written to the policy's experience.", "steps", TOTAL)
    replay_fill: float = column(
        "Share of the experience's capacity in use, 0 to 1.", "share", NEWEST
    )
    replay_ratio: float | None = column(
        "Training samples per collected step, from the first update on; empty before it.",
        "samples/step",
        TOTAL,
    )
    redrawn: int = column(
        "Samples that were overwritten while they were copied, and were drawn again.",
        "samples",
        source=Total(Learn.REDRAWN),
    )
    epsilon: float = column(
        "The exploration rate that the actor uses: the share of actions that are chosen at random.",
        "share",
        NEWEST,
    )
    busy: float | None = column(
        "Share of the interval that the learner spent on this policy, 0 to 1.", "share", INTERVAL
    )
    nonfinite: int = column(
        "Updates whose loss or weights were not finite, and that were undone.",
        "updates",
        source=Total(Learn.NONFINITE),
    )
    halted: bool = column(
        "1 once there were too many of these in a row, so that the policy learns no more.",
        "0 or 1",
        NEWEST,
    )
    behind: int | None = column(
        "Steps that were collected and that its learner has not trained on: those that wait, and "
        "those that it has taken for the current update; with DQN and IQN those beyond what "
        "its updates have paid for by the replay ratio. Empty: it trains without a ratio.",
        "steps",
        NEWEST,
    )
    trained: int = column(
        "Steps that were trained on, each counted once.",
        "steps",
        source=Total(Learn.TRAINED),
        kind=ON_POLICY,
        default=0,
    )
    lost: int = column(
        "Steps that were not trained on: overwritten, too old, not brought along by a resumed run, "
        "or of an update that was undone. All steps are trained, behind, lost, or in segments that "
        "are being written.",
        "steps",
        TOTAL,
        kind=ON_POLICY,
        default=0,
    )
    staleness_max: int = column(
        "The greatest staleness so far of any step that was trained on.",
        "versions",
        source=Total(Learn.STALENESS_MAX),
        default=0,
    )
    entropy: float | None = column(
        "The policy's mean entropy.", "nats", source=Mean(Learn.ENTROPY_SUM), kind=ON_POLICY
    )
    kl: float | None = column(
        "How far an update moved the policy: the approximate KL divergence, mean of r - 1 - log r "
        'with r the ratio of the new to the old probability (k3 in Schulman 2020, "Approximating '
        'KL divergence"). Over all minibatches, before their step.',
        "nats",
        source=Mean(Learn.KL_SUM),
        kind=ON_POLICY,
    )
    batch: float | None = column(
        "Samples in an update; a time budget makes it less.",
        "samples",
        source=Mean(Learn.SAMPLES, Learn.UPDATES),
    )
    effective: float | None = column(
        "Effective sample size as a share of the steps, 0 to 1; less as they get older.",
        "share",
        source=Mean(Learn.EFFECTIVE_SUM),
        kind=ON_POLICY,
    )
    staleness_low: float | None = column(
        "The least staleness in a batch.", "versions", source=Mean(Learn.STALENESS_LOW_SUM)
    )
    staleness_high: float | None = column(
        "The greatest staleness in a batch.", "versions", source=Mean(Learn.STALENESS_HIGH_SUM)
    )
    clipped: float | None = column(
        "Clip fraction: the share of steps whose probability ratio was clipped, 0 to 1.",
        "share",
        source=Mean(Learn.CLIPPED_SUM),
        kind=ON_POLICY,
    )
    policy_loss: float | None = column(
        "What of the loss is the policy's own: the negative clipped objective.",
        "loss",
        source=Mean(Learn.POLICY_LOSS_SUM),
        kind=ON_POLICY,
    )
    value_loss: float | None = column(
        "Half the squared error of the values, before `policy.ppo.value_cost` weighs it.",
        "loss",
        source=Mean(Learn.VALUE_LOSS_SUM),
        kind=ON_POLICY,
    )
    others: float | None = column(
        "The share of its steps that others of the group chose, 0 to 1.",
        "share",
        source=Mean(Learn.OTHERS_SUM),
    )
    others_weight: float | None = column(
        "Mean weight of these steps in an update, where its own fresh step weighs 1: how "
        "likely the policy is to choose as they did, within the limit of `policy.ppo.correction`. "
        "Empty: there were none.",
        "weight",
        source=Mean(Learn.OTHERS_WEIGHT_SUM, Learn.OTHERS_STEPS),
        kind=ON_POLICY,
    )
    return_min: float | None = column("The least return of an episode.", "return", EPISODES)
    return_max: float | None = column("The greatest return of an episode.", "return", EPISODES)
    return_deviation: float | None = column(
        "The standard deviation of the returns, from their own mean.", "return", EPISODES
    )
    episode_length: float | None = column(
        "Mean length of the episodes that it played in: turns of the game.", "turns", EPISODES
    )
    gradient_norm: float | None = column(
        "Norm of the gradient before it is cut to `policy.max_grad_norm`; with PPO the mean over "
        "an update's minibatches.",
        "norm",
        source=Mean(Learn.GRADIENT_NORM_SUM),
    )
    learning_rate: float | None = column(
        "The learning rate of the last update.", "rate", source=Newest(Learn.LEARNING_RATE)
    )
    explained_variance: float | None = column(
        "Share of the variance of the targets that the values explain before the update: 1 - "
        "Var(target - value) / Var(target). 1: they foresee everything; 0: no more than their mean "
        "does; below: less. Updates whose targets are all equal do not count.",
        "share",
        source=Mean(Learn.EXPLAINED_SUM, Learn.EXPLAINED_UPDATES),
        kind=ON_POLICY,
    )
    entropy_cost: float | None = column(
        "The current weight of the entropy in the loss.",
        "weight",
        source=Newest(Learn.ENTROPY_COST),
        kind=ON_POLICY,
    )
    total_reward: float | None = column(
        "Total reward: the sum of the undiscounted returns of its episodes. Empty: one was not "
        "finite.",
        "return",
        TOTAL,
    )
    mean_q: float | None = column(
        "Mean value that it gives to the actions of a batch, discounted and in units of the scaled "
        "rewards.",
        "value",
        source=Mean(Learn.VALUE_SUM),
        kind=REPLAY,
    )


@dataclass(frozen=True)
class Record:
    """The whole run in one interval."""

    seconds: float = column("Seconds since play began.", "seconds", TOTAL, axis="seconds")
    turns: int = column(
        "Turns played, over all copies; the step of TensorBoard.", "turns", TOTAL, axis="turns"
    )
    agent_steps: int = column("Steps of agents.", "steps", TOTAL, axis="steps")
    turns_per_second: float = column("Turns, over all copies.", "1/s", INTERVAL)
    agent_steps_per_second: float = column("Steps of agents.", "1/s", INTERVAL)
    waits: int = column("Times that an actor waited for a learner.", "times", TOTAL, shown=False)
    wait_seconds: float = column(
        "Seconds that actors waited for learners, added up.", "seconds", TOTAL
    )
    overtaken: int = column(
        "Copies of published weights that were overtaken and thrown away.", "copies", TOTAL
    )
    shares: dict[str, float] = part()
    """Shares of the actors' time, by the names of `SHARES`."""
    policies: dict[str, PolicyRecord] = part()
    episode_metrics: dict[str, float | None] = part()
    """Mean episode metrics of the environment in the interval; None without a value."""
    members: dict[str, MemberRecord] = part()
    """Members of a population whose seats are dealt: `policy`, or `policy@version` for a frozen
    copy. Many frozen copies are only in some records: see `with_all_members`."""
    frozen: int | None = column(
        "Frozen copies of the population; empty: as many as are among the members.",
        "copies",
        NEWEST,
        shown=False,
    )
    matches: int = column(
        "Matches that are over, where seats are dealt.", "matches", TOTAL, shown=False, default=0
    )
    node_bytes_per_second: float | None = column(
        "Bytes that nodes of a cluster sent each other; empty: there is one node.",
        "bytes/s",
        INTERVAL,
    )
    node_messages_per_second: float | None = column(
        "Messages that carried them; empty: there is one node.", "1/s", INTERVAL
    )
    node_bytes_per_step: float | None = column(
        "Bytes per step of on-policy learners; empty: there is one node.", "bytes", INTERVAL
    )

    population: dict[str, float | None] = part()
    """Numbers of several policies together, by the names of `PopulationRecord`."""

    @property
    def playing(self) -> dict[str, PolicyRecord]:
        """Policies that play: their place in the population is not empty."""
        if not self.members:
            return self.policies
        return {name: policy for name, policy in self.policies.items() if name in self.members}

    @property
    def num_live(self) -> int:
        """The number of members that learn."""
        return sum(member.learns for member in self.members.values())

    @property
    def num_frozen(self) -> int:
        """The number of frozen copies."""
        return len(self.members) - self.num_live if self.frozen is None else self.frozen

    @property
    def is_whole(self) -> bool:
        """Return whether all frozen copies are among the members."""
        return len(self.members) - self.num_live >= self.num_frozen

    def plain(self) -> dict[str, Any]:
        """Return the record as plain data, for JSON."""
        policies = {name: vars(policy) for name, policy in self.policies.items()}
        members = {name: vars(member) for name, member in self.members.items()}
        return {**vars(self), "policies": policies, "members": members}

    def to_json(self) -> str:
        """Return one line."""
        return json.dumps(self.plain())

    @staticmethod
    def from_json(line: str | bytes) -> Record:
        """Parse one line."""
        try:
            data = checked(json.loads(line), {"policies": dict})
            policies = _records(PolicyRecord, kinds_of(PolicyRecord), data.pop("policies"))
            members = _records(MemberRecord, kinds_of(MemberRecord), data.pop("members", {}))
            record = Record(policies=policies, members=members, **data)
            checked(vars(record), kinds_of(Record))
            for numbers in (record.episode_metrics, record.population):
                checked(numbers, dict.fromkeys(numbers, (int, float, NoneType)))
            if record.seconds - record.seconds != 0.0:  # infinite, or not a number
                raise ValueError("seconds are not finite")
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a line of metrics: {error}") from None
        return record


def _records(make: Callable[..., R], kinds: Kinds, data: object) -> dict[str, R]:
    made = {name: make(**values) for name, values in checked_all(data, {}).items()}
    checked_all({name: vars(record) for name, record in made.items()}, kinds)
    return made


@dataclass(frozen=True)
class Share:
    """An activity of the actors."""

    of: Play
    meaning: str


SHARES: Mapping[str, Share] = {
    "env": Share(Play.SECONDS_ENV, "The game."),
    "infer": Share(Play.SECONDS_INFER, "Choosing actions."),
    "write": Share(Play.SECONDS_WRITE, "Writing experience, and counting."),
    "weights": Share(Play.SECONDS_WEIGHTS, "Looking for newer weights, and loading them."),
    "wait": Share(Play.WAIT_SECONDS, "Waiting for learners."),
}

POLICY_COLUMNS = columns_of(PolicyRecord)
MEMBER_COLUMNS = columns_of(MemberRecord)
RUN_COLUMNS = columns_of(Record)
POPULATION_COLUMNS = columns_of(PopulationRecord)
AXES = {name: each.axis for name, each in RUN_COLUMNS.items() if each.axis is not None}
"""Names of the columns that others are drawn over, by field of a record."""
SHOWN_OF_RUN = [name for name, each in RUN_COLUMNS.items() if each.shown and not each.axis]
SHOWN_OF_MEMBER = [name for name, each in MEMBER_COLUMNS.items() if each.shown]
