"""`Trajectories`: recorded episodes in the spaces of their environment, and their file."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import numpy as np

from remuda.config import load_config
from remuda.envs.adapters.env_spaces import EnvSpaces
from remuda.envs.batches import from_parts, map_parts, named_parts
from remuda.envs.description import EnvSpec
from remuda.errors import RemudaError, UsageError
from remuda.system.checkpoint.opening import ANY_SIZE, read_file
from remuda.system.checkpoint.state import write_whole
from remuda.types import AgentSpec, Array, Bools, Floats, Integers

ABOUT = "about"  # the array of the file that describes the others, as JSON
FORMAT = "remuda trajectories 1"
HOW = "record some with `remuda record RUN --to FILE.npz`"


@dataclass(frozen=True)
class AgentTrajectories:
    """The steps of one agent: E trajectories, one after another, with T steps in all.

    A trajectory is what the agent did in an episode, until it was terminated or truncated. An agent
    that returns in the same episode has several trajectories in it. `Dict` and `Tuple` observations
    and actions are dictionaries and tuples of arrays.
    """

    observations: Any
    """[T, *shape] in the environment's space, without the `action_mask`."""
    actions: Any
    """[T, *shape] in the environment's space."""
    rewards: Floats
    """[T]: all rewards from an action until the agent's next one. Rewards before its first action
    of an episode are left out."""
    terminations: Bools
    """[T]: the rules ended the trajectory with this step."""
    truncations: Bools
    """[T]: the trajectory was cut off after this step."""
    masks: Bools | None
    """[T, mask_size]: the allowed actions; None if the environment has no masks."""
    final_observations: Any
    """[E, *shape]: the observation after the last step of each trajectory."""
    episodes: Integers
    """[E]: the number of the episode, from 0; agents of one episode have the same number."""
    policies: tuple[str, ...]
    """[E]: the name of the policy, or of the scripted policy, that played."""

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def starts(self) -> Integers:
        """[E]: the index of the first step of each trajectory."""
        return cast(Integers, self._stops - self.lengths)

    @property
    def lengths(self) -> Integers:
        """[E]: the number of steps of each trajectory."""
        return np.diff(self._stops, prepend=0)

    @property
    def returns(self) -> Floats:
        """[E]: the undiscounted return of each trajectory."""
        sums = np.concatenate(([0.0], np.cumsum(self.rewards, dtype=np.float64)))
        return cast(Floats, (sums[self._stops] - sums[self.starts]).astype(np.float32))

    @property
    def _stops(self) -> Integers:
        """[E]: the index after the last step of each trajectory."""
        return np.flatnonzero(self.terminations | self.truncations) + 1

    def trajectories(self) -> Iterator[AgentTrajectories]:
        """Yield the trajectories one by one, as views."""
        for i, (start, stop) in enumerate(zip(self.starts, self._stops, strict=True)):

            def cut(array: Array, steps: slice = slice(start, stop)) -> Array:
                return array[steps]

            def only(array: Array, row: slice = slice(i, i + 1)) -> Array:
                return array[row]

            yield AgentTrajectories(
                map_parts(cut, self.observations),
                map_parts(cut, self.actions),
                cut(self.rewards),
                cut(self.terminations),
                cut(self.truncations),
                None if self.masks is None else cut(self.masks),
                map_parts(only, self.final_observations),
                only(self.episodes),
                self.policies[i : i + 1],
            )


