"""Extra parts of an analysis, which need a run's policies: exact play, behaviour, society."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from remuda.analysis.society.society import Society, society
from remuda.analysis.structure.policy_behaviour import PolicyBehaviour, policy_behaviour
from remuda.analysis.trees.exact_play import exact_exploitability, walked_of
from remuda.envs.recorded import Recorded
from remuda.errors import RemudaError, UsageError
from remuda.evaluation.evaluate import RecordedPlay, play_recorded
from remuda.evaluation.tournaments.entrants import Player
from remuda.population.run_spec import RunSpec
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import spec_at
from remuda.training.saved.policies import SavedPolicies

EPISODES = 200  # maximum number of fresh episodes per run
STATES = 4000  # maximum number of observations recorded per agent

Seat = tuple[Any, Any]  # a policy's spec and weights [P]


@dataclass(frozen=True)
class CutPlay:
    """A note that the time limit cut fresh play short."""

    asked: int  # requested episodes
    over: int  # finished episodes
    counted: int  # counted episodes: equally many finished ones from each environment copy
    why: str

    def as_summary(self) -> dict[str, Any]:
        return vars(self).copy()

    def in_words(self) -> str:
        return (
            f"{self.why.capitalize()} after {self.over} of {self.asked} episodes; "
            f"{self.counted} count, equally many from each environment copy. Long episodes are "
            "missing: use more `seconds`."
        )


def extras_of(
    run: RunDirectory, names: Sequence[str], rng: np.random.Generator, seconds: float, seed: int
) -> dict[str, Any]:
    """Compute exact exploitability and behaviour, as far as the run allows."""
    found: dict[str, Any] = {}
    try:
        saved = SavedPolicies(run)
        players = _players(saved, names)
        if not players:
            return found
        spec = saved.spec
        walked = walked_of(spec.env)
        if walked is not None:
            profiles = {name: [_seat(each)] * len(spec.agents) for name, each in players.items()}
            found["exact exploitability"] = exact_exploitability(walked, profiles)
        if seconds > 0.0 and len(players) > 1 and any("@" not in name for name in players):
            played = _play(spec_at(run, spec), saved.all(), players, seed, seconds, sampled=True)
            found["behaviour"] = _behaviour(played.game, players, spec.config.env.scripted, rng)
    except RemudaError as error:
        _leave_out(run, error)
    return found


def society_of(
    run: RunDirectory, rng: np.random.Generator, seconds: float, seed: int
) -> tuple[Society, dict[str, Any]]:
    """Analyse the returns of independent learners in fresh episodes, and compute extras."""
    if seconds <= 0.0:
        raise UsageError(
            f"{run.path}: each agent has one policy for the whole run, so there are no matches to "
            "analyse, and fresh episodes need `seconds` above 0"
        )
    saved = SavedPolicies(run)
    if not saved.names():
        raise UsageError(f"{run.path} has saved no policy yet; wait for its first checkpoint")
    players = saved.all()
    spec, config = saved.spec, saved.config
    played = _play(spec_at(run, spec), players, players, seed, seconds)
    episodes, extras = played.played(), dict[str, Any]()
    lacking = played.game.episodes_over.count(0)
    if played.cut and played.over and lacking:
        raise UsageError(
            f"{run.path}: {played.over} of {played.asked} episodes finished in {seconds:g} s, but "
            f"none in {lacking} of {played.game.num_envs} environment copies, so means would "
            "favour short episodes; use more `seconds`"
        )
    if played.cut:
        extras["cut"] = CutPlay(EPISODES, played.over, played.counted, played.cut)
    finite = {name: each[np.isfinite(each)] for name, each in episodes.episode_metrics.items()}
    episode_metrics = {name: each for name, each in finite.items() if len(each)}
    found = society(
        episodes.agents, episodes.rewards, episodes.lengths, episode_metrics, episodes.took_part
    )
    names, walked = spec.env.names, walked_of(spec.env)
    if walked is not None and not config.env.scripted:
        seats = [_seat(players[name]) for name in names]
        extras["exact exploitability"] = exact_exploitability(walked, {" with ".join(names): seats})
    if len(players) > 1:
        try:
            extras["behaviour"] = _behaviour(played.game, players, config.env.scripted, rng)
        except UsageError as error:
            _leave_out(run, error)
    return found, extras


def _players(saved: SavedPolicies, names: Sequence[str]) -> dict[str, Player]:
    live = saved.all()
    found: dict[str, Player] = {}
    for name in names:
        if name in live:
            found[name] = live[name]
        elif "@" in name:
            try:
                found[name] = saved.find(name).player
            except UsageError:
                continue  # the run has deleted this frozen copy
    return found


def _play(
    spec: RunSpec,
    players: Mapping[str, Player],
    analysed: Mapping[str, Player],
    seed: int,
    seconds: float,
    sampled: bool | None = None,
) -> RecordedPlay:
    snapshots = {name: each.snapshot for name, each in players.items()}
    frames = max(each.spec.config.n_frames for each in analysed.values())
    limits: dict[str, Any] = {"states": STATES, "frames": frames, "seconds": seconds}
    return play_recorded(spec, snapshots, EPISODES, seed, sampled=sampled, **limits)


def _seat(player: Player) -> Seat:
    return player.spec, player.snapshot.weights


def _behaviour(
    played: Recorded,
    players: Mapping[str, Player],
    scripted: Mapping[str, str],
    rng: np.random.Generator,
) -> PolicyBehaviour:
    """Compare the actions of policies on observations of agents with equal spaces."""
    first = next(iter(players.values())).agent
    comparable = [
        i
        for i, agent in enumerate(played.agents)
        if agent.name not in scripted
        and agent.observation_space == first.observation_space
        and agent.action_space == first.action_space
    ]
    states = played.observed(comparable)
    if states is None:
        raise UsageError(
            "the behaviour of policies is not compared: no policy acted within the time limit"
        )
    seats = {name: _seat(player) for name, player in players.items()}
    return policy_behaviour(seats, states, rng)


def _leave_out(run: RunDirectory, error: RemudaError) -> None:
    print(f"remuda: {run.path}: left out: {error}", file=sys.stderr)
