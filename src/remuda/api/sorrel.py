"""Train the agents of a Sorrel environment in a script, and get their models back.

    import remuda.api.sorrel

    environment = TreasurehuntEnv(world, config)
    result = remuda.api.sorrel.train(environment, run={"turns": 200_000})
    environment.reset()
    environment.take_turn()      # with the trained models

Each agent learns independently. If its model is a PyTorchIQN, Remuda trains a network of the same
sizes and copies the weights into both of the model's networks. Other models stay unchanged, and
their agents train the network of the configuration. The models of scripted agents (`env.scripted`)
stay unchanged too.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from remuda.api.run import load
from remuda.api.train import train as train_run
from remuda.config import load_config, overlay
from remuda.errors import UsageError
from remuda.training.python_settings import gone_on_with, name_objects, tree_of
from remuda.types import Floats

if TYPE_CHECKING:
    from remuda.evaluation.policy import Policy
    from remuda.runs.result import Result

__all__ = ["put_back", "train"]

log = logging.getLogger(__name__)

NAMES = {
    f"{layer}.{part}"
    for layer in ("state", "quantile", "hidden0", "head")
    for part in ("weight", "bias")
}
"""The weights of Remuda's IQN that a PyTorchIQN also has."""
NO_SECTIONS = ("preset", "resume", "view", "callbacks")
"""Keywords of `remuda.train` that are not sections of the configuration."""
DEFAULTS: dict[str, dict[str, Any]] = {"policy": {"algorithm": "iqn"}, "env": {"num_envs": 1}}
"""As Sorrel trains: without them an environment of the user gets PPO and several copies."""
PARTS = ("head1", "cos_embedding", "ff_1", "advantage", "value")
"""The layers of a PyTorchIQN's network."""


def train(
    environment: Any,
    config: Mapping[str, Any] | None = None,
    *,
    max_turns: int | None = None,
    **settings: Any,
) -> Result:
    """Train the agents of an environment, and copy the weights into their models.

    Args:
        environment: a `sorrel.environment.Environment`; only its models change. Every process of
            the run gets copies of it.
        config: settings of the run, as in `remuda.train`.
        max_turns: maximum number of turns in an episode; None: the environment's
            `config.experiment.max_turns`.
        settings: sections of the configuration that override `config`, as in `remuda.train`.

    Returns:
        The result of `remuda.train`.

    Raises:
        UsageError: two agents share a model, which cannot receive both policies' weights; or a
            matchmaker assigns policies to seats, so that no policy belongs to one agent.
        RemudaError: as in `remuda.train`.
    """
    models = [agent.model for agent in environment.agents]
    for i, model in enumerate(models):
        if any(model is other for other in models[:i]):
            raise UsageError(
                f"agent {i} shares its model with another, but every agent learns independently "
                "here: give each agent its own model in setup_agents"
            )
    data = cloudpickle.dumps(environment)

    def game(num_envs: int) -> Any:
        from remuda.envs.adapters.sorrel import SorrelCopies

        return SorrelCopies(lambda: pickle.loads(data), num_envs, max_turns)

    sizes = {f"agent_{i}": settings_of(model) for i, model in enumerate(models)}
    own_sizes = {"policies": {name: own for name, own in sizes.items() if own}}
    tree = overlay(overlay(_defaults(settings), own_sizes), config or {})
    _refuse_dealt_seats(tree, settings)
    result = train_run(game, config=tree, **settings)
    run = load(result)
    for name, model in zip(sizes, models, strict=True):
        if name in run.config.env.scripted:
            log.info("%s is scripted (env.scripted), and its model is unchanged", name)
        else:
            put_back(run[name], model)
    return result


def _defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a new run that no preset has; a resumed run keeps its own."""
    if settings.get("resume") is not None:
        return {}
    chosen = tree_of(None, settings.get("preset", ()))
    return {
        section: {key: value for key, value in own.items() if key not in chosen.get(section, {})}
        for section, own in DEFAULTS.items()
    }


def _refuse_dealt_seats(tree: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise a `UsageError` if a matchmaker would assign the agents' seats."""
    sections = {name: value for name, value in settings.items() if name not in NO_SECTIONS}
    preset, resume = settings.get("preset", ()), settings.get("resume")
    whole = overlay(tree_of(tree, preset), name_objects(sections))
    where = getattr(resume, "path", getattr(resume, "directory", resume))
    if isinstance(where, str | Path):  # `remuda.train` refuses anything else
        whole = gone_on_with(Path(where).expanduser(), whole, preset)
    if load_config(whole).population.dealt:
        raise UsageError(
            "population has a matchmaker, which deals the seats of each match, but here each "
            "agent's model receives the weights of that agent's policy; leave it out, or "
            "use remuda.train, which changes no models"
        )


