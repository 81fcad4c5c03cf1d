"""A short trial before a run, which measures the costs of play and training to choose the layout.

The trial is a small version of the run: the same policies play and train in this process for a few
seconds in the same environment, and the results are discarded.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch

from remuda.assembly.assembly import Assembly
from remuda.config import ClusterConfig, Config, PolicyConfig, load_config, overlay
from remuda.coordinator.coordinator import gc_frozen
from remuda.policies.spec import PolicySpec
from remuda.population.run_spec import RunSpec
from remuda.runtime.host import threads
from remuda.runtime.layout import Costs, Layout, devices_of, is_open, make_layout, spare_cores
from remuda.system.scoreboard import Learn, Play, Scoreboard
from remuda.types import Numbers, Worker

log = logging.getLogger(__name__)

PATIENCE = 4  # a trial without enough updates may take this many times its seconds
FEWEST = 32
"""Minimum steps of a policy in a minibatch for measuring the cost of a step. With fewer steps, the
time of an update hardly depends on their number."""
SHORT = 10_000  # agent-steps of a run that usually ends before a trial pays off
MINIBATCH = 512  # steps in a minibatch above which the cost of a step no longer falls


def choose_layout(spec: RunSpec, cores: int | None = None) -> Layout:
    """Choose the layout of a run, by a trial if the configuration leaves a choice."""
    config, specs = spec.config, spec.policies
    devices = [policy.config.device for policy in specs]
    plain = make_layout(config, len(specs), own_devices=devices, cores=cores)
    seconds = config.run.calibrate
    never_pauses = any(
        not each.config.rollout_length and each.config.experience.replay_ratio is None
        for each in specs
    )
    if not seconds or not is_open(config, devices, cores) or never_pauses:
        return plain
    if config.run.turns is not None and config.run.turns * len(spec.agents) <= SHORT:
        return plain
    with gc_frozen(collects=False):
        try:
            costs = measure(spec, seconds)
            was_seen = costs.learn > 0.0
            if not was_seen:
                costs = _with_short_rollouts(spec, seconds, costs)
            if config.env.num_envs > 1 and config.actor.processes == "auto":
                costs = _split(spec, seconds / 2, costs)
            layout = make_layout(config, len(specs), costs, devices, cores)
            spare = 0 if cores else min(spare_cores(layout), 7)  # at most eight threads
            on_processor = set(layout.devices) == {"cpu"}
            if spare and was_seen and config.learners.threads == "auto" and on_processor:
                more = measure(spec, seconds, 1 + spare)
                if 0.0 < more.learn < costs.learn * 0.8:  # else threads are not worth it
                    layout = replace(layout, threads=1 + spare)
        except Exception:
            # The error will occur again in an actor or a learner, which reports it with its log.
            log.exception("the trial failed; the layout is chosen by the number of cores")
            layout = plain
        _free()  # frees the objects of the exception too
    return layout


def measure(
    spec: RunSpec,
    seconds: float,
    num_threads: int = 1,
    turns: int | None = None,  # maximum turns of a rollout
) -> Costs:
    """Play and train for about `seconds` in this process; return the costs of a step."""
    try:
        return measure_costs(spec, seconds, num_threads, turns)
    finally:
        _free()


def _with_short_rollouts(spec: RunSpec, seconds: float, costs: Costs) -> Costs:
    """Measure an upper bound of the cost of training, with the longest rollouts that fit."""
    config, agents = spec.config, spec.agents
    turns = int(PATIENCE / 2 * seconds / (costs.play * config.env.num_envs * len(agents)))
    policies = [config.policy, *map(config.policy_of, config.policies)]
    steps = turns * config.env.num_envs
    most = [policy.ppo.parts(steps) for policy in policies if policy.rollout_length]
    if not most or steps < FEWEST * max(most):
        return costs
    return replace(costs, learn=measure(spec, seconds, turns=turns).learn)


def _free() -> None:
    """Free the memory of a trial.

    The parts of a trial refer to each other, so only a full garbage collection frees their shared
    memory, and the next collection may come much later.
    """
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def measure_costs(spec: RunSpec, seconds: float, num_threads: int, turns: int | None) -> Costs:
    """Return the costs of a short trial of a smaller run."""
    small = spec.with_config(_in_small(spec.config, turns))
    specs = small.policies
    with threads(num_threads):
        assembly = Assembly(small, make_layout(small.config, len(specs)))
        actor, *learners = (role.build() for role in assembly.roles())
        try:
            board = assembly.scoreboard
            _work(actor, learners, board, updates=1, seconds=0.0, limit=PATIENCE * seconds)
            before = _reading(board, specs)
            _work(actor, learners, board, updates=2, seconds=seconds, limit=PATIENCE * seconds)
            (steps, playing), training = map(np.subtract, _reading(board, specs), before)
            trained = training[training[:, 0] > 0.0]  # without an update, training costs 0
            learn = float((trained[:, 1] / trained[:, 0]).mean()) if len(trained) else 0.0
            return Costs(max(float(playing / max(steps, 1.0)), 1e-9), learn)
        finally:
            actor.finish()


def _split(spec: RunSpec, seconds: float, costs: Costs) -> Costs:
    """Separate the fixed cost of a turn from that of a step, by playing half as many copies."""
    env = spec.config.env
    copies, half = env.num_envs, env.num_envs // 2
    fewer = spec.with_config({"env": env.model_copy(update={"num_envs": half})})
    half_cost = measure(fewer, seconds).play
    turn = (half_cost - costs.play) / (1.0 / half - 1.0 / copies)
    turn = min(max(turn, 0.0), 0.99 * costs.play * copies)
    return replace(costs, play=costs.play - turn / copies, turn=turn)


def _in_small(config: Config, turns: int | None = None) -> Config:
    """Return the config of a trial: the run's, but with earlier updates and without files.

    Each step costs the same as in the run. `turns` limits the length of rollouts, even if a
    training step then costs more. On a GPU, smaller updates and separately trained policies cost
    more per step. So updates are unchanged there, and policies are trained together (as stacks).
    """
    tree = config.model_dump()
    device = devices_of(config)[0]
    schedule = "sequential" if device == "cpu" else "async"
    least = {"schedule": schedule, "actor": {"processes": 1}}
    least |= {"learners": {"processes": 1, "threads": 1, "devices": [device]}}
    least |= {"env": {"workers": 1}, "cluster": ClusterConfig().model_dump()}
    tree = overlay(tree, least | {"run": {"turns": None, "seconds": math.inf}, "trace": None})
    if device != "cpu" and turns is None:
        return load_config(tree, known=config.entries)
    tree = overlay(tree, {"policy": _sooner(config.policy, config.env.num_envs, turns)})
    for name in config.policies:
        own = _sooner(config.policy_of(name), config.env.num_envs, turns)
        tree = overlay(tree, {"policies": {name: own}})
    return load_config(tree, known=config.entries)


def _sooner(policy: PolicyConfig, num_envs: int, turns: int | None) -> dict[str, object]:
    if policy.rollout_length:
        enough = -(-policy.ppo.parts(0) * MINIBATCH // num_envs)
        return {"ppo": {"rollout_length": min(policy.rollout_length, enough, turns or enough)}}
    return {"experience": {"learning_starts": policy.with_network(recurrent=True).batch_size}}


def _work(
    actor: Worker,
    learners: Sequence[Worker],
    board: Scoreboard,
    updates: int,
    seconds: float,
    limit: float,
) -> None:
    begun = time.perf_counter()
    goal = [board.learn(name)[Learn.UPDATES] + updates for name in board.policies]
    while (spent := time.perf_counter() - begun) < limit:
        counts = [board.learn(name)[Learn.UPDATES] for name in board.policies]
        if spent >= seconds and all(c >= g for c, g in zip(counts, goal, strict=True)):
            return
        actor.work()
        for learner in learners:
            while learner.work() and time.perf_counter() - begun < limit:
                pass


def _reading(board: Scoreboard, specs: Sequence[PolicySpec]) -> tuple[Numbers, Numbers]:
    """Return counters since the start of a trial.

    These are agent-steps and seconds of play: [2]; and by policy, the collected steps that its
    updates account for, and seconds of training: [P, 2].
    """
    play = board.played()
    busy = slice(Learn.SECONDS_SAMPLE, Learn.SECONDS_PUBLISH + 1)
    training = []
    for spec in specs:
        policy, row = spec.config, board.learn(spec.name)
        due = row[Learn.UPDATES] * policy.batch_size / (policy.experience.replay_ratio or 1.0)
        training.append([row[Learn.TRAINED] if policy.rollout_length else due, row[busy].sum()])
    seconds = play[Play.SECONDS_WEIGHTS : Play.SECONDS_WRITE + 1].sum()
    return np.array([play[Play.AGENT_STEPS], seconds]), np.array(training)