class Trajectories(Mapping[str, AgentTrajectories]):
    """Recorded episodes, as a mapping from agents to their trajectories.

    `Run.record` and `remuda record` record them. The file is NumPy's `.npz`; its arrays are named
    `AGENT/NAME` after the attributes of `AgentTrajectories`. Parts of `Dict` and `Tuple` values are
    separate arrays, `AGENT/NAME/PART`, where PART is the keys joined by dots: `camera`, or
    `inside.0` for the first entry of a Tuple.
    """

    env: EnvSpec
    """The description of the environment; not for users."""
    settings: Mapping[str, Any]
    """The settings of `env` in the run's configuration from which the environment was made."""
    run: str
    """The run whose policies played."""
    sampled: bool
    """True if the policies explored; False if they chose their best actions."""
    num_episodes: int

    def __init__(
        self,
        env: EnvSpec,
        settings: Mapping[str, Any],
        agents: Mapping[str, AgentTrajectories],
        run: str,
        sampled: bool,
        num_episodes: int,
    ) -> None:
        """Hold what `Run.record` recorded or `load` read."""
        self.env, self.settings, self._agents = env, settings, dict(agents)
        self.run, self.sampled, self.num_episodes = run, sampled, num_episodes

    def __repr__(self) -> str:
        return f"<remuda.Trajectories of {self.game}: {self.num_episodes} episodes of {self.run}>"

    def __getitem__(self, agent: str) -> AgentTrajectories:
        return self._agents[agent]

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    @property
    def game(self) -> str:
        """The name of the game."""
        return self.env.game

    def spaces(self, agent: str) -> EnvSpaces:
        """Return the converter of an agent's observations and actions; not for users."""
        return EnvSpaces(self.spec_of(agent))

    def spec_of(self, agent: str) -> AgentSpec:
        """Return the description of an agent; not for users."""
        return next(each for each in self.env.agents if each.name == agent)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file, whole or not at all, and return its path.

        Raises:
            UsageError: the file cannot be written.
        """
        file = npz_path(path)
        about = {
            "format": FORMAT,
            "game": self.game,
            "env": self.settings,
            "description": self.env.to_plain(),
            "changed_options": dict(self.env.changed),
            "run": self.run,
            "sampled": self.sampled,
            "episodes": self.num_episodes,
        }
        arrays: dict[str, Any] = {ABOUT: np.array(json.dumps(about, default=str))}
        for agent, steps in self.items():
            arrays |= _arrays_of(agent, steps, self.spaces(agent))
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        try:
            write_whole(file, content.getvalue())
        except OSError as error:
            raise UsageError(f"cannot write {file}: {error.strerror}") from None
        return file

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Trajectories:
        """Read a file of `remuda record` or `save`.

        Raises:
            UsageError: the file is missing or damaged, or contains no trajectories.
        """
        file = Path(path).expanduser()
        try:
            content = read_file(file, ANY_SIZE)
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}") from None
        arrays = _read_arrays(file, content)
        try:
            return _from_arrays(arrays)
        except KeyError as error:
            raise UsageError(f"{file} is damaged: it has no {error.args[0]}") from None
        except (ValueError, TypeError, AttributeError, RemudaError) as error:
            raise UsageError(f"{file} is damaged: {error}") from None


def npz_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to write; raise UsageError if it cannot be one."""
    file = Path(path).expanduser()
    if file.suffix != ".npz":
        raise UsageError(f"to: a file that ends with .npz, or minari:NAME-v0; this is {file}")
    if not file.parent.is_dir():
        raise UsageError(f"cannot write {file}: there is no folder {file.parent}")
    return file


def _arrays_of(agent: str, steps: AgentTrajectories, spaces: EnvSpaces) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(AgentTrajectories)):
        value = getattr(steps, name)
        if value is None:
            continue
        if (space := _space_of(name, spaces)) is None:
            found[f"{agent}/{name}"] = np.asarray(value, np.str_ if name == "policies" else None)
            continue
        for part, array in named_parts(space, value).items():
            found[f"{agent}/{name}/{part}" if part else f"{agent}/{name}"] = array
    return found


def _space_of(name: str, spaces: EnvSpaces) -> Any:
    observed = {"observations": spaces.unmasked, "final_observations": spaces.unmasked}
    return {**observed, "actions": spaces.action_space}.get(name)


def _read_arrays(path: Path, content: bytes) -> dict[str, Array]:
    """Return all arrays of an `.npz` file of trajectories."""
    if not content:
        raise UsageError(f"{path} is empty; {HOW}")
    file, arrays = io.BytesIO(content), {}
    try:
        found = np.load(file, allow_pickle=False)
        if isinstance(found, Mapping):
            arrays = dict(found)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error):
        pass
    if ABOUT not in arrays:
        raise UsageError(f"{path} contains no trajectories, or is damaged; {HOW}")
    return arrays


def _from_arrays(arrays: Mapping[str, Array]) -> Trajectories:
    about = json.loads(str(arrays[ABOUT]))
    if about["format"] != FORMAT:
        raise ValueError(f"its format is {about['format']!r}, and this version reads {FORMAT!r}")
    config = load_config({"game": about["game"], "env": about["env"]})
    env = EnvSpec.from_plain(about["description"], config.game, config.env.made_with)
    if env is None:
        raise ValueError("its description is of another game")
    env = env.with_changed(about["changed_options"])
    agents = {spec.name: _agent_from(arrays, spec) for spec in env.agents}
    return Trajectories(
        env, about["env"], agents, str(about["run"]), bool(about["sampled"]), int(about["episodes"])
    )


def _agent_from(arrays: Mapping[str, Array], spec: AgentSpec) -> AgentTrajectories:
    spaces, prefix = EnvSpaces(spec), f"{spec.name}/"
    own = {name.removeprefix(prefix): array for name, array in arrays.items()}
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(AgentTrajectories)):
        if (space := _space_of(name, spaces)) is None:
            found[name] = own[name] if name != "masks" or spec.masked else None
            continue
        parts = {"": own[name]} if name in own else {}
        parts |= {
            key.removeprefix(f"{name}/"): own[key] for key in own if key.startswith(f"{name}/")
        }
        found[name] = from_parts(space, parts)
    found["policies"] = tuple(map(str, found["policies"]))
    steps = AgentTrajectories(**found)
    _check_lengths(spec.name, steps, spaces)
    return steps


def _check_lengths(agent: str, steps: AgentTrajectories, spaces: EnvSpaces) -> None:
    trajectories = ("final_observations", "episodes", "policies")
    count = len(steps.lengths)
    for name in (field.name for field in fields(AgentTrajectories)):
        wanted = count if name in trajectories else len(steps)
        value, space = getattr(steps, name), _space_of(name, spaces)
        for part in named_parts(space, value).values() if space is not None else [value]:
            if part is not None and len(part) != wanted:
                raise ValueError(f"{agent}/{name} has {len(part)} entries instead of {wanted}")
