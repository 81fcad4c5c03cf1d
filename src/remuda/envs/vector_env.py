"""`VectorEnv`: the rules of a game, for many independent copies at once.

A turn goes `begin_turn`, then for each group of agents `observe` and `act`, then `end_turn`. The
order of the groups is the game's own: agents one after another, or several, or all, at once.
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

    What every environment guarantees (`remuda.envs.contract` tests it):

    1. The same seeds and actions give the same observations and results.
    2. Copies share nothing: what happens in one never changes another.
    3. `reset` restarts the copies in its mask and leaves the others alone; after it an agent in
       each of those copies is active. Where none is, the episode is over when it begins: it ends
       with the turn in which no agent acts, and counts nowhere.
    4. `observe` writes all of `out` and nothing else, and changes nothing in the world.
    5. `act` takes effect at once: an agent that observes after it sees its effect. Actions of
       agents that were not active when they observed are ignored.
    6. Termination is not truncation, and an agent never has both. One whose episode has ended is
       not active, but where `may_return_at_once` says so.
    7. Observations lie in the declared space, with its shape and dtype.
    8. Where it can be saved, a restored environment goes on exactly like the one that was saved.
    9. An agent whose own episode has ended ends no second time before it is active again, and is
       given nothing before the turn that makes it active: a reward of that turn is of its new
       episode. When a copy is over, every agent's episode has ended.
    10. `mask` writes all of `out` and changes nothing; who is active may always do something.
    11. It keeps no hold of the arrays that `observe`, `mask` and `act` were given.
    12. Environments side by side share nothing.
    13. In copies that are over, `end_turn` tells the facts that the environment promises.
    14. `rewards_so_far` is kept where an agent may be given something in a turn before it acts. It
        begins anew with every turn, and ends as the rewards that `end_turn` returns.
    """

    num_envs: int
    agents: tuple[AgentSpec, ...]
    turn_groups: tuple[tuple[int, ...], ...]
    """Agents that observe together, in the order in which the groups act: ((0,), (1,)) is one
    after another, ((0, 1),) is at once. Where `env.observe_together` is set, it is set to one group
    of all, so a property of a class of your own needs a setter."""
    active: Bools
    """[num_envs, num_agents]: who acts when its group's turn comes. One array for good, which
    `reset`, `act` and `end_turn` keep up to date; a copy in which no agent is active after
    `end_turn` is over. An agent that is out may come back, in the same episode or, once its own has
    ended, in a new one."""

    can_observe_together: bool = True
    """Whether all agents may observe at the start of a turn, as `env.observe_together` has it. Not
    where who acts next depends on what the one before did."""
    may_return_at_once: bool = False
    """Whether an agent whose episode a turn has ended may be active after it: it begins another
    with the next turn. What `observe` and `mask` write of it until then is of the old one."""
    rewards_so_far: Floats | None = None
    """[num_envs, num_agents] float32: what each agent has been given since `begin_turn`. One array
    for good, true whenever an agent has observed. What is in it before an agent acts belongs to
    its decision before. None: nothing is given before `end_turn`."""
    facts: tuple[str, ...] = ()
    """What is told of each episode when it is over, next to the returns: the names in
    `TurnResult.info`. Runs show their means over episodes."""

    notes: MutableMapping[str, str] = MappingProxyType({})  # type: ignore[assignment]
    """What the environment has noticed that is no error and that its user should know: sentences by
    a key. Notes are only added; a run tells each key once, and again at its end. An environment
    with notes sets a dictionary of its own."""
    checker: str = "remuda.envs.contract.check_env"
    """What tests the contract that the game is written by, for messages; empty: nothing does."""
    action_names: tuple[str, ...] = ()
    """What the actions of a Discrete space are called, for people who play; empty: they are
    numbers. `up`, `down`, `left` and `right` are the arrow keys."""

    check: bool = True
    """Whether every value of another library's game is checked before it is taken over."""
    first_copy: int = 0
    """The number of its first copy, where the copies of a game are shared out among actors."""

    @property
    def num_agents(self) -> int:
        """How many agents one copy seats."""
        return len(self.agents)

    def warm_up(self) -> None:  # noqa: B027 - most environments compile nothing
        """Compile what a turn takes; called once, before the first reset."""

    @abstractmethod
    def reset(self, seeds: Integers, mask: Bools) -> None:
        """Restart the copies in `mask`, each from its own seed.

        Args:
            seeds: [num_envs] int64, not negative; those outside the mask are not read.
            mask: [num_envs] bool, the copies to restart.
        """

    @abstractmethod
    def begin_turn(self) -> None:
        """Let the world's own entities move."""

    @abstractmethod
    def observe(self, agent: int, out: Array) -> None:
        """Write what `agent` sees now into `out`: [num_envs, *observation_shape]."""

    def mask(self, agent: int, out: Bools) -> None:
        """Write what `agent` may do now into `out`: [num_envs, possibilities] bool.

        Asked of agents whose specification says `masked`, right after `observe`. An agent that is
        active may always do something. With several choices at once (MultiDiscrete) the
        possibilities of each follow one another. Asked after `end_turn`, too, where an episode was
        truncated: Q-learners estimate what was to come by the best action that would have been
        allowed. Where nothing would have been, they count all as allowed.
        """
        raise NotImplementedError(f"{type(self).__name__} allows every action to agent {agent}")

    @abstractmethod
    def act(self, agent: int, actions: Integers) -> None:
        """Let `agent` act in every copy: `actions` is [num_envs, *action_shape].

        The rewards that follow accrue, to whichever agents, until `end_turn`; those that come at
        once are in `rewards_so_far` at once.
        """

    @abstractmethod
    def end_turn(self) -> TurnResult:
        """End the turn: rewards since `begin_turn`, and which episodes ended how."""

    def render(self, env: int = 0) -> Array:
        """A picture of one copy: [height, width, 3] uint8.

        Raises:
            NotImplementedError: the game has no picture.
        """
        raise NotImplementedError(f"{type(self).__name__} has no picture of its world")

    def describe(self, agent: int, env: int = 0) -> str:  # noqa: ARG002
        """What an agent of one copy sees, in words for people who play; empty: there are none.

        Nothing that the agent cannot know.
        """
        return ""

    def history(self, env: int = 0) -> list[int] | None:  # noqa: ARG002
        """All moves of one copy's episode so far, those of chance too, as its library numbers them.

        None: the game's library knows no such thing.
        """
        return None

    def state(self) -> State:
        """Everything that `restore` needs to go on exactly here; taken between two turns.

        Optional: without it, a resumed run begins new episodes.

        Raises:
            NotImplementedError: the game cannot be saved.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be saved in mid-episode")

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, in an environment with the same options."""
        raise NotImplementedError(f"{type(self).__name__} cannot be saved in mid-episode")

    def close(self) -> None:  # noqa: B027 - most environments hold nothing
        """Give back what the environment holds outside itself."""

    def options(self) -> dict[str, Any]:
        """The game's parameters in force, by name."""
        return {}
