"""The process that plays an episode for a page: `python -m remuda.ui.dashboard.player`.

It reads one line of JSON from its input, what is to be played, and writes one line for what is
played in, and one for each turn. It is a process of its own because it loads networks and games,
which take memory and may fail, and it ends with its pipe: whoever reads no more ends it.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete
from PIL import Image
from rich.console import Console

from remuda.config import Config
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.registry import RANDOM, find_game, make_env
from remuda.envs.vector_env import VectorEnv
from remuda.errors import RemudaError, UsageError
from remuda.policies.losses import log_probabilities
from remuda.requests import LIVE
from remuda.saved import Reference
from remuda.types import Array
from remuda.ui.dashboard.watching import ONLY_LOOKS
from remuda.ui.playing import Moment, episode
from remuda.ui.seated import Remembering, Trained, names_of, take_seats

MOST_ACTIONS = 64
"""Actions whose numbers are told, at most."""


@dataclass
class Explained(Remembering):
    """A policy of a run on a seat, which tells what it chose by."""

    seat: Trained
    values_are_known: bool
    """Whether values of states can be told in rewards: what rewards were multiplied by is known."""
    told: dict[str, Any] = field(default_factory=dict)
    """Of the last choice: `names` of the actions, their `probabilities` or `values`, and where the
    network values states what it `expects`: the discounted rewards from there on."""

    def begin(self) -> None:
        """Forget as the seat does."""
        self.seat.begin()

    def __call__(
        self, env: VectorEnv, agent: int, observations: Array, random: np.random.Generator
    ) -> Array:
        """Choose as the seat does."""
        policy = self.seat.policy
        before = policy.remembered
        chosen = self.seat(env, agent, observations, random)
        self.told = {}
        space = env.agents[agent].action_space
        if not env.active[0, agent] or not isinstance(space, Discrete) or space.n > MOST_ACTIONS:
            return chosen
        after = policy.remembered
        assert after is not None, "it was just asked"
        with torch.no_grad():
            inputs = torch.from_numpy(after.frames)
            given = None
            if policy.is_recurrent and before is not None and not before.starts[0]:
                given = torch.from_numpy(before.recurrent_state)
            module = policy.module()
            outputs = module(inputs, given)
            outputs = outputs[0] if policy.is_recurrent else outputs
            self.told = {"names": names_of(env, agent)} | self._numbers(env, agent, outputs)
            if self.values_are_known:
                with contextlib.suppress(UsageError):  # a Q-learner's
                    value = module.state_values(inputs, given)
                    value = value / policy.player.spec.config.reward_scale
                    self.told["expects"] = float(f"{value.item():.5g}")
        return chosen

    def _numbers(self, env: VectorEnv, agent: int, outputs: torch.Tensor) -> dict[str, Any]:
        mask = np.ones((1, outputs.shape[-1]), np.bool_)
        if env.agents[agent].masked:
            env.mask(agent, mask)
        allowed = torch.from_numpy(mask)
        if self.seat.policy.player.spec.config.entry.samples:
            logs = log_probabilities(outputs[None], allowed[None])
            return {"probabilities": _plain(logs.exp()[0, 0], mask[0])}
        return {"values": _plain(outputs[0], mask[0])}


def _plain(values: torch.Tensor, allowed: Array) -> list[float | None]:
    """Numbers of actions; None of those that are not allowed."""
    pairs = zip(values.tolist(), allowed.tolist(), strict=True)
    return [float(f"{value:.5g}") if may else None for value, may in pairs]


def main() -> None:
    """Play what the first line of the input asks for."""
    # What games print belongs into the log, not among the lines that are read.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    try:
        for line in played(json.loads(sys.stdin.readline())):
            lines.write(json.dumps(line, allow_nan=False) + "\n")
            lines.flush()
    except BrokenPipeError:
        os._exit(0)  # nobody reads any more
    except RemudaError as error:
        _tell(lines, str(error))
    except Exception as error:
        _tell(lines, f"{type(error).__name__}: {error}")
        raise


def _tell(lines: Any, words: str) -> None:
    """Tell why nothing more comes."""
    try:
        lines.write(json.dumps({"error": words}) + "\n")
        lines.flush()
    except BrokenPipeError:
        os._exit(0)


def played(asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What is played in, and then each turn, as plain data.

    Args:
        asked: `run`, its path; `seats`, by agent a policy of the run, `policy@version` or one that
            plays without having learned (each agent's own, where none is named); `seed`, `turns`
            at most, and whether policies play `sampled`, and with the weights that the run plays
            with now, `live`, where no version is named; and whether a run may be asked for such.
    """
    run = RunDirectory.open(Path(asked["run"]))
    config = run.read_config()
    game = find_game(config.game)
    env = make_env(config.game, 1, **config.env.made_with)
    saved = Reference.parse(str(run.path)).open()
    known = [spec.name for spec in saved.specs]
    agents = [agent.name for agent in env.agents]
    seats: dict[str, str] = {}
    scripted: dict[str, str] = {}  # which no directory is looked up for
    for agent in agents:
        who = asked["seats"].get(agent) or config.env.scripted.get(agent)
        if who is None:
            who = agent if agent in known else known[0]
        is_own = who in known or who.rpartition("@")[0] in known
        if agent in asked["seats"] and not (is_own or who in (RANDOM, *game.scripted)):
            raise UsageError(
                f"{who} cannot sit there: seats are taken by policies of this run, by those that "
                f"are written for {game.name}, or by {RANDOM}"
            )
        if asked["live"] and who in known:
            who = f"{who}@{LIVE}"
        if who not in known and who.endswith(f"@{LIVE}") and not asked["may_ask"]:
            raise UsageError(ONLY_LOOKS)  # a seat of the run's own configuration, too
        if is_own:
            seats[agent] = f"{run.path}:{who}"
        else:
            scripted[agent] = who
    if unknown := set(asked["seats"]) - set(agents):
        raise UsageError(f"{config.game} has no agent {min(unknown)}; it has {', '.join(agents)}")
    sampled, silent = bool(asked["sampled"]) and bool(seats), Console(file=sys.stderr)
    taken = take_seats(game, env, seats, None, sampled, silent, scripted)
    policies: list[Callable[..., Array]] = [
        Explained(policy, _values_are_known(config, policy))
        if isinstance(policy, Trained)
        else policy
        for policy in taken.policies
    ]
    yield {
        "agents": agents,
        "policies": known,
        "scripted": sorted(game.scripted),
        "seats": {
            agent: who.removeprefix(f"{run.path}:").removesuffix(f"@{LIVE}")
            for agent, who in ((agent, {**seats, **scripted}[agent]) for agent in agents)
        },
        "versions": {
            agent: seat.policy.version
            for agent, seat in zip(agents, taken.policies, strict=True)
            if isinstance(seat, Trained)
        },
        "live": asked["live"],
        "game": game.name,
    }
    turns, seed = int(asked["turns"]), int(asked["seed"])
    for moment in episode(env, policies, turns, seed):
        yield _turn(moment, dict(zip(agents, policies, strict=True)))
    env.close()


def _values_are_known(config: Config, seat: Trained) -> bool:
    evolves = "reward_scale" in config.population.evolution.numbers
    return not evolves and not seat.policy.player.spec.config.ppo.normalise_rewards


def _turn(moment: Moment, policies: Mapping[str, Callable[..., Array]]) -> dict[str, Any]:
    return {
        "turn": moment.turn,
        "actions": moment.actions,
        "returns": {
            name: None if value is None else float(f"{value:.6g}")
            for name, value in moment.returns.items()
        },
        "picture": None if moment.picture is None else _png(moment.picture),
        "over": moment.over,
        "chose_by": {
            agent: policy.told
            for agent, policy in policies.items()
            if isinstance(policy, Explained) and policy.told and agent in moment.actions
        },
    }


def _png(picture: Array) -> str:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


if __name__ == "__main__":
    main()
