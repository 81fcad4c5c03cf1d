"""Build the director of evolution from a configuration, and check that the run can evolve."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

from numpy.random import Generator

from remuda.config import Config, EvolutionConfig, PopulationConfig
from remuda.config.evolution import OBJECTIVES
from remuda.config.hyperparameters import with_values
from remuda.errors import ConfigError
from remuda.policies.compatibility import network_layout, stream_shape
from remuda.policies.spec import PolicySpec
from remuda.population.evolution.director import Evolution, Select
from remuda.population.evolution.explore import Explorer
from remuda.population.evolution.fitness import LEAST, FitnessEstimates, fitness_of
from remuda.population.evolution.grow import network_family
from remuda.population.evolution.numbers import Evolvable, check_numbers
from remuda.population.evolution.select import (
    TakeOver,
    binary_tournament,
    non_dominated,
    t_test,
    truncation,
)
from remuda.population.ledger.ratings import sides_by_agent
from remuda.population.ledger.records import Member, PolicyRef, Population
from remuda.population.matchmaking.matchmaker import can_do_without, can_stand_in
from remuda.population.roster import Roster
from remuda.population.setup import make_matchmaker, sits_once
from remuda.system.rng import make_rng


def make_evolution(config: Config, specs: Sequence[PolicySpec], roster: Roster) -> Evolution | None:
    evolution = config.population.evolution
    if not evolution.on:
        return None
    import scipy.special  # noqa: F401  imported now, so that the first comparison is fast

    return Evolution(
        evolution,
        kinds_of(config, specs, roster),
        selection(evolution),
        lambda: Explorer(evolution, numbers_of(evolution)),
        lambda matches, purpose: make_rng(config.seed, "evolution", matches, purpose),
    )


def with_first_numbers(config: Config, specs: Sequence[PolicySpec]) -> tuple[PolicySpec, ...]:
    """Return the initial policies, with random initial hyperparameters if configured."""
    evolution = config.population.evolution
    if not (evolution.on and evolution.draw_first):
        return tuple(specs)
    found = []
    for spec in specs:
        rng = make_rng(config.seed, "evolution", "first", spec.name)
        drawn = {number.name: number.draw(rng) for number in numbers_of(evolution)}
        found.append(replace(spec, config=with_values(spec.config, drawn)))
    return tuple(found)


SELECTIONS: Mapping[str, Callable[..., list[TakeOver]]] = {
    "truncation": truncation,
    "tournament": binary_tournament,
    "t_test": t_test,
    "non_dominated": non_dominated,
}


def selection(config: EvolutionConfig) -> Select:
    options = {"confidence": config.confidence}
    if config.select in ("truncation", "non_dominated"):
        options["fraction"] = config.share

    def select(
        estimates: Mapping[str, FitnessEstimates], rng: Generator
    ) -> Sequence[tuple[str, str]]:
        return SELECTIONS[config.select](fitness_of(estimates), rng, **options)

    return select


def numbers_of(config: EvolutionConfig) -> tuple[Evolvable, ...]:
    return tuple(Evolvable(name, n.low, n.high, n.log) for name, n in config.numbers.items())


def kinds_of(config: Config, specs: Sequence[PolicySpec], roster: Roster) -> dict[str, Hashable]:
    """Return the kind of each policy that evolves; policies of one kind may replace each other."""
    evolution = config.population.evolution
    by_seats, any_network = evolution.among == "seats", evolution.networks == "any"
    return {
        spec.name: (
            network_family(spec) if any_network else (stream_shape(spec), network_layout(spec)),
            spec.config.entry.samples,
            spec.config.algorithm,
            tuple(roster.seats_of(spec.name)) if by_seats else (),
        )
        for spec in specs
        if spec.name in roster.first
    }


def always_one_team(
    population: PopulationConfig, kinds: Mapping[str, Hashable], roster: Roster
) -> bool:
    """Return whether policies of each kind always play for the same team."""
    if population.matchmaker != "fixed":
        return False
    sides = sides_by_agent(roster.teams or ("",) * len(roster.agents)).tolist()
    teams: dict[Hashable, list[tuple[int, ...]]] = {}
    for policy, kind in kinds.items():
        own = tuple(sorted({sides[seat] for seat in roster.seats_of(policy)}))
        teams.setdefault(kind, []).append(own)
    alike = [found for found in teams.values() if len(found) > 1]
    return bool(alike) and all(len(set(found)) == 1 for found in alike)


def check_evolution(
    config: Config, specs: Sequence[PolicySpec], roster: Roster, episode_metrics: Sequence[str] = ()
) -> None:
    if not config.population.evolution.on:
        return
    key = "population.evolution"
    if config.population.births.every is not None:
        raise ConfigError(
            f"{key}.every and population.births.every are both set, and both replace policies; "
            "leave one of them out"
        )
    games, confidence = config.population.evolution.games, config.population.evolution.confidence
    if confidence > 0.0 and games < LEAST:
        raise ConfigError(
            f"{key}.games is {games}, and {key}.confidence {confidence:g}: so few games "
            f"give no error estimate; set it to {LEAST} or more, or set {key}.confidence 0"
        )
    numbers = numbers_of(config.population.evolution)
    for spec in specs:
        try:
            check_numbers(numbers, spec.config)
        except ConfigError as error:
            raise ConfigError(f"population.evolution.numbers.{error}") from None
    by_policy = kinds_of(config, specs, roster)
    _check_objectives(config, by_policy, roster, episode_metrics)
    evolution = config.population.evolution
    if len(set(by_policy.values())) == len(by_policy):
        more = " (but for widths and numbers of layers)" * (evolution.networks == "any")
        raise ConfigError(
            f"population.evolution.every: no two policies have the same network{more} and algorithm"
            + (" and take the same seats" if evolution.among == "seats" else "")
            + ", so no policy can replace another; make some equal, or leave it out"
        )
    if config.population.evolution.networks == "any":
        _check_networks(specs, by_policy)
    _check_slots(config, roster)


def _check_networks(specs: Sequence[PolicySpec], kinds: Mapping[str, Hashable]) -> None:
    """Refuse a policy if the weights of no other policy can be converted to its network."""
    single = [name for name, kind in kinds.items() if list(kinds.values()).count(kind) == 1]
    own = {spec.name: network_layout(spec) for spec in specs if spec.name in kinds}
    odd = [name for name in single if list(own.values()).count(own[name]) == 1]
    if odd:
        raise ConfigError(
            f"population.evolution.networks any: no other policy's weights fit {odd[0]}, "
            "which differs from all in more than the widths and the number of layers "
            "(activation, dueling, noisy, shared, module, kernels, algorithm, observations, "
            "actions or seats); make it equal to another policy in these, or set networks to alike"
        )


def _check_slots(config: Config, roster: Roster) -> None:
    initial = Population([Member(PolicyRef(name), roster.seats.get(name)) for name in roster.first])
    members = initial.members
    matchmaker = make_matchmaker(config.population, roster.among(roster.first))
    least = len(roster.dealt_seats) if sits_once(config.population, roster) else 1
    for member in members:
        if not can_do_without(members, member.ref, matchmaker, least) and not can_stand_in(
            members, member.ref, matchmaker
        ):
            raise ConfigError(
                "population.evolution.every: the matchmaker "
                f"{config.population.matchmaker} makes no match without {member.ref}, so no "
                "policy can be born in its slot; add a policy to population.policies, or use "
                "another population.matchmaker"
            )


def _check_objectives(
    config: Config, kinds: Mapping[str, Hashable], roster: Roster, episode_metrics: Sequence[str]
) -> None:
    """Refuse objectives that cannot compare the policies."""
    key, population = "population.evolution", config.population
    objectives, select = population.evolution.objectives, population.evolution.select
    if len(objectives) > 1 and select != "non_dominated":
        raise ConfigError(
            f"{key}.fitness lists {len(objectives)} objectives, but {key}.select {select} uses "
            f"only one; set {key}.select non_dominated, or list one"
        )
    if len(set(objectives)) < len(objectives):
        raise ConfigError(f"{key}.fitness lists {', '.join(objectives)}; list each of them once")
    missing = [n for n in population.evolution.episode_metrics if n not in episode_metrics]
    if missing:
        known = ", ".join(f"game/{name}" for name in episode_metrics) or "none"
        raise ConfigError(
            f"{key}.fitness is game/{missing[0]}, but the episode metrics of {config.game} are "
            f"{known}; name one of these, or one of {', '.join(OBJECTIVES)}"
        )
    if "team_return" in objectives and always_one_team(population, kinds, roster):
        raise ConfigError(
            f"{key}.fitness team_return: with population.matchmaker fixed a team's policies play "
            "in every match, so their team return is equal; use another "
            "population.matchmaker, such as random, or another objective"
        )
    if population.evolution.episode_metrics and population.matchmaker == "fixed":
        raise ConfigError(
            f"{key}.fitness game/{population.evolution.episode_metrics[0]}: with "
            "population.matchmaker fixed all play in every match, so it is equal for all; "
            "use another population.matchmaker, such as random, or another objective"
        )
