"""Compare a league with self-play: in a game where self-play cycles, and in connect four.

    python benchmarks/league.py rps                # biased rock-paper-scissors, ten rounds
    python benchmarks/league.py connect_four       # main agents against self-play's best

`rps` is rock-paper-scissors whose rock beats scissors for 2: who learns against itself goes round
in circles. An episode has ten rounds, and a policy sees the last one alone; how much may be won
against it is worked out exactly, by backward induction over what it sees. Each way is measured at
its end and, on average, over the second half of its checkpoints, since one moment may be lucky.
Each is trained plainly, and held by an anchor, which is the average of what the policy was for a
hundred updates (`ppo.anchor_cost`, `ppo.anchor average`; Perolat et al. 2021, "From Poincare
recurrence to convergence in imperfect information games"), with equal turns and all other settings
alike. Exploiters have no anchor, and learn faster. The bar is for the league whose main agent is
held by an anchor and plays itself in 0.9 of its matches; the other ways stand beside it, by seed 0.

`connect_four` trains a league and self-play for equally many turns. Self-play's best is the one of
its checkpoints that its own tournament ranks first; the league's main agent then meets it from both
seats, choosing at random as they learned to.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from recording import Results, options_of

import remuda
from remuda.config import overlay
from remuda.envs.games.matrix_games import rock_paper_scissors

ROUNDS = 10
RPS: dict[str, Any] = {
    "env": {"num_envs": 512, "options": {"biased": True, "rounds": ROUNDS}},
    "policy": {
        "algorithm": "ppo",
        "reward_scale": 1.0,
        "discount": 0.9,
        "learning_rate": 1e-3,
        "network": {"hidden": [32], "shared": True},
        "experience": {"segment_length": ROUNDS},
        "ppo": {
            "entropy_cost": 0.0,
            "normalise_advantages": False,
            "gae_lambda": 0.5,
            "rollout_length": ROUNDS,
            "epochs": 2,
            "minibatches": 2,
        },
    },
    "run": {"turns": 8_000_000, "evaluate_episodes": 0},
    "checkpoint": {"every": 4, "keep": 1000, "evaluate_episodes": 0},
}
ANCHORED = {"anchor_cost": 1.0, "anchor": "average", "anchor_every": 100}
"""How far a policy may go from what it was, and over how many updates that is averaged."""
EXPLOITER = {"learning_rate": 5e-3, "ppo": {"anchor_cost": 0.0, "anneal_steps": None}}
"""Exploiters answer the live main agent: they are held by nothing, and restart so often that
their learning rate stays."""
ONE_LEAGUE = {"main": 1, "main_exploiters": 1, "league_exploiters": 1, "after": 20, "timeout": 60}
WAYS: dict[str, dict[str, Any]] = {
    "self-play": {"matchmaker": "self_play", "policies": 1},
    "self-play with a pool": {
        "matchmaker": "mixed",
        "policies": 1,
        "shares": {"self_play": 0.5, "prioritized": 0.5},
        "snapshots": {"every": 20, "keep": 40, "drop": "crowded"},
    },
    "league": {
        "matchmaker": "league",
        "league": ONE_LEAGUE,
        "snapshots": {"keep": 40, "drop": "crowded"},
        "memory": 2000,
    },
}
OWN = ONE_LEAGUE | {"learn_from": "own"}
MOSTLY = {"self_play": 0.9, "prioritized": 0.05, "verification": 0.05}
OF_CONNECT_FOUR = {
    "self-play": WAYS["self-play"],
    "league": WAYS["league"],
    "league, mostly for the main agent": WAYS["league"]
    | {"league": OWN | MOSTLY | {"main_share": 0.95}},
}
"""The last gives the main agent 95% of the matches, nine of ten of these against itself: 90% of the
steps that self-play's one policy learns from. In the plain league it has 42%."""
HELD_TO = "league, own matches, 0.9 of self-play"
RPS_WAYS = {
    HELD_TO: WAYS["league"] | {"league": OWN | MOSTLY},
    "league, own matches": WAYS["league"] | {"league": OWN},
    **WAYS,
}
STEPS = {
    "self-play": 2.0,
    "self-play with a pool": 1.5,
    "league": 0.83,
    "league, own matches": 0.5,
    HELD_TO: 0.63,
}
"""For each way, the share of the steps that the measured policy learns from: of a match against
itself both seats, of each of three learners' matches a third. Over so many its learning rate falls
to 0."""
BAR = 0.02
"""The most that may be won in a round against the league's main agent."""

CONNECT_FOUR: dict[str, Any] = {
    "env": {"num_envs": 192},
    "policy": {
        "algorithm": "ppo",
        "reward_scale": 1.0,
        "network": {"hidden": [256, 256], "activation": "relu", "shared": True},
        "ppo": {"entropy_cost": 0.1, "rollout_length": 16, "minibatches": 8, "epochs": 3},
    },
    "run": {"turns": 600_000, "evaluate_episodes": 0},
    "checkpoint": {"every": 60, "keep": 1000, "evaluate_episodes": 0},
}
WINS = 0.55


def won_from(choices: np.ndarray, payoffs: np.ndarray, rounds: int) -> float:
    """Return what a best response wins of a policy in a round, on average over an episode.

    The one who responds knows the policy and everything that was done. The policy observes the
    last round, so that the value of what is to come depends on that alone (backward induction).

    Args:
        choices: [1 + n * n, n] probabilities: in the first round, and then by what the policy
            chose in the round before (slowest) and what the other did.
        payoffs: [n, n] what the policy earns by its choice (row) and the other's.
        rounds: of an episode.
    """
    count = len(payoffs)
    after = np.zeros((count, count))
    for round_left in range(rounds):
        # [seen, other]: earned by the other now, and from the round after this one on.
        worth = choices @ (after - payoffs)
        best = worth.max(1)
        if round_left < rounds - 1:
            after = best[1:].reshape(count, count)
    return float(best[0]) / rounds


