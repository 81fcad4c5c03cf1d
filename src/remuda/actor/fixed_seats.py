"""Fixed seats: each agent is played by the same policy in all copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from remuda.actor.frames import FrameStack
from remuda.actor.scripted_seats import ScriptedSeats
from remuda.actor.seats import EpisodeCounter, Seats
from remuda.actor.shared_rewards import FixedShares, SharedRewards
from remuda.actor.stream_arrays import StreamArrays, columns_of
from remuda.envs.checks import NONE
from remuda.envs.vector_env import VectorEnv
from remuda.errors import RunDirectoryError
from remuda.experience.experience import Experience
from remuda.experience.ring_block import StreamPlan
from remuda.experience.writer import BlockWriter
from remuda.policies.acting import ActingStack
from remuda.policies.selectors import ActionSelector
from remuda.population.ledger.ratings import sides_by_agent
from remuda.publish.snapshot import Snapshot
from remuda.system.checkpoint.fitting import SHARE, branch, fitting, real, whole
from remuda.system.checkpoint.state import restore_rng, rng_state
from remuda.system.scoreboard import Policy, Row
from remuda.types import Bools, Floats, Integers, State, TurnResult


@dataclass
class Seat:
    """An agent of the environment, with the policy that plays it."""

    policy: str
    stack: ActingStack
    index: int  # the policy's row in the stack
    selector: ActionSelector
    rng: np.random.Generator  # for exploration
    row: Row  # the policy's row of the scoreboard
    masked: bool = False  # whether the environment provides action masks
    experience: Experience | None = None  # None: no steps are stored
    actor: int = 0  # index of the actor
    version: int = 0
    epsilon: float = 0.0


class _SeatBatch:
    """Seats of policies in adjacent rows of a stack, with equal spaces, processed together."""

    def __init__(self, env: VectorEnv, seats: Sequence[Seat], agents: tuple[int, ...]) -> None:
        first = seats[0]
        self.seats, self.agents = tuple(seats), agents
        self.stack, self.first, self.end = first.stack, first.index, first.index + len(seats)
        actions = first.selector.actions
        self.arrays = arrays = StreamArrays(env, agents, actions, masked=first.masked)
        num_envs = env.num_envs
        self.columns = columns_of(agents)
        self._active = env.active.T[self.columns] if isinstance(self.columns, slice) else None
        self._env = env
        inputs = self.stack.inputs[self.first : self.end]
        self.frames = FrameStack(
            inputs.reshape(-1, inputs.shape[2]), arrays.row.own_size, packing=arrays.row.packing
        )
        self.writer: BlockWriter | None = None
        if first.experience is not None:
            pairs = [(s.experience, row) for row, s in enumerate(seats) if s.experience is not None]
            self.writer = BlockWriter(pairs, first.actor, num_envs)
        self.versions: Integers = np.zeros(len(seats), np.int64)
        self._rngs = [seat.rng for seat in seats]
        shape = (len(seats), num_envs)
        self._masks = arrays.masks.reshape(*shape, arrays.masks.shape[1])
        self._actions = arrays.actions.reshape(*shape, -1)
        self._log_probs = arrays.log_probs.reshape(shape)
        self._acted = arrays.acted.reshape(-1)
        previous = self.stack.previous_states[self.first : self.end]
        self._plan = StreamPlan(
            np.arange(len(seats) + 1) * num_envs, np.arange(len(seats) * num_envs)
        )
        states = previous.reshape(len(self._acted), previous.shape[2])
        self._choices = arrays.choices(states, self.versions)
        if self.writer is not None:
            self._results = self.writer.results(arrays.results)
        self._choose = first.selector.choose_for_all

    def push_observations(self) -> int:
        """Stack active agents' observations; return a stream with NaN or infinity, or -1."""
        arrays = self.arrays
        active = self._env.active.T[self.columns] if self._active is None else self._active
        np.copyto(arrays.acted, active)
        return self.frames.push(arrays.observations_flat, self._acted)

    def choose(self, rng: np.random.Generator | None) -> None:
        outputs = self.stack.outputs(self.first, self.end)
        if rng is None:
            rngs, epsilons = self._rngs, [seat.epsilon for seat in self.seats]
        else:
            rngs, epsilons = [rng] * len(self.seats), [1.0] * len(self.seats)
        self._choose(outputs, self._masks, rngs, epsilons, self._actions, self._log_probs)

    def decide(self) -> None:
        arrays, stack = self.arrays, self.stack
        if stack.network.memory:
            for seat, acted in zip(self.seats, arrays.acted, strict=True):
                stack.stay(seat.index, acted)
        if self.writer is not None:
            self.writer.decide(self._plan, self._choices)

    def forget(self, ended: Bools) -> None:
        self.frames.start(ended.reshape(-1))
        if self.stack.network.memory:
            self.stack.recurrent_states[self.first : self.end][ended] = 0.0

    def outcome(self, rewards: Floats, terminated: Bools, truncated: Bools) -> None:
        if self.writer is not None:
            self.arrays.take_result(rewards, terminated, truncated)
            self.writer.outcome(self._plan, self._results)


