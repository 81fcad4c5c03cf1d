"""Copies of PettingZoo's environments in which one agent acts at a time (AEC).

When an agent is selected, PettingZoo's `last()` returns its reward since its previous action.
`rewards` contains the rewards of each step, which add up to the reward of `last()` if every step
calls `_accumulate_rewards`. If they do not, the reward of `last()` is used, and the difference is
added when the agent is selected. If `last()` has only returned 0, the environment does not
accumulate rewards, and `rewards` is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.envs.adapters.copies import Copies
from remuda.envs.adapters.detect import AEC, CHECKERS
from remuda.envs.adapters.step_results import mapping_of
from remuda.envs.adapters.wrappers import NOTHING, Wrapping
from remuda.envs.checks import BadValueError, UntakeableError
from remuda.types import Bools, TurnResult

if TYPE_CHECKING:
    from pettingzoo import AECEnv

ATTRIBUTES = (
    *("agents", "agent_selection", "rewards", "_cumulative_rewards"),
    *("terminations", "truncations", "infos"),
)
"""The attributes that an AEC environment changes in a step."""
ROUNDING = 1e-5
"""The relative difference allowed between the sum of `rewards` and `last()`, for float32 rounding.
"""
DEAD_STEPS = 10
"""Maximum dead steps, `step(None)`, per agent after one action; more raise an error."""
STAYS_DEAD = (
    "step(None) was called for it, since its episode has ended, but it is still in `agents` and "
    "still dead, while others continue; let `step` begin with `if self.terminations[agent] or "
    "self.truncations[agent]: return self._was_dead_step(action)`, where agent is "
    "self.agent_selection"
)
DIFFERS = "rewards and last() differ"
UNLIKE = (
    "{} in copy {}, turn {} of the episode: `rewards` adds up to {:g} since its last action, "
    "and `last()` returned {:g}. Remuda uses the reward of `last()`, or the sum of `rewards` if "
    "`last()` has only returned 0. Further differences are not reported. Let `step` set "
    "self._cumulative_rewards[agent] = 0 for the agent that acts, and end with "
    "self._accumulate_rewards()"
)
"""The text of the note with the key `DIFFERS`."""
DIES_ON = (
    "after every step(None) of a dead agent another dead agent is selected, and never one that "
    "lives; let `step(None)` remove the agent from `agents`"
)


class AECCopies(Copies):
    """Copies of a PettingZoo environment in which one agent acts at a time.

    A turn is a round in which each agent may act once, in the order of `possible_agents`, if the
    environment has selected it. An agent observes when it is selected; before that, its observation
    is zeros. Dead agents are stepped with None (a dead step). An agent's episode ends when the
    agent is selected for its dead step, or when no agent is left to act. An agent may come back and
    be selected in the turn that ended its episode. The turn then ends in this copy, and the agent
    acts in the next turn. Rewards count in the turn in which the environment gives them. Their sum
    between two actions of an agent is the reward that `last()` returns.
    """

    can_observe_together = False
    may_return_at_once = True
    checker = CHECKERS[AEC]

    _reset_result = ""

    def __init__(
        self, make: Callable[[], Any], num_envs: int = 1, wrapping: Wrapping = NOTHING
    ) -> None:
        super().__init__(make, num_envs, wrapping)
        copies = self.copies
        self.turn_groups = tuple((agent,) for agent in range(self.num_agents))
        self.rewards_so_far = self._rewards
        self._readers = [reader_of(copy) for copy in copies]
        self._last_reward = last_reward_of(copies[0])
        # True if an agent's last reward is unknown until the agent is selected for its dead step.
        self._steps_all_dead = has_own_last(copies[0])
        self._last = [LastRewards(self.num_agents) for _ in copies]
        # Whether an agent acted since its `info` was last read: earlier `info` belongs to no step.
        self._has_acted: Bools = np.zeros(self.active.shape, np.bool_)
        # By copy: the number of agents that are not in an episode; the agents whose episode has
        # ended and that were not selected since; the last value read from `agents`; and the agent
        # that came back in the turn that ended its episode.
        self._out = [self.num_agents] * num_envs
        self._ended: list[set[int]] = [set() for _ in copies]
        self._live_before: list[list[Any]] = [[] for _ in copies]
        self._back: dict[int, int] = {}

    def _infos_of(self, env: Any, result: Any) -> Any:  # noqa: ARG002
        return env.infos

    def _restart(self, e: int, seed: int) -> None:
        self._reset_copy(e, seed)
        copy = self.copies[e]
        self._readers[e] = reader_of(copy)
        self._has_acted[e] = False
        self._last[e].restart(self.num_agents)
        self._back.pop(e, None)
        self._out[e] = self.num_agents
        self._ended[e].clear()
        self._live_before[e] = []
        self._admit(e)
        self._select(e, copy, {})

    def begin_turn(self) -> None:
        super().begin_turn()
        for e, agent in self._back.items():
            try:
                self._count(e, agent)
                self._observe(e, agent)
            except BadValueError as error:
                raise self._broken(e, error) from None
        self._back.clear()

    def end_turn(self) -> TurnResult:
        for e, agent in self._back.items():
            self.active[e, agent] = True
        return super().end_turn()

    def _acting(self, agent: int) -> Bools:
        acting = self.active[:, agent]
        for e, back in self._back.items():
            if back == agent:
                acting = acting.copy()
                acting[e] = False
        return acting

    def _step(self, e: int, agent: int, action: Any) -> None:
        copy, read = self.copies[e], self._readers[e]
        self.active[e, agent] = False
        self._has_acted[e, agent] = True
        self._last[e].begin(agent)
        copy.step(action)
        self._admit(e)
        self._add(e, read("rewards"))
        terminations, truncations = read("terminations"), read("truncations")
        if any(terminations.values()) or any(truncations.values()):
            ended = {
                name: bool(terminated)
                for name, terminated in terminations.items()
                if terminated or truncations.get(name)
            }
            for name in ended if self.check else ():
                self._known(name, "its `terminations` or `truncations` contain")
            if len(ended) < len(terminations) or self._steps_all_dead:
                self._select(e, copy, ended)
            else:
                self._end_all(e, ended)
        elif len(read("agents")):
            self._look(e, read("agent_selection"))
        else:
            self._truncate_all(e)

    def _add(self, e: int, rewards: Mapping[Any, Any]) -> None:
        last = self._last[e]
        for agent, reward in self._nonzero(rewards):
            counts = bool(self._playing[e, agent])
            last.add(agent, float(reward), counts)
            if counts:
                self._rewards[e, agent] += reward

    def _count(self, e: int, agent: int) -> None:
        """Add what `rewards` lacks of `last()`, for an agent that acts next or has ended."""
        name, last = self._names[agent], self._last[e]
        reward = self._last_reward(self.copies[e], self._readers[e], name)
        if reward is not None and type(reward) is not float:
            reward = self._number(name, reward)
        missing = last.missing(agent, reward)
        if last.differs is not None and DIFFERS not in self.notes:
            where = str(name), self.first_copy + e, int(self._turns[e])
            self.notes[DIFFERS] = UNLIKE.format(*where, *last.differs)
        if missing:
            self._rewards[e, agent] += missing

    def _admit(self, e: int) -> None:
        """Start the episodes of live agents, whether or not they were selected.

        An agent whose episode has ended starts another episode only when it is selected, because
        until then this episode could end without an action.
        """
        if not self._out[e]:
            return
        read = self._readers[e]
        live = list(read("agents"))
        if live == self._live_before[e]:
            return
        self._live_before[e] = live
        for name in live:
            agent = self._known(name, "its `agents` contain")
            if agent is None or agent in self._ended[e]:
                continue
            if not (read("terminations").get(name) or read("truncations").get(name)):
                self._begin(e, agent)

    def _begin(self, e: int, agent: int) -> None:
        if not self._playing[e, agent]:
            self._playing[e, agent] = True
            self._out[e] -= 1

    def _end(self, e: int, agent: int, terminated: bool) -> None:
        self._last[e].begin(agent)
        super()._end(e, agent, terminated)
        self._out[e] += 1
        self._ended[e].add(agent)

    def _selected(self, name: Any) -> int:
        agent = self._index.get(name)
        if agent is None:
            self._agent = None
            raise UntakeableError(self._unknown(name, "its `agent_selection` is"))
        return agent

    def _select(self, e: int, copy: AECEnv[Any, Any, Any], ended: Mapping[Any, bool]) -> None:
        """Find the agent that acts next, and step dead agents on the way.

        `ended` maps the agents whose episode has ended to whether the episode was terminated.
        """
        read = self._readers[e]
        for _ in range(DEAD_STEPS * self.num_agents):
            if not len(read("agents")):
                break
            name = read("agent_selection")
            self._selected(name)
            is_over, terminated = self._is_over(e, name)
            if not is_over:
                self._look(e, name)
                return
            self._finish(e, name, terminated)
            copy.step(None)
            if name in read("agents") and self._is_over(e, name)[0]:
                if all(self._is_over(e, each)[0] for each in read("agents")):
                    break  # all have ended, and the environment ignores dead steps
                self._agent = self._index[name]
                raise UntakeableError(STAYS_DEAD)
        else:
            self._agent = None
            raise UntakeableError(DIES_ON)
        self._end_all(e, ended)

    def _is_over(self, e: int, name: Any) -> tuple[bool, bool]:
        try:
            terminated = bool(self._readers[e]("terminations")[name])
            return terminated or bool(self._readers[e]("truncations")[name]), terminated
        except KeyError:
            self._agent = self._index.get(name)
            raise UntakeableError(
                "it is in `agents`, but not in `terminations` and `truncations`"
            ) from None

    def _end_all(self, e: int, ended: Mapping[Any, bool]) -> None:
        for name, terminated in ended.items():
            self._finish(e, name, terminated)
        self._truncate_all(e)

    def _finish(self, e: int, name: Any, terminated: bool) -> None:
        agent = self._index.get(name)
        if agent is not None and self._playing[e, agent]:
            self._read_metrics(e, agent)
            self._count(e, agent)
            if not terminated:  # a learner bootstraps from the final observation
                self._observe(e, agent)
            self._end(e, agent, terminated)

    def _look(self, e: int, name: Any) -> None:
        """Let the agent that acts next observe, and count its rewards and metrics."""
        agent = self._selected(name)
        if self._terminated[e, agent] or self._truncated[e, agent]:
            self._back[e] = agent  # its observation belongs to its next episode
            return
        self._read_metrics(e, agent)
        self._count(e, agent)
        self._observe(e, agent)

    def _read_metrics(self, e: int, agent: int) -> None:
        if self._metrics is not None and self._has_acted[e, agent]:
            self._has_acted[e, agent] = False
            info = self._info(e, agent)
            self._agent = agent
            self._metrics.read(e, agent, mapping_of(info), self.check)

    def _observe(self, e: int, agent: int) -> None:
        self.active[e, agent] = True
        self._begin(e, agent)
        self._ended[e].discard(agent)
        info = self._info(e, agent) if self._masks[agent].reads_info(self.check) else {}
        self._note(e, agent, self.copies[e].observe(self._names[agent]), info)

    def _info(self, e: int, agent: int) -> Any:
        infos = self._readers[e]("infos")
        if type(infos) is not dict:
            self._agent = None
            infos = mapping_of(infos)
        return infos.get(self._names[agent])


def has_own_last(copy: AECEnv[Any, Any, Any]) -> bool:
    """Return whether the environment overrides PettingZoo's `last()`."""
    return getattr(copy.last, "__module__", "") != "pettingzoo.utils.env"


