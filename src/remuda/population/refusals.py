"""What a matchmaker must not deal, and the messages that refuse it."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.errors import ConfigError
from remuda.population.records import PolicyRef, Population


def check_seating(
    population: Population,
    seats: Sequence[PolicyRef],
    matchmaker: str,
    agents: Sequence[str],
    once: bool = False,
) -> None:
    """Refuse a match that cannot be played, or that seats a policy where it may not sit.

    The matchmaker may be a user's own, so it is done for every match; it costs a microsecond.

    Args:
        population: whose members are to play.
        seats: by seat, who is dealt it.
        matchmaker: as the configuration names it.
        agents: by seat, its agent.
        once: whether there is room for one seat of each policy only.

    Raises:
        ConfigError: too few or too many seats, one who is not in the population, or one who may not
            take its seat, or sits twice where there is room for one seat.
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
