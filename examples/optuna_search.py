"""Search hyperparameters with Optuna; a callback ends the runs of trials that fall behind.

python examples/optuna_search.py [TRIALS] [TURNS]

It needs `pip install optuna`. Remuda's tests do not install Optuna: they run `objective` with a
stand-in for a trial, and so test the callback and the run, but not Optuna's own calls in `main`.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

import remuda


class Prune(remuda.Callback):
    """Report returns to an Optuna trial, and end the run once the trial should be pruned.

    `optuna.TrialPruned` must not be raised here, since an exception in a callback fails the run:
    `stop` ends it in order, and `objective` raises the exception afterwards.
    """

    def __init__(self, trial: Any) -> None:
        self.trial, self.pruned = trial, False

    def on_metrics(self, run: remuda.ActiveRun, row: Mapping[str, float]) -> None:
        """Report the mean return of all policies, at each line of metrics."""
        returns = [row[f"{policy}/mean_return"] for policy in run.policies]
        value = sum(returns) / len(returns)
        if math.isnan(value) or self.pruned:  # NaN: no episode has ended since the last line
            return
        self.trial.report(value, step=int(row["turns"]))
        if self.trial.should_prune():
            self.pruned = True
            run.stop(f"Optuna prunes the trial at a mean return of {value:.4g}")


def objective(trial: Any, turns: int = 100_000, **settings: Any) -> float:
    """Train with the trial's hyperparameters; return the mean return of all agents.

    `settings` are further sections of the configuration.
    """
    import optuna

    prune = Prune(trial)
    result = remuda.train(
        "treasure_hunt",
        policy={
            "algorithm": "ppo",
            "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True),
            "ppo": {"entropy_cost": trial.suggest_float("entropy_cost", 1e-4, 1e-1, log=True)},
        },
        config=settings,
        run={"turns": turns, "evaluate_episodes": 50},
        callbacks=[prune],
        view="quiet",
    )
    if prune.pruned:
        raise optuna.TrialPruned(result.ended)
    return float(result.evaluation.returns.mean())


def main() -> None:
    """Search, and print the best hyperparameters."""
    try:
        import optuna
    except ImportError:
        sys.exit("this example needs Optuna: pip install optuna")
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=turns // 5)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.optimize(lambda trial: objective(trial, turns), n_trials=trials)
    print(study.best_value, study.best_params)


if __name__ == "__main__":
    main()