class FixedSeats(Seats):
    """Seats whose policies never change, with a random generator for each seat.

    `MatchSeats` could play them too. It gathers each policy's streams before a forward pass and
    scatters the actions afterwards, which costs up to 20% of the throughput (`dealt/fixed` in
    benchmarks/paths.py: 0.80 to 0.95 for small networks). Here the streams of a policy are adjacent
    rows, so nothing is gathered.
    """

    def __init__(
        self,
        env: VectorEnv,
        seats: Sequence[Seat],
        mark: Row | None = None,
        shares: FixedShares | None = None,
        scripted: ScriptedSeats | None = None,
    ) -> None:
        """Use one seat per agent, in order; raise RunDirectoryError for any other number."""
        if len(seats) != env.num_agents:
            raise RunDirectoryError(
                f"there are policies for {len(seats)} of the game's {env.num_agents} agents: the "
                "configuration and the weights do not match"
            )
        self.env, self.seats, self._scripted = env, tuple(seats), scripted
        self._counters = [EpisodeCounter(seat.row[None], mark) for seat in seats]
        self.groups: Sequence[tuple[int, ...]] = env.turn_groups
        self.acted: Bools = np.zeros((env.num_envs, env.num_agents), np.bool_)
        self._shares = shares
        self._shared = SharedRewards(env.num_envs, sides_by_agent([a.team for a in env.agents]))
        self._batches_of = [self._batches_for(group) for group in self.groups]
        self._all = [batch for batches in self._batches_of for batch in batches]
        self._batch_of = {
            agent: (batch, row) for batch in self._all for row, agent in enumerate(batch.agents)
        }  # by agent, its batch and its row in the batch
        batches = [self._batch_of[agent][0] for agent in range(len(seats))]
        self._arrays_of = {agent: batch.arrays for agent, batch in enumerate(batches)}
        self._keeps_last_mask = [
            batch.writer is not None and batch.writer.keeps_last_mask for batch in batches
        ]
        self._frames = [
            self._batch_of[agent][0].frames.of(arrays.streams_of(agent))
            for agent, arrays in self._arrays_of.items()
        ]
        self._observations = [
            arrays.observations[arrays.position_of[agent]]
            for agent, arrays in self._arrays_of.items()
        ]

    def writers(self) -> list[BlockWriter]:
        return [batch.writer for batch in self._all if batch.writer is not None]

    def observe(self, group: int) -> None:
        env = self.env
        for agent in self.groups[group]:
            env.observe(agent, self._observations[agent])
            if self.seats[agent].masked:
                arrays = self._arrays_of[agent]
                env.mask(agent, arrays.masks[arrays.streams_of(agent)])
        for batch in self._batches_of[group]:
            stream = batch.push_observations()
            if stream != NONE and self.checks is not None:
                row, copy = divmod(stream, env.num_envs)
                layout = batch.arrays.row
                observed = layout.numbers(batch.arrays.observations[row], layout.own_size)
                self.checks.observed(batch.agents[row], observed, copy)
            self.acted.T[batch.columns] = batch.arrays.acted
            if batch.seats[0].masked and self.checks is not None:
                for row, agent in enumerate(batch.agents):
                    masks = batch.arrays.masks[batch.arrays.streams_of(agent)]
                    self.checks.masked(agent, masks, batch.arrays.acted[row])
            if env.rewards_so_far is not None:
                for row, agent in enumerate(batch.agents):
                    before = self._shared.mixed_of(agent, env.rewards_so_far)
                    batch.arrays.rewards_before[row] = before

    def choose(self, group: int, rng: np.random.Generator | None = None) -> None:
        for batch in self._batches_of[group]:
            batch.choose(rng)

    def decide(self, group: int) -> None:
        for batch in self._batches_of[group]:
            batch.decide()

    def act(self, agent: int) -> None:
        actions = self._arrays_of[agent].chosen(agent)
        if self._scripted is not None:
            observations = self._arrays_of[agent].own_observations(agent)
            actions = self._scripted.chosen(agent, observations, actions)
        self.env.act(agent, actions)

    def outcome(self, result: TurnResult) -> None:
        ended = result.terminated | result.truncated
        if ended.any():
            self._observe_last(ended, result.truncated)
            self._forget(np.ascontiguousarray(ended.T))
        rewards = self._shared.mixed(result.rewards)
        for batch in self._all:
            batch.outcome(rewards, result.terminated, result.truncated)

    def close(
        self,
        over: Bools,
        returns: np.ndarray,
        truncated: Bools,  # noqa: ARG002
        turns: Integers,
        metrics: Floats,  # noqa: ARG002
    ) -> None:
        lengths = turns[over]
        only = np.zeros_like(lengths)
        for agent, counter in enumerate(self._counters):
            counter.count(only, returns[over, agent], lengths)

    def begin(self, over: Bools) -> None:
        if self._shares is not None:
            self._shared.begin(over, self._shares.now())
        self._forget(np.repeat(over[None], len(self.seats), 0))

    def take(self, news: Mapping[str, Snapshot]) -> None:
        for agent, seat in enumerate(self.seats):
            if seat.policy in news:
                self._load(agent, news[seat.policy])

    def _load(self, agent: int, snapshot: Snapshot) -> None:
        seat, (batch, row) = self.seats[agent], self._batch_of[agent]
        seat.stack.load(seat.index, snapshot.weights)
        seat.version, seat.epsilon = snapshot.version, snapshot.epsilon
        batch.versions[row] = snapshot.version
        seat.row[Policy.EPSILON], seat.row[Policy.VERSION] = snapshot.epsilon, snapshot.version

    def state(self) -> State:
        state: State = {"shares": self._shared.shares.copy()}
        if self._scripted is not None:
            state["scripted"] = self._scripted.state()
        for agent, seat in enumerate(self.seats):
            batch, row = self._batch_of[agent]
            state[str(agent)] = {
                "acting": seat.stack.state(seat.index),
                "frames": self._frames[agent].state(),
                "random": rng_state(seat.rng),
                "writer": batch.writer.state_of(row) if batch.writer is not None else None,
                "version": seat.version,
                "epsilon": seat.epsilon,
            }
        return state

    def restore(self, state: State) -> None:
        self._shared.restore(fitting(state, "shares", self._shared.shares, SHARE))
        if self._scripted is not None:
            self._scripted.restore(branch(state, "scripted"))
        for agent, seat in enumerate(self.seats):
            saved, (batch, row) = branch(state, str(agent)), self._batch_of[agent]
            seat.stack.restore(seat.index, branch(saved, "acting"))
            self._frames[agent].restore(branch(saved, "frames"))
            restore_rng(seat.rng, saved["random"])
            if batch.writer is not None:
                batch.writer.restore_of(row, branch(saved, "writer"))
            seat.version, seat.epsilon = whole(saved, "version"), real(saved, "epsilon", SHARE)
            batch.versions[row] = seat.version

    def holds(self, state: State) -> bool:
        return all(
            batch.writer is None
            or batch.writer.holds_of(row, branch(branch(state, str(agent)), "writer"))
            for agent, (batch, row) in self._batch_of.items()
        )

    def _batches_for(self, group: tuple[int, ...]) -> list[_SeatBatch]:
        stacks = [self.seats[agent].stack for agent in group]
        order = sorted(
            group, key=lambda a: (stacks.index(self.seats[a].stack), self.seats[a].index)
        )
        batches: list[list[int]] = []
        for agent in order:
            if batches and self._are_neighbours(batches[-1][-1], agent):
                batches[-1].append(agent)
            else:
                batches.append([agent])
        return [
            _SeatBatch(self.env, [self.seats[a] for a in some], tuple(some)) for some in batches
        ]

    def _are_neighbours(self, agent: int, other: int) -> bool:
        """Return whether `other` can follow `agent` in a batch: next row, equal spaces."""
        first, second = self.seats[agent], self.seats[other]
        specs = self.env.agents[agent], self.env.agents[other]
        return (
            first.stack is second.stack
            and first.index + 1 == second.index
            and first.masked == second.masked
            and specs[0].observation_space == specs[1].observation_space
            and specs[0].action_space == specs[1].action_space
            and type(first.selector) is type(second.selector)
            # `repr` compares more than `==` does.
            and repr(first.selector.actions) == repr(second.selector.actions)
            and _rings_are_neighbours(first.experience, second.experience)
        )

    def _forget(self, ended: Bools) -> None:
        for batch in self._all:
            batch.forget(ended[batch.columns])


def _rings_are_neighbours(one: Experience | None, two: Experience | None) -> bool:
    if one is None or two is None:
        return one is two
    return one.block is two.block and one.index + 1 == two.index
