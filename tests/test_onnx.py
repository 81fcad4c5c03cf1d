"""An ONNX file chooses what its policy chooses."""

import errno
import logging
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch.nn import functional

import remuda
from remuda.config import load_config
from remuda.errors import UsageError
from remuda.policies.networks.layers import linear_shapes
from remuda.policies.networks.module import PolicyModule
from remuda.policies.networks.network import apply
from remuda.policies.networks.q_network import MLP, QNetwork
from remuda.policies.spec import PolicySpec, policy_specs
from remuda.policies.stack import ParameterStack
from remuda.publish.snapshot import Snapshot
from remuda.trained import Policy
from remuda.types import AgentSpec
from remuda.ui.live import PlainView

OBSERVATIONS = 1000
STREAMS = 50
ROUNDING = 1e-5
"""How far the outputs may lie apart, relative to the greatest of them."""

VECTOR = Box(-3.0, 3.0, (7,), np.float32)
GRID = Box(-2.0, 2.0, (3, 8, 6), np.float32)
PIXELS = Box(0, 255, (9, 8, 3), np.uint8)
COUNTS = Box(-100, 100, (2, 3), np.int16)
EXACT = Box(-3.0, 3.0, (7,), np.float64)

FOUR, CHOICES = Discrete(4), MultiDiscrete([3, 2, 4])
MOVES = Box(np.array([-0.5, -1.0, -np.inf], np.float32), np.array([0.5, np.inf, 0.2], np.float32))
TABLE = Box(-0.5, 0.5, (2, 2), np.float32)

DQN, IQN = {"algorithm": "dqn"}, {"algorithm": "iqn"}
PPO = {"algorithm": "ppo", "ppo": {"normalise_observations": True}}
RAW = {"algorithm": "ppo", "ppo": {"normalise_observations": False}}
CONVOLUTIONS = [[8, 3, 1], [6, 2, 2]]

CASES = {
    "dqn": (DQN, {"hidden": [16, 16]}, VECTOR, FOUR),
    "dqn, a plain head": (DQN, {"hidden": [16], "dueling": False}, EXACT, FOUR),
    "dqn, noisy, tanh": (DQN, {"noisy": True, "activation": "tanh"}, VECTOR, FOUR),
    "dqn, frames of pixels": (DQN | {"n_frames": 3}, {"hidden": [16]}, PIXELS, FOUR),
    "iqn": (IQN, {"hidden": [16, 16]}, VECTOR, FOUR),
    "iqn, noisy, frames": (IQN | {"n_frames": 4}, {"noisy": True}, VECTOR, FOUR),
    "ppo": (PPO, {"hidden": [16, 16]}, VECTOR, FOUR),
    "ppo, not normalised": (RAW, {"hidden": [16]}, VECTOR, FOUR),
    "ppo, frames of integers": (PPO | {"n_frames": 2}, {"shared": False}, COUNTS, FOUR),
    "ppo, masks": (PPO, {"hidden": [16]}, VECTOR, FOUR, "masked"),
    "ppo, choices": (RAW, {"hidden": [16]}, VECTOR, CHOICES),
    "ppo, choices and masks": (PPO, {"hidden": [16]}, VECTOR, CHOICES, "masked"),
    "ppo, continuous": (PPO, {"hidden": [16]}, VECTOR, MOVES),
    "ppo, a table of numbers": (RAW, {"hidden": [16], "activation": "relu"}, VECTOR, TABLE),
    "convolution": (RAW, {"convolutions": CONVOLUTIONS}, GRID, FOUR),
    "convolution of pixels": (PPO, {"convolutions": CONVOLUTIONS}, PIXELS, CHOICES),
    "convolution of frames": (RAW | {"n_frames": 3}, {"convolutions": CONVOLUTIONS}, PIXELS, FOUR),
    "convolution, continuous": (RAW, {"convolutions": CONVOLUTIONS}, GRID, TABLE),
    "recurrent": (RAW, {"recurrent": 8}, VECTOR, FOUR),
    "recurrent, masks and frames": (
        PPO | {"n_frames": 2},
        {"recurrent": 8},
        VECTOR,
        FOUR,
        "masked",
    ),
    "recurrent dqn": (DQN | {"n_frames": 2}, {"recurrent": 8}, VECTOR, FOUR, "masked"),
    "recurrent iqn": (IQN, {"recurrent": 8, "noisy": True}, VECTOR, CHOICES),
    "recurrent, continuous": (PPO, {"recurrent": 8}, VECTOR, MOVES),
    "recurrent convolution": (RAW, {"convolutions": CONVOLUTIONS, "recurrent": 8}, PIXELS, FOUR),
}


