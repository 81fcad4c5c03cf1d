"""A user's torch module, for K policies at once.

One instance, the pattern, serves as a template and is never trained. `torch.func` runs it with one
policy's parameters, or with the parameters of K policies in one pass.
"""

from __future__ import annotations

import copy
import inspect
import json
import logging
import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parameter import is_lazy

from remuda.envs.observation_parts import Part
from remuda.errors import ConfigError, ContractError
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.networks.per_policy_modules import PerPolicyModules
from remuda.policies.networks.vmap_rules import with_own_parts
from remuda.policies.stack import Parameters
from remuda.system.loading import load

MAX_SEPARATE = 16  # maximum acting policies for which a call for each is faster than `vmap`

Outputs = tuple[Tensor, ...]  # features, and next states of a recurrent module

log = logging.getLogger(__name__)

DROPOUT = nn.modules.dropout._DropoutNd
OWN = (Path(__file__).parents[2], Path(torch.__file__).parent)  # folders that hold no user code


class _Turns:
    """A lock; a copy of it is a new lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[_Turns], tuple[()]]:
        return _Turns, ()


def lifted(
    path: str,
    options: Mapping[str, Any],
    shape: tuple[int, ...],
    key: str = "policy.network.module",  # the setting, for messages
    parts: tuple[Part, ...] = (),  # of a `Dict` or `Tuple` observation
) -> LiftedModule:
    """Return a user's module, loaded and tested once; all callers share it, so copy it first."""
    return _tried(path, json.dumps(options, sort_keys=True), shape, key, parts)


@cache
def _tried(
    path: str, options: str, shape: tuple[int, ...], key: str, parts: tuple[Part, ...]
) -> LiftedModule:
    return LiftedModule(path, json.loads(options), shape, key, parts)


