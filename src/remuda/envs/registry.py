"""The registry of games: names, summaries, and factories that are imported on first use."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from remuda.envs.adapters import user_envs
from remuda.envs.adapters.libraries import LIBRARIES
from remuda.envs.adapters.step_results import parameters_of, takes_anything
from remuda.envs.adapters.wrappers import METRICS, NOTHING, WRAPPERS, Wrapping
from remuda.envs.games import data
from remuda.errors import ConfigError, RemudaError, UnknownGameError, UsageError
from remuda.system import loading
from remuda.system.user_errors import naming_user_code

if TYPE_CHECKING:
    from remuda.envs.scripted import ScriptedPolicy
    from remuda.envs.vector_env import VectorEnv

TOGETHER = "env.observe_together"  # option key of `env.observe_together`
AGENT_ID = "env.agent_id"  # option key of `env.agent_id`
PACKED = "packed observations"  # option key: rows of images and floats are packed
CHANGED = "env.changed_options"  # option key of the options that a run changed, with their values
CRITIC = "policy.value.input"  # option key of the inputs that centralised critics get
RANDOM = "random"  # a scripted policy of every game: uniform over allowed actions


@dataclass(frozen=True)
class Game:
    """An entry of the registry."""

    name: str
    summary: str  # one line for `remuda games`
    kind: str  # cooperative, competitive or mixed
    factory: str
    """`module:callable`; it takes `num_envs` and the game's options, and returns a `VectorEnv`. A
    user's factory may instead return single environments of another library (`user_envs`)."""
    scripted: Mapping[str, str] = field(default_factory=dict)
    """Hand-written policies, each the `module:callable` of a `ScriptedPolicy`."""
    reference: Mapping[str, float] = field(default_factory=dict)
    """Each scripted policy's mean return per agent if it plays all seats, with default options."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """`module:NAME` of each option's allowed values."""
    pickle: bytes = field(default=b"", repr=False)
    """The pickled factory, if a child process cannot import it."""

    @property
    def is_own(self) -> bool:
        """Return whether it is a user's game, neither Remuda's nor a library's."""
        return self.name not in GAMES and self.factory.partition(":")[0] not in LIBRARIES

    def load(self) -> Callable[..., Any]:
        if self.pickle:
            return cast(Callable[..., Any], loading.load_object(self.name, self.pickle))
        library, _, game = self.factory.partition(":")
        if library in LIBRARIES:
            return partial(user_envs.import_factory(LIBRARIES[library].adapter), game)
        return user_envs.import_factory(self.factory)

    def policy(self, name: str) -> ScriptedPolicy:
        """Load a policy that does not learn: `random`, one of `scripted`, or `module:callable`.

        `name` may also come from `loading.name_object`. A class is instantiated without arguments.
        """
        policy = self._find_policy(name)
        if isinstance(policy, type):
            try:
                policy = policy()
            except TypeError as error:
                raise ConfigError(f"the class {name} needs arguments: {error}") from None
        if not callable(policy):
            raise ConfigError(
                f"the scripted policy {name!r} is {type(policy).__name__}, and cannot be called; "
                "pass a function (env, agent, observations, rng) -> actions, or a class with such "
                "a __call__"
            )
        return cast("ScriptedPolicy", policy)

    def _find_policy(self, name: str) -> object:
        if name == RANDOM:
            from remuda.envs.scripted import at_random

            return at_random
        if name not in self.scripted and ":" not in name:
            raise ConfigError(
                f"{self.name} has no scripted policy {name!r}; "
                f"it has {', '.join([RANDOM, *self.scripted])}; pass your own as module:callable"
            )
        if loading.is_pickled(name):
            return loading.load_object(name, loading.pickle_of(name))
        try:
            return cast(object, loading.find_named(self.scripted.get(name, name)))
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"cannot load the scripted policy {name!r}: {error}") from None

    def make(self, num_envs: int, /, **options: Any) -> VectorEnv:
        """Make `num_envs` copies."""
        if "num_envs" in options:
            raise ConfigError(
                "env.options.num_envs: the number of copies is not an option of a game; set "
                "env.num_envs to train, and num_envs for exploit and psro"
            )
        together, critic = options.pop(TOGETHER, False), options.pop(CRITIC, "")
        agent_id, packed = options.pop(AGENT_ID, False), options.pop(PACKED, False)
        changed = options.pop(CHANGED, {})
        env = self._make(num_envs, options)
        self._change(env, changed)
        if together:
            self._let_observe_together(env)
        if agent_id:
            from remuda.envs.agent_ids import AgentIds

            env = AgentIds(env)
        if critic:
            from remuda.envs.critic_inputs import CriticInputs

            env = CriticInputs(env, critic)
        if packed:
            from remuda.envs.observation_rows import PackedRows

            env = PackedRows(env)
        return env

    def _change(self, env: VectorEnv, changed: Mapping[str, Any]) -> None:
        """Set options that a run changed, before the first reset."""
        for name, value in changed.items():
            if name not in env.changeable_options:
                env.close()
                raise ConfigError(
                    f"{CHANGED}.{name}: {self.name} declares no such option; changeable_options "
                    f"are {', '.join(env.changeable_options) or 'none'}"
                )
            env.set_option(name, value)

    def _let_observe_together(self, env: VectorEnv) -> None:
        """Make one group of all agents, in the order of the game's groups."""
        if not env.can_observe_together:
            raise ConfigError(
                f"{TOGETHER}: in {self.name} one agent acts at a time, and observes the actions "
                "before its own; leave it false"
            )
        try:
            env.turn_groups = (tuple(agent for group in env.turn_groups for agent in group),)
        except AttributeError:
            raise ConfigError(
                f"{TOGETHER}: turn_groups of {self.name} cannot be set; make it an attribute, or "
                "leave it false"
            ) from None

    def _make(self, num_envs: int, options: dict[str, Any]) -> VectorEnv:
        wrapping = Wrapping(tuple(options.pop(WRAPPERS, ())), options.pop(METRICS, {}))
        library = LIBRARIES.get(self.factory.partition(":")[0])
        if wrapping != NOTHING and not (self.is_own or (library is not None and library.wraps)):
            raise user_envs.not_wrapped(self.name)
        factory = self.load()
        parameters = parameters_of(factory)
        allowed = [name for name in parameters if name != "num_envs"]
        unknown = sorted(set(options) - set(allowed))
        if unknown and not takes_anything(parameters):
            raise ConfigError(
                f"env.options.{unknown[0]}: {self.name} has no such option; "
                f"it has {', '.join(allowed) or 'none'}"
            )
        if self.is_own:
            return user_envs.make_copies(factory, num_envs, options, self.name, wrapping)
        extra = {"wrapping": wrapping} if wrapping != NOTHING else {}
        try:
            with naming_user_code(libraries=False):  # a user may have registered the environment
                return cast("VectorEnv", factory(num_envs=num_envs, **extra, **options))
        except RemudaError:
            raise
        except (TypeError, ValueError) as error:
            raise ConfigError(f"env.options: {self.name} refuses them: {error}") from error


