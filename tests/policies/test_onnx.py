"""An ONNX file chooses what its policy chooses."""

import pickle
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from gymnasium.spaces import Box
from torch.nn import functional

import remuda
from onnx_cases import (
    CASES,
    DQN,
    FOUR,
    OBSERVATIONS,
    PIXELS,
    RAW,
    ROUNDING,
    STREAMS,
    VECTOR,
    made,
    observations_of,
    with_weights,
)
from refusals import refuses
from remuda.config import load_config
from remuda.errors import UsageError
from remuda.policies.networks.layers import linear_shapes
from remuda.policies.networks.network import apply
from remuda.policies.networks.q_network import QNetwork
from remuda.policies.spec import PolicySpec
from remuda.policies.stack import ParameterStack
from remuda.population.specs import policy_specs
from remuda.types import AgentSpec
from remuda.ui.terminal.live import PlainView


@pytest.fixture
def exported(tmp_path):
    """Makes a policy's file and opens it."""

    def get(policy):
        path = policy.to_onnx(tmp_path / "policy.onnx")
        assert path == tmp_path / "policy.onnx"
        onnx.checker.check_model(str(path), full_check=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    return get


def run(session, **inputs):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def apart(one, other):
    """How far two arrays lie apart, relative to the greatest number."""
    return np.abs(one - other).max(initial=0.0) / np.abs(other).max(initial=1.0)


def clear_of(policy, outputs, mask):
    """[N]: where the best action is better than all others by more than rounding."""
    sizes = getattr(policy.player.spec.actions, "sizes", None)
    if sizes is None:
        return np.ones(len(outputs), bool)
    rounding = ROUNDING * np.abs(outputs).max(initial=1.0)
    outputs = outputs if mask is None else np.where(mask, outputs, -np.inf)
    clear = np.ones(len(outputs), bool)
    for part in np.split(outputs, np.cumsum(sizes)[:-1], axis=1):
        best = np.sort(part, 1)
        clear &= best[:, -1] - best[:, -2] > rounding
    return clear


def masks_of(policy, rng, count):
    """Random masks [N, mask_size]; None where there are none. Every choice has an allowed one."""
    if not policy.mask_size:
        return None
    mask = rng.random((count, policy.mask_size)) < 0.5
    first = 0
    for size in policy.player.spec.actions.sizes:
        mask[np.arange(count), first + rng.integers(0, size, count)] = True
        first += size
    return mask


def compare(policy, session, count, steps, begins):
    """Play `steps` steps of `count` streams both ways; returns (clear ones, all actions)."""
    rng = np.random.default_rng(2)
    seen = observations_of(policy.observation_space, count * steps, 3)
    frames = np.zeros((count, policy.n_frames, *policy.observation_space.shape), seen.dtype)
    state = np.full_like(policy.initial_state(count).recurrent_state, np.nan)  # not read at starts
    starts, clear, actions = np.ones(count, bool), [], []
    remembered = policy.initial_state(count)
    for observations in seen.reshape(steps, count, *policy.observation_space.shape):
        mask = masks_of(policy, rng, count)
        frames = np.roll(frames, -1, 1)
        frames[starts] = 0
        frames[:, -1] = observations
        inputs = {"observation": frames if policy.n_frames > 1 else observations}
        if mask is not None:
            inputs["mask"] = mask
        if policy.is_recurrent:
            inputs |= {"recurrent_state": state, "starts": starts}
        remembered.begin(starts)
        chosen = policy.act(observations, mask=mask, state=remembered)
        found = run(session, **inputs)
        assert found["action"].shape == chosen.shape
        assert found["action"].dtype == chosen.dtype
        sure = clear_of(policy, found["network_output"], mask)
        if chosen.dtype.kind == "f":
            assert apart(found["action"], chosen) < ROUNDING
        else:
            assert (found["action"] == chosen)[sure].all()
        if policy.is_recurrent:
            state = found["next_recurrent_state"]
            assert apart(state, remembered.recurrent_state) < ROUNDING
        clear.append(sure)
        actions.append(chosen)
        starts = rng.random(count) < begins
    return np.concatenate(clear), np.concatenate(actions)


SLOW = {
    *("dqn, a plain head", "dqn, noisy, tanh", "ppo", "ppo, not normalised", "ppo, choices"),
    *("ppo, masks", "ppo, a table of numbers", "convolution", "convolution, continuous"),
}
"""What other cases have together."""


@pytest.mark.slow_cases(
    "convolution of frames",
    "convolution of pixels",
    "dqn",
    "dqn, frames of pixels",
    "iqn",
    "iqn, noisy, frames",
    "ppo, choices and masks",
    "ppo, continuous",
    "ppo, frames of integers",
    "recurrent",
    "recurrent convolution",
    "recurrent dqn",
    "recurrent iqn",
    "recurrent, continuous",
    "recurrent, masks and frames",
)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case in SLOW)) for case in CASES]
)
def test_the_file_chooses_what_the_policy_chooses(case, exported):
    policy = made(*CASES[case])
    session = exported(policy)
    follows = policy.is_recurrent or policy.n_frames > 1
    count, steps = (STREAMS, OBSERVATIONS // STREAMS) if follows else (OBSERVATIONS, 1)
    clear, actions = compare(policy, session, count, steps, begins=0.1)
    assert len(actions) == OBSERVATIONS
    assert clear.sum() >= 0.99 * OBSERVATIONS, "too many are not compared"
    for column in actions.reshape(OBSERVATIONS, -1).T:  # each does different things
        values, counts = np.unique(column, return_counts=True)
        assert counts.max() < 0.9 * OBSERVATIONS, (values, counts)
    # The batch is of any size.
    compare(policy, session, 1, 3, begins=0.5)
    compare(policy, session, 7, 3, begins=0.5)
    compare(policy, session, 0, 1, begins=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["dqn", "iqn", "ppo, masks", "recurrent", "ppo, continuous"])
def test_it_tells_what_actions_are_chosen_by(case, exported):
    policy = made(*CASES[case])
    seen = observations_of(policy.observation_space, 20 * policy.n_frames, 4)
    if policy.n_frames > 1:
        seen = seen.reshape(20, policy.n_frames, *seen.shape[1:])
    inputs = {"observation": seen}
    if policy.mask_size:
        inputs["mask"] = np.ones((20, policy.mask_size), bool)
    outputs = policy.module()(torch.from_numpy(seen))
    if policy.is_recurrent:
        before = np.ones_like(policy.initial_state(20).recurrent_state)
        inputs |= {"recurrent_state": before, "starts": np.arange(20) < 10}
        outputs, after = outputs
    found = run(exported(policy), **inputs)
    rows = 10 if policy.is_recurrent else 20
    assert apart(found["network_output"][:rows], outputs[:rows].detach().numpy()) < ROUNDING
    if policy.is_recurrent:
        assert apart(found["next_recurrent_state"][:10], after[:10].detach().numpy()) < ROUNDING
        assert np.abs(found["next_recurrent_state"][10:] - after[10:].detach().numpy()).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("case", ["dqn", "iqn", "ppo, masks", "ppo, choices and masks"])
def test_of_equal_actions_the_first_that_is_allowed_is_chosen(case, exported):
    policy = made(*CASES[case])
    spec, weights = policy.player.spec, np.zeros_like(policy.player.snapshot.weights)
    policy = with_weights(spec, policy.player.agent, weights)
    assert compare_exactly(policy, exported(policy), 200) > (1 if policy.mask_size else 0)


def compare_exactly(policy, session, count):
    """How many different actions are chosen, which are all the same in both."""
    seen = observations_of(policy.observation_space, count, 4)
    frames = np.zeros((count, policy.n_frames, *seen.shape[1:]), seen.dtype)
    frames[:, -1] = seen
    inputs = {"observation": frames if policy.n_frames > 1 else seen}
    mask = masks_of(policy, np.random.default_rng(0), count)
    if mask is not None:
        inputs["mask"] = mask
    chosen = policy.act(seen, mask=mask)
    assert (run(session, **inputs)["action"] == chosen).all()
    return len(np.unique(chosen))


@pytest.mark.slow_cases("int64", "int8", "uint32")
@pytest.mark.parametrize("dtype", ["int8", "uint16", "uint32", "int64"])
def test_observations_are_of_the_dtype_of_the_game(dtype, exported):
    sees = Box(0, 100, (7,), np.dtype(dtype).type)
    policy = made(RAW, {"hidden": [16]}, sees, FOUR)
    session = exported(policy)
    found = session.get_modelmeta().custom_metadata_map
    assert found["observation_dtype"] == dtype
    assert compare_exactly(policy, session, 100) == 4


class RecurrentPixelQ(QNetwork):
    """Values of actions after a convolution, with a state of its own kind."""

    memory = 6

    def __init__(self, num_inputs, num_actions, config):
        super().__init__(num_inputs, num_actions, config)
        shapes = {"filter": (4, 3, 3, 3)}
        for name, inputs, outputs in (("new", 168, 6), ("old", 6, 6), ("head", 6, num_actions)):
            shapes |= linear_shapes(name, inputs, outputs)
        self.shapes, self.layers = shapes, ("new", "old", "head")

    def acting(self, parameters, noise):
        return dict(parameters)

    def values_of(self, weights, features):
        raise AssertionError("it needs its state")

    def step(self, weights, inputs, memory):
        image = inputs[0].view(-1, 9, 8, 3).movedim(-1, 1) / 255.0
        x = functional.conv2d(image, weights["filter"][0]).relu_().flatten(1)[None]
        memory = (apply(weights, "new", x) + apply(weights, "old", memory)).tanh_()
        return apply(weights, "head", memory), memory


@dataclass(frozen=True)
class OwnSpec(PolicySpec):
    kind: Any = RecurrentPixelQ

    def network(self):
        return self.kind(self.num_inputs, self.actions.num_outputs, self.config.network)


def own(kind, sees, **changes):
    """A policy of DQN with a network of this kind."""
    agent = AgentSpec("agent_0", sees, FOUR, masked=changes.get("masked", False))
    config = load_config(
        {"game": "tag", "policy": DQN | {"n_frames": 1, "network": {"hidden": [16]}}}
    )
    (spec,) = policy_specs(config, [replace(agent, masked=False)])
    values = {field.name: getattr(spec, field.name) for field in fields(spec)} | changes
    spec = OwnSpec(**values, kind=kind)
    size = ParameterStack(spec.network().shapes, 1).flat.shape[1]
    weights = np.random.default_rng(0).normal(0.0, 0.5, size).astype(np.float32)
    return with_weights(spec, agent, weights)


@pytest.mark.slow
def test_a_q_network_with_convolutions_a_state_and_masks(exported):
    policy = own(RecurrentPixelQ, PIXELS, masked=True)
    clear, actions = compare(policy, exported(policy), 50, 20, begins=0.1)
    assert clear.sum() >= 990
    assert len(np.unique(actions)) == 4


class LeavesTorch(QNetwork):
    """Its numbers become constants of the graph; the exporter says nothing."""

    def outputs(self, weights, inputs):
        return torch.tensor(super().outputs(weights, inputs).tolist())


class LooksAtNumbers(QNetwork):
    """It computes something else if the sum is positive, which a graph cannot ask."""

    def outputs(self, weights, inputs):
        values = super().outputs(weights, inputs)
        return values if values.sum() > 0.0 else -values


class CountsRows(QNetwork):
    """The number of rows becomes a constant of the graph, and no other fits."""

    def outputs(self, weights, inputs):
        return super().outputs(weights, inputs) * int(inputs.shape[1])


class FitsOneBatch(QNetwork):
    """It fails where there are other rows than in the example that is traced."""

    def outputs(self, weights, inputs):
        return super().outputs(weights, inputs).reshape(1, 3, 4)


@pytest.mark.slow_cases("CountsRows", "FitsOneBatch", "LeavesTorch")
@pytest.mark.parametrize("kind", [LeavesTorch, LooksAtNumbers, CountsRows, FitsOneBatch])
def test_a_network_that_is_no_graph_is_refused(kind, tmp_path):
    policy = own(kind, VECTOR)
    with refuses(UsageError):
        policy.to_onnx(tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_file_of_a_run_tells_a_stranger_all(tmp_path, exported):
    tree = {
        "schedule": "sequential",
        "policy": {"algorithm": "ppo", "network": {"hidden": (16,)}, "ppo": {"rollout_length": 20}},
        "run": {"turns": 200, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        "checkpoint": {"evaluate_episodes": 0},
    }
    loaded = remuda.load(remuda.train("connect_four", config=tree, view=PlainView()))
    for name in loaded:
        one = loaded[name]
        session = exported(one)
        meta = session.get_modelmeta()
        assert meta.producer_name == "remuda"
        assert "greedy actions" in meta.description
        assert meta.custom_metadata_map == {
            "remuda_version": remuda.__version__,
            "policy": name,
            "policy_version": str(one.version),
            "learner_step": str(one.learner_step),
            "algorithm": "ppo",
            "game": "connect_four",
            "observation_space": str(one.observation_space),
            "env_observation_space": str(one.observation_space),
            "observation_shape": "[2, 6, 7]",
            "observation_dtype": str(one.observation_space.dtype),
            "n_frames": "1",
            "action_space": "Discrete(7)",
            "mask_size": "7",
            "recurrent_size": "0",
            "network_output": "logits of all options, choice by choice",
        }
        inputs = {one.name: one for one in session.get_inputs()}
        assert inputs["observation"].shape == ["N", 2, 6, 7]
        assert inputs["mask"].shape == ["N", 7]
        assert len(inputs) == 2
        clear, _ = compare(one, session, 200, 1, begins=0.5)
        assert clear.sum() > 150
        assert one.game == pickle.loads(pickle.dumps(one)).game == "connect_four"
