"""`remuda.tournament`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.config.reading import read_keywords
from remuda.envs.registry import name_game
from remuda.errors import UnguardedScriptError
from remuda.evaluation.policy import Policy
from remuda.evaluation.tournaments.engine import Tournament
from remuda.evaluation.tournaments.entrants import Entrant
from remuda.system.processes.child import check_guard
from remuda.ui.analysis.tournament_setup import TournamentArguments, named_entrants, play_in_python


def tournament(
    entrants: Sequence[Policy | str] | Mapping[str, Policy | str],
    *,
    game: str | Callable[..., Any],
    options: Mapping[str, Any] | None = None,
    scripted: Mapping[str, str | Callable[..., Any]] | None = None,
    episodes: int | None = None,
    seed: int = 0,
    deterministic: bool = True,
    directory: Path | str | None = None,
    until: str = "",
    matches: int | None = None,
    seconds: float | None = None,
    processes: int | None = 1,
) -> Tournament:
    """Play policies of any runs against each other and themselves.

    Many matches are played in parallel. The random numbers of a match depend only on the seed and
    the match number. In a game of more than two seats, the row's entrant plays one seat (each seat
    in turn), and the column's entrant plays all others.

    Args:
        entrants: policies, or names of scripted policies (`random`, or from `remuda games GAME`),
            as a list or as a mapping from names.
        game: a game that all entrants can play, as in `train`.
        options: options of the game, as in `env.options`.
        scripted: scripted policies by agent, as in `env.scripted`; entrants do not play these
            seats.
        episodes: episodes for each pair and each seat of its first entrant; None: 100. Not
            allowed with `until`.
        seed: seed of all matches.
        deterministic: play greedily; otherwise explore as at the end of training.
        directory: where matches are saved (`ledger.bin` and `tournament.json`). The same call
            resumes an interrupted tournament, or adds matches up to a larger `episodes`.
        until: play rounds of the matches that help most to answer a question, until it is answered,
            such as `rank of the top 3 is 95% sure`. Empty: play `episodes`.
        matches: maximum number of matches, with `until`; None: a million.
        seconds: start no match after this time; None: no limit.
        processes: number of processes; 1: this process; None: as many as useful, at most one for
            each core. A script that uses more than 1 needs `if __name__ == "__main__":`.

    Returns:
        `entrants`; `means` and `errors` [N, N]: the mean return of the row's entrant against the
        column's, averaged over the seats, and its standard error; `matches` [N, N]; with `until`
        also `until`, the final state of the question.

    Raises:
        UsageError: there are no entrants, an entrant cannot play the game, `episodes`, `until` and
            `matches` contradict each other, or the directory contains another tournament.
        UnguardedScriptError: the script calls this at import in a process of the tournament.
        RunDirectoryError: the directory is in use, damaged, or cannot be written.
        ConfigError: there is no such game, or no such scripted policy.
    """
    arguments = dict(locals())
    check_guard()
    named = named_entrants(entrants)
    own = {name: arguments[name] for name in TournamentArguments.model_fields}
    chosen = read_keywords(TournamentArguments, own, tournament)
    players: dict[str, Entrant] = {
        name: entrant if isinstance(entrant, str) else entrant.player
        for name, entrant in named.items()
    }
    try:
        return play_in_python(name_game(game), players, chosen, scripted)
    except UnguardedScriptError as error:
        raise error.with_traceback(None) from None  # no traceback: the script is at fault
