"""The commands that train best responses: `remuda psro`, `exploit`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from remuda.config import PolicyConfig, Section, overlay
from remuda.errors import ConfigError
from remuda.ui.cli.arguments import parse_flags, validate
from remuda.ui.cli.commands.options import GameOptions, PrintOptions
from remuda.ui.cli.program import INTERRUPTED


class ResponseOptions(Section):
    """Options of a command that trains best responses."""

    env: GameOptions = GameOptions()
    policy: PolicyConfig = PolicyConfig()
    """Settings of the trained policies; they override a PPO preset for best responses."""
    num_envs: PositiveInt | None = None
    """Environment copies in training. None: 64 for each policy that is trained for a seat."""
    schedule: Literal["async", "lockstep", "sequential"] = "async"
    """The schedule of training, as in `schedule` of a run."""
    seed: NonNegativeInt = 0
    """Seed of training and matches."""
    out: Path | None = None
    """The directory for the results. None: a new one under `runs/`, named after game and time."""


class PsroOptions(PrintOptions, ResponseOptions):
    """Grow populations by best responses to their own meta-mixtures (double oracle, PSRO)."""

    game: str = ""
    """The game. Exact oracles need one that can be enumerated: `kuhn_poker`, `leduc_poker`,
    `tic_tac_toe`, a matrix game of one round, or `open_spiel:NAME`."""
    meta_solver: str = "nash"
    """How often each policy is played: `nash`, `max-entropy-nash`, `uniform` (fictitious play),
    `alpha-rank`, `projected-replicator` or `rectified-nash`."""
    oracle: str = "exact"
    """How best responses are found: `exact`, or the training algorithm, such as `ppo`."""
    iterations: NonNegativeInt = 20
    """Maximum number of iterations, not counting the initial random policies."""
    enough: NonNegativeFloat = 0.0
    """Stop when NashConv is known exactly and is at most this."""
    seconds: PositiveFloat | None = 20.0
    """Seconds of training per iteration. None: only `turns` limits it."""
    turns: PositiveInt | None = None
    """Turns of training per iteration, summed over environment copies. None: only `seconds` limits
    it."""
    candidates: PositiveInt = 2
    """Best responses trained for each player, as one stack; the best one is used."""
    matches: PositiveInt = 2000
    """Matches per pair of policies. Pairs that matter for the mixtures play more."""
    trials: PositiveInt = 2000
    """Matches per candidate, to choose the best."""
    resume: Path | None = None
    """A directory to continue; finished iterations are not repeated."""


PSRO_PASSED = (  # options that are arguments of `remuda.psro`, with the same name and type
    *("meta_solver", "oracle", "seconds", "turns", "candidates", "matches", "trials"),
    *("num_envs", "schedule", "seed"),
)


def psro(words: Sequence[str]) -> int:
    """Grow populations by best responses to their own mixtures."""
    tree = parse_flags(words, PsroOptions, positional="game")
    options = validate(tree, PsroOptions)

    from remuda.system.checkpoint.names import claimed_directory
    from remuda.ui.analysis.exploiting import ErrorView
    from remuda.ui.analysis.psro import PSRO_DIRECTORY, check_used, print_double_oracle, print_line
    from remuda.ui.analysis.psro import psro as solve

    check_used(tree.keys() - {"format"}, options.resume, options.oracle, are_flags=True)
    if options.resume is None and not options.game:
        raise ConfigError(
            "name the game to play, as in `remuda psro kuhn_poker`; `remuda games` lists games"
        )
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
                directory=options.out
                or stack.enter_context(claimed_directory(PSRO_DIRECTORY, options.game)),
                policy=tree.get("policy", {}),
                **arguments,
                **{name: getattr(options, name) for name in PSRO_PASSED},
            )
    options.show(found.as_summary, lambda: print_double_oracle(found))
    return INTERRUPTED if found.ended == "interrupted" else 0


class ExploitOptions(PrintOptions, ResponseOptions):
    """A lower bound on how exploitable policies are, by training best responses to them."""

    target: tuple[str, ...] = ()
    """The policies to exploit: a run; or policies as for `remuda tournament`: `RUN:policy`, with
    `@VERSION`, `@best` or `@checkpoint-N` for weights other than the newest; `RUN:all`;
    `RUN:all@frozen` for all frozen copies; or a scripted policy such as `random`. Several
    policies form a mixture."""
    against: tuple[str, ...] = ()
    """Policies of a run that are the target, such as `policy_3` or `policy_3@12`; each plays all
    seats. Empty: all policies; those of a population form a mixture, others play their own
    seats."""
    mixture: Literal["uniform", "nash"] = "uniform"
    """Weights of several policies: equal, or those of the Nash equilibrium of fresh matches among
    them (two-player zero-sum games)."""
    game: str = ""
    """The game to play; empty: the game of the first run, with its options."""
    greedy: bool = False
    """Let the target take its most likely action; otherwise it samples from its action
    distribution. Q-learners always act greedily."""
    seconds: PositiveFloat = 120.0
    """Seconds of training, divided evenly among the seats."""
    exploiters: PositiveInt = 4
    """Exploiters per seat, trained as one stack."""
    episodes: int = Field(2000, ge=2)
    """Fresh matches per seat of the chosen exploiter, and as many of the target against itself."""
    seats: tuple[str, ...] = ()
    """Agents whose seats to exploit, such as `agent_0`; empty: all, including those in
    `env.scripted`."""


EXPLOIT_PASSED = (  # options that are arguments of `remuda.exploit`, with the same name
    *("against", "mixture", "greedy", "seconds", "exploiters", "episodes", "seats"),
    *("num_envs", "schedule", "seed"),
)


def exploit(words: Sequence[str]) -> int:
    """Train best responses to policies: a lower bound on how exploitable they are."""
    from remuda.solvers.exploit.training import POLICY

    tree = parse_flags(words, ExploitOptions, positional="target")
    policy = tree.get("policy", {})
    if str(policy.get("algorithm", "ppo")) == "ppo":
        tree = {**tree, "policy": overlay(POLICY, policy)}
    options = validate(tree, ExploitOptions)
    if not options.target:
        raise ConfigError(
            "name the policies to exploit: a run, RUN:policy, or a scripted policy, as in "
            "`remuda exploit random --game kuhn_poker`"
        )

    from remuda.ui.analysis.exploiting import ErrorView, print_bound
    from remuda.ui.analysis.exploiting import exploit as find_bound

    found = find_bound(
        options.target[0] if len(options.target) == 1 else list(options.target),
        game=options.game or None,
        options=options.env.options,
        policy=policy,
        directory=options.out,
        view=ErrorView() if options.format == "json" else None,
        **{name: getattr(options, name) for name in EXPLOIT_PASSED},
    )
    options.show(found.as_summary, lambda: print_bound(found))
    return INTERRUPTED if found.cut else 0
