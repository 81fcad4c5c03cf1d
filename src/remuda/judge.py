"""Who is the best: play by which the best checkpoint of a run is found."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from typing import Any

from remuda.config import Config
from remuda.coordinator.coordinator import Coordinator
from remuda.coordinator.run_directory import RunDirectory
from remuda.crossplay import margin
from remuda.evaluate import evaluate
from remuda.evaluation import Evaluation, Limits
from remuda.policies.spec import PolicySpec
from remuda.publish.snapshot import Snapshot
from remuda.result import Result
from remuda.saved_weights import published
from remuda.user_code import where_raised

log = logging.getLogger(__name__)


def judged(evaluation: Evaluation, scripted: Collection[str] = ()) -> dict[str, Any]:
    """What the best checkpoint is found by.

    Args:
        evaluation: of its policies.
        scripted: agents whom these do not play: what they earn is not counted.

    Returns:
        `mean_return` over the agents that took part, None: none of them did; and more to read.
    """
    agents = evaluation.agents
    means = [
        evaluation.mean(i)
        for i, agent in enumerate(agents)
        if agent not in scripted and evaluation.episodes(i)
    ]
    return {
        "mean_return": sum(means) / len(means) if means else None,
        "constant_sum": evaluation.constant_sum,
        "same_returns": evaluation.same_returns,
        "largest_return": evaluation.largest_return,
        **evaluation.as_summary(),
    }


class Judge:
    """Play by which the best checkpoint is found, within limits."""

    def __init__(
        self,
        config: Config,
        specs: tuple[PolicySpec, ...],
        run: RunDirectory,
        limits: Limits | None = None,
    ) -> None:
        """Judge the checkpoints of a run.

        Args:
            config: of the run.
            specs: of all its policies.
            run: where its checkpoints are.
            limits: of each measurement and each challenge; None: `run.evaluate_seconds`.
        """
        if config.schedule == "sequential":  # the run's own copies may live in this process
            config = config.model_copy(
                update={"env": config.env.model_copy(update={"num_envs": 1})}
            )
        self._config, self._specs, self._run = config, specs, run
        self.limits = limits or Limits(config.run.evaluate_seconds)

    def measure(self, snapshots: Mapping[str, Snapshot]) -> dict[str, Any] | None:
        """What snapshots earn; None: the play was cut short, by an interruption or the time.

        Episodes that are short are over first, so a part of them would favour some checkpoints.
        """
        config = self._config
        episodes = config.checkpoint.evaluate_episodes
        evaluation = evaluate(config, snapshots, episodes, config.seed, limits=self.limits)
        return None if evaluation.cut else judged(evaluation, config.env.scripted)

    def challenge(self, snapshots: Mapping[str, Snapshot], number: int) -> float:
        """How much more snapshots earn against a checkpoint than that earns against them.

        Not a number where the play was interrupted or ran out of time: episodes that are short are
        over first, so that a part of them may favour either side.
        """
        if self.limits.reached(0.0):
            return math.nan
        config = self._config
        rival = published(self._run, config, self._specs, number)
        episodes = config.checkpoint.evaluate_episodes
        return margin(config, snapshots, rival, episodes, config.seed, self.limits)


def judge_last(
    config: Config,
    result: Result,
    coordinator: Coordinator,
    judge: Judge,
    snapshots: Mapping[str, Snapshot],
) -> Result:
    """Let the last checkpoint be the best, if it is; the result with a note where that failed."""
    evaluation = result.evaluation
    enough = min(config.checkpoint.evaluate_episodes, config.run.evaluate_episodes)
    if evaluation is None or evaluation.cut or len(evaluation.returns) < enough:
        return result  # of play that was cut short, the short episodes are over
    try:
        if coordinator.judge_last(
            judged(evaluation, config.env.scripted), snapshots, judge.challenge
        ):
            return result
        why = (
            "that was interrupted"
            if judge.limits.interrupted()
            else "run.evaluate_seconds were over"
        )
    except Exception as error:  # the user's game
        log.exception("play against the best checkpoint so far failed")
        why = where_raised(error) or f"{type(error).__name__}: {error}"
    return result.with_note(f"the last checkpoint was not compared with the best so far: {why}")
