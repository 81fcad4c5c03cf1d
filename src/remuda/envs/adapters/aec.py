"""Copies of PettingZoo's environments where one agent acts at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.envs.adapters.answers import FirstCopy, first_begin, mapping_of
from remuda.envs.adapters.attributes import reader_of
from remuda.envs.adapters.last_rewards import LastRewards, has_own_last, last_reward_of
from remuda.envs.adapters.parallel import Copies
from remuda.envs.adapters.wrapping import NOTHING, Wrapping
from remuda.envs.checks import UntakeableError
from remuda.envs.kinds import AEC, CHECKERS
from remuda.types import Array, Bools, TurnResult

if TYPE_CHECKING:
    from pettingzoo import AECEnv

DEAD_STEPS = 10
"""Dead agents that one act may leave to be stepped through, by the number of agents."""
STAYS_DEAD = (
    "step(None) was called for it, since its episode is over, and it is still in `agents` and "
    "still dead, while others play on; let `step` begin with `if self.terminations[agent] or "
    "self.truncations[agent]: return self._was_dead_step(action)`, where agent is "
    "self.agent_selection"
)
DIFFERS = "rewards and last() differ"
UNLIKE = (
    "{} in copy {}, turn {} of the episode: `rewards` adds up to {:g} since its last act, and "
    "`last()` returned {:g}. Returns count what `last()` returns, or `rewards` where it only ever "
    "returned 0; other cases are not told. Let `step` set self._cumulative_rewards[agent] = 0 for "
    "the agent that acts, and end with self._accumulate_rewards()"
)
"""With `DIFFERS`: the key and words of a note."""
DIES_ON = (
    "after each step(None) of a dead agent another dead agent is selected, and none that lives, "
    "without an end; let `step(None)` take the agent out of `agents` for good"
)


class AECCopies(Copies):
    """Copies of a PettingZoo environment where one agent acts at a time.

    A turn is a round in which every agent may act once, in the order of `possible_agents`, where
    the environment has selected it. An agent observes when it is selected, and zeros before that.
    Agents that are dead are stepped through without being asked; the episode of one is over when it
    is selected to be stepped through, or when no agent is left to act.
    Where an agent is back, and selected, in the very turn that ended its episode, the turn is over
    for its copy: it alone can act, and it does in the next turn.
    What an agent is given between two of its acts counts for the turn in which it comes, and
    belongs to the first of the two. In sum it is the reward that `last()` returns.
    """

    can_observe_together = False
    may_return_at_once = True
    checker = CHECKERS[AEC]

    def __init__(
        self,
        make: Callable[[], AECEnv[Any, Any, Any]],
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
        first_begin(copies[0], wanted="")
        self._first = FirstCopy(copies, make)
        super().__init__(copies, copies[0].infos, wrapping)
        self.turn_groups = tuple((agent,) for agent in range(self.num_agents))
        self.rewards_so_far = self._rewards
        self._reads = [reader_of(copy) for copy in copies]
        self._heard = last_reward_of(copies[0])
        self._walks = has_own_last(copies[0])
        """Whether the last reward of an agent is only known once it is selected to step through."""
        self._last = [LastRewards(self.num_agents) for _ in copies]
        # In this episode; what is told before an agent acts is of no step.
        self._has_acted: Bools = np.zeros(self.active.shape, np.bool_)
        # By copy: how many agents are in no episode; who has ended one and was not selected since;
        # and whom its `agents` named when they were looked at last.
        self._out = [self.num_agents] * num_envs
        self._ended: list[set[int]] = [set() for _ in copies]
        self._looked_at: list[list[Any]] = [[] for _ in copies]
        # By copy: the agent that is back in the turn that ended its episode.
        self._back: dict[int, int] = {}

    def _restart(self, e: int, seed: int) -> None:
        try:
            self._first.begin(e, seed, wanted="")
        except UntakeableError as error:
            raise self._broken(e, None, error) from None
        copy = self.copies[e]
        self._reads[e] = reader_of(copy)
        self._has_acted[e] = False
        self._last[e].restart()
        self._back.pop(e, None)
        self._out[e] = self.num_agents
        self._ended[e].clear()
        self._looked_at[e] = []
        self._admit(e)
        self._select(e, copy, {})

    def begin_turn(self) -> None:
        """Who is back observes."""
        super().begin_turn()
        for e, agent in self._back.items():
            copy, name = self.copies[e], self._names[agent]
            self._count(e, copy, name, agent)
            self._see(e, copy, name)
        self._back.clear()

    def end_turn(self) -> TurnResult:
        """Who is back acts next."""
        for e, agent in self._back.items():
            self.active[e, agent] = True
        return super().end_turn()

    def _acting(self, agent: int) -> Bools:
        """[num_envs]: without those that are back and have not observed yet."""
        acting = self.active[:, agent]
        for e, back in self._back.items():
            if back == agent:
                acting = acting.copy()
                acting[e] = False
        return acting

    def act(self, agent: int, actions: Array) -> None:
        """Step the copies that have selected this agent."""
        deeds = self._deeds[agent].unpack(actions)
        for e in np.flatnonzero(self.active[:, agent]).tolist():
            copy, read = self.copies[e], self._reads[e]
            self.active[e, agent] = False
            self._has_acted[e, agent] = True
            self._last[e].begin(agent)
            copy.step(deeds[e])
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
                    self._known(e, name, "its `terminations` or `truncations` name")
                if len(ended) < len(terminations) or self._walks:
                    self._select(e, copy, ended)
                else:
                    self._all_over(e, copy, ended)
            elif len(read("agents")):
                self._look(e, copy, read("agent_selection"))
            else:
                self._nobody_left(e)

    def _add(self, e: int, rewards: Mapping[Any, Any]) -> None:
        """Count what `rewards` holds after a step."""
        last = self._last[e]
        for agent, reward in self._nonzero(e, rewards):
            counts = bool(self._playing[e, agent])
            last.add(agent, float(reward), counts)
            if counts:
                self._rewards[e, agent] += reward

    def _count(self, e: int, copy: AECEnv[Any, Any, Any], name: Any, agent: int) -> None:
        """Count what `last()` returns beyond that, for an agent that acts next or has ended."""
        heard = self._heard(copy, self._reads[e], name)
        if heard is not None and type(heard) is not float:
            heard = self._number(e, name, heard)
        last = self._last[e]
        missing = last.missing(agent, heard)
        if last.differs is not None and DIFFERS not in self.notes:
            told = UNLIKE.format(str(name), self.first_copy + e, int(self._turns[e]), *last.differs)
            self.notes[DIFFERS] = told
        if missing:
            self._rewards[e, agent] += missing

    def _admit(self, e: int) -> None:
        """Who lives in the environment is in an episode, also before it is first selected.

        Not who has ended one, and begins another when it is selected: until then it could end it
        without having acted in it.
        """
        if not self._out[e]:
            return
        read = self._reads[e]
        live = list(read("agents"))
        if live == self._looked_at[e]:
            return
        self._looked_at[e] = live
        for name in live:
            agent = self._known(e, name, "its `agents` name")
            if agent is None or agent in self._ended[e]:
                continue
            if not (read("terminations").get(name) or read("truncations").get(name)):
                self._begin(e, agent)

    def _begin(self, e: int, agent: int) -> None:
        """An agent is in an episode from now on, if it was not."""
        if not self._playing[e, agent]:
            self._playing[e, agent] = True
            self._out[e] -= 1

    def _end(self, e: int, agent: int, terminated: bool) -> None:
        self._last[e].begin(agent)
        super()._end(e, agent, terminated)
        self._out[e] += 1
        self._ended[e].add(agent)

    def _selected(self, e: int, name: Any) -> int:
        """The agent that the environment has selected.

        Raises:
            ContractError: there is no such agent, and so none that could act.
        """
        agent = self._index.get(name)
        if agent is None:
            said = UntakeableError(self._unknown(name, "its `agent_selection` names"))
            raise self._broken(e, None, said)
        return agent

    def _select(self, e: int, copy: AECEnv[Any, Any, Any], ended: Mapping[Any, bool]) -> None:
        """Find the agent that acts next, and step dead agents through on the way.

        Args:
            e: the copy...
            copy: ...itself.
            ended: the agents whose episode is over, and whether it was terminated.

        Raises:
            ContractError: a dead agent cannot be stepped through.
        """
        read = self._reads[e]
        for _ in range(DEAD_STEPS * self.num_agents):
            if not len(read("agents")):
                break
            name = read("agent_selection")
            self._selected(e, name)
            is_over, terminated = self._is_over(e, name)
            if not is_over:
                self._look(e, copy, name)
                return
            self._over(e, copy, name, terminated)
            copy.step(None)
            if name in read("agents") and self._is_over(e, name)[0]:
                if all(self._is_over(e, each)[0] for each in read("agents")):
                    break  # all are over, and the environment only ignores dead steps
                raise self._broken(e, self._index[name], UntakeableError(STAYS_DEAD))
        else:
            raise self._broken(e, None, UntakeableError(DIES_ON))
        self._all_over(e, copy, ended)

    def _is_over(self, e: int, name: Any) -> tuple[bool, bool]:
        """Return whether an agent's episode is over, and whether it was terminated.

        Raises:
            ContractError: the environment does not tell.
        """
        try:
            terminated = bool(self._reads[e]("terminations")[name])
            return terminated or bool(self._reads[e]("truncations")[name]), terminated
        except KeyError:
            said = UntakeableError("it is in `agents`, and not in `terminations` and `truncations`")
            raise self._broken(e, self._index.get(name), said) from None

    def _all_over(self, e: int, copy: AECEnv[Any, Any, Any], ended: Mapping[Any, bool]) -> None:
        """No agent acts any more: one not yet stepped through gets nothing more either."""
        for name, terminated in ended.items():
            self._over(e, copy, name, terminated)
        self._nobody_left(e)

    def _over(self, e: int, copy: AECEnv[Any, Any, Any], name: Any, terminated: bool) -> None:
        agent = self._index.get(name)
        if agent is not None and self._playing[e, agent]:
            self._hear(e, agent)
            self._count(e, copy, name, agent)
            if not terminated:  # what it saw last still tells what would have come
                self._see(e, copy, name)
            self._end(e, agent, terminated)

    def _look(self, e: int, copy: AECEnv[Any, Any, Any], name: Any) -> None:
        """Let an agent observe, and hear what its step brought: it acts next."""
        agent = self._selected(e, name)
        if self._terminated[e, agent] or self._truncated[e, agent]:
            self._back[e] = agent  # what it sees is of its next episode, and not of this turn
            return
        self._hear(e, agent)
        self._count(e, copy, name, agent)
        self._see(e, copy, name)

    def _hear(self, e: int, agent: int) -> None:
        """Read what is told of an agent since it acted."""
        if self._metrics is not None and self._has_acted[e, agent]:
            self._has_acted[e, agent] = False
            self._read(self._metrics, e, agent, self._info(e, agent))

    def _see(self, e: int, copy: AECEnv[Any, Any, Any], name: Any) -> None:
        """Let an agent observe: it acts next, unless its episode is over."""
        agent = self._index[name]
        self.active[e, agent] = True
        self._begin(e, agent)
        self._ended[e].discard(agent)
        looks = self._masks[agent].looks_at_info(self.check)
        info = self._info(e, agent) if looks else {}
        self._note(e, agent, copy.observe(name), info)

    def _info(self, e: int, agent: int) -> Any:
        """What is told of an agent."""
        infos = self._reads[e]("infos")
        if type(infos) is not dict:
            try:
                infos = mapping_of(infos)
            except UntakeableError as error:
                raise self._broken(e, None, error) from None
        return infos.get(self._names[agent])
