"""Seats whose policies are dealt for each match, which is one episode of an environment copy.

All streams (an agent of a copy) of one policy, live or frozen, are gathered into one forward pass
across matches. Experience goes to the policy that acted, if it learns from that match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from remuda.actor.make_seats import other_arrays
from remuda.actor.policy_group import PolicyGroup
from remuda.actor.scripted_seats import ScriptedSeats
from remuda.actor.seats import EpisodeCounter
from remuda.actor.shared_rewards import SharedRewards
from remuda.actor.stream_seats import StreamSeats
from remuda.envs.vector_env import VectorEnv
from remuda.experience.writer import BlockWriter
from remuda.policies.initial import InitialWeights
from remuda.policies.spec import first_weights
from remuda.policies.stack import layout_size
from remuda.population.dealing.lead import Dealer
from remuda.population.evolution.grow import grow, network_family
from remuda.population.evolution.weights import WeightLayout, add_noise_by_layer, cross_layers
from remuda.population.members.table_parts import POLICY
from remuda.publish.snapshot import Snapshot
from remuda.publish.weight_store import WeightReader
from remuda.system.checkpoint.fitting import MOST, SHARE, Range, branch, fitting, whole
from remuda.system.rng import make_rng, torch_rng
from remuda.system.scoreboard import Policy, Row
from remuda.types import Bools, Floats, Integers, State, TurnResult


class MatchSeats(StreamSeats):
    """Seats that a dealer, `league`, assigns to members of a population for each match."""

    def __init__(
        self,
        env: VectorEnv,
        policy_groups: Sequence[PolicyGroup],
        league: Dealer,
        rows: Row,  # [policies, len(Policy)] counters of live policies
        seed: int = 0,  # for the weights of new policies
        mark: Row | None = None,
        initial: InitialWeights | None = None,
        scripted: ScriptedSeats | None = None,  # chooses for members without a network
        parents: WeightReader | None = None,  # reads the weights that new policies inherit
    ) -> None:
        self._seed, self._initial = seed, initial
        self._parents = parents
        self._counter = EpisodeCounter(rows, mark)
        arrays = dict.fromkeys(policy_group.arrays for policy_group in policy_groups)
        super().__init__(env, tuple(policy_groups), [*arrays, *other_arrays(env, arrays)], scripted)
        self.league, self._rows = league, rows
        self.groups: Sequence[tuple[int, ...]] = env.turn_groups
        keep = {
            policy_group.arrays for policy_group in policy_groups if policy_group.keeps_last_mask
        }
        self._keeps_last_mask = [
            spec.masked and self._arrays_of[agent] in keep for agent, spec in enumerate(env.agents)
        ]
        # [num_envs, num_agents] rewards of this turn so far, if the environment reports them
        self._so_far = env.rewards_so_far
        self._shared = SharedRewards(env.num_envs, league.teams)
        self._versions: Integers = np.zeros(len(league.table.numbers), np.int64)
        self._steps = dict.fromkeys(league.table.policies, 0)
        self._oldest: Integers = np.zeros((env.num_envs, env.num_agents), np.int64)
        self._fresh: Bools = np.zeros(env.num_envs, np.bool_)
        self._any_fresh = False
        self._stepped = False  # whether the dealer processed results since the last turn
        for member in league.population.frozen:
            if member.ref.is_scripted:
                self._versions[member.slot] = -1  # no weights
            else:
                self._load(member.slot, league.table.snapshot(member.slot))
        # Each seat has a policy from the start, so that the warm-up can run everything once.
        for agent in range(env.num_agents):
            league.seated[:, agent] = self._fitting_slot(agent)
        self._deal()

    def writers(self) -> list[BlockWriter]:
        return [writer for group in self.policy_groups for writer in group.writers]

    def decide(self, group: int) -> None:
        for policy_group in self.policy_groups:
            policy_group.decide(group)

    def observe(self, group: int) -> None:
        if self._so_far is not None:
            for agent in self.groups[group]:
                arrays = self._arrays_of[agent]
                before = self._shared.mixed_of(agent, self._so_far)
                arrays.rewards_before[arrays.position_of[agent]] = before
        super().observe(group)

    def outcome(self, result: TurnResult) -> None:
        ended = result.terminated | result.truncated
        if ended.any():
            self._observe_last(ended, result.truncated)
            self._forget(np.ascontiguousarray(ended.T))
        if self._any_fresh:  # first turn after a deal: newer weights may have arrived
            self._oldest[self._fresh] = self._versions[self.league.seated[self._fresh]]
            self._fresh[:] = self._any_fresh = False
        rewards = self._shared.mixed(result.rewards)
        for arrays in self._all_arrays:
            arrays.take_result(rewards, result.terminated, result.truncated)
        for policy_group in self.policy_groups:
            policy_group.outcome()
        if self.league.is_shared:
            # Process results although no episode ended, because other actors wait for this actor.
            if not self._stepped and self.league.has_news():
                self._step()
            self._stepped = False

    def close(
        self, over: Bools, returns: np.ndarray, truncated: Bools, turns: Integers, metrics: Floats
    ) -> None:
        """Count finished episodes and match results; let the director change the population."""
        over = over & ~np.isnan(returns).all(axis=1)
        seated, finished_returns = self.league.seated[over], returns[over]
        live = seated < len(self._rows)
        lengths: Integers = np.repeat(turns[over], self.env.num_agents).reshape(seated.shape)
        self._counter.count(seated[live], finished_returns[live], lengths[live])
        newest = self._versions[self.league.seated]
        league = self.league
        league.close(over, returns, self._oldest, newest, truncated, metrics)
        self._step()

    def _step(self) -> None:
        league, self._stepped = self.league, True
        versions = {p: int(self._versions[i]) for i, p in enumerate(league.table.policies)}
        for slot in league.step(versions, self):
            self._load(slot, league.table.snapshot(slot))

    def note_options(self, options: Mapping[str, Any]) -> None:
        self.league.note_options(options)

    def settled(self) -> bool:
        return self.league.settled()

    def begin(self, over: Bools) -> None:
        self.league.deal(over)
        self._deal()
        hyperparameters = self.league.table.hyperparameters
        self._shared.begin(over, hyperparameters.by_seat("share_rewards", self.league.seated))
        self._fresh |= over
        self._any_fresh = True
        self._forget_copies(over)

    def take(self, news: Mapping[str, Snapshot]) -> None:
        for slot, policy in enumerate(self.league.table.policies):
            snapshot = news.get(policy)
            if snapshot is not None:
                self._load(slot, snapshot)
                self._steps[policy] = snapshot.learner_step
                self._rows[slot, Policy.EPSILON] = snapshot.epsilon
                self._rows[slot, Policy.VERSION] = snapshot.version

    def state(self) -> State:
        return {
            "league": self.league.state(),
            "policy_groups": {
                str(i): policy_group.state() for i, policy_group in enumerate(self.policy_groups)
            },
            "versions": self._versions.copy(),
            "oldest": self._oldest.copy(),
            "fresh": self._fresh.copy(),
            "shares": self._shared.shares.copy(),
            "steps": dict(self._steps),
            "scripted": self._scripted.state() if self._scripted is not None else None,
        }

    def restore(self, state: State) -> None:
        self.league.restore(branch(state, "league"))
        for i, policy_group in enumerate(self.policy_groups):
            policy_group.restore(branch(branch(state, "policy_groups"), str(i)))
        self._versions[...] = fitting(state, "versions", self._versions, Range(-1, MOST))
        self._oldest[...] = fitting(state, "oldest", self._oldest, Range(-1, MOST))
        self._fresh[...] = fitting(state, "fresh", self._fresh)
        self._any_fresh = bool(self._fresh.any())
        self._shared.restore(fitting(state, "shares", self._shared.shares, SHARE))
        steps = branch(state, "steps")
        self._steps = {policy: whole(steps, policy) for policy in self._steps}
        if self._scripted is not None:
            self._scripted.restore(branch(state, "scripted"))
        self._deal()

    def holds(self, state: State) -> bool:
        return all(
            writer.holds(branch(branch(branch(state, "policy_groups"), str(i)), "writers")[str(j)])
            for i, policy_group in enumerate(self.policy_groups)
            for j, writer in enumerate(policy_group.writers)
        )

    def lasting(self) -> State:
        return {"league": self.league.state()}

    def restore_lasting(self, state: State) -> None:
        self.league.restore(branch(state, "league"), matches=False)

    def sitting(self, env: int) -> dict[int, str]:
        """Return each agent's policy in a copy, without agents that `env.scripted` reserves."""
        table = self.league.table
        reserved = self._scripted.reserved if self._scripted is not None else ()
        return {
            agent: table.names[int(table.occupants.identity[slot, POLICY])]
            for agent, slot in enumerate(self.league.seated[env])
            if agent not in reserved
        }

    def _load(self, slot: int, snapshot: Snapshot) -> None:
        for policy_group in self.policy_groups:
            if policy_group.row_of[slot] >= 0:
                policy_group.load(slot, snapshot)
        self._versions[slot] = snapshot.version

    # Methods of `ActingPolicies`, for births and frozen copies.

    def look(self, policy: str) -> Snapshot:
        policy_group, row = self._group_of(policy)
        slot = policy_group.slots[row]
        weights = policy_group.stack.flat_weights(row)
        version, epsilon = int(self._versions[slot]), float(self._rows[slot, Policy.EPSILON])
        return Snapshot(weights, version, self._steps[policy], epsilon)

    def published(self, policy: str) -> Snapshot:
        if self._parents is None:
            return self.look(policy)
        found = self._parents.newest(policy, training=True)
        return replace(found, weights=found.weights.copy())  # the reader reuses its array

    def draw(self, policy: str, generation: int) -> Floats:
        policy_group, _ = self._group_of(policy)
        if self._initial is not None:
            found = self._initial.weights(policy, layout_size(policy_group.stack.network.shapes))
            if found is not None:
                return found
        return self._random(policy_group, policy, generation)

    def mutate(self, policy: str, weights: Floats, strength: float, generation: int) -> Floats:
        policy_group, _ = self._group_of(policy)
        rng = make_rng(self._seed, "mutation", policy, generation)
        layout = WeightLayout.of(policy_group.stack.network)
        return add_noise_by_layer(weights, layout, strength, rng)

    def cross(
        self, policy: str, weights: Floats, second: Floats, share: float, generation: int
    ) -> Floats:
        policy_group, _ = self._group_of(policy)
        rng = make_rng(self._seed, "crossover", policy, generation)
        layout = WeightLayout.of(policy_group.stack.network)
        return cross_layers(weights, second, layout, rng, share=share)

    def fits(self, policy: str, other: str) -> bool:
        first, second = self._groups_of(policy, other)
        if first is second or first.arrays is not second.arrays:
            return first is second
        return network_family(first.specs[0]) == network_family(second.specs[0])

    def convert(self, policy: str, other: str, weights: Floats, generation: int) -> Floats | None:
        target, source = self._groups_of(policy, other)
        if target is source:
            return None
        fresh = self._random(target, policy, generation)
        layouts = [WeightLayout.of(each.stack.network) for each in (source, target)]
        return grow(weights, layouts[0], fresh, layouts[1])

    def _random(self, policy_group: PolicyGroup, policy: str, generation: int) -> Floats:
        spec = next(spec for spec in policy_group.specs if spec.name == policy)
        return first_weights(spec, torch_rng(self._seed, "weights", policy, generation))

    def _groups_of(self, policy: str, other: str) -> tuple[PolicyGroup, PolicyGroup]:
        slots = self.league.table.slots
        return self._policy_group(slots.of(policy))[0], self._policy_group(slots.of(other))[0]

    def clear(self, policy: str) -> None:
        policy_group, row = self._group_of(policy)
        for writer in policy_group.writers:
            writer.clear(row)

    def wake(self, policy: str) -> None:
        policy_group, row = self._group_of(policy)
        for writer in policy_group.writers:
            writer.wake(row)

    def _group_of(self, policy: str) -> tuple[PolicyGroup, int]:
        """Return the group of a live policy, and the policy's row in the group's stack."""
        return self._policy_group(self.league.table.policies.index(policy))

    def _policy_group(self, slot: int) -> tuple[PolicyGroup, int]:
        policy_group = next(
            policy_group for policy_group in self.policy_groups if policy_group.row_of[slot] >= 0
        )
        return policy_group, int(policy_group.row_of[slot])

    def _fitting_slot(self, agent: int) -> int:
        """Return the slot of a network that can play this agent, or of its scripted policy."""
        arrays = self._arrays_of[agent]
        for policy_group in self.policy_groups:
            if policy_group.arrays is arrays:
                return policy_group.slots[0]
        (first, *_) = self.league.roster.fixed_on(agent)
        return self.league.table.slots.of(first)

    def _deal(self) -> None:
        learns = self.league.learns
        for policy_group in self.policy_groups:
            policy_group.deal(self.league.seated, self.groups, None if learns.all() else learns)
        if self._scripted is not None:
            self._scripted.deal(self.league.seated)
