"""Policies with equal network layouts, and the streams (one agent of one copy) they may play."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remuda.actor.batch_plan import BatchPlan, make_plan
from remuda.actor.frames import FrameStack
from remuda.actor.stream_arrays import StreamArrays
from remuda.experience.ring_block import StreamPlan
from remuda.experience.writer import BlockWriter
from remuda.policies.acting import ActingStack
from remuda.policies.networks.kernels.compiled_pass import gather_rows
from remuda.policies.spec import PolicySpec
from remuda.publish.snapshot import Snapshot
from remuda.system.checkpoint.fitting import COUNT, SHARE, branch, fitting
from remuda.system.checkpoint.state import restore_rng, rng_state
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers, State


class PolicyGroup:
    """Live and frozen policies with equal network layouts, on seats with equal spaces."""

    def __init__(
        self,
        arrays: StreamArrays,
        specs: Sequence[PolicySpec],  # of live policies
        slots: Sequence[int],  # [K] by row of the stack, in the population
        stack: ActingStack,
        writers: Sequence[BlockWriter],
        rng: np.random.Generator,  # draws their actions
        num_slots: int,  # in the population
    ) -> None:
        self.arrays, self.specs, self.stack, self.writers = (
            arrays,
            tuple(specs),
            stack,
            tuple(writers),
        )
        self.slots, self.rng = tuple(slots), rng
        self.row_of: Integers = np.full(num_slots, -1, np.int64)
        self.row_of[list(slots)] = np.arange(len(slots))
        self.versions: Integers = np.zeros(len(slots), np.int64)
        self._epsilons = np.ones(len(slots))
        self._selector = specs[0].action_selector()
        num_streams = len(arrays.observations_flat)
        network, row = stack.network, arrays.row
        self.inputs: Floats = np.zeros((num_streams, network.num_inputs), np.float32)
        self.recurrent_states: Floats = np.zeros((num_streams, network.memory), np.float32)
        self.states_before = self.recurrent_states.copy()
        self.frames = FrameStack(self.inputs, row.own_size, packing=row.packing)
        actions = specs[0].actions
        self._outputs: Floats = np.zeros((num_streams, actions.num_outputs), np.float32)
        self._masks = arrays.masks.copy()
        self._actions = arrays.actions.copy()
        self._log_probs = arrays.log_probs.copy()
        self._choices = arrays.choices(self.states_before, self.versions)
        self._results = [writer.results(arrays.results) for writer in self.writers]
        self._plans: list[BatchPlan] = []
        self._written: list[BatchPlan] = []  # by turn group, the streams whose steps are written
        self._everyone: BatchPlan | None = None  # the written streams of all agents
        self._agents: Integers = np.array(arrays.agents, np.int64)
        self._streams: dict[tuple[int, ...], Integers] = {}
        # by turn group, the exploration rate of each stream in the plan, computed when first used
        self._rates: dict[int, np.ndarray] = {}

    def deal(
        self,
        seated: Integers,  # [num_envs, num_agents] slots of the seated policies
        groups: Sequence[tuple[int, ...]],
        learns: Bools | None = None,  # [num_envs, num_agents] seats whose steps are written
    ) -> None:
        """Plan the passes of each turn group for newly dealt seats."""
        self._rates.clear()
        rows: Integers = np.empty(len(self.inputs), np.int64)
        _find_rows(seated, self._agents, self.row_of, rows)
        self._plans = self._written = self._plan_groups(rows, groups)
        if learns is not None:
            rows = np.where(self.arrays.by_stream(np.ascontiguousarray(learns.T)), rows, -1)
            self._written = self._plan_groups(rows, groups)
        self._everyone = (
            self._written[0] if len(groups) == 1 else self._plan(rows, np.arange(len(rows)))
        )

    def _plan_groups(self, rows: Integers, groups: Sequence[tuple[int, ...]]) -> list[BatchPlan]:
        plans = []
        for group in groups:
            numbers = self._streams_of(group)
            plans.append(self._plan(rows[numbers], numbers))
        return plans

    def _streams_of(self, group: tuple[int, ...]) -> Integers:
        found = self._streams.get(group)
        if found is None:
            arrays = self.arrays
            streams = [
                np.arange(part.start, part.stop)
                for part in (arrays.streams_of(a) for a in group if a in arrays.agents)
            ]
            found = np.concatenate(streams) if streams else np.zeros(0, np.int64)
            self._streams[group] = found
        return found

    def choose(self, group: int, rng: np.random.Generator | None) -> None:
        plan, arrays = self._plans[group], self.arrays
        count = plan.rows.streams.size
        if count == 0:
            return
        outputs = self._forward(plan)
        if arrays.masks.shape[1]:
            gather_rows(arrays.masks, plan.rows.streams, self._masks)
        rates = self._rates_of(group)  # even if unused, so that the warm-up compiles it
        self._selector.choose(
            outputs[:count],
            self._masks[:count],
            self.rng if rng is None else rng,
            rates if rng is None else np.ones(count),
            self._actions[:count],
            self._log_probs[:count],
        )
        _scatter(
            self._actions, self._log_probs, plan.rows.streams, arrays.actions, arrays.log_probs
        )

    def push(self, streams: slice) -> int:
        """Stack these streams' observations; return a stream with NaN or infinity, or -1."""
        arrays = self.arrays
        if streams == slice(0, len(self.inputs)):
            return self.frames.push(arrays.observations_flat, arrays.acted.reshape(-1))
        acted = arrays.acted.reshape(-1)[streams]
        return self.frames.of(streams).push(arrays.observations_flat[streams], acted)

    def decide(self, group: int) -> None:
        rows = self._written[group].rows
        for writer in self.writers:
            writer.decide(rows, self._choices)

    def outcome(self) -> None:
        plan = self._everyone
        assert plan is not None
        for writer, results in zip(self.writers, self._results, strict=True):
            writer.outcome(plan.rows, results)

    @property
    def keeps_last_mask(self) -> bool:
        """Return whether any of these policies learns from masks after an episode's last step."""
        return any(writer.keeps_last_mask for writer in self.writers)

    def load(self, slot: int, snapshot: Snapshot) -> None:
        row = int(self.row_of[slot])
        self.stack.load(row, snapshot.weights)
        self.versions[row], self._epsilons[row] = snapshot.version, snapshot.epsilon
        self._rates.clear()

    def forget(self, streams: Bools) -> None:
        self.frames.start(streams)
        if self.stack.network.memory:
            self.recurrent_states[streams] = 0.0

    def state(self) -> State:
        return {
            "rows": {str(k): self.stack.state(k) for k in range(len(self.slots))},
            "weights": {str(k): self.stack.flat_weights(k) for k in range(len(self.slots))},
            "versions": self.versions.copy(),
            "epsilons": self._epsilons.copy(),
            "frames": {
                str(i): self.frames.of(self.arrays.streams_of(agent)).state()
                for i, agent in enumerate(self.arrays.agents)
            },
            "recurrent_states": self.recurrent_states.copy(),
            "writers": {str(i): writer.state() for i, writer in enumerate(self.writers)},
            "random": rng_state(self.rng),
        }

    def restore(self, state: State) -> None:
        for k in range(len(self.slots)):
            like = self.stack.flat_weights(k)
            self.stack.load(k, fitting(branch(state, "weights"), str(k), like))
            self.stack.restore(k, branch(branch(state, "rows"), str(k)))
        self.versions[...] = fitting(state, "versions", self.versions, COUNT)
        self._epsilons[...] = fitting(state, "epsilons", self._epsilons, SHARE)
        self._rates.clear()
        for i, agent in enumerate(self.arrays.agents):
            frames = branch(branch(state, "frames"), str(i))
            self.frames.of(self.arrays.streams_of(agent)).restore(frames)
        self.recurrent_states[...] = fitting(state, "recurrent_states", self.recurrent_states)
        for i, writer in enumerate(self.writers):
            writer.restore(branch(branch(state, "writers"), str(i)))
        restore_rng(self.rng, state["random"])

    def _plan(self, rows: Integers, numbers: Integers) -> BatchPlan:
        in_passes = self.stack.gathered_pass is None
        return make_plan(rows, numbers, len(self.slots), in_passes)

    def _forward(self, plan: BatchPlan) -> Floats:
        """Return network outputs; the first M rows are the plan's M streams, in plan order."""
        if self.stack.gathered_pass is not None:
            return self.stack.gathered_pass(self.inputs, *plan.rows)
        for first, end, width in plan.passes:
            outputs = self._pass(plan, first, end, width)
            if outputs.shape[2] != self._outputs.shape[1]:
                self._outputs = np.zeros((len(self._outputs), outputs.shape[2]), np.float32)
            _collect(outputs, plan.rows.begins, first, self._outputs)
        return self._outputs

    def _pass(self, plan: BatchPlan, first: int, end: int, width: int) -> Floats:
        inputs, forward = self.stack.padded_pass(first, end, width)
        _gather(self.inputs, plan.rows, first, end, width, inputs)
        if not self.stack.network.memory:
            return forward()
        recurrent_states = np.zeros((end - first, width, self.stack.network.memory), np.float32)
        flat = recurrent_states.reshape(-1, recurrent_states.shape[2])
        _gather(self.recurrent_states, plan.rows, first, end, width, flat)
        outputs, after = self.stack.recurrent_pass(first, end, width, recurrent_states)
        acted = self.arrays.acted.reshape(-1)
        _keep(after, acted, plan.rows, first, self.recurrent_states, self.states_before)
        return outputs

    def _rates_of(self, group: int) -> np.ndarray:
        found = self._rates.get(group)
        if found is None:
            plan = self._plans[group]
            found = self._rates[group] = np.empty(plan.rows.streams.size)
            _spread(self._epsilons, plan.rows.begins, found)
        return found