def made(policy, network, sees, does, masked="", name="", game="support:Tape"):
    """A policy of random weights, which prefers different actions at different observations."""
    agent = AgentSpec("agent_0", sees, does, masked=bool(masked))
    network = {"hidden": [16]} | network
    config = load_config({"game": "tag", "policy": policy | {"network": network}})
    (spec,) = policy_specs(config, [agent])
    return with_weights(spec, agent, drawn(spec, sees), name, game)


def with_weights(spec, agent, weights, name="", game=""):
    return Policy(
        spec, Snapshot(weights, version=7, learner_step=3, epsilon=0.1), agent, name, game
    )


def drawn(spec, sees):
    """Weights [P] of which every layer counts, and no action is the best everywhere."""
    network, rng = spec.network(), np.random.default_rng(5)
    stack = ParameterStack(network.shapes, 1)
    parameters = stack.parameters
    network.initialise(parameters, torch.Generator().manual_seed(1))
    for name, values in parameters.items():
        draw = torch.from_numpy(rng.normal(0.0, 0.3, values.shape).astype(np.float32))
        if name.endswith(".variance"):
            values.copy_(draw.abs() * 10.0 + 0.3)
        elif name.endswith("sigma"):  # noise that must not be heard
            values.copy_(draw * 10.0)
        else:
            values.add_(draw)
    seen = observations_of(sees, 100 * spec.config.n_frames, 9).reshape(100, -1)
    with torch.no_grad():
        outputs = PolicyModule(network, parameters)(torch.from_numpy(seen))
        outputs = outputs[0] if network.memory else outputs
        if "head.bias" in parameters:
            parameters["head.bias"][..., -outputs.shape[1] :] -= outputs.mean(0)
        else:
            scales, means = torch.std_mean(outputs[:, : spec.actions.num_logits], 0)
            parameters["policy.weight"] /= scales
            parameters["policy.bias"].sub_(means).div_(scales)
    return stack.flat[0].numpy().copy()


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


def observations_of(space, count, seed):
    space.seed(seed)
    return np.array([space.sample() for _ in range(count)], space.dtype).reshape(-1, *space.shape)


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
        self.shapes = shapes

    @property
    def layers(self):
        return ("new", "old", "head")

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


def test_a_q_network_with_convolutions_a_state_and_masks(exported):
    policy = own(RecurrentPixelQ, PIXELS, masked=True)
    clear, actions = compare(policy, exported(policy), 50, 20, begins=0.1)
    assert clear.sum() >= 990
    assert len(np.unique(actions)) == 4


class LeavesTorch(MLP):
    """Its numbers become constants of the graph; the exporter says nothing."""

    def values(self, weights, inputs):
        return torch.tensor(super().values(weights, inputs).tolist())


class LooksAtNumbers(MLP):
    """It computes something else if the sum is positive, which a graph cannot ask."""

    def values(self, weights, inputs):
        values = super().values(weights, inputs)
        return values if values.sum() > 0.0 else -values


class CountsRows(MLP):
    """The number of rows becomes a constant of the graph, and no other fits."""

    def values(self, weights, inputs):
        return super().values(weights, inputs) * int(inputs.shape[1])


class FitsOneBatch(MLP):
    """It fails where there are other rows than in the example that is traced."""

    def values(self, weights, inputs):
        return super().values(weights, inputs).reshape(1, 3, 4)


