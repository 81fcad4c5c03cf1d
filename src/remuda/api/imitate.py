"""`remuda.imitate`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.api.run import Run
from remuda.config import PolicyConfig
from remuda.envs.registry import name_game
from remuda.errors import UsageError
from remuda.evaluation.trajectories import Trajectories
from remuda.policies.imitation import CloningSettings
from remuda.training.imitation import clone_run
from remuda.training.python_settings import name_objects

Data = Trajectories | Path | str


def imitate(
    data: Data | Sequence[Data],
    *,
    policy: Mapping[str, Any] | PolicyConfig | None = None,
    agents: str | Sequence[str] | None = None,
    game: str | Callable[..., Any] | None = None,
    directory: Path | str | None = None,
    epochs: int = 20,
    batch_size: int = 256,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> Run:
    """Clone the behaviour in trajectories into a policy's weights, and return them as a run.

    PPO, MAPPO and SAC maximise the log-likelihood of the actions, DQN that of a softmax over its
    action values. Value heads and critics keep random weights. The run has no metrics and cannot be
    resumed; `policy={"init_from": str(run.path)}` starts another run with its weights.

    Args:
        data: trajectories of `Run.record`, or their file; several are pooled.
        policy: the section `policy` of the run that will use the weights, such as
            `{"algorithm": "dqn", "n_frames": 2}`: `ppo`, `mappo`, `dqn` or `sac`, not recurrent.
            None: `ppo` with its defaults.
        agents: the agents whose steps are pooled and cloned into one network, which is saved under
            each of their names. None: all agents, which must have the same spaces.
        game: the game that the data must be of, as in `train`. None: do not check.
        directory: the run directory to write. None: a new one in `runs`.
        epochs: passes over the data.
        batch_size: steps of a minibatch.
        learning_rate: that of Adam.
        seed: seed of initial weights and minibatches.

    Raises:
        UsageError: the data is no file of trajectories, has no steps, or mixes games or spaces; or
            an argument is invalid.
        ConfigError: `policy` is invalid, or its network cannot be cloned.
        RunDirectoryError: `directory` holds a run, or cannot be written.
    """
    whole = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
    for name, value in whole.items():
        least = 0 if name == "seed" else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError(f"{name}: a whole number, at least {least}; this is {value!r}")
    if not isinstance(learning_rate, int | float) or not 0 < learning_rate < math.inf:
        raise UsageError(f"learning_rate: a number above 0; this is {learning_rate!r}")
    several = [data] if isinstance(data, Trajectories | Path | str) else list(data)
    if not several:
        raise UsageError("data: pass trajectories of Run.record, or their file; this is empty")
    opened = [_opened(each) for each in several]
    if game is not None and name_game(game) != opened[0].game:
        raise UsageError(f"data: it is of {opened[0].game}, and game is {name_game(game)}")
    section = name_objects({"policy": {"algorithm": "ppo"} if policy is None else policy})
    names = [agents] if isinstance(agents, str) else agents
    path = None if directory is None else Path(directory).expanduser()
    settings = CloningSettings(epochs, batch_size, float(learning_rate), seed)
    return Run(clone_run(opened, names, section["policy"], path, settings))


def _opened(data: Any) -> Trajectories:
    if isinstance(data, Trajectories):
        return data
    if isinstance(data, Path | str):
        return Trajectories.load(data)
    raise UsageError(f"data: pass trajectories of Run.record, or their file; this is {data!r}")
