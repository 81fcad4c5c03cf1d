"""The command `remuda psro`: populations that grow by best responses."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from remuda.errors import ConfigError
from remuda.ui.arguments import parse_flags, validate
from remuda.ui.commands.options import PrintOptions, ResponseOptions
from remuda.ui.interrupts import INTERRUPTED

RESUMED = ("resume", "iterations", "enough", "format")
"""Options that are allowed with `--resume`."""


class PsroOptions(PrintOptions, ResponseOptions):
    """Grow populations by best responses to their own meta-mixtures (double oracle, PSRO)."""

    game: str = ""
    """The game. Exact oracles need one that can be enumerated: `kuhn_poker`, `leduc_poker`,
    `tic_tac_toe`, a matrix game of one round, or `open_spiel:NAME`."""
    meta_solver: str = "nash"
    """How often each policy is played: `nash`, `max-entropy-nash`, `uniform` (fictitious play),
    `alpha-rank`, `projected-replicator` or `rectified-nash`."""
    oracle: str = "exact"
    """How best responses are found: `exact`, or the algorithm that trains them, such as `ppo`."""
    iterations: NonNegativeInt = 20
    """The most iterations, not counting that of the first policies, which play at random."""
    enough: NonNegativeFloat = 0.0
    """Stop once NashConv is known exactly and is at most this."""
    seconds: PositiveFloat | None = 20.0
    """Seconds of training in each iteration. None: by turns alone."""
    turns: PositiveInt | None = None
    """Turns of training in each iteration, over all copies. None: by seconds alone."""
    candidates: PositiveInt = 2
    """Oracles of each player, of which the best is used; all are trained as one stack."""
    matches: PositiveInt = 2000
    """Matches of each pair of policies, before more are played where the mixtures depend on
    them."""
    trials: PositiveInt = 2000
    """Matches of each candidate, by which the best is chosen."""
    resume: Path | None = None
    """A directory to continue; iterations that are finished are not repeated."""


PASSED = (
    *("meta_solver", "oracle", "seconds", "turns", "candidates", "matches", "trials"),
    *("num_envs", "schedule", "seed"),
)
"""Options that are arguments of `remuda.psro`, with the same name and type."""


def psro(words: Sequence[str]) -> int:
    """Grow populations by best responses to their own mixtures."""
    tree = parse_flags(words, PsroOptions, positional="game")
    options = validate(tree, PsroOptions)
    _check(tree, options)

    from remuda.ui.exploiting import ErrorView
    from remuda.ui.psro import directory_for, print_double_oracle, print_line
    from remuda.ui.psro import psro as solve

    is_json = options.format == "json"
    arguments: dict[str, Any] = {
        "iterations": options.iterations if "iterations" in tree else None,
        "enough": options.enough if "enough" in tree else None,
        "view": ErrorView() if is_json else None,
        "on_iteration": partial(print_line, out=sys.stderr if is_json else sys.stdout),
    }
    with ExitStack() as stack:
        if options.resume is not None:
            found = solve(resume=options.resume, **arguments)
        else:
            found = solve(
                options.game,
                options=options.env.options,
                directory=options.out or stack.enter_context(directory_for(options.game)),
                policy=tree.get("policy", {}),
                **arguments,
                **{name: getattr(options, name) for name in PASSED},
            )
    options.show(found.as_summary, lambda: print_double_oracle(found))
    return INTERRUPTED if found.ended == "interrupted" else 0


def _check(tree: Mapping[str, Any], options: PsroOptions) -> None:
    """Raise a `ConfigError` for options that do not go together."""
    if options.resume is not None:
        for key in tree:
            if key not in RESUMED:
                raise ConfigError(
                    f"--{key.replace('_', '-')} is fixed by {options.resume}; leave it out "
                    "with --resume"
                )
        return
    if not options.game:
        raise ConfigError(
            "name the game to play, as in `remuda psro kuhn_poker`; `remuda games` lists games"
        )
    if options.oracle == "exact":
        from remuda.ui.psro import TRAINED

        for key in tree:
            if key in TRAINED:
                raise ConfigError(
                    f"--{key.replace('_', '-')} is for trained oracles; add --oracle ppo, or leave "
                    "it out"
                )
