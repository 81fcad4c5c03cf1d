"""A torch module of the user's own, for K policies at once.

The module is made once as a pattern and never trained; the parameters of K policies are handed to
it by `torch.func.functional_call`, and `torch.func.vmap` brings all of them through in one pass.
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

from remuda.errors import ConfigError, ContractError
from remuda.loading import load
from remuda.policies.networks.bound import BoundModules
from remuda.policies.networks.cells import with_own_parts
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.stack import Parameters

FEW = 16
"""Policies for which it takes less time to call their modules one after another, as they act."""

Outputs = tuple[Tensor, ...]
"""Features, and of a recurrent module the state after."""

log = logging.getLogger(__name__)

REFUSED = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
"""Layers whose passes depend on other samples, or on chance beside the policy's own."""
OWN = (Path(__file__).parents[2], Path(torch.__file__).parent)
"""Where no line of a user's module is."""


class _Turns:
    """A lock for one pass at a time; a copy is a lock of its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[_Turns], tuple[()]]:
        return _Turns, ()


def lifted(path: str, options: Mapping[str, Any], shape: tuple[int, ...]) -> LiftedModule:
    """A module of the user's, found, checked and tried once in a process.

    Each caller has a pattern of its own: while a pass is under way its weights stand in there, and
    another thread may bring another policy through its own. Threads that share one wait for each
    other.
    """
    return copy.deepcopy(_tried(path, json.dumps(options, sort_keys=True), shape))


def memory_of_module(path: str, options: Mapping[str, Any], shape: tuple[int, ...]) -> int:
    """The `state_size` of a module of the user's; 0: it has none."""
    return _tried(path, json.dumps(options, sort_keys=True), shape).memory


@cache
def _tried(path: str, options: str, shape: tuple[int, ...]) -> LiftedModule:
    return LiftedModule(path, json.loads(options), shape)


