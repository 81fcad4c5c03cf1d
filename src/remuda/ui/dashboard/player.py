"""The process that plays an episode for a page: `python -m remuda.ui.dashboard.player`.

The process reads the request, one line of JSON, and writes a line about the seats and a line per
turn. Before an action of a person it writes a question, and reads a line with the index of the
action. A separate process isolates the memory and the failures of networks and environments. It
ends when its output or, with a person, its input is closed.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete
from PIL import Image
from rich.console import Console

from remuda.config import Config
from remuda.coordinator.requests import LIVE
from remuda.envs.registry import RANDOM, Game, find_game
from remuda.envs.scripted import ScriptedPolicy
from remuda.envs.vector_env import VectorEnv
from remuda.errors import RemudaError, UsageError
from remuda.policies.losses import log_probabilities
from remuda.runs.run_directory import RunDirectory
from remuda.training.saved.policies import Reference, SavedPolicies
from remuda.types import Array
from remuda.ui.dashboard.watching import READ_ONLY
from remuda.ui.play.playing import Moment, episode
from remuda.ui.play.seats import (
    ME,
    LeftError,
    Person,
    Question,
    TrainedPlayer,
    check_person,
    names_of,
    picture_of,
    take_seats,
)

MOST_ACTIONS = 64  # up to this many actions, probabilities or values are shown


@dataclass
class Explained(TrainedPlayer):
    """A trained policy that explains its last choice."""

    values_are_known: bool  # False: the reward scale is unknown
    explanation: dict[str, Any] = field(default_factory=dict)
    """`names` of the actions, their `probabilities` or `values`, and `expects`: the state value,
    a discounted return."""

    def __call__(
        self, env: VectorEnv, agent: int, observations: Array, random: np.random.Generator
    ) -> Array:
        policy = self.policy
        before = policy.remembered
        chosen = super().__call__(env, agent, observations, random)
        self.explanation = {}
        space = env.agents[agent].action_space
        if not env.active[0, agent] or not isinstance(space, Discrete) or space.n > MOST_ACTIONS:
            return chosen
        after = policy.remembered
        assert after is not None, "the seat has just acted"
        with torch.no_grad():
            inputs = torch.from_numpy(after.frames)
            recurrent_state = None
            if policy.is_recurrent and before is not None and not before.starts[0]:
                recurrent_state = torch.from_numpy(before.recurrent_state)
            module = policy.module()
            outputs = module(inputs, recurrent_state)
            outputs = outputs[0] if policy.is_recurrent else outputs
            self.explanation = {"names": names_of(env, agent)} | self._numbers(env, agent, outputs)
            if self.values_are_known:
                with contextlib.suppress(UsageError):  # Q-learners have no state values
                    value = module.state_values(inputs, recurrent_state)
                    value = value / policy.player.spec.config.reward_scale
                    self.explanation["expects"] = float(f"{value.item():.5g}")
        return chosen

    def _numbers(self, env: VectorEnv, agent: int, outputs: torch.Tensor) -> dict[str, Any]:
        mask = np.ones((1, outputs.shape[-1]), np.bool_)
        if env.agents[agent].masked:
            env.mask(agent, mask)
        allowed = torch.from_numpy(mask)
        if self.policy.player.spec.config.entry.samples:
            logs = log_probabilities(outputs[None], allowed[None])
            return {"probabilities": _plain(logs.exp()[0, 0], mask[0])}
        return {"values": _plain(outputs[0], mask[0])}


@dataclass
class PagePlayer(Person):
    """A person at a page."""

    env: VectorEnv
    ask: Callable[[dict[str, Any]], str]  # writes a question, and returns the line of the answer

    def choose(self, question: Question) -> int:
        """Wait for the action that the page sends."""
        answer = self.ask(vars(question) | {"picture": _encoded(picture_of(self.env))})
        if not answer:
            raise LeftError
        return int(answer)


def _plain(values: torch.Tensor, allowed: Array) -> list[float | None]:
    """Return a number for each action; None: it is masked."""
    pairs = zip(values.tolist(), allowed.tolist(), strict=True)
    return [float(f"{value:.5g}") if may else None for value, may in pairs]


def main() -> None:
    """Play the request on standard input."""
    # Standard output is for the JSON lines: send the environment's prints to standard error.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(1)

    def write(line: Mapping[str, Any]) -> None:
        try:
            output.write(json.dumps(line, allow_nan=False) + "\n")
            output.flush()
        except BrokenPipeError:
            os._exit(0)  # the reader has closed the pipe

    def ask(question: dict[str, Any]) -> str:
        write({"question": question})
        return sys.stdin.readline()

    try:
        for line in played(json.loads(sys.stdin.readline()), ask):
            write(line)
    except LeftError:
        pass
    except RemudaError as error:
        write({"error": str(error)})
    except Exception as error:
        write({"error": f"{type(error).__name__}: {error}"})
        raise


def played(
    request: Mapping[str, Any], ask: Callable[[dict[str, Any]], str]
) -> Iterator[dict[str, Any]]:
    """Yield the seats, then each turn, as plain data; `Pages.watch` makes the request.

    `ask` writes a question to a person and returns the answer.
    """
    run = RunDirectory.open(Path(request["run"]))
    saved = SavedPolicies(run)
    spec = saved.spec
    config, game, agents = spec.config, find_game(spec.env.game), list(spec.env.names)
    if unknown := set(request["seats"]) - set(agents):
        raise UsageError(f"{config.game} has no agent {min(unknown)}; it has {', '.join(agents)}")
    known = spec.roster.policies
    seats, scripted = _seats(request, config, game, agents, known)
    sampled, silent = bool(request["sampled"]) and bool(seats), Console(file=sys.stderr)
    references = {agent: f"{run.path}:{policy}" for agent, policy in seats.items()}
    first = Reference.parse(next(iter(references.values()), str(run.path)))
    env = spec.with_options(first.env_options(saved)).env.make(1)
    for each in env.agents:
        if scripted.get(each.name) == ME:
            check_person(game, each)
    substitutes = {a: RANDOM if player == ME else player for a, player in scripted.items()}
    players, _ = take_seats(game, env, references, None, sampled, silent, substitutes)
    named = seats | scripted
    policies = [
        PagePlayer(env, ask) if named[agent] == ME else _explained(player, config)
        for agent, player in zip(agents, players, strict=True)
    ]
    yield {
        "agents": agents,
        "policies": known,
        "scripted": sorted(game.scripted),
        "playable": [each.name for each in env.agents if isinstance(each.action_space, Discrete)],
        "seats": {agent: named[agent].removesuffix(f"@{LIVE}") for agent in agents},
        "versions": {
            agent: seat.policy.version
            for agent, seat in zip(agents, players, strict=True)
            if isinstance(seat, TrainedPlayer)
        },
        "live": request["live"],
        "game": game.name,
    }
    turns, seed = int(request["turns"]), int(request["seed"])
    for moment in episode(env, policies, turns, seed):
        yield _turn(moment, dict(zip(agents, policies, strict=True)))
    env.close()


def _explained(player: ScriptedPolicy, config: Config) -> ScriptedPolicy:
    """Return a player that explains its choices, if it is a trained policy."""
    if not isinstance(player, TrainedPlayer):
        return player
    evolves = "reward_scale" in config.population.evolution.numbers
    is_known = not (evolves or player.policy.player.spec.config.ppo.normalise_rewards)
    return Explained(player.policy, player.sampled, is_known)


def _seats(
    request: Mapping[str, Any],
    config: Config,
    game: Game,
    agents: Sequence[str],
    known: Sequence[str],
) -> tuple[dict[str, str], dict[str, str]]:
    """Return two mappings from agents to players: policies of the run, and scripted policies."""
    seats: dict[str, str] = {}
    scripted: dict[str, str] = {}
    for agent in agents:
        player = request["seats"].get(agent) or config.env.scripted.get(agent)
        if player is None:
            player = agent if agent in known else known[0]
        is_own = player in known or player.rpartition("@")[0] in known
        if agent in request["seats"] and not (is_own or player in (ME, RANDOM, *game.scripted)):
            raise UsageError(
                f"{player} cannot play here; use a policy of this run, a scripted policy of "
                f"{game.name}, {RANDOM}, or {ME}"
            )
        if request["live"] and player in known:
            player = f"{player}@{LIVE}"
        if player not in known and player.endswith(f"@{LIVE}") and not request["may_ask"]:
            raise UsageError(READ_ONLY)  # also if the run's `env.scripted` uses live weights
        (seats if is_own else scripted)[agent] = player
    return seats, scripted


def _encoded(picture: Array | None) -> str | None:
    """Return a picture as a PNG in base64."""
    if picture is None:
        return None
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _turn(moment: Moment, policies: Mapping[str, ScriptedPolicy]) -> dict[str, Any]:
    return {
        "turn": moment.turn,
        "actions": moment.actions,
        "returns": {
            name: None if value is None else float(f"{value:.6g}")
            for name, value in moment.returns.items()
        },
        "picture": _encoded(moment.picture),
        "over": moment.over,
        "chose_by": {
            agent: policy.explanation
            for agent, policy in policies.items()
            if isinstance(policy, Explained) and policy.explanation and agent in moment.actions
        },
    }


if __name__ == "__main__":
    main()