def last_reward_of(copy: AECEnv[Any, Any, Any]) -> Callable[[Any, Callable[[str], Any], Any], Any]:
    """Return a function (copy, its attribute reader, agent) -> the reward of `last()`.

    The reward is None if it is unknown: an overridden `last()` returns only the selected agent's.
    """
    if not has_own_last(copy):
        return _accumulated
    options = {"observe": False} if "observe" in inspect.signature(copy.last).parameters else {}

    def call_last(copy: Any, read: Callable[[str], Any], name: Any) -> Any:
        return copy.last(**options)[1] if read("agent_selection") == name else None

    return call_last


def _accumulated(copy: Any, read: Callable[[str], Any], name: Any) -> Any:  # noqa: ARG001
    try:
        return read("_cumulative_rewards").get(name)
    except AttributeError:  # the environment only has `rewards`
        return None


class LastRewards:
    """The rewards of one copy's agents since their last decision, or since they joined."""

    def __init__(self, num_agents: int) -> None:
        self._accumulates = False
        self.differs: tuple[float, float] | None = None
        """The first sum of `rewards` that differed from the reward of `last()`, and that reward."""
        self.restart(num_agents)

    def restart(self, num_agents: int) -> None:
        self._sums = [0.0] * num_agents
        self._sizes = [0.0] * num_agents  # sums of absolute values, for rounding
        self._counted = [0.0] * num_agents  # without rewards outside an episode

    def begin(self, agent: int) -> None:
        """Start a new sum when the agent acts or has died."""
        self._sums[agent] = self._sizes[agent] = self._counted[agent] = 0.0

    def add(self, agent: int, reward: float, counts: bool) -> None:
        """Add an entry of `rewards`; `counts` is true if the agent is in an episode."""
        self._sums[agent] += reward
        self._sizes[agent] += abs(reward)
        if counts:
            self._counted[agent] += reward

    def missing(self, agent: int, last: float | None) -> float:
        """Return the reward that is not counted yet; `last`: the reward of `last()`, if known."""
        total = self._sums[agent]
        if last is not None and abs(last - total) > ROUNDING * self._sizes[agent]:
            self.differs = self.differs or (total, last)
            self._accumulates |= last != 0.0
            if self._accumulates:
                total = last
        elif last:
            self._accumulates = True
        missing = total - self._counted[agent]
        self._counted[agent] = total
        return missing


def reader_of(copy: Any) -> Callable[[str], Any]:
    """Return a function that reads one of `ATTRIBUTES`, as `getattr(copy, name)` does.

    The function avoids PettingZoo's wrappers: each forwards attributes by a Python call, and
    together these calls take as long as a step of a small game.
    """
    wrappers, inner = [], copy
    while _only_forwards(inner):
        wrappers.append(vars(inner))
        inner = inner.env

    def read(name: str) -> Any:
        for own in wrappers:
            if name in own:
                return own[name]
        return getattr(inner, name)

    return read


def _only_forwards(layer: Any) -> bool:
    """Return whether a layer only forwards attributes to the environment that it wraps."""
    try:
        from pettingzoo.utils.wrappers import BaseWrapper, OrderEnforcingWrapper
    except ImportError:
        return False
    kind: Any = type(layer)
    forwards = (BaseWrapper.__getattr__, OrderEnforcingWrapper.__getattr__)
    return (
        isinstance(layer, BaseWrapper)
        and kind.__getattr__ in forwards
        and kind.__getattribute__ is object.__getattribute__
        and not any(hasattr(kind, name) for name in ATTRIBUTES)
    )
