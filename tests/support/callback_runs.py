"""Small runs with callbacks."""

import remuda
from remuda.ui.terminal.live import PlainView

SMALL = {
    "schedule": "sequential",
    "policy": {"algorithm": "ppo", "network": {"hidden": (16,)}, "ppo": {"rollout_length": 20}},
    "run": {"turns": 300, "evaluate_episodes": 2, "log_every": 0.05},
    "checkpoint": {"evaluate_episodes": 0},
}


FOR_LONG = 10**9
"""Turns that no test plays."""


def train(directory, *callbacks, **settings):
    run = settings.pop("run", {}) | {"directory": directory}
    return remuda.train(
        "support:Tape",
        config=SMALL,
        run=run,
        view=PlainView(),
        callbacks=callbacks,
        **settings,
    )


class StopsAtOnce:
    """Of no base class."""

    def on_metrics(self, run, row):
        run.stop("enough was seen")
        run.stop("a second reason")
