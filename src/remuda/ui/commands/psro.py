"""The command that lets populations grow by best responses: `remuda psro`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from remuda.config import PolicyConfig, Section
from remuda.errors import ConfigError
from remuda.ui.arguments import parse_flags, validate
from remuda.ui.commands.games import GameOptions
from remuda.ui.interrupts import INTERRUPTED

RESUMED = ("resume", "iterations", "enough", "format")
"""What goes with a directory that is gone on with."""


class PsroOptions(Section):
    """Populations that grow by best responses to their own meta-mixtures (double oracle, PSRO)."""

    game: str = ""
    """What is played. With exact oracles a game that can be walked: `kuhn_poker`, `leduc_poker`,
    `tic_tac_toe`, a matrix game of one round, or `open_spiel:NAME`."""
    env: GameOptions = GameOptions()
    meta_solver: str = "nash"
    """How often each policy is played: `nash`, `max-entropy-nash`, `uniform` (fictitious play),
    `alpha-rank`, `projected-replicator` or `rectified-nash`."""
    oracle: str = "exact"
    """How best responses are found: `exact`, or the algorithm that trains them, such as `ppo`."""
    iterations: NonNegativeInt = 20
    """At most, not counting that of the first policies, which play at random."""
    enough: NonNegativeFloat = 0.0
    """End where NashConv is known exactly, and is no more than this."""
    seconds: PositiveFloat | None = 20.0
    """Seconds of training in each iteration. None: by turns alone."""
    turns: PositiveInt | None = None
    """Turns of training in each iteration, over all copies. None: by seconds alone."""
    candidates: PositiveInt = 2
    """Oracles of each player, of which the best is taken; all are trained as one stack."""
    matches: PositiveInt = 2000
    """Of each pair of policies, before more of those follow on which the mixtures hang."""
    trials: PositiveInt = 2000
    """Matches by which the best candidate is chosen, of each."""
    policy: PolicyConfig = PolicyConfig()
    """What trained oracles are: a PPO with a preset of its own, but for what is said here."""
    num_envs: PositiveInt | None = None
    """Copies of the game that are played together in training. None: 64 for each candidate."""
    schedule: Literal["async", "lockstep", "sequential"] = "async"
    """How the roles take turns in training."""
    seed: NonNegativeInt = 0
    """Seed of training and of matches."""
    out: Path | None = None
    """The directory for `psro.jsonl`, and for trained policies. None: a new one under `runs/psro/`,
    named by game and time."""
    resume: Path | None = None
    """A directory to go on with; what was finished there is not done again."""
    format: Literal["table", "json"] = "table"
    """Lines and a table to read, or all of it as JSON."""


def psro(words: Sequence[str]) -> int:
    """Let populations grow by best responses to their mixtures."""
    tree = parse_flags(words, PsroOptions, positional="game")
    options = validate(tree, PsroOptions)
    _check(tree, options)

    from remuda.ui.exploiting import ErrorView
    from remuda.ui.psro import directory_for, print_double_oracle, print_line
    from remuda.ui.psro import psro as ask

    is_json = options.format == "json"
    view = ErrorView() if is_json else None
    told = partial(print_line, out=sys.stderr if is_json else sys.stdout)
    most = options.iterations if "iterations" in tree else None
    enough = options.enough if "enough" in tree else None
    with ExitStack() as stack:
        if options.resume is not None:
            found = ask(resume=options.resume, iterations=most, enough=enough, view=view, told=told)
        else:
            directory = options.out or stack.enter_context(directory_for(options.game))
            found = ask(
                options.game,
                meta_solver=options.meta_solver,
                oracle=options.oracle,
                iterations=most,
                options=options.env.options,
                directory=directory,
                enough=enough,
                seconds=options.seconds,
                turns=options.turns,
                candidates=options.candidates,
                matches=options.matches,
                trials=options.trials,
                policy=tree.get("policy", {}),
                num_envs=options.num_envs,
                schedule=options.schedule,
                seed=options.seed,
                view=view,
                told=told,
            )
    if is_json:
        print(json.dumps(found.as_summary(), allow_nan=False, default=str))
    else:
        print_double_oracle(found)
    return INTERRUPTED if found.ended == "interrupted" else 0


def _check(tree: dict[str, object], options: PsroOptions) -> None:
    """Raise a `ConfigError` where flags do not go together."""
    if options.resume is not None:
        for key in tree:
            if key not in RESUMED:
                raise ConfigError(
                    f"--{key.replace('_', '-')} is as it was in {options.resume}; leave it out "
                    "with --resume"
                )
        return
    if not options.game:
        raise ConfigError(
            "name the game to play, as in `remuda psro kuhn_poker`; `remuda games` lists games"
        )
    if options.oracle == "exact":
        from remuda.ui.psro import TRAINED

        for key in TRAINED:
            if key in tree:
                raise ConfigError(
                    f"--{key.replace('_', '-')} is for trained oracles; add --oracle ppo, or leave "
                    "it out"
                )
