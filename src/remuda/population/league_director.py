"""When policies of a league are copied and reset (Vinyals et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from remuda.checkpoint.fitting import branch, where_is, whole_number
from remuda.checkpoint.state import restore_rng, rng_state
from remuda.config import LeagueConfig, SnapshotsConfig
from remuda.population.director import Birth, Command, Vacate, freeze
from remuda.population.ledger import Ledger
from remuda.population.records import Member, PolicyRef, Population
from remuda.types import State


@dataclass
class _Life:
    """A policy from its birth in its place until it is reset."""

    born: int
    """The time of its birth, which distinguishes it from the previous one."""
    since: int
    """Its version at the last copy, or at its start."""
    frozen_at: int | None = None
    """The version of a commanded copy that is not there yet..."""
    resets: bool = False
    """...and whether the policy is reset after that."""


class LeagueDirector:
    """Copies policies of a league on wins or after many versions; resets exploiters.

    A main agent is copied at its start, and never reset. A policy is copied once it wins against
    each relevant opponent: a main exploiter against live main agents, the others against all frozen
    copies. Copied main exploiters are reset, league exploiters with some probability.

    Guarantees:

    1. A role belongs to a place: a reset policy keeps its name, and so do its copies.
    2. A reset policy begins with weights as specified (random, or those of `init_from`), and
       inherits no results.
    3. A policy is reset only once its copy is in the population, and its last matches are over. If
       no match could be made without it, a copy plays.
    4. Even if an actor dies, no place stays empty: a policy is born in every empty place.
    """

    def __init__(
        self, config: LeagueConfig, snapshots: SnapshotsConfig, rng: np.random.Generator
    ) -> None:
        """Direct a league."""
        self._config, self._snapshots, self._rng = config, snapshots, rng
        self._lives: dict[str, _Life] = {}

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        """Copy policies that are due, and reset those whose copy exists."""
        commands: list[Command] = []
        for role, policies in self._config.roles.items():
            for policy in policies:
                ref = PolicyRef(policy)
                if policy in population.empty:
                    commands.append(Birth(policy))
                elif ref in population:
                    member, version = population[ref], versions[policy]
                    commands += self._live(role, member, version, population, ledger)
        return commands

    def _live(
        self, role: str, member: Member, version: int, population: Population, ledger: Ledger
    ) -> list[Command]:
        policy, past = member.ref.policy, population.past_of(member.ref.policy)
        life = self._lives.get(policy)
        if life is None or life.born != member.born:
            life = self._lives[policy] = _Life(member.born, version)
            if role == "main" and not past:
                life.frozen_at = version
                return freeze(policy, past, self._snapshots)
            return []
        if life.frozen_at is not None:
            if not past or past[-1].ref.version < life.frozen_at:
                return []
            resets, life.frozen_at, life.since = life.resets, None, version
            return [Vacate(policy)] if resets else []
        learned = version - life.since
        if learned < self._config.after:
            return []
        if learned < self._config.timeout and not self._wins(role, member, population, ledger):
            return []
        chance = {"main": 0.0, "main_exploiter": 1.0, "league_exploiter": self._config.reset}[role]
        life.frozen_at, life.resets = version, self._rng.random() < chance
        return freeze(policy, past, self._snapshots)

    def _wins(self, role: str, member: Member, population: Population, ledger: Ledger) -> bool:
        others = population.frozen
        if role == "main_exploiter":
            mains = self._config.roles["main"]
            others = tuple(m for m in population.learning if m.ref.policy in mains)
        if not others:
            return False
        met, _ = ledger.scores(member.ref, others)
        if met.sum() < self._config.games:
            return False
        rates = ledger.win_rates_at(member.place, np.array([m.place for m in others], np.int64))
        return bool(rates.min() > self._config.win_rate)

    def state(self) -> State:
        """Return the lives, the awaited copies and the random state."""
        lives = {
            policy: [life.born, life.since, life.frozen_at, life.resets]
            for policy, life in self._lives.items()
        }
        return {"lives": lives, "random": rng_state(self._rng)}

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        lives = branch(state, "lives")
        self._lives = {}
        for policy, (born, since, frozen_at, resets) in lives.items():
            where = where_is(lives, policy)
            found = [whole_number(each, where) for each in (born, since, frozen_at or 0)]
            at = None if frozen_at is None else found[2]
            self._lives[policy] = _Life(found[0], found[1], at, bool(resets))
        restore_rng(self._rng, state["random"])
