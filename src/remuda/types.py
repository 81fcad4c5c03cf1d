"""The vocabulary of Remuda as code. Every other module uses these words.

Data flows in a cycle:

    while turns are left:                                   # the actor
        take every policy's snapshot that is newer than mine    (publish)
        env.begin_turn()                                        (envs)
        for group in env.turn_groups:
            observe, act with the newest weights, take effect at once
        result = env.end_turn()
        write observations, actions and rewards                 (experience)

    until the run ends:                                     # a learner, by policy
        sleep until there is enough to train on                 (experience)
        batch = replay.sample(); algorithm.update(batch)        (policies)
        every few updates: publish weights, epsilon, version    (publish)

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
Numbers = npt.NDArray[np.float64]
State = dict[str, Any]
"""State from which a successor continues: nested plain data, see `system/checkpoint/state.py`."""


@dataclass(frozen=True)
class AgentSpec:
    """The declaration of one of an environment's agents."""

    name: str
    observation_space: Space[Any]
    action_space: Space[Any]
    team: str = ""
    """The agent's team; an empty name is a team of one."""
    masked: bool = False
    """`VectorEnv.mask` returns the allowed actions."""
    layout: str = ""
    """`hwc` or `chw`: the axes of observed images; empty: they are guessed."""
    env_observation_space: Space[Any] | None = None
    """As the library's environment declares it, if an adapter flattens it."""
    env_action_space: Space[Any] | None = None
    """As the library's environment declares it, if an adapter converts it."""

    @property
    def in_arrays(self) -> AgentSpec:
        """The agent as a `VectorEnv` plays it, without the spaces of the library."""
        return replace(self, env_observation_space=None, env_action_space=None)


@dataclass(frozen=True)
class TurnResult:
    """The outcome of a turn, for all copies and agents, in the environment's own arrays.

    They are valid until the environment is used again; copy what must last longer.
    """

    rewards: Floats
    """[num_envs, num_agents]: each agent's reward in this turn, caused by any agent's action."""
    terminated: Bools
    """[num_envs, num_agents]: the rules ended this agent's episode; the remaining return is 0."""
    truncated: Bools
    """[num_envs, num_agents]: the episode was cut off; bootstrap from the final observation."""
    info: Mapping[str, Array] = field(default_factory=dict)
    """Episode metrics named by `VectorEnv.episode_metrics`, each [num_envs]: those of the whole
    episode in copies whose episode ended now; other entries are meaningless.
    """


class Worker(Protocol):
    """An actor or a learner as a runtime sees it.

    Runtimes know nothing else of a role, and roles know nothing of runtimes (invariant 9).
    """

    def work(self) -> bool:
        """Do one unit of work, a turn or an update; return False if there was nothing to do."""

    @property
    def done(self) -> bool:
        """True once the worker has done everything."""

    def wait(self, timeout: float, interrupted: Callable[[], bool]) -> None:
        """Sleep in the kernel until there may be work, `interrupted()`, or `timeout` seconds."""

    def finish(self) -> None:
        """Leave everything published and complete; called once, after the last `work`."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of this worker's parts of a checkpoint."""

    def state(self, part: str) -> State:
        """Return the state from which a successor continues; called between two calls of `work`."""

    def restore(self, part: str, state: State) -> None:
        """Continue from what `state` returned; called before the first `work`."""


class Role(Protocol):
    """The recipe of a worker: plain picklable data that crosses to the process that hosts it."""

    @property
    def name(self) -> str:
        """The name of the role, of its log file and of its process."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a checkpoint that its worker will save."""

    def build(self) -> Worker:
        """Make the worker, in the process that will run it."""

    def on_process_death(self) -> None:
        """Release other roles that wait for it, after its process died and before a successor."""


@dataclass(frozen=True)
class RoleStatus:
    """The status of a role, as its runtime knows it."""

    name: str
    pid: int | None  # none without a process
    state: str  # `starting`, `running`, `done`, or `waiting to restart`
    heartbeat_age: float  # seconds since its last sign of life
    restarts: int
    problem: str = ""  # reason of the last restart
    log: str = ""  # the path of its log, if any
    processor: float | None = None
    """Mean number of CPU cores it used while it ran, with an actor's workers; None if unknown."""
    node: str = ""  # its node; empty if the run has one node
