"""Compare policies trained in other people's worlds, beside another library, in the same run.

python benchmarks/worlds.py spread --seeds 5 --record
python benchmarks/worlds.py spread lbf_coop --seeds 2 --peers PYTHON
python benchmarks/worlds.py spread --seeds 8 --go-on --record    with the five of before
python benchmarks/worlds.py tic_tac_toe              against a player that makes no mistake
python benchmarks/worlds.py --quick                 every world for a moment, with wide bars

Leduc poker of OpenSpiel has its own program: `leduc.py self_play --game open_spiel:leduc_poker`.

For each seed, in turns: Remuda's independent policies, one for each agent, and where all agents are
alike one policy for all of them (self-play); Stable-Baselines3's PPO with one network for all
agents that are alike; and with a learner for each agent. All get the same world, networks of the
same sizes, and the same copies; the same number of turns or, with `--times`, the other library so
many times our seconds, and then a learner for each agent with `--separate` alone. Each is judged
by whole episodes afterwards, greedily and sampled. Where two sides learn against each other, those
whose returns count also meet the other library's other side, and it is this that the libraries are
compared by: what one side earns of its usual opponents says as much about them as about itself.
Beside them are a floor (random) and what is known of the world. Raw curves go into a CSV next to
the recorded figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from across import Plays, players, playing
from peers import peers_python
from perfect import perfect
from recording import Results, error_of, options_of
from worlds_known import QUICK, WORLDS, World, defaults_of, kind_of, sharing
from worlds_rows import (
    ACROSS,
    OURS,
    OURS_ACROSS,
    OURS_SHARED,
    SEPARATE,
    SHARED,
    THEIRS_ACROSS,
    Outcome,
    recorded,
    tell_runs,
    with_whole_seeds,
    write_curves,
)

import remuda
from remuda.config import overlay
from remuda.envs.registry import find_game, make_env
from remuda.envs.scripted import at_random

HERE = Path(__file__).parent
PLACES = {OURS: "independent", OURS_SHARED: "shared", SHARED: "other"}
"""The directory of a seed's trained policies until the row is over."""
PPO, OFF_POLICY = "ppo", ("iqn", "dqn")


def ours(
    world: World, turns: int, seed: int, defaults: str | None, shared: bool, directory: Path
) -> Outcome:
    """Train independent policies, or one that plays all agents that are alike."""
    run = {
        "seed": seed,
        "run": {
            "turns": turns,
            "evaluate_episodes": world.episodes,
            "evaluate_sampled": False,  # as a preset may say; here both are measured
            "log_every": 0.5,
        },
        "checkpoint": {"every": 3600, "evaluate_episodes": 0},
    }
    tree = overlay(overlay(world.settings(defaults), run), sharing(world) if shared else {})
    result = remuda.train(world.game, **overlay(tree, {"run": {"directory": str(directory)}}))
    run = remuda.load(result)
    greedy, sampled = result.evaluation, run.evaluate(world.episodes, sampled=True)
    if greedy is None:
        raise SystemExit(f"the run of {world.game} was stopped: its seed is not recorded")
    counted = [agent for agent in greedy.agents if agent.startswith(world.counted)]
    return Outcome(
        returns_of(world, greedy.agents, greedy.returns),
        returns_of(world, sampled.agents, sampled.returns),
        result.record.seconds,
        curve_of(world, run, len(counted) if shared else 0),
    )


def across(world: World, run: Path, kept: Path, ways: tuple[str, str]) -> Outcome:
    """Those whose returns count of one library, with the other side of one.

    Their greedy and their sampled play count, each against the better play of the other side.

    Args:
        world: which it is.
        run: a directory, of one policy for each kind.
        kept: by the other library, as `players` takes it.
        ways: by which those were trained whose returns count, and by which the other side.
    """
    own = remuda.load(run)

    def side(way: str, sampled: bool) -> dict[str, Plays]:
        if way == SHARED:
            return players(kept, sampled)
        return {
            agent: playing(own[kind], sampled)
            for kind, agents in world.kinds.items()
            for agent in agents
        }

    def earned(sampled: bool, others_sampled: bool) -> float:
        first, others = side(ways[0], sampled), side(ways[1], others_sampled)
        seats = {
            agent: first[agent] if agent.startswith(world.counted) else play
            for agent, play in others.items()
        }
        played = own.evaluate(world.episodes, scripted=seats)
        return returns_of(world, played.agents, played.returns)

    greedy, sampled = (
        min(earned(plays, others) for others in (False, True)) for plays in (False, True)
    )
    return Outcome(greedy, sampled, seconds=0.0, curve=[])


