"""The vocabulary of Remuda as code. Every other module uses these words.

The whole system is one ring:

    while turns are left:                                   # the actor
        take every policy's snapshot that is newer than mine    (publish)
        env.begin_turn()                                        (envs)
        for group in env.turn_groups:
            observe, act with the newest weights, take effect at once
        result = env.end_turn()
        write observations, actions and rewards                 (experience)

    while the run goes on:                                  # a learner, by policy
        sleep until there is enough to train on                 (experience)
        batch = replay.sample(); algorithm.update(batch)        (policies)
        now and then: publish weights, epsilon and version      (publish)

An *agent* is a seat in the environment; a *policy* is a network with its algorithm, optimizer and
version. A *turn* is one round in which every active agent acts once; a *step* is one agent's
observe-act-reward. A *segment* is a stretch of consecutive steps of one agent in one episode. The
*version* counts a policy's publications; *staleness* is the learner's version minus the version
that acted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gymnasium import Space

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
State = dict[str, Any]
"""What a successor needs to go on: nested plain data, as `remuda.checkpoint.state` explains."""


@dataclass(frozen=True)
class AgentSpec:
    """What an environment declares of one of its agents."""

    name: str
    observation_space: Space[Any]
    action_space: Space[Any]
    team: str = ""
    """Agents of one team share a fate; an empty name means that the agent stands for itself."""
    masked: bool = False
    """Whether `VectorEnv.mask` tells which of its actions are allowed."""
    layout: str = ""
    """`hwc` or `chw`: the axes of a picture that it observes; empty: they are guessed."""
    env_observation_space: Space[Any] | None = None
    """As the library's environment declares it, where an adapter flattens it; else None."""
    env_action_space: Space[Any] | None = None
    """As the library's environment declares it, where an adapter converts it; else None."""

    @property
    def in_arrays(self) -> AgentSpec:
        """The agent as a `VectorEnv` plays it, without the spaces of the library."""
        return replace(self, env_observation_space=None, env_action_space=None)


@dataclass(frozen=True)
class TurnResult:
    """What a turn brought, for all copies and agents. The arrays are the environment's own.

    They hold until the environment is used again; copy what must last longer.
    """

    rewards: Floats
    """[num_envs, num_agents]: what each agent was given during this turn, by any agent's act."""
    terminated: Bools
    """[num_envs, num_agents]: the rules ended this agent's episode; nothing is to come."""
    truncated: Bools
    """[num_envs, num_agents]: the episode was cut off; what was to come still counts."""
    info: Mapping[str, Array] = field(default_factory=dict)
    """By name, each [num_envs]: what `VectorEnv.facts` promises, in the copies that are over now,
    of their whole episode; elsewhere it means nothing."""


class Worker(Protocol):
    """An actor or a learner as a runtime sees it: something that works, and waits for work.

    Runtimes know nothing else of a role, and roles know nothing of runtimes (invariant 9).
    """

    def work(self) -> bool:
        """Do one unit of work, a turn or an update; False when there was nothing to do."""

    @property
    def done(self) -> bool:
        """Whether the worker has done all that it was built for."""

    def wait(self, timeout: float, interrupted: Callable[[], bool]) -> None:
        """Sleep in the kernel until there may be work, `interrupted()`, or `timeout` seconds."""

    def finish(self) -> None:
        """Leave everything published and complete; called once, after the last `work`."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a checkpoint that are this worker's, by name."""

    def state(self, part: str) -> State:
        """All that a successor needs to go on here; taken between two calls of `work`."""

    def restore(self, part: str, state: State) -> None:
        """Go on from what `state` returned; called before the first `work`."""


class Role(Protocol):
    """The recipe of a worker: plain picklable data that crosses to the process that hosts it."""

    @property
    def name(self) -> str:
        """The name of the role, of its log file and of its process."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a checkpoint that its worker will save."""

    def build(self) -> Worker:
        """Make the worker, in the process that is to run it."""

    def on_process_death(self) -> None:
        """Its process has died: let no other role wait for it before there is a successor."""


@dataclass(frozen=True)
class RoleStatus:
    """How a role is doing, as its runtime knows."""

    name: str
    pid: int | None
    """None: it has no process at present."""
    state: str
    """`starting`, `running`, `done`, or `waiting to restart`."""
    heartbeat_age: float
    """Seconds since its last sign of life."""
    restarts: int
    problem: str = ""
    """Why it was restarted last."""
    log: str = ""
    """The path of its log; empty: it has none."""
    processor: float | None = None
    """Processors that it had on average while it ran, 1 for each; an actor's workers count to it.
    None: not known."""
    node: str = ""
    """Where it lives; empty: the run has one node."""
