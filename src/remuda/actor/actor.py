"""The actor: plays turns with the newest published weights, and writes down what happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from remuda.actor.frames import FrameStack
from remuda.checkpoint.state import fitting, random_state, restore_random
from remuda.envs.scripted import room_for
from remuda.envs.vector_env import VectorEnv
from remuda.experience.writer import ExperienceWriter
from remuda.policies.acting import ActingStack, Rule
from remuda.publish.snapshot import Snapshot, SnapshotReader
from remuda.scoreboard import Facts, Play, Policy, Row
from remuda.timeline import Span, Timeline
from remuda.types import Array, Bools, Floats, State, TurnResult


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
    rule: Rule
    """How it chooses what to do."""
    random: np.random.Generator
    """The policy's stream for exploration."""
    row: Row
    """Its row of the scoreboard."""
    masked: bool = False
    """Whether the environment tells what it may do."""
    writer: ExperienceWriter | None = None
    """Where its experience goes; None: nobody learns from it."""
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


@njit(cache=True)
def _tally(
    rewards: Floats,
    acted: Bools,
    active: Bools,
    returns: np.ndarray,
    over: Bools,
    row: Row,
) -> bool:
    """Add up a turn; marks the copies in which no agent is active any more, and tells if any."""
    num_envs, num_agents = rewards.shape
    steps = 0
    any_over = False
    for env in range(num_envs):
        over[env] = True
        for agent in range(num_agents):
            returns[env, agent] += rewards[env, agent]
            steps += acted[env, agent]
            if active[env, agent]:
                over[env] = False
        any_over |= over[env]
    row[0] += num_envs  # Play.TURNS
    row[1] += steps  # Play.AGENT_STEPS
    return any_over