def is_iqn(model: Any) -> bool:
    """Return whether a model is a PyTorchIQN, judged by the layers of its networks."""
    networks = [getattr(model, f"qnetwork_{which}", None) for which in ("local", "target")]
    return all(
        network is not None and all(hasattr(network, part) for part in PARTS)
        for network in networks
    )


def settings_of(model: Any) -> dict[str, Any]:
    """Return the settings of a policy with a PyTorchIQN's sizes; empty for other models."""
    if not is_iqn(model):
        return {}
    return {
        "algorithm": "iqn",
        "n_frames": int(model.n_frames),
        "network": {"hidden": [int(model.layer_size)] * 2, "activation": "relu"},
        "iqn": {
            "quantiles": int(model.n_quantiles),
            "cosines": int(model.qnetwork_local.cos_embedding.weight.shape[1]),
        },
    }


def put_back(policy: Policy, model: Any) -> bool:
    """Copy a policy's weights into a PyTorchIQN; return False if the model does not match.

    The model's noisy layers get no noise, its `epsilon` becomes 0 (greedy), and its optimizer state
    is cleared. The model's action values are those of the policy, in the game's units of reward.
    """
    if not is_iqn(model):
        log.warning("%s is not a PyTorchIQN and is unchanged", type(model).__name__)
        return False
    config, weights = policy.player.spec.config, policy.weights()
    same = config.network.activation == "relu" and not config.network.recurrent
    if config.algorithm != "iqn" or not same or set(weights) != NAMES:
        log.warning(
            "%s does not have the layers of a PyTorchIQN (algorithm iqn, relu, two hidden layers, "
            "not noisy, not recurrent), so the model is unchanged",
            policy.name,
        )
        return False
    found = weights_of(weights, config.network.dueling, config.reward_scale)
    import torch

    for network in (model.qnetwork_local, model.qnetwork_target):
        named = dict(network.named_parameters())
        if any(named[name].shape != value.shape for name, value in found.items()):
            shapes = {name: tuple(value.shape) for name, value in found.items()}
            log.warning("a PyTorchIQN is unchanged: its sizes are not the policy's %s", shapes)
            return False
        with torch.no_grad():
            for name, value in found.items():
                named[name].copy_(torch.from_numpy(value))
            for name, parameter in named.items():
                if ".sigma_" in name:
                    parameter.zero_()
    model.epsilon = 0.0
    if hasattr(model, "optimizer"):
        model.optimizer.state.clear()
    return True


def weights_of(
    weights: Mapping[str, Floats], dueling: bool, reward_scale: float
) -> dict[str, Floats]:
    """Convert the weights of Remuda's IQN to those of a PyTorchIQN's network.

    Args:
        weights: weights of layers [inputs, outputs], biases [1, outputs].
        dueling: whether the head has a value and advantages.
        reward_scale: the factor by which rewards were multiplied in training.
    """
    # Sorrel's cosines start at cos(pi tau). Remuda's start at cos(0) = 1, whose weights become part
    # of the bias; Sorrel's last cosine has no counterpart and gets zeros.
    quantile = weights["quantile.weight"]
    cosines = np.zeros_like(quantile)
    cosines[:-1] = quantile[1:]
    head, bias = weights["head.weight"] / reward_scale, weights["head.bias"] / reward_scale
    if dueling:
        value, advantage = head[:, :1], head[:, 1:]
        value_bias, advantage_bias = bias[:, :1], bias[:, 1:]
    else:  # the mean as the value, and the whole head as advantages
        value, advantage = head.mean(1, keepdims=True), head
        value_bias, advantage_bias = bias.mean(1, keepdims=True), bias
    layers = {
        "head1": (weights["state.weight"], weights["state.bias"]),
        "cos_embedding": (cosines, weights["quantile.bias"] + quantile[:1]),
        "ff_1": (weights["hidden0.weight"], weights["hidden0.bias"]),
        "advantage": (advantage, advantage_bias),
        "value": (value, value_bias),
    }
    found: dict[str, Floats] = {}
    for name, (weight, offset) in layers.items():
        found[f"{name}.weight"] = np.ascontiguousarray(weight.T, np.float32)
        found[f"{name}.bias"] = np.ascontiguousarray(offset.reshape(-1), np.float32)
    return found
