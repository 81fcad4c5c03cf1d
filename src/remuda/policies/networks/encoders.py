"""The choice of an encoder: convolutions, or a user's module."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from remuda.errors import ConfigError, ContractError
from remuda.policies.networks.encoder import Encoder
from remuda.policies.networks.lifted import lifted
from remuda.policies.networks.pictures import Convolutions, PictureEncoder

if TYPE_CHECKING:
    from remuda.policies.spec import PolicySpec


def encoder_for(spec: PolicySpec) -> Encoder | None:
    """Return the encoder, None if there is none; raise ConfigError or ContractError."""
    network = spec.config.network
    if network.module:
        # Each caller gets its own pattern for its threads.
        found = copy.deepcopy(lifted(network.module, network.options, _shape_of(spec)))
        if found.memory:
            _check_recurrent(spec)
        return found
    if network.convolutions:
        return _convolutions(spec)
    return None


def _convolutions(spec: PolicySpec) -> Encoder:
    network, size, pictures = spec.config.network, spec.observation_size, spec.pictures
    if not pictures:
        raise ContractError(
            "network.convolutions need pictures, arrays of two or three dimensions; the "
            f"observation is of shape {spec.observation}"
        )
    layers, activation = network.convolutions, network.activation
    if len(pictures) == 1 and pictures[0].end - pictures[0].start == size:
        return Convolutions(layers, activation, pictures[0].image)
    return PictureEncoder(layers, activation, pictures, size, spec.config.n_frames)


def memory_of(spec: PolicySpec) -> int:
    """Return the size of the recurrent state of a policy's module; errors as in `encoder_for`."""
    network = spec.config.network
    return lifted(network.module, network.options, _shape_of(spec)).memory or network.recurrent


def _shape_of(spec: PolicySpec) -> tuple[int, ...]:
    """Return the input shape of a user's module; stacked frames come first."""
    frames = (spec.config.n_frames,) if spec.config.n_frames > 1 else ()
    return (*frames, *spec.observation)


def _check_recurrent(spec: PolicySpec) -> None:
    """Refuse a recurrent module where `network.recurrent` is refused, or is set as well."""
    config, network = spec.config, spec.config.network
    problem = f"policy.network.module {network.module} has a state_size"
    if network.recurrent:
        raise ConfigError(f"{problem}, and network.recurrent is {network.recurrent}; set that to 0")
    if config.shares_network is False:
        raise ConfigError(f"{problem}, which needs network.shared true: there is one memory")
    if config.experience.group:
        raise ConfigError(
            f"{problem}, and experience.group is for policies without a memory: what another kept "
            "in mind is of no use"
        )
    if config.rollout_length and config.ppo.anchor_cost:
        raise ConfigError(f"{problem}, and ppo.anchor_cost is for policies without a memory")
    try:
        config.check_waiting(recurrent=True)
    except ValueError as error:
        raise ConfigError(f"{problem}, so that batches are whole segments, and {error}") from None
