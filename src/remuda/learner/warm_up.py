"""Warm-up: updates on made-up steps, so that the first real update compiles nothing."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from remuda.config import PolicyConfig
from remuda.experience.experience import Experience
from remuda.experience.ring_block import Block, Choices, StreamPlan, TurnOutcomes
from remuda.experience.writer import BlockWriter
from remuda.learner.group import LearnerGroup
from remuda.learner.rollouts import RolloutLearner
from remuda.policies.compatibility import stream_shape
from remuda.policies.spec import PolicySpec, first_weights
from remuda.policies.stack import layout_checksum, layout_size
from remuda.publish.snapshot import PublishedWeights
from remuda.system.memory.waiting import Wakeup
from remuda.system.rng import torch_rng
from remuda.system.scoreboard import Learn, Scoreboard
from remuda.types import Floats

log = logging.getLogger(__name__)

SEGMENTS = 8  # segments written for the warm-up
MOST_PARTS = 16  # maximum number of minibatches in an epoch
COMPILED: set[object] = set()
"""Kinds of stacks that this process has warmed up."""


def warm_up(
    make_group: Callable[..., LearnerGroup], stacks: Sequence[tuple[tuple[PolicySpec, ...], str]]
) -> None:
    """Train one or two policies of each stack on made-up steps, in separate memory.

    Compiled functions are specialised by dtype, number of dimensions and contiguity, not by size.
    So two small updates, of both policies and of only the second, compile everything. `make_group`
    builds a role's learners; keywords replace attributes of the role. A later run in the same
    process finds the functions compiled, and skips the kinds of stacks that it shares.
    """
    distinct = {
        (
            replace(specs[0], name="").specification,
            repr(specs[0].config.experience),
            device,
            len(specs) > 1,
        ): (specs, device)
        for specs, device in stacks
    }
    for kind, (specs, device) in distinct.items():
        if kind in COMPILED:
            continue
        small = tuple(replace(spec, config=_in_small(spec.config)) for spec in specs[:2])
        names = tuple(spec.name for spec in small)
        length = small[0].config.experience.segment_length
        experience = _experience(small)
        scoreboard = Scoreboard(names)
        learners = make_group(
            specs=small,
            devices=(device,) * len(small),
            experience=dict(zip(names, experience, strict=True)),
            published=_published(small),
            scoreboard=scoreboard,
            wakeup=Wakeup(),
            timeline=None,
            saves_experience=False,
            patience=0.0,
            table=None,
            shares={},
            initial=None,
            changes=None,
        )
        for learner in learners.learners:
            if isinstance(learner, RolloutLearner):
                learner.train_whole()  # both policies in one piece, however long it takes
        writers = [BlockWriter([(found, 0)]) for found in experience]
        for members in (range(len(small)), [len(small) - 1]):
            for k in members:
                _live(writers[k], small[k], _steps(small[k].config), length)
            for _ in members:
                learners.work()
        if all(scoreboard.learn(name)[Learn.UPDATES] for name in names):
            COMPILED.add(kind)
        else:
            log.warning("%s: the warm-up made no update; the first update may be slow", names[0])


def _experience(specs: Sequence[PolicySpec]) -> list[Experience]:
    config = specs[0].config
    steps = config.rollout_length
    shape, length = stream_shape(specs[0]), config.experience.segment_length
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
    length = min(config.experience.segment_length, max(8, 2 * config.n_steps))
    experience = config.experience.model_copy(
        update={
            "segment_length": length,
            "capacity": 2 * SEGMENTS * length,
            "learning_starts": 2 * length,
            "group": "",
        }
    )
    # Several minibatches, because those of two policies are not contiguous; but few, because
    # `_live` writes steps one by one.
    parts = min(config.ppo.parts(0), MOST_PARTS)
    steps = 2 * max(length, parts)
    ppo = config.ppo.model_copy(update={"rollout_length": steps, "epochs": 1, "minibatches": parts})
    return config.model_copy(update={"batch_size": 2, "experience": experience, "ppo": ppo})


def _steps(config: PolicyConfig) -> int:
    length = config.experience.segment_length
    return length * (SEGMENTS + math.ceil(config.rollout_length / length))


def _published(specs: Sequence[PolicySpec]) -> PublishedWeights:
    shapes = specs[0].network().shapes
    size, checksum = layout_size(shapes), layout_checksum(shapes)
    layouts = {spec.name: (size, checksum, spec.config.publish) for spec in specs}
    published = PublishedWeights(layouts)
    for spec in specs:
        weights = first_weights(spec, torch_rng(0, "warm_up", spec.name))
        published.publisher(spec.name, checksum).publish(weights, 0, 0.0)
    return published


def _live(writer: BlockWriter, spec: PolicySpec, steps: int, length: int) -> None:
    """Write `steps` steps, in episodes of two segments."""
    shape = stream_shape(spec)
    always, never = np.ones(1, np.bool_), np.zeros(1, np.bool_)
    nothing: Floats = np.zeros(1, np.float32)
    plan = StreamPlan(np.array([0, 1]), np.zeros(1, np.int64))
    observations = np.zeros((1, shape.size), shape.dtype)
    masks = np.ones((1, shape.mask_size), np.bool_)
    choices = Choices(
        active=always,
        observations=observations,
        actions=np.zeros((1, shape.action_size), shape.action_dtype),
        log_probs=nothing,
        masks=masks,
        recurrent_states=np.zeros((1, shape.memory), np.float32),
        versions=np.ones(1, np.int64),
        rewards_before=nothing,
    )
    for step in range(steps):
        writer.decide(plan, choices)
        over = always if (step + 1) % (2 * length) == 0 else never
        writer.outcome(
            plan, writer.results(TurnOutcomes(always, nothing, over, never, observations, masks))
        )
