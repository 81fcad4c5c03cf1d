"""`VectorEnv`: the rules of a game, for many independent copies at once.

A turn is `begin_turn`, then `observe` and `act` for each group of agents, then `end_turn`. The game
sets the groups and their order: one agent after another, several at once, or all at once.
"""

from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from types import MappingProxyType
from typing import Any

from remuda.errors import ContractError
from remuda.types import AgentSpec, Array, Bools, Floats, Integers, State, TurnResult

MOST_EMPTY = 1000
"""The number of consecutive episodes that may end at their reset; one more raises an error."""


class VectorEnv(ABC):
    """`num_envs` independent copies of one game, stepped together.

    Every environment guarantees (`remuda.envs.contract` tests it):

    1. The same seeds and actions give the same observations and results.
    2. Copies share nothing: nothing that happens in one copy changes another.
    3. `reset` restarts the copies in its mask and leaves the others unchanged. Afterwards each of
       those copies has an active agent, or its episode has already ended. Such an episode lasts one
       turn, in which no agent acts, and is ignored.
    4. `observe` writes all of `out` and nothing else, and does not change the environment.
    5. `act` takes effect at once: agents that observe after it observe its effect. Actions of
       agents that were not active when they observed are ignored.
    6. Termination is not truncation, and an agent never has both. An agent whose episode has ended
       is not active, except with `may_return_at_once`.
    7. Observations are in the declared space, with its shape and dtype.
    8. If an environment can be saved, it continues exactly from the saved state when restored.
    9. An agent whose episode has ended does not end again before it is active again, and gets no
       reward before the turn that makes it active. A reward of that turn belongs to its new
       episode. When a copy has finished, every agent's episode has ended.
    10. `mask` writes all of `out` and changes nothing; an active agent always has an allowed
        action.
    11. The environment keeps no reference to arrays passed to `observe`, `mask` and `act`.
    12. Environments in the same process share nothing.
    13. For copies that have finished, `end_turn` returns the declared episode metrics.
    14. `rewards_so_far` is maintained if an agent may get a reward in a turn before it acts. It
        starts every turn at 0, and ends it equal to the rewards that `end_turn` returns.
    15. `set_option` changes a copy at its next reset, and nothing before.
    16. `observe_state` writes all of `out` with finite numbers, and changes nothing.
    """

    num_envs: int
    agents: tuple[AgentSpec, ...]
    turn_groups: tuple[tuple[int, ...], ...]
    """The groups of agents that observe together, in the order in which they act: ((0,), (1,)) is
    one after another, ((0, 1),) at once. `env.observe_together` sets `turn_groups` to one group of
    all agents, so a property needs a setter."""
    active: Bools
    """[num_envs, num_agents]: agents that act when their group's turn comes. Always the same array,
    which `reset`, `act` and `end_turn` update. A copy without an active agent after `end_turn` has
    finished. An inactive agent may become active again in the same episode, or in a new one
    after its episode has ended."""

    can_observe_together: bool = True
    """True if all agents may observe at the start of a turn (`env.observe_together`). False if an
    action decides which agent acts next."""
    may_return_at_once: bool = False
    """True if an agent may be active right after the turn that ended its episode. Its next episode
    starts with the next turn; until then `observe` and `mask` write the old episode's values."""
    rewards_so_far: Floats | None = None
    """[num_envs, num_agents] float32: rewards since `begin_turn`. Always the same array, up to date
    whenever an agent has observed. Rewards before an agent acts are credited to its previous
    action. None: all rewards come in `end_turn`."""
    episode_metrics: tuple[str, ...] = ()
    """Names of the metrics in `TurnResult.info`, one value per finished episode. Runs show their
    means over episodes."""

    changeable_options: tuple[str, ...] = ()
    """The names that `set_option` takes: the options that a run may change, for a curriculum."""

    notes: MutableMapping[str, str] = MappingProxyType({})  # type: ignore[assignment]
    """Warnings for the user: messages by key. Notes are never removed. A run shows each key once,
    and again when the run ends. An environment that adds notes sets this to a dictionary."""
    checker: str = "remuda.envs.contract.check_env"
    """The function that tests the game's contract, for messages; empty if there is none."""
    action_names: tuple[str, ...] = ()
    """Names of the actions of a Discrete space, for human players; empty if actions have only
    numbers. `up`, `down`, `left` and `right` are the arrow keys."""

    check: bool = True
    """True to check every value of another library's game."""
    first_copy: int = 0
    """The number of this environment's first copy, if several actors share a game's copies."""

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

    def set_option(self, name: str, value: Any) -> None:
        """Change an option in `changeable_options`, for each copy from its next reset.

        Observations and actions keep their spaces. `state` includes the options of each copy.

        Args:
            name: the name of the option.
            value: plain data: a number, text, bool, None, or lists and dictionaries of these.

        Raises:
            ValueError: the value is not allowed.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot change the option {name}")

    @abstractmethod
    def begin_turn(self) -> None:
        """Begin a turn, and move the environment's entities that are not agents."""

    @abstractmethod
    def observe(self, agent: int, out: Array) -> None:
        """Write the observations of `agent` into `out`: [num_envs, *observation_shape]."""

    def mask(self, agent: int, out: Bools) -> None:
        """Write the allowed actions of `agent` into `out`: [num_envs, possibilities] bool.

        Called right after `observe` for agents whose specification has `masked`. An active agent
        always has an allowed action. The masks of several choices (MultiDiscrete) are
        concatenated. Also called after `end_turn` if an episode was truncated: Q-learners bootstrap
        from the best allowed action, or from the best action if no action is allowed.
        """
        raise NotImplementedError(f"{type(self).__name__} allows every action to agent {agent}")

    def observe_state(self, agent: int, out: Array) -> None:
        """Write what a centralised critic of `agent` observes: [num_envs, *state_shape].

        Called right after `observe`, for agents whose specification has a `state_space`. Policies
        never read it, so it may contain everything.
        """
        raise NotImplementedError(f"{type(self).__name__} has no state for agent {agent}")

    @abstractmethod
    def act(self, agent: int, actions: Integers) -> None:
        """Let `agent` act in every copy: `actions` is [num_envs, *action_shape].

        The resulting rewards of all agents are summed until `end_turn`. Immediate rewards appear in
        `rewards_so_far` at once.
        """

    @abstractmethod
    def end_turn(self) -> TurnResult:
        """End the turn; return the rewards since `begin_turn` and how episodes ended."""

    def render(self, env: int = 0) -> Array:
        """Return an image of one copy: [height, width, 3] uint8.

        Raises:
            NotImplementedError: the game cannot be rendered.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be rendered")

    def describe(self, agent: int, env: int = 0) -> str:  # noqa: ARG002
        """Describe an agent's observation of one copy for human players, or return an empty text.

        It reveals nothing that the agent cannot know.
        """
        return ""

    def history(self, env: int = 0) -> list[int] | None:  # noqa: ARG002
        """Return the moves of a copy's episode, including chance, as its library numbers them.

        Return None if the game's library does not number moves.
        """
        return None

    def state(self) -> State:
        """Return everything that `restore` needs to continue exactly; called between two turns.

        Optional: without it, a resumed run starts new episodes.

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


def option_names(declared: object, owner: str) -> tuple[str, ...]:
    """Return the names that `changeable_options` declares; refuse anything but names."""
    if isinstance(declared, tuple | list) and all(isinstance(each, str) for each in declared):
        return tuple(declared)
    raise ContractError(
        f'{owner}.changeable_options must be a tuple of names, as in ("length",); '
        f"this is {declared!r}"
    )
