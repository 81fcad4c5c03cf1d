"""Seats for good: each agent of the game has one policy, which plays it in every copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from remuda.actor.episodes import EpisodeCounter
from remuda.actor.frames import FrameStack
from remuda.actor.seats import groups_of
from remuda.actor.shared_rewards import SharedRewards, SharesForGood
from remuda.checkpoint.state import fitting, random_state, restore_random
from remuda.envs.checks import TurnChecks
from remuda.envs.scripted import room_for
from remuda.envs.vector_env import VectorEnv
from remuda.errors import RunDirectoryError
from remuda.experience.room import Room
from remuda.experience.writer import ExperienceWriter
from remuda.policies.acting import ActingStack, ActionSelector
from remuda.population.team_returns import sides_by_agent
from remuda.publish.snapshot import Snapshot
from remuda.scoreboard import Policy, Row
from remuda.types import Array, Bools, Floats, Integers, State, TurnResult


@dataclass
class Seat:
    """An agent of the environment, with the policy that plays it."""

    policy: str
    """The policy's name."""
    stack: ActingStack
    """Where its network is..."""
    index: int
    """...and its row there."""
    frames: FrameStack
    selector: ActionSelector
    """How it chooses what to do."""
    random: np.random.Generator
    """The policy's random numbers for exploration."""
    row: Row
    """Its row of the scoreboard."""
    masked: bool = False
    """Whether the environment tells what it may do."""
    writer: ExperienceWriter | None = None
    """Where its experience goes; None: no learner takes it."""
    version: int = 0
    epsilon: float = 0.0


@dataclass(frozen=True)
class _Choice:
    """What one seat does in a turn: arrays [num_envs, ...] that are written anew in each."""

    actions: Array
    """[num_envs, size]."""
    log_probs: Floats
    """[num_envs]."""
    masks: Bools
    """[num_envs, mask_size], or [num_envs, 0]: anything is allowed."""
    final_masks: Bools
    """The same where an episode was cut off; [num_envs, 0]: it is not kept."""
    shape: tuple[int, ...]
    """Of the actions, as the environment takes them."""


@dataclass(frozen=True)
class _Pass:
    """One forward pass: seats that observe together, whose networks are neighbours in a stack."""

    stack: ActingStack
    first: int
    end: int
    agents: tuple[int, ...]
    """In the order of the stack's rows."""


