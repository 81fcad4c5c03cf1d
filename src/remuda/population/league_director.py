"""When the policies of a league are copied, and when they begin anew (Vinyals et al. 2019)."""

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
    """A policy from its birth in its place until it begins anew there."""

    born: int
    """When it was born, so that it is told from the one before."""
    since: int
    """Its version when it was copied last, or when it began."""
    frozen_at: int | None = None
    """The version of a copy that was commanded and is not there yet..."""
    resets: bool = False
    """...and whether the policy begins anew after that."""


class LeagueDirector:
    """Copies policies of a league once they win, or after so many versions; resets exploiters.

    A main agent is copied when it begins, and never begins anew. A policy is copied once it wins
    against each of those that count: a main exploiter against live main agents, the others against
    all frozen copies. Copied main exploiters begin anew, league exploiters with some probability.

    What it guarantees:

    1. A role belongs to a place: what begins anew keeps its name, and its copies are of that name.
    2. Who begins anew does so with weights of its own, as specified (drawn at random, or those of
       `init_from`), and with nothing of the record of the one before.
    3. It begins anew only once its copy is in the population, and its last matches are over. Where
       no match could be made without it, a copy stands in meanwhile.
    4. Whatever an actor loses by dying, no place stays empty: what is empty is born anew.
    """

    def __init__(
        self, config: LeagueConfig, snapshots: SnapshotsConfig, random: np.random.Generator
    ) -> None:
        """Direct a league."""
        self._config, self._snapshots, self._random = config, snapshots, random
        self._lives: dict[str, _Life] = {}

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        """Copy those that are due, and let those begin anew whose copy is there."""
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
        """What is to be done about a policy that plays."""
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
        life.frozen_at, life.resets = version, self._random.random() < chance
        return freeze(policy, past, self._snapshots)

    def _wins(self, role: str, member: Member, population: Population, ledger: Ledger) -> bool:
        """Whether a policy wins against each of those that count."""
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
        """Since when each policy learns, which copies are awaited, and where its draws are."""
        lives = {
            policy: [life.born, life.since, life.frozen_at, life.resets]
            for policy, life in self._lives.items()
        }
        return {"lives": lives, "random": rng_state(self._random)}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        lives = branch(state, "lives")
        self._lives = {}
        for policy, (born, since, frozen_at, resets) in lives.items():
            where = where_is(lives, policy)
            found = [whole_number(each, where) for each in (born, since, frozen_at or 0)]
            at = None if frozen_at is None else found[2]
            self._lives[policy] = _Life(found[0], found[1], at, bool(resets))
        restore_rng(self._random, state["random"])
