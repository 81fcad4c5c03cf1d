"""Export of a policy's greedy actions as an ONNX graph, for programs without torch."""

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
from torch import Tensor, nn

from remuda.errors import UsageError
from remuda.policies.actions import Actions
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.module import place
from remuda.policies.networks.network import Network
from remuda.policies.spec import PolicySpec
from remuda.system.version import __version__
from remuda.types import AgentSpec, Array

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 18  # the oldest operator set that torch's exporter can write
BATCH = "N"  # the batch axis, of any size
EXAMPLES = 3  # batch size of the trace; torch treats 0 and 1 as constants
TOLERANCE = 1e-2  # allowed difference between graph and network, relative to the largest output
_exporting = threading.Lock()  # torch's exporter changes global state and is not thread-safe


@dataclass(frozen=True)
class _Input:
    name: str
    example: Tensor  # [EXAMPLES, ...]
    meaning: str


def onnx_file(
    spec: PolicySpec, network: Network, weights: Weights, agent: AgentSpec, about: Mapping[str, str]
) -> bytes:
    """Return the content of an ONNX file that chooses the policy's greedy actions.

    `_inputs` and `_outputs` define inputs and outputs, each [N, ...]. `weights` are the result of
    `network.acting` for one policy; `about` is further metadata. Raises UsageError if packages are
    missing or the network cannot be exported.
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
            "graph computes different outputs. The network may use only torch operations that are "
            "the same for any batch size, and no random numbers or values computed outside of torch"
        )
    _describe(model, {item.name: item.meaning for item in inputs} | outputs)
    set_model_props(model, {**about, **_metadata(spec, network, agent)})
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _action_space(agent: AgentSpec) -> Space[Any]:
    own = agent.env_action_space
    return agent.action_space if own is None else own


def _start(space: Space[Any]) -> list[int]:
    """Return the smallest value of each discrete choice; empty for continuous actions."""
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
            f"to_onnx needs packages that are not installed ({error}): pip install -e '.[onnx]'"
        ) from None


def _inputs(spec: PolicySpec, network: Network) -> Iterator[_Input]:
    frames = (spec.config.n_frames,) if spec.config.n_frames > 1 else ()
    observation = np.zeros((EXAMPLES, *frames, *spec.observation), spec.dtype)
    meaning = "The observation of the agent"
    if frames:
        meaning = (
            f"The newest {spec.config.n_frames} observations of the episode, the oldest first; "
            "zeros before its start"
        )
    yield _Input("observation", torch.from_numpy(observation), meaning)
    if spec.masked:
        mask = torch.ones(EXAMPLES, spec.actions.mask_size, dtype=torch.bool)
        yield _Input("mask", mask, "The allowed actions, at least one for each choice")
    if network.memory:
        yield _Input(
            "recurrent_state",
            torch.zeros(EXAMPLES, network.memory),
            "next_recurrent_state of the previous step; any numbers at the start of an episode",
        )
        yield _Input(
            "starts",
            torch.ones(EXAMPLES, dtype=torch.bool),
            "Whether the observation is the first of an episode",
        )


def _outputs(spec: PolicySpec, network: Network) -> dict[str, str]:
    outputs = {
        "action": "The greedy action, within its bounds; if several are equally good, the first",
        "network_output": f"The output that sets the action: {spec.action_selector().meaning}",
    }
    if network.memory:
        outputs["next_recurrent_state"] = "For the next step of the same episode"
    return outputs


def _metadata(spec: PolicySpec, network: Network, agent: AgentSpec) -> dict[str, str]:
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
    # Gradients are on, even if the caller disabled them: see `GreedyModule`.
    with _exporting, _quiet(), torch.inference_mode(False), torch.enable_grad():
        program = torch.onnx.export(
            module,
            kwargs={item.name: item.example for item in inputs},
            input_names=[item.name for item in inputs],
            output_names=list(outputs),
            dynamic_shapes={item.name: {0: batch} for item in inputs},
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return program.model_proto


def _agrees(model: ModelProto, module: GreedyModule, inputs: Sequence[_Input]) -> bool:
    """Return whether graph and module compute the same from random inputs, up to rounding.

    They differ if values left torch during tracing, because these become constants in the graph.
    """
    from onnx.reference import ReferenceEvaluator

    rng = np.random.default_rng(0)
    samples = {item.name: _sample(item.example, rng) for item in inputs}
    try:
        with torch.inference_mode():
            expected = module(**{name: torch.tensor(array) for name, array in samples.items()})
        found: Any = ReferenceEvaluator(model).run(None, samples)
    except Exception:  # wrong shapes raise many kinds of errors
        return False
    for array, tensor in zip(found[1:], expected[1:], strict=True):
        wanted = tensor.numpy()
        tolerance = TOLERANCE * np.abs(wanted).max()
        if array.shape != wanted.shape or not np.abs(array - wanted).max() <= tolerance:
            return False
    mask = torch.from_numpy(samples["mask"]) if "mask" in samples else None
    chosen = module.choose(torch.from_numpy(found[1]), mask).numpy()
    if found[0].shape != chosen.shape:
        return False
    # Libraries round functions such as tanh differently.
    tolerance = TOLERANCE * np.abs(chosen).max() if chosen.dtype.kind == "f" else 0.0
    return bool((np.abs(found[0] - chosen) <= tolerance).all())


def _sample(example: Tensor, rng: np.random.Generator) -> Array:
    shape, dtype = (EXAMPLES + 2, *example.shape[1:]), example.numpy().dtype
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings of torch's exporter that are meant for torch's developers."""
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
    """Describe inputs and outputs, and remove paths of this machine."""
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
        "The greedy actions of a policy trained with Remuda. The first axis of all inputs and "
        "outputs is the batch, of any size; their doc_string describes them."
    )


def _first_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    first, *_ = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first}"


class GreedyModule(nn.Module):
    """The greedy actions of a policy at one version, as a torch module."""

    def __init__(
        self,
        network: Network,
        weights: Weights,
        actions: Actions,
        shape: tuple[int, ...],
        start: Sequence[int] = (),
    ) -> None:
        """Copy the weights; `start` is the smallest value of each discrete choice."""
        super().__init__()
        self._start = tuple(start) if any(start) else ()
        self._network, self._actions, self._shape = network, actions, shape
        self._names = tuple(weights)
        for name, values in weights.items():
            # Without gradients, networks compute in place in compiled code, which cannot be
            # exported. So the weights require gradients.
            place(self, name, values.detach().clone(), values.is_floating_point())

    def forward(
        self,
        observation: Tensor,  # [N, *shape], or [N, n_frames, *shape]
        mask: Tensor | None = None,  # [N, mask_size] bool; None: all actions are allowed
        recurrent_state: Tensor | None = None,  # [N, size]
        starts: Tensor | None = None,  # [N] bool, whether an episode starts
    ) -> tuple[Tensor, ...]:
        """Return actions [N, *action shape], outputs [N, O], and the next recurrent state."""
        tensors: Weights = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        weights = {name: tensors[name] for name in self._names}
        inputs = observation.float().flatten(1)[None]
        after: tuple[Tensor, ...] = ()
        if recurrent_state is None or starts is None:
            outputs = self._network.outputs(weights, inputs)
        else:
            before = recurrent_state.masked_fill(starts[:, None], 0.0)
            outputs, state = self._network.step(weights, inputs, before[None])
            after = (state[0],)
        return self.choose(outputs[0], mask), outputs[0], *after

    def choose(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        actions = self._actions.greedy(outputs, mask)
        if self._start:
            actions = actions + torch.tensor(self._start)
        return actions.reshape(-1, *self._shape)
