"""The settings of a tournament: flags of the command and arguments of `remuda.tournament`."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from remuda.config import Section
from remuda.config.sections import PathSetting
from remuda.errors import ConfigError, UsageError

MATCHES = 1_000_000


class TournamentSettings(Section):
    """Settings of a tournament."""

    scripted: dict[str, str] = Field(default_factory=dict)
    """For each agent, the scripted policy that plays its seat in every match, as in
    `--scripted.agent_1 random`. No entrant plays that seat, and its returns do not count. Other
    seats: as in `env.scripted` of the first run, unless `--game` is used."""
    episodes: PositiveInt = 100
    """Episodes per pair and seat."""
    until: str = ""
    """Play the most informative matches, round by round, until this is certain: `rank of the top
    3 is 95% sure`, `the best is 95% sure`, `the response graph is 95% sure`, or `regret below 0.5
    is 95% sure`, which plays line-ups of any entrants on the seats that their runs allow. Empty:
    play `--episodes`."""
    matches: PositiveInt = MATCHES
    """With `--until`: maximum number of matches over all pairs."""
    seconds: PositiveFloat | None = None
    """Start no match after this many seconds; None: no limit."""
    sampled: bool = False
    """Let policies explore as at the end of training; otherwise they act greedily."""
    seed: NonNegativeInt = 0
    """Seed of the games."""
    processes: PositiveInt | None = None
    """Number of parallel processes; the result does not depend on it. None: as many as are
    useful, at most one per core; in Python the default is 1."""
    copies: PositiveInt | None = None
    """Maximum environment copies in each process. None: `env.num_envs` of the entrants' runs, or up
    to 1,024 for Remuda's own games, whose copies are rows of arrays."""
    directory: PathSetting | None = None
    """The directory for matches; the same command continues a tournament there. None: one under
    `runs/tournaments/`, named after the game and all settings that determine the matches; in
    Python, the matches are not saved."""


def check_ends(until: str, explicit_keys: Collection[str], are_flags: bool = False) -> None:
    """Raise an error if the limits of a tournament contradict each other."""
    error, dash = (ConfigError, "--") if are_flags else (UsageError, "")
    if until and "episodes" in explicit_keys:
        raise error(
            f"{dash}until and {dash}episodes both limit the tournament; leave out one of them"
        )
    if not until and "matches" in explicit_keys:
        raise error(f"{dash}matches works with {dash}until only; without it, use {dash}episodes")
