"""The memory that a run will need, computed before anything is allocated.

Linux grants more memory than the machine has, and kills a process that uses too much without a
message. So everything that grows with the configuration is added up first: experience, weights,
working memory of learners and actors, environment copies. The sizes of Python, its libraries and
the objects of an environment are estimates.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from remuda.assembly.experience_layout import ring_plans
from remuda.config import Config
from remuda.config.hyperparameters import names_of
from remuda.config.sections import at_key
from remuda.envs.registry import GAMES
from remuda.errors import ConfigError
from remuda.experience.priorities import tree_size
from remuda.experience.ring import FINAL, StreamShape, fields_of
from remuda.policies.algorithms.transition_algorithm import CACHE
from remuda.policies.compatibility import stream_shape
from remuda.policies.spec import PolicySpec, training_layout
from remuda.policies.stack import layout_size
from remuda.population.members.follower_views import shard_fields
from remuda.population.members.table_parts import table_fields
from remuda.population.roster import copies_of
from remuda.population.run_spec import RunSpec
from remuda.runtime.layout import Layout
from remuda.system.memory.shared import PAGE, Fields
from remuda.system.processes import client as forkserver
from remuda.types import AgentSpec

GIB = 2**30
LIBRARIES = 270 * 2**20
"""Bytes of the coordinator and its fork server: torch, Numba and the rest. 210 MiB were measured
for a server that is a fork of the coordinator."""
LOADED_TWICE = 350 * 2**20
"""The same if the fork server imports the libraries itself, for example if a script trains."""
PROCESS = 80 * 2**20
"""Unshared bytes of each further process, without the data of the run."""
COMPILING = 240 * 2**20
"""Measured bytes of all processes together while Numba compiles, in the first run of an
installation. Every plan includes them, since it is unknown which functions will compile."""
WHAT_COMPILES = "compiling"  # the item of the plan for compilation
COPY = 256  # bytes of an environment copy for each agent, without its arrays
FLOAT = 4
KEEP = "population.snapshots.keep"
USUAL = {"network.recurrent": 128.0}  # sizes to compare with if the default is zero
CGROUPS = (
    ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
"""Directory and file names of control groups, version 2 and version 1."""


@dataclass(frozen=True)
class Item:
    """A part of the plan: a description, its bytes, and the settings that it grows with.

    The first setting is the one that most often determines the size.
    """

    what: str
    size: int
    settings: tuple[str, ...]


def check_memory(
    spec: RunSpec,
    specs: Sequence[PolicySpec],
    layout: Layout,
    copy_size: int,
    available: int | None = None,
) -> None:
    """Raise a `ConfigError` that names the setting to reduce if a run does not fit into memory."""
    available = available_memory() if available is None else available
    config, items = spec.config, plan(spec, specs, layout, copy_size)
    total = sum(item.size for item in items)
    if total <= available:
        return
    largest = max(items, key=attrgetter("size"))
    message = (
        f"this run would take {_words(total)} of memory, and {_words(available)} are free; "
        f"{_words(largest.size)} of it would be {largest.what}: "
    )
    if not largest.settings:  # no setting can reduce it
        message += "end other programs, or "
        largest = max((item for item in items if item.settings), key=attrgetter("size"))
    key = setting_to_reduce(config, largest.settings)
    value, which = at_key(config, key), ""
    if isinstance(value, int):
        which = f", which is {value:,}"
    elif isinstance(value, tuple | list):
        which = f", which is {' '.join(map(str, value))}"
    raise ConfigError(f"{message}lower {key}{which}")


def plan(spec: RunSpec, specs: Sequence[PolicySpec], layout: Layout, copy_size: int) -> list[Item]:
    """Return all items of the plan; items of policies with equal descriptions are merged."""
    found = _Plan(spec, specs, layout)
    found.add_experience()
    found.add_weights()
    for each in specs:
        if each.config.rollout_length:
            found.add_rollouts(each)
        else:
            found.add_batches(each)
        found.add_acting(each)
    found.add_table()
    found.add("the copies of the game", spec.config.env.num_envs * copy_size, "env.num_envs")
    return [*found.items(), *_processes(spec.config, layout)]


def _processes(config: Config, layout: Layout) -> list[Item]:
    workers = config.env.workers if config.env.workers > 1 else 0
    processes = 1 + len(layout.copies) * workers
    if config.schedule != "sequential":
        processes += len(layout.copies) + len(layout.groups)
    if processes > 1 and config.checkpoint.evaluate_episodes and config.game not in GAMES:
        processes += 1  # the process that evaluates checkpoints
    settings = ("env.workers",) if workers else ()
    if not settings and len(layout.groups) > 1 and processes > 1:
        settings = ("learners.processes",)
    twice = processes > 1 and not forkserver.is_own_fork()
    size = (LOADED_TWICE if twice else LIBRARIES) + (processes - 1) * PROCESS
    return [
        Item(_count(processes, "process", "es"), size, settings),
        Item(WHAT_COMPILES, COMPILING, settings),
    ]


class _Plan:
    """The items of a plan, except those of processes."""

    def __init__(self, run: RunSpec, specs: Sequence[PolicySpec], layout: Layout) -> None:
        self._run, self._config = run, run.config
        self._specs, self._layout = specs, layout
        self._actors = len(layout.copies)
        self._sizes: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        seats = 1.0
        if self._config.population.dealt:
            seats = len(run.agents) / max(len(specs), 1)
        self._streams = max(round(self._config.env.num_envs * seats), 1)
        """The mean number of streams (copies times seats) that a policy plays at once."""

    def add(self, what: str, size: float, *settings: str, spec: PolicySpec | None = None) -> None:
        """Add an item: `{}` in its description is replaced by the number of policies.

        `spec`: the policy whose own settings replace those of `policy`, if they are set.
        """
        if spec is not None:
            own = self._config.policies.get(spec.name, {})
            settings = tuple(
                f"policies.{spec.name}.{rest}"
                if section == "policy" and at_key(own, rest) is not None
                else f"{section}.{rest}"
                for section, _, rest in (key.partition(".") for key in settings)
            )
        key = (what, tuple(dict.fromkeys(settings)))
        self._sizes.setdefault(key, []).append(int(size))

    def items(self) -> list[Item]:
        """Return the items; those with equal descriptions and settings are merged."""
        return [
            Item(what.format(_count(len(sizes), "polic", "ies", "y")), sum(sizes), settings)
            for (what, settings), sizes in self._sizes.items()
        ]

    def add_experience(self) -> None:
        config, specs = self._config, self._specs
        rings = [
            (spec, segments)
            for plan in ring_plans(self._run, specs, self._layout.copies)
            for spec in plan.members
            for segments in plan.segments
        ]
        for spec, segments in rings:
            experience, shape = spec.config.stored, stream_shape(spec)
            size = ring_size(shape, experience.segment_length, segments)
            keys = ["env.num_envs", "policy.experience.segment_length"]
            if spec.config.rollout_length:
                keys.insert(1, "policy.ppo.rollout_length")
            capacity = experience.capacity if spec.config.keeps_experience else 0
            if 2 * capacity >= segments * experience.segment_length:  # mostly replay
                keys.insert(0, "policy.experience.capacity")
            # With `checkpoint.replay`, a checkpoint takes two copies: arrays and file content.
            copies = 3 if config.saves_replay else 1
            self.add("the experience of {}", size * copies, *keys, spec=spec)
            if experience.prioritised:  # each learner has a priority tree for its whole group
                group = [s for s in specs if s.config.experience.group == experience.group]
                sources = len(group) if experience.group else 1
                size = sources * tree_size(segments, experience.segment_length)
                self.add("the priorities of {}", 2 * size, *keys, spec=spec)

    def add_weights(self) -> None:
        config, actors, population = self._config, self._actors, self._config.population
        copies = copies_of(population) + 1 if population.dealt else 0
        challenged = bool(config.checkpoint.evaluate_episodes)
        measured = challenged or bool(config.run.evaluate_episodes)
        for spec in self._specs:
            size, hidden = _weights_size(spec), _network_keys(spec)
            keep = (KEEP,) if copies > 4 else hidden
            # Weights, gradients, moments, target or anchor; the last good state without gradients.
            learning = 8 if spec.config.rollout_length else 9
            inherits = population.evolution.inherits_training
            vectors = len(training_layout(spec).vectors) if inherits else 0
            for what, count, keys in (
                # Two published buffers; each actor has a copy as read and two for inference.
                ("the weights and optimizers of {}", 2 + 3 * actors + learning, hidden),
                # Two published buffers; copies for newborn policies, readers and a checkpoint.
                ("the training state that newborn policies inherit of {}", 6 * vectors, hidden),
                # Snapshots for the evaluation and for the checkpoint, and two copies for inference.
                ("the evaluation of {}", 4 * measured, hidden),
                ("the frozen copies of {}", copies * (1 + actors), keep),
                # A copy for a checkpoint; a file and arrays for matches against the best one.
                ("a checkpoint of the frozen copies of {}", copies * (1 + 2 * challenged), keep),
                # The weights of the best checkpoint, as a file and as arrays.
                ("the best checkpoint, an opponent in evaluation, of {}", 2 * challenged, hidden),
            ):
                if count:
                    self.add(what, size * count, *keys, spec=spec)
        if self._specs:
            largest = max(self._specs, key=_weights_size)
            size, imported = _weights_size(largest), population.members_from
            self.add("a checkpoint of {}", 8 * size, *_network_keys(largest), spec=largest)
            if imported:  # the members, and a copy of them in each actor
                members = size * len(imported) * (1 + actors)
                self.add("members from other runs, like {}", members, "population.members_from")

    def add_table(self) -> None:
        """Add the shared table of a population, mostly the results of each pair of members."""
        config, population = self._config, self._config.population
        if not population.dealt:
            return
        policies, seats, copies = len(self._specs), len(self._run.agents), copies_of(population)
        every = [config.policy, *map(config.policy_of, config.policies)]
        width = len(names_of(policy.entry.hyperparameters for policy in every))
        others = len(population.members_from) + len(config.scripted_members)
        metrics = len(population.evolution.episode_metrics)
        fields = dict(table_fields(policies, seats, copies, others, width, metrics))
        records = nbytes({"records": fields.pop("records")})
        for own in self._layout.copies[1:]:
            records += nbytes(shard_fields(own, seats, policies, metrics))
        size, key = nbytes(fields), KEEP if copies > 4 else "population.policies"
        self.add(f"the results of matches between {policies:,} policies", size, key)
        self.add("a checkpoint of these results", 2 * size, key)  # arrays, and the file's content
        self.add(f"the results of matches of {seats:,} seats", records, "env.options")

    def add_rollouts(self, spec: PolicySpec) -> None:
        policy, streams = spec.config, self._streams
        length = policy.stored.segment_length
        steps = policy.rollout_length * streams * (1 + policy.replays)
        # Rows of steps, and rows between segments. The arrays have twice as many rows, but unused
        # rows take no memory, and only very short episodes use them all.
        shape = stream_shape(spec)
        arrays = 1.5 * (steps + length) * _step_size(shape)
        rows = policy.ppo.largest_part(steps)
        if spec.memory:  # at least one whole segment
            rows = max(rows, length)
        minibatch = rows * FLOAT * (2 * shape.num_inputs + 6 * sum(policy.network.hidden))
        keys = ["env.num_envs", "policy.ppo.rollout_length"]
        if streams < policy.rollout_length:
            keys.reverse()
        keys += ["policy.experience.segment_length", *_network_keys(spec)]
        self.add("the rollouts of {}", arrays + minibatch, *keys, spec=spec)

    def add_batches(self, spec: PolicySpec) -> None:
        policy, passes = spec.config, spec.config.quantiles
        length = policy.experience.segment_length
        together = max(len(group) for group in self._layout.groups)
        widest = FLOAT * passes * policy.batch_size * max(policy.network.hidden, default=1)
        # As many policies train at once as fit into the CPU's cache; all batches share the arrays.
        at_once = min(max(CACHE // widest, 1), together)
        units = 6 * passes * sum(policy.network.hidden)
        active = (units + 12 * spec.memory) * at_once / together
        steps, keys = policy.batch_size, ["policy.batch_size", "policy.experience.segment_length"]
        if spec.memory:  # at least one whole segment, with the observation after each
            steps = max(steps // length, 1) * (length + 1)
            if length > policy.batch_size:
                keys.reverse()
        # The batch in the CPU's memory, and its copy on the learner's device.
        sample = FLOAT * ((3 if spec.memory else 2) * spec.num_inputs + active)
        self.add("batches of {}", int(steps * sample), *keys, *_network_keys(spec), spec=spec)

    def add_acting(self, spec: PolicySpec) -> None:
        width = spec.num_inputs + spec.actions.num_outputs
        width += 2 * spec.config.quantiles * max(spec.config.network.hidden, default=1)
        size, keys = FLOAT * self._streams * width, ("env.num_envs", *_network_keys(spec))
        self.add("the inputs and outputs of actors' networks of {}", size, *keys, spec=spec)


def _weights_size(spec: PolicySpec) -> int:
    return FLOAT * layout_size(spec.network().shapes)


def _network_keys(spec: PolicySpec) -> tuple[str, ...]:
    keys = ("policy.network.hidden", "policy.n_frames", "policy.network.recurrent")
    of_quantiles = ("policy.iqn.quantiles", "policy.iqn.cosines")
    return (*keys, *of_quantiles) if spec.config.entry.quantiles else keys


def ring_size(shape: StreamShape, length: int, segments: int) -> int:
    """Return the bytes of a ring, with the pages of one final observation in each segment.

    Episodes that are truncated more often take more memory, up to as much as the observations.
    """
    fields = dict(fields_of(shape, length, segments))
    final = nbytes({name: fields.pop(name) for name in FINAL})
    one = final // max(segments * length, 1)
    return nbytes(fields) + min(final, segments * (one + PAGE))


def _step_size(shape: StreamShape) -> int:
    fields = fields_of(shape, 1, 1)
    stacked = shape.n_frames * shape.size * np.dtype(shape.dtype).itemsize
    own = {name: fields[name] for name in ("actions", "masks", "recurrent_states")}
    return nbytes(own) + stacked + 40


def setting_to_reduce(config: Config, keys: Sequence[str]) -> str:
    """Return the setting that is furthest above its default, or the first that can be reduced."""
    above: dict[str, float] = {}
    for key in keys:
        usual: Any = Config()
        section, _, name = key.partition(".")
        if section == "policies":
            policy, _, name = name.partition(".")
            usual = config.policy_of(policy).usual()
        elif section == "policy":
            usual = config.policy.usual()
        else:
            name = key
        size, default = _size(at_key(config, key)), USUAL.get(name) or _size(at_key(usual, name))
        if size > 1.0:  # 1 or 0 cannot be reduced
            above[key] = max(size / max(default, 1.0), 1.0)
    return max(above, key=above.__getitem__, default=keys[0])


def _size(value: Any) -> float:
    """Return a setting's size: a number, or the sum of all numbers in it."""
    if isinstance(value, tuple | list):
        return sum(map(_size, value))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else 0.0


