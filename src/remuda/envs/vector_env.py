"""`VectorEnv`: the rules of a game, for many independent copies at once.

A turn goes `begin_turn`, then for each group of agents `observe` and `act`, then `end_turn`. The
game sets the order of the groups: one agent after another, several at once, or all.
"""

from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from types import MappingProxyType
from typing import Any

from remuda.types import AgentSpec, Array, Bools, Floats, Integers, State, TurnResult

MOST_EMPTY = 1000
"""Episodes in a row that may be over when they begin; with more, play gives up."""


class VectorEnv(ABC):
    """`num_envs` independent copies of one game, stepped together.

    Every environment guarantees (`remuda.envs.contract` tests it):

    1. The same seeds and actions give the same observations and results.
    2. Copies share nothing: nothing that happens in one changes another.
    3. `reset` restarts the copies in its mask and leaves the others alone; after it an agent in
       each of those copies is active. If none is, the episode is over when it begins: it ends
       with the turn in which no agent acts, and counts nowhere.
    4. `observe` writes all of `out` and nothing else, and changes nothing in the world.
    5. `act` takes effect at once: an agent that observes after it sees its effect. Actions of
       agents that were not active when they observed are ignored.
    6. Termination is not truncation, and an agent never has both. An agent whose episode has ended
       is not active, except with `may_return_at_once`.
    7. Observations are in the declared space, with its shape and dtype.
    8. If it can be saved, a restored environment continues exactly like the one that was saved.
    9. An agent whose episode has ended ends no second time before it is active again, and gets no
       reward before the turn that makes it active: a reward of that turn belongs to its new
       episode. When a copy is over, every agent's episode has ended.
    10. `mask` writes all of `out` and changes nothing; an active agent may always do something.
    11. It keeps no reference to the arrays that `observe`, `mask` and `act` got.
    12. Environments side by side share nothing.
    13. In copies that are over, `end_turn` returns the promised episode metrics.
    14. `rewards_so_far` is kept if an agent may get a reward in a turn before it acts. It starts
        at 0 in every turn, and ends as the rewards that `end_turn` returns.
    """

    num_envs: int
    agents: tuple[AgentSpec, ...]
    turn_groups: tuple[tuple[int, ...], ...]
    """Agents that observe together, in the order in which the groups act: ((0,), (1,)) is one
    after another, ((0, 1),) is at once. `env.observe_together` sets it to one group of all agents,
    so a property needs a setter."""
    active: Bools
    """[num_envs, num_agents]: agents that act when their group's turn comes. Always the same array,
    which `reset`, `act` and `end_turn` update; a copy without an active agent after `end_turn` is
    over. An agent that is out may come back, in the same episode or, once its own has ended, in a
    new one."""

    can_observe_together: bool = True
    """True if all agents may observe at the start of a turn (`env.observe_together`). False if an
    act decides which agent acts next."""
    may_return_at_once: bool = False
    """True if an agent whose episode a turn has ended may be active after it: its next episode
    begins with the next turn. Until then `observe` and `mask` write those of the old one."""
    rewards_so_far: Floats | None = None
    """[num_envs, num_agents] float32: rewards since `begin_turn`. Always the same array, up to date
    whenever an agent has observed. Rewards before an agent acts belong to its action before. None:
    rewards only come in `end_turn`."""
    episode_metrics: tuple[str, ...] = ()
    """Names of the metrics in `TurnResult.info`, of each episode that is over. Runs show their
    means over episodes."""

    notes: MutableMapping[str, str] = MappingProxyType({})  # type: ignore[assignment]
    """Problems that are no errors and that the user should know: sentences by a key. Notes are only
    added; a run shows each key once, and again at its end. An environment with notes sets a
    dictionary."""
    checker: str = "remuda.envs.contract.check_env"
    """The test of the game's contract, for messages; empty: there is none."""
    action_names: tuple[str, ...] = ()
    """Names of the actions of a Discrete space, for people who play; empty: they are numbers. `up`,
    `down`, `left` and `right` are the arrow keys."""

    check: bool = True
    """True if every value of another library's game is checked."""
    first_copy: int = 0
    """The number of its first copy, if actors share the copies of a game."""

    @property
    def num_agents(self) -> int:
        """Return the number of agents in a copy."""
        return len(self.agents)

    def warm_up(self) -> None:  # noqa: B027 - most environments compile nothing
        """Compile the code of a turn; called once, before the first reset."""

    @abstractmethod
    def reset(self, seeds: Integers, mask: Bools) -> None:
        """Restart the copies in `mask`, each from its seed.

        Args:
            seeds: [num_envs] int64, not negative; those outside the mask are not read.
            mask: [num_envs] bool, the copies to restart.
        """

    @abstractmethod
    def begin_turn(self) -> None:
        """Let the world's own entities move."""

    @abstractmethod
    def observe(self, agent: int, out: Array) -> None:
        """Write the observations of `agent` into `out`: [num_envs, *observation_shape]."""

    def mask(self, agent: int, out: Bools) -> None:
        """Write the allowed actions of `agent` into `out`: [num_envs, possibilities] bool.

        Called for agents whose specification has `masked`, right after `observe`. An active agent
        may always do something. The possibilities of several choices (MultiDiscrete) follow one
        another. Called after `end_turn`, too, if an episode was truncated: Q-learners bootstrap
        from the best action that would have been allowed. If nothing was, they count all as
        allowed.
        """
        raise NotImplementedError(f"{type(self).__name__} allows every action to agent {agent}")

    @abstractmethod
    def act(self, agent: int, actions: Integers) -> None:
        """Let `agent` act in every copy: `actions` is [num_envs, *action_shape].

        The rewards that follow accrue, to any agents, until `end_turn`; immediate ones are in
        `rewards_so_far` at once.
        """

    @abstractmethod
    def end_turn(self) -> TurnResult:
        """End the turn: rewards since `begin_turn`, and which episodes ended how."""

    def render(self, env: int = 0) -> Array:
        """Return a picture of one copy: [height, width, 3] uint8.

        Raises:
            NotImplementedError: the game has no picture.
        """
        raise NotImplementedError(f"{type(self).__name__} has no picture of its world")

    def describe(self, agent: int, env: int = 0) -> str:  # noqa: ARG002
        """Return an observation of one copy in words, for people who play; empty: there are none.

        It holds nothing that the agent cannot know.
        """
        return ""

    def history(self, env: int = 0) -> list[int] | None:  # noqa: ARG002
        """Return a copy's moves in this episode, those of chance too, as its library numbers them.

        None: the game's library does not number moves.
        """
        return None

    def state(self) -> State:
        """Return everything that `restore` needs to continue exactly here, between two turns.

        Optional: without it, a resumed run begins new episodes.

        Raises:
            NotImplementedError: the game cannot be saved.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be saved in mid-episode")

    def restore(self, state: State) -> None:
        """Restore what `state` returned, in an environment with the same options."""
        raise NotImplementedError(f"{type(self).__name__} cannot be saved in mid-episode")

    def close(self) -> None:  # noqa: B027 - most environments hold nothing
        """Release resources outside the environment."""

    def options(self) -> dict[str, Any]:
        """Return the game's parameters."""
        return {}
