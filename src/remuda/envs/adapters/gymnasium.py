"""Gymnasium environments: one agent, many copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.answers import STEP, FirstCopy, first_begin, is_sequence, parts
from remuda.envs.adapters.masks import Masks, can_be_masked
from remuda.envs.adapters.spaces import MASK, deeds_of, picture_of, seed_of, sight_of
from remuda.envs.adapters.tuples import copies_of, has_agents, made_quietly
from remuda.envs.adapters.wrapping import NOTHING, Wrapping
from remuda.envs.checks import BadValueError, BoundsCheck, UntakeableError, broken, flag, number
from remuda.envs.closing import close, close_all
from remuda.envs.kinds import CHECKERS, GYMNASIUM
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError
from remuda.loading import import_module
from remuda.types import AgentSpec, Array, Bools, Floats, Integers, TurnResult
from remuda.user_code import where_raised

AGENT = "agent_0"


class GymnasiumEnv(VectorEnv):
    """Copies of one Gymnasium environment, stepped one after another.

    Observations that are no Box are flattened by `gymnasium.spaces.flatten`. Where `info` holds an
    `action_mask` after the first reset, be it None, or the observation is a dictionary with an
    `action_mask`, it is asked for after each reset and step.
    """

    turn_groups = ((0,),)
    checker = CHECKERS[GYMNASIUM]

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        num_envs: int = 1,
        wrapping: Wrapping = NOTHING,
    ) -> None:
        """Make the copies.

        Args:
            make: makes one copy, with all that stands round it.
            num_envs: copies.
            wrapping: what is read of `info`.

        Raises:
            ContractError: what it sees cannot be written as numbers.
        """
        self.num_envs = num_envs
        self.copies = [make() for _ in range(num_envs)]
        """The environments themselves, as the library made them."""
        first = self.copies[0]
        _, info = first_begin(first)
        self._first = FirstCopy(self.copies, make)
        self._deeds = deeds_of(first.action_space)
        self._sight = sight_of(first.observation_space, self._deeds)
        masked = can_be_masked(self._deeds) and (self._sight.has_mask or MASK in (info or {}))
        tells = (info or {}).get(MASK) is not None
        space = self._sight.space
        self.agents = (
            AgentSpec(
                AGENT,
                space,
                self._deeds.space,
                masked=masked,
                env_observation_space=first.observation_space,
                env_action_space=first.action_space,
            ),
        )
        self._seen = np.zeros((num_envs, *space.shape), space.dtype)
        self._masks = Masks(self.agents[0], self._sight, self._deeds, num_envs, tells)
        shape = (num_envs, 1)
        self._rewards: Floats = np.zeros(shape, np.float32)
        self._terminated: Bools = np.zeros(shape, np.bool_)
        self._truncated: Bools = np.zeros(shape, np.bool_)
        self.active: Bools = np.zeros(shape, np.bool_)
        self._turns: Integers = np.zeros(num_envs, np.int64)
        self.notes = {}
        self._bounds = BoundsCheck(self, [self._seen], self._terminated, self._truncated)
        self.wrapping = wrapping
        """What stands round each copy."""
        self._metrics = wrapping.reading([AGENT], num_envs)
        self.facts = self._metrics.names if self._metrics is not None else ()

    def reset(self, seeds: Integers, mask: Bools) -> None:
        """Restart the copies in `mask`, each from its own seed."""
        for i in np.flatnonzero(mask).tolist():
            self._turns[i] = 0
            if self._metrics is not None:
                self._metrics.begin(i)
            try:
                seen, info = self._first.begin(i, seed_of(seeds[i]))
                self._note(i, seen, info)
            except BadValueError as error:
                raise broken(self, 0, i, 0, error) from None
            self.active[i] = True

    def begin_turn(self) -> None:
        """Nothing moves by itself."""
        self._rewards[:] = 0.0
        self._terminated[:] = False
        self._truncated[:] = False
        self._turns += 1

    def observe(self, agent: int, out: Array) -> None:  # noqa: ARG002
        """Write what was seen last: [num_envs, *observation_shape]."""
        if self.check:
            self._bounds.look(0, self._turns)
        out[...] = self._seen

    def mask(self, agent: int, out: Bools) -> None:  # noqa: ARG002
        """Write what is allowed: [num_envs, possibilities]."""
        active = self.active[:, 0]
        lacking = self._masks.lacking(active) if self.check else None
        if lacking is not None:
            raise broken(self, 0, lacking, int(self._turns[lacking]), self._masks.missing())
        self._masks.write(out, active, self.check)

    def act(self, agent: int, actions: Integers) -> None:  # noqa: ARG002
        """Step every copy that is not over."""
        deeds, copies = self._deeds.unpack(actions), self.copies
        for i in np.flatnonzero(self.active[:, 0]).tolist():
            answer: Any = None
            try:
                answer = parts(copies[i], "step", copies[i].step(deeds[i]), STEP)
                seen, reward, terminated, truncated, info = answer
                self._note(i, seen, info)
                if self._metrics is not None:
                    self._metrics.read(i, 0, info or {}, self.check)
                plain = type(reward) is float and type(terminated) is type(truncated) is bool
                if not plain:
                    missing = reward is None and not self.check
                    reward = np.nan if missing else number(reward, self.check)
                    terminated = flag("terminated", terminated, self.check)
                    truncated = flag("truncated", truncated, self.check)
            except BadValueError as error:
                said = self._hint_of_agents(i, answer, error)
                raise broken(self, 0, i, int(self._turns[i]), said) from None
            self._rewards[i, 0] = reward
            if terminated or truncated:
                self._terminated[i, 0] = terminated
                self._truncated[i, 0] = not terminated
                self.active[i, 0] = False

    def end_turn(self) -> TurnResult:
        """What the steps brought."""
        metrics: Mapping[str, Array] = {}
        if self._metrics is not None:
            metrics = self._metrics.episode_metrics((self._terminated | self._truncated)[:, 0])
        return TurnResult(self._rewards, self._terminated, self._truncated, metrics)

    def render(self, env: int = 0) -> Array:
        """A picture of one copy: [height, width, 3] uint8."""
        try:
            return picture_of(self.copies[env].render(), self.copies[env])
        except gymnasium.error.Error as error:  # what it draws with is not installed
            raise NotImplementedError(" ".join(str(error).split())) from None

    def close(self) -> None:
        """Close every copy."""
        close_all(self.copies)

    def _hint_of_agents(self, i: int, answer: Any, error: BadValueError) -> BadValueError:
        """Return the error; where there is a reward for each part of a tuple, with what to do."""
        sees, does = self.copies[i].observation_space, self.copies[i].action_space
        if not (isinstance(sees, spaces.Tuple) and isinstance(does, spaces.Tuple)):
            return error
        count = len(sees.spaces)
        reward: Any = answer[1] if isinstance(answer, tuple | list) and len(answer) > 1 else None
        if count == len(does.spaces) and is_sequence(reward) and len(reward) == count:
            return UntakeableError(
                f"{error}; if its tuples are of {count} agents, let it have an attribute "
                f"n_agents = {count}"
            )
        return error

    def _note(self, i: int, seen: Any, info: Mapping[str, Any] | None) -> None:
        self._sight.write(seen, self._seen[i, ...], self.check)  # `...`: of one number a view too
        self._masks.note(i, seen, info or {}, self.check)


class _Maker:
    """Makes an environment at each call, with pictures where its constructor takes that."""

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        draws: bool,
        make: Callable[[str, Mapping[str, Any]], gymnasium.Env[Any, Any]],
    ) -> None:
        """Make `name`; `draws`: its metadata offers pictures, and no option says how to render."""
        self._name, self._options, self._draws, self._make = name, dict(options), draws, make

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Return a new environment."""
        if self._draws:
            try:
                return self._make(self._name, self._options | {"render_mode": "rgb_array"})
            except Exception:  # if rendering is not at fault, it comes again
                self._draws = False
        return self._make(self._name, self._options)


