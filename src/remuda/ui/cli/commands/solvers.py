"""The commands that train best responses: `remuda psro`, `exploit`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from remuda.errors import ConfigError
from remuda.solvers.exploit.settings import ExploitSettings
from remuda.solvers.psro.settings import PsroSettings
from remuda.ui.cli.arguments import parse_flags, validate
from remuda.ui.cli.commands.options import GameOptions, PrintOptions
from remuda.ui.cli.program import INTERRUPTED


class ResponseOptions(PrintOptions):
    """Options of a command that trains best responses."""

    env: GameOptions = GameOptions()
    out: Path | None = None
    """The directory for the results. None: a new one under `runs/`, named after game and time."""


class PsroOptions(PsroSettings, ResponseOptions):
    """Grow populations by best responses to their own meta-mixtures (double oracle, PSRO)."""

    game: str = ""
    """The game. Exact oracles need one that can be enumerated: `kuhn_poker`, `leduc_poker`,
    `tic_tac_toe`, a matrix game of one round, or `open_spiel:NAME`."""
    resume: Path | None = None
    """A directory to continue; finished iterations are not repeated."""


def psro(words: Sequence[str]) -> int:
    """Grow populations by best responses to their own mixtures."""
    tree = parse_flags(words, PsroOptions, positional="game")
    options = validate(tree, PsroOptions)

    from remuda.system.checkpoint.names import claimed_directory
    from remuda.ui.analysis.psro import PSRO_DIRECTORY, check_used, lines_of, print_double_oracle
    from remuda.ui.analysis.psro import psro as solve
    from remuda.ui.terminal.live import PlainView

    check_used(tree.keys() - {"format"}, options.resume, options.oracle, are_flags=True)
    if options.resume is None and not options.game:
        raise ConfigError(
            "name the game to play, as in `remuda psro kuhn_poker`; `remuda games` lists games"
        )
    is_json = options.format == "json"
    out = sys.stderr if is_json else sys.stdout
    with ExitStack() as stack:
        directory = options.out
        if directory is None and options.resume is None:
            directory = stack.enter_context(claimed_directory(PSRO_DIRECTORY, options.game))
        found = solve(
            options.game or None,
            options=options.env.options or None,
            directory=directory,
            resume=options.resume,
            view=PlainView(sys.stderr) if is_json else None,
            on_iteration=lambda found: print(lines_of(found), file=out, flush=True),
            **{name: tree[name] for name in PsroSettings.model_fields if name in tree},
        )
    options.show(found.as_summary, lambda: print_double_oracle(found))
    return INTERRUPTED if found.ended == "interrupted" else 0


class ExploitOptions(ExploitSettings, ResponseOptions):
    """A lower bound on how exploitable policies are, by training best responses to them."""

    target: tuple[str, ...] = ()
    """The policies to exploit: a run; or policies as for `remuda tournament`: `RUN:policy`, with
    `@VERSION`, `@best` or `@checkpoint-N` for weights other than the newest; `RUN:all`;
    `RUN:all@frozen` for all frozen copies; or a scripted policy such as `random`. Several
    policies form a mixture."""
    game: str = ""
    """The game to play; empty: the game of the first run, with its options."""


def exploit(words: Sequence[str]) -> int:
    """Train best responses to policies: a lower bound on how exploitable they are."""
    tree = parse_flags(words, ExploitOptions, positional="target")
    options = validate(tree, ExploitOptions)
    if not options.target:
        raise ConfigError(
            "name the policies to exploit: a run, RUN:policy, or a scripted policy, as in "
            "`remuda exploit random --game kuhn_poker`"
        )

    from remuda.ui.analysis.exploiting import exploit as find_bound
    from remuda.ui.analysis.exploiting import print_bound
    from remuda.ui.terminal.live import PlainView

    found = find_bound(
        options.target[0] if len(options.target) == 1 else list(options.target),
        game=options.game or None,
        options=options.env.options,
        directory=options.out,
        view=PlainView(sys.stderr) if options.format == "json" else None,
        **{name: tree[name] for name in ExploitSettings.model_fields if name in tree},
    )
    options.show(found.as_summary, lambda: print_bound(found))
    return INTERRUPTED if found.cut else 0