def curve_of(world: World, run: remuda.Run, seats: int) -> list[tuple[float, int, float]]:
    """The means of episodes over intervals of a run, over agents.

    Args:
        world: which it is.
        run: that is over.
        seats: that one policy has; 0: each agent has its own.
    """
    metrics = run.metrics()
    wanted = [name for name in metrics if name.endswith("/mean_return")]
    if seats:
        wanted = [name for name in wanted if name.startswith(kind_of(world))][:1] * seats
    wanted = [name for name in wanted if seats or name.startswith(world.counted)]
    returns = np.array([metrics[name] for name in wanted])
    known = ~np.isnan(returns).any(0)
    values = returns.sum(0) if world.team else returns.mean(0)
    points = zip(metrics["seconds"][known], metrics["turns"][known], values[known], strict=True)
    return [(float(seconds), int(turns), float(value)) for seconds, turns, value in points]


def returns_of(world: World, agents: Sequence[str], returns: np.ndarray) -> float:
    """One figure of returns [episodes, agents]."""
    returns = returns[:, [agent.startswith(world.counted) for agent in agents]]
    return float((returns.sum(1) if world.team else returns.mean(1)).mean())


def theirs(
    world: World,
    turns: int,
    seed: int,
    defaults: str | None,
    python: str,
    separate: bool,
    seconds: float = 0.0,
    kept: Path | None = None,
) -> Outcome:
    """Train with Stable-Baselines3; with `seconds`, for so long, however many turns these are.

    In `kept`, where that is named, it writes its policies.
    """
    asked = {
        "game": world.game,
        "options": dict(world.options),
        "turns": 10**9 if seconds else turns,
        "seconds": seconds,
        "seed": seed,
        "copies": world.copies,
        "separate": separate,
        "episodes": world.episodes,
        "team": world.team,
        "scripted": dict(world.scripted),
        "counted": world.counted,
        "kept": None if kept is None else str(kept),
        **world.hyperparameters(defaults),
    }
    words = [python, "sb3_worlds.py", json.dumps(asked)]
    done = subprocess.run(
        words, cwd=HERE / "peer_programs", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the other library failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    curve = [(s, t, r) for s, t, r in found["curve"]]
    return Outcome(found["greedy"][0], found["sampled"][0], found["seconds"], curve)


@cache
def floor_of(name: str) -> float:
    """The return of those who choose at random."""
    world = WORLDS[name]
    env, rng = make_env(world.game, world.copies, **world.options), np.random.default_rng(0)
    count, each = env.num_envs, -(-world.episodes // env.num_envs)
    found: list[list[np.ndarray]] = [[] for _ in range(count)]
    over = np.ones(count, bool)
    returns = np.zeros((count, env.num_agents))
    game = find_game(world.game)
    taken = {
        agent: game.policy(world.scripted[spec.name])
        for agent, spec in enumerate(env.agents)
        if spec.name in world.scripted
    }
    while min(map(len, found)) < each:  # as many of each copy: or short ones would count more
        if over.any():
            env.reset(rng.integers(2**31, size=count), over)
            returns[over] = 0.0
        env.begin_turn()
        for group in env.turn_groups:
            chosen, seen = {}, {}
            for agent in group:
                space = env.agents[agent].observation_space
                seen[agent] = np.zeros((count, *(space.shape or ())), space.dtype)
                env.observe(agent, seen[agent])
                chosen[agent] = at_random(env, agent, seen[agent], rng)
            for agent, actions in chosen.items():
                env.act(
                    agent, taken[agent](env, agent, seen[agent], rng) if agent in taken else actions
                )
        returns += env.end_turn().rewards
        over = ~env.active.any(1)
        for e in np.flatnonzero(over).tolist():
            found[e].append(returns[e].copy())
    env.close()
    agents = [agent.name for agent in env.agents]
    return returns_of(
        world, agents, np.array([own[:each] for own in found]).reshape(-1, len(agents))
    )


def ways(world: World, options: argparse.Namespace) -> tuple[str, ...]:
    """How Remuda is to train there."""
    if options.shared:
        return (OURS_SHARED,)
    is_shared = (world.alike or world.kinds) and not options.quick
    return (OURS, OURS_SHARED) if is_shared else (OURS,)


def planned(world: World, options: argparse.Namespace) -> list[tuple[int, str]]:
    """The seeds and the libraries of all runs, in their order."""
    peers = [SHARED] if world.peers and not options.alone else []
    one = options.quick or options.shared or world.alone or (options.times and not options.separate)
    if peers and not one:
        peers.append(SEPARATE)
    if peers and world.kinds and OURS_SHARED in ways(world, options):
        peers += ACROSS
    return [
        (seed, which)
        for seed in range(options.seeds)
        for which in (*ways(world, options), *(peers if seed < options.peer_seeds else ()))
    ]


def measured(
    name: str,
    options: argparse.Namespace,
    python: str | None,
    had: Mapping[tuple[str, int], Outcome],
) -> Iterator[tuple[dict[str, list[Outcome]], str]]:
    """One world, seed by seed, all libraries in turns.

    Args:
        name: of the world.
        options: of the command line.
        python: an interpreter with the other library; None: it does not play.
        had: runs that were recorded before, by library and seed.

    Yields:
        After each run what is known so far, and how many runs are over; empty: all are.
    """
    world = WORLDS[name]
    turns = max(int(world.turns * (world.quick if options.quick else options.share)), 1)
    found: dict[str, list[Outcome]] = {}
    plan = planned(world, options)
    with tempfile.TemporaryDirectory() as directory:
        for count, (seed, which) in enumerate(plan, 1):
            places = {way: Path(directory) / f"{place}_{seed}" for way, place in PLACES.items()}
            if (which, seed) in had:
                outcome = had[which, seed]
            elif which in (OURS, OURS_SHARED):
                is_one = which == OURS_SHARED
                outcome = ours(world, turns, seed, options.defaults, is_one, places[which])
            elif which in ACROSS:
                outcome = across(world, places[OURS_SHARED], places[SHARED], ACROSS[which])
            else:
                assert python is not None
                of = found[OURS_SHARED if options.shared else OURS]
                seconds, separate = options.times * of[-1].seconds, which == SEPARATE
                keep = places.get(which) if (seed, THEIRS_ACROSS) in plan else None
                outcome = theirs(
                    world, turns, seed, options.defaults, python, separate, seconds, keep
                )
            found.setdefault(which, []).append(outcome)
            print(
                f"{name}, seed {seed}, {which}: greedy {outcome.greedy:.2f}, sampled "
                f"{outcome.sampled:.2f} in {outcome.seconds / 60:.1f} minutes"
                + (" (as recorded)" if (which, seed) in had else ""),
                flush=True,
            )
            yield found, f"{count} of {len(plan)} runs" if count < len(plan) else ""


def tell(results: Results, name: str, found: dict[str, list[Outcome]], quick: bool) -> None:
    """Rows and bars of one world."""
    world, floor = WORLDS[name], floor_of(name)
    for which, outcomes in found.items():
        greedy, sampled = ([getattr(o, what) for o in outcomes] for what in ("greedy", "sampled"))
        trained = found[ACROSS[which][0] if which in ACROSS else which]
        results.row(
            {
                "world": name,
                "library": which,
                "seeds": len(outcomes),
                "greedy": spread_of(greedy),
                "sampled": spread_of(sampled),
                "floor": f"{floor:.2f}",
                "known": world.known,
                "turns": int(mean(o.turns for o in trained)),
                "minutes": mean(o.seconds for o in trained) / 60,
            }
        )
    own, own_error = best_of(found, (OURS, OURS_SHARED))
    if quick:
        results.bar(f"{name}: better than random", own, least=floor)
        return
    if world.least is not None:
        results.bar(f"{name}: greedy or sampled return", own, least=world.least)
    if SHARED not in found:
        return
    # Within what seeds differ by: two standard errors of the difference.
    if not world.kinds:
        other, error = best_of(found, (SHARED, SEPARATE))
        least = other - 2.0 * float(np.hypot(own_error, error))
        results.bar(f"{name}: beside the other library", own, least=least)
    elif THEIRS_ACROSS in found:  # both have the same runs of a seed: their errors are not two
        ours, theirs = (best_play(found[which]) for which in (OURS_ACROSS, THEIRS_ACROSS))
        error = error_of([a - b for a, b in zip(ours, theirs, strict=False)])
        least = mean(theirs) - 2.0 * error
        results.bar(f"{name}: played across, beside the other library", mean(ours), least=least)


def best_of(found: Mapping[str, list[Outcome]], ways: Sequence[str]) -> tuple[float, float]:
    """The best mean return of some ways, greedy or sampled, and its standard error."""
    best = max((best_play(found[which]) for which in ways if which in found), key=mean)
    return mean(best), error_of(best)


def best_play(outcomes: Sequence[Outcome]) -> list[float]:
    """Returns by seed, of greedy or of sampled play: of the one with the best mean."""
    each = ([getattr(outcome, play) for outcome in outcomes] for play in ("greedy", "sampled"))
    return max(each, key=mean)


TIC_TAC_TOE: dict[str, Any] = {
    "env": {"num_envs": 64},
    "policy": {
        "algorithm": "ppo",
        "discount": 1.0,
        "network": {"hidden": [128, 128], "activation": "relu", "shared": True},
        "experience": {"segment_length": 5},
        # Less of it, and both settle on one line of play that ends in a draw: off it they lose.
        "ppo": {"rollout_length": 32, "entropy_cost": 0.06},
    },
    "run": {"turns": 1_500_000, "evaluate_episodes": 0},
    "checkpoint": {"every": 3600, "evaluate_episodes": 0},
}
GAMES = 1_000
"""Games of each seat against a perfect player."""


def tic_tac_toe(results: Results, options: argparse.Namespace) -> None:
    """Both seats learn; then each plays greedily against a player that makes no mistake."""
    without = 0
    share = QUICK if options.quick else options.share
    for seed in range(options.seeds):
        turns = int(TIC_TAC_TOE["run"]["turns"] * share)
        with tempfile.TemporaryDirectory() as directory:
            own = {"seed": seed, "run": {"turns": turns, "directory": str(Path(directory) / "run")}}
            tree = TIC_TAC_TOE | (defaults_of(options.defaults) if options.defaults else {})
            result = remuda.train("open_spiel:tic_tac_toe", **overlay(tree, own))
            run = remuda.load(result)
            lost = [
                int((run.evaluate(GAMES, scripted={other: perfect}).returns[:, seat] < 0).sum())
                for seat, other in enumerate(("player_1", "player_0"))
            ]
        without += sum(lost) == 0
        row = {"world": "tic_tac_toe", "seed": seed, "lost first": lost[0], "lost second": lost[1]}
        results.row(row | {"turns": turns, "minutes": result.record.seconds / 60})
        print(f"tic_tac_toe, seed {seed}: lost {lost} of {GAMES} each", flush=True)
    if not options.quick:
        least = 0.6 * options.seeds
        results.bar("tic_tac_toe: seeds that never lose", float(without), least=least)


def spread_of(values: list[float]) -> str:
    """A mean over seeds with its standard error, where there are several."""
    return f"{mean(values):.2f}" + (f" ± {error_of(values):.2f}" if len(values) > 1 else "")


def suffix_of(defaults: str | None) -> str:
    """Return the suffix of a row's name."""
    return "" if defaults is None else f".{'defaults' if defaults == PPO else defaults}"


def main() -> None:
    """Measure the chosen worlds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("worlds", nargs="*", metavar="WORLD", help=f"of {', '.join(WORLDS)}; none: all")
    add("--seeds", type=int, default=5)
    add("--share", type=float, default=1.0, help="of the turns that a world gets")
    add("--peers", help="an interpreter with stable-baselines3 and the worlds")
    add("--peer-seeds", type=int, help="of the other library; without it all seeds")
    add("--times", type=float, default=0.0, help="of our first way's seconds")
    add("--separate", action="store_true", help="with --times: their learner for each, too")
    add("--shared", action="store_true", help="one policy for all alone, of both libraries")
    add("--alone", action="store_true", help="without the other library")
    add(
        "--defaults",
        nargs="?",
        const=PPO,
        choices=(PPO, *OFF_POLICY),
        help="nothing of the policy is chosen but its algorithm, PPO if none is named",
    )
    add("--go-on", action="store_true", help="with the runs that the same command recorded")
    add("--quick", action="store_true", help="one seed, and a fiftieth of the turns, or a fifth")
    options = options_of(parser)
    known = [*WORLDS, "tic_tac_toe"]
    chosen = options.worlds or known
    for name in chosen:
        if name not in known:
            parser.error(f"there is no world {name}; there are: {', '.join(known)}")
    for name in (name for name in list(chosen) if name in WORLDS):
        try:
            make_env(WORLDS[name].game, 1, **WORLDS[name].options).close()
        except remuda.ConfigError as error:
            print(f"{name} is left out: {error}", flush=True)
            chosen = [other for other in chosen if other != name]
    for name in chosen:
        if options.shared and not (name in WORLDS and (WORLDS[name].alike or WORLDS[name].kinds)):
            parser.error(f"--shared: the agents of {name} are not alike; leave one of the two out")
    if options.defaults in OFF_POLICY:
        if not options.alone:
            parser.error(f"--defaults {options.defaults}: the other library has PPO; add --alone")
        for name in [name for name in chosen if name in WORLDS and WORLDS[name].continuous]:
            print(f"{name} is left out: its actions are continuous", flush=True)
            chosen = [other for other in chosen if other != name]
    if options.quick and (options.shared or options.record or options.go_on):
        parser.error("--quick trains a policy for each agent, and is no row; leave the other out")
    if options.go_on and (len(options.worlds) != 1 or options.worlds == ["tic_tac_toe"]):
        parser.error("--go-on: name one world, which has a row for all seeds")
    if options.separate and (not options.times or options.shared or options.alone):
        parser.error("--separate: with --times, and without --shared and --alone")
    if options.share <= 0.0 or options.seeds < 1:
        parser.error("--share: above 0; --seeds: at least 1")
    if options.quick:
        options.seeds = 1
    if options.peer_seeds is None:
        options.peer_seeds = options.seeds
    elif options.alone or not 1 <= options.peer_seeds <= options.seeds:
        parser.error(f"--peer-seeds: 1 to {options.seeds}, or --alone instead of it")
    python = None if options.alone else options.peers or peers_python("worlds_requirements.txt")
    results = Results("worlds")
    for name in chosen:
        called = f"worlds.{name}{suffix_of(options.defaults)}"
        for own in found_in(called, name, options, python):
            if options.record:  # so that a long row that is stopped keeps the runs that are over
                own.write()
        results.rows += own.rows
        results.bars += own.bars
    options.record = False  # each has been, by itself
    results.finish(options)


def found_in(
    called: str, name: str, options: argparse.Namespace, python: str | None
) -> Iterator[Results]:
    """Yield the results of one world, after each run.

    Args:
        called: what it is recorded as.
        name: of the world.
        options: of the command line.
        python: an interpreter with the other library; None: it does not play.
    """
    if name == "tic_tac_toe":
        results = Results(called)
        tic_tac_toe(results, options)
        yield results
        return
    had = recorded(called) if options.go_on else {}
    plan = [(which, seed) for seed, which in planned(WORLDS[name], options)]
    if more := [key for key in had if key not in plan]:
        raise SystemExit(
            f"{len(more)} runs of {called} are recorded besides, {more[-1][0]} with seed "
            f"{more[-1][1]} among them: ask for as many with --seeds and --peer-seeds, or leave "
            "--go-on out"
        )
    had, again = with_whole_seeds(had, plan)
    if again:
        print(
            f"{name}: cross-play needs policies that are not recorded, so again: seeds {again}",
            flush=True,
        )
    for found, so_far in measured(name, options, python, had):
        results = Results(called)
        results.so_far = so_far
        tell(results, name, found, options.quick)
        tell_runs(results, found)
        if options.record:
            write_curves(results, name, found)
        yield results


if __name__ == "__main__":
    main()
