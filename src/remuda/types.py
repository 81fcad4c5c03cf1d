"""Types and terms that all other modules use.

Data flows in a cycle:

    while turns are left:                                   # the actor
        load newly published snapshots                          (publish)
        env.begin_turn()                                        (envs)
        for group in env.turn_groups:
            observe, choose actions, apply them at once
        result = env.end_turn()
        write observations, actions and rewards                 (experience)

    until the run ends:                                     # a learner, for each policy
        sleep until there is enough to train on                 (experience)
        batch = replay.sample(); algorithm.update(batch)        (policies)
        publish weights and epsilon every few updates           (publish)

An *agent* is a seat in the environment; a *policy* is a network with its algorithm, optimizer and
version. A *turn* is one round in which every active agent acts once; a *step* is one agent's
observe-act-reward. A *segment* is a stretch of consecutive steps of one agent in one episode. The
*version* counts a policy's publications; *staleness* is the learner's version minus the version of
the weights that acted.
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
Numbers = npt.NDArray[np.float64]
State = dict[str, Any]
"""State from which a restarted worker continues, as plain data (`system/checkpoint/state.py`)."""


@dataclass(frozen=True)
class AgentSpec:
    """An agent, as its environment declares it."""

    name: str
    observation_space: Space[Any]
    action_space: Space[Any]
    team: str = ""
    """The agent's team; with an empty name, the agent is a team by itself."""
    masked: bool = False
    """True if `VectorEnv.mask` writes the agent's allowed actions."""
    layout: str = ""
    """The axes of observed images, `hwc` or `chw`; if empty, Remuda guesses them."""
    env_observation_space: Space[Any] | None = None
    """The observation space of the library's environment, if an adapter flattens it."""
    env_action_space: Space[Any] | None = None
    """The action space of the library's environment, if an adapter converts it."""
    state_space: Space[Any] | None = None
    """The Box that `VectorEnv.observe_state` writes for the agent's centralised critic, if any."""

    @property
    def in_arrays(self) -> AgentSpec:
        """This agent without the spaces of the library's environment."""
        return replace(self, env_observation_space=None, env_action_space=None)


@dataclass(frozen=True)
class TurnResult:
    """The outcome of a turn, for all copies and agents.

    The arrays belong to the environment, which may overwrite them at its next call.
    """

    rewards: Floats
    """[num_envs, num_agents]: each agent's reward in this turn, from the actions of all agents."""
    terminated: Bools
    """[num_envs, num_agents]: the rules ended this agent's episode; the remaining return is 0."""
    truncated: Bools
    """[num_envs, num_agents]: the episode was cut off; bootstrap from the final observation."""
    info: Mapping[str, Array] = field(default_factory=dict)
    """Metrics of whole episodes, named by `VectorEnv.episode_metrics`, each [num_envs]. Only the
    entries of copies whose episode ended in this turn are valid.
    """


class Worker(Protocol):
    """An actor or a learner as a runtime sees it.

    Runtimes use only this interface, and workers know no runtime (ARCHITECTURE.md, invariant 9).
    """

    def work(self) -> bool:
        """Do one unit of work, a turn or an update; return False if there was nothing to do."""

    @property
    def done(self) -> bool:
        """True once the worker has done everything."""

    def wait(self, timeout: float, interrupted: Callable[[], bool]) -> None:
        """Sleep until there may be work, `interrupted()` is true, or `timeout` seconds pass."""

    def finish(self) -> None:
        """Complete and publish everything; called once, after the last `work`."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of this worker's parts of a checkpoint."""

    def state(self, part: str) -> State:
        """Return the state for a restarted worker; called between two calls of `work`."""

    def restore(self, part: str, state: State) -> None:
        """Continue from what `state` returned; called before the first `work`."""


class Role(Protocol):
    """Picklable data from which a process builds its worker."""

    @property
    def name(self) -> str:
        """The name of the role, of its log file and of its process."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts of a checkpoint that its worker will save."""

    def build(self) -> Worker:
        """Make the worker, in the process that will run it."""

    def on_process_death(self) -> None:
        """Release roles that wait for this role, after its process died and before a restart."""


@dataclass(frozen=True)
class RoleStatus:
    """The status of a role, as its runtime knows it."""

    name: str
    pid: int | None  # None without a process
    state: str  # `starting`, `running`, `done`, or `waiting to restart`
    heartbeat_age: float  # seconds since its last heartbeat
    restarts: int
    problem: str = ""  # reason of the last restart
    log: str = ""  # the path of its log, if any
    processor: float | None = None
    """Mean number of CPU cores in use, including an actor's environment workers; None: unknown."""
    node: str = ""  # its node; empty if the run has one node


class Runtime(Protocol):
    """A runner of a run's roles: actors and learners.

    Each session of a run starts it once and stops it once. `tests/contracts/test_runtime.py` tests
    `InlineRuntime` and `ProcessRuntime`; whole runs test `ClusterRuntime`
    (`tests/cluster/test_two_node_runs.py`).

    1. All roles are ready before any of them works.
    2. `save` reports a role's parts only if the role has written all of them.
    3. After `stop` no role works, and no process is left.
    """

    def start(self, stopped: Callable[[], bool], ready: Callable[[], None] = lambda: None) -> None:
        """Start every role, or return early when `stopped()`."""

    def run_for(self, seconds: float) -> bool:
        """Let the roles work for about `seconds`; return True once all turns are played."""

    def save(self, number: int) -> set[str]:
        """Let every role write its parts of a checkpoint; return the names of the written parts."""

    def settle(self, number: int) -> None:  # noqa: ARG002
        """Announce that a checkpoint is complete or given up, if roles wait for that."""
        return

    def status(self) -> list[RoleStatus]:
        """Return the status of every role."""

    def traffic(self) -> tuple[int, int] | None:
        """Return the bytes and messages sent between nodes so far; None if there is one node."""
        return None

    def news(self) -> list[str]:
        """Return the new messages for the user."""
        return []

    def stop(self) -> None:
        """Let every role finish, and make sure that all have ended."""
