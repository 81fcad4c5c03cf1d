"""Copies of PettingZoo's environments: what both kinds share, and those whose agents act at once.

They cannot be saved in mid-episode, since PettingZoo's environments cannot.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.envs.adapters.answers import (
    RESET,
    STEP,
    FirstCopy,
    first_begin,
    mapping_of,
    parts,
    refuse_lists,
)
from remuda.envs.adapters.masks import Masks, can_be_masked
from remuda.envs.adapters.spaces import MASK, deeds_of, picture_of, seed_of, sight_of
from remuda.envs.adapters.wrapping import NOTHING, InfoMetrics, Wrapping
from remuda.envs.checks import (
    BadValueError,
    BoundsCheck,
    UntakeableError,
    broken,
    flag,
    number,
    short,
)
from remuda.envs.closing import close_all
from remuda.envs.kinds import CHECKERS, PARALLEL
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ContractError
from remuda.types import AgentSpec, Array, Bools, Floats, Integers, TurnResult

if TYPE_CHECKING:
    from pettingzoo import ParallelEnv


class Copies(VectorEnv):
    """What both kinds have in common: the arrays of all copies, and how they are filled."""

    def __init__(
        self, copies: Sequence[Any], infos: Mapping[Any, Any] | None, wrapping: Wrapping
    ) -> None:
        """Take the copies, the first of which has been reset.

        Args:
            copies: environments, all made alike.
            infos: of that reset, by agent. Where any holds a mask, or None for one, all agents that
                make choices are asked for theirs: some tell that of the selected agent alone, or an
                agent is not there yet. Who never tells one may do anything.
            wrapping: what is read of `info`.

        Raises:
            ContractError: what an agent sees cannot be written as numbers.
        """
        first = copies[0]
        self._names = names = tuple(first.possible_agents)
        self.copies = copies
        """The environments themselves, as the library made them."""
        self._index = {name: i for i, name in enumerate(names)}
        self._deeds = [deeds_of(first.action_space(name)) for name in names]
        self._sights = [
            sight_of(first.observation_space(name), deeds)
            for name, deeds in zip(names, self._deeds, strict=True)
        ]
        self.num_envs = len(copies)
        try:
            infos = mapping_of(infos)
            own_infos = [mapping_of(infos.get(name)) for name in names]
        except UntakeableError as error:
            raise ContractError(f"the game breaks its contract: {error}") from None
        tells = [info.get(MASK) is not None for info in own_infos]
        any_mask = any(MASK in info for info in own_infos)
        self.agents = tuple(
            AgentSpec(
                str(name),
                sight.space,
                deeds.space,
                masked=can_be_masked(deeds) and (sight.has_mask or any_mask),
                env_observation_space=first.observation_space(name),
                env_action_space=first.action_space(name),
            )
            for name, sight, deeds in zip(names, self._sights, self._deeds, strict=True)
        )
        self._seen = [
            np.zeros((self.num_envs, *sight.space.shape), sight.space.dtype)
            for sight in self._sights
        ]
        of_agents = zip(self.agents, self._sights, self._deeds, tells, strict=True)
        self._masks = [
            Masks(spec, sight, deeds, self.num_envs, told) for spec, sight, deeds, told in of_agents
        ]
        shape = (self.num_envs, len(names))
        self.active: Bools = np.zeros(shape, np.bool_)
        self._rewards: Floats = np.zeros(shape, np.float32)
        self._terminated: Bools = np.zeros(shape, np.bool_)
        self._truncated: Bools = np.zeros(shape, np.bool_)
        self._turns: Integers = np.zeros(self.num_envs, np.int64)
        self.notes = {}
        self._bounds = BoundsCheck(self, self._seen, self._terminated, self._truncated)
        # Whether an agent is in an episode of its own, which has begun and not ended.
        self._playing: Bools = np.zeros(shape, np.bool_)
        self.wrapping = wrapping
        """What stands round each copy."""
        self._metrics = wrapping.reading([spec.name for spec in self.agents], self.num_envs)
        self.facts = self._metrics.names if self._metrics is not None else ()

    def reset(self, seeds: Integers, mask: Bools) -> None:
        """Restart the copies in `mask`, each from its own seed."""
        for e in np.flatnonzero(mask).tolist():
            self.active[e] = self._playing[e] = False
            self._turns[e] = 0
            if self._metrics is not None:
                self._metrics.begin(e)
            self._terminated[e] = self._truncated[e] = False
            for seen, masks in zip(self._seen, self._masks, strict=True):
                seen[e] = 0
                masks.clear(e)
            self._restart(e, seed_of(seeds[e]))

    @abstractmethod
    def _restart(self, e: int, seed: int) -> None:
        """Restart one copy, and fill in who is active and what they see."""

    def begin_turn(self) -> None:
        """Nothing moves by itself."""
        self._rewards[:] = 0.0
        self._terminated[:] = False
        self._truncated[:] = False
        self._turns += 1

    def observe(self, agent: int, out: Array) -> None:
        """What it saw last: [num_envs, *observation_shape]."""
        if self.check:
            self._bounds.look(agent, self._turns)
        out[...] = self._seen[agent]

    def mask(self, agent: int, out: Bools) -> None:
        """What it may do: [num_envs, possibilities]."""
        masks, active = self._masks[agent], self._acting(agent)
        lacking = masks.lacking(active) if self.check else None
        if lacking is not None:
            raise self._broken(lacking, agent, masks.missing())
        masks.write(out, active, self.check)

    def _acting(self, agent: int) -> Bools:
        """[num_envs]: where an agent acts on what was noted last of it."""
        return self.active[:, agent]

    def end_turn(self) -> TurnResult:
        """What the steps of this turn brought."""
        metrics: Mapping[str, Array] = {}
        if self._metrics is not None:
            metrics = self._metrics.episode_metrics(
                np.any(self._terminated | self._truncated, axis=1)
            )
        return TurnResult(self._rewards, self._terminated, self._truncated, metrics)

    def render(self, env: int = 0) -> Array:
        """A picture of one copy, if there is but one: [height, width, 3] uint8."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of environments that cannot draw
            return picture_of(self.copies[env].render(), self.copies[env])

    def close(self) -> None:
        """Close every copy."""
        close_all(self.copies)

    def _note(self, e: int, agent: int, seen: Any, info: Any) -> None:
        """Write down what an agent sees and may do."""
        try:
            if type(info) is not dict:
                info = mapping_of(info)
            # `...`: of one number without a dimension a view too
            self._sights[agent].write(seen, self._seen[agent][e, ...], self.check)
            self._masks[agent].note(e, seen, info, self.check)
        except BadValueError as error:
            raise self._broken(e, agent, error) from None

    def _nonzero(self, e: int, rewards: Mapping[Any, Any]) -> Iterator[tuple[int, float]]:
        """Yield each agent with a reward other than 0, and the reward."""
        for name, reward in rewards.items():
            if type(reward) is not float and (self.check or reward is not None):
                reward = self._number(e, name, reward)  # noqa: PLW2901
            if reward:
                agent = self._known(e, name, "its rewards name")
                if agent is not None:
                    yield agent, reward

    def _number(self, e: int, name: Any, reward: Any) -> float:
        """Return a reward as a number.

        Raises:
            ContractError: it is none.
        """
        try:
            return number(reward, self.check)
        except BadValueError as error:
            raise self._broken(e, self._index.get(name), error) from None

    def _read(self, metrics: InfoMetrics, e: int, agent: int, info: Any) -> None:
        try:
            metrics.read(e, agent, mapping_of(info), self.check)
        except BadValueError as error:
            raise self._broken(e, agent, error) from None

    def _known(self, e: int, name: Any, where: str) -> int | None:
        """An agent by its name; None: there is no such agent, which goes by unchecked.

        Raises:
            ContractError: there is no such agent; not without `check`.
        """
        agent = self._index.get(name)
        if agent is None and self.check:
            raise self._broken(e, None, BadValueError(self._unknown(name, where)))
        return agent

    def _unknown(self, name: Any, where: str) -> str:
        names = ", ".join(map(str, self._names))
        return f"{where} {short(name)}, and the `possible_agents` are {names}"

    def _broken(self, e: int, agent: int | None, said: object) -> ContractError:
        return broken(self, agent, e, int(self._turns[e]), said)

    def _end(self, e: int, agent: int, terminated: bool) -> None:
        """The agent's episode is over; an end by the rules is no truncation."""
        self._playing[e, agent] = self.active[e, agent] = False
        self._terminated[e, agent] = terminated
        self._truncated[e, agent] = not terminated

    def _nobody_left(self, e: int) -> None:
        """The copy is over; who is still in an episode is cut off."""
        for agent in np.flatnonzero(self._playing[e]).tolist():
            self._end(e, agent, terminated=False)


