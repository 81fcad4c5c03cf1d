"""A policy as an ONNX file: its greedy choice as one graph, for programs without torch."""

from __future__ import annotations

import json
import logging
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from torch import Tensor

from remuda.errors import UsageError
from remuda.policies.greedy import GreedyModule
from remuda.types import AgentSpec, Array
from remuda.version import __version__

if TYPE_CHECKING:
    from onnx import ModelProto

    from remuda.policies.networks.encoder import Weights
    from remuda.policies.networks.network import Network
    from remuda.policies.spec import PolicySpec

OPSET = 18
"""Of the standard operators; the oldest that torch's exporter writes, so that most can read it."""
BATCH = "N"
"""The axis of the batch, which may be of any size."""
EXAMPLES = 3
"""Rows of the batch that the graph is traced with: neither 0 nor 1, which torch takes for fixed."""
TOLERANCE = 1e-2
"""How far the numbers of the graph may lie from those of the network, relative to the greatest: far
more than rounding, far less than what a graph of something else computes."""
_exporting = threading.Lock()
"""Held while torch exports: it changes what is global, and is not made for several threads."""


@dataclass(frozen=True)
class _Input:
    """One input of the graph."""

    name: str
    example: Tensor
    """[EXAMPLES, ...]."""
    meaning: str


def onnx_file(
    spec: PolicySpec,
    network: Network,
    weights: Weights,
    agent: AgentSpec,
    about: Mapping[str, str],
) -> bytes:
    """Return the content of a file whose graph chooses what the policy chooses greedily.

    Inputs, each [N, ...]: `observation`; `mask` where there are masks; `recurrent_state` and
    `starts` where the network is recurrent. Outputs: `action`, `network_output`, and
    `next_recurrent_state` where it is recurrent.

    Args:
        spec: of the policy.
        network: of the policy.
        weights: of one policy, as `network.acting` makes them, on the processor.
        agent: that it was trained as, or one like it.
        about: what else the file tells of itself, beside `_metadata`.

    Raises:
        UsageError: what it takes is not installed, or the network is made of what ONNX lacks.
    """
    _check_installed()
    from onnx.helper import set_model_props

    inputs = tuple(_inputs(spec, network))
    outputs = _outputs(spec, network)
    space = _action_space(agent)
    shape = (spec.actions.size,) if space.shape is None else space.shape
    module = GreedyModule(network, weights, spec.actions, shape, _start(space)).eval()
    try:
        model = _export(module, inputs, tuple(outputs))
    except torch.onnx.OnnxExporterError as error:
        raise UsageError(
            f"{spec.name}: its network ({type(network).__name__}) cannot be written as ONNX: "
            f"{_first_cause(error)}"
        ) from None
    if not _agrees(model, module, inputs):
        raise UsageError(
            f"{spec.name}: its network ({type(network).__name__}) cannot be written as ONNX: the "
            "graph computes something else. It must be made of operations of torch alone, the same "
            "for any number of rows, without numbers that are taken out of torch or drawn"
        )
    _describe(model, {one.name: one.meaning for one in inputs} | outputs)
    set_model_props(model, {**about, **_metadata(spec, network, agent)})
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _action_space(agent: AgentSpec) -> Space[Any]:
    """The environment's own."""
    own = agent.env_action_space
    return agent.action_space if own is None else own


def _start(space: Space[Any]) -> list[int]:
    """The number of the first action of each choice, part after part; of others nothing."""
    if isinstance(space, Dict | Tuple):
        parts = space.spaces.values() if isinstance(space, Dict) else space.spaces
        return [start for part in parts for start in _start(part)]
    if isinstance(space, MultiBinary):
        return [0] * int(np.prod(space.shape))
    if isinstance(space, Discrete | MultiDiscrete):
        found: list[int] = np.ravel(space.start).tolist()
        return found
    return []


def _check_installed() -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f'to_onnx needs packages that are not installed ({error}): pip install "remuda[onnx]"'
        ) from None


def _inputs(spec: PolicySpec, network: Network) -> Iterator[_Input]:
    frames = (spec.config.n_frames,) if spec.config.n_frames > 1 else ()
    observation = np.zeros((EXAMPLES, *frames, *spec.observation), spec.dtype)
    meaning = "What the agent observes"
    if frames:
        meaning = (
            f"The newest {spec.config.n_frames} observations of the episode, the oldest first; "
            "zeros for those before its start"
        )
    yield _Input("observation", torch.from_numpy(observation), meaning)
    if spec.masked:
        mask = torch.ones(EXAMPLES, spec.actions.mask_size, dtype=torch.bool)
        yield _Input("mask", mask, "Which actions are allowed; for each choice at least one")
    if network.memory:
        yield _Input(
            "recurrent_state",
            torch.zeros(EXAMPLES, network.memory),
            "next_recurrent_state of the step before; any numbers where an episode starts",
        )
        yield _Input(
            "starts",
            torch.ones(EXAMPLES, dtype=torch.bool),
            "Whether the observation is the first of an episode",
        )