def nbytes(fields: Fields) -> int:
    """Return the bytes of arrays with these shapes and dtypes."""
    return sum(
        int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        for shape, dtype in fields.values()
    )


def copy_size(one: int, two: int, agents: Sequence[AgentSpec]) -> int:
    """Return the bytes of an environment copy, from the array sizes of one copy and of two."""
    observed = sum(int(np.prod(agent.observation_space.shape or (1,))) * FLOAT for agent in agents)
    return max(two - one, observed + COPY * len(agents))


def size_of_arrays(thing: object, seen: set[int] | None = None, depth: int = 6) -> int:
    """Return the bytes of all arrays that an object, such as an environment, refers to."""
    seen = set() if seen is None else seen
    if id(thing) in seen or depth == 0:
        return 0
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return thing.nbytes if thing.base is None else size_of_arrays(thing.base, seen, depth)
    if isinstance(thing, Mapping):
        thing = list(thing.values())
    if isinstance(thing, list | tuple):
        return sum(size_of_arrays(value, seen, depth - 1) for value in thing)
    return size_of_arrays(getattr(thing, "__dict__", {}), seen, depth)


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes that the machine and this process's control groups still allow."""
    available: int = psutil.virtual_memory().available
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return available
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        directory, *names = CGROUPS[bool(controllers)]
        group, top = root / directory / path.strip("/"), root / directory
        while group == top or top in group.parents:
            available = min(available, _free_in_group(group, *names))
            group = group.parent
    return available


def _free_in_group(path: Path, limit: str, used: str, droppable: str) -> int:
    """Return the free bytes of a control group; files that can be dropped count as free."""
    try:
        stat = dict(line.split() for line in (path / "memory.stat").read_text().splitlines())
        free = int((path / limit).read_text()) - int((path / used).read_text())
        return max(free + int(stat.get(droppable, 0)), 0)
    except (OSError, ValueError):  # no such group, or its limit is `max`
        return sys.maxsize


def _count(count: int, stem: str, several: str, one: str = "") -> str:
    return f"1 {stem}{one}" if count == 1 else f"{count:,} {stem}{several}"


def _words(size: int) -> str:
    return f"{size / GIB:,.1f} GiB" if size >= GIB / 10 else f"{size / 2**20:,.0f} MiB"