class LiftedModule(Encoder):
    """A module that maps observations [B, *shape] to features [B, F].

    One with a `state_size` S is recurrent: it is called with observations and a state [B, S], zeros
    where an episode begins, and returns features and the state after.

    What it guarantees:

    1. Each policy has parameters of its own, drawn as the module itself draws them, from the
       policy's own stream of random numbers.
    2. Policies in one pass share nothing; a module that cannot be brought through `vmap` is called
       for one policy after another.
    3. What is refused is told with the line of the module where it happened.
    """

    def __init__(self, path: str, options: Mapping[str, Any], shape: tuple[int, ...]) -> None:
        """Make the pattern.

        Args:
            path: `module:Name` of a class, or of a function that returns a module. It is called
                with the shape of an observation, where it takes one, and with the options by name.
            options: of the user's.
            shape: of an observation; where frames are stacked, their number comes first.

        Raises:
            ConfigError: there is none, or it cannot be made with these options.
            ContractError: it does not map such observations to features.
        """
        self._key = f"policy.network.module {path}"
        self._path, self._options, self._shape = path, dict(options), shape
        self._factory = load(path, self._key)
        if isinstance(self._factory, nn.Module):
            raise ConfigError(
                f"{self._key} is a module, which all policies would share; name its class, or a "
                "function that returns a new one"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self._pattern = self._make()
        for name, part in self._pattern.named_modules():
            if isinstance(part, REFUSED):
                raise ConfigError(
                    f"{self._key}: {name or 'it'} is {type(part).__name__}, and what a policy "
                    "makes of an observation may not depend on others or on chance; LayerNorm and "
                    "GroupNorm do not"
                )
        held = [*self._pattern.named_parameters(), *self._pattern.named_buffers()]
        self._floats = {name: t for name, t in held if t.is_floating_point()}
        self._others = {name: t for name, t in held if name not in self._floats}
        self._moved: dict[torch.device, dict[str, Tensor]] = {torch.device("cpu"): {}}
        """By device: the buffers that are no real numbers, which are the same for every policy. On
        the processor the module has them itself."""
        self._fixed = frozenset(name for name, _ in self._pattern.named_buffers())
        self.memory = self._state_size()
        self.width = self._try()
        self._calling = _Turns()
        self._pattern, self._liftable = self._copies()
        self._bound = BoundModules(self._pattern, tuple(self._floats))
        self._in_one_pass = self._can_be_lifted()

    def shapes(self, tower: str) -> dict[str, tuple[int, ...]]:
        """The module's parameters and buffers of real numbers."""
        return {f"{tower}_module.{name}": tuple(t.shape) for name, t in self._floats.items()}

    def buffers(self, tower: str) -> frozenset[str]:
        """The module's own."""
        return frozenset(f"{tower}_module.{name}" for name in self._floats if name in self._fixed)

    def initialise(self, tower: str, parameters: Parameters, generator: torch.Generator) -> None:
        """Let the module draw its weights, for one policy."""
        seed = int(torch.randint(2**62, (1,), generator=generator))
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            fresh = self._make()
            for name, value in [*fresh.named_parameters(), *fresh.named_buffers()]:
                if name in self._floats:
                    parameters[f"{tower}_module.{name}"].copy_(value)

    def features(self, tower: str, weights: Weights, inputs: Tensor) -> Tensor:
        """Features [K, B, width] of inputs [K, B, num_inputs], where it is not recurrent."""
        (found,) = self._pass(tower, weights, inputs)
        return found

    def step(
        self, tower: str, weights: Weights, inputs: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same where there is a state [K, B, memory], and what that becomes."""
        found, after = self._pass(tower, weights, inputs, state)
        return found, after

    def _pass(self, tower: str, weights: Weights, inputs: Tensor, *state: Tensor) -> Outputs:
        """What the module returns for K policies, each part [K, B, ...]."""
        policies, batch, _ = inputs.shape
        own = self._own(tower, weights)
        given = (inputs.reshape(policies, batch, *self._shape), *state)
        few = policies <= FEW or not self._in_one_pass
        bound = self._bound.of(own) if few and torch.is_inference_mode_enabled() else None
        if bound is not None:  # they act
            made = [module(*(x[k] for x in given)) for k, module in enumerate(bound)]
            if not self.memory:
                return (torch.stack(made),)
            return tuple(torch.stack(parts) for parts in zip(*made, strict=True))
        others = self._others_on(inputs.device)
        if policies > 1 and self._in_one_pass:

            def call(own: Mapping[str, Tensor], *given: Tensor) -> Outputs:
                return self._call_liftable({**own, **others}, *given)

            found: Outputs = vmap(call)(own, *given)
            return found
        each = [
            self._call(
                {name: w[k] for name, w in own.items()} | others, *(part[k] for part in given)
            )
            for k in range(policies)
        ]
        return tuple(torch.stack(parts) for parts in zip(*each, strict=True))

    def _own(self, tower: str, weights: Weights) -> dict[str, Tensor]:
        """The weights of a tower's module, by their names there."""
        return {name: weights[f"{tower}_module.{name}"] for name in self._floats}

    def bind(self, weights: Weights) -> None:
        """Make modules that look at these weights, for passes in inference mode.

        Only on the processor: elsewhere it is the number of operations that takes time.
        """
        end = f"_module.{next(iter(self._floats), None)}"
        for name, weight in weights.items():
            tower = name.removesuffix(end)
            # Names of the module's own parts may end like that, too.
            is_tower = name.endswith(end) and self.shapes(tower).keys() <= weights.keys()
            if is_tower and weight.device.type == "cpu":
                self._bound.bind(self._own(tower, weights))

    def _others_on(self, device: torch.device) -> dict[str, Tensor]:
        """The buffers that are no real numbers, where a pass is; brought there once."""
        if device not in self._moved:
            with torch.inference_mode(False):  # the first pass may act, and a later one learn
                self._moved[device] = {name: t.to(device) for name, t in self._others.items()}
        return self._moved[device]

    def _call(self, weights: Mapping[str, Tensor], *given: Tensor) -> Outputs:
        """Of one policy: what the module returns, as a tuple."""
        with self._calling:
            found = functional_call(self._pattern, dict(weights), given)
        return tuple(found) if self.memory else (found,)

    def _call_liftable(self, weights: Mapping[str, Tensor], *given: Tensor) -> Outputs:
        """The same by operations that can be brought through `vmap`, as far as there are such."""
        with self._calling:
            found = functional_call(self._liftable, dict(weights), given)
        return tuple(found) if self.memory else (found,)

    def _make(self) -> nn.Module:
        arguments: tuple[Any, ...] = (self._shape,) if _takes_shape(self._factory) else ()
        made = self._of_user(
            lambda: self._factory(*arguments, **self._options),
            "with the shape of an observation and network.options by name",
        )
        if not isinstance(made, nn.Module):
            raise ConfigError(f"{self._key} gave {type(made).__name__}, and no torch.nn.Module")
        return made

    def _state_size(self) -> int:
        """Numbers that it keeps; 0: it is not recurrent."""
        size = getattr(self._pattern, "state_size", 0)
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ConfigError(
                f"{self._key} has a state_size of {size!r}; it must be a whole number"
            )
        return size

    def _try(self) -> int:
        """How many features it gives of two observations."""
        given: Outputs = (torch.zeros(2, *self._shape),)
        how = f"on {[2, *self._shape]} float32"
        if self.memory:
            given, how = (*given, torch.zeros(2, self.memory)), f"{how} and a state {self._state}"
        with torch.no_grad():
            found = self._of_user(lambda: self._pattern(*given), how)
        if self.memory:
            found = self._checked(found)
        zeros = given[0]
        if not isinstance(found, Tensor) or found.dim() != 2 or found.shape[0] != 2:
            shape = [*found.shape] if isinstance(found, Tensor) else type(found).__name__
            raise ContractError(
                f"{self._key} made {shape} of observations {[*zeros.shape]}; it must give features "
                "[B, F], a row for each observation: end it with Flatten"
            )
        return int(found.shape[1])

    @property
    def _state(self) -> list[int]:
        """The shape of a state of two observations."""
        return [2, self.memory]

    def _checked(self, found: Any) -> Any:
        """The features, where a state came with them."""
        pair = isinstance(found, tuple | list) and len(found) == 2
        shapes = [
            [*part.shape] if isinstance(part, Tensor) else type(part).__name__
            for part in (found if pair else ())
        ]
        if not pair or shapes[1] != self._state:
            made = f"a state {shapes[1]}" if pair else type(found).__name__
            raise ContractError(
                f"{self._key} made {made} of two observations and a state {self._state}; with a "
                f"state_size of {self.memory} it must return features [B, F] and the state after, "
                f"[B, {self.memory}]"
            )
        return found[0]

    def _copies(self) -> tuple[nn.Module, nn.Module]:
        """The module as one policy is brought through it, and as several are."""
        try:
            pattern = copy.deepcopy(with_own_parts(self._pattern, nn.Linear, nn.Tanh))
        except Exception as error:  # whatever the user's attributes say
            raise ConfigError(
                f"{self._key} cannot be copied ({type(error).__name__}: {error}), and each process "
                "and caller has one of its own; keep locks, files and the like outside of it"
            ) from None
        return pattern, with_own_parts(pattern, nn.LSTMCell)

    def _can_be_lifted(self) -> bool:
        """Whether `vmap` brings two policies through it; if not, that is told once."""
        two = {name: torch.stack((t, t)).detach() for name, t in self._floats.items()}
        try:
            with torch.no_grad():
                state = (torch.zeros(2, 2, self.memory),) if self.memory else ()
                vmap(self._call_liftable)(two, torch.zeros(2, 2, *self._shape), *state)
        except Exception as error:  # whatever torch finds that it cannot lift
            log.warning(
                "%s: torch.func.vmap cannot lift it (%s), so its policies are brought through it "
                "one after another",
                self._key,
                str(error).partition("\n")[0],
            )
            return False
        return True

    def _of_user(self, call: Callable[[], Any], how: str) -> Any:
        """What a call of the user's code returns; what it raises is told as the user's."""
        try:
            return call()
        except Exception as error:
            lines = [
                line
                for line in extract_tb(error.__traceback__)
                if not any(Path(line.filename).is_relative_to(own) for own in OWN)
            ]
            where = f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""
            raise ConfigError(
                f"{self._key} was called {how}: {type(error).__name__}: {error}{where}"
            ) from None


def _takes_shape(factory: Callable[..., Any]) -> bool:
    """Whether it has a parameter that is given by its place."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return True
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in places and p.default is p.empty for p in parameters)