class Actor:
    """Plays `env`, one seat per agent.

    What it guarantees:

    1. It waits for nobody, except where the user set a ring to `wait`, and then for a limited time.
    2. Agents act in the order of `turn_groups`, each with the newest weights that were published
       before the turn began, and each action takes effect before the next group observes.
    3. What a seat sees, does and is given is written to the ring of its policy alone.
    4. Returns are undiscounted sums of one agent's rewards over one episode, in the game's units.
    """

    def __init__(
        self,
        env: VectorEnv,
        seats: Sequence[Seat],
        play: Row,
        random: np.random.Generator,
        reader: SnapshotReader | None = None,
        max_turns: int | None = None,
        turns: Callable[[], float] | None = None,
        parts: tuple[str, ...] = (),
        timeline: Timeline | None = None,
        together: bool = False,
        facts: Row | None = None,
    ) -> None:
        """Take the seats.

        Args:
            env: the copies of the game.
            seats: one for each agent, in their order.
            play: the actor's row of the scoreboard.
            random: the stream of the episodes' seeds.
            reader: where newer weights come from; None: the seats keep theirs.
            max_turns: turns to play, over all copies and all actors.
            turns: tells how many were played by all of them; None: this is the only one.
            parts: what it saves in a checkpoint.
            timeline: where to note what it did when.
            together: let all agents observe at the start of the turn and choose in one batched
                pass, whatever the game's `turn_groups`; their actions still take effect in order.
            facts: the actor's row of whole episodes; None: it does not count the game's facts.
        """
        self.env, self.seats = env, tuple(seats)
        self._reader, self._random, self._play = reader, random, play
        self._max_turns = max_turns
        self._turns = turns if turns is not None else lambda: float(play[Play.TURNS])
        self._timeline, self._facts = timeline, facts
        self.parts = parts
        """What it saves in a checkpoint: itself, or nothing, where its world is of no use later."""
        self._every: Bools = np.ones(env.num_envs, np.bool_)
        self._acted: Bools = np.zeros((env.num_envs, env.num_agents), np.bool_)
        # By agent: who may act now, and who of them was when it observed.
        self._active_of = [env.active[:, agent] for agent in range(env.num_agents)]
        self._acted_of = [self._acted[:, agent] for agent in range(env.num_agents)]
        self._over: Bools = np.ones(env.num_envs, np.bool_)
        self._returns = np.zeros((env.num_envs, env.num_agents), np.float64)
        self._seen: list[Array] = [room_for(env, agent) for agent in range(len(seats))]
        self._flat = [seen.reshape(env.num_envs, -1) for seen in self._seen]
        self._last = [seen.copy() for seen in self._seen]
        self._last_flat = [last.reshape(env.num_envs, -1) for last in self._last]
        self._choices = [self._room_for(agent) for agent in range(len(seats))]
        everyone = tuple(agent for group in env.turn_groups for agent in group)
        groups = (everyone,) if together else env.turn_groups
        self._groups = [(group, self._passes(group)) for group in groups]
        self._rooms = [seat.writer.room for seat in self.seats if seat.writer and seat.writer.room]
        self._waited = 0.0
        self._overtaken = 0
        self.on_episode: Callable[[int, Floats, Floats], None] | None = None
        """Called when an episode is over: its copy, its agents' returns, and the game's facts."""
        self._compile()
        self._restart()

    @property
    def done(self) -> bool:
        """Whether all turns are played."""
        return self._max_turns is not None and self._turns() >= self._max_turns

    def work(self) -> bool:
        """Play one turn in every copy; False when there is none left, or no room to write it."""
        if self.done or not self.has_room():
            return False
        self.turn()
        return True

    def has_room(self) -> bool:
        """Whether every ring that may make the actor wait has room."""
        return all(room.has_room() for room in self._rooms)

    def wait(self, timeout: float, interrupted: Callable[[], bool]) -> None:
        """Sleep until the rings have room, at most until the user's own limit; counted."""
        late = [room for room in self._rooms if not room.has_room()]
        if self.done or not late:
            return
        wait_limit = late[0].config.wait_limit
        began = time.perf_counter()
        timeout = min(timeout, wait_limit - self._waited)
        woken = late[0].wakeup.wait(lambda: interrupted() or self.has_room(), timeout)
        spent = time.perf_counter() - began
        self._play[Play.WAITS] += 1
        self._play[Play.WAIT_SECONDS] += spent
        self._waited = 0.0 if woken else self._waited + spent
        if self._waited >= wait_limit:
            # The learner is stuck or gone: better to lose old steps than to stand still.
            for room in late:
                room.forgive()
            self._play[Play.FORCED] += 1
            self._waited = 0.0

    def finish(self) -> None:
        """Give back what the environment holds."""
        self.env.close()

    def state(self, part: str) -> State:  # noqa: ARG002
        """The world, its streams, and what every seat is in the middle of.

        An environment that cannot be saved is left out; its episodes are begun anew.
        """
        try:
            world = self.env.state()
        except NotImplementedError:
            world = None
        return {
            "world": world,
            "random": random_state(self._random),
            "returns": self._returns.copy(),
            "seen": self._reader.state() if self._reader is not None else None,
            "seats": {
                str(agent): {
                    "acting": seat.stack.state(seat.index),
                    "frames": seat.frames.state(),
                    "random": random_state(seat.random),
                    "writer": seat.writer.state() if seat.writer is not None else None,
                    "version": seat.version,
                    "epsilon": seat.epsilon,
                }
                for agent, seat in enumerate(self.seats)
            },
        }

    def restore(self, part: str, state: State) -> None:  # noqa: ARG002
        """Go on from what `state` returned."""
        if state["world"] is None:
            return
        self.env.restore(state["world"])
        restore_random(self._random, state["random"])
        self._returns[...] = fitting(state, "returns", self._returns)
        if self._reader is not None:
            self._reader.restore(state["seen"])
        for agent, seat in enumerate(self.seats):
            saved = state["seats"][str(agent)]
            seat.stack.restore(seat.index, saved["acting"])
            seat.frames.restore(saved["frames"])
            restore_random(seat.random, saved["random"])
            if seat.writer is not None:
                seat.writer.restore(saved["writer"])
            seat.version, seat.epsilon = saved["version"], saved["epsilon"]

    def turn(self) -> None:
        """One turn, as in the docstring of `remuda.types`."""
        env, clock, row = self.env, time.perf_counter, self._play
        trace = self._timeline
        start = clock()
        if self._reader is not None and self._reader.is_news():
            self._load(self._reader)
            if trace is not None:
                trace.add(Span.WEIGHTS, start, clock())
        loaded = clock()
        row[Play.SECONDS_WEIGHTS] += loaded - start
        inferring = writing = 0.0
        env.begin_turn()
        acted = loaded
        for group, passes in self._groups:
            for agent in group:
                self._observe(agent)
            before = clock()
            for forward in passes:
                self._choose(forward)
            between = clock()
            for agent in group:
                self._decide(agent)
            written = clock()
            inferring += between - before
            writing += written - between
            if trace is not None:
                trace.add(Span.PLAY, acted, before)
                trace.add(Span.INFER, before, between)
                trace.add(Span.WRITE, between, written)
                acted = written
            for agent in group:
                self._act(agent)
        result = env.end_turn()
        before = clock()
        any_over = _tally(result.rewards, self._acted, env.active, self._returns, self._over, row)
        ended = result.terminated | result.truncated
        if ended.any():
            self._observe_ends(ended)
        for agent, seat in enumerate(self.seats):
            if seat.writer is not None:
                seat.writer.outcome(
                    result.rewards[:, agent],
                    result.terminated[:, agent],
                    result.truncated[:, agent],
                    self._last_flat[agent],
                    self._acted_of[agent],
                )
        if any_over:
            self._close_episodes(result)
            self._restart()
        end = clock()
        writing += end - before
        if trace is not None:
            trace.add(Span.PLAY, acted, before)
            trace.add(Span.WRITE, before, end)
        row[Play.SECONDS_INFER] += inferring
        row[Play.SECONDS_WRITE] += writing
        row[Play.SECONDS_ENV] += end - loaded - inferring - writing

    def _compile(self) -> None:
        """Compile everything, by a turn that counts nowhere; the copies are restarted after it."""
        env = self.env
        env.reset(np.zeros(env.num_envs, np.int64), self._every)
        env.begin_turn()
        for group, passes in self._groups:
            for agent in group:
                self._observe(agent)
            for forward in passes:
                # With a stream of its own, so that the seats' own do not move.
                self._choose(forward, np.random.default_rng(0))
            for agent in group:
                self._act(agent)
        result = env.end_turn()
        nowhere = np.zeros_like(self._play)
        _tally(result.rewards, self._acted, env.active, self._returns, self._over, nowhere)
        self._returns[:] = 0.0
        self._over[:] = True

    def _load(self, reader: SnapshotReader) -> None:
        news = reader.newer()
        for seat in self.seats:
            if seat.policy in news:
                self.load(seat, news[seat.policy])
        self._play[Play.OVERTAKEN] += reader.overtaken - self._overtaken
        self._overtaken = reader.overtaken

    def load(self, seat: Seat, snapshot: Snapshot) -> None:
        """Let a seat act with this snapshot from now on."""
        seat.stack.load(seat.index, snapshot.weights)
        seat.version, seat.epsilon = snapshot.version, snapshot.epsilon
        seat.row[Policy.EPSILON], seat.row[Policy.VERSION] = snapshot.epsilon, snapshot.version

    def _room_for(self, agent: int) -> _Choice:
        seat, num_envs = self.seats[agent], self.env.num_envs
        actions = seat.rule.actions
        return _Choice(
            np.zeros((num_envs, actions.size), actions.dtype),
            np.zeros(num_envs, np.float32),
            np.ones((num_envs, actions.mask_size if seat.masked else 0), np.bool_),
            (num_envs, *(self.env.agents[agent].action_space.shape or ())),
        )

    def _passes(self, group: tuple[int, ...]) -> list[_Pass]:
        """The forward passes in which the agents of a group choose: as few as there can be."""
        passes: list[_Pass] = []
        for agent in sorted(group, key=lambda a: (id(self.seats[a].stack), self.seats[a].index)):
            seat = self.seats[agent]
            last = passes[-1] if passes else None
            if last is not None and last.stack is seat.stack and last.end == seat.index:
                agents = (*last.agents, agent)
                passes[-1] = _Pass(seat.stack, last.first, seat.index + 1, agents)
            else:
                passes.append(_Pass(seat.stack, seat.index, seat.index + 1, (agent,)))
        return passes

    def _observe(self, agent: int) -> None:
        seat = self.seats[agent]
        self.env.observe(agent, self._seen[agent])
        acts = self._acted_of[agent]
        acts[...] = self._active_of[agent]
        seat.frames.push(self._flat[agent], acts)
        if seat.masked:
            self.env.mask(agent, self._choices[agent].masks)

    def _choose(self, forward: _Pass, random: np.random.Generator | None = None) -> None:
        outputs = forward.stack.outputs(forward.first, forward.end)
        for i, agent in enumerate(forward.agents):
            seat, choice = self.seats[agent], self._choices[agent]
            seat.rule.choose(
                outputs[i],
                choice.masks,
                seat.random if random is None else random,
                seat.epsilon if random is None else 1.0,
                choice.actions,
                choice.log_probs,
            )

    def _decide(self, agent: int) -> None:
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
            )

    def _act(self, agent: int) -> None:
        choice = self._choices[agent]
        actions = self.seats[agent].rule.actions.within_bounds(choice.actions)
        self.env.act(agent, actions.reshape(choice.shape))

    def _observe_ends(self, ended: Bools) -> None:
        for agent in np.flatnonzero(ended.any(0)):
            self.env.observe(int(agent), self._last[agent])
            self._forget(self.seats[agent], ended[:, agent])

    def _close_episodes(self, result: TurnResult) -> None:
        told = np.zeros((len(self.env.facts), self.env.num_envs), np.float32)
        for i, name in enumerate(self.env.facts):
            told[i] = result.info[name]
        if self._facts is not None:
            self._facts[Facts.EPISODES] += self._over.sum()
            self._facts[len(Facts) :] += told[:, self._over].sum(1)
        for env in np.flatnonzero(self._over):
            for agent, seat in enumerate(self.seats):
                seat.row[Policy.EPISODES] += 1
                seat.row[Policy.RETURN_SUM] += self._returns[env, agent]
            if self.on_episode is not None:
                returns = self._returns[env].astype(np.float32)
                self.on_episode(int(env), returns, told[:, env].copy())

    def _restart(self) -> None:
        """Begin new episodes in the copies that are over."""
        seeds = self._random.integers(0, 2**63 - 1, self.env.num_envs)
        self.env.reset(seeds, self._over)
        self._returns[self._over] = 0.0
        for seat in self.seats:
            self._forget(seat, self._over)

    def _forget(self, seat: Seat, streams: Bools) -> None:
        """What a seat sees next in these copies begins a new episode of its own."""
        seat.frames.start(streams)
        seat.stack.memories[seat.index, streams] = 0.0