class ParallelCopies(Copies):
    """Copies of a PettingZoo environment whose agents act at once.

    In a turn every agent in the environment's `agents` acts. One that dies keeps what it saw last;
    one that comes back, after it was out of `agents`, begins an episode of its own.
    """

    checker = CHECKERS[PARALLEL]

    def __init__(
        self,
        make: Callable[[], ParallelEnv[Any, Any, Any]],
        num_envs: int = 1,
        wrapping: Wrapping = NOTHING,
    ) -> None:
        """Make the copies.

        Args:
            make: makes one copy, with all that stands round it.
            num_envs: copies.
            wrapping: what is read of `info`.

        Raises:
            ContractError: what an agent sees cannot be written as numbers.
        """
        copies = [make() for _ in range(num_envs)]
        _, infos = first_begin(copies[0])
        self._first = FirstCopy(copies, make)
        super().__init__(copies, infos, wrapping)
        self.turn_groups = (tuple(range(self.num_agents)),)
        self._chosen: list[Any] = [None] * self.num_agents
        # By copy, who has ended and has been in its `agents` ever since.
        self._lingering: list[set[int]] = [set() for _ in copies]

    def _restart(self, e: int, seed: int) -> None:
        try:
            seen, infos = answer = self._first.begin(e, seed)
            if self.check:
                refuse_lists(self.copies[e], "reset", answer, RESET)
        except BadValueError as error:
            raise self._broken(e, None, error) from None
        self._note_all(e, seen, infos or {})
        self._lingering[e].clear()
        if self.check:
            self._all_see(e, self.copies[e].agents, seen)
        self._refuse_half_ended(e, self._let_play(e))

    def act(self, agent: int, actions: Array) -> None:
        """Choose; the copies are stepped once all have."""
        self._chosen[agent] = self._deeds[agent].unpack(actions)

    def end_turn(self) -> TurnResult:
        """Step every copy that is not over."""
        names, chosen = self._names, self._chosen
        playing = self.active.tolist()
        for e, copy in enumerate(self.copies):
            actions = {names[i]: chosen[i][e] for i, acts in enumerate(playing[e]) if acts}
            if not actions:
                continue
            try:
                answer = parts(copy, "step", copy.step(actions), STEP)
                if self.check:
                    refuse_lists(copy, "step", answer, STEP)
            except BadValueError as error:
                raise self._broken(e, None, error) from None
            seen, rewards, terminations, truncations, infos = answer
            infos = infos or {}
            self._note_all(e, seen, infos)
            if self._metrics is not None:
                for name in actions:
                    self._read(self._metrics, e, self._index[name], infos.get(name))
            if self.check:
                self._complete(e, actions, seen, rewards, terminations, truncations)
            ended: dict[int, bool] = {}
            for agent, name in enumerate(names):
                terminated = self._flag(e, "terminated", name, terminations)
                over = terminated or self._flag(e, "truncated", name, truncations)
                if over and self._playing[e, agent]:
                    ended[agent] = terminated
            # Agents that join in this step are in an episode before rewards are counted.
            lingering = self._let_play(e, ended)
            for agent, reward in self._nonzero(e, rewards):
                if self._playing[e, agent]:
                    self._rewards[e, agent] += reward
            for agent, terminated in ended.items():
                self._end(e, agent, terminated)
            self._refuse_half_ended(e, lingering)
        return super().end_turn()

    def _flag(self, e: int, what: str, name: Any, flags: Mapping[Any, Any]) -> bool:
        """Whether an agent's flag is set; where it was checked, it has been looked at before."""
        value = flags.get(name, False)
        if type(value) is bool:
            return value
        try:
            return flag(what, value, check=False)
        except BadValueError as error:
            raise self._broken(e, self._index[name], error) from None

    def _note_all(self, e: int, seen: Mapping[Any, Any], infos: Mapping[Any, Any]) -> None:
        for name, what in seen.items():
            agent = self._index.get(name)
            if agent is not None and what is not None:
                self._note(e, agent, what, infos.get(name))

    def _complete(
        self, e: int, acted: Mapping[Any, Any], seen: Mapping[Any, Any], *results: Mapping[Any, Any]
    ) -> None:
        """Nothing is missing of what those who acted were given, and will need to act again."""
        rewards, terminations, truncations = results
        for what, flags in (("terminated", terminations), ("truncated", truncations)):
            for name in flags if type(flags) is dict and len(flags) > len(acted) else ():
                self._known(e, name, f"its `{what}` names")
        live = self.copies[e].agents
        for name in acted:
            try:
                if name not in rewards:
                    raise BadValueError("the reward is missing")
                for what, flags in (("terminated", terminations), ("truncated", truncations)):
                    if name not in flags:
                        raise BadValueError(f"`{what}` is missing")
                    if type(flags[name]) is not bool:
                        flag(what, flags[name])
                if seen.get(name) is None and not terminations[name]:
                    raise BadValueError("the observation is missing")
            except BadValueError as error:
                raise self._broken(e, self._index[name], error) from None
        self._all_see(e, live, seen)

    def _all_see(self, e: int, live: Iterable[Any], seen: Mapping[Any, Any]) -> None:
        for name in live:
            agent = self._known(e, name, "its `agents` name")
            if seen.get(name) is None:
                raise self._broken(e, agent, "the observation is missing")

    def _let_play(self, e: int, ended: Container[int] = ()) -> set[int]:
        """Let the agents in `agents` act next, except those whose episode is over.

        Args:
            e: the copy.
            ended: the agents whose episode ends in this step.

        Returns:
            the agents whose episode has ended and that never left `agents` since.
        """
        before, lingering = self._lingering[e], set[int]()
        self.active[e] = False
        for name in self.copies[e].agents:
            agent = self._known(e, name, "its `agents` name")
            if agent is None:
                continue
            if agent in ended or agent in before:
                lingering.add(agent)
            else:
                self.active[e, agent] = self._playing[e, agent] = True
        self._lingering[e] = lingering
        return lingering

    def _refuse_half_ended(self, e: int, lingering: set[int]) -> None:
        """Refuse a copy that goes on while agents whose episode has ended stay in `agents`.

        Raises:
            ContractError: it does.
        """
        if not self.active[e].any():
            self._nobody_left(e)
        elif lingering and self.check:
            raise self._broken(
                e,
                min(lingering),
                "its episode has ended, and it is still in `agents` while others play on; "
                "PettingZoo's contract is that a step takes those out whose episodes it ends (one "
                "may join anew in a later step)",
            )