def _outputs(spec: PolicySpec, network: Network) -> dict[str, str]:
    """By name, what they mean."""
    outputs = {
        "action": "The greedy action, within its bounds; of equal ones the first",
        "network_output": f"What it is chosen by: {spec.action_selector().meaning}",
    }
    if network.memory:
        outputs["next_recurrent_state"] = "For the next step of the same episode"
    return outputs


def _metadata(spec: PolicySpec, network: Network, agent: AgentSpec) -> dict[str, str]:
    """What a program must know that has nothing but the file."""
    return {
        "remuda_version": __version__,
        "algorithm": spec.config.algorithm,
        "observation_space": str(agent.observation_space),
        "env_observation_space": str(agent.env_observation_space or agent.observation_space),
        "observation_shape": json.dumps(spec.observation),
        "observation_dtype": str(np.dtype(spec.dtype)),
        "n_frames": str(spec.config.n_frames),
        "action_space": str(_action_space(agent)),
        "mask_size": str(spec.actions.mask_size if spec.masked else 0),
        "recurrent_size": str(network.memory),
        "network_output": spec.action_selector().meaning,
    }


def _export(module: GreedyModule, inputs: Sequence[_Input], outputs: Sequence[str]) -> ModelProto:
    batch = torch.export.Dim(BATCH)
    # Gradients are on, whatever the caller's mode is: see `GreedyModule`.
    with _exporting, _quiet(), torch.inference_mode(False), torch.enable_grad():
        program = torch.onnx.export(
            module,
            kwargs={one.name: one.example for one in inputs},
            input_names=[one.name for one in inputs],
            output_names=list(outputs),
            dynamic_shapes={one.name: {0: batch} for one in inputs},
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return program.model_proto


def _agrees(model: ModelProto, module: GreedyModule, inputs: Sequence[_Input]) -> bool:
    """Whether the graph computes what the module computes, but for rounding.

    What leaves torch while it is traced becomes a constant, of which the exporter does not warn. So
    random inputs go through both, in a batch of another size than the graph was traced with.
    """
    from onnx.reference import ReferenceEvaluator

    rng = np.random.default_rng(0)
    given = {one.name: _random(one.example, rng) for one in inputs}
    try:
        with torch.inference_mode():
            expected = module(**{name: torch.tensor(array) for name, array in given.items()})
        found: Any = ReferenceEvaluator(model).run(None, given)
    except Exception:  # of all kinds, where shapes do not fit
        return False
    for array, tensor in zip(found[1:], expected[1:], strict=True):
        wanted = tensor.numpy()
        tolerance = TOLERANCE * np.abs(wanted).max()
        if array.shape != wanted.shape or not np.abs(array - wanted).max() <= tolerance:
            return False
    mask = torch.from_numpy(given["mask"]) if "mask" in given else None
    chosen = module.choose(torch.from_numpy(found[1]), mask).numpy()
    return found[0].shape == chosen.shape and bool((found[0] == chosen).all())


def _random(example: Tensor, rng: np.random.Generator) -> Array:
    """An input like the example, of other numbers and more rows."""
    shape, dtype = (EXAMPLES + 2, *example.shape[1:]), example.numpy().dtype
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)


@contextmanager
def _quiet() -> Iterator[None]:
    """Inside the `with`, keep back what torch's exporter warns of: it concerns torch's developers.

    What goes wrong raises all the same.
    """
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _describe(model: ModelProto, meanings: Mapping[str, str]) -> None:
    """Say what the file is and means, and leave out where on this machine it was made."""
    for node in model.graph.node:  # lines of source files, with their paths
        del node.metadata_props[:]
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        del value.metadata_props[:]
        value.doc_string = meanings.get(value.name, "")
    for weight in model.graph.initializer:
        del weight.metadata_props[:]
    del model.graph.metadata_props[:]
    model.graph.name = "policy"
    model.producer_name, model.producer_version = "remuda", __version__
    model.doc_string = (
        "The greedy choice of a policy trained with Remuda. The first axis of all inputs and "
        "outputs is the batch, of any size; their doc_string tells what they are."
    )


def _first_cause(error: BaseException) -> str:
    """What it all began with, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    first, *_ = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first}"