def _made(name: str, options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Make an environment that Gymnasium knows."""
    return gymnasium.make(name, **options)


def make_gymnasium(
    name: str, /, num_envs: int = 1, *, wrapping: Wrapping = NOTHING, **options: Any
) -> VectorEnv:
    """Copies of the environment that Gymnasium knows as `name`.

    One that hands over tuples by agent is shared by so many agents (`tuples`).

    Args:
        name: as `gymnasium.make` takes it: `my_module:Name-v0` imports a module that registers it.
        num_envs: copies.
        wrapping: what stands round each.
        options: what the environment takes.

    Raises:
        ConfigError: Gymnasium does not know it, or lacks what it needs.
        UserCodeError: the module raised as it was imported.
    """
    try:
        module, _, name = name.rpartition(":")
        if module:
            import_module(module)
        modes = gymnasium.spec(name).kwargs | options
        kind = gymnasium.make(name, **options)
        drawable = "rgb_array" in (kind.metadata.get("render_modes") or ())
        close(kind.close, kind)
        draws = drawable and "render_mode" not in modes
        if has_agents(kind, lambda: made_quietly(name, options)):
            make = wrapping.around(_Maker(name, options, draws, made_quietly))
            return copies_of(make, num_envs, wrapping)
        make = wrapping.around(_Maker(name, options, draws, _made))
        return GymnasiumEnv(make, num_envs, wrapping)
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        if where_raised(error, libraries=False):
            raise
        line = " ".join(str(error).split())
        asked = f"{module}:{name}" if module else name
        raise ConfigError(f"gymnasium:{asked} cannot be made: {line}") from None
