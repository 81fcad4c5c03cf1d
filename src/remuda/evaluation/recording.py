"""Recording of played episodes as `Trajectories`, and as data sets of Minari."""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from remuda.envs.adapters.env_spaces import EnvSpaces
from remuda.envs.recorded import RecordedEpisode
from remuda.errors import UsageError
from remuda.evaluation.evaluate import RecordedPlay, play_recorded
from remuda.evaluation.trajectories import AgentTrajectories, Trajectories, npz_path
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import Snapshot

MINARI = "minari:"
SETTINGS = {"options", "wrappers", "episode_metrics", "observe_together", "agent_id"}
"""Settings of `env` that an environment is made with (`EnvConfig.made_with`)."""


def record_trajectories(
    spec: RunSpec,
    snapshots: Mapping[str, Snapshot],
    episodes: int,
    to: str | os.PathLike[str],
    *,
    run: str = "",
    seed: int = 0,
    scripted: Mapping[str, str] | None = None,
    sampled: bool | None = None,
) -> Trajectories:
    """Play episodes as `evaluate` does, and write them to an `.npz` file or to Minari.

    `run`: the source of the policies, which the file names.
    """
    name = os.fspath(to)
    dataset = name.removeprefix(MINARI) if name.startswith(MINARI) else ""
    if dataset:  # refuse before a long play
        check_minari(dataset, spec.env.names)
    else:
        npz_path(to)
    _check_spaces(spec)
    explored = spec.config.run.evaluate_sampled if sampled is None else sampled
    played = play_recorded(
        spec, snapshots, episodes, seed, sampled=explored, scripted=scripted, steps=True
    )
    found = _trajectories(spec, played, scripted or {}, run, explored)
    if dataset:
        write_minari(found, dataset)
    else:
        found.save(to)
    return found


def _check_spaces(spec: RunSpec) -> None:
    for agent in spec.agents:
        spaces = EnvSpaces(agent)
        flat = agent.observation_space
        try:
            spaces.unflatten(np.zeros((1, *(flat.shape or ())), flat.dtype))
        except UsageError as error:
            raise UsageError(f"{agent.name} observes {spaces.unmasked}: {error}") from None
    if spec.env.to_plain() is None:
        raise UsageError(
            f"{spec.env.game} declares spaces of classes that a file cannot describe; use those of "
            "Gymnasium"
        )


def _trajectories(
    spec: RunSpec, played: RecordedPlay, scripted: Mapping[str, str], run: str, explored: bool
) -> Trajectories:
    episodes = played.game.episodes(played.asked)
    agents = {}
    for i, agent in enumerate(spec.agents):
        steps, spaces = played.game.steps(i, episodes), EnvSpaces(agent)
        rows = steps.actions.reshape(len(steps.actions), *(agent.action_space.shape or ()))
        agents[agent.name] = AgentTrajectories(
            observations=spaces.unflatten(steps.observations),
            actions=spaces.actions(rows, single=False),
            rewards=steps.rewards,
            terminations=steps.terminations,
            truncations=steps.truncations,
            masks=steps.masks if agent.masked else None,
            final_observations=spaces.unflatten(steps.final_observations),
            episodes=steps.episodes,
            policies=tuple(
                _policy_of(spec, i, episodes[episode], scripted) for episode in steps.episodes
            ),
        )
    settings = spec.config.env.model_dump(mode="json", include=SETTINGS)
    return Trajectories(spec.env, settings, agents, run, explored, len(episodes))


def _policy_of(
    spec: RunSpec, agent: int, episode: RecordedEpisode, scripted: Mapping[str, str]
) -> str:
    """Return the name of the policy that played an agent in an episode."""
    name, roster = spec.agents[agent].name, spec.roster
    fixed = {**spec.config.env.scripted, **scripted}.get(name)
    if fixed is not None:
        return fixed
    if agent in episode.policies:
        return episode.policies[agent]
    if name in roster.policies:
        return name
    return next(policy for policy in roster.policies if agent in roster.seats_of(policy))


def check_minari(name: str, agents: Sequence[str]) -> Any:
    """Import Minari; raise UsageError if it is missing, or a data set cannot have its name."""
    if not re.fullmatch(r"([\w-]+/)*[\w-]+-v\d+", name):
        raise UsageError(
            f"to: a data set of Minari is named minari:NAME-v0, with a version; this is "
            f"{MINARI}{name}"
        )
    try:
        minari = importlib.import_module("minari")
    except ImportError as error:
        raise UsageError(
            f"{MINARI}{name} needs Minari ({error}): pip install -e '.[minari]', or record "
            "to a file that ends with .npz"
        ) from None
    with _silent():
        known = minari.list_local_datasets()
    taken = [own for own in dataset_names(name, agents).values() if own in known]
    if taken:
        raise UsageError(
            f"to: Minari has the data set {taken[0]} already; use another name or version, or "
            f"delete it with `minari delete {taken[0]}`"
        )
    return minari


@contextmanager
def _silent() -> Iterator[None]:
    """Hide Minari's warnings about metadata that no run has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def dataset_names(name: str, agents: Sequence[str]) -> dict[str, str]:
    """Return the name of each agent's data set."""
    if len(agents) == 1:
        return {agents[0]: name}
    base, _, version = name.rpartition("-")
    names: dict[str, str] = {}
    for agent in agents:
        plain = re.sub(r"[^-_A-Za-z0-9]", "_", agent)
        alike = [plain, *(f"{plain}_{i}" for i in range(2, len(agents) + 2))]
        free = (f"{base}-{own}-{version}" for own in alike)
        names[agent] = next(own for own in free if own not in names.values())
    return names


def write_minari(data: Trajectories, name: str) -> list[str]:
    """Write a data set of Minari for each agent; return their names.

    A game of one agent has one data set, `name`. Otherwise the agent's name comes before the
    version: `name-agent_0-v0`. A data set has an episode for each trajectory.
    """
    minari = check_minari(name, tuple(data))
    buffer = importlib.import_module("minari.data_collector").EpisodeBuffer
    acted = {agent: steps for agent, steps in data.items() if len(steps)}
    own_names, names = dataset_names(name, tuple(data)), []
    for agent, steps in acted.items():
        own, spaces = own_names[agent], data.spaces(agent)
        buffers = [
            buffer(
                id=i,
                observations=_with_final(one.observations, one.final_observations),
                actions=one.actions,
                rewards=one.rewards.tolist(),
                terminations=one.terminations.tolist(),
                truncations=one.truncations.tolist(),
            )
            for i, one in enumerate(steps.trajectories())
        ]
        try:
            with _silent():
                minari.create_dataset_from_buffers(
                    dataset_id=own,
                    buffer=buffers,
                    observation_space=spaces.unmasked,
                    action_space=spaces.action_space,
                    algorithm_name=f"Remuda, {data.run}",
                    description=f"{agent} of {data.game}, {data.num_episodes:,} episodes",
                )
        except (OSError, ValueError) as error:
            raise UsageError(f"Minari cannot write {own}: {error}") from None
        names.append(own)
    return names


def _with_final(observations: Any, final: Any) -> Any:
    """Return the observations of a trajectory with the final one: [T + 1, *shape] in each part."""
    if isinstance(observations, dict):
        return {key: _with_final(part, final[key]) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_with_final(*parts) for parts in zip(observations, final, strict=True))
    return np.concatenate((observations, final))
