"""The actor, which plays turns with the newest published weights and writes experience."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from remuda.actor.seats import Seats
from remuda.actor.turn_timer import TurnTimer, section, traced, whole_turn
from remuda.envs.checks import TurnChecks
from remuda.envs.games.array_game import BlankEnv
from remuda.envs.live_options import LiveEnvOptions, OptionSetter
from remuda.envs.vector_env import MOST_EMPTY, VectorEnv
from remuda.errors import ContractError
from remuda.experience.backpressure import ActorBackpressure
from remuda.publish.weight_store import WeightReader
from remuda.system.checkpoint.fitting import COUNT, branch, fitting
from remuda.system.checkpoint.state import restore_rng, rng_state
from remuda.system.kernels import njit
from remuda.system.memory.atomic import warm_up
from remuda.system.scoreboard import EpisodeTotals, Play, Row
from remuda.system.timeline import Span, Timeline
from remuda.types import Bools, Floats, Integers, State, TurnResult


@njit(cache=True)
def _tally(
    rewards: Floats,
    terminated: Bools,
    truncated: Bools,
    acted: Bools,
    active: Bools,
    returns: np.ndarray,
    took_part: Bools,
    turns: Integers,
    over: Bools,
    row: Row,
) -> tuple[bool, bool]:
    """Count a turn and mark finished copies; return whether any finished, and if a check failed."""
    num_envs, num_agents = rewards.shape
    steps = 0
    any_over = invalid = False
    for env in range(num_envs):
        over[env] = True
        turns[env] += 1
        unfinished = False
        for agent in range(num_agents):
            reward = rewards[env, agent]
            dies, cut, acts = terminated[env, agent], truncated[env, agent], active[env, agent]
            returns[env, agent] += reward
            took_part[env, agent] |= acted[env, agent]
            steps += acted[env, agent]
            if acts:
                over[env] = False
            invalid |= not math.isfinite(reward) or (dies and cut) or (acts and (dies or cut))
            unfinished |= acted[env, agent] and not (dies or cut)
        any_over |= over[env]
        invalid |= over[env] and unfinished
    row[0] += num_envs  # Play.TURNS
    row[1] += steps  # Play.AGENT_STEPS
    return any_over, invalid


class Actor:
    """A loop that plays all copies of `env` with the policies that `seats` assigns to agents.

    1. It waits for no other role, except with `on_full: wait`, and then only for a learner that
       makes progress (`remuda.experience.backpressure`).
    2. Agents act in the order of `turn_groups`, each with the newest weights published before the
       turn began, and each action takes effect before the next group observes.
    3. An agent's observations, actions and rewards go only to the ring of its policy.
    4. The actor continues the open segments of a previous actor, or closes them before its first
       turn, so that learners can take them.
    5. A return is the undiscounted sum of one agent's rewards over one episode, in the units of the
       environment, including rewards before the agent's first decision. If the agent makes no
       decision in the episode, its return is NaN. An episode that ends at its reset, before any
       decision, is ignored.
    """

    def __init__(
        self,
        env: VectorEnv,
        seats: Seats,
        play: Row,  # this actor's row of the scoreboard
        rng: np.random.Generator,  # draws the episodes' seeds
        reader: WeightReader | None = None,
        max_turns: int | None = None,  # over all copies and actors
        turns: Callable[[], float] | None = None,  # returns the turns played by all actors
        parts: tuple[str, ...] = (),  # names of this actor's parts of a checkpoint
        timeline: Timeline | None = None,
        episode_totals: Row | None = None,  # this actor's totals on the scoreboard
        exact: bool = True,  # a restarted actor continues its predecessor's episodes
        check: bool = True,  # raise if the environment breaks its contract
        on_note: Callable[[str, str], None] | None = None,  # receives the environment's notes
        options: LiveEnvOptions | None = None,  # changes of the environment's options
        reported: Sequence[int] = (),  # agents whose returns count as episode metrics
    ) -> None:
        self.env, self.seats = env, seats
        self._reader, self._rng, self._play = reader, rng, play
        self._max_turns, self._reported = max_turns, list(reported)
        self._turns = turns if turns is not None else lambda: float(play[Play.TURNS])
        self._episode_totals, self._exact = episode_totals, exact
        self.timer = TurnTimer(play, timeline)  # times the sections of a turn
        self.parts = parts
        self._over: Bools = np.ones(env.num_envs, np.bool_)
        self._returns = np.zeros((env.num_envs, env.num_agents), np.float64)
        # [num_envs, num_agents] which agents have made a decision in the episode
        self._took_part: Bools = np.zeros((env.num_envs, env.num_agents), np.bool_)
        # consecutive episodes in which no agent made a decision, over all copies
        self._empty_episodes = 0
        self._options = OptionSetter(options, env) if options is not None else None
        self._noted_options: dict[str, Any] = {}  # the changed options that `seats` has recorded
        self._turn_of: Integers = np.zeros(env.num_envs, np.int64)
        self._on_note, self._noted = on_note, 0
        self._checks = TurnChecks(env, self._turn_of) if check else None
        seats.checks = self._checks
        self._backpressure = ActorBackpressure(seats.backpressure, exact)
        self._overtaken = 0
        self._segments_ready = False  # whether open segments were restored or closed
        # called with a finished episode's copy, returns (NaN for agents without a decision) and
        # metrics
        self.on_episode: Callable[[int, Floats, Floats], None] | None = None
        self._begin()

    @property
    def done(self) -> bool:
        """Return whether all turns are played and all results of other actors are processed."""
        return self._played_out and self.seats.settled()

    @property
    def _played_out(self) -> bool:
        return self._max_turns is not None and self._turns() >= self._max_turns

    def work(self) -> bool:
        """Play one turn in every copy; return False if no turn is left or a ring is full."""
        if not self._segments_ready:
            # No episodes were restored, so the previous actor's open segments cannot continue.
            self.seats.close_orphans()
            self._segments_ready = True
        if self._played_out or not self.has_room():
            return False
        self.turn()
        return True

    def has_room(self) -> bool:
        """Return whether the actor may write another turn to every ring with `on_full: wait`."""
        return self._backpressure.has_room()

    def wait(self, timeout: float, interrupted: Callable[[], bool]) -> None:
        """Sleep until all rings have room; stop waiting for a learner that makes no progress."""
        if self._played_out:
            if not self.done:
                time.sleep(min(0.01, timeout))  # then check again for results of other actors
            return
        began = time.perf_counter()
        left_behind = self._backpressure.wait(timeout, interrupted)
        if left_behind is None:
            return
        self._play[Play.WAITS] += 1
        self._play[Play.WAIT_SECONDS] += time.perf_counter() - began
        self._play[Play.FORCED] += left_behind > 0

    def finish(self) -> None:
        self.env.close()

    def state(self, part: str) -> State:  # noqa: ARG002
        """Return the state of the seats and, if the run is exact, of the current episodes.

        `world` is the environment's state, or None if the environment cannot be saved.
        """
        if not self._exact:
            return {"world": None, "lasting": self.seats.lasting()}
        try:
            world = self.env.state()
        except NotImplementedError:
            world = None
        return {
            "world": world,
            "lasting": self.seats.lasting(),
            "random": rng_state(self._rng),
            "returns": self._returns.copy(),
            "took_part": self._took_part.copy(),
            "turn_of": self._turn_of.copy(),
            "reader": self._reader.state() if self._reader is not None else None,
            "seats": self.seats.state(),
        }

    def restore(self, part: str, state: State) -> None:  # noqa: ARG002
        """Restore what `state` returned, in the middle of the episodes if possible.

        New episodes start if the run is not exact, if the environment cannot be restored (for
        example with worker processes), or if the rings lost the episodes' open segments.
        """
        exact = self._exact and "seats" in state and self.seats.holds(branch(state, "seats"))
        if not (exact and self._restore_world(state["world"] and branch(state, "world"))):
            self.seats.restore_lasting(branch(state, "lasting"))
            return
        restore_rng(self._rng, state["random"])
        self._returns[...] = fitting(state, "returns", self._returns)
        self._took_part[...] = fitting(state, "took_part", self._took_part)
        self._turn_of[...] = fitting(state, "turn_of", self._turn_of, COUNT)
        if self._reader is not None:
            self._reader.restore(branch(state, "reader"))
        self.seats.restore(branch(state, "seats"))
        self._segments_ready = True
        if self._options is not None:
            self._options.restart()

    def _restore_world(self, world: State | None) -> bool:
        if world is None:
            return False
        try:
            self.env.restore(world)
        except NotImplementedError:
            return False
        return True

    @whole_turn
    def turn(self) -> None:
        """Play one turn, as described in `remuda.types`."""
        env, seats = self.env, self.seats
        if self._reader is not None:
            self._take_newer_weights(self._reader)
        env.begin_turn()
        for number, group in enumerate(seats.groups):
            seats.observe(number)
            self._choose(number)
            self._write_decisions(number)
            for agent in group:
                seats.act(agent)
        self._write_outcome(env.end_turn())

    @section(Play.SECONDS_WEIGHTS)
    def _take_newer_weights(self, reader: WeightReader) -> None:
        if reader.has_update():
            self._load(reader)

    @traced(Span.WEIGHTS)
    def _load(self, reader: WeightReader) -> None:
        self.seats.take(reader.newer())
        self._play[Play.OVERTAKEN] += reader.overtaken - self._overtaken
        self._overtaken = reader.overtaken

    @section(Play.SECONDS_INFER, Span.INFER)
    def _choose(self, group: int) -> None:
        self.seats.choose(group)

    @section(Play.SECONDS_WRITE, Span.WRITE)
    def _write_decisions(self, group: int) -> None:
        self.seats.decide(group)

    @section(Play.SECONDS_WRITE, Span.WRITE)
    def _write_outcome(self, result: TurnResult) -> None:
        any_over = self._count_turn(result, self._play)
        self.seats.outcome(result)
        if len(self.env.notes) != self._noted:
            self._noted = len(self.env.notes)
            if self._on_note is not None:
                for key, message in self.env.notes.items():
                    self._on_note(key, message)
        if any_over:
            self._close_episodes(result)
            self._reset()
            self._note_options()
            self._begin_episodes()

    def _begin(self) -> None:
        """Start the first episodes, and compile everything with a dummy turn."""
        warm_up()
        self._backpressure.warm_up()
        self.env.warm_up()
        self._reset()
        if not self._turns():  # otherwise at the next reset, as without a restart
            self._note_options()
        seats, blank = self.seats, BlankEnv(self.env)
        seats.env = blank  # so that the dummy turn does not step the environment
        for number in range(len(seats.groups)):
            seats.observe(number)
            # A separate generator, so that the seats' generators do not advance.
            seats.choose(number, np.random.default_rng(0))
        # `act` is not called, because scripted policies read the environment itself.
        seats.env = self.env
        self._count_turn(blank.end_turn(), np.zeros_like(self._play))
        self._over[:] = True
        self._begin_episodes()

    def _count_turn(self, result: TurnResult, row: Row) -> bool:
        """Count a turn; return whether any copy finished. Raise ContractError for bad results."""
        checks, acted, active = self._checks, self.seats.acted, self.env.active
        if checks is not None:
            checks.shapes(result)
        turn = (result.rewards, result.terminated, result.truncated, acted, active)
        sums = (self._returns, self._took_part, self._turn_of, self._over)
        any_over, invalid = _tally(*turn, *sums, row)
        if invalid and checks is not None:
            checks.result(result, acted, active)
        return bool(any_over)

    def _close_episodes(self, result: TurnResult) -> None:
        """Count finished episodes; raise ContractError after too many without a decision."""
        over: Bools = self._over & self._took_part.any(axis=1)
        self._count_empty(over)
        metrics = np.zeros((len(self.env.episode_metrics), self.env.num_envs), np.float32)
        for i, name in enumerate(self.env.episode_metrics):
            metrics[i] = result.info[name]
        episode_returns = np.where(self._took_part, self._returns, np.nan)
        if self._episode_totals is not None:
            self._episode_totals[EpisodeTotals.EPISODES] += over.sum()
            sums, counts = np.split(self._episode_totals[len(EpisodeTotals) :], 2)
            values = metrics
            if self._reported:
                values = np.concatenate((metrics, episode_returns.T[self._reported]))
            sums += np.nansum(values[:, over], axis=1)
            counts += np.isfinite(values[:, over]).sum(1)
        cut: Bools = np.any(result.truncated, axis=1)
        # Evolution counts a missing metric as 0.
        counted = np.nan_to_num(metrics) if len(metrics) else metrics
        self.seats.close(self._over, episode_returns, cut, self._turn_of, counted)
        if self.on_episode is not None:
            for env in np.flatnonzero(over):
                returns = episode_returns[env].astype(np.float32)
                self.on_episode(int(env), returns, metrics[:, env].copy())

    def _count_empty(self, counted: Bools) -> None:
        """Count consecutive episodes without a decision; `counted` [num_envs] marks the others."""
        if counted.any():
            self._empty_episodes = 0
            return
        self._empty_episodes += int(self._over.sum())
        if self._empty_episodes > MOST_EMPTY:
            raise ContractError(
                f"{self._empty_episodes:,} episodes in a row ended at their reset: no agent "
                "was active after `reset`, so nothing can be trained or measured; let `reset` "
                "start episodes in which at least one agent acts"
            )

    def _reset(self) -> None:
        if self._options is not None:
            self._options.set_due(int(self._turns()))
        seeds = self._rng.integers(0, 2**63 - 1, self.env.num_envs)
        self.env.reset(seeds, self._over)

    def _note_options(self) -> None:
        if self._options is not None and self._options.values != self._noted_options:
            self._noted_options = dict(self._options.values)
            self.seats.note_options(self._noted_options)

    def _begin_episodes(self) -> None:
        self._returns[self._over], self._turn_of[self._over] = 0.0, 0
        self._took_part[self._over] = False
        self.seats.begin(self._over)
