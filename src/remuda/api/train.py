"""`remuda.train`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.api.run import Run, path_of
from remuda.config import Config, check_presets, load_config, over_own_environment, overlay
from remuda.envs.registry import find_game, name_game
from remuda.errors import UnguardedScriptError
from remuda.runs.metrics import View
from remuda.runs.result import Result
from remuda.system.processes.child import check_guard
from remuda.training.python_settings import (
    gone_on_with,
    name_objects,
    tree_of,
    written_in,
)
from remuda.training.run import train as run_training


def train(
    game: str | Callable[..., Any] | None = None,
    *,
    preset: str | Sequence[str] = (),
    config: Path | str | Mapping[str, Any] | Config | None = None,
    resume: Run | Path | str | None = None,
    view: View | str | None = None,
    callbacks: Iterable[object] | None = (),
    **settings: Any,
) -> Result:
    """Train the policies of a game, and evaluate them.

    Unlike the command `remuda train`, this makes no `play.gif` and no report (see `Run.report`).

    Args:
        game: name, `module:Class`, or the class or function itself, also from a notebook: a
            `VectorEnv`, a Gymnasium or PettingZoo environment, or a function that makes one. None:
            the game of `config`, or Treasure Hunt.
        preset: one or more presets for kinds of games, such as `mpe`; other settings override them.
        config: settings as a YAML file, a nested mapping, or another run's `run.config` (whose
            `run.directory` is ignored).
        resume: a run to resume from its newest checkpoint; `settings` override the run's config.
        view: the display: `live`, `plain` (lines), `quiet` (nothing), or an object with the methods
            of a view. None: the live view in a terminal, otherwise plain lines.
        callbacks: objects with methods of `Callback`. They receive events, and may end the run or
            change hyperparameters.
        settings: sections of the configuration, which override `config`: `policy={"algorithm":
            "ppo"}, run={"turns": 100_000}, seed=3`. A section may also come from another run's
            config (`run.config.policy`).

    Returns:
        The result; `remuda.load` accepts it.

    Raises:
        UserCodeError: the environment's code raised an error; the message says where.
        RemudaError: any other error that you can fix; the message says how.
    """
    from remuda.ui.terminal.live import find_view

    check_guard()
    named = {} if game is None else {"game": game}
    tree = overlay(tree_of(config, preset), overlay(name_objects(settings), named))
    if resume is not None:
        tree = gone_on_with(path_of(resume, "resume"), tree, preset)
    if "game" in tree:
        tree["game"] = name_game(tree["game"])
    defaults = ""
    if resume is None:
        tree, defaults = over_own_environment(tree)
    whole = load_config(tree)
    find_game(whole.game)
    check_presets(preset, whole.game)
    view = find_view(view, whole.run.live)
    if defaults:
        view.say(defaults)
    explicit_keys = written_in(config, settings | named, resume is not None)
    try:
        return run_training(
            whole, view, resume is not None, explicit_keys=explicit_keys, user_callbacks=callbacks
        )
    except UnguardedScriptError as error:
        raise error.with_traceback(None) from None  # no traceback: the script is at fault