GAMES = {name: Game(name, **entry) for name, entry in data.load("games").items()}


def is_known(name: str) -> bool:
    """Return whether `name` is a built-in game, or a game of a library with an adapter."""
    return name in GAMES or name.partition(":")[0] in LIBRARIES


def find_game(name: str) -> Game:
    """Return the game of that name.

    `name`: a key of `GAMES`, a library's game such as `gymnasium:CartPole-v1`, `module:callable`,
    or a result of `name_game`.
    """
    if name in GAMES:
        return GAMES[name]
    if is_known(name):
        return Game(name, f"a game of {name.partition(':')[0]}", "unknown", factory=name)
    if loading.is_pickled(name):
        data = loading.pickle_of(name)
        return Game(name, "your game", "unknown", factory="", pickle=data)
    if ":" in name:
        return Game(name, "your game", "unknown", factory=name)
    near = difflib.get_close_matches(name, GAMES, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise UnknownGameError(
        f"there is no game called {name!r}: {hint}Known games are {', '.join(sorted(GAMES))}; "
        "name a library's game like gymnasium:CartPole-v1 (`remuda games --all`), and your own "
        "like my_module:MyGame"
    )


def default_options(name: str) -> dict[str, Any]:
    """Return the default values of a game's parameters."""
    parameters = parameters_of(find_game(name).load()).values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def name_game(game: object) -> str:
    """Return the name of a game, or of a class or function that makes it."""
    if isinstance(game, str):
        return game
    try:
        user_envs.check_factory(game, "game")
    except ConfigError as error:
        raise UsageError(str(error)) from None
    name = loading.name_object(game, "the game")
    return next((own.name for own in GAMES.values() if own.factory == name), name)


def make_env(name: str, num_envs: int, /, **options: Any) -> VectorEnv:
    """Make `num_envs` copies of a game, with its options."""
    return find_game(name).make(num_envs, **options)
