"""Checks of seatings and scripted policies, with their messages."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.config import Config
from remuda.errors import ConfigError
from remuda.population.records import PolicyRef, Population
from remuda.population.roster import Roster, check_name


def check_seating(
    population: Population,
    seats: Sequence[PolicyRef],
    matchmaker: str,
    agents: Sequence[str],
    once: bool = False,
) -> None:
    """Refuse a match that cannot be played, or that seats a policy where it may not sit.

    The matchmaker may be a user's, so every match is checked; it costs a microsecond.
    """
    if len(seats) != len(agents):
        raise ConfigError(
            f"the matchmaker {matchmaker} deals {len(seats)} seats, and the game has "
            f"{len(agents)}; let its `seat` return one PolicyRef for each"
        )
    if once and len(set(seats)) < len(seats):
        raise ConfigError(
            f"the matchmaker {matchmaker} deals {', '.join(map(str, seats))}, one of them twice, "
            "and its class says that `seats_differ`; leave that out, or deal each a single seat"
        )
    for seat, ref in enumerate(seats):
        if ref not in population:
            there = population.members
            known = ", ".join(str(member.ref) for member in there[:8])
            known += f" and {len(there) - 8} more" if len(there) > 8 else ""
            raise ConfigError(
                f"the matchmaker {matchmaker} deals {agents[seat]} to {ref}, who is not in the "
                f"population; there are {known}"
            )
        member = population[ref]
        if not member.may_sit(seat):
            kept = ", ".join(agents[each] for each in sorted(member.seats or ()))
            name = ref.policy
            mend = "let its `seat` ask Member.may_sit"
            if matchmaker == "fixed":
                mend = "name population.policies in the order of the agents"
            raise ConfigError(
                f"the matchmaker {matchmaker} deals {ref} the seat of {agents[seat]}, and "
                f"population.seats.{name} keeps it to {kept}; {mend}, leave "
                f"population.seats.{name} out, or take another population.matchmaker"
            )


def check_scripted(config: Config, roster: Roster) -> None:
    """Refuse scripted policies that cannot be members of a population, or would never play."""
    population = config.population
    for agent in config.seats_taken:
        if agent in roster.policies or agent in population.scripted:
            key = "population.policies" if agent in roster.policies else "population.scripted"
            raise ConfigError(
                f"env.scripted.{agent} reserves the seat of {agent} and is called {agent} in the "
                f"population, and so is another member; give that another name in {key}"
            )
    if not population.scripted:
        return
    for name in population.scripted:
        check_name(name, "population.scripted")
        if name in roster.policies:
            raise ConfigError(
                f"population.scripted.{name}: a policy that learns is called {name}; call the "
                f"scripted one otherwise, as in --population.scripted.{name[:32]}_bot "
                f"{population.scripted[name]}"
            )
    if population.matchmaker in ("fixed", "teams"):
        raise ConfigError(
            "population.scripted is for matchmakers that deal seats to frozen copies of any "
            f"policy, and {population.matchmaker} names who plays; take another "
            "population.matchmaker, such as random"
        )
    if len(roster.left) == 1:
        raise ConfigError(
            f"population.scripted: {config.game} has one seat that is dealt, which a policy that "
            "learns takes in every match; leave population.scripted out"
        )
    learning = {seat for name in roster.policies for seat in roster.seats_of(name)}
    for seat in roster.left:
        if seat not in learning:
            agent = roster.agents[seat]
            raise ConfigError(
                f"population.seats leaves {agent} to scripted policies alone; take "
                f"--env.scripted.{agent} for one that takes it in every match, or name it in "
                "population.seats of a policy that learns too, which takes it in other matches"
            )
    _check_share(config)


def _check_share(config: Config) -> None:
    population, share = config.population, config.population.snapshots.share
    if share == 0.0 and ":" not in population.matchmaker:
        raise ConfigError(
            "population.snapshots.share is 0, and scripted policies such as "
            f"{next(iter(population.scripted))} take seats in that share; make it more than 0, or "
            "leave population.scripted out"
        )
    if population.matchmaker == "self_play" and share is None and population.newest == 1.0:
        raise ConfigError(
            f"population.newest is 1, so that self_play deals no seat to "
            f"{', '.join(population.scripted)}; make it less, or leave population.scripted out"
        )
