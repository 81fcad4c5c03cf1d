"""`remuda.tournament`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remuda.config.plain import Options
from remuda.config.reading import read_keywords, takes_settings
from remuda.envs.registry import name_game
from remuda.errors import UnguardedScriptError
from remuda.evaluation.policy import Policy
from remuda.evaluation.tournaments.engine import Tournament
from remuda.evaluation.tournaments.entrants import Entrant, setup_of_entrants
from remuda.evaluation.tournaments.settings import TournamentSettings, check_ends
from remuda.system.processes.child import check_guard
from remuda.training.python_settings import name_scripted
from remuda.ui.analysis.tournament_setup import named_entrants, play_shown


class _Arguments(TournamentSettings):
    options: Options | None = None


@takes_settings(TournamentSettings)
def tournament(
    entrants: Sequence[Policy | str] | Mapping[str, Policy | str],
    *,
    game: str | Callable[..., Any],
    options: Mapping[str, Any] | None = None,
    **settings: Any,
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
        settings: the options that `remuda tournament --help` lists, such as `episodes=500` or
            `until="the best is 95% sure"`; values of `scripted` may be functions. The same call
            with a `directory` resumes an interrupted tournament, or adds matches up to a larger
            `episodes`. Here `processes` is 1 by default; a script that sets more needs
            `if __name__ == "__main__":`.

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
    check_guard()
    named = named_entrants(entrants)
    settings = {"processes": 1} | {k: value for k, value in settings.items() if value is not None}
    if "scripted" in settings:
        settings["scripted"] = name_scripted(settings["scripted"], "scripted")
    chosen = read_keywords(_Arguments, {"options": options, **settings}, tournament)
    check_ends(chosen.until, settings)
    players: dict[str, Entrant] = {
        name: entrant if isinstance(entrant, str) else entrant.player
        for name, entrant in named.items()
    }
    played = (name_game(game), chosen.options or {}, players, chosen.seed, chosen.sampled)
    setup = setup_of_entrants(*played, chosen.scripted)
    is_shown = sys.stderr.isatty()
    try:
        return play_shown(setup, chosen, chosen.directory, None, lambda: False, is_shown)[0]
    except UnguardedScriptError as error:
        raise error.with_traceback(None) from None  # no traceback: the script is at fault