@njit(cache=True)
def _find_rows(seated: Integers, agents: Integers, row_of: Integers, rows: Integers) -> None:
    """Find the stack row that plays each stream; `seated` is [num_envs, num_agents] slots."""
    num_envs = seated.shape[0]
    for i in range(agents.size):
        for env in range(num_envs):
            rows[i * num_envs + env] = row_of[seated[env, agents[i]]]


@njit(cache=True)
def _spread(values: np.ndarray, begins: Integers, spread: np.ndarray) -> None:
    for k in range(values.size):
        for i in range(begins[k], begins[k + 1]):
            spread[i] = values[k]


@njit(cache=True)
def _gather(
    source: Floats, rows: StreamPlan, first: int, end: int, width: int, out: Floats
) -> None:
    """Copy the streams of rows `first` to `end - 1` to `out`, which has `width` streams a row."""
    for k in range(first, end):
        at = (k - first) * width
        for i in range(rows.begins[k], rows.begins[k + 1]):
            row, copy = source[rows.streams[i]], out[at]
            for j in range(row.size):
                copy[j] = row[j]
            at += 1


@njit(cache=True)
def _collect(outputs: Floats, begins: Integers, first: int, collected: Floats) -> None:
    """Copy the outputs [k, width, O] of a pass into the plan's order, without padding."""
    for k in range(outputs.shape[0]):
        begin = begins[first + k]
        for i in range(begins[first + k + 1] - begin):
            row, copy = outputs[k, i], collected[begin + i]
            for j in range(row.size):
                copy[j] = row[j]


@njit(cache=True)
def _keep(
    after: Floats, acted: Bools, rows: StreamPlan, first: int, states: Floats, before: Floats
) -> None:
    """Copy each stream's recurrent state to `before`; advance it if the stream acted."""
    for k in range(after.shape[0]):
        begin = rows.begins[first + k]
        for i in range(rows.begins[first + k + 1] - begin):
            stream = rows.streams[begin + i]
            state, kept, new = states[stream], before[stream], after[k, i]
            for j in range(state.size):
                kept[j] = state[j]
            if acted[stream]:
                for j in range(state.size):
                    state[j] = new[j]


@njit(cache=True)
def _scatter(
    actions: Array, log_probs: Floats, streams: Integers, to_actions: Array, to_log_probs: Floats
) -> None:
    for i in range(streams.size):
        row, copy = actions[i], to_actions[streams[i]]
        for j in range(row.size):
            copy[j] = row[j]
        to_log_probs[streams[i]] = log_probs[i]