class FixedSeats:
    """A seat for each agent, with its own exploration and its own experience."""

    def __init__(
        self,
        env: VectorEnv,
        seats: Sequence[Seat],
        together: bool = False,
        mark: Row | None = None,
        shares: SharesForGood | None = None,
    ) -> None:
        """Take the seats.

        Args:
            env: the copies of the game.
            seats: one for each agent, in their order.
            together: all agents observe at the start of the turn and choose in one batched pass.
            mark: `Scoreboard.mark`, by which extremes of returns are counted.
            shares: of rewards that policies share; None: none does.

        Raises:
            RunDirectoryError: there are fewer seats than agents.
        """
        if len(seats) != env.num_agents:
            raise RunDirectoryError(
                f"there are policies for {len(seats)} of the game's {env.num_agents} agents: the "
                "configuration and the weights do not belong together"
            )
        self._env, self.seats = env, tuple(seats)
        self._counters = [EpisodeCounter(seat.row[None], mark) for seat in seats]
        self.checks: TurnChecks | None = None
        self.groups: Sequence[tuple[int, ...]] = groups_of(env, together)
        self.acted: Bools = np.zeros((env.num_envs, env.num_agents), np.bool_)
        # By agent: who may act now, and who of them was when it observed.
        self._active_of = [env.active[:, agent] for agent in range(env.num_agents)]
        self._acted_of = [self.acted[:, agent] for agent in range(env.num_agents)]
        self._shares = shares
        self._shared = SharedRewards(env.num_envs, sides_by_agent([a.team for a in env.agents]))
        # By agent: what it has been given in this turn, as the game keeps it up to date; and what
        # its policy has been given of it, where some share.
        self._so_far = so_far = env.rewards_so_far
        given = so_far.copy() if so_far is not None else None
        self._before_of, self._given_of = (
            [each[:, agent] if each is not None else None for agent in range(env.num_agents)]
            for each in (so_far, given)
        )
        self._observations: list[Array] = [room_for(env, agent) for agent in range(len(seats))]
        self._flat = [each.reshape(env.num_envs, -1) for each in self._observations]
        self._final_observations = [each.copy() for each in self._observations]
        self._final_flat = [each.reshape(env.num_envs, -1) for each in self._final_observations]
        self._choices = [self._room_for(agent) for agent in range(len(seats))]
        self._passes_of = [self._passes(group) for group in self.groups]

    @property
    def rooms(self) -> list[Room]:
        """Where a writer may have to wait."""
        return [seat.writer.room for seat in self.seats if seat.writer and seat.writer.room]

    def observe(self, agent: int) -> None:
        """See what there is to see, and what may be done."""
        seat = self.seats[agent]
        self._env.observe(agent, self._observations[agent])
        acts = self._acted_of[agent]
        acts[...] = self._active_of[agent]
        given = self._given_of[agent]
        if given is not None and self._so_far is not None and self._shared.on:
            given[...] = self._shared.mixed_of(agent, self._so_far)
        strange = seat.frames.push(self._flat[agent], acts)
        if self.checks is not None:
            self.checks.observed(agent, self._observations[agent], strange)
        if seat.masked:
            masks = self._choices[agent].masks
            self._env.mask(agent, masks)
            if self.checks is not None:
                self.checks.masked(agent, masks, acts)

    def choose(self, group: int, random: np.random.Generator | None = None) -> None:
        """Forward passes, and a choice for every stream."""
        for forward in self._passes_of[group]:
            outputs = forward.stack.outputs(forward.first, forward.end)
            for i, agent in enumerate(forward.agents):
                seat, choice = self.seats[agent], self._choices[agent]
                seat.selector.choose(
                    outputs[i],
                    choice.masks,
                    seat.random if random is None else random,
                    seat.epsilon if random is None else 1.0,
                    choice.actions,
                    choice.log_probs,
                )

    def decide(self, group: int) -> None:
        """Write down what was observed and chosen."""
        before_of = self._given_of if self._shared.on else self._before_of
        for agent in self.groups[group]:
            seat, choice = self.seats[agent], self._choices[agent]
            seat.stack.stay(seat.index, self._acted_of[agent])
            if seat.writer is not None:
                seat.writer.decide(
                    self._flat[agent],
                    choice.actions,
                    seat.version,
                    self._acted_of[agent],
                    choice.log_probs,
                    choice.masks,
                    seat.stack.kept[seat.index],
                    before_of[agent],
                )

    def act(self, agent: int) -> None:
        """Let what was chosen take effect."""
        choice = self._choices[agent]
        actions = self.seats[agent].selector.actions.within_bounds(choice.actions)
        self._env.act(agent, actions.reshape(choice.shape))

    def outcome(self, result: TurnResult) -> None:
        """Write down what came of it."""
        ended = result.terminated | result.truncated
        if ended.any():
            for agent in np.flatnonzero(ended.any(0)).tolist():
                self._env.observe(agent, self._final_observations[agent])
                if self.checks is not None:
                    self.checks.last(agent, self._final_observations[agent], ended[:, agent])
                final_masks = self._choices[agent].final_masks
                if final_masks.shape[1] and result.truncated[:, agent].any():
                    self._env.mask(agent, final_masks)
                self._forget(self.seats[agent], ended[:, agent])
        rewards = self._shared.mixed(result.rewards)
        for agent, seat in enumerate(self.seats):
            if seat.writer is not None:
                seat.writer.outcome(
                    rewards[:, agent],
                    result.terminated[:, agent],
                    result.truncated[:, agent],
                    self._final_flat[agent],
                    self._acted_of[agent],
                    self._choices[agent].final_masks,
                )

    def close(
        self,
        over: Bools,
        returns: np.ndarray,
        truncated: Bools,  # noqa: ARG002
        turns: Integers,
        told: Floats,  # noqa: ARG002
    ) -> None:
        """Count the episodes of the copies that are over."""
        lengths = turns[over]
        only = np.zeros_like(lengths)
        for agent, counter in enumerate(self._counters):
            counter.count(only, returns[over, agent], lengths)

    def begin(self, over: Bools) -> None:
        """What is observed next in these copies begins a new episode."""
        if self._shares is not None:
            self._shared.begin(over, self._shares.now())
        for seat in self.seats:
            self._forget(seat, over)

    def settled(self) -> bool:
        """Nothing of other actors comes here."""
        return True

    def take(self, news: Mapping[str, Snapshot]) -> None:
        """Act with newer weights from now on."""
        for seat in self.seats:
            if seat.policy in news:
                self.load(seat, news[seat.policy])

    def load(self, seat: Seat, snapshot: Snapshot) -> None:
        """Let a seat act with this snapshot from now on."""
        seat.stack.load(seat.index, snapshot.weights)
        seat.version, seat.epsilon = snapshot.version, snapshot.epsilon
        seat.row[Policy.EPSILON], seat.row[Policy.VERSION] = snapshot.epsilon, snapshot.version

    def state(self) -> State:
        """What every seat is in the middle of."""
        return {
            str(agent): {
                "acting": seat.stack.state(seat.index),
                "frames": seat.frames.state(),
                "random": random_state(seat.random),
                "writer": seat.writer.state() if seat.writer is not None else None,
                "version": seat.version,
                "epsilon": seat.epsilon,
            }
            for agent, seat in enumerate(self.seats)
        } | {"shares": self._shared.shares.copy()}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        if "shares" in state:  # else by an earlier version: as they are configured
            self._shared.restore(fitting(state, "shares", self._shared.shares))
        for agent, seat in enumerate(self.seats):
            saved = state[str(agent)]
            seat.stack.restore(seat.index, saved["acting"])
            seat.frames.restore(saved["frames"])
            restore_random(seat.random, saved["random"])
            if seat.writer is not None:
                seat.writer.restore(saved["writer"])
            seat.version, seat.epsilon = saved["version"], saved["epsilon"]

    def holds(self, state: State) -> bool:
        """Whether the experience is there that was being written when `state` was called."""
        return all(
            seat.writer is None or seat.writer.holds(state[str(agent)]["writer"])
            for agent, seat in enumerate(self.seats)
        )

    def lasting(self) -> State:
        """Nothing."""
        return {}

    def restore_lasting(self, state: State) -> None:
        """Begin anew."""

    def close_orphans(self) -> None:
        """Close what an actor before this one was writing, where no actor goes on with it."""
        for seat in self.seats:
            if seat.writer is not None:
                seat.writer.close_orphans()

    def _room_for(self, agent: int) -> _Choice:
        seat, num_envs = self.seats[agent], self._env.num_envs
        actions = seat.selector.actions
        mask_size = actions.mask_size if seat.masked else 0
        keeps_last = seat.writer is not None and seat.writer.keeps_last_mask
        return _Choice(
            np.zeros((num_envs, actions.size), actions.dtype),
            np.zeros(num_envs, np.float32),
            np.ones((num_envs, mask_size), np.bool_),
            np.ones((num_envs, mask_size if keeps_last else 0), np.bool_),
            (num_envs, *(self._env.agents[agent].action_space.shape or ())),
        )

    def _passes(self, group: tuple[int, ...]) -> list[_Pass]:
        """The forward passes in which the agents of a group choose: as few as there can be."""
        passes: list[_Pass] = []
        stacks = [self.seats[agent].stack for agent in group]
        for agent in sorted(
            group, key=lambda a: (stacks.index(self.seats[a].stack), self.seats[a].index)
        ):
            seat = self.seats[agent]
            last = passes[-1] if passes else None
            if last is not None and last.stack is seat.stack and last.end == seat.index:
                agents = (*last.agents, agent)
                passes[-1] = _Pass(seat.stack, last.first, seat.index + 1, agents)
            else:
                passes.append(_Pass(seat.stack, seat.index, seat.index + 1, (agent,)))
        return passes

    def _forget(self, seat: Seat, streams: Bools) -> None:
        """What a seat sees next in these copies begins a new episode of its own."""
        seat.frames.start(streams)
        seat.stack.memories[seat.index, streams] = 0.0