class LiftedModule(Encoder):
    """A module that maps observations [B, *shape] to features [B, F].

    With `takes_parts` it gets a dictionary of an observation's parts instead, each [B, *shape].
    With a `state_size` S it is recurrent: it maps observations and a state [B, S] to features and
    the next state. The state is zero at the start of an episode.

    1. Each policy has its own parameters, drawn by the module from the policy's random generator.
    2. Policies in one pass share nothing. A module that `vmap` does not support is called for one
       policy after another.
    3. An error in user code, when a module is created or tested, reports its file and line.
    """

    def __init__(
        self,
        path: str,
        options: Mapping[str, Any],
        shape: tuple[int, ...],
        key: str = "policy.network.module",
        parts: tuple[Part, ...] = (),
    ) -> None:
        """Create the pattern with the class or function at `path` (`module:Name`).

        The call gets the observation shape (with `takes_parts`, a dictionary of shapes), if there
        is a required positional parameter, and the options as keywords. Stacked frames come first
        in a shape. Raises ConfigError if the module cannot be created, and ContractError if it does
        not return features.
        """
        self._key = f"{key} {path}"
        self._path, self._options, self._shape = path, dict(options), shape
        self._factory = load(path, self._key)
        if isinstance(self._factory, nn.Module):
            raise ConfigError(
                f"{self._key} is a module, which all policies would share; set it to a class, or "
                "to a function that returns a new module"
            )
        takes_parts = getattr(self._factory, "takes_parts", False)
        if takes_parts and not parts:
            raise ConfigError(
                f"{self._key} has takes_parts, but its input is one array of shape {[*shape]}; "
                "remove takes_parts, or use the module for Dict or Tuple observations"
            )
        self._parts = parts if takes_parts else ()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self._pattern = self._make()
        self._refuse_parts()
        held = _held(self._pattern)
        self._floats = {name: t for name, t in held.items() if t.is_floating_point()}
        self._others = {name: t for name, t in held.items() if name not in self._floats}
        # by device, copies of the buffers that are not floats, which all policies share; no copies
        # for the CPU, because the pattern's own buffers are there
        self._moved: dict[torch.device, dict[str, Tensor]] = {torch.device("cpu"): {}}
        self._fixed = frozenset(name for name, _ in self._pattern.named_buffers())
        self.memory = self._state_size(self._pattern)
        self.width = self._try()
        self._calling = _Turns()
        self._pattern, self._liftable = self._copies()
        self._bound = PerPolicyModules(self._pattern, tuple(self._floats))
        self._in_one_pass = self._can_be_lifted()

    def shapes(self, tower: str) -> dict[str, tuple[int, ...]]:
        return {f"{tower}_module.{name}": tuple(t.shape) for name, t in self._floats.items()}

    def buffers(self, tower: str) -> frozenset[str]:
        """Return the module's floating-point buffers."""
        return frozenset(f"{tower}_module.{name}" for name in self._floats if name in self._fixed)

    def initialise(self, tower: str, parameters: Parameters, generator: torch.Generator) -> None:
        seed = int(torch.randint(2**62, (1,), generator=generator))
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            fresh = self._make()
            for name, value in _held(fresh).items():
                if name in self._floats:
                    parameters[f"{tower}_module.{name}"].copy_(value)

    def features(self, tower: str, weights: Weights, inputs: Tensor) -> Tensor:
        (found,) = self._pass(tower, weights, inputs)
        return found

    def step(
        self, tower: str, weights: Weights, inputs: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        found, after = self._pass(tower, weights, inputs, state)
        return found, after

    def _pass(self, tower: str, weights: Weights, inputs: Tensor, *state: Tensor) -> Outputs:
        """Return the module's outputs for K policies, each [K, B, ...]."""
        policies, batch, _ = inputs.shape
        own = self._own(tower, weights)
        arguments = (inputs.reshape(policies, batch, *self._shape), *state)
        per_policy = policies <= MAX_SEPARATE or not self._in_one_pass
        bound = self._bound.of(own) if per_policy and torch.is_inference_mode_enabled() else None
        if bound is not None:  # acting
            made = [
                module(*self._given(*(x[k] for x in arguments))) for k, module in enumerate(bound)
            ]
            if not self.memory:
                return (torch.stack(made),)
            return tuple(torch.stack(parts) for parts in zip(*made, strict=True))
        others = self._others_on(inputs.device)
        if policies > 1 and self._in_one_pass:
            return self._in_vmap(own, others, *arguments)
        each = [
            self._call(
                self._pattern,
                {name: w[k] for name, w in own.items()} | others,
                *(part[k] for part in arguments),
            )
            for k in range(policies)
        ]
        return tuple(torch.stack(parts) for parts in zip(*each, strict=True))

    def _in_vmap(
        self, own: Mapping[str, Tensor], others: Mapping[str, Tensor], *arguments: Tensor
    ) -> Outputs:
        def call(own: Mapping[str, Tensor], *arguments: Tensor) -> Outputs:
            return self._call(self._liftable, {**own, **others}, *arguments)

        with sdpa_kernel(SDPBackend.MATH):  # `vmap` runs the other kernels in a loop
            found: Outputs = vmap(call)(own, *arguments)
        return found

    def _own(self, tower: str, weights: Weights) -> dict[str, Tensor]:
        return {name: weights[f"{tower}_module.{name}"] for name in self._floats}

    def bind(self, weights: Weights) -> None:
        """Make modules that read these weights in place, for inference passes on the CPU."""
        end = f"_module.{next(iter(self._floats), None)}"
        for name, weight in weights.items():
            tower = name.removesuffix(end)
            # Parameters of submodules may have names with the same ending.
            is_tower = name.endswith(end) and self.shapes(tower).keys() <= weights.keys()
            if is_tower and weight.device.type == "cpu":
                self._bound.bind(self._own(tower, weights))

    def _others_on(self, device: torch.device) -> dict[str, Tensor]:
        if device not in self._moved:
            with torch.inference_mode(False):  # a later pass may need gradients
                self._moved[device] = {name: t.to(device) for name, t in self._others.items()}
        return self._moved[device]

    def _call(
        self, module: nn.Module, weights: Mapping[str, Tensor], *arguments: Tensor
    ) -> Outputs:
        with self._calling:
            found = functional_call(module, dict(weights), self._given(*arguments))
        return tuple(found) if self.memory else (found,)

    def _given(self, observations: Tensor, *state: Tensor) -> tuple[Any, ...]:
        """Return a module's arguments for observations [B, *shape], which may be split in parts."""
        if not self._parts:
            return (observations, *state)
        parts = {
            part.name: observations[..., part.start : part.start + part.size].reshape(
                *observations.shape[:-1], *part.shape
            )
            for part in self._parts
        }
        return (parts, *state)

    def _make(self) -> nn.Module:
        shape = {part.name: (*self._shape[:-1], *part.shape) for part in self._parts}
        arguments: tuple[Any, ...] = (shape or self._shape,) if _takes_shape(self._factory) else ()
        made = self._of_user(
            lambda: self._factory(*arguments, **self._options),
            f"with {'the observation shape, and ' if arguments else ''}network.options as keywords",
        )
        if not isinstance(made, nn.Module):
            raise ConfigError(f"{self._key} returned {type(made).__name__}, not a torch.nn.Module")
        if getattr(made, "takes_parts", False) and not self._parts:
            raise ConfigError(
                f"{self._key} returned a module with takes_parts, but has no takes_parts itself; "
                "set it on the function too"
            )
        if any(map(is_lazy, _held(made).values())):
            self._call_once(made, self._state_size(made))  # this initialises lazy parts
        for part in made.modules():
            if isinstance(part, DROPOUT) and not part.p:
                part.eval()  # the identity; `vmap` does not support the call in training mode
        return made

    def _refuse_parts(self) -> None:
        """Refuse layers and parameters that policies in one pass cannot have."""
        for name, part in self._pattern.named_modules():
            if _mixes_samples(part):
                raise ConfigError(
                    f"{self._key}: {name or 'it'} is {type(part).__name__}, but the features of an "
                    "observation may not depend on other samples or random numbers; use LayerNorm "
                    "or GroupNorm, and set dropout to 0"
                )
        for name, tensor in _held(self._pattern).items():
            if is_lazy(tensor):
                raise ConfigError(
                    f"{self._key}: {name} is lazy and has no shape after a call with an "
                    "observation; leave the part out that forward does not use"
                )
            if isinstance(tensor, nn.Parameter) and not tensor.is_floating_point():
                raise ConfigError(
                    f"{self._key}: the parameter {name} is {str(tensor.dtype)[6:]}; parameters "
                    "must be real floating-point numbers"
                )

    def _state_size(self, module: nn.Module) -> int:
        size = getattr(module, "state_size", 0)
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ConfigError(
                f"{self._key} has a state_size of {size!r}; it must be 0 or a positive integer"
            )
        return size

    def _try(self) -> int:
        """Call the module with two observations; return the number of features."""
        found, state = self._call_once(self._pattern, self.memory), [2, self.memory]
        if self.memory:
            pair = isinstance(found, tuple | list) and len(found) == 2
            if not pair or _shape(found[1]) != state:
                made = f"a state {_shape(found[1])}" if pair else type(found).__name__
                raise ContractError(
                    f"{self._key} returned {made} for two observations and a state {state}; with a "
                    f"state_size of {self.memory} it must return features [B, F] and the next "
                    f"state, [B, {self.memory}]"
                )
            found = found[0]
        if not isinstance(found, Tensor) or found.dim() != 2 or found.shape[0] != 2:
            raise ContractError(
                f"{self._key} returned {_shape(found)} for observations {self._of_two()}; it "
                "must return features [B, F], a row for each observation; nn.Flatten at its end "
                "may help"
            )
        return int(found.shape[1])

    def _call_once(self, module: nn.Module, memory: int) -> Any:
        """Return the outputs for observations [2, *shape] and a state [2, memory], all zeros."""
        zeros, state = torch.zeros(2, *self._shape), [2, memory]
        how = f"on {self._of_two()} float32" + (f" and a state {state}" if memory else "")
        arguments = (zeros, torch.zeros(state)) if memory else (zeros,)
        with torch.no_grad():
            return self._of_user(lambda: module(*self._given(*arguments)), how)

    def _of_two(self) -> str:
        """Return the shapes of two observations, for messages."""
        frames = [2, *self._shape[:-1]]
        parts = ", ".join(f"{part.name}: {[*frames, *part.shape]}" for part in self._parts)
        return f"{{{parts}}}" if parts else str([2, *self._shape])

    def _copies(self) -> tuple[nn.Module, nn.Module]:
        """Return copies of the module: for one policy at a time, and for `vmap`."""
        try:
            pattern = copy.deepcopy(with_own_parts(self._pattern, nn.Linear, nn.Tanh))
        except Exception as error:  # user attributes may raise anything
            raise ConfigError(
                f"{self._key} cannot be copied ({type(error).__name__}: {error}), and each process "
                "and caller needs a copy; keep locks, files and the like outside the module"
            ) from None
        return pattern, with_own_parts(pattern, nn.LSTMCell)

    def _can_be_lifted(self) -> bool:
        pairs = {name: torch.stack((t, t)).detach() for name, t in self._floats.items()}
        zeros = torch.zeros(2, 2, *self._shape)
        inputs = (zeros, zeros.new_zeros(2, 2, self.memory)) if self.memory else (zeros,)
        try:
            with torch.no_grad():
                self._in_vmap(pairs, self._others, *inputs)
        except Exception as error:  # torch may raise anything
            own = {name: pair[0] for name, pair in pairs.items()} | self._others
            with torch.no_grad():
                self._of_user(
                    lambda: self._call(self._pattern, own, *(part[0] for part in inputs)),
                    "by torch.func.functional_call with a policy's weights",
                )
            log.warning(
                "%s: torch.func.vmap cannot run it (%s), so it runs for one policy after another",
                self._key,
                str(error).partition("\n")[0],
            )
            return False
        return True

    def _of_user(self, call: Callable[[], Any], how: str) -> Any:
        """Call user code; report exceptions as errors of the user's module."""
        try:
            return call()
        except Exception as error:
            lines = [
                line
                for line in extract_tb(error.__traceback__)
                if not any(Path(line.filename).is_relative_to(own) for own in OWN)
            ]
            where = f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""
            message = " ".join(str(error).split())
            raise ConfigError(
                f"{self._key} was called {how}: {type(error).__name__}: {message}{where}"
            ) from None


def _shape(made: object) -> object:
    return [*made.shape] if isinstance(made, Tensor) else type(made).__name__


def _held(module: nn.Module) -> dict[str, Tensor]:
    """Return a mapping from names to a module's parameters and buffers."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _mixes_samples(part: nn.Module) -> bool:
    """Return whether a layer's results depend on other samples or on random numbers."""
    return isinstance(part, nn.modules.batchnorm._BatchNorm | nn.RReLU) or _dropout(part) > 0.0


def _dropout(part: nn.Module) -> float:
    """Return the probability with which a layer drops numbers."""
    if isinstance(part, DROPOUT):
        return part.p
    return part.dropout if isinstance(part, nn.MultiheadAttention | nn.RNNBase) else 0.0


def _takes_shape(factory: Callable[..., Any]) -> bool:
    """Return whether a factory has a required positional parameter."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return True
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in places and p.default is p.empty for p in parameters)
