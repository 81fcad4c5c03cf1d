"""What a run will take of the memory, worked out before anything of it is made.

The kernel hands out memory that it does not have, and kills the process that touches too much of
it; nothing could be said then. So all that grows with the configuration is added up first:
experience, weights, what learners and actors work with, copies of the game. Python, its libraries
and what a game of Python objects holds are reckoned by rule of thumb.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from remuda.config import Config
from remuda.envs.registry import GAMES
from remuda.errors import ConfigError
from remuda.experience.experience import ring_segments
from remuda.experience.priorities import tree_size
from remuda.experience.ring import StreamShape, fields_of
from remuda.experience_layout import dealt_rings
from remuda.forkserver import client as forkserver
from remuda.hyperparameters import names_of
from remuda.memory.shared import Fields
from remuda.memory_settings import keys_of, to_lower, value_in_words
from remuda.policies.algorithms.transition_algorithm import CACHE
from remuda.policies.sharing import stream_shape
from remuda.policies.spec import PolicySpec, training_layout
from remuda.policies.stack import layout_size
from remuda.population.roster import copies_of
from remuda.population.shard import shard_fields
from remuda.population.table_layout import table_fields
from remuda.runtime.layout import Layout
from remuda.types import AgentSpec

GIB = 2**30
LIBRARIES = 270 * 2**20
"""Bytes of the coordinator and of the server that the others are forked from: torch, Numba and the
rest, as they are loaded. Where the server is a fork of the coordinator, 210 MiB were measured."""
LOADED_TWICE = 350 * 2**20
"""The same where the server loads them anew, as that of a script."""
PROCESS = 80 * 2**20
"""Bytes of each other process that it shares with no other, besides what the run is made of."""
COMPILING = 240 * 2**20
"""Bytes that all processes together take besides while functions are compiled: in the first run of
an installation, as was measured. It is always counted: what will be compiled is not known."""
WHAT_COMPILES = "compiling"
"""The item of the plan that a run takes only where something is compiled."""
COPY = 256
"""Bytes that a copy of any game takes for each agent, besides its arrays."""
FLOAT = 4
EVOLUTION = "population.evolution"


@dataclass(frozen=True)
class Item:
    """Something that takes memory."""

    what: str
    """In words, as in `the experience of 2 policies`."""
    size: int
    """Bytes."""
    settings: tuple[str, ...]
    """The keys of the configuration that it grows with, first the one that most often says how
    large it is; empty: there are none."""


def check_memory(
    config: Config,
    specs: Sequence[PolicySpec],
    agents: Sequence[AgentSpec],
    layout: Layout,
    copy_size: int,
    available: int | None = None,
) -> None:
    """Whether a run fits into the memory."""
    available = available_memory() if available is None else available
    items = plan(config, specs, agents, layout, copy_size)
    total = sum(item.size for item in items)
    if total <= available:
        return
    largest = max(items, key=lambda item: item.size)
    said = (
        f"this run would take {_words(total)} of memory, and {_words(available)} are free; "
        f"{_words(largest.size)} of it would be {largest.what}: "
    )
    if not largest.settings:  # which every run takes
        said += "end other programs, or "
        largest = max((item for item in items if item.settings), key=lambda item: item.size)
    key = to_lower(config, largest.settings)
    value = value_in_words(config, key)
    raise ConfigError(f"{said}lower {key}" + (f", which is {value}" if value else ""))


def plan(
    config: Config,
    specs: Sequence[PolicySpec],
    agents: Sequence[AgentSpec],
    layout: Layout,
    copy_size: int,
) -> list[Item]:
    """All that grows with the configuration, those alike as one."""
    found: dict[tuple[str, tuple[str, ...]], int] = {}
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for what, size, keys in (
        *_experience(config, specs, agents, layout),
        *_weights(config, specs, layout),
        *_learning(config, specs, agents, layout),
        *_acting(config, specs, agents),
        *_table(config, len(specs), len(agents), layout.copies),
        ("the copies of the game", config.env.num_envs * copy_size, "env.num_envs"),
    ):
        settings = (keys,) if isinstance(keys, str) else keys
        found[what, settings] = found.get((what, settings), 0) + int(size)
        counts[what, settings] = counts.get((what, settings), 0) + 1
    items = [
        Item(what.format(_count(counts[what, settings], "polic", "ies", "y")), size, settings)
        for (what, settings), size in found.items()
    ]
    processes = (
        1 if config.schedule == "sequential" else 1 + len(layout.copies) + len(layout.groups)
    )
    processes += len(layout.copies) * (config.env.workers if config.env.workers > 1 else 0)
    if processes > 1 and config.checkpoint.evaluate_episodes and config.game not in GAMES:
        processes += 1  # that measures checkpoints
    key = "env.workers" if config.env.workers > 1 else ""
    key = key or ("learners.processes" if len(layout.groups) > 1 and processes > 1 else "")
    own = (key,) if key else ()
    twice = processes > 1 and not forkserver.is_own_fork()
    size = (LOADED_TWICE if twice else LIBRARIES) + (processes - 1) * PROCESS
    return [
        *items,
        Item(_count(processes, "process", "es"), size, own),
        Item(WHAT_COMPILES, COMPILING, own),
    ]


Sizes = Iterable[tuple[str, int, str | tuple[str, ...]]]
"""What, bytes, and the setting, or several of them; `{}` in the words is how many policies there
are of it."""


def _experience(
    config: Config, specs: Sequence[PolicySpec], agents: Sequence[AgentSpec], layout: Layout
) -> Sizes:
    rings: list[tuple[PolicySpec, int]] = []
    if config.population.dealt:
        for dealt in dealt_rings(config, tuple(specs), tuple(agents), layout.copies):
            rings += [(spec, count) for spec in dealt.members for count in dealt.segments]
    else:
        for spec in specs:
            rollout = _rollout(spec, layout.copies)
            keeps = spec.config.replays > 0
            counts = ring_segments(spec.config.experience, layout.copies, rollout, keeps)
            rings += [(spec, count) for count in counts]
    for spec, segments in rings:
        experience = spec.config.experience
        size = nbytes(fields_of(stream_shape(spec), experience.segment_length, segments))
        keeps = spec.config.keeps_experience
        kept = experience.capacity if keeps else 0
        # What is kept, or what is played at once: whichever is more of it.
        by_capacity = 2 * kept >= segments * experience.segment_length
        factors = ["ppo.rollout_length"] if spec.config.rollout_length else []
        factors.append("experience.segment_length")
        keys: tuple[str, ...] = ("env.num_envs", *keys_of(config, spec, *factors))
        if by_capacity:
            keys = (*keys_of(config, spec, "experience.capacity"), *keys)
        yield (
            "the experience of {}",
            size * (3 if config.saves_replay else 1),  # a checkpoint copies and packs it
            keys,
        )
        if experience.prioritised:
            # Each learner has its own, of all that its group lives through.
            group = [s for s in specs if s.config.experience.group == experience.group]
            sources = len(group) if experience.group else 1
            size = sources * tree_size(segments, experience.segment_length)
            yield "the priorities of {}", 2 * size, keys


def _weights(config: Config, specs: Sequence[PolicySpec], layout: Layout) -> Sizes:
    copies = copies_of(config.population) + 1 if config.population.dealt else 0
    for spec in specs:
        size = FLOAT * layout_size(spec.network().shapes)
        hidden = _of_network(config, spec)
        # Published twice; as they act, plain and not.
        acting = 3 * len(layout.copies)
        # Weights, gradients, moments, target or anchor; and the last good ones of all but one.
        learning = 8 if spec.config.rollout_length else 9
        yield "the weights and optimizers of {}", size * (2 + acting + learning), hidden
        inherited = _inherited(config, spec)
        if inherited:  # published twice, for the newborn, as they are read, and for a checkpoint
            yield "what newborn policies inherit of {}", size * inherited * 6, hidden
        judged = config.checkpoint.evaluate_episodes or config.run.evaluate_episodes
        if judged:  # as published, for whom it plays and for the checkpoint; as they act, twice
            yield "the play that measures {}", 4 * size, hidden
        if copies:
            yield (
                "the frozen copies of {}",
                size * copies * (1 + len(layout.copies)),
                "population.snapshots.keep" if copies > 4 else hidden,
            )
            # The coordinator copies them for a checkpoint, and reads them all, as a file and as
            # arrays, for the weights of a checkpoint against which another one plays.
            challenged = bool(config.checkpoint.evaluate_episodes)
            yield (
                "a checkpoint of the frozen copies of {}",
                size * copies * (1 + 2 * challenged),
                "population.snapshots.keep" if copies > 4 else hidden,
            )
        if config.checkpoint.evaluate_episodes:  # as published then, as a file and as arrays
            yield "the best so far, played against, of {}", 2 * size, hidden
    if specs:
        largest = max(specs, key=lambda spec: layout_size(spec.network().shapes))
        size = FLOAT * layout_size(largest.network().shapes)
        yield "a checkpoint of {}", 8 * size, _of_network(config, largest)
        imported = len(config.population.members_from)
        if imported:  # as they are kept, and as each actor plays them
            members = size * imported * (1 + len(layout.copies))
            yield "members from other runs, like {}", members, "population.members_from"


def _inherited(config: Config, spec: PolicySpec) -> int:
    """How many vectors as long as its weights are published of how a policy is trained."""
    if not config.population.evolution.inherits_training:
        return 0
    return len(training_layout(spec).vectors)


def _table(config: Config, policies: int, seats: int, actors: Sequence[int]) -> Sizes:
    """What a population shares besides weights; the sums of every pair are most of it."""
    if not config.population.dealt:
        return
    copies = copies_of(config.population)
    every = [config.policy, *map(config.policy_of, config.policies)]
    width = len(names_of(policy.entry.hyperparameters for policy in every))
    others = len(config.population.members_from) + len(config.scripted_members)
    metrics = len(config.population.evolution.episode_metrics)
    fields = dict(table_fields(policies, seats, copies, others, width, metrics))
    records = nbytes({"records": fields.pop("records")})
    for own in actors[1:]:
        records += nbytes(shard_fields(own, seats, policies, metrics))
    size = nbytes(fields)
    key = "population.snapshots.keep" if copies > 4 else "population.policies"
    yield f"the results of matches between {policies:,} policies", size, key
    yield "a checkpoint of these results", 2 * size, key  # copied and packed
    yield f"the results of matches of {seats:,} seats", records, "env.options"


def _learning(
    config: Config, specs: Sequence[PolicySpec], agents: Sequence[AgentSpec], layout: Layout
) -> Sizes:
    together = max(len(group) for group in layout.groups)
    streams = _streams(config, specs, agents)
    for spec in specs:
        policy, shape = spec.config, stream_shape(spec)
        units = sum(policy.network.hidden)
        inputs = spec.num_inputs
        if policy.rollout_length:
            steps = policy.rollout_length * streams * (1 + policy.replays)
            # Rows that hold a step, and those between segments; there is room for twice as many,
            # which takes no memory until episodes are as short.
            kept = 1.5 * (steps + policy.experience.segment_length) * _step_size(shape)
            rows = policy.ppo.largest_part(steps)
            if spec.memory:  # whole segments, one at least
                rows = max(rows, policy.experience.segment_length)
            minibatch = rows * FLOAT * (2 * inputs + 6 * units)
            keys = ("env.num_envs", *keys_of(config, spec, "ppo.rollout_length"))
            keys = keys if streams >= policy.rollout_length else keys[::-1]
            keys += keys_of(config, spec, "experience.segment_length")
            keys += _of_network(config, spec)
            yield "the rollouts of {}", int(kept + minibatch), keys
            continue
        passes = policy.quantiles
        widest = FLOAT * passes * policy.batch_size * max(policy.network.hidden, default=1)
        # As many are trained at once as fit into the processor's cache; they share their work.
        at_once = min(max(CACHE // widest, 1), together)
        active = (6 * passes * units + 12 * spec.memory) * at_once / together
        steps, key, length = policy.batch_size, "batch_size", policy.experience.segment_length
        if spec.memory:  # whole segments, one at least, each with what is seen after it
            steps = max(steps // length, 1) * (length + 1)
            key = "experience.segment_length" if length > policy.batch_size else key
        # As it was drawn, and as it is on the learner's device.
        sample = FLOAT * ((3 if spec.memory else 2) * inputs + active)
        keys = keys_of(config, spec, key, "batch_size", "experience.segment_length")
        yield "batches of {}", int(steps * sample), keys + _of_network(config, spec)


def _acting(config: Config, specs: Sequence[PolicySpec], agents: Sequence[AgentSpec]) -> Sizes:
    streams = _streams(config, specs, agents)
    for spec in specs:
        network = spec.config.network
        passes = spec.config.quantiles
        width = spec.num_inputs + 2 * passes * max(network.hidden, default=1)
        width += spec.actions.num_outputs
        keys = ("env.num_envs", *_of_network(config, spec))
        yield "what networks of {} act on", FLOAT * streams * width, keys


def _of_network(config: Config, spec: PolicySpec) -> tuple[str, ...]:
    """The settings that its network grows with."""
    keys = ["network.hidden", "n_frames", "network.recurrent"]
    if spec.config.entry.section == "iqn":
        keys += ["iqn.quantiles", "iqn.cosines"]
    return keys_of(config, spec, *keys)


def _streams(config: Config, specs: Sequence[PolicySpec], agents: Sequence[AgentSpec]) -> int:
    """Copies and seats that a policy plays at once, on average."""
    seats = len(agents) / max(len(specs), 1) if config.population.dealt else 1.0
    return max(round(config.env.num_envs * seats), 1)


def _rollout(spec: PolicySpec, copies: Sequence[int]) -> int:
    return spec.config.rollout_length * sum(copies)


def _step_size(shape: StreamShape) -> int:
    """Bytes of a step with stacked observations."""
    one = fields_of(shape, 1, 1)
    stacked = shape.n_frames * shape.size * np.dtype(shape.dtype).itemsize
    return nbytes({name: one[name] for name in ("actions", "masks", "memories")}) + stacked + 40


def nbytes(fields: Fields) -> int:
    """Bytes of arrays like these."""
    return sum(
        int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        for shape, dtype in fields.values()
    )


def size_of_arrays(env: object) -> int:
    """Bytes of all arrays that hang on an environment."""
    return _arrays(env, set())


def copy_size(one: int, two: int, agents: Sequence[AgentSpec]) -> int:
    """Bytes of a copy of a game, by the sizes of arrays of one copy and of two."""
    observed = sum(int(np.prod(agent.observation_space.shape or (1,))) * FLOAT for agent in agents)
    least = observed + COPY * len(agents)
    return max(two - one, least)


def _arrays(thing: object, seen: set[int], depth: int = 6) -> int:
    """Bytes of all arrays that hang on an object."""
    if id(thing) in seen or depth == 0:
        return 0
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return thing.nbytes if thing.base is None else _arrays(thing.base, seen, depth)
    if isinstance(thing, Mapping):
        return sum(_arrays(value, seen, depth - 1) for value in thing.values())
    if isinstance(thing, list | tuple):
        return sum(_arrays(value, seen, depth - 1) for value in thing)
    return _arrays(getattr(thing, "__dict__", {}), seen, depth)


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may still take: of the machine, and of its control group."""
    least: int = psutil.virtual_memory().available
    for limit, used in _groups(root):
        least = min(least, max(limit - used, 0))
    return least


def _groups(root: Path) -> Iterable[tuple[int, int]]:
    """The limit of each control group that this process is in, and what is used of it."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / ("sys/fs/cgroup/memory" if controllers else "sys/fs/cgroup")
        names = ("memory.max", "memory.current", "inactive_file")
        if controllers:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        group = top / path.strip("/")
        while group == top or top in group.parents:
            found = _group(group, names)
            if found is not None:
                yield found
            group = group.parent


def _group(path: Path, names: tuple[str, str, str]) -> tuple[int, int] | None:
    """The limit and the use of one control group, without files that could be dropped."""
    try:
        limit, used = (int((path / name).read_text()) for name in names[:2])
        stat = dict(line.split() for line in (path / "memory.stat").read_text().splitlines())
        return limit, used - int(stat.get(names[2], 0))
    except (OSError, ValueError):  # there is none, or it is `max`
        return None


def _count(count: int, stem: str, several: str, one: str = "") -> str:
    return f"1 {stem}{one}" if count == 1 else f"{count:,} {stem}{several}"


def _words(size: int) -> str:
    return f"{size / GIB:,.1f} GiB" if size >= GIB / 10 else f"{size / 2**20:,.0f} MiB"