def choices_of(policy: remuda.Policy) -> np.ndarray:
    """[1 + n * n, n]: how probable each choice is, by what the policy sees."""
    count = 3
    seen = np.zeros((1 + count * count, 1 + 2 * count), np.float32)
    seen[:, 0] = 1.0
    for own in range(count):
        for other in range(count):
            row = seen[1 + own * count + other]
            row[1 + own] = row[1 + count + other] = 1.0
    with torch.inference_mode():
        logits = policy.module()(torch.as_tensor(seen))
    found: np.ndarray = torch.softmax(logits.double(), 1).numpy()
    return found


def rps(results: Results, seeds: int, turns: int | None) -> None:
    """Each way of choosing opponents; seed by seed that which is held to the bar."""
    payoffs = rock_paper_scissors(biased=True).payoffs[:, :, 0].astype(np.float64)
    for name in RPS_WAYS:
        for anchor in (ANCHORED, {}):
            for seed in range(seeds if name == HELD_TO and anchor else 1):
                _rps_once(results, name, anchor, seed, turns, payoffs)


def _rps_once(
    results: Results,
    name: str,
    anchor: dict[str, Any],
    seed: int,
    turns: int | None,
    payoffs: np.ndarray,
) -> None:
    """One way of choosing opponents, with an anchor or without."""
    steps = round((turns or RPS["run"]["turns"]) * STEPS[name])
    tree = overlay(RPS, {"policy": {"ppo": {"anneal_steps": steps, **anchor}}})
    policy, is_league = "policy_0", name.startswith("league")
    if is_league:
        policy = "main_0"
        tree["policies"] = {"main_exploiter_0": EXPLOITER, "league_exploiter_0": EXPLOITER}
    with tempfile.TemporaryDirectory() as home:
        run = trained("rock_paper_scissors", tree, RPS_WAYS[name], seed, turns, Path(home))
        kept = run.checkpoints[len(run.checkpoints) // 2 :]
        later = [choices_of(run.policy(policy, checkpoint)) for checkpoint in kept]
        end = won_from(choices_of(run[policy]), payoffs, ROUNDS)
    results.row(
        {
            "opponents": name,
            "anchor": anchor["anchor_cost"] if anchor else None,
            "seed": seed,
            "won from it at the end": end,
            "on average": mean(won_from(choices, payoffs, ROUNDS) for choices in later),
            "won from the average of its policies": won_from(np.mean(later, 0), payoffs, ROUNDS),
        }
    )
    if name == HELD_TO and anchor:
        results.bar(f"{name}, seed {seed}: won from the main agent", end, most=BAR)


def connect_four(results: Results, seeds: int, turns: int | None, matches: int) -> None:
    """Leagues beside self-play, equally long."""
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as home:
            runs = {
                name: trained("connect_four", CONNECT_FOUR, way, seed, turns, Path(home) / name)
                for name, way in OF_CONNECT_FOUR.items()
            }
            best = best_of(runs.pop("self-play"), seed)
            for name, run in runs.items():
                found = remuda.tournament(
                    {"league": run["main_0"], "self-play": best},
                    game="connect_four",
                    episodes=matches // 2,
                    seed=seed,
                    sampled=True,
                )
                # The winner gets 1, the loser -1: draws count half.
                share, error = (1.0 + found.means[0, 1]) / 2.0, found.errors[0, 1] / 2.0
                results.row(
                    {
                        "opponents": name,
                        "seed": seed,
                        "share won": share,
                        "95% from": share - 1.96 * error,
                        "to": share + 1.96 * error,
                    }
                )
                said = f"{name}, seed {seed}: share won by the main agent"
                results.bar(said, share, least=WINS)


def best_of(run: remuda.Run, seed: int) -> remuda.Policy:
    """Return the checkpoint of self-play that does best against its others."""
    all_of_it = {
        f"checkpoint {number}": run.policy("policy_0", number) for number in run.checkpoints
    } | {"end": run["policy_0"]}
    found = remuda.tournament(all_of_it, game="connect_four", episodes=100, seed=seed, sampled=True)
    return all_of_it[found.entrants[int(np.argmax(found.means.mean(1)))]]


def trained(
    game: str,
    tree: dict[str, Any],
    population: dict[str, Any],
    seed: int,
    turns: int | None,
    home: Path,
) -> remuda.Run:
    """Train once."""
    more: dict[str, Any] = {"seed": seed, "population": population}
    if turns is not None:
        more["run"] = {"turns": turns}
    directory = home / population["matchmaker"]
    settings = overlay(overlay(tree, more), {"run": {"directory": str(directory)}})
    return remuda.load(remuda.train(game, **settings))


def main() -> None:
    """Run the chosen parts, and print them beside their bars."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["rps", "connect_four"], help="which game")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--turns", type=int, help="of each run, instead of the usual number")
    parser.add_argument("--matches", type=int, default=2000, help="of connect four's last meeting")
    options = options_of(parser)
    results = Results(f"league.{options.what}")
    if options.what == "rps":
        rps(results, options.seeds, options.turns)
    else:
        connect_four(results, options.seeds, options.turns, options.matches)
    results.finish(options)


if __name__ == "__main__":
    main()
