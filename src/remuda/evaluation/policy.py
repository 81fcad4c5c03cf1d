"""`Policy`: a trained policy, ready to choose actions."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space

from remuda.actor.frames import FrameStack
from remuda.envs.adapters.env_spaces import EnvSpaces
from remuda.envs.scripted import allows_something
from remuda.errors import UsageError
from remuda.evaluation.policy_inputs import (
    as_array,
    as_boolean_mask,
    as_rng,
    as_rows,
    exploration_rate,
    naming_policy,
)
from remuda.evaluation.tournaments.entrants import Player
from remuda.policies.acting import ActingStack
from remuda.policies.networks.module import PolicyModule
from remuda.policies.spec import PolicySpec
from remuda.publish.snapshot import Snapshot
from remuda.system.checkpoint.state import write_whole
from remuda.types import AgentSpec, Array, Bools, Floats

CACHED_PASSES = 16
"""Number of batch sizes whose forward passes are cached."""
COMPUTING = threading.Lock()


@dataclass
class PolicyState:
    """The memory of a policy for N streams, each of which plays a sequence of episodes.

    `Policy.initial_state` returns an initial state, `Policy.act_from` a new state. `Policy.act`
    changes its `state` argument.
    """

    frames: Floats
    """[N, n_frames * size]: the stacked observations, oldest first."""
    starts: Bools
    """[N]: whether the next observation is the first of an episode."""
    recurrent_state: Floats
    """[N, size] for a recurrent network; otherwise size is 0."""

    def copy(self) -> PolicyState:
        """Return a copy with new arrays."""
        return PolicyState(self.frames.copy(), self.starts.copy(), self.recurrent_state.copy())

    def begin(self, streams: npt.ArrayLike = True) -> None:
        """Start new episodes, in place, in these `streams`: [N] bool, or one bool for all.

        Raises:
            UsageError: the shape is wrong.
        """
        chosen = np.asarray(streams, np.bool_)
        if chosen.shape not in ((), self.starts.shape):
            raise UsageError(
                f"there are {len(self)} streams, and `streams` has the shape {chosen.shape}"
            )
        chosen = np.broadcast_to(chosen, self.starts.shape)
        self.starts |= chosen
        self.recurrent_state[chosen] = 0.0

    def __len__(self) -> int:
        return len(self.starts)


class Policy:
    """A policy saved by a run.

    1. `act` chooses exactly the actions of the run's actor for the same weights, observations,
       masks, random numbers and number of streams. Only rounding may differ, if the actor
       evaluates several policies together.
    2. No method changes the policy's weights.
    3. A call that raises changes neither the policy's memory nor a `state` argument.
    4. A policy can be copied, pickled, and used by several threads, which share its memory.
    """

    name: str
    """The policy's name in the run; `policy@version` for a frozen copy."""
    algorithm: str
    game: str
    """The game in which the policy was trained."""
    version: int
    """Number of times that the learner had published the weights."""
    learner_step: int
    """Number of updates of the weights."""
    observation_space: Space[Any]
    """As the environment declares it."""
    action_space: Space[Any]
    """As the environment declares it."""
    reference: str
    """The policy's source as `RUN:policy@WHICH`; empty if it is not from a run."""
    player: Player
    """For tournaments; not for users."""

    def __init__(
        self,
        spec: PolicySpec,
        snapshot: Snapshot,
        agent: AgentSpec,
        name: str = "",
        game: str = "",
        reference: str = "",
    ) -> None:
        """Prepare the policy to act. `remuda.load` does this for the policies of a run."""
        self.reference = reference
        self.name, self.algorithm, self.game = name or spec.name, spec.config.algorithm, game
        self.version, self.learner_step = snapshot.version, snapshot.learner_step
        self._spaces = EnvSpaces(agent)
        self.observation_space = self._spaces.observation_space
        self.action_space = self._spaces.action_space
        self.player = Player(spec, snapshot, agent)
        self._spec = spec
        self._network = spec.network()
        self._stack = ActingStack(
            self._network, [None], 1, gathered=True, cached_passes=CACHED_PASSES
        )
        self._stack.load(0, snapshot.weights)
        self._selector = spec.action_selector()
        self._rng = np.random.default_rng()
        self._own: PolicyState | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<remuda.Policy {self.name}: {self.algorithm}, version {self.version}>"

    def __reduce__(self) -> tuple[object, ...]:
        """Support copying and pickling, with the policy's memory and random generator."""
        player = self.player
        source = (player.spec, player.snapshot, player.agent, self.name, self.game, self.reference)
        with self._lock:  # another thread may use the memory, and a copy must not share it
            own = None if self._own is None else self._own.copy()
            return (type(self), source, {"_rng": copy.deepcopy(self._rng), "_own": own})

    @property
    def is_recurrent(self) -> bool:
        """True if the policy's network is recurrent."""
        return self._network.memory > 0

    @property
    def n_frames(self) -> int:
        """Number of stacked observations; 1: no stacking."""
        return self._spec.config.n_frames

    @property
    def mask_size(self) -> int:
        """Entries of an action mask; 0 if the game has none."""
        return self._spec.actions.mask_size if self._spec.masked else 0

    @property
    def remembered(self) -> PolicyState | None:
        """A copy of the memory that `act` keeps without a `state`; None before the first call."""
        with self._lock:
            return None if self._own is None else self._own.copy()

    def initial_state(self, num_streams: int = 1) -> PolicyState:
        """Return the memory of `num_streams` streams before their first observations."""
        return PolicyState(
            np.zeros((num_streams, self._spec.num_inputs), np.float32),
            np.ones(num_streams, np.bool_),
            np.zeros((num_streams, self._network.memory), np.float32),
        )

    def begin(self, streams: npt.ArrayLike = True) -> None:
        """Start new episodes in these `streams` of the policy's own memory, [N] bool or one bool.

        Policies that stack frames or are recurrent need this between episodes. For other policies
        it does nothing.
        """
        with self._lock:
            if self._own is not None:
                self._own.begin(streams)

    def act(
        self,
        observation: Any,
        *,
        mask: Any = None,
        deterministic: bool = True,
        state: PolicyState | None = None,
        rng: np.random.Generator | int | None = None,
        epsilon: float | None = None,
    ) -> Any:
        """Choose an action.

        A policy that stacks frames or is recurrent remembers the streams of a batch between calls:
        stream i is row i. Call `begin` when episodes start. Use `act_from` to keep the memory
        yourself.

        Args:
            observation: in `observation_space`, or a batch: [N, *shape], or a `Dict` or `Tuple` of
                such parts. Parts that are not arrays, such as `Text`, are lists in a batch.
            mask: allowed actions, [mask_size] or [N, mask_size], bool or 0 and 1; or in the form of
                the environment's `action_mask`, batched like the observations. Needed if the game
                has masks, unless the observation contains its `action_mask`; else not allowed.
            deterministic: choose the best action; otherwise explore as in training.
            state: memory as in `act_from`; changed in place.
            rng: random generator for exploration, or a seed; None: the policy's generator.
            epsilon: exploration rate of a Q-learner, 0 to 1; None: the rate at the end of training.
                Refused with `deterministic`, and for a policy that samples from a distribution.

        Returns:
            An action in `action_space`, as the environment gets it in training: an `int` for
            `Discrete`. For a batch: [N, *shape], or a `Dict` or `Tuple` of such parts.

        Raises:
            UsageError: a shape or value does not fit; this error is also a `ValueError`.
        """
        with naming_policy(self.name):
            observation, included = self._spaces.split(observation)
            observations, single = self._observations(observation)
            count = len(observations)
            allowed = self._allowed(included if mask is None else mask, count, single)
            rate = exploration_rate(deterministic, epsilon, self._spec.config)
            generator = self._rng if rng is None else as_rng(rng)
            if state is not None:
                self._check(state, count)
        with self._lock:
            remembered = self._remembered(count) if state is None else state
            actions = self._choose(observations, allowed, remembered, generator, rate)
        shape = self.player.agent.action_space.shape or ()
        chosen = self._selector.actions.within_bounds(actions).reshape(count, *shape)
        return self._spaces.actions(chosen, single)

    def act_from(
        self, state: PolicyState, observation: Any, **options: object
    ) -> tuple[Any, PolicyState]:
        """Choose an action from an unchanged `state`; return the action and the next state.

        `state` is from `initial_state` or an earlier call; `observation` and `options` are those of
        `act`.
        """
        after = state.copy()
        return self.act(observation, state=after, **options), after  # type: ignore[arg-type]

    def flatten(self, observation: Any) -> Array:
        """Return an observation, or a batch, in the form that `module` and the ONNX file accept.

        The result is [*shape] or [N, *shape], without the mask; for a `Box` it is the same array.
        """
        with naming_policy(self.name):
            rows, single = self._observations(self._spaces.split(observation)[0])
        flat = rows.reshape(len(rows), *self._spec.observation)
        return flat[0] if single else flat

    def module(self) -> PolicyModule:
        """Return a copy of the policy's network as a `torch.nn.Module`.

        `module()(torch.as_tensor(observations))` returns [B, O], from which `act` chooses: action
        values of a Q-learner; for PPO logits, or means and log standard deviations. Observations
        are [B, *shape], or [B, n_frames, *shape] if frames are stacked, the oldest first. A
        recurrent network also takes the state [B, size], and also returns the next state.
        """
        return PolicyModule(self._network, self._stack.parameters_of(0))

    def to_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write the greedy policy as an ONNX file, which needs no Remuda or torch; return the path.

        Inputs, each [N, ...] for any N: `observation` of the game's dtype, [N, *shape], or [N,
        n_frames, *shape] if frames are stacked, the oldest first, and zeros before an episode's
        start; `mask` [N, mask_size] bool if the game has masks; for a recurrent network
        `recurrent_state` [N, size] float32 and `starts` [N] bool, True for the first observation of
        an episode. Outputs: `action`, as `act` returns it; `network_output` [N, O], as from
        `module()`; `next_recurrent_state` [N, size].

        Other programs may round sums differently, by about 1e-6 of the largest value: continuous
        actions differ by that much, and another action may be chosen if the best two are that
        close.

        Raises:
            UsageError: packages are missing (the extra `onnx`), the file cannot be
                written, or ONNX lacks a part of the network.
        """
        from remuda.policies.onnx_file import onnx_file

        about = {
            "policy": self.name,
            "policy_version": str(self.version),
            "learner_step": str(self.learner_step),
            "game": self.game,
        }
        with torch.inference_mode(False), torch.no_grad():
            weights = self._network.acting(self._stack.parameters_of(0), None)
        content = onnx_file(self._spec, self._network, weights, self.player.agent, about)
        file = Path(path).expanduser()
        try:
            write_whole(file, content)
        except OSError as error:
            raise UsageError(f"{self.name}: cannot write {file}: {error.strerror}") from None
        return file

    def weights(self) -> dict[str, Floats]:
        """Return copies of the named parameters, as in the files of a run's `weights/`."""
        tensors = self._stack.parameters_of(0)
        return {name: values[0].cpu().numpy().copy() for name, values in tensors.items()}

    def _remembered(self, count: int) -> PolicyState:
        """Return the policy's memory; a batch of another size starts with an empty memory."""
        if not count:  # an empty batch: keep the memory
            return self.initial_state(0)
        if self._own is None or len(self._own) != count:
            self._own = self.initial_state(count)
        return self._own

    def _choose(
        self,
        observations: Array,
        allowed: Bools,
        state: PolicyState,
        generator: np.random.Generator,
        rate: float,
    ) -> Array:
        spec, count = self._spec, len(observations)
        actions = np.zeros((count, spec.actions.size), spec.actions.dtype)
        if not count:
            return actions
        log_probs: Floats = np.zeros(count, np.float32)
        state.recurrent_state[state.starts] = 0.0
        frames = FrameStack(state.frames, spec.observation_size, state.starts)
        frames.push(observations, np.ones(count, np.bool_))
        with _one_thread():
            inputs, forward = self._stack.padded_pass(0, 1, count)
            inputs[...] = state.frames
            if self.is_recurrent:
                outputs, after = self._stack.recurrent_pass(
                    0, 1, count, state.recurrent_state[None]
                )
                state.recurrent_state[...] = after[0]
            else:
                outputs = forward()
        rates = np.full(count, rate)
        self._selector.choose(outputs[0], allowed, generator, rates, actions, log_probs)
        return actions

    def _check(self, state: PolicyState, count: int) -> None:
        """Raise a `UsageError` unless `state` belongs to this policy and has `count` streams."""
        if not isinstance(state, PolicyState):
            raise UsageError(f"a state comes from initial_state; this is {state!r}")
        if len(state) != count:
            raise UsageError(
                f"the state is of {len(state)} streams, and there are {count} observations"
            )
        for name, expected in vars(self.initial_state(count)).items():
            values = getattr(state, name)
            if values.shape != expected.shape or values.dtype != expected.dtype:
                raise UsageError(
                    f"the state is of another policy: its {name} are {values.dtype} of shape "
                    f"{values.shape}, not {expected.dtype} of shape {expected.shape}"
                )
            if not values.flags.c_contiguous or not values.flags.writeable:
                setattr(state, name, values.copy())

    def _observations(self, observation: Any) -> tuple[Array, bool]:
        """Return observations as a batch of the policy's dtype, and whether it was a single one."""
        spec = self._spec
        if self._spaces.is_array:
            return as_rows(observation, spec.observation, spec.dtype)
        rows, single = self._spaces.flatten(observation)
        return as_rows(rows, spec.observation, spec.dtype)[0], single

    def _allowed(self, mask: Any, count: int, single: bool) -> Bools:
        size = self.mask_size
        if mask is None:
            if size:
                raise UsageError(f"it needs masks of {size} actions; pass them as mask=")
            return np.ones((count, 0), np.bool_)
        if not size:
            raise UsageError("it was trained without masks: leave mask out")
        rows = self._spaces.allowed(mask, count, single)
        allowed = as_array(mask if rows is None else rows, "mask")
        if allowed.shape not in ((size,), (count, size)) or (allowed.ndim == 1 and count != 1):
            raise UsageError(
                f"it needs a mask of shape {(count, size)}; this is of {allowed.shape}"
            )
        allowed = np.ascontiguousarray(as_boolean_mask(allowed).reshape(count, size))
        if not allowed.any(1).all():
            raise UsageError("a mask allows nothing")
        able = allows_something(self.player.agent, allowed)
        if not able.all():
            raise UsageError(
                f"mask {int(able.argmin())} allows nothing in one of the choices of "
                f"{self.action_space}; each needs an action that is allowed"
            )
        return allowed


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread, as in actors: with more threads it rounds differently.

    The number of threads belongs to the whole process, so one policy computes at a time. Otherwise
    a policy could reset the number while another computes, or mistake 1 for the number to restore.
    """
    with COMPUTING:
        before = torch.get_num_threads()
        if before != 1:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if before != 1:
                torch.set_num_threads(before)
