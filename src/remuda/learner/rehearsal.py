"""Warm-up: an update on made-up steps, so that the first real one compiles nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from remuda.config import PolicyConfig
from remuda.experience.block import Block
from remuda.experience.experience import Experience
from remuda.experience.writer import ExperienceWriter
from remuda.learner.group import LearnerGroup
from remuda.learner.rollouts import RolloutLearner
from remuda.memory.waiting import Wakeup
from remuda.policies.sharing import stream_shape
from remuda.policies.spec import PolicySpec, first_weights
from remuda.policies.stack import layout_checksum, layout_size
from remuda.publish.snapshot import PublishedWeights
from remuda.rng import torch_rng
from remuda.scoreboard import Learn, Scoreboard

log = logging.getLogger(__name__)

SEGMENTS = 8  # segments that are written to learn from
MOST_PARTS = 16  # most minibatches of an epoch


@dataclass(frozen=True)
class Rehearsal:
    """One or two policies of a stack, with their own memory for made-up steps."""

    specs: tuple[PolicySpec, ...]
    device: str
    experience: tuple[Experience, ...]
    published: PublishedWeights
    scoreboard: Scoreboard


def rehearse(
    stacks: Sequence[tuple[tuple[PolicySpec, ...], str]],
    in_block: Callable[[str], bool],
    group_of: Callable[[Rehearsal], LearnerGroup],
) -> None:
    """Train one or two policies of each stack on made-up steps in their own memory.

    Compiled functions are specialised by dtypes, dimensions, and contiguity, which may differ
    between one and two policies; not by sizes. So two small updates, with the stack's networks and
    algorithm, compile all that real ones need: one of both policies together, and one of the second
    alone.

    `stacks` are policies trained together, with their device; `in_block` is whether a policy's
    rings are in a block; `group_of` builds their learners.
    """
    alike = {
        (replace(specs[0], name="").specification, device): (specs, device)
        for specs, device in stacks
    }
    for specs, device in alike.values():
        small = tuple(replace(spec, config=_in_small(spec.config)) for spec in specs[:2])
        names = tuple(spec.name for spec in small)
        length = small[0].config.experience.segment_length
        experience = tuple(_experience(small, in_block(names[0])))
        scoreboard = Scoreboard(names)
        learners = group_of(Rehearsal(small, device, experience, _published(small), scoreboard))
        for learner in learners.learners:
            if isinstance(learner, RolloutLearner):
                learner.train_whole()  # of both policies together, however long it takes
        writers = [ExperienceWriter(found, 0) for found in experience]
        for wanted in (range(len(small)), [len(small) - 1]):
            for k in wanted:
                _live(writers[k], small[k], _steps(small[k].config), length)
            for _ in wanted:
                learners.work()
        if not all(scoreboard.learn(name)[Learn.UPDATES] for name in names):
            log.warning("%s: nothing was rehearsed; the first update may compile", names[0])


def _experience(specs: Sequence[PolicySpec], in_block: bool) -> list[Experience]:
    """Allocate experience for made-up steps, in one block or separately."""
    config = specs[0].config
    steps = config.rollout_length
    shape, block = stream_shape(specs[0]), None
    if in_block:
        length = config.experience.segment_length
        block = Block(shape, len(specs) + 1, length, 4 * _steps(config) // length)
    return [
        Experience(
            shape,
            spec.config.experience,
            (1,),
            Wakeup(),
            (Wakeup(),),
            steps,
            block,
            index,
            keeps=config.replays > 0,
        )
        for index, spec in enumerate(specs)
    ]


def _in_small(config: PolicyConfig) -> PolicyConfig:
    """Return the same algorithm with batches, segments and rollouts as small as possible."""
    length = min(config.experience.segment_length, max(8, 2 * config.n_steps))
    experience = config.experience.model_copy(
        update={
            "segment_length": length,
            "capacity": 2 * SEGMENTS * length,
            "learning_starts": 2 * length,
            "group": "",
        }
    )
    # Cut as always, since a part of the rows of two policies is not contiguous; into few parts, as
    # each is played step by step.
    parts = min(config.ppo.parts(0), MOST_PARTS)
    steps = 2 * max(length, parts)
    ppo = config.ppo.model_copy(update={"rollout_length": steps, "epochs": 1, "minibatches": parts})
    return config.model_copy(update={"batch_size": 2, "experience": experience, "ppo": ppo})


def _steps(config: PolicyConfig) -> int:
    """Return more than enough steps for an update."""
    least = config.rollout_length
    length = config.experience.segment_length
    return length * (SEGMENTS + -(-least // length))


def _published(specs: Sequence[PolicySpec]) -> PublishedWeights:
    """Publish fresh weights for the warm-up alone."""
    shapes = specs[0].network().shapes
    size, checksum = layout_size(shapes), layout_checksum(shapes)
    layouts = {spec.name: (size, checksum, spec.config.publish) for spec in specs}
    published = PublishedWeights(layouts)
    for spec in specs:
        weights = first_weights(spec, torch_rng(0, "rehearsal", spec.name))
        published.publisher(spec.name, checksum).publish(weights, 0, 0.0)
    return published


def _live(writer: ExperienceWriter, spec: PolicySpec, steps: int, length: int) -> None:
    """Write so many steps, in episodes of two segments."""
    shape = stream_shape(spec)
    seen = np.zeros((1, shape.size), shape.dtype)
    chosen = np.zeros((1, shape.action_size), shape.action_dtype)
    always, never = np.ones(1, np.bool_), np.zeros(1, np.bool_)
    nothing = np.zeros(1, np.float32)
    for step in range(steps):
        writer.decide(seen, chosen, 1, always)
        over = (step + 1) % (2 * length) == 0
        writer.outcome(nothing, always if over else never, never, seen, always)