@pytest.mark.parametrize("kind", [LeavesTorch, LooksAtNumbers, CountsRows, FitsOneBatch])
def test_a_network_that_is_no_graph_is_refused(kind, tmp_path):
    policy = own(kind, VECTOR)
    words = rf"^agent_0: its network \({kind.__name__}\) cannot be written as ONNX: [^\n]+$"
    with pytest.raises(UsageError, match=words):
        policy.to_onnx(tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


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
        assert "greedy choice" in meta.description
        assert meta.custom_metadata_map == {
            "remuda_version": remuda.__version__,
            "policy": name,
            "policy_version": str(one.version),
            "learner_step": str(one.learner_step),
            "algorithm": "ppo",
            "game": "connect_four",
            "observation_space": str(one.observation_space),
            "observation_shape": "[2, 6, 7]",
            "observation_dtype": str(one.observation_space.dtype),
            "n_frames": "1",
            "action_space": "Discrete(7)",
            "mask_size": "7",
            "recurrent_size": "0",
            "network_output": "logits of all possibilities, choice after choice",
        }
        inputs = {one.name: one for one in session.get_inputs()}
        assert inputs["observation"].shape == ["N", 2, 6, 7]
        assert inputs["mask"].shape == ["N", 7]
        assert len(inputs) == 2
        clear, _ = compare(one, session, 200, 1, begins=0.5)
        assert clear.sum() > 150
        assert one.game == pickle.loads(pickle.dumps(one)).game == "connect_four"


def test_every_input_and_output_is_explained(tmp_path):
    policy = made(*CASES["recurrent, masks and frames"])
    graph = onnx.load(policy.to_onnx(tmp_path / "policy.onnx")).graph
    said = {value.name: value.doc_string for value in (*graph.input, *graph.output)}
    assert said.keys() == {
        *("observation", "mask", "recurrent_state", "starts"),
        *("action", "network_output", "next_recurrent_state"),
    }
    assert all(said.values())
    assert "newest 2 observations of the episode, the oldest first" in said["observation"]
    meaning = {"dqn": "values of all actions", "ppo, continuous": "means, then logarithms"}
    for case, words in meaning.items():
        graph = onnx.load(made(*CASES[case]).to_onnx(tmp_path / "policy.onnx")).graph
        assert words in graph.output[1].doc_string


def test_equal_policies_have_equal_files_that_tell_nothing_of_the_machine(tmp_path):
    case = CASES["recurrent, masks and frames"]
    one = made(*case).to_onnx(tmp_path / "one.onnx").read_bytes()
    assert one == made(*case).to_onnx(str(tmp_path / "other.onnx")).read_bytes()
    for word in (b".py", b"site-packages", str(Path(remuda.__file__).parent).encode(), b"torch"):
        assert word not in one


@pytest.mark.slow
def test_it_does_not_matter_what_torch_is_set_to(tmp_path):
    policy = made(*CASES["recurrent"])
    expected = policy.to_onnx(tmp_path / "one.onnx").read_bytes()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert policy.to_onnx(tmp_path / "two.onnx").read_bytes() == expected


def test_nothing_else_is_changed(tmp_path):
    policy = made(*CASES["recurrent"])
    policy.act(observations_of(policy.observation_space, 3, 0))
    state, weights = policy._own.copy(), policy.weights()
    random, log = torch.random.get_rng_state(), logging.getLogger("torch.onnx")
    log.setLevel(logging.INFO)
    try:
        policy.to_onnx(tmp_path / "policy.onnx")
        assert log.level == logging.INFO
    finally:
        log.setLevel(logging.NOTSET)
    assert (torch.random.get_rng_state() == random).all()
    assert (policy._own.recurrent_state == state.recurrent_state).all()
    assert all((weights[name] == values).all() for name, values in policy.weights().items())


@pytest.mark.slow
def test_nothing_is_said(tmp_path):
    """In a program of a user's, which pytest does not listen to."""
    (tmp_path / "policy").write_bytes(pickle.dumps(made(*CASES["recurrent"])))
    program = "import pickle; pickle.load(open('policy', 'rb')).to_onnx('policy.onnx')"
    words = [sys.executable, "-W", "default::UserWarning", "-W", "default::FutureWarning"]
    done = subprocess.run(
        [*words, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "policy.onnx").stat().st_size > 1000


@pytest.mark.slow
def test_several_threads_may_write(tmp_path):
    policies = [made(*CASES[case]) for case in ("dqn", "ppo", "recurrent")]
    with ThreadPoolExecutor(3) as pool:
        files = [f"{i}.onnx" for i in range(3)]
        paths = list(pool.map(lambda one, file: one.to_onnx(tmp_path / file), policies, files))
    for policy, path in zip(policies, paths, strict=True):
        assert path.read_bytes() == policy.to_onnx(tmp_path / "again.onnx").read_bytes()


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_package_that_is_missing_is_named_with_what_to_do(package, tmp_path, monkeypatch):
    policy = made(*CASES["dqn"])
    monkeypatch.setitem(sys.modules, package, None)
    words = rf"^to_onnx needs packages that are not .*{package}.*: pip install \"remuda\[onnx\]\"$"
    with pytest.raises(UsageError, match=words):
        policy.to_onnx(tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    policy = made(*CASES["dqn"])
    path = tmp_path / "policy.onnx"
    path.write_text("old")

    def full(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(UsageError, match=r"agent_0: cannot write .*policy.onnx: No space left"):
            policy.to_onnx(path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["policy.onnx"]
    policy.to_onnx(path)
    onnx.checker.check_model(str(path))


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    policy = made(*CASES["dqn"])
    with pytest.raises(UsageError, match=r"cannot write .*/nowhere/policy.onnx: No such file"):
        policy.to_onnx(tmp_path / "nowhere" / "policy.onnx")
    with pytest.raises(UsageError, match=r"cannot write .*: Is a directory"):
        policy.to_onnx(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_program_of_the_page_runs_without_remuda(tmp_path):
    """As printed, in a process that cannot import Remuda or torch."""
    page = (Path(__file__).parent.parent / "docs" / "api.md").read_text()
    (program,) = re.findall(r"```python\n(import json\n.*?onnxruntime.*?)```", page, re.DOTALL)
    policy = made(*CASES["recurrent, masks and frames"])
    policy.to_onnx(tmp_path / "agent_0.onnx")
    hidden = "import sys\nsys.modules['remuda'] = sys.modules['torch'] = None\n"
    (tmp_path / "choose.py").write_text(hidden + program)
    words = [sys.executable, "choose.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 10
